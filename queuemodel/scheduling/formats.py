"""Readers of public job streams; the formats are those of the published files, described with each reader."""

from __future__ import annotations

import datetime
import json
import math
import os
import re
from pathlib import Path
from typing import Any

from ..errors import DataError, ModelError
from ..files import read_bytes
from .curves import PowerLawCurve, TableCurve
from .jobs import Job, Workload
from .reading import Row, read_rows

_GAVEL_NEW = [
    "job_type",
    "command",
    "working_directory",
    "num_steps_arg",
    "needs_data_dir",
    "total_steps",
    "scale_factor",
    "priority_weight",
    "SLO",
    "arrival_time",
]
_GAVEL_OLD = ["job_type", "command", "num_steps_arg", "needs_data_dir", "total_steps", "arrival_time", "scale_factor"]
_GAVEL_KEY = re.compile(r"\('(?P<model>.*)', (?P<gpus>\d+)\)")
_ALIBABA = [
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
]


def _workload(rows: list[tuple[Row, Job]], path: str | os.PathLike[str]) -> Workload:
    if not rows:
        raise DataError(f"{path}: no jobs")
    ordered = sorted(rows, key=lambda item: item[1].arrival_time)  # stable: logs are not always in order
    return Workload([job for _, job in ordered], os.path.basename(str(path)))


def _made(row: Row, name: str, **values: Any) -> tuple[Row, Job]:
    try:
        return row, Job(name, **values)
    except ModelError as error:
        raise DataError(f"{row.where}: {error}") from None


def read_gavel(
    path: str | os.PathLike[str],
    throughputs: str | os.PathLike[str],
    *,
    gpu: str = "v100",
    elastic: bool = False,
    drop_unmeasured: bool = False,
) -> Workload:
    """Gavel's traces (Narayanan et al., OSDI 2020): tab separated, 10 columns, or 7 in the older files.

    Parameters
    ----------
    path : path
    throughputs : path
        The JSON file of steps per second by GPU type, model and number of GPUs.
    gpu : str
        GPU type, a key of that file.
    elastic : bool, default False
        Let jobs run on every measured number of GPUs, instead of only the number in the trace.
    drop_unmeasured : bool, default False
        Leave out jobs whose model was not measured on their number of GPUs, instead of refusing the file.
    """
    curves = _gavel_curves(throughputs, gpu)
    first = read_bytes(path).split(b"\n", 1)[0].count(b"\t") + 1
    columns = _GAVEL_OLD if first == len(_GAVEL_OLD) else _GAVEL_NEW
    rows = []
    for row in read_rows(path, required=columns, columns=columns, delimiter="\t"):
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
        rows.append(
            _made(
                row,
                f"{model} #{row.line}",
                arrival_time=row.number("arrival_time", least=0.0),
                steps=row.number("total_steps", above=0.0),
                curve=curve,
                least_nodes=int(curve.points[0][0]),
                most_nodes=int(curve.points[-1][0]),
                requested_nodes=gpus,
                kind=model,
            )
        )
    return _workload(rows, path)


