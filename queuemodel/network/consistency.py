"""What a network's members must agree on: unique names, known classes, time in every cycle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ModelError
from .place import Place
from .values import SHORTEST_CYCLE


def members(values: Any, kind: type, what: str, one: str, shown: str) -> tuple[Any, ...]:
    """The values as a tuple of ``kind`` with unique names."""
    if isinstance(values, (kind, str, bytes)) or not isinstance(values, Iterable):
        raise ModelError(f"network: {what} must be a list of {shown}, got {values!r}")
    found = tuple(values)
    seen = set()
    for member in found:
        if not isinstance(member, kind):
            raise ModelError(f"network: {what} must be {shown} values, got {member!r}")
        if member.name in seen:  # type: ignore[attr-defined]
            raise ModelError(f"network: {one} names must be unique, got {member.name!r} more than once")  # type: ignore[attr-defined]
        seen.add(member.name)  # type: ignore[attr-defined]
    return found


def require_known_classes(stations: Sequence[Place], classes: Sequence[str]) -> None:
    """Refuse stations that name classes that the network does not have."""
    known = set(classes)
    for station in stations:
        for what in ("service_time", "visit_ratio", "scv", "distribution"):
            value = getattr(station, what)
            if type(value) is not float and isinstance(value, Mapping):
                for name in value:
                    if name not in known:
                        have = ", ".join(map(repr, classes)) or "none"
                        raise ModelError(
                            f"station {station.name!r}: {what} names class {name!r}, but the classes are: {have}"
                        )


def require_times(
    stations: Sequence[Place],
    classes: Sequence[str],
    V: np.ndarray,
    think_times: np.ndarray,
    chains: Sequence[Sequence[int]],
) -> None:
    """Each class has a service time wherever it goes, goes somewhere, and takes time in a cycle; V is (K, C)."""
    visits = V.tolist()
    for station, to_it in zip(stations, visits, strict=True):
        times = station.service_time
        if type(times) is not float and isinstance(times, Mapping):
            for name, v in zip(classes, to_it, strict=True):
                if v > 0 and name not in times:
                    raise ModelError(
                        f"station {station.name!r}: class {name!r} visits it but has no service_time; "
                        "give it one, or leave it out of visit_ratio"
                    )
    labels: Sequence[str | None] = classes or [None]
    demands = [
        sum(v[c] * s.time_of(label) for s, v in zip(stations, visits, strict=True)) for c, label in enumerate(labels)
    ]
    if not any(demands):
        raise ModelError("network: all service demands are zero; give at least one station a service_time > 0")
    think = think_times.tolist()
    for chain in chains:
        who = f"a cycle of class {', '.join(repr(classes[c]) for c in chain)}" if classes else "a cycle"
        if classes and not V[:, list(chain)].any():
            raise ModelError(f"network: {who[11:]} visits no station; give it a visit_ratio > 0 somewhere")
        time = sum(demands[c] + think[c] for c in chain)
        if time < SHORTEST_CYCLE:
            raise ModelError(f"network: {who} takes no time ({time:g} s); give it service or think time > 0")
