"""An application of the Pollux artifact as measured: step times and statistical efficiency, and the curve they make.

Source of the conventions: A. Qiao et al., "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning"
(OSDI 2021), artifact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ...errors import DataError
from ..curves import TableCurve

#: GPUs of one machine in the artifact's cluster.
GPUS_PER_MACHINE = 4
#: Most machines in the scalability measurements: larger placements count as this many.
MOST_MACHINES = 16
#: The artifact keeps this application on one GPU.
ONE_GPU_ONLY = frozenset({"ncf"})
#: Most GPUs that the measurements cover.
MOST_GPUS = GPUS_PER_MACHINE * MOST_MACHINES


def packed(gpus: int) -> tuple[int, ...]:
    """GPUs per machine when a job fills one machine after the other."""
    full, rest = divmod(gpus, GPUS_PER_MACHINE)
    return (GPUS_PER_MACHINE,) * full + ((rest,) if rest else ())


@dataclass(frozen=True, slots=True)
class Batch:
    """How a total batch size is cut: examples per GPU and pass, and passes added up before an update."""

    local: int
    passes: int  # after the first
    gpus: int

    @property
    def total(self) -> int:
        """Examples per update, after rounding."""
        return self.gpus * self.local * (self.passes + 1)


@dataclass(frozen=True, eq=False)
class Application:
    """One application's measurements.

    Attributes
    ----------
    name : str
    epochs : int
        Epochs of a run.
    placements : dict of placement to ndarray, shape (rows, 3)
        Local batch size, step time, synchronization time; seconds.
    grid : ndarray, shape (rows, 5)
        Machines, GPUs, local batch size, step time and synchronization time, averaged over placements, then the
        scalability measurements.
    validation : dict of int to ndarray, shape (epochs, 4)
        Per total batch size: progress, iteration, squared norm of the gradient, its variance, after each epoch.
    """

    name: str
    epochs: int
    placements: Mapping[tuple[int, ...], np.ndarray]
    grid: np.ndarray
    validation: Mapping[int, np.ndarray]
    largest_local: int
    _memo: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def initial_batch(self) -> int:
        """Smallest validated total batch size: the unit of progress."""
        return min(self.validation)

    @property
    def largest_batch(self) -> int:
        """Largest validated total batch size."""
        return max(self.validation)

    @cached_property
    def smallest_local(self) -> int:
        """Smallest measured local batch size."""
        return int(min(rows[:, 0].min() for rows in self.placements.values()))

    def most_gpus(self, batch_size: int) -> int:
        """GPUs beyond which a batch of this size cannot be cut (one, for an application that does not scale out)."""
        return 1 if self.name in ONE_GPU_ONLY else max(batch_size // self.smallest_local, 1)

    def cut(self, batch_size: int, gpus: int, *, accumulate_alone: bool | None = None) -> Batch:
        """Cut a total batch over GPUs, adding up passes where the local batch would not fit into memory.

        ``accumulate_alone``: whether one GPU makes at least two passes; by default when the batch is larger than the
        initial one (the artifact's Optimus always predicts with two).
        """
        local = math.ceil(batch_size / gpus - 1e-8)
        passes = math.ceil(local / self.largest_local - 1e-8) - 1
        alone = batch_size > self.initial_batch if accumulate_alone is None else accumulate_alone
        if gpus == 1 and alone:
            passes = max(1, passes)
        local = math.ceil(local / (passes + 1) - 1e-8)
        return Batch(min(local, int(self.largest_batch / (gpus * (passes + 1)))), passes, gpus)

    def step_seconds(self, placement: tuple[int, ...], batch: Batch) -> float:
        """Measured seconds per update, interpolated between measurements (NaN outside them)."""
        step, sync = self._measured(placement, batch.local)
        return step + (step - sync) * batch.passes

    def packed_step_seconds(self, batch_size: int, gpus: int, *, accumulate_alone: bool | None = None) -> float:
        """Seconds per update when packed on as few machines as possible (NaN outside the measurements)."""
        key = ("packed", batch_size, gpus, accumulate_alone)
        if key not in self._memo:
            batch = self.cut(batch_size, gpus, accumulate_alone=accumulate_alone)
            self._memo[key] = self.step_seconds(packed(gpus), batch) if batch.local > 0 else math.nan
        return self._memo[key]

    def curve(self, batch_size: int) -> TableCurve:
        """Updates per second against GPUs, packed on as few machines as possible: the truth, as far as measured.

        Raises
        ------
        DataError
            When not even one GPU was measured with such a batch.
        """
        points = []
        for gpus in range(1, min(self.most_gpus(batch_size), MOST_GPUS) + 1):
            seconds = self.packed_step_seconds(batch_size, gpus)
            if not math.isfinite(seconds):
                break
            points.append((gpus, 1 / seconds))
        if not points:
            raise DataError(
                f"application {self.name!r}: no step time on one GPU is measured for a batch of {batch_size}"
            )
        return TableCurve(points)

    def gains(self, total_batch: int) -> np.ndarray:
        """Progress per update in each epoch, in updates of the initial batch size, shape (epochs,).

        McCandlish et al. (2018): more examples per update help by (variance + norm²) / (variance / scale + norm²).
        """
        key = ("gains", total_batch)
        if key not in self._memo:
            rows = self._at_batch(total_batch)[: self.epochs]
            sqr, var = rows[:, 2], rows[:, 3]
            self._memo[key] = (var + sqr) / (var / (total_batch / self.initial_batch) + sqr)
        return self._memo[key]

    def noise_scales(self, total_batch: int) -> np.ndarray:
        """Gradient noise scale in each epoch of a run at a total batch size, in examples, shape (epochs,)."""
        rows = self._at_batch(total_batch)[: self.epochs]
        scales = np.full(len(rows), math.inf)
        return np.divide(self.initial_batch * rows[:, 3], rows[:, 2], out=scales, where=rows[:, 2] > 0)

    @cached_property
    def progress(self) -> np.ndarray:
        """Progress at the end of each epoch: the least over batch sizes, shape (epochs,)."""
        return np.min([rows[: self.epochs, 0] for rows in self.validation.values()], axis=0)

    def iterations(self, batch_size: int) -> np.ndarray:
        """Updates made at the end of each epoch at this total batch size, shape (epochs,)."""
        key = ("iterations", batch_size)
        if key not in self._memo:
            self._memo[key] = self._at_batch(batch_size)[: self.epochs, 1]
        return self._memo[key]

    def _at_batch(self, batch_size: int) -> np.ndarray:
        sizes = list(self.validation)
        lower = max((size for size in sizes if size <= batch_size), default=None)
        upper = min((size for size in sizes if size >= batch_size), default=None)
        if lower is None or upper is None:
            raise DataError(
                f"application {self.name!r}: batch size must be {sizes[0]} to {sizes[-1]} (validated), got {batch_size}"
            )
        below, above = self.validation[lower][: self.epochs], self.validation[upper][: self.epochs]
        if lower == upper:
            return below
        return ((batch_size - lower) * above + (upper - batch_size) * below) / (upper - lower)

    def _measured(self, placement: tuple[int, ...], local: int) -> tuple[float, float]:
        placement = min(placement[i:] + placement[:i] for i in range(len(placement)))  # machines stand in a ring
        key = (placement, local)
        if key not in self._memo:
            rows = self.placements.get(placement)
            if rows is not None:
                inside = rows[0, 0] <= local <= rows[-1, 0]
                times = [np.interp(local, rows[:, 0], rows[:, c]) if inside else math.nan for c in (1, 2)]
            else:
                times = self._interpolator([min(len(placement), MOST_MACHINES), sum(placement), local])[0]
            self._memo[key] = (float(times[0]), float(times[1]))
        return self._memo[key]

    @cached_property
    def _interpolator(self) -> Any:
        # Points of a grid have many Delaunay triangulations; only the same code finds the artifact's simplices.
        from scipy.interpolate import LinearNDInterpolator
        from scipy.spatial import QhullError

        try:
            return LinearNDInterpolator(self.grid[:, :3], self.grid[:, 3:])
        except QhullError:
            raise DataError(f"application {self.name!r}: too few placements are measured to interpolate") from None
