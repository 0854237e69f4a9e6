"""How fast a job runs on so many nodes: all that scheduling uses of a performance model.

Where speeds change as a job trains it has a curve for each stretch of its work, or for each batch size.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from ..base.checks import require_count, require_number, require_share
from ..base.errors import ModelError
from ..curves.convergence import NoiseScale

#: Steps per second on a number of nodes (fractions of a node only where nodes are divisible).
Curve: TypeAlias = Callable[[float], float]

MOST_NODES = 1_000_000  # tables of speeds have an entry per node


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
        require_share(self.exponent, "power-law curve: exponent (no speedup is superlinear)")
        require_number(self.speed, "power-law curve: speed", unit="steps per second", positive=True)

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
        for (before, _), (n, speed) in itertools.pairwise([(0, 0.0), *pairs]):
            if require_number(n, "speed table: node counts", largest=MOST_NODES) < 1 or n == before:
                raise ModelError(f"speed table: node counts must be distinct and at least 1, got {n!r}")
            require_number(speed, f"speed table: speed at {n:g} nodes", unit="steps per second", positive=True)
        object.__setattr__(self, "points", tuple((float(n), float(speed)) for n, speed in pairs))

    def __call__(self, nodes: float, /) -> float:
        """Steps per second; NaN outside the table."""
        return float(self._at(nodes)) if nodes > 0 else 0.0

    def table(self, most: int) -> np.ndarray:
        """Speeds on 0 to ``most`` nodes, NaN outside the table."""
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
    """A curve that is wrong on purpose, ``factor * curve(n) * n ** bend``; it ends where a table ends."""

    def wrong(nodes: float) -> float:
        return factor * curve(nodes) * nodes**bend if nodes > 0 else 0.0

    return TableCurve([(n, wrong(n)) for n, _ in curve.points]) if isinstance(curve, TableCurve) else wrong


def as_curve(curve: Any, what: str = "curve") -> Curve:
    """A speed curve from a callable, a mapping, or an object with arrays ``workers`` and ``steps_per_second``."""
    workers, speeds = getattr(curve, "workers", None), getattr(curve, "steps_per_second", None)
    if isinstance(workers, np.ndarray) and isinstance(speeds, np.ndarray):
        curve = dict(zip(workers.tolist(), speeds.tolist(), strict=True))
    if callable(curve):
        return curve
    if not isinstance(curve, Mapping):
        raise ModelError(
            f"{what}: expected a callable steps_per_second(nodes), a mapping of node counts to speeds or a "
            f"ThroughputCurve, got {type(curve).__name__}"
        )
    try:
        return TableCurve(curve)
    except ModelError as error:
        raise ModelError(f"{what}: {error}") from None


def speed_at(curve: Curve, nodes: float, what: str) -> float:
    """Steps per second on n nodes, which must be a finite number > 0."""
    try:
        speed = float(curve(nodes))
    except (TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise ModelError(f"{what}: curve failed on {nodes:g} nodes ({type(error).__name__}: {error})") from None
    if not 0 < speed < math.inf:
        got = "nothing (undefined there)" if math.isnan(speed) else f"{speed:g}"
        raise ModelError(
            f"{what}: curve must be finite and > 0 steps per second on {nodes:g} nodes, got {got}; narrow least_nodes "
            "and most_nodes to where the curve is known"
        )
    return speed


def speed_table(curve: Curve, *, least: int, most: int, what: str) -> np.ndarray:
    """Speeds on 0 to ``most`` whole nodes, 0 below ``least``; refuses what is not finite and > 0 from there on."""
    if not isinstance(curve, TableCurve):
        return np.array([0.0] * least + [speed_at(curve, n, what) for n in range(least, most + 1)])
    for n in (least, most):  # a table is defined between its ends
        speed_at(curve, n, what)
    return np.where(np.arange(most + 1) < least, 0.0, curve.table(most))


class Phase(NamedTuple):
    """A stretch of a job's work; arrays are of shape (nodes + 1,)."""

    until: float  # steps done at its end, counted from the job's start
    speeds: np.ndarray  # steps per second that run
    seen: np.ndarray  # steps per second that a policy sees
    batch_size: np.ndarray  # the chosen one; 0: it does not run there


