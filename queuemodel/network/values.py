"""Checked values that stations and classes are made of: numbers, numbers per class, choices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..checks import require_number
from ..errors import ModelError

#: A cycle shorter than this (seconds) is a mistake too, and would overflow throughputs.
SHORTEST_CYCLE = 1e-15


class PerClass(Mapping[str, float]):
    """An immutable, hashable mapping from class names to numbers."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, float]) -> None:
        self._items = dict(items)

    def __getitem__(self, name: str) -> float:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)


def require_numbers(value: Any, what: str, **limits: Any) -> float | PerClass:
    """A number, or a mapping from class names to numbers, each checked by `require_number`."""
    if not isinstance(value, Mapping):
        return require_number(value, what, **limits)
    if not value:
        raise ModelError(f"{what} must name at least one class, got {value!r}")
    for name in value:
        if not isinstance(name, str) or not name:
            raise ModelError(f"{what}: class names must be texts that are not empty, got {name!r}")
    return PerClass({name: require_number(v, f"{what}[class {name!r}]", **limits) for name, v in value.items()})


def numbers_in(value: Any) -> np.ndarray | None:
    """A float array of numbers that are laid out like one (NaN and infinity are left for others); else None."""
    try:
        array = np.array(value)
        return array.astype(float) if array.dtype.kind in "iuf" else None
    except (TypeError, ValueError, OverflowError):
        return None


def require_servers(servers: Any, what: str) -> float:
    """A whole number of servers, or infinity for a delay."""
    if not isinstance(servers, (bool, str, bytes, complex)):
        try:
            if servers == math.inf:
                return math.inf
            count = int(servers)
            if count == servers and 1 <= count <= 1_000_000:
                return count
        except (TypeError, ValueError, OverflowError):
            pass
    raise ModelError(
        f"{what}: servers must be a whole number, 1 to 1,000,000, or math.inf for a delay station, got {servers!r}"
    )


def number_of(value: float | Mapping[str, float] | None, name: str | None, missing: float) -> float:
    """The number of class ``name``: the common one, its own, or ``missing``."""
    if type(value) is float:  # the usual case, kept fast
        return value
    if isinstance(value, Mapping):
        return missing if name is None else value.get(name, missing)
    return missing if value is None else value
