"""AdaQuantFL: coarse messages at first, finer ones as the loss falls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..checks import require_count
from .compressors import WORD, qsgd_bits, quantize
from .strategy import Moment, Sent, State, Strategy, nothing, per_worker, sent


@dataclass(frozen=True)
class AdaQuantFL(Strategy):
    """Local steps whose sum is sent in more and more levels (Jhunjhunwala, Gadhikar, Joshi and Eldar, ICASSP 2021).

    There are ceil(sqrt(f(w_0) / f(w_k)) initial_levels) of them, from the loss f. The way down is not compressed.

    Attributes
    ----------
    local_steps, initial_levels : int
    """

    local_steps: int = 4
    initial_levels: int = 2

    def __post_init__(self) -> None:
        require_count(self.local_steps, "AdaQuantFL: local_steps", least=1)
        require_count(self.initial_levels, "AdaQuantFL: initial_levels", least=1)

    def begin(self, start: np.ndarray, workers: int) -> State:
        x = per_worker(start, workers)
        runs = len(start)
        return {
            "x": x,
            "anchor": start[:, None].copy(),
            "moved": np.zeros_like(x),
            "first_loss": np.full(runs, np.nan),
            "levels": np.full(runs, self.initial_levels),
        }

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        if moment.number == 0:
            state["first_loss"] = moment.loss(state["anchor"][:, 0])
        state["moved"] += moment.rate * gradients
        if (moment.number + 1) % self.local_steps:
            np.subtract(state["anchor"], state["moved"], out=state["x"])
            return nothing(len(gradients))
        levels = state["levels"]
        u = np.stack([rng.random(gradients.shape[1:]) for rng in moment.rngs])
        told = quantize(state["moved"], u, levels[:, None, None])
        state["anchor"] -= told.mean(axis=1, keepdims=True)
        state["x"][:] = state["anchor"]
        state["moved"][:] = 0.0
        d = gradients.shape[-1]
        bits = qsgd_bits(d, levels)
        share = state["first_loss"] / np.maximum(moment.loss(state["anchor"][:, 0]), np.finfo(float).tiny)
        wanted = np.ceil(np.sqrt(np.maximum(share, 0.0)) * self.initial_levels)
        state["levels"] = np.clip(wanted, 1, 2.0**31).astype(np.int64)
        return sent(len(gradients), bits, WORD * d)

    def model(self, state: State) -> np.ndarray:
        return state["anchor"][:, 0]