@dataclass(frozen=True, slots=True, eq=False)
class StagedCurve:
    """A curve for each stretch of a job's work; as one curve, the mean speed over all of it.

    The ``stretches`` are pairs (length, curve), with steps in proportion to the lengths. Policies that read curves see
    that of the current stretch; those that divide nodes run and see the mean.

    Examples
    --------
    >>> slower = StagedCurve([(1, {1: 4.0, 2: 8.0}), (1, {1: 2.0, 2: 4.0})])
    >>> round(slower(2), 3)
    5.333
    """

    stretches: Sequence[tuple[float, Curve]]

    def __post_init__(self) -> None:
        pairs = _pairs(self.stretches, "staged curve: must be pairs (length, curve)")
        lengths = [require_number(length, "staged curve: length", positive=True) for length, _ in pairs]
        curves = [as_curve(curve) for _, curve in pairs]
        object.__setattr__(self, "stretches", tuple(zip(lengths, curves, strict=True)))

    def __call__(self, nodes: float, /) -> float:
        """Mean steps per second over all of the work."""
        time = sum(length / curve(nodes) for length, curve in self.stretches)
        return float(sum(length for length, _ in self.stretches) / time)

    def stages(self, steps: float) -> list[tuple[float, Curve]]:
        """The end of each stretch in a job of n steps, and its curve."""
        lengths = np.array([length for length, _ in self.stretches])
        ends = np.cumsum(lengths) / lengths.sum() * steps
        ends[-1] = steps
        return [(end, curve) for end, (_, curve) in zip(ends.tolist(), self.stretches, strict=True)]


def _pairs(values: Any, what: str) -> list[tuple[Any, Any]]:
    try:
        pairs = [(one, other) for one, other in values]
    except (TypeError, ValueError):
        pairs = []
    if not pairs:
        raise ModelError(f"{what}, at least one, got {values!r}")
    return pairs


def statistical_efficiency(batch_size: float, noise_scale: float, *, first: float) -> float:
    """Progress per example at a batch size, relative to the ``first``: (phi + B0) / (phi + B).

    The gradient noise scale phi is in examples; inf: every example is worth the same (McCandlish et al., 2018).

    Examples
    --------
    >>> statistical_efficiency(300, 100.0, first=100)
    0.5
    """
    for value, name in ((batch_size, "batch_size"), (first, "first")):
        require_number(value, f"statistical efficiency: {name}", unit="examples", positive=True)
    if noise_scale == math.inf:
        return 1.0
    require_number(noise_scale, "statistical efficiency: noise_scale", unit="examples")
    return (noise_scale + first) / (noise_scale + batch_size)


