"""Points and ends of distributions of throughputs, given as logarithms (n, B) of unequal probability."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: Ends of a distribution's middle, two standard deviations apart for a Gaussian: how wide it is, whatever its tails.
MIDDLE = (0.16, 0.84)
#: See `least_relative_error` (assumed).
FLOOR = 0.6


def quantiles(columns: np.ndarray, chance: np.ndarray, levels: Sequence[float]) -> np.ndarray:
    """Quantiles (levels, n) of columns (n, B) whose probabilities are ``chance``, (B,) or (n, B)."""
    order = np.argsort(columns, axis=1)
    ordered = np.take_along_axis(columns, order, axis=1)
    reached = np.cumsum(np.take_along_axis(np.broadcast_to(chance, columns.shape), order, axis=1), axis=1)
    return np.array([np.interp(levels, c / c[-1], v) for c, v in zip(reached, ordered, strict=True)]).T


def least_relative_error(columns: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """The points (n,) whose expected error, relative to what comes, is least.

    That is the median under probabilities that are divided by the values (Gneiting, Making and Evaluating Point
    Forecasts, 2011): below the median, as too high a throughput has the larger relative error. Values below `FLOOR` of
    the median count as if they were there, so that the unlikeliest do not decide.
    """
    off = columns - quantiles(columns, chance, [0.5])[0][:, None]
    return quantiles(columns, chance * np.exp(-np.maximum(off, np.log(FLOOR))), [0.5])[0]


def width(columns: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """Of the middle, (n,)."""
    return np.ptp(quantiles(columns, chance, MIDDLE), axis=0)
