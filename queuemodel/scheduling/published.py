"""Published job streams of Philly, Helios, Acme, Alibaba PAI, Gavel and ElasticFlow: a table of their columns."""

from __future__ import annotations

import datetime
import json
import math
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from ..base.checks import require_choice
from ..base.errors import DataError, ModelError, QueueModelError
from ..base.files import Row, read_bytes, read_rows
from ..base.recognition import LOGS
from ..base.results import counted
from .curves import Curve, PowerLawCurve, TableCurve
from .jobs import ClusterJob, Workload

#: Largest time of a stream, which may be Unix time in seconds.
LATEST = 1e10

#: A row, and what `ClusterJob` takes; its arrival time as the file counts it, from any origin.
Arrival: TypeAlias = tuple[Row, dict[str, Any]]
#: Steps per second against GPUs, of each model by batch size (0: any).
Measured: TypeAlias = dict[str, dict[int, TableCurve]]


class Layout(NamedTuple):
    """The columns of a published format."""

    #: Of arrival (a date or seconds), of work (seconds on the job's GPUs; of a task, when it ended; of a trace, steps),
    #: of GPUs (of a task, percent for each instance), and of instances, or of the model that was measured.
    columns: str
    name: str = "job-{line}"
    headers: tuple[str, ...] = ()  # all columns, of files without a header
    delimiter: str = ","

    def rows(self, path: str | os.PathLike[str]) -> Iterator[Row]:
        """The rows of a file of this format."""
        headers = [header.split() for header in self.headers]
        header = headers[0] if headers else None
        if len(headers) > 1:  # the one with as many columns as the first row
            delimiters = read_bytes(path).partition(b"\n")[0].count(self.delimiter.encode())
            header = next((other for other in headers if len(other) == delimiters + 1), header)
        form: dict[str, Any] = {"header": header, "delimiter": self.delimiter, "others": header is None}
        return read_rows(path, required=header or self.columns.split(), what="jobs", **form)


#: Logs: what jobs took on the GPUs that they had.
JOB_LOGS = {
    "philly": Layout(LOGS["philly"]),
    "helios": Layout(LOGS["helios"]),
    "alibaba": Layout(
        "start_time end_time plan_gpu inst_num", "{job_name}/{task_name} #{line}",
        headers=("job_name task_name inst_num status start_time end_time plan_cpu plan_mem plan_gpu gpu_type",),
    ),
}  # fmt: skip
#: Traces: steps of jobs whose speeds were measured.
JOB_TRACES = {
    "gavel": Layout(
        "arrival_time total_steps scale_factor job_type", "{job_type} #{line}", delimiter="\t",
        headers=("job_type command working_directory num_steps_arg needs_data_dir total_steps scale_factor "
                 "priority_weight SLO arrival_time",
                 "job_type command num_steps_arg needs_data_dir total_steps arrival_time scale_factor"),
    ),
    "elasticflow": Layout(LOGS["elasticflow"] + " model_name batch_size job_id", "{model_name}-{job_id}"),
}  # fmt: skip


@contextmanager
def located(where: object, kind: type[QueueModelError] = ModelError) -> Iterator[None]:
    """Turn errors of a kind into `DataError`s that begin with the place in the file."""
    try:
        yield
    except kind as error:
        raise DataError(f"{where}: {error}") from None


def arrival(row: Row, name: str, time: float, steps: float, *, kind: str, curve: Curve, requested: int) -> Arrival:
    """A job of a row, within the limits of a measured curve; its name by the row's cells."""
    cells = {column: text.strip() for column, text in row.values.items()} | {"line": str(row.line)}
    job = {"name": name.format_map(cells), "arrival_time": time, "steps": steps, "kind": kind, "curve": curve}
    if isinstance(curve, TableCurve):
        job |= {"least_nodes": curve.least, "most_nodes": curve.most}
        requested = min(max(requested, curve.least), curve.most)
    return row, job | {"requested_nodes": requested}


def assemble(arrivals: Iterable[Arrival], path: str | os.PathLike[str]) -> Workload:
    """The jobs in order of time (logs are not always), from the first one's arrival on."""
    found = sorted(arrivals, key=lambda one: one[1]["arrival_time"])
    jobs = []
    for row, job in found:
        with located(row.where):
            jobs.append(ClusterJob(**job | {"arrival_time": job["arrival_time"] - found[0][1]["arrival_time"]}))
    with located(path):
        return Workload(jobs, os.path.basename(path))


def read_jobs(
    path: str | os.PathLike[str], layout: str, *, exponent: float = 0.8, drop_empty: bool = False
) -> Workload:
    """A log of jobs in one of `JOB_LOGS`: "philly", "helios" (also Acme's) or "alibaba".

    How a job scales is unknown: its speed on n GPUs is (n / GPUs it had) ** ``exponent``; a step is one second on the
    GPUs it had. Jobs are put in order of time. Those without duration or GPUs are refused, or left out when
    ``drop_empty``. Of Alibaba's tasks those that ended and requested GPUs become jobs, which arrive when they started.
    """
    form = JOB_LOGS[require_choice(layout, "log of jobs: format", JOB_LOGS)]
    submitted, work, had, *instances = form.columns.split()
    arrivals: list[Arrival] = []
    zones: dict[bool, int] = {}
    for row in form.rows(path):
        if not instances:
            time, seconds, gpus = _seconds(row, submitted, zones), row.number(work), row.count(had, least=0)
        elif row.text("status", "") == "Terminated" and row.given(had) and row.given(work):
            time, end = (row.number(column, largest=LATEST) for column in (submitted, work))
            seconds, gpus = end - time, math.ceil(row.count(instances[0]) * row.number(had) / 100 - 1e-9)
        else:
            continue
        if seconds > 0 and gpus:
            curve = PowerLawCurve(exponent, speed=gpus**-exponent)
            kind = f"{gpus} GPUs"
            arrivals.append(arrival(row, form.name, time, seconds, kind=kind, curve=curve, requested=gpus))
        elif seconds < 0 or not drop_empty:
            do = "correct it" if seconds < 0 else "--drop-empty (drop_empty=True) leaves such jobs out"
            raise DataError(
                f"{row.where}: the job ran for {seconds:g} s on {counted(gpus, 'GPU')}, which is no work; {do}"
            )
    return assemble(arrivals, path)


