"""How fast a job runs on so many nodes: the only thing that scheduling knows of a performance model.

Anything callable as ``steps_per_second(nodes)`` is a curve, and so is anything with arrays ``workers`` and
``steps_per_second`` (a `ThroughputCurve`). A simulation asks each curve once per number of nodes (`SpeedTables`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeAlias

import numpy as np

from ..base.checks import require_number
from ..base.errors import ModelError

#: Steps per second on a number of nodes (fractions of a node only where nodes are divisible).
Curve: TypeAlias = Callable[[float], float]

#: More are taken for a mistake: tables of speeds have an entry per node.
MOST_NODES = 1_000_000


@dataclass(frozen=True, slots=True)
class PowerLawCurve:
    """Speed ``speed * nodes ** exponent``, the speedup of the heSRPT literature; defined for fractions of a node.

    Examples
    --------
    >>> PowerLawCurve(0.5, speed=2.0)(4)
    4.0
    """

    exponent: float  #: 0 (nodes do not help) to 1 (linear).
    _: KW_ONLY
    speed: float = 1.0  #: Steps per second on one node.

    def __post_init__(self) -> None:
        require_number(self.exponent, "power-law curve: exponent", unit="")
        require_number(self.speed, "power-law curve: speed", unit="steps per second", positive=True)
        if self.exponent > 1:
            raise ModelError(
                f"power-law curve: exponent must be 0 to 1, got {self.exponent!r}; no speedup is superlinear"
            )

    def __call__(self, nodes: float, /) -> float:
        """Steps per second; 0 without nodes."""
        return self.speed * nodes**self.exponent if nodes > 0 else 0.0


@dataclass(frozen=True, slots=True)
class TableCurve:
    """Measured or modelled speeds at some node counts, as a mapping or pairs; linear in between, undefined outside.

    Examples
    --------
    >>> TableCurve({1: 2.0, 2: 3.6, 4: 6.0})(3)
    4.8
    """

    points: tuple[tuple[float, float], ...]

    def __init__(self, points: Mapping[int, float] | Any) -> None:
        try:
            pairs = sorted(points.items() if isinstance(points, Mapping) else points)
        except TypeError as error:
            raise ModelError(f"speed table: expected pairs of node count and speed ({error})") from None
        if not pairs:
            raise ModelError("speed table: at least one node count is needed, got none")
        for n, speed in pairs:
            if require_number(n, "speed table: node counts", largest=MOST_NODES) < 1:
                raise ModelError(f"speed table: node counts must be at least 1, got {n!r}")
            require_number(speed, f"speed table: speed at {n:g} nodes", unit="steps per second", positive=True)
        for (n, _), (after, _) in itertools.pairwise(pairs):
            if n == after:
                raise ModelError(f"speed table: {n:g} nodes are given twice")
        object.__setattr__(self, "points", tuple((float(n), float(speed)) for n, speed in pairs))

    def __call__(self, nodes: float, /) -> float:
        """Steps per second; NaN outside the table."""
        return float(self._at(nodes)) if nodes > 0 else 0.0

    def table(self, most: int) -> np.ndarray:
        """Speeds on 0 to ``most`` nodes at once, NaN outside the table."""
        return np.append(0.0, self._at(np.arange(1.0, most + 1)))

    def _at(self, nodes: Any) -> Any:
        known, speeds = np.array(self.points).T
        return np.interp(nodes, known, speeds, left=math.nan, right=math.nan)

    @property
    def least(self) -> int:
        """Smallest whole node count of the table."""
        return math.ceil(self.points[0][0])

    @property
    def most(self) -> int:
        """Largest."""
        return int(self.points[-1][0])


def distorted(curve: Curve, *, factor: float, bend: float) -> Curve:
    """A curve that is wrong on purpose: ``factor * curve(n) * n ** bend``; it ends where a table ends.

    A ``bend`` of 0.1 predicts 26 % too much at ten nodes, and nothing wrong at one.
    """

    def wrong(nodes: float) -> float:
        return factor * curve(nodes) * nodes**bend if nodes > 0 else 0.0

    return TableCurve([(n, wrong(n)) for n, _ in curve.points]) if isinstance(curve, TableCurve) else wrong


def as_curve(curve: Any) -> Curve:
    """A speed curve from a callable, a mapping, or an object with arrays ``workers`` and ``steps_per_second``."""
    workers, speeds = getattr(curve, "workers", None), getattr(curve, "steps_per_second", None)
    if isinstance(workers, np.ndarray) and isinstance(speeds, np.ndarray):
        return TableCurve(zip(workers.tolist(), speeds.tolist(), strict=True))
    if isinstance(curve, Mapping):
        return TableCurve(curve)
    if callable(curve):
        return curve
    raise ModelError(
        f"curve: expected a callable steps_per_second(nodes), a mapping of node counts to speeds or a ThroughputCurve, "
        f"got {type(curve).__name__}"
    )


def speed_table(curve: Curve, *, least: int, most: int, what: str) -> np.ndarray:
    """Speeds on 0 to ``most`` whole nodes, 0 below ``least``; refuses what is not finite and > 0 from there on."""
    if isinstance(curve, TableCurve):
        speeds = curve.table(most)
    else:
        speeds = np.array([0.0] * least + [_called(curve, n, what) for n in range(least, most + 1)])
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


def speed_at(curve: Curve, nodes: float, what: str) -> float:
    """Steps per second on so many nodes, which must be a finite number > 0."""
    speed = _called(curve, nodes, what)
    if not (math.isfinite(speed) and speed > 0):
        raise ModelError(f"{what}: curve must be finite and > 0 on {nodes:g} nodes, got {speed!r}")
    return speed


def _called(curve: Curve, nodes: float, what: str) -> float:
    try:
        return float(curve(nodes))
    except (TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise ModelError(f"{what}: curve failed on {nodes:g} nodes ({type(error).__name__}: {error})") from None


class SpeedTables:
    """Speed tables on 0, 1, ... nodes, one row each; the jobs of a kind share one, and what is computed from it."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self._rows: list[np.ndarray] = []
        self._row_of: dict[Any, int] = {}
        self._derived: dict[Any, np.ndarray] = {}

    def add(self, speeds: np.ndarray) -> int:
        """The number of a new row; 0 from where the table ends."""
        self._rows.append(np.pad(speeds, (0, self.nodes + 1 - len(speeds))))
        self._derived.clear()
        return len(self._rows) - 1

    def acquire(self, curve: Curve, least: int, most: int, what: str) -> int:
        """The row of a curve within a job's limits, made and checked when it is new."""
        key = (curve if isinstance(curve, (TableCurve, PowerLawCurve)) else id(curve), least, most)
        if key not in self._row_of:
            self._row_of[key] = self.add(speed_table(curve, least=least, most=most, what=what))
        return self._row_of[key]

    def derived(self, function: Callable[..., Any], *args: Any) -> np.ndarray:
        """``function(speeds of a row, *args)`` for each row, computed once; shape (rows, ...)."""
        if (function, args) not in self._derived:
            self._derived[function, args] = np.array([function(speeds, *args) for speeds in self._rows])
        return self._derived[function, args]

    @property
    def speeds(self) -> np.ndarray:
        """Steps per second, shape (rows, nodes + 1)."""
        return self.derived(np.asarray)
