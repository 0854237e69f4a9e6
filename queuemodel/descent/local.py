"""Local SGD: workers go on alone, and average their parameters every few steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..checks import require_count
from .strategy import Moment, Sent, State, Strategy, nothing, per_worker, whole


@dataclass(frozen=True)
class LocalSGD(Strategy):
    """Averages every ``local_steps`` steps (Stich, ICLR 2019; McDonald et al. 2010); 1 is synchronous SGD, bit for bit.

    Attributes
    ----------
    local_steps : int
    """

    local_steps: int = 8

    def __post_init__(self) -> None:
        require_count(self.local_steps, "LocalSGD: local_steps", least=1)

    def begin(self, start: np.ndarray, workers: int) -> State:
        x = per_worker(start, workers)
        return {"x": x, "anchor": start[:, None].copy(), "moved": np.zeros_like(x)}

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        gradients *= moment.rate
        state["moved"] += gradients
        if (moment.number + 1) % self.local_steps:
            np.subtract(state["anchor"], state["moved"], out=state["x"])
            return nothing(len(gradients))
        average(state, np.ones(len(gradients), bool))
        return whole(len(gradients), gradients.shape[-1])


def average(state: State, runs: np.ndarray) -> None:
    """All workers of these runs (bool, shape (S,)) go on from the mean of where they are."""
    state["anchor"][runs] -= state["moved"][runs].mean(axis=1, keepdims=True)
    state["moved"][runs] = 0.0
    state["x"][runs] = state["anchor"][runs]
