"""Estimates with their intervals, and fitted parameters with their errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np

from .checks import nearest, require_share
from .errors import ModelError
from .results import Result, finite, percent, significant

Origin = Literal["measured", "derived", "assumed"]


@dataclass(frozen=True, slots=True, repr=False)
class Estimate:
    """A value in its unit, between the ends of an interval that has the probability ``confidence``."""

    value: float
    lower: float
    upper: float
    unit: str = ""
    confidence: float = 0.9

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        value, lower, upper = map(significant, (self.value, self.lower, self.upper))
        return f"{' '.join(filter(None, [value, self.unit]))} ({lower} to {upper})"

    def __repr__(self) -> str:
        return f"{self}, {percent(self.confidence)} interval"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One fitted parameter, with its uncertainty."""

    name: str
    value: float
    unit: str
    _: KW_ONLY
    standard_error: float = math.nan  #: NaN if unknown
    origin: Origin = "measured"
    identified: bool = True  #: whether the data determine it
    note: str = ""

    def interval(self, confidence: float = 0.9) -> Estimate:
        """Its value and the ends of its interval, as of a normal error (approximate); not below 0 where positive."""
        require_share(confidence, "interval: confidence", open_ended=True)
        reach = normal_quantile(confidence) * self.standard_error
        lower = self.value - reach
        lower = max(lower, 0.0) if self.value > 0 else lower
        return Estimate(self.value, lower, self.value + reach, self.unit, confidence)

    def to_row(self, *, shown: bool = False) -> dict[str, Any]:
        """The parameter as a row of a table; to be printed, with all but its note in five columns."""
        origin = self.origin if self.identified or self.origin == "assumed" else f"{self.origin}, not identified"
        about: dict[str, Any] = {"origin": self.origin, "identified": "yes" if self.identified else "no"}
        return {
            "parameter": self.name, "value": None if math.isnan(self.value) else self.value,
            "standard_error": None if math.isnan(self.standard_error) else self.standard_error, "unit": self.unit,
            **({"origin": origin} if shown else about | {"note": self.note}),
        }  # fmt: skip


@dataclass(frozen=True, repr=False)
class Parameters(Result, Sequence[Parameter]):
    """Fitted parameters, by place or by name: ``model.parameters["latency"]``; a part of a name that one has is enough.

    Rows have their intervals of the probability ``confidence``.
    """

    every: tuple[Parameter, ...]
    confidence: float = 0.9
    _index = "parameter"

    def __len__(self) -> int:
        return len(self.every)

    def __getitem__(self, at: Any) -> Any:
        if not isinstance(at, str):
            return self.every[at]
        names = [one.name for one in self.every]
        found = [one for one in self.every if one.name == at] or [one for one in self.every if at in one.name]
        if len(found) != 1:
            raise ModelError(f"parameters: must be one of {', '.join(names)}, got {at!r}{nearest(at, names)}")
        return found[0]

    def caption(self) -> str:
        """The probability of the intervals."""
        return f"intervals of {percent(self.confidence)}"

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per parameter."""
        order = dict.fromkeys(("parameter", "value", "lower", "upper"))
        known = ((one.to_row(), one.interval(self.confidence)) for one in self.every)
        return [order | row | {"lower": finite(ends.lower), "upper": finite(ends.upper)} for row, ends in known]

    def _shown_rows(self) -> list[dict[str, Any]]:
        names = ("parameter", "value", "lower", "upper", "unit", "origin")
        return [{name: row[name] for name in names} for row in self.to_rows()]


def standard_errors(draws: np.ndarray) -> np.ndarray:
    """Half the width of the central 68 % of draws (B, ...), robust to heavy and skewed tails."""
    low, high = np.quantile(draws, [0.15866, 0.84134], axis=0)
    return np.asarray((high - low) / 2)


def normal_quantile(confidence: float) -> float:
    """Standard errors from the centre to the ends of a two-sided interval."""
    return -NormalDist().inv_cdf((1.0 - confidence) / 2.0)
