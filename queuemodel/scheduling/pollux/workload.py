"""Workload files of the Pollux artifact: for its compatibility mode, and as ordinary jobs for the exact simulation."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ...errors import DataError
from ..curves import TableCurve
from ..jobs import Job, Workload
from ..reading import read_rows
from .applications import Application, shared_application
from .rule import measured_curve
from .state import RunningJob


def read_jobs(path: str | os.PathLike[str], traces: str | os.PathLike[str]) -> list[RunningJob]:
    """Jobs of a workload file (name, time, application, num_replicas, batch_size), for the compatibility mode.

    Raises
    ------
    DataError
        One line with file, row and what is wrong.
    """
    if not Path(traces).is_dir():
        raise DataError(f"{traces}: no such folder; give the artifact's folder of traces, one folder per application")
    applications: dict[str, Application] = {}
    jobs: list[RunningJob] = []
    rows: dict[str, int] = {}
    for row in read_rows(path, required=("name", "time", "application", "num_replicas", "batch_size")):
        kind, name = row.text("application"), row.text("name")
        if kind not in applications:
            try:
                applications[kind] = shared_application(traces, kind)
            except DataError as error:
                raise DataError(f"{row.where}: {error}") from None
        if name in rows:
            raise DataError(f"{row.where}: the name {name!r} is already that of row {rows[name]}; rename one")
        rows[name] = row.line
        job = RunningJob(
            name,
            applications[kind],
            row.count("batch_size"),
            row.count("num_replicas"),
            row.count("time", least=0),
        )
        try:
            job.application.iterations(job.batch_size)
        except DataError as error:
            raise DataError(f"{row.where}: {error}") from None
        if jobs and job.submitted < jobs[-1].submitted:
            raise DataError(
                f"{row.where}: time must not fall, got {job.submitted} after {jobs[-1].submitted}; sort the rows"
            )
        jobs.append(job)
    if not jobs:
        raise DataError(f"{path}: no jobs, only a header")
    return jobs


def read_pollux(
    path: str | os.PathLike[str],
    traces: str | os.PathLike[str],
    *,
    predicted: Callable[[Application, int], TableCurve] | None = None,
) -> Workload:
    """The same file as ordinary jobs: work in updates at the job's batch size, curve as measured when packed.

    Batch sizes are kept; what rounding of the local batch size adds to them is left out, which the compatibility mode
    counts.
    """
    curves: dict[tuple[str, int], tuple[TableCurve, float, TableCurve | None]] = {}
    jobs = []
    for job in read_jobs(path, traces):
        key = (job.application.name, job.batch_size)
        if key not in curves:
            spans = np.diff(job.application.progress, prepend=0.0)
            steps = float((spans / job.application.gains(job.batch_size)).sum())
            seen = None if predicted is None else predicted(job.application, job.batch_size)
            curves[key] = (measured_curve(job.application, job.batch_size), steps, seen)
        curve, steps, seen = curves[key]
        most = int(curve.points[-1][0])
        jobs.append(
            Job(
                job.name,
                arrival_time=job.submitted,
                steps=steps,
                curve=curve,
                predicted=seen,
                most_nodes=most,
                requested_nodes=min(job.requested, most),
                kind=job.application.name,
            )
        )
    return Workload(jobs, os.path.basename(str(path)))
