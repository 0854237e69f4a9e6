"""Ordered gradient descent: who has most to say speaks first, and who has little says nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..checks import require_number
from .compressors import WORD
from .strategy import Moment, Sent, State, Strategy, sent


@dataclass(frozen=True)
class OrderedGradient(Strategy):
    """Workers send the change of their gradient in the order of its size, until the rest cannot matter.

    The idea is that of Chen, Sadler and Blum (SPAWC 2020): a worker waits in proportion to 1 over the norm of its
    innovation (its exact gradient minus the one that it sent last). The rule by which the server halts is ours: j of n
    workers have sent, those that wait have norms of at most r, and it halts as soon as (n - j) r is at most the
    threshold. What is missing is a sum of n - j vectors of norms of at most r, so the sum of gradients in use differs
    from the true one by at most the threshold, and the step from that of gradient descent by at most eta threshold / n.

    Attributes
    ----------
    threshold : float
        0: everything that differs is sent, gradient descent.
    relative : float
        Threshold as a share of the norm of the sum that the server used last; added to the other.
    """

    threshold: float = 0.0
    relative: float = 0.1
    exact = True

    def __post_init__(self) -> None:
        require_number(self.threshold, "OrderedGradient: threshold")
        require_number(self.relative, "OrderedGradient: relative")

    def begin(self, start: np.ndarray, workers: int) -> State:
        told = np.zeros((len(start), workers, start.shape[-1]), start.dtype)
        return {"x": start[:, None].copy(), "told": told, "silent": np.zeros(len(start))}

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        told = state["told"]
        norms = np.linalg.norm(gradients - told, axis=-1)
        halt = self.threshold + self.relative * np.linalg.norm(told.sum(axis=1), axis=-1)
        speaks = speakers(norms, halt)
        told[speaks] = gradients[speaks]
        state["x"] -= moment.rate * told.mean(axis=1, keepdims=True)
        d, spoken = gradients.shape[-1], speaks.mean(axis=1)
        return sent(len(gradients), WORD * d * spoken, WORD * d)


def speakers(norms: np.ndarray, threshold: np.ndarray) -> np.ndarray:
    """Who sends, as bool of shape (S, n), from the norms of the innovations and thresholds of shape (S,)."""
    order = np.argsort(-norms, axis=1, kind="stable")
    falling = np.take_along_axis(norms, order, axis=1)
    waiting = norms.shape[1] - np.arange(norms.shape[1])
    enough = waiting * falling <= threshold[:, None]  # the first who need not, and all after them
    silent = np.logical_or.accumulate(enough, axis=1)
    speaks = np.empty_like(silent)
    np.put_along_axis(speaks, order, ~silent, axis=1)
    return speaks
