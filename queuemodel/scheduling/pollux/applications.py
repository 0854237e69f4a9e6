"""Applications of the Pollux artifact: measured step times and statistical efficiency, read from its trace folder.

The trace folder holds, per application, ``placements.csv`` (step and synchronization time per placement and local batch
size), ``scalability.csv`` (the same on 6 to 16 machines) and ``validation-BATCH.csv`` (iterations and gradient noise
per epoch at a total batch size). Source of the data and of the conventions: A. Qiao et al., "Pollux: Co-adaptive
Cluster Scheduling for Goodput-Optimized Deep Learning" (OSDI 2021), artifact.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import DataError
from ..reading import read_numbers

#: GPUs of one machine in the artifact's cluster.
GPUS_PER_MACHINE = 4
#: Most machines in the scalability measurements: larger placements count as this many.
MOST_MACHINES = 16
#: Epochs that each application runs for, and its cap on the local batch size, as the artifact sets them.
EPOCHS = {"bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50}
LARGEST_LOCAL_BATCH = {"yolov3": 8}
#: The artifact keeps this application on one GPU.
ONE_GPU_ONLY = frozenset({"ncf"})
#: Seconds of a step below which a measurement is not believed.
_SHORTEST = 1e-9

Placement = tuple[int, ...]


def packed(gpus: int) -> Placement:
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
    placements: Mapping[Placement, np.ndarray]
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

    def step_seconds(self, placement: Placement, batch: Batch) -> float:
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

    def _measured(self, placement: Placement, local: int) -> tuple[float, float]:
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

        return LinearNDInterpolator(self.grid[:, :3], self.grid[:, 3:])


def read_application(folder: str | os.PathLike[str], name: str) -> Application:
    """Read one application's measurements from the folder that holds them all.

    Raises
    ------
    DataError
        When the application is not one of the artifact's, or a file is missing, truncated or malformed.
    """
    if name not in EPOCHS:
        raise DataError(f"application must be one of {', '.join(sorted(EPOCHS))}, got {name!r}")
    base = Path(folder) / name
    if not base.is_dir():
        raise DataError(f"{base}: no such folder; the trace folder must hold one folder per application")
    placements = _read_placements(base / "placements.csv")
    scalability = read_numbers(
        base / "scalability.csv",
        ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time"),
        least=(1, 1, 1, _SHORTEST, 0),
    )
    grid = np.array(_average(placements) + scalability.tolist(), dtype=float)
    validation: dict[int, np.ndarray] = {}
    for path in sorted(base.glob("validation-*.csv"), key=lambda p: int(p.stem.split("-")[1])):
        rows = read_numbers(path, ("progress", "iteration", "grad_sqr", "grad_var"))
        if len(rows) < EPOCHS[name]:
            raise DataError(f"{path}: expected at least {EPOCHS[name]} epochs, got {len(rows)}; the file is truncated")
        validation[int(path.stem.split("-")[1])] = rows
    if not validation:
        raise DataError(f"{base}: no validation-BATCH.csv file; iterations per epoch are not known without one")
    largest = LARGEST_LOCAL_BATCH.get(name, int(max(rows[:, 0].max() for rows in placements.values())))
    return Application(name, EPOCHS[name], placements, grid, validation, largest)


def shared_application(folder: str | os.PathLike[str], name: str) -> Application:
    """The same, read once as long as the files do not change."""
    base = Path(folder) / name
    stamp = tuple((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(base.glob("*.csv")))
    return _read_once(str(folder), name, stamp)


@functools.lru_cache(maxsize=32)
def _read_once(folder: str, name: str, stamp: tuple[tuple[str, int, int], ...]) -> Application:
    return read_application(folder, name)


def _read_placements(path: Path) -> dict[Placement, np.ndarray]:
    numbers = read_numbers(path, ("placement", "local_bsz", "step_time", "sync_time"), least=(1, 1, _SHORTEST, 0))
    rows: dict[Placement, list[list[float]]] = {}
    for line, (code, *values) in enumerate(numbers.tolist(), start=2):
        text = f"{code:.0f}"
        if "0" in text or code != int(code):
            raise DataError(f"{path}, row {line}: placement must be digits, GPUs on each machine, got {code:g}")
        rows.setdefault(tuple(int(digit) for digit in text), []).append(values)
    return {placement: np.array(sorted(values)) for placement, values in rows.items()}


def _average(placements: Mapping[Placement, np.ndarray]) -> list[list[float]]:
    """Means over placements of as many machines, GPUs and examples, in that order."""
    groups: dict[tuple[int, int, float], list[Sequence[float]]] = {}
    for placement, rows in placements.items():
        for local, step, sync in rows:
            groups.setdefault((len(placement), sum(placement), float(local)), []).append((step, sync))
    return [[*key, *np.mean(groups[key], axis=0)] for key in sorted(groups)]
