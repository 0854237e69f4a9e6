"""The Pollux artifact's workloads and measurements (Qiao et al., OSDI 2021), as ordinary jobs."""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from queuemodel.base.checks import require_choice
from queuemodel.base.errors import DataError
from queuemodel.base.files import Row, read_rows
from queuemodel.scheduling import TableCurve, Workload
from queuemodel.scheduling.published import LATEST, arrival, assemble, located

#: Epochs that each application runs for, and its cap on the local batch size, as the artifact sets them.
EPOCHS = {"bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50}
LARGEST_LOCAL_BATCH = {"yolov3": 8}
#: Limits of credible measurements: seconds of a step, squared norm.
_SHORTEST, _LONGEST, _LARGEST_NORM = 1e-9, 3600.0, 1e30

GPUS_PER_MACHINE = 4  # in the artifact's cluster
MOST_MACHINES = 16  # in the scalability measurements: larger placements count as this many
MOST_GPUS = GPUS_PER_MACHINE * MOST_MACHINES


def packed(gpus: int) -> tuple[int, ...]:
    """GPUs per machine when a job fills one machine after the other."""
    full, rest = divmod(gpus, GPUS_PER_MACHINE)
    return (GPUS_PER_MACHINE,) * full + ((rest,) if rest else ())


class Batch(NamedTuple):
    """How a total batch size is cut: examples per GPU and pass, passes added up after the first, and GPUs."""

    local: int
    passes: int
    gpus: int

    @property
    def total(self) -> int:
        """Examples per update, after rounding."""
        return self.gpus * self.local * (self.passes + 1)


@dataclass(frozen=True, eq=False)
class Application:
    """One application's measurements; times in seconds."""

    name: str
    epochs: int  #: Of a run.
    #: Local batch size, step time and synchronization time by placement, shape (rows, 3).
    placements: Mapping[tuple[int, ...], np.ndarray]
    grid: np.ndarray  #: Machines and GPUs, then those three, means over placements and scalability; shape (rows, 5).
    #: After each epoch by total batch size: progress, iteration, gradient's squared norm, its variance; (epochs, 4).
    validation: Mapping[int, np.ndarray]
    largest_local: int

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
        """Most GPUs over which a batch of this size can be cut; the artifact keeps ncf on one."""
        return 1 if self.name == "ncf" else max(batch_size // self.smallest_local, 1)

    def cut(self, batch_size: int, gpus: int, *, accumulate_alone: bool | None = None) -> Batch:
        """Cut a total batch over GPUs, in several passes where the local batch does not fit into memory."""
        local = math.ceil(batch_size / gpus - 1e-8)
        passes = math.ceil(local / self.largest_local - 1e-8) - 1
        if gpus == 1 and (batch_size > self.initial_batch if accumulate_alone is None else accumulate_alone):
            passes = max(1, passes)
        local = math.ceil(local / (passes + 1) - 1e-8)
        return Batch(min(local, int(self.largest_batch / (gpus * (passes + 1)))), passes, gpus)

    def step_seconds(self, placement: tuple[int, ...], batch: Batch) -> float:
        """Measured seconds per update, interpolated between measurements (NaN outside them)."""
        placement = min(placement[i:] + placement[:i] for i in range(len(placement)))  # machines stand in a ring
        rows = self.placements.get(placement)
        if rows is None:
            step, sync = self._interpolator([min(len(placement), MOST_MACHINES), sum(placement), batch.local])[0]
        else:
            inside = rows[0, 0] <= batch.local <= rows[-1, 0]
            step, sync = (np.interp(batch.local, rows[:, 0], rows[:, c]) if inside else math.nan for c in (1, 2))
        return float(step + (step - sync) * batch.passes)

    def curve(self, batch_size: int) -> TableCurve:
        """Updates per second against GPUs, packed on as few machines as possible: the truth, as far as measured."""
        points = []
        for gpus in range(1, min(self.most_gpus(batch_size), MOST_GPUS) + 1):
            batch = self.cut(batch_size, gpus)
            seconds = self.step_seconds(packed(gpus), batch) if batch.local > 0 else math.nan
            if not math.isfinite(seconds):
                break
            points.append((gpus, 1 / seconds))
        if not points:
            raise DataError(
                f"application {self.name!r}: no step time on one GPU is measured for a batch of {batch_size}"
            )
        return TableCurve(points)

    def gains(self, total_batch: int) -> np.ndarray:
        """Progress per update, in updates of the initial batch size, shape (epochs,) (McCandlish et al., 2018)."""
        _, _, sqr, var = self.at_batch(total_batch).T
        return (var + sqr) / (var / (total_batch / self.initial_batch) + sqr)

    @cached_property
    def progress(self) -> np.ndarray:
        """Progress at the end of each epoch: the least over batch sizes, shape (epochs,)."""
        return np.min([rows[: self.epochs, 0] for rows in self.validation.values()], axis=0)

    def at_batch(self, batch_size: int) -> np.ndarray:
        """Rows as of ``validation`` at any batch size between the validated ones, shape (epochs, 4)."""
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

    @cached_property
    def _interpolator(self) -> Any:
        # Points of a grid have many Delaunay triangulations; only the same code finds the artifact's simplices.
        from scipy.interpolate import LinearNDInterpolator
        from scipy.spatial import QhullError

        try:
            return LinearNDInterpolator(self.grid[:, :3], self.grid[:, 3:])
        except QhullError:
            raise DataError(f"application {self.name!r}: too few placements are measured to interpolate") from None


class Submission(NamedTuple):
    """A row of a workload file."""

    row: Row
    name: str
    application: Application
    batch_size: int
    requested: int
    time: int


def read_pollux(path: str | os.PathLike[str], traces: str | os.PathLike[str]) -> Workload:
    """A workload of the artifact: work in updates at the job's batch size, curve as measured when packed.

    Columns are name, time (seconds), application, num_replicas, batch_size; ``traces`` holds a folder per application:
    ``placements.csv`` (step and synchronization time per placement and local batch size), ``scalability.csv`` (the same
    on 6 to 16 machines) and ``validation-BATCH.csv`` (gradient noise per epoch at a total batch size). What rounding of
    the local batch size adds to batches is left out.
    """

    @functools.cache
    def measured(application: Application, batch_size: int) -> tuple[float, TableCurve]:
        spans = np.diff(application.progress, prepend=0.0) / application.gains(batch_size)
        return float(spans.sum()), application.curve(batch_size)

    arrivals = []
    for job in read_submissions(path, traces):
        with located(job.row.where, DataError):
            steps, curve = measured(job.application, job.batch_size)
        kind = job.application.name
        arrivals.append(arrival(job.row, "{name}", job.time, steps, kind=kind, curve=curve, requested=job.requested))
    return assemble(arrivals, path)


def read_submissions(path: str | os.PathLike[str], traces: str | os.PathLike[str]) -> list[Submission]:
    """The rows of a workload file with the measurements of their applications; errors as of `read_pollux`."""
    if not Path(traces).is_dir():
        raise DataError(f"{traces}: no such folder; give the artifact's folder of traces, one folder per application")
    jobs: dict[str, Submission] = {}
    latest = 0
    for row in read_rows(
        path, required=("name", "time", "application", "num_replicas", "batch_size"), what="jobs", others=True
    ):
        name = row.text("name")
        if name in jobs:
            raise DataError(f"{row.where}: the name {name!r} is already that of line {jobs[name].row.line}; rename one")
        time = row.count("time", least=0, most=int(LATEST))
        if time < latest:
            raise DataError(f"{row.where}: time must not fall, got {time} after {latest}; sort the rows")
        latest = time
        kind, batch_size = row.text("application"), row.count("batch_size")
        with located(row.where, DataError):
            application = read_application(traces, kind)
            application.at_batch(batch_size)
        jobs[name] = Submission(row, name, application, batch_size, row.count("num_replicas"), time)
    return list(jobs.values())


def read_application(folder: str | os.PathLike[str], name: str) -> Application:
    """One application's measurements from the folder that holds them all, read once as long as no file changes."""
    base = Path(folder) / require_choice(name, "application", sorted(EPOCHS), error=DataError)
    if not base.is_dir():
        raise DataError(f"{base}: no such folder; the trace folder must hold one folder per application")
    return _read(base, tuple((path, path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(base.glob("*"))))


@functools.lru_cache(maxsize=32)
def _read(base: Path, stamp: tuple[tuple[Path, int, int], ...]) -> Application:
    name = base.name
    placements = _read_placements(base / "placements.csv")
    columns = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
    scalability = [
        [*(row.count(column) for column in columns[:3]), *_times(row)]
        for row in read_rows(base / "scalability.csv", required=columns, what="measurements")
    ]
    validation: dict[int, np.ndarray] = {}
    for path, *_ in stamp:
        if path.name.startswith("validation"):
            match = re.fullmatch(r"validation-(\d{1,6})\.csv", path.name)
            if not match:
                raise DataError(f"{path}: such files are named validation-BATCH.csv; move copies out of the folder")
            validation[int(match[1])] = _read_validation(path, EPOCHS[name])
    if not validation:
        raise DataError(f"{base}: no validation-BATCH.csv file; iterations per epoch are not known without one")
    grid = np.array(_average(placements) + scalability, dtype=float)
    largest = LARGEST_LOCAL_BATCH.get(name, int(max(rows[:, 0].max() for rows in placements.values())))
    return Application(name, EPOCHS[name], placements, grid, dict(sorted(validation.items())), largest)


def _read_validation(path: Path, epochs: int) -> np.ndarray:
    columns = ("progress", "iteration", "grad_sqr", "grad_var")
    table = np.array([
        [row.number(column, positive=column != "grad_sqr", largest=_LARGEST_NORM) for column in columns]
        for row in read_rows(path, required=columns, what="epochs", others=True)
    ])  # fmt: skip
    if len(table) < epochs:
        raise DataError(f"{path}: expected at least {epochs} epochs, got {len(table)}; the file is truncated")
    if (np.diff(table[:, :2], axis=0) <= 0).any():
        raise DataError(f"{path}: progress and iteration must rise from epoch to epoch")
    return table


def _read_placements(path: Path) -> dict[tuple[int, ...], np.ndarray]:
    rows: dict[tuple[int, ...], list[list[float]]] = {}
    columns = ("placement", "local_bsz", "step_time", "sync_time")
    for row in read_rows(path, required=columns, what="measurements"):
        text = row.text("placement")
        if not re.fullmatch("[1-9]{1,16}", text):
            raise DataError(f"{row.where}: placement must be digits, GPUs on each machine, got {text!r}")
        rows.setdefault(tuple(map(int, text)), []).append([row.count("local_bsz"), *_times(row)])
    if (1,) not in rows:
        raise DataError(f"{path}: no rows of placement 1, one GPU alone, with which every job may have to start")
    return {placement: np.array(sorted(values)) for placement, values in rows.items()}


def _times(row: Row) -> tuple[float, float]:
    step, sync = (row.number(column, largest=_LONGEST, unit="seconds") for column in ("step_time", "sync_time"))
    if not max(sync, _SHORTEST) <= step:
        raise DataError(f"{row.where}: step_time must be at least sync_time and {_SHORTEST:g} s, got {step:g} s")
    return step, sync


def _average(placements: Mapping[tuple[int, ...], np.ndarray]) -> list[list[float]]:
    """Means over placements of as many machines, GPUs and examples, in that order."""
    groups: dict[tuple[int, int, float], list[np.ndarray]] = {}
    for placement, rows in placements.items():
        for row in rows:
            groups.setdefault((len(placement), sum(placement), float(row[0])), []).append(row[1:])
    return [[*key, *np.mean(groups[key], axis=0)] for key in sorted(groups)]
