"""Speeds of curves, each number checked once; and tables of them, shared by the jobs of a kind."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import ModelError
from .curves import PowerLawCurve, TableCurve

#: Rows without users that are kept before the one longest without is recycled.
_KEPT = 64


class SpeedTables:
    """Speed tables of the curves in use, one row each, shared by jobs of one kind; rows are recycled.

    Attributes
    ----------
    speeds : ndarray, shape (rows, nodes + 1)
        Steps per second on 0, 1, ... nodes; 0 outside a job's limits.
    """

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.speeds = np.zeros((4, nodes + 1))
        self._row_of: dict[Any, int] = {}
        self._key_of: dict[int, Any] = {}
        self._users: list[int] = []
        self._idle: dict[int, None] = {}  # rows without users, longest idle first
        self._memo: dict[Any, np.ndarray] = {}  # what `derived` has computed, and which rows it has yet to
        self._stale: dict[Any, set[int]] = {}

    def acquire(self, curve: Callable[[float], float], least: int, most: int, what: str) -> int:
        """The row of a curve within a job's limits, made and checked when it is new."""
        try:
            key = (curve, least, most)
            row = self._row_of.get(key)
        except TypeError:  # not hashable
            key = (id(curve), least, most)  # type: ignore[assignment]
            row = self._row_of.get(key)
        if row is not None:
            self._users[row] += 1
            self._idle.pop(row, None)
            return row
        table = speed_table(curve, least=least, most=most, what=what)
        if len(self._idle) >= _KEPT:
            row = next(iter(self._idle))
            del self._idle[row], self._row_of[self._key_of[row]]
        else:
            row = len(self._users)
            self._users.append(0)
            if row == len(self.speeds):
                self.speeds = np.vstack([self.speeds, np.zeros_like(self.speeds)])
        self.speeds[row] = 0.0
        self.speeds[row, : most + 1] = table
        self._row_of[key] = row
        self._key_of[row] = key
        self._users[row] = 1
        for stale in self._stale.values():
            stale.add(row)
        return row

    def release(self, row: int) -> None:
        """One user less; a row without users is kept for the next job of its kind, until its place is needed."""
        self._users[row] -= 1
        if not self._users[row]:
            self._idle[row] = None

    def derived(self, function: Callable[..., Any], *args: Any, numbered: bool = False) -> np.ndarray:
        """``function(speeds of a row, *args)`` for each row, computed once per curve; shape (rows, ...).

        ``numbered``: the function takes the number of the row as its last argument.
        """
        key = (function, args)
        stale = self._stale.setdefault(key, set(self._key_of) if key not in self._memo else set())
        if stale:
            for row in stale:
                if row in self._key_of:
                    value = np.asarray(function(self.speeds[row], *args, *((row,) if numbered else ())))
                    known = self._memo.get(key)
                    if known is None or row >= len(known):
                        grown = np.zeros((len(self.speeds), *value.shape), dtype=value.dtype)
                        filled = 0
                        if known is not None:
                            grown[: len(known)] = known
                            filled = len(known)
                        if numbered:  # rows not in use yet must keep their place in the order of rows
                            for spare in range(filled, len(grown)):
                                grown[spare] = function(self.speeds[spare], *args, spare)
                        known = self._memo[key] = grown
                    known[row] = value
            stale.clear()
        return self._memo[key]


def speed_table(curve: Callable[[float], float], *, least: int, most: int, what: str) -> np.ndarray:
    """Speeds on 0 to ``most`` whole nodes, shape (most + 1,), 0 below ``least``; each checked once.

    Raises
    ------
    ModelError
        When the curve is not a finite number > 0 somewhere from ``least`` to ``most``.
    """
    if isinstance(curve, (TableCurve, PowerLawCurve)):
        speeds = curve.table(most)
    else:
        speeds = np.zeros(most + 1)
        for n in range(least, most + 1):
            speeds[n] = _called(curve, n, what)
    speeds[:least] = 0.0
    bad = np.flatnonzero(~(np.isfinite(speeds[least:]) & (speeds[least:] > 0)))
    if bad.size:
        n = least + int(bad[0])
        got = "nothing (undefined there)" if math.isnan(speeds[n]) else f"{speeds[n]:g}"
        raise ModelError(
            f"{what}: curve must be finite and > 0 steps per second on {least} to {most} nodes, got {got} on {n}; "
            "narrow least_nodes and most_nodes to where the curve is known"
        )
    return speeds


def speed_at(curve: Callable[[float], float], nodes: float, what: str) -> float:
    """Steps per second on so many nodes, which must be a finite number > 0."""
    speed = _called(curve, nodes, what)
    if not (math.isfinite(speed) and speed > 0):
        raise ModelError(f"{what}: curve must be finite and > 0 on {nodes:g} nodes, got {speed!r}")
    return speed


def _called(curve: Callable[[float], float], nodes: float, what: str) -> float:
    try:
        return float(curve(nodes))
    except (TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise ModelError(f"{what}: curve failed on {nodes:g} nodes ({type(error).__name__}: {error})") from None


def fitted_exponent(speeds: np.ndarray) -> float:
    """Exponent p of the power law nearest to a table in the least squares of logarithms, within 0.01 to 0.99.

    ``speeds``: shape (most + 1,), as `speed_table` gives it; the table is taken up to its fastest node count.
    """
    nodes = np.flatnonzero(speeds[: int(np.argmax(speeds)) + 1])
    if nodes.size < 2:
        return 0.01
    x, y = np.log(nodes), np.log(speeds[nodes])
    return float(np.clip(np.polyfit(x, y, 1)[0], 0.01, 0.99))


def speed_between(curve: Callable[[float], float], nodes: float, most: int) -> float:
    """Speed on an average number of nodes up to ``most``: linear between whole ones."""
    low = math.floor(nodes)
    if low >= most or nodes == low:
        return float(curve(min(nodes, most)))
    return float(curve(low) + (nodes - low) * (curve(low + 1) - curve(low)))
