"""Published job streams: of Philly, Helios, Alibaba PAI, Gavel and ElasticFlow; times count from the first arrival."""

from __future__ import annotations

import datetime
import json
import math
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from ...base.errors import DataError, ModelError, QueueModelError
from ...base.files import Row, read_bytes, read_rows
from ...base.recognition import LOGS
from ...base.results import counted
from ..curves import Curve, PowerLawCurve, TableCurve
from ..jobs import ClusterJob, Workload

#: Largest time of a stream, which may be Unix time in seconds.
LATEST = 1e10

#: A row, and what `ClusterJob` takes; its arrival time as the file counts it, from any origin.
Arrival: TypeAlias = tuple[Row, dict[str, Any]]


@contextmanager
def located(where: object, kind: type[QueueModelError] = ModelError) -> Iterator[None]:
    """Turn errors of a kind into `DataError`s that begin with the place in the file."""
    try:
        yield
    except kind as error:
        raise DataError(f"{where}: {error}") from None


def arrival(
    row: Row, name: str, *, time: float, steps: float, curve: Curve, requested: int, kind: str, **rest: Any
) -> Arrival:
    """A job of a row, within the limits of a measured curve."""
    job = {"name": name, "arrival_time": time, "steps": steps, "curve": curve, "kind": kind} | rest
    if isinstance(curve, TableCurve):
        job |= {"least_nodes": curve.least, "most_nodes": curve.most}
        requested = min(max(requested, curve.least), curve.most)
    return row, job | {"requested_nodes": requested}


def logged(
    row: Row, name: str, *, time: float, seconds: float, gpus: int, exponent: float, drop_empty: bool
) -> list[Arrival]:
    """A job of so many seconds on its GPUs, at a speed of (n / gpus) ** exponent: a step is a second."""
    if drop_empty and (seconds == 0 or not gpus):
        return []
    if seconds <= 0 or not gpus:
        do = "correct it" if seconds < 0 else "--drop-empty (drop_empty=True) leaves such jobs out"
        raise DataError(f"{row.where}: the job ran for {seconds:g} s on {counted(gpus, 'GPU')}, which is no work; {do}")
    curve = PowerLawCurve(exponent, speed=gpus**-exponent)
    return [arrival(row, name, time=time, steps=seconds, curve=curve, requested=gpus, kind=f"{gpus} GPUs")]


def assemble(arrivals: Iterable[Arrival], path: str | os.PathLike[str]) -> Workload:
    """The jobs in order of time (logs are not always), from the first one's arrival on."""
    found = sorted(arrivals, key=lambda one: one[1]["arrival_time"])
    if not found:
        raise DataError(f"{path}: no jobs")
    first = found[0][1]["arrival_time"]
    jobs = []
    for row, job in found:
        with located(row.where):
            jobs.append(ClusterJob(**job | {"arrival_time": job["arrival_time"] - first}))
    with located(path):
        return Workload(jobs, os.path.basename(path))


def read_philly(
    path: str | os.PathLike[str], *, exponent: float = 0.8, drop_empty: bool = False, columns: str = LOGS["philly"]
) -> Workload:
    """Philly-style logs: columns timestamp, duration (seconds), num_gpus; others are not read.

    How a job scales is unknown: its speed on n GPUs is (n / num_gpus) ** ``exponent``; a step is one second on the
    GPUs it had. Rows are put in order of time. Jobs of duration 0 or without GPUs are refused, or left out when
    ``drop_empty``, and timestamps of which some have a time zone. ``columns`` are those names in the file.
    """
    arrivals: list[Arrival] = []
    first = None
    submitted, duration, had = columns.split()
    for row in read_rows(path, required=(submitted, duration, had), what="jobs", others=True):
        text = row.text(submitted)
        try:
            time = datetime.datetime.fromisoformat(text)
        except ValueError:
            raise DataError(f"{row.where}: {submitted} must be like 2017-10-09 07:01:55, got {text!r}") from None
        first = first or (row, time)
        if (first[1].tzinfo is None) != (time.tzinfo is None):
            raise DataError(
                f"{row.where}: {submitted} {text!r} and {first[0].text(submitted)!r} of line {first[0].line}: one has "
                "a time zone and the other none; give all of them one, or none"
            )
        seconds, gpus, since = row.number(duration), row.count(had, least=0), (time - first[1]).total_seconds()
        how: dict[str, Any] = {"exponent": exponent, "drop_empty": drop_empty}
        arrivals += logged(row, f"job-{row.line}", time=since, seconds=seconds, gpus=gpus, **how)
    return assemble(arrivals, path)


def read_helios(path: str | os.PathLike[str], **how: Any) -> Workload:
    """Helios' logs, and Acme's: columns submit_time, duration (seconds), gpu_num; all else as `read_philly`."""
    return read_philly(path, columns=LOGS["helios"], **how)


_ALIBABA = ("job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu",
            "gpu_type")  # fmt: skip


def read_alibaba(path: str | os.PathLike[str], *, exponent: float = 0.8, drop_empty: bool = False) -> Workload:
    """Alibaba PAI's task table: no header, 10 columns, one task of a job per row.

    Tasks that ended and requested GPUs become jobs: inst_num instances of plan_gpu percent each, rounded up to whole
    GPUs; they arrive when they started. Speeds and options as in `read_philly`.
    """
    arrivals = []
    for row in read_rows(path, required=_ALIBABA, header=_ALIBABA, what="tasks"):
        if row.text("status", "") != "Terminated" or not row.given("plan_gpu") or not row.given("end_time"):
            continue
        gpus = math.ceil(row.count("inst_num") * row.number("plan_gpu") / 100 - 1e-9)
        name = f"{row.text('job_name')}/{row.text('task_name')} #{row.line}"
        start, end = (row.number(column, largest=LATEST) for column in ("start_time", "end_time"))
        how: dict[str, Any] = {"exponent": exponent, "drop_empty": drop_empty}
        arrivals += logged(row, name, time=start, seconds=end - start, gpus=gpus, **how)
    return assemble(arrivals, path)


