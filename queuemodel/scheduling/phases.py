"""What a job runs by, one phase of its training after the other: staged curves, and batch sizes to choose among.

Goodput is throughput times statistical efficiency: S. McCandlish et al., "An Empirical Model of Large-Batch Training"
(2018); A. Qiao et al., "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning" (OSDI 2021).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from ..base.checks import require_count, require_number
from ..base.errors import ModelError
from ..curves.convergence import NoiseScale
from .curves import Curve, TableCurve, as_curve, speed_table


class Phase(NamedTuple):
    """A stretch of a job's work; arrays are of shape (nodes + 1,)."""

    until: float  # steps done at its end, counted from the job's start
    speeds: np.ndarray  # steps per second that run
    seen: np.ndarray  # steps per second that a policy sees
    batch_size: np.ndarray | None = None  # what is chosen, where the job may choose; 0: it does not run there


@dataclass(frozen=True, slots=True, eq=False)
class StagedCurve:
    """A curve for each stretch of a job's work; as one curve, the mean speed over all of it.

    The ``stretches`` are pairs (length, curve); the job's steps are divided in proportion to the lengths. A simulation
    runs each stretch at its own curve, and shows it to policies that know curves. Policies that divide nodes run and
    see the mean.

    Examples
    --------
    >>> slower = StagedCurve([(1, {1: 4.0, 2: 8.0}), (1, {1: 2.0, 2: 4.0})])
    >>> round(slower(2), 3)
    5.333
    """

    stretches: Sequence[tuple[float, Curve]]

    def __post_init__(self) -> None:
        pairs = _pairs(self.stretches, "staged curve: must be pairs (length, curve)")
        checked = tuple(
            (require_number(length, "staged curve: length", positive=True), as_curve(curve)) for length, curve in pairs
        )
        object.__setattr__(self, "stretches", checked)

    def __call__(self, nodes: float, /) -> float:
        """Mean steps per second over all of the work."""
        return float(
            sum(length for length, _ in self.stretches) / sum(length / curve(nodes) for length, curve in self.stretches)
        )

    def phases(self, steps: float, least: int, most: int, what: str, seen: Curve | None) -> list[Phase]:
        """The phases of a job of so many steps on ``least`` to ``most`` nodes; policies see ``seen`` if it is given."""
        lengths = np.array([length for length, _ in self.stretches])
        ends = np.cumsum(lengths) / lengths.sum() * steps
        ends[-1] = steps
        tables = [speed_table(curve, least=least, most=most, what=what) for _, curve in self.stretches]
        told = tables if seen is None else [speed_table(seen, least=least, most=most, what=what)] * len(tables)
        return [Phase(*phase) for phase in zip(ends.tolist(), tables, told, strict=True)]


def _pairs(given: Any, what: str) -> list[tuple[Any, Any]]:
    try:
        pairs = [(one, other) for one, other in given]
    except (TypeError, ValueError):
        pairs = []
    if not pairs:
        raise ModelError(f"{what}, at least one, got {given!r}")
    return pairs


