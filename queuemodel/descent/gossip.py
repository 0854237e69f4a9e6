"""SQuARM-SGD: neighbours on a graph exchange compressed changes, and only when there are any."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..checks import require_count, require_number, require_share
from .compressors import Compressor, Identity
from .graphs import degree, mixing_matrix
from .strategy import Moment, Sent, State, Strategy, nothing, per_worker, sent


@dataclass(frozen=True)
class SquarmSGD(Strategy):
    """Nesterov momentum, local steps, event-triggered compressed gossip (Singh, Data, George and Diggavi 2020).

    v <- momentum v + g, x <- x - eta (momentum v + g); every ``local_steps`` steps a worker whose distance from what
    its neighbours know of it exceeds eta sqrt(trigger) sends them the compressed difference (`Compressor.contract`),
    and moves by ``mixing`` times the weighted difference of what it knows of them and they of it.

    Attributes
    ----------
    graph : {"ring", "torus", "complete"}
    compressor : Compressor
    local_steps : int
    trigger : float
        0: whoever has changed sends.
    mixing : float
        In (0, 1]; stable with less for coarser compression.
    momentum : float
    """

    graph: str = "ring"
    compressor: Compressor = field(default_factory=Identity)
    local_steps: int = 1
    trigger: float = 0.0
    mixing: float = 1.0
    momentum: float = 0.0

    def __post_init__(self) -> None:
        mixing_matrix(self.graph, 1)
        require_count(self.local_steps, "SquarmSGD: local_steps", least=1)
        require_number(self.trigger, "SquarmSGD: trigger")
        require_number(self.mixing, "SquarmSGD: mixing", positive=True, largest=1.0)
        require_share(self.momentum, "SquarmSGD: momentum")

    def begin(self, start: np.ndarray, workers: int) -> State:
        x = per_worker(start, workers)
        return {"x": x, "known": x.copy(), "v": np.zeros_like(x), "weights": mixing_matrix(self.graph, workers)}

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        x, known, weights = state["x"], state["known"], state["weights"]
        state["v"] = self.momentum * state["v"] + gradients
        x -= moment.rate * (self.momentum * state["v"] + gradients if self.momentum else gradients)
        if (moment.number + 1) % self.local_steps:
            return nothing(len(gradients))
        change = x - known
        speaks = np.square(change).sum(axis=-1) > self.trigger * moment.rate**2
        known += np.where(speaks[..., None], self.compressor.contract(change, moment.rngs), 0)
        x += (self.mixing * (weights.astype(x.dtype) @ known - known)).astype(x.dtype)
        bits = speaks.mean(axis=1) * degree(weights) * self.compressor.bits(x.shape[-1])
        return sent(len(gradients), bits, bits, partners=weights > 0)