@dataclass(frozen=True, slots=True, eq=False)
class BatchSizes:
    """A job's speeds by batch size, and the statistical efficiency of batch sizes as training goes on.

    Progress counts in steps at the smallest batch size, the *first*: a step at B is worth
    ``B / first * statistical_efficiency(B, ...)`` of them (goodput: Qiao et al., OSDI 2021).

    Examples
    --------
    >>> sizes = BatchSizes({32: {1: 4.0, 2: 6.0}, 64: {1: 2.2, 2: 4.0}}, [(500, 32.0), (500, 1000.0)])
    >>> [sizes.chosen(nodes=2, done=steps) for steps in (0, 500)]
    [32, 64]
    """

    #: Steps per second against nodes by total batch size (examples); a table is not used outside its nodes.
    curves: Mapping[int, Curve]
    #: Pairs of steps at the first batch size and gradient noise scale, one per stretch of training. The scale is in
    #: examples, 0 to ``inf`` or as of `noise_scale`, or a mapping of it by batch size where it differs between these.
    noise_scales: Sequence[tuple[float, float | NoiseScale | Mapping[int, float | NoiseScale]]]
    _: KW_ONLY
    most_nodes: int | None = None  #: It runs on no more, whatever its batch size.
    predicted: Mapping[int, Curve] | None = None  #: What a policy sees, and the batch size is chosen by.

    def __post_init__(self) -> None:
        for name in ("curves", "predicted"):
            if (by_size := getattr(self, name)) is not None:
                object.__setattr__(self, name, self._checked(by_size, name))
        pairs = _pairs(self.noise_scales, "batch sizes: noise_scales must be pairs (steps, noise scale)")
        object.__setattr__(self, "noise_scales", tuple(self._stretch(steps, scale) for steps, scale in pairs))
        if self.most_nodes is not None:
            require_count(self.most_nodes, "batch sizes: most_nodes")

    def _checked(self, by_size: Any, name: str) -> dict[int, Curve]:
        """Curves by batch size, in order."""
        if not isinstance(by_size, Mapping) or not by_size:
            raise ModelError(f"batch sizes: {name} must map batch sizes to curves, got {by_size!r}")
        sizes = sorted(require_count(size, "batch sizes: batch size", most=10**9) for size in by_size)
        self._require_sizes(sizes, name)
        return {size: as_curve(by_size[size], f"batch sizes: at {size}") for size in sizes}

    def _require_sizes(self, sizes: Collection[int], name: str) -> None:
        if set(sizes) != set(self.curves):
            raise ModelError(
                f"batch sizes: {name} must have the batch sizes of curves, {sorted(self.curves)}, got {sorted(sizes)}"
            )

    def _stretch(self, steps: Any, scale: Any) -> tuple[float, dict[int, float]]:
        """Steps and noise scale by batch size, checked."""
        each = dict(scale) if isinstance(scale, Mapping) else dict.fromkeys(self.curves, scale)
        self._require_sizes(each, "noise scales")
        scales = {size: own.value if isinstance(own, NoiseScale) else own for size, own in each.items()}
        for value in scales.values():
            if value != math.inf:
                require_number(value, "batch sizes: noise scale", unit="examples")
        return require_number(steps, "batch sizes: steps of a stretch", positive=True), scales

    @property
    def first(self) -> int:
        """The smallest batch size, whose steps are the unit of progress."""
        return min(self.curves)

    def _stretches(self) -> list[tuple[float, np.ndarray]]:
        """Steps at the first batch size, and progress of one step at each batch size, of each stretch."""
        first, each = self.first, cast("Sequence[tuple[float, Mapping[int, float]]]", self.noise_scales)
        return [
            (steps, np.array([B / first * statistical_efficiency(B, scales[B], first=first) for B in self.curves]))
            for steps, scales in each
        ]

    def steps(self, batch_size: int) -> float:
        """Steps of the whole training at one batch size."""
        column = list(self.curves).index(batch_size)
        return float(sum(steps / gain[column] for steps, gain in self._stretches()))

    def limit(self, nodes: int) -> int:
        """Largest number of nodes that a job can use in a cluster of n."""
        known = max(curve.most if isinstance(curve, TableCurve) else nodes for curve in self.curves.values())
        return min(known, nodes, self.most_nodes or nodes)

    def chosen(self, *, nodes: int, done: float) -> int:
        """The batch size of largest goodput on n nodes, after ``done`` steps at the first batch size."""
        require_count(nodes, "batch sizes: nodes")
        require_number(done, "batch sizes: done")
        phases = self.phases(nodes, nodes, "batch sizes")
        phase = next((phase for phase in phases if done < phase.until), phases[-1])
        return int(phase.batch_size[nodes])

    def phases(self, least: int, most: int, what: str) -> list[Phase]:
        """Goodput against nodes in each stretch, at the batch size of largest predicted goodput (first of equals)."""

        def speeds(curves: Mapping[int, Curve]) -> np.ndarray:
            """On 0 to ``most`` nodes by batch size; 0 where a table does not reach."""
            return np.array([
                np.nan_to_num(curve.table(most)) * (np.arange(most + 1) >= least)
                if isinstance(curve, TableCurve)
                else speed_table(curve, least=least, most=most, what=what)
                for curve in curves.values()
            ])  # fmt: skip

        sizes, true = np.array(list(self.curves)), speeds(self.curves)
        seen = true if self.predicted is None else speeds(self.predicted) * (true > 0)
        idle = np.flatnonzero(seen[:, least:].max(axis=0) <= 0)
        if idle.size:
            raise ModelError(
                f"{what}: no batch size of {sizes.tolist()} has a speed on {least + int(idle[0])} nodes, but must on "
                f"{least} to {most}"
            )
        found, done = [], 0.0
        for steps, gain in self._stretches():
            best = (gain[:, None] * seen).argmax(axis=0)
            runs, believed = ((gain[:, None] * table)[best, np.arange(most + 1)] for table in (true, seen))
            done += steps
            found.append(Phase(done, runs, believed, np.where(runs > 0, sizes[best], 0)))
        return found


class SpeedTables:
    """Speed tables on 0, 1, ... nodes, one row each; the jobs of a kind share one and its derived values."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self._rows: list[np.ndarray] = []
        self._row_of: dict[Any, int] = {}
        self._derived: dict[Any, np.ndarray] = {}

    def add(self, speeds: np.ndarray) -> int:
        """The number of a new row, padded with 0."""
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
