"""Overlap Local-SGD: the average of the last round arrives while the next one runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..checks import require_count, require_share
from .strategy import Moment, Sent, State, Strategy, move, nothing, per_worker, whole


@dataclass(frozen=True)
class OverlapLocalSGD(Strategy):
    """Workers are pulled towards an anchor that was averaged one round earlier (Wang, Liang and Joshi, ICASSP 2020).

    At multiples of ``local_steps``: x_i <- (1 - pull) x_i + pull z; v <- momentum v + (z - mean x_i) / eta;
    z <- z - eta v; and z's all-reduce goes on beside the next steps.

    Attributes
    ----------
    local_steps : int
    pull, momentum : float
        In [0, 1]; 0.6 and 0.7 in the paper.
    """

    local_steps: int = 2
    pull: float = 0.6
    momentum: float = 0.7

    def __post_init__(self) -> None:
        require_count(self.local_steps, "OverlapLocalSGD: local_steps", least=1)
        require_share(self.pull, "OverlapLocalSGD: pull")
        require_share(self.momentum, "OverlapLocalSGD: momentum")

    def begin(self, start: np.ndarray, workers: int) -> State:
        z = start[:, None].copy()
        return {"x": per_worker(start, workers), "z": z, "v": np.zeros_like(z)}

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        x, z = state["x"], state["z"]
        move(x, gradients, moment.rate)
        if (moment.number + 1) % self.local_steps:
            return nothing(len(gradients))
        x += self.pull * (z - x)
        state["v"] = self.momentum * state["v"] + (z - x.mean(axis=1, keepdims=True)) / moment.rate
        state["z"] = z - moment.rate * state["v"]
        return whole(len(gradients), gradients.shape[-1], ahead=True)
