"""The package's own workload file: one job per row (docs/reference/workload-csv)."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...checks import MOST_EXAMPLES
from ...errors import DataError, ModelError, QueueModelError
from ...files import write_atomically
from ...rows import Row, read_rows
from ...training.curve import ThroughputCurve
from ..curves import PowerLawCurve, TableCurve
from ..ends import Completes, EndsEarly
from ..jobs import Job, Workload, training_steps
from .batch_columns import NOISE, has_batch_sizes, read_batch_sizes, told_batch_sizes
from .speed_cells import read_speeds, told

#: From a profile's file, the most nodes, and settings by name to a throughput curve.
Predicted = Callable[[Path, int, dict[str, str]], ThroughputCurve]

REQUIRED = ("name", "arrival_time", "speeds")
#: Instead of ``steps`` a job may have these three.
PASSES = ("epochs", "dataset_size", "batch_size")
OPTIONAL = ("steps", "least_nodes", "most_nodes", "requested_nodes", "kind", "end_probability", NOISE)


def read_workload(
    path: str | os.PathLike[str], *, nodes: int | None = None, predicted: Predicted | None = None
) -> Workload:
    """Read a workload; with ``nodes``, for a cluster of so many: a job that needs more is refused with its row.

    Columns ``name``, ``arrival_time`` (seconds, not falling), ``speeds`` and either ``steps`` or ``epochs``,
    ``dataset_size`` and ``batch_size``; optional ``least_nodes``, ``most_nodes``, ``requested_nodes``, ``kind`` and
    ``end_probability`` (that the job ends early, uniformly over its work). ``speeds`` is a table ``1:2.0 2:3.7 4:6.1``
    (nodes to steps per second, linear in between), ``power EXPONENT SPEED`` (``SPEED * nodes ** EXPONENT``), or
    ``profile FILE NAME=VALUE ...``, what ``predicted`` (`queuemodel.speeds.curve_of`) makes of a profile beside the
    workload. Without ``most_nodes`` a table's largest node count is the most. A job that may choose its batch size has
    such ``speeds`` for each, ``128=1:2.0 2:3.7; 256=1:1.2 2:2.3``, with ``noise_scales`` and its user's ``batch_size``.

    Raises
    ------
    DataError
        One line with file, row, column and what is wrong.
    """
    jobs: list[Job] = []
    rows: dict[str, int] = {}
    for row in read_rows(path, required=REQUIRED, optional=(*OPTIONAL, *PASSES), what="jobs"):
        job = _job(row, Path(path).parent, nodes, predicted)
        if nodes is not None:
            job.require_room(nodes, where=row.where, error=DataError)
        if job.name in rows:
            raise DataError(f"{row.where}: the name {job.name!r} is already that of line {rows[job.name]}; rename one")
        if jobs and job.arrival_time < jobs[-1].arrival_time:
            raise DataError(
                f"{row.where}: arrival_time must not fall, got {job.arrival_time:g} after {jobs[-1].arrival_time:g}; "
                "sort the rows by arrival_time"
            )
        rows[job.name] = row.line
        jobs.append(job)
    return Workload(jobs, os.path.basename(str(path)))


def _job(row: Row, folder: Path, nodes: int | None, predicted: Predicted | None) -> Job:
    text = row.text("speeds", most=100_000)
    sizes = read_batch_sizes(row, text, _steps) if has_batch_sizes(text) else None
    if sizes is None and row.given(NOISE):
        raise DataError(f"{row.where}: noise_scales go with speeds by batch size; give these, or leave it empty")
    if sizes is None:
        curve: Callable[[float], float] = _curve(row, text, folder, nodes, predicted)
    else:
        curve = sizes.curves[row.count("batch_size")]
    least, most = row.count("least_nodes", 1), row.count("most_nodes", 0) or None
    if isinstance(curve, TableCurve):
        last = int(curve.points[-1][0])
        if most is None or sizes:  # others of its batch sizes may reach further
            most = min(most or last, last)
        least = max(least, int(curve.points[0][0])) if not row.given("least_nodes") else least
        if least < curve.points[0][0] or most > curve.points[-1][0]:
            raise DataError(
                f"{row.where}: speeds are given for {curve.points[0][0]:g} to {curve.points[-1][0]:g} nodes, but the "
                f"job may run on {least} to {most}; give more speeds or narrow least_nodes and most_nodes"
            )
    work = _steps(row) if sizes is None else sizes.steps(row.count("batch_size"))
    try:
        return Job(
            row.text("name"),
            arrival_time=row.number("arrival_time", unit="seconds from the stream's start"),
            steps=work,
            curve=curve,
            batch_sizes=sizes,
            least_nodes=least,
            most_nodes=most,
            requested_nodes=row.count("requested_nodes", 0) or None,
            kind=row.text("kind", ""),
            end=EndsEarly(row.share("end_probability")) if row.given("end_probability") else Completes(),
        )
    except ModelError as error:
        raise DataError(f"{row.where}: {error}") from None


def _steps(row: Row) -> float:
    if row.given("steps"):
        if any(row.given(part) for part in PASSES if part != "batch_size" or not row.given(NOISE)):
            raise DataError(f"{row.where}: steps and {', '.join(PASSES)} are two ways to say one thing; give one")
        return row.number("steps", positive=True)
    if not all(row.given(part) for part in PASSES):
        raise DataError(f"{row.where}: a job needs work: give steps, or {', '.join(PASSES)}")
    epochs, dataset, batch = (row.number(part, positive=True, largest=MOST_EXAMPLES) for part in PASSES)
    return training_steps(epochs, dataset, batch, row.where)


def _curve(
    row: Row, text: str, folder: Path, nodes: int | None, predicted: Predicted | None
) -> PowerLawCurve | TableCurve:
    if text.split()[0] == "profile":
        return _predicted(row, text.split()[1:], folder, row.count("most_nodes", 0) or nodes, predicted)
    return read_speeds(row, text)


def _predicted(row: Row, words: list[str], folder: Path, most: int | None, predicted: Predicted | None) -> TableCurve:
    """The speeds that are predicted from a profile, on 1 to so many nodes."""
    if not words or not all(name and value for name, _, value in (word.partition("=") for word in words[1:])):
        raise DataError(f"{row.where}: speeds must be 'profile FILE NAME=VALUE ...', got {' '.join(words)[:60]!r}")
    if predicted is None or most is None:
        what = "most_nodes" if most is None else "predicted"
        raise DataError(f"{row.where}: speeds from a profile need {what}; give it")
    settings = {word.partition("=")[0]: word.partition("=")[2] for word in words[1:]}
    try:
        curve = predicted(folder / words[0], most, settings)
        return TableCurve(tuple(zip(curve.workers.tolist(), curve.steps_per_second.tolist(), strict=True)))
    except QueueModelError as error:
        raise DataError(f"{row.where}: speeds: {error}") from None


def write_workload(workload: Workload, path: str | os.PathLike[str], *, nodes: int | None = None) -> None:
    """Write a workload; curves that are neither tables nor power laws are tabulated up to ``most_nodes`` or ``nodes``.

    Raises
    ------
    ModelError
        When a curve must be tabulated but neither bound is given, or an end law has no column.
    """
    text = io.StringIO(newline="")
    rows = [_fields(job, nodes) for job in workload]
    chosen = any(job.batch_sizes is not None for job in workload)
    columns = (*REQUIRED, *OPTIONAL, "batch_size") if chosen else (*REQUIRED, *OPTIONAL[:-1])
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, text.getvalue())


def _fields(job: Job, nodes: int | None) -> dict[str, Any]:
    chance: float | str = ""
    if isinstance(job.end, EndsEarly):
        if (job.end.alpha, job.end.beta) != (1.0, 1.0):
            raise ModelError(f"job {job.name!r}: the file has no column for the law of progress of {job.end!r}")
        chance = repr(job.end.probability)
    elif not isinstance(job.end, Completes):
        raise ModelError(f"job {job.name!r}: the file has no column for the end law {type(job.end).__name__}")
    most = job.most_nodes or nodes
    tabulated = None if most is None else range(job.least_nodes, most + 1)
    work: dict[str, Any]
    if job.batch_sizes is None:
        work = {"steps": repr(float(job.steps)), "speeds": told(job.curve, tabulated, f"job {job.name!r}")}
    else:
        work = told_batch_sizes(job, job.batch_sizes, tabulated)
    return {
        "name": job.name,
        "arrival_time": repr(float(job.arrival_time)),
        "least_nodes": job.least_nodes,
        "most_nodes": job.most_nodes or "",
        "requested_nodes": job.requested_nodes or "",
        "kind": job.kind,
        "end_probability": chance,
        **work,
    }
