"""Compression both ways with error feedback and momentum."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..checks import require_count, require_share
from .compressors import Compressor, TopK
from .strategy import Moment, Sent, State, Strategy, nothing, per_worker, sent


@dataclass(frozen=True)
class DoubleCompression(Strategy):
    """What is lost in compression is kept and sent later, at the workers and at the server.

    DoubleSqueeze (Tang et al., ICML 2019) and dist-EF-SGDM (Zheng et al., NeurIPS 2019); with ``local_steps`` > 1 once
    in so many steps, between which workers go on alone. Worker: m <- momentum m + g, p = eta (momentum m + g) + e,
    sends C(p), keeps e = p - C(p); server: the same with the mean of what came, and its own error. e is in units of a
    step, so a changing learning rate needs no scaling. Unbiased compressors are scaled down to contractions
    (`Compressor.contract`).

    Attributes
    ----------
    compressor : Compressor
        Both ways; `Identity` gives SGD.
    momentum : float
        Nesterov's.
    local_steps : int
    """

    compressor: Compressor = field(default_factory=TopK)
    momentum: float = 0.0
    local_steps: int = 1

    def __post_init__(self) -> None:
        require_share(self.momentum, "DoubleCompression: momentum")
        require_count(self.local_steps, "DoubleCompression: local_steps", least=1)

    def begin(self, start: np.ndarray, workers: int) -> State:
        x, anchor = per_worker(start, workers), start[:, None].copy()
        names = ("m", "moved", "error")
        return {"x": x, "anchor": anchor, "server_error": np.zeros_like(anchor)} | {n: np.zeros_like(x) for n in names}

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        direction = gradients
        if self.momentum:
            state["m"] = self.momentum * state["m"] + gradients
            direction = self.momentum * state["m"] + gradients
        state["moved"] += moment.rate * direction
        if (moment.number + 1) % self.local_steps:
            np.subtract(state["anchor"], state["moved"], out=state["x"])
            return nothing(len(gradients))
        wanted = state["moved"] + state["error"]
        told = self.compressor.contract(wanted, moment.rngs)
        state["error"] = wanted - told
        total = told.mean(axis=1, keepdims=True) + state["server_error"]
        answer = self.compressor.contract(total, moment.rngs)
        state["server_error"] = total - answer
        state["anchor"] -= answer
        state["x"][:] = state["anchor"]
        state["moved"][:] = 0.0
        bits = self.compressor.bits(gradients.shape[-1])
        return sent(len(gradients), bits, bits)

    def model(self, state: State) -> np.ndarray:
        return state["anchor"][:, 0]
