"""What training yields: the loss by step, by time, and by bits sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..results import Result, rows_of


@dataclass(frozen=True, eq=False, repr=False)
class Descent(Result):
    """Losses of S runs of a strategy, looked at T times.

    Attributes
    ----------
    strategy : object
    seeds : tuple of int
    workers : int
    steps : ndarray of int, shape (T,)
    times : ndarray, shape (S, T)
        Seconds of the clock.
    losses : ndarray, shape (S, T)
        Of the parameters that training has reached; infinite once a run has diverged.
    up_bits, down_bits : ndarray, shape (S, T)
        Sent and received so far, mean over the workers (`ServerSGD`: by the one that completed).
    model : ndarray, shape (S, d)
        The last parameters.
    staleness : ndarray, shape (S,)
        Mean number of updates between the beginning of a gradient and its completion (`ServerSGD`).
    """

    strategy: Any
    seeds: tuple[int, ...]
    workers: int
    steps: np.ndarray
    times: np.ndarray
    losses: np.ndarray
    up_bits: np.ndarray
    down_bits: np.ndarray
    model: np.ndarray
    staleness: np.ndarray

    def first(self, loss: float) -> np.ndarray:
        """Where in `steps` each run first has at most this loss, shape (S,); -1 where it never has."""
        reached = self.losses <= loss
        return np.where(reached.any(axis=1), reached.argmax(axis=1), -1)

    def steps_to(self, loss: float) -> np.ndarray:
        """Steps until each run was first seen with at most this loss, shape (S,); infinite where it never was."""
        return self._to(loss, np.broadcast_to(self.steps, self.losses.shape))

    def time_to(self, loss: float) -> np.ndarray:
        """Seconds until each run was first seen with at most this loss, shape (S,); infinite where it never was."""
        return self._to(loss, self.times)

    def _to(self, loss: float, what: np.ndarray) -> np.ndarray:
        first = self.first(loss)
        return np.where(first >= 0, what[np.arange(len(first)), first], np.inf)

    def to_rows(self) -> list[dict[str, Any]]:
        """A row for each look at the loss: means over the runs, and their least and largest loss."""
        return rows_of({
            "step": self.steps.astype(float),
            "seconds": self.times.mean(axis=0),
            "loss": self.losses.mean(axis=0),
            "least": self.losses.min(axis=0),
            "largest": self.losses.max(axis=0),
            "megabytes_up": self.up_bits.mean(axis=0) / 8e6,
            "megabytes_down": self.down_bits.mean(axis=0) / 8e6,
        })  # fmt: skip

    def shown_rows(self) -> list[dict[str, Any]]:
        rows = self.to_rows()
        return [rows[i] for i in np.unique(np.linspace(0, len(rows) - 1, 8).round().astype(int))]

    def caption(self) -> str:
        return f"{self.strategy}, {self.workers} workers, {len(self.seeds)} seeds"
