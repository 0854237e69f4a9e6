"""Stations and classes from bare arrays of service demands."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ModelError
from .jobclass import JobClass
from .station import Station
from .values import numbers_in


def from_arrays(demands: Any, think_time: Any, servers: Any, population: Any, discipline: str) -> dict[str, Any]:
    """The stations, classes and think time of `Network.from_demands`."""
    D = number_array(demands, "demands")
    if D.ndim not in (1, 2):
        raise ModelError(f"demands: must have shape (K,) or (K, C), stations first, got shape {D.shape}")
    K = D.shape[0]
    m = number_array(servers, "servers")
    if m.ndim > 1 or (m.ndim == 1 and len(m) != K):
        raise ModelError(f"servers: must be one number or {K}, one for each station, got shape {m.shape}")
    counts = np.broadcast_to(m, (K,)).tolist()
    if D.ndim == 1:
        stations = [
            Station(f"station {k + 1}", service_time=d, servers=counts[k], discipline=discipline)
            for k, d in enumerate(D.tolist())
        ]
        return {"stations": stations, "think_time": think_time}
    C = D.shape[1]
    Z = number_array(think_time, "think_time")
    if Z.ndim > 1 or (Z.ndim == 1 and len(Z) != C):
        raise ModelError(f"think_time: must be one number or {C}, one for each class, got shape {Z.shape}")
    if population is None:
        raise ModelError(f"population: the populations of {C} classes are needed, got none")
    try:
        N = list(population)
    except TypeError:
        N = [population]
    if len(N) != C:
        raise ModelError(f"population: must be {C} whole numbers, one for each class, got {population!r}")
    think = np.broadcast_to(Z, (C,)).tolist()
    classes = [JobClass(f"class {c + 1}", population=N[c], think_time=think[c]) for c in range(C)]
    stations = [
        Station(
            f"station {k + 1}",
            service_time={j.name: d for j, d in zip(classes, row, strict=True)},
            visit_ratio={j.name: 0.0 if d == 0 else 1.0 for j, d in zip(classes, row, strict=True)},
            servers=counts[k],
            discipline=discipline,
        )
        for k, row in enumerate(D.tolist())
    ]
    return {"stations": stations, "classes": classes}


def number_array(value: Any, what: str) -> np.ndarray:
    """A float array (NaN and infinity are left for others to name), or a `ModelError`."""
    array = numbers_in(value)
    if array is None:
        raise ModelError(f"{what}: must be an array of numbers, got {value!r}")
    return array
