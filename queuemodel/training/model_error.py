"""How far the models themselves err, whatever their parameters, by where a number of workers stands to the knee.

The numbers are in model_error.json beside this module, with the series that they were learnt from; ``python -m
validation.model_errors`` makes it.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Literal

import numpy as np

Method = Literal["mva", "trace"]

#: Numbers of workers over the saturation population: centres of what is below, at, beyond and far beyond the knee.
REGIONS = {"below": 0.5, "at": 1.0, "beyond": 2.0, "far": 4.0}


def regions(ratio: np.ndarray) -> np.ndarray:
    """How much of each region is in numbers of workers over the saturation population (n,): shares (n, 4)."""
    doublings = np.log2(np.maximum(ratio, 1e-9))
    centres, one = np.log2(list(REGIONS.values())), np.eye(len(REGIONS))
    return np.array([np.interp(doublings, centres, one[k]) for k in range(len(REGIONS))]).T


@cache
def _file() -> dict[str, dict[str, float]]:
    told = json.loads((resources.files(__package__) / "model_error.json").read_text(encoding="utf-8"))
    return {method: told[method] for method in ("mva", "trace")}


def model_error(method: Method, ratio: np.ndarray) -> np.ndarray:
    """Relative standard errors at several workers, (n,), from their numbers over the saturation population."""
    told = _file()[method]
    return np.sqrt(regions(ratio) @ np.square([told[name] for name in REGIONS]))


def worst_error(method: Method) -> float:
    """The largest of them: for machines on which the regions were not judged."""
    return float(model_error(method, np.array(list(REGIONS.values()))).max())


def waiting_error() -> float:
    """Relative standard error that waiting adds to a simulation between a barrier and none (independent)."""
    return _file()["trace"]["waiting"]


def profiled_error(method: Method) -> float:
    """Relative standard error at the profiled number of workers: tracing makes steps longer."""
    return _file()[method]["profiled"]


def doubling(method: Method) -> float:
    """Correlation of the errors at two numbers of workers, one twice the other."""
    return _file()[method]["doubling"]