_GAVEL = ("job_type", "command", "working_directory", "num_steps_arg", "needs_data_dir", "total_steps", "scale_factor",
        "priority_weight", "SLO", "arrival_time")  # fmt: skip
_OLD_GAVEL = ("job_type", "command", "num_steps_arg", "needs_data_dir", "total_steps", "arrival_time", "scale_factor")
_KEY = re.compile(r"\('(?P<model>.*)', (?P<gpus>\d{1,6})\)")


def read_gavel(
    path: str | os.PathLike[str],
    throughputs: str | os.PathLike[str],
    *,
    gpu: str = "v100",
    elastic: bool = False,
    drop_unmeasured: bool = False,
) -> Workload:
    """Gavel's traces: tab separated, 10 columns, or 7 in the older files.

    ``throughputs`` is the JSON file of steps per second by GPU type (``gpu``), model and number of GPUs. With
    ``elastic`` jobs run on every measured number of GPUs, instead of only the number in the trace. Jobs whose model was
    not measured on their number of GPUs are refused, or left out when ``drop_unmeasured``.
    """
    curves = _gpu_curves(throughputs, gpu)
    fields = read_bytes(path).split(b"\n", 1)[0].count(b"\t") + 1
    columns = _OLD_GAVEL if fields == len(_OLD_GAVEL) else _GAVEL
    arrivals = []
    for row in read_rows(path, required=columns, header=columns, delimiter="\t", what="jobs"):
        model, gpus = row.text("job_type"), row.count("scale_factor")
        if model not in curves:
            raise DataError(f"{row.where}: {throughputs} has no speeds of {model!r} on {gpu}")
        points = curves[model]
        if gpus not in points:
            if drop_unmeasured:
                continue
            raise DataError(
                f"{row.where}: {throughputs} has no speed of {model!r} on {gpus} {gpu}; pass drop_unmeasured=True to "
                "leave such jobs out"
            )
        curve = TableCurve(points if elastic else {gpus: points[gpus]})
        time, steps = row.number("arrival_time", largest=LATEST), row.number("total_steps", positive=True)
        name = f"{model} #{row.line}"
        arrivals.append(arrival(row, name, time=time, steps=steps, curve=curve, requested=gpus, kind=model))
    return assemble(arrivals, path)


def _gpu_curves(path: str | os.PathLike[str], gpu: str) -> dict[str, dict[int, float]]:
    curves: dict[str, dict[int, float]] = {}
    try:
        for key, speeds in json.loads(read_bytes(path))[gpu].items():
            match = _KEY.fullmatch(key)
            if match and speeds.get("null", 0) > 0:
                curves.setdefault(match["model"], {})[int(match["gpus"])] = float(speeds["null"])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DataError(
            f'{path}: expected JSON {{gpu type: {{"(\'model\', gpus)": {{"null": steps/s}}}}}} with {gpu!r}, got '
            f"{type(error).__name__}: {str(error)[:80]}"
        ) from None
    with located(path):
        for points in curves.values():
            TableCurve(points)
    return curves


_ELASTICFLOW = ("job_id", "submit_time", "iteration", "model_name", "batch_size", "num_gpu")
_NOT_MEASURED = ("", "nan", "0", "0.0")


def read_elasticflow(path: str | os.PathLike[str], throughputs: str | os.PathLike[str]) -> Workload:
    """ElasticFlow's traces: job_id, submit_time, iteration, model_name, batch_size, num_gpu; others are not read.

    ``throughputs`` is the folder of MODEL.csv: global_batch_size, then iterations/s by number of GPUs (nan, 0 or blank:
    not measured).
    """
    curves: dict[str, dict[int, TableCurve]] = {}
    arrivals = []
    for row in read_rows(path, required=_ELASTICFLOW, what="jobs", others=True):
        model, batch = row.text("model_name"), row.count("batch_size")
        if model not in curves:
            curves[model] = _model_curves(row, Path(throughputs), model)
        curve = curves[model].get(batch)
        if curve is None:
            raise DataError(f"{row.where}: {throughputs} has no speeds of {model!r} with a batch of {batch}")
        time, steps = row.number("submit_time", largest=LATEST), row.number("iteration", positive=True)
        name, gpus = f"{model}-{row.text('job_id')}", row.count("num_gpu")
        arrivals.append(arrival(row, name, time=time, steps=steps, curve=curve, requested=gpus, kind=model))
    return assemble(arrivals, path)


def _model_curves(job: Row, folder: Path, model: str) -> dict[int, TableCurve]:
    if not model.isprintable() or "/" in model:
        raise DataError(f"{job.where}: model_name must be the name of a file in {folder}, got {model!r}")
    curves = {}
    for row in read_rows(folder / f"{model}.csv", required=("global_batch_size",), others=True):
        points = {
            float(column): row.number(column, positive=True)
            for column, text in row.values.items()
            if column.isdecimal() and text.strip().lower() not in _NOT_MEASURED
        }
        if points:
            with located(row.where):
                curves[row.count("global_batch_size")] = TableCurve(points)
    return curves
