"""What a job runs by, one phase of its training after the other: staged curves, and batch sizes to choose among.

Goodput is throughput times statistical efficiency: S. McCandlish et al., "An Empirical Model of Large-Batch Training"
(2018); A. Qiao et al., "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning" (OSDI 2021).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from ..checks import require_count, require_number
from ..convergence import NoiseScale
from ..errors import ModelError
from .curves import TableCurve, as_curve
from .speed_tables import speed_table


@dataclass(frozen=True, slots=True, eq=False)
class Phase:
    """A stretch of a job's work.

    Attributes
    ----------
    until : float
        Steps done at its end, counted from the job's start.
    curve, seen : SpeedCurve
        Steps per second against nodes: those that run, and those that a policy sees.
    batch_size : ndarray of int, shape (nodes + 1,), or None
        What is chosen on so many nodes, where the job may choose; 0: it does not run there.
    """

    until: float
    curve: Callable[[float], float]
    seen: Callable[[float], float]
    batch_size: np.ndarray | None = None


@dataclass(frozen=True, slots=True, eq=False)
class StagedCurve:
    """A curve for each stretch of a job's work; as one curve, the mean speed over all of it.

    A simulation runs each stretch at its own curve, and shows it to policies that know curves. Policies that divide
    nodes run and see the mean.

    Parameters
    ----------
    stretches : sequence of pairs (length, curve)
        Lengths are relative: the job's steps are divided in their proportion.

    Raises
    ------
    ModelError
        When there is no stretch, a length is no number > 0, or a curve is none.

    Examples
    --------
    >>> slower = StagedCurve([(1, {1: 4.0, 2: 8.0}), (1, {1: 2.0, 2: 4.0})])
    >>> round(slower(2), 3)
    5.333
    """

    stretches: Sequence[tuple[float, Callable[[float], float]]]

    def __post_init__(self) -> None:
        try:
            pairs = [(length, curve) for length, curve in self.stretches]
        except (TypeError, ValueError):
            raise ModelError(f"staged curve: must be pairs (length, curve), got {self.stretches!r}") from None
        if not pairs:
            raise ModelError("staged curve: needs at least one pair (length, curve), got none")
        checked = tuple(
            (require_number(length, "staged curve: length", positive=True), as_curve(curve)) for length, curve in pairs
        )
        object.__setattr__(self, "stretches", checked)

    def __call__(self, nodes: float, /) -> float:
        """Mean steps per second over all of the work."""
        lengths, curves = zip(*self.stretches, strict=True)
        return float(sum(lengths) / sum(length / curve(nodes) for length, curve in zip(lengths, curves, strict=True)))

    def phases(
        self, steps: float, least: int, most: int, what: str, seen: Callable[[float], float] | None
    ) -> tuple[Phase, ...]:
        """The phases of a job of so many steps on ``least`` to ``most`` nodes; policies see ``seen`` if it is given."""
        lengths = np.array([length for length, _ in self.stretches])
        ends = np.cumsum(lengths) / lengths.sum() * steps
        ends[-1] = steps
        tables = [speed_table(curve, least=least, most=most, what=what) for _, curve in self.stretches]
        curves = [TableCurve([(n, speeds[n]) for n in range(least, most + 1)]) for speeds in tables]
        return tuple(Phase(end, curve, seen or curve) for end, curve in zip(ends.tolist(), curves, strict=True))


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

    Parameters
    ----------
    curves : mapping of int to curve
        Steps per second against nodes by total batch size (examples). A batch size whose curve is a table is not used
        on other numbers of nodes than that covers.
    noise_scales : sequence of pairs (steps, noise scale)
        One per stretch of training: its length in steps at the first batch size, and the gradient noise scale in
        examples, 0 to ``inf`` or as `noise_scale` estimates it, or a mapping of it by batch size where training at
        another batch size meets another noise.
    most_nodes : int, optional
        It runs on no more, whatever its batch size.
    predicted : mapping like ``curves``, optional
        What a policy sees, and the batch size is chosen by, instead of the truth.

    Raises
    ------
    ModelError
        When a value makes no sense.

    Examples
    --------
    >>> sizes = BatchSizes({32: {1: 4.0, 2: 6.0}, 64: {1: 2.2, 2: 4.0}}, [(500, 32.0), (500, 1000.0)])
    >>> [sizes.chosen(nodes=2, done=steps) for steps in (0, 500)]
    [32, 64]
    """

    curves: Mapping[int, Callable[[float], float]]
    noise_scales: Sequence[tuple[float, float | NoiseScale | Mapping[int, float | NoiseScale]]]
    _: KW_ONLY
    most_nodes: int | None = None
    predicted: Mapping[int, Callable[[float], float]] | None = None

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
        try:
            pairs = tuple((steps, scale) for steps, scale in self.noise_scales)
        except (TypeError, ValueError):
            raise ModelError(
                f"batch sizes: noise_scales must be pairs (steps, noise scale), got {self.noise_scales!r}"
            ) from None
        if not pairs:
            raise ModelError("batch sizes: noise_scales must hold at least one pair (steps, noise scale), got none")
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

    def gains(self) -> np.ndarray:
        """Progress of one step in each stretch at each batch size, shape (stretches, batch sizes)."""
        first = self.first
        table = [
            [size / first * statistical_efficiency(size, scales[size], first=first) for size in self.curves]
            for _, scales in self.stretches
        ]
        return np.array(table)

    @property
    def stretches(self) -> tuple[tuple[float, dict[int, float]], ...]:
        """Steps at the first batch size, and the noise scale by batch size, of each stretch."""
        return self.noise_scales  # type: ignore[return-value]

    def steps(self, batch_size: int) -> float:
        """Steps of the whole training at one batch size."""
        column = self.gains()[:, list(self.curves).index(batch_size)]
        return float(sum(steps / gain for (steps, _), gain in zip(self.stretches, column.tolist(), strict=True)))

    def limit(self, nodes: int) -> int:
        """Most nodes that a job can use in a cluster of so many."""
        tables = [curve for curve in self.curves.values() if isinstance(curve, TableCurve)]
        known = max(int(curve.points[-1][0]) for curve in tables) if len(tables) == len(self.curves) else nodes
        return min(known, nodes, self.most_nodes or nodes)

    def chosen(self, *, nodes: int, done: float) -> int:
        """The batch size of largest goodput on so many nodes, after ``done`` steps at the first batch size."""
        require_count(nodes, "batch sizes: nodes")
        require_number(done, "batch sizes: done")
        phases = self.phases(nodes, nodes, "batch sizes")
        phase = next((phase for phase in phases if done < phase.until), phases[-1])
        return int(phase.batch_size[nodes])  # type: ignore[index]

    def phases(self, least: int, most: int, what: str) -> tuple[Phase, ...]:
        """Goodput against nodes, and the batch size behind it, in each stretch of training.

        On each number of nodes the batch size is that of largest goodput as predicted, the smallest of equal ones; a
        job's batch size is no other job's matter.

        Raises
        ------
        ModelError
            When a curve is no number > 0 where it is needed, or no batch size runs on some number of nodes.
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
        nodes = np.arange(least, most + 1)
        found, done = [], 0.0
        for (steps, _), gain in zip(self.stretches, self.gains(), strict=True):
            best = (gain[:, None] * seen).argmax(axis=0)
            runs, believed = ((gain[:, None] * speeds)[best, np.arange(most + 1)] for speeds in (true, seen))
            done += steps
            found.append(Phase(done, _curve(nodes, runs), _curve(nodes, believed), np.where(runs > 0, sizes[best], 0)))
        return tuple(found)


def _as_curve(curve: Any, batch_size: int) -> Callable[[float], float]:
    try:
        return as_curve(curve)
    except ModelError as error:
        raise ModelError(f"batch sizes: at {batch_size}: {error}") from None


def _curve(nodes: np.ndarray, speeds: np.ndarray) -> TableCurve:
    return TableCurve(list(zip(nodes.tolist(), speeds[nodes].tolist(), strict=True)))


def _speeds(curve: Callable[[float], float], least: int, most: int, what: str) -> np.ndarray:
    """Speeds on 0 to ``most`` nodes; 0 where a table does not reach."""
    if isinstance(curve, TableCurve):
        speeds = np.nan_to_num(curve.table(most))
        speeds[:least] = 0.0
        return speeds
    return speed_table(curve, least=least, most=most, what=what)