def statistical_efficiency(batch_size: float, noise_scale: float, *, first: float) -> float:
    """What an example is worth at a batch size, relative to the ``first``: (phi + B0) / (phi + B).

    ``noise_scale`` phi, in examples, may be infinite: then every example is worth the same.

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
    """How fast a job runs at each of its batch sizes, and what a larger one is worth as training goes on.

    Progress counts in steps at the smallest batch size, the *first*: a step at B does what
    ``B / first * statistical_efficiency(B, ...)`` of them do. That is exact as far as the critical-batch law is.

    Examples
    --------
    >>> sizes = BatchSizes({32: {1: 4.0, 2: 6.0}, 64: {1: 2.2, 2: 4.0}}, [(500, 32.0), (500, 1000.0)])
    >>> [sizes.chosen(nodes=2, done=steps) for steps in (0, 500)]
    [32, 64]
    """

    #: Steps per second against nodes by total batch size (examples). A batch size whose curve is a table is not used
    #: on other numbers of nodes than that covers.
    curves: Mapping[int, Curve]
    #: Pairs of steps at the first batch size and gradient noise scale, one per stretch of training. The scale is in
    #: examples, 0 to ``inf`` or as `noise_scale` estimates it, or a mapping of it by batch size where training at
    #: another batch size meets another noise.
    noise_scales: Sequence[tuple[float, float | NoiseScale | Mapping[int, float | NoiseScale]]]
    _: KW_ONLY
    most_nodes: int | None = None  #: It runs on no more, whatever its batch size.
    predicted: Mapping[int, Curve] | None = None  #: What a policy sees, and the batch size is chosen by.

    def __post_init__(self) -> None:
        for name in ("curves", "predicted"):
            given: Any = getattr(self, name)
            if given is None:
                continue
            if not isinstance(given, Mapping) or not given:
                raise ModelError(f"batch sizes: {name} must map batch sizes to curves, got {given!r}")
            sizes = sorted(require_count(size, "batch sizes: batch size", most=10**9) for size in given)
            object.__setattr__(self, name, {size: _as_curve(given[size], size) for size in sizes})
        if self.predicted is not None and set(self.predicted) != set(self.curves):
            raise ModelError(
                f"batch sizes: predicted must have the batch sizes of curves, {sorted(self.curves)}, "
                f"got {sorted(self.predicted)}"
            )
        pairs = _pairs(self.noise_scales, "batch sizes: noise_scales must be pairs (steps, noise scale)")
        object.__setattr__(self, "noise_scales", tuple(self._stretch(steps, scale) for steps, scale in pairs))
        if self.most_nodes is not None:
            require_count(self.most_nodes, "batch sizes: most_nodes")

    def _stretch(self, steps: Any, scale: Any) -> tuple[float, dict[int, float]]:
        """Steps and the noise scale by batch size, checked."""
        each = dict(scale) if isinstance(scale, Mapping) else dict.fromkeys(self.curves, scale)
        scales = {size: own.value if isinstance(own, NoiseScale) else own for size, own in each.items()}
        if set(scales) != set(self.curves):
            raise ModelError(
                f"batch sizes: noise scales must be of the batch sizes of curves, {list(self.curves)}, "
                f"got {list(scales)}"
            )
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
        """Most nodes that a job can use in a cluster of so many."""
        known = max(curve.most if isinstance(curve, TableCurve) else nodes for curve in self.curves.values())
        return min(known, nodes, self.most_nodes or nodes)

    def chosen(self, *, nodes: int, done: float) -> int:
        """The batch size of largest goodput on so many nodes, after ``done`` steps at the first batch size."""
        require_count(nodes, "batch sizes: nodes")
        require_number(done, "batch sizes: done")
        phases = self.phases(nodes, nodes, "batch sizes")
        phase = next((phase for phase in phases if done < phase.until), phases[-1])
        return int(phase.batch_size[nodes])  # type: ignore[index]

    def phases(self, least: int, most: int, what: str) -> list[Phase]:
        """Goodput against nodes, and the batch size behind it, in each stretch of training.

        On each number of nodes the batch size is that of largest goodput as predicted, the smallest of equal ones; a
        job's batch size is no other job's matter.
        """
        sizes = np.array(list(self.curves))
        true = np.array([_speeds(curve, least, most, what) for curve in self.curves.values()])
        seen = true
        if self.predicted is not None:
            seen = np.array([_speeds(curve, least, most, what) for curve in self.predicted.values()]) * (true > 0)
        idle = np.flatnonzero(seen[:, least:].max(axis=0) <= 0)
        if idle.size:
            raise ModelError(
                f"{what}: no batch size of {sizes.tolist()} has a speed on {least + int(idle[0])} nodes, but must on "
                f"{least} to {most}"
            )
        found, done = [], 0.0
        for steps, gain in self._stretches():
            best = (gain[:, None] * seen).argmax(axis=0)
            runs, believed = ((gain[:, None] * speeds)[best, np.arange(most + 1)] for speeds in (true, seen))
            done += steps
            found.append(Phase(done, runs, believed, np.where(runs > 0, sizes[best], 0)))
        return found


def _as_curve(curve: Any, batch_size: int) -> Curve:
    try:
        return as_curve(curve)
    except ModelError as error:
        raise ModelError(f"batch sizes: at {batch_size}: {error}") from None


def _speeds(curve: Curve, least: int, most: int, what: str) -> np.ndarray:
    """Speeds on 0 to ``most`` nodes; 0 where a table does not reach."""
    if not isinstance(curve, TableCurve):
        return speed_table(curve, least=least, most=most, what=what)
    return np.nan_to_num(curve.table(most)) * (np.arange(most + 1) >= least)
