"""Errors of the models themselves, by the number of workers relative to the saturation population.

The numbers are in model_error.json beside this module, with the series that they were learnt from; ``python -m
validation.model_errors`` makes it.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any, Literal

import numpy as np

Method = Literal["mva", "trace"]

#: Numbers of workers over the saturation population: centres of what is below, at, beyond and far beyond the knee.
REGIONS = {"below": 0.5, "at": 1.0, "beyond": 2.0, "far": 4.0}


def regions(ratio: np.ndarray) -> np.ndarray:
    """Shares (n, 4) of each region in numbers of workers over the saturation population (n,)."""
    doublings = np.log2(np.maximum(ratio, 1e-9))
    centres = np.log2(list(REGIONS.values()))
    # linear in log2(n / N*) between centres, constant outside: shares add up to 1
    return np.array([np.interp(doublings, centres, unit) for unit in np.eye(len(REGIONS))]).T


@cache
def _learnt() -> dict[str, Any]:
    return dict(json.loads((resources.files(__package__) / "model_error.json").read_text(encoding="utf-8")))


def model_error(method: Method, ratio: np.ndarray) -> np.ndarray:
    """Relative standard errors (n,) at numbers of workers over the saturation population."""
    learnt = _learnt()[method]
    return np.sqrt(regions(ratio) @ np.square([learnt[name] for name in REGIONS]))  # variances are interpolated


def worst_error(method: Method) -> float:
    """The largest relative standard error, for machines on which the regions were not judged."""
    return float(model_error(method, np.array(list(REGIONS.values()))).max())


def waiting_error() -> float:
    """Relative standard error that waiting adds to a simulation between a barrier and none (independent)."""
    return _learnt()["trace"]["waiting"]


def profiled_error(method: Method) -> float:
    """Relative standard error at the profiled number of workers: tracing makes steps longer."""
    return _learnt()[method]["profiled"]


def correlation_per_doubling(method: Method) -> float:
    """Correlation of the errors at two numbers of workers, one twice the other."""
    return _learnt()[method]["doubling"]


def own_error(error: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Parts of the errors of predictions of one measurement: systematic (the model's), at least half, and the noise."""
    systematic = np.sqrt(np.maximum(error**2 - noise**2, (error / 2) ** 2))
    return systematic, np.sqrt(np.maximum(error**2 - systematic**2, 0.0))  # error^2 = systematic^2 + noise^2
