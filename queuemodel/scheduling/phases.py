"""What a job runs by, one phase of its training after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class Phase:
    """A stretch of a job's work.

    Attributes
    ----------
    until : float
        Steps done at its end, counted from the job's start.
    curve, seen : SpeedCurve
        Steps per second against nodes: those that run, and those that a policy sees.
    batch_size : ndarray of int, shape (nodes + 1,), or None
        What is chosen on so many nodes, where the job may choose; 0: it does not run there.
    """

    until: float
    curve: Callable[[float], float]
    seen: Callable[[float], float]
    batch_size: np.ndarray | None = None
