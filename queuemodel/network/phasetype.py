"""Phase-type service: the time a small Markov chain takes to end."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import require_number
from ..errors import ModelError

#: More phases than this make every exact chain hopeless.
MOST_PHASES = 100


@dataclass(frozen=True, slots=True)
class PhaseType:
    """A phase-type distribution: start in phase i with probability alpha[i], move by the subgenerator T, end.

    Parameters
    ----------
    alpha : sequence of float, shape (n,)
        Probabilities of the first phase; they sum to one.
    T : sequence of sequences, shape (n, n)
        Rates (1/s) between phases; rows sum to zero or less, and every phase leads to the end.

    Raises
    ------
    ModelError
        When these are no probabilities or no rates.

    Examples
    --------
    >>> PhaseType.from_moments(mean=0.05, scv=0.25).scv
    0.25
    """

    alpha: tuple[float, ...]
    T: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        a, T = _array(self.alpha, "alpha", 1), _array(self.T, "T", 2)
        n = len(a)
        if not 1 <= n <= MOST_PHASES or T.shape != (n, n):
            raise ModelError(
                f"phase-type: alpha needs 1 to {MOST_PHASES} phases and T that many rows and columns, "
                f"got shapes {a.shape} and {T.shape}"
            )
        if (a < 0).any() or abs(a.sum() - 1) > 1e-9:
            raise ModelError(f"phase-type: alpha must be probabilities that sum to 1, got sum {a.sum():.10g}")
        off = T - np.diag(T.diagonal())
        scale = np.abs(T.diagonal())
        if (scale == 0).any() or (T.diagonal() > 0).any() or (off < 0).any() or (T.sum(axis=1) > 1e-9 * scale).any():
            raise ModelError("phase-type: T needs a negative diagonal, rates >= 0 elsewhere and rows that sum to <= 0")
        if (scale > 1e15).any() or (scale < 1e-9).any():
            raise ModelError("phase-type: rates in T must be 1e-9 to 1e15 per second")
        object.__setattr__(self, "alpha", tuple(float(x) for x in a / a.sum()))
        object.__setattr__(self, "T", tuple(tuple(float(x) for x in row) for row in T))
        with np.errstate(all="ignore"):
            ends = np.linalg.matrix_rank(T) == n
        if not ends or not 0 < self.mean < 1e9:
            raise ModelError("phase-type: T must lead to the end from every phase (it is singular)")

    @property
    def mean(self) -> float:
        """Mean, seconds."""
        return float(np.array(self.alpha) @ np.linalg.solve(-np.array(self.T), np.ones(len(self.alpha))))

    @property
    def scv(self) -> float:
        """Squared coefficient of variation."""
        T = -np.array(self.T)
        once = np.linalg.solve(T, np.ones(len(T)))
        second = float(2 * np.array(self.alpha) @ np.linalg.solve(T, once))
        return max(0.0, round(second / self.mean**2 - 1, 14))

    @property
    def exit_rates(self) -> np.ndarray:
        """Rates (1/s) at which each phase ends the service, shape (n,)."""
        return np.maximum(-np.array(self.T).sum(axis=1), 0.0)

    @classmethod
    def exponential(cls, mean: float) -> PhaseType:
        """One phase."""
        return cls((1.0,), ((-1.0 / require_number(mean, "phase-type: mean", unit="seconds", positive=True),),))

    @classmethod
    def from_moments(cls, *, mean: float, scv: float) -> PhaseType:
        """Two moments: a mixture of Erlang(k-1) and Erlang(k) below 1, balanced-means hyperexponential above.

        Both are the usual fits (Tijms, 1994). An scv below 0.01 would need more than 100 phases and is refused.
        """
        mean = require_number(mean, "phase-type: mean", unit="seconds", positive=True)
        scv = require_number(scv, "phase-type: scv", unit="(squared coefficient of variation)")
        if scv < 1 / MOST_PHASES:
            raise ModelError(f"phase-type: scv must be at least {1 / MOST_PHASES:g} to have phases, got {scv!r}")
        if abs(scv - 1) < 1e-12:
            return cls.exponential(mean)
        if scv > 1:
            p = 0.5 * (1 + math.sqrt((scv - 1) / (scv + 1)))
            return cls((p, 1 - p), ((-2 * p / mean, 0.0), (0.0, -2 * (1 - p) / mean)))
        k = max(2, math.ceil(1 / scv - 1e-9))
        p = (k * scv - math.sqrt(max(k * (1 + scv) - k * k * scv, 0.0))) / (1 + scv)
        p = min(max(p, 0.0), 1.0)
        rate = (k - p) / mean
        T = np.diag([-rate] * k) + np.diag([rate] * (k - 1), 1)
        return cls((1 - p, p, *[0.0] * (k - 2)), tuple(map(tuple, T)))  # skipping the first phase with probability p


def _array(value: Any, what: str, dimensions: int) -> np.ndarray:
    array = numbers_in(value)
    if array is None or array.ndim != dimensions:
        raise ModelError(f"phase-type: {what} must be an array of numbers with {dimensions} dimension(s)")
    if not np.isfinite(array).all():
        raise ModelError(f"phase-type: {what} must be finite")
    return array


def numbers_in(value: Any) -> np.ndarray | None:
    """A float array of numbers that are laid out like one (NaN and infinity are left for others); else None."""
    try:
        array = np.array(value)
        return array.astype(float) if array.dtype.kind in "iuf" else None
    except (TypeError, ValueError, OverflowError):
        return None
