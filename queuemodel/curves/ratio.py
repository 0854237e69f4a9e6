"""The ratio of two predictions: errors that both have in common cancel in its interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.errors import ModelError
from ..base.estimates import Estimate
from ..base.results import Result, counted, percent, rows_of
from .figures import plot_ratio

#: Curves, which divide themselves with these functions and so import them.
ThroughputCurve = Any


@dataclass(frozen=True, eq=False, repr=False)
class Ratio(Result):
    """Examples per second of one curve over those of another (arrays have shape (n,)); ``curve / other`` gives it."""

    workers: np.ndarray  # Those of both curves
    value: np.ndarray  # The ratio, and in lower and upper its interval, without the noise of measuring
    lower: np.ndarray
    upper: np.ndarray
    confidence: float  # Probability of the interval
    #: Whether both curves are of one fit: then the interval is that of their common draws. Else their errors are taken
    #: as independent, which makes it wider (approximate)
    common: bool
    _digits, _index = 3, "workers"
    plot = plot_ratio

    def __getitem__(self, workers: int) -> Estimate:
        """The ratio on one of `workers`, with its interval."""
        if workers not in self.workers:
            raise ModelError(f"ratio: workers must be one of {', '.join(map(str, self.workers))}, got {workers!r}")
        (i,) = np.flatnonzero(self.workers == workers)
        value, lower, upper = (float(x[i]) for x in (self.value, self.lower, self.upper))
        return Estimate(value, lower, upper, confidence=self.confidence)

    __iter__ = None  # not by numbers of workers from 0 on

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per number of workers."""
        return rows_of({"workers": self.workers, "ratio": self.value, "lower": self.lower, "upper": self.upper})

    def answer(self) -> str:
        """The ratio on the most workers."""
        most = int(self.workers[-1])
        return f"{counted(most, 'worker')}: {self[most]} times the throughput; {percent(self.confidence)} intervals"

    def notes(self) -> list[str]:
        """Where errors do not cancel."""
        return [] if self.common else ["the curves are of two fits, whose errors are taken as independent"]


def ratio_of(curve: ThroughputCurve, other: ThroughputCurve) -> Ratio:
    """The ratio of two curves where both have numbers of workers, of the same work and confidence (`ModelError`)."""
    for name in ("unit", "confidence"):
        if (one := getattr(curve, name)) != (two := getattr(other, name)):
            raise ModelError(f"ratio: curves must have the same {name}, got {one!r} and {two!r}")
    workers, i, j = np.intersect1d(curve.workers, other.workers, return_indices=True)
    if not len(workers):
        raise ModelError("ratio: curves must have numbers of workers in common; predict both for the same")
    value = curve.examples_per_second[i] / other.examples_per_second[j]
    models = curve.model, other.model
    prediction = None if None in models else curve.model.relative(other.model, workers)
    if prediction is not None:
        _, lower, upper = prediction.interval(curve.confidence) * curve.batch_size / other.batch_size
    else:  # log-normal errors, independent: half widths of the logarithm add up as squares
        half = [(np.log(x.steps_per_second / x.lower)[at], np.log(x.upper / x.steps_per_second)[at])
                for x, at in ((curve, i), (other, j))]  # fmt: skip
        (down, up), (other_down, other_up) = half
        lower, upper = value * np.exp(-np.hypot(down, other_up)), value * np.exp(np.hypot(up, other_down))
    ends = np.minimum(lower, value), np.maximum(upper, value)
    return Ratio(workers, value, *ends, curve.confidence, prediction is not None)
