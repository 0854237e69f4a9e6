"""Steps on one GPU: the computation that every placement repeats."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Alone:
    """Steps on one GPU, by increasing batch size; linear between them.

    Attributes
    ----------
    batch_size : ndarray of int, shape (n,)
    step_time : ndarray, shape (n,)
        Seconds.
    draws : ndarray, shape (B, n)
        Seconds, drawn with the other parameters.
    """

    batch_size: np.ndarray
    step_time: np.ndarray
    draws: np.ndarray

    @property
    def span(self) -> str:
        """The batch sizes, for messages."""
        return span(self.batch_size)

    def covers(self, batch_size: int) -> bool:
        """Whether it lies among those measured."""
        return bool(self.batch_size[0] <= batch_size <= self.batch_size[-1])

    def at(self, batch_size: np.ndarray | int) -> np.ndarray:
        """Seconds."""
        return np.asarray(np.interp(batch_size, self.batch_size, self.step_time))

    def drawn(self, batch_size: int) -> np.ndarray:
        """Seconds of the draws, shape (B, 1)."""
        return self.draws @ shares(np.array([batch_size]), self.batch_size).T


def shares(batch_size: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """Weights (n, sizes) of steps at the measured batch sizes in those at others (n,)."""
    return np.column_stack([np.interp(batch_size, measured, unit) for unit in np.eye(len(measured))])


def span(batch_size: np.ndarray) -> str:
    """The smallest and the largest, for messages."""
    first, last = batch_size[[0, -1]]
    return f"{first}" if first == last else f"{first} to {last}"