def _seconds(row: Row, column: str, zones: dict[bool, int]) -> float:
    """Unix time of a date; ``zones``: first lines without and with a time zone, of which there may be one kind."""
    text = row.text(column)
    try:
        time = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise DataError(f"{row.where}: {column} must be like 2017-10-09 07:01:55, got {text!r}") from None
    zones.setdefault(time.tzinfo is None, row.line)
    if len(zones) > 1:
        lines = " and ".join(map(str, zones.values()))
        raise DataError(f"{row.file}: {column} has a time zone in one of lines {lines} only; give all one, or none")
    return time.replace(tzinfo=time.tzinfo or datetime.UTC).timestamp()


def read_job_trace(
    path: str | os.PathLike[str],
    layout: str,
    speeds: str | os.PathLike[str],
    *,
    gpu: str = "v100",
    elastic: bool = False,
    drop_empty: bool = False,
) -> Workload:
    """A trace of jobs with measured speeds in one of `JOB_TRACES`: "gavel" or "elasticflow".

    Gavel's ``speeds`` are the JSON file of steps per second by GPU type (``gpu``), model and number of GPUs. Its jobs
    run on the number of GPUs in the trace, with ``elastic`` on every measured one; those whose model was not measured
    on their number are refused, or left out when ``drop_empty``. ElasticFlow's are the folder of MODEL.csv:
    global_batch_size, then iterations per second by number of GPUs (nan, 0 or blank: not measured).
    """
    form, gavel = JOB_TRACES[require_choice(layout, "trace of jobs: format", JOB_TRACES)], layout == "gavel"
    submitted, work, had, modelled, *_ = form.columns.split()
    measured: Measured = _gpu_speeds(speeds, gpu) if gavel else {}
    arrivals = []
    for row in form.rows(path):
        model, gpus, batch_size = row.text(modelled), row.count(had), 0 if gavel else row.count("batch_size")
        if not gavel and model not in measured:
            measured[model] = _model_speeds(row, Path(speeds), model)
        curve = measured.get(model, {}).get(batch_size)
        if curve is None:
            where = f"on {gpu}" if gavel else f"with a batch of {batch_size}"
            raise DataError(f"{row.where}: {speeds} has no speeds of {model!r} {where}")
        points = dict(curve.points)
        if gavel and gpus not in points:
            if drop_empty:
                continue
            raise DataError(
                f"{row.where}: {speeds} has no speed of {model!r} on {gpus} {gpu}; "
                "--drop-empty (drop_empty=True) leaves such jobs out"
            )
        curve = TableCurve({gpus: points[gpus]}) if gavel and not elastic else curve
        time, steps = row.number(submitted, largest=LATEST), row.number(work, positive=True)
        arrivals.append(arrival(row, form.name, time, steps, kind=model, curve=curve, requested=gpus))
    return assemble(arrivals, path)


_KEY = re.compile(r"\('(?P<model>.*)', (?P<gpus>\d{1,6})\)")


def _gpu_speeds(path: str | os.PathLike[str], gpu: str) -> Measured:
    """Speeds of a type of GPU, from Gavel's JSON."""
    found: dict[str, dict[int, float]] = {}
    try:
        for key, speeds in json.loads(read_bytes(path))[gpu].items():
            match = _KEY.fullmatch(key)
            if match and speeds.get("null", 0) > 0:
                found.setdefault(match["model"], {})[int(match["gpus"])] = float(speeds["null"])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DataError(
            f'{path}: expected JSON {{gpu type: {{"(\'model\', gpus)": {{"null": steps/s}}}}}} with {gpu!r}, got '
            f"{type(error).__name__}: {str(error)[:80]}"
        ) from None
    with located(path):
        return {model: {0: TableCurve(points)} for model, points in found.items()}


def _model_speeds(job: Row, folder: Path, model: str) -> dict[int, TableCurve]:
    """Speeds of a model by batch size, from ElasticFlow's folder."""
    if "/" in model:
        raise DataError(f"{job.where}: model_name must be the name of a file in {folder}, got {model!r}")
    found = {}
    for row in read_rows(folder / f"{model}.csv", required=("global_batch_size",), others=True):
        cells = {column: text.strip().lower() for column, text in row.values.items() if column.isdecimal()}
        known = [column for column, text in cells.items() if text not in ("", "nan", "0", "0.0")]
        if points := {float(column): row.number(column, positive=True) for column in known}:
            with located(row.where):
                found[row.count("global_batch_size")] = TableCurve(points)
    return found
