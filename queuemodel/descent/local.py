"""Local SGD: workers go on alone, and average their parameters every few steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..checks import require_count
from .strategy import Moment, Sent, State, Strategy, move, nothing, over_workers, per_worker, whole


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
        return {"x": per_worker(start, workers)}

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        x = state["x"]
        if (moment.number + 1) % self.local_steps:
            move(x, gradients, moment.rate)
            return nothing(len(gradients))
        gradients *= moment.rate
        apart = moment.number % self.local_steps  # else all are where the first is
        x[:] = (over_workers(x) if apart else x[:, :1]) - over_workers(gradients)
        return whole(len(gradients), gradients.shape[-1])