def _gavel_curves(path: str | os.PathLike[str], gpu: str) -> dict[str, dict[int, float]]:
    try:
        document = json.loads(read_bytes(path))
        entries = document[gpu]
        curves: dict[str, dict[int, float]] = {}
        for key, speeds in entries.items():
            match = _GAVEL_KEY.fullmatch(key)
            if match and speeds.get("null", 0) > 0:
                curves.setdefault(match["model"], {})[int(match["gpus"])] = float(speeds["null"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f'{path}: expected JSON {{gpu type: {{"(\'model\', gpus)": {{"null": steps/s}}}}}} with {gpu!r}, got '
            f"{type(error).__name__}: {str(error)[:80]}"
        ) from None
    return curves


def read_philly(path: str | os.PathLike[str], *, exponent: float = 0.8, drop_empty: bool = False) -> Workload:
    """Philly-style logs (Jeon et al., ATC 2019): columns timestamp, duration (seconds), num_gpus.

    The log tells how long a job ran on its GPUs, not how it would scale, so its speed on n GPUs is taken as
    (n / num_gpus) ** ``exponent``; a step is one second on the GPUs it had. Rows are put in order of time.

    Parameters
    ----------
    exponent : float, default 0.8
    drop_empty : bool, default False
        Leave out jobs of duration 0 instead of refusing them.
    """
    rows: list[tuple[Row, Job]] = []
    origin: datetime.datetime | None = None
    found: list[tuple[datetime.datetime, Row]] = []
    for row in read_rows(path, required=("timestamp", "duration", "num_gpus")):
        try:
            time = datetime.datetime.fromisoformat(row.text("timestamp"))
        except ValueError:
            raise DataError(
                f"{row.where}: timestamp must be like 2017-10-09 07:01:55, got {row.values['timestamp']!r}"
            ) from None
        if drop_empty and row.number("duration", least=0.0) == 0:
            continue
        found.append((time, row))
        origin = time if origin is None else min(origin, time)
    for time, row in found:
        gpus = row.count("num_gpus")
        assert origin is not None
        arrival = (time - origin).total_seconds()
        rows.append(_logged(row, f"job-{row.line}", arrival, row.number("duration"), gpus, exponent))
    return _workload(rows, path)


def _logged(row: Row, name: str, arrival: float, seconds: float, gpus: int, exponent: float) -> tuple[Row, Job]:
    if not seconds > 0:
        raise DataError(
            f"{row.where}: the job ran for {seconds:g} s, so it has no work; pass drop_empty=True to leave it out"
        )
    curve = PowerLawCurve(exponent, speed=gpus**-exponent)
    return _made(row, name, arrival_time=arrival, steps=seconds, curve=curve, requested_nodes=gpus, kind=f"{gpus} GPUs")


def read_alibaba(path: str | os.PathLike[str], *, exponent: float = 0.8, drop_empty: bool = False) -> Workload:
    """Alibaba PAI's task table (Weng et al., NSDI 2022): no header, 10 columns, one task of a job per row.

    Tasks that ended and asked for GPUs become jobs: inst_num instances of plan_gpu percent each, rounded up to whole
    GPUs; they arrive when they started. Speeds as in `read_philly`.
    """
    rows: list[tuple[Row, Job]] = []
    for row in read_rows(path, required=_ALIBABA, columns=_ALIBABA):
        if row.values["status"].strip() != "Terminated" or not row.given("plan_gpu") or not row.given("end_time"):
            continue
        gpus = math.ceil(row.count("inst_num") * row.number("plan_gpu", above=0.0) / 100 - 1e-9)
        start, end = row.number("start_time", least=0.0), row.number("end_time", least=0.0)
        if end == start and drop_empty:
            continue
        name = f"{row.text('job_name')}/{row.text('task_name')} #{row.line}"
        rows.append(_logged(row, name, start, end - start, max(gpus, 1), exponent))
    if not rows:
        return _workload(rows, path)
    first = min(job.arrival_time for _, job in rows)
    for _, job in rows:
        object.__setattr__(job, "arrival_time", job.arrival_time - first)
    return _workload(rows, path)


def read_elasticflow(path: str | os.PathLike[str], throughputs: str | os.PathLike[str]) -> Workload:
    """ElasticFlow's traces (Gu et al., ASPLOS 2023): job_id, submit_time, iteration, model_name, batch_size, num_gpu.

    Parameters
    ----------
    path : path
    throughputs : path
        Folder of MODEL.csv: global_batch_size, then iterations/s by number of GPUs (nan, 0 or blank: not measured).
    """
    curves: dict[tuple[str, int], TableCurve] = {}
    rows: list[tuple[Row, Job]] = []
    required = ("job_id", "submit_time", "iteration", "model_name", "batch_size", "num_gpu")
    for row in read_rows(path, required=required):
        key = (row.text("model_name"), row.count("batch_size"))
        if key not in curves:
            curves |= _elasticflow_curves(Path(throughputs), key[0])
        if key not in curves:
            raise DataError(f"{row.where}: {throughputs} has no speeds of {key[0]!r} with a batch of {key[1]}")
        curve = curves[key]
        least, most = int(curve.points[0][0]), int(curve.points[-1][0])
        rows.append(
            _made(
                row,
                f"{key[0]}-{row.text('job_id')}",
                arrival_time=row.number("submit_time", least=0.0),
                steps=row.number("iteration", above=0.0),
                curve=curve,
                least_nodes=least,
                most_nodes=most,
                requested_nodes=min(max(row.count("num_gpu"), least), most),
                kind=key[0],
            )
        )
    return _workload(rows, path)


def _elasticflow_curves(folder: Path, model: str) -> dict[tuple[str, int], TableCurve]:
    curves = {}
    for row in read_rows(folder / f"{model}.csv", required=("global_batch_size",)):
        points = {}
        for column, text in row.values.items():
            if column.isdigit() and text.strip().lower() not in ("", "nan", "0", "0.0"):
                points[int(column)] = row.number(column, above=0.0)
        if points:
            curves[model, row.count("global_batch_size")] = TableCurve(points)
    return curves
