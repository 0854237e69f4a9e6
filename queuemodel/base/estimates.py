"""Fitted parameters, with their uncertainty."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np

Origin = Literal["measured", "derived", "assumed"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One fitted parameter, with its uncertainty.

    Attributes
    ----------
    name, unit : str
    value, standard_error : float
        The error is NaN if unknown.
    origin : {"measured", "derived", "assumed"}
    identified : bool
        Whether the data determine it.
    note : str
    """

    name: str
    value: float
    unit: str
    _: KW_ONLY
    standard_error: float = math.nan
    origin: Origin = "measured"
    identified: bool = True
    note: str = ""

    def to_row(self, *, shown: bool = False) -> dict[str, Any]:
        """The parameter as a row of a table; to be printed, with all but its note in five columns."""
        origin = self.origin if self.identified or self.origin == "assumed" else f"{self.origin}, not identified"
        about: dict[str, Any] = {"origin": self.origin, "identified": "yes" if self.identified else "no"}
        return {
            "parameter": self.name,
            "value": None if math.isnan(self.value) else self.value,
            "standard_error": None if math.isnan(self.standard_error) else self.standard_error,
            "unit": self.unit,
            **({"origin": origin} if shown else about | {"note": self.note}),
        }


def standard_errors(draws: np.ndarray) -> np.ndarray:
    """Half the width of the central 68 % of draws (B, ...), robust to heavy and skewed tails."""
    low, high = np.quantile(draws, [0.15866, 0.84134], axis=0)
    return np.asarray((high - low) / 2)


def normal_quantile(confidence: float) -> float:
    """Standard errors from the centre to the ends of a two-sided interval."""
    return -NormalDist().inv_cdf((1.0 - confidence) / 2.0)
