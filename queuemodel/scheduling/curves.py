"""How fast a job runs on so many nodes: the only thing that scheduling knows of a performance model.

Anything callable as ``steps_per_second(nodes)`` is a curve, and so is anything with arrays ``workers`` and
``steps_per_second`` (a `ThroughputCurve`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ..checks import require_number
from ..errors import ModelError

#: More are taken for a mistake: tables of speeds have an entry per node.
MOST_NODES = 1_000_000


@runtime_checkable
class SpeedCurve(Protocol):
    """Steps per second of a job on a number of nodes (fractions of a node only where nodes are divisible)."""

    def __call__(self, nodes: float, /) -> float:
        """Steps per second."""


@dataclass(frozen=True, slots=True)
class PowerLawCurve:
    """Speed ``speed * nodes ** exponent``, the speedup of the heSRPT literature; defined for fractions of a node.

    Parameters
    ----------
    exponent : float
        0 (nodes do not help) to 1 (linear).
    speed : float, default 1
        Steps per second on one node.

    Examples
    --------
    >>> PowerLawCurve(0.5, speed=2.0)(4)
    4.0
    """

    exponent: float
    _: KW_ONLY
    speed: float = 1.0

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

    def table(self, most: int) -> np.ndarray:
        """Speeds on 0 to ``most`` nodes at once."""
        speeds = self.speed * np.arange(most + 1.0) ** self.exponent
        speeds[0] = 0.0
        return speeds


def _nodes(value: Any) -> float:
    number = require_number(value, "speed table: node counts", largest=MOST_NODES)
    if number < 1:
        raise ModelError(f"speed table: node counts must be at least 1, got {value!r}")
    return number


def _speed(value: Any, nodes: float) -> float:
    return require_number(value, f"speed table: speed at {nodes:g} nodes", unit="steps per second", positive=True)


@dataclass(frozen=True, slots=True)
class TableCurve:
    """Measured or modelled speeds at some node counts, linear in between, undefined outside.

    Parameters
    ----------
    points : mapping or sequence of pairs
        Node count to steps per second.

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
        checked = tuple((_nodes(n), _speed(speed, n)) for n, speed in pairs)
        for (n, _), (after, _) in itertools.pairwise(checked):
            if n == after:
                raise ModelError(f"speed table: {n:g} nodes are given twice")
        object.__setattr__(self, "points", checked)

    def __call__(self, nodes: float, /) -> float:
        """Steps per second; NaN outside the table."""
        if nodes <= 0:
            return 0.0
        known = np.array(self.points)
        if not known[0, 0] <= nodes <= known[-1, 0]:
            return math.nan
        return float(np.interp(nodes, known[:, 0], known[:, 1]))

    def table(self, most: int) -> np.ndarray:
        """Speeds on 0 to ``most`` nodes at once, NaN outside the table."""
        known = np.array(self.points)
        nodes = np.arange(most + 1.0)
        speeds = np.interp(nodes, known[:, 0], known[:, 1], left=math.nan, right=math.nan)
        speeds[0] = 0.0
        return speeds


@dataclass(frozen=True, slots=True)
class DistortedCurve:
    """A curve that is wrong on purpose: ``factor * curve(n) * n ** bend`` (what a policy sees under prediction error).

    Parameters
    ----------
    curve : SpeedCurve
        The truth.
    factor : float, default 1
        Error of the level.
    bend : float, default 0
        Error of the scaling: 0.1 predicts 26 % too much at ten nodes, and nothing wrong at one.
    """

    curve: Any
    factor: float = 1.0
    bend: float = 0.0

    def __call__(self, nodes: float, /) -> float:
        """Steps per second as predicted."""
        return self.factor * self.curve(nodes) * nodes**self.bend if nodes > 0 else 0.0


def distorted(curve: Any, *, factor: float, bend: float) -> TableCurve | DistortedCurve:
    """A `DistortedCurve`, as a table where the truth is one: it ends where that ends."""
    wrong = DistortedCurve(curve, factor=factor, bend=bend)
    return TableCurve([(int(n), wrong(n)) for n, _ in curve.points]) if isinstance(curve, TableCurve) else wrong


def as_curve(curve: Any) -> Callable[[float], float]:
    """A speed curve from whatever describes one.

    Parameters
    ----------
    curve : callable, mapping, or object with arrays ``workers`` and ``steps_per_second``

    Raises
    ------
    ModelError
        When it is none of these.
    """
    workers, speeds = getattr(curve, "workers", None), getattr(curve, "steps_per_second", None)
    if isinstance(workers, np.ndarray) and isinstance(speeds, np.ndarray):
        return TableCurve(tuple(zip(workers.tolist(), speeds.tolist(), strict=True)))
    if isinstance(curve, Mapping):
        return TableCurve(curve)
    if callable(curve):
        return curve
    raise ModelError(
        f"curve: expected a callable steps_per_second(nodes), a mapping of node counts to speeds or a ThroughputCurve, "
        f"got {type(curve).__name__}"
    )
