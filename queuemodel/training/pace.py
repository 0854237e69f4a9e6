"""How fast workers are, and what says so for a kind of cluster."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

#: In the place of a demand of nothing, so that quotients stay finite (seconds).
NOTHING = 1e-300


class Pace(NamedTuple):
    """How fast n workers are: throughput X (n, ...), residence times R (n, ..., K), worker's own time Z (n, ...)."""

    X: np.ndarray
    R: np.ndarray
    Z: np.ndarray


class Rule(Protocol):
    """A kind of cluster."""

    @property
    def method(self) -> str:
        """Name of the method, and whether it is exact."""

    def solve(self, D: np.ndarray, Z: np.ndarray, populations: np.ndarray) -> Pace:
        """The pace at increasing populations (n,), for demands D (..., K) and workers' own times Z."""
