"""Synchronous SGD: every step, all workers average their gradients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..checks import require_share
from .strategy import Moment, Sent, State, Strategy, over_workers, whole


@dataclass(frozen=True)
class SynchronousSGD(Strategy):
    """x <- x - eta v, where v <- momentum v + mean of the gradients (Polyak 1964).

    Attributes
    ----------
    momentum : float
        In [0, 1].
    """

    momentum: float = 0.0

    def __post_init__(self) -> None:
        require_share(self.momentum, "SynchronousSGD: momentum")

    def begin(self, start: np.ndarray, workers: int) -> State:
        return {"x": start[:, None].copy(), "v": np.zeros_like(start)[:, None]}

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        if self.momentum:
            state["v"] = gradients = self.momentum * state["v"] + over_workers(gradients)
        state["x"] -= over_workers(moment.rate * gradients)
        return whole(len(gradients), gradients.shape[-1])
