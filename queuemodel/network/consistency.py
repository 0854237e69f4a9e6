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
            if isinstance(value, Mapping):
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
    labels: Sequence[str | None] = classes or [None]
    for station, visits in zip(stations, V.tolist(), strict=True):
        for name, v in zip(labels, visits, strict=True):
            if v > 0 and isinstance(station.service_time, Mapping) and name not in station.service_time:
                raise ModelError(
                    f"station {station.name!r}: class {name!r} visits it but has no service_time; "
                    "give it one, or leave it out of visit_ratio"
                )
    D = V * np.array([[s.time_of(label) for label in labels] for s in stations])
    if not D.sum() > 0:
        raise ModelError("network: all service demands are zero; give at least one station a service_time > 0")
    for chain in chains:
        members = list(chain)
        who = f"a cycle of class {', '.join(repr(classes[c]) for c in chain)}" if classes else "a cycle"
        if classes and not V[:, members].any():
            raise ModelError(f"network: {who[11:]} visits no station; give it a visit_ratio > 0 somewhere")
        time = D[:, members].sum() + think_times[members].sum()
        if time < SHORTEST_CYCLE:
            raise ModelError(f"network: {who} takes no time ({time:g} s); give it service or think time > 0")
