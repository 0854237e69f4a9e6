"""The Pollux artifact's workloads and measurements (Qiao et al., OSDI 2021), as ordinary jobs.

The folder of traces holds, per application, ``placements.csv`` (step and synchronization time per placement and local
batch size), ``scalability.csv`` (the same on 6 to 16 machines) and ``validation-BATCH.csv`` (iterations and gradient
noise per epoch at a total batch size).
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...checks import require_choice
from ...errors import DataError
from ...rows import Row, read_rows
from ..curves import TableCurve
from ..jobs import Workload
from .assembling import LATEST, Arrival, assemble
from .pollux_application import Application
from .pollux_batch_sizes import application_batch_sizes

#: Epochs that each application runs for, and its cap on the local batch size, as the artifact sets them.
EPOCHS = {"bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50}
LARGEST_LOCAL_BATCH = {"yolov3": 8}
#: Seconds that a step may take, and most that a squared norm may be; measurements beyond are not believed.
_SHORTEST, _LONGEST, _LARGEST_NORM = 1e-9, 3600.0, 1e30

_VALIDATION = re.compile(r"validation-(\d{1,6})\.csv")


@dataclass(frozen=True, slots=True)
class Submission:
    """A row of a workload file."""

    row: Row
    name: str
    application: Application
    batch_size: int
    requested: int
    time: int


def read_pollux(
    path: str | os.PathLike[str],
    traces: str | os.PathLike[str],
    *,
    predicted: Callable[[Application, int], TableCurve] | None = None,
    adaptive: bool = False,
) -> Workload:
    """A workload of the artifact: work in updates at the job's batch size, curve as measured when packed.

    Batch sizes are kept, unless ``adaptive`` and the policy chooses them; what rounding of the local batch size adds to
    them is left out. The artifact's own simulator, with its conventions, is reproduced in ``validation.pollux``.

    Parameters
    ----------
    path : path
        Columns name, time (seconds), application, num_replicas, batch_size.
    traces : path
        The artifact's folder of measurements, one folder per application.
    predicted : callable, optional
        ``predicted(application, batch_size)``: the curve that policies see instead.
    adaptive : bool, default False
        Give jobs their `BatchSizes` too, with the noise scales measured in each epoch at each of them.

    Raises
    ------
    DataError
        One line with file, row and what is wrong.
    """

    @functools.cache
    def measured(application: Application, batch_size: int) -> tuple[float, TableCurve, TableCurve | None]:
        spans = np.diff(application.progress, prepend=0.0) / application.gains(batch_size)
        seen = None if predicted is None else predicted(application, batch_size)
        return float(spans.sum()), application.curve(batch_size), seen

    arrivals = []
    for job in read_submissions(path, traces):
        try:
            steps, curve, seen = measured(job.application, job.batch_size)
        except DataError as error:
            raise DataError(f"{job.row.where}: {error}") from None
        most = int(curve.points[-1][0])
        values = {
            "steps": steps,
            "curve": curve,
            "predicted": seen,
            "most_nodes": most,
            "requested_nodes": min(job.requested, most),
            "kind": job.application.name,
            "batch_sizes": application_batch_sizes(job.application, predicted) if adaptive else None,
        }
        arrivals.append(Arrival(job.row, job.name, job.time, values))
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
        try:
            application = shared_application(traces, kind)
            application.iterations(batch_size)
        except DataError as error:
            raise DataError(f"{row.where}: {error}") from None
        jobs[name] = Submission(row, name, application, batch_size, row.count("num_replicas"), time)
    return list(jobs.values())


def read_application(folder: str | os.PathLike[str], name: str) -> Application:
    """Read one application's measurements from the folder that holds them all.

    Raises
    ------
    DataError
        When the application is not one of the artifact's, or a file is missing, truncated or malformed.
    """
    base = _folder_of(folder, name)
    if not base.is_dir():
        raise DataError(f"{base}: no such folder; the trace folder must hold one folder per application")
    placements = _read_placements(base / "placements.csv")
    columns = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
    scalability = [
        [*(row.count(column) for column in columns[:3]), *_times(row)]
        for row in read_rows(base / "scalability.csv", required=columns, what="measurements")
    ]
    grid = np.array(_average(placements) + scalability, dtype=float)
    validation: dict[int, np.ndarray] = {}
    for path in base.glob("validation*"):
        match = _VALIDATION.fullmatch(path.name)
        if not match:
            raise DataError(f"{path}: such files are named validation-BATCH.csv; move copies out of the folder")
        validation[int(match[1])] = _read_validation(path, EPOCHS[name])
    if not validation:
        raise DataError(f"{base}: no validation-BATCH.csv file; iterations per epoch are not known without one")
    largest = LARGEST_LOCAL_BATCH.get(name, int(max(rows[:, 0].max() for rows in placements.values())))
    return Application(name, EPOCHS[name], placements, grid, dict(sorted(validation.items())), largest)


def shared_application(folder: str | os.PathLike[str], name: str) -> Application:
    """The same, read once as long as the files do not change."""
    base = _folder_of(folder, name)
    stamp = tuple((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(base.glob("*.csv")))
    return _read_once(str(folder), name, stamp)


def _folder_of(folder: str | os.PathLike[str], name: str) -> Path:
    return Path(folder) / require_choice(name, "application", sorted(EPOCHS), error=DataError)


@functools.lru_cache(maxsize=32)
def _read_once(folder: str, name: str, stamp: tuple[tuple[str, int, int], ...]) -> Application:
    return read_application(folder, name)


def _read_validation(path: Path, epochs: int) -> np.ndarray:
    columns = ("progress", "iteration", "grad_sqr", "grad_var")
    table = np.array(
        [
            [row.number(column, positive=column != "grad_sqr", largest=_LARGEST_NORM) for column in columns]
            for row in read_rows(path, required=columns, what="epochs", others=True)
        ]
    )
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
    groups: dict[tuple[int, int, float], list[Sequence[float]]] = {}
    for placement, rows in placements.items():
        for local, step, sync in rows:
            groups.setdefault((len(placement), sum(placement), float(local)), []).append((step, sync))
    return [[*key, *np.mean(groups[key], axis=0)] for key in sorted(groups)]
