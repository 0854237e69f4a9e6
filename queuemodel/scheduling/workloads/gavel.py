"""Gavel's traces (Narayanan et al., OSDI 2020)."""

from __future__ import annotations

import json
import os
import re

from ...base.errors import DataError, ModelError
from ...base.files import read_bytes, read_rows
from ..curves import TableCurve
from ..jobs import Workload
from .assembling import LATEST, Arrival, assemble

_NEW = ("job_type", "command", "working_directory", "num_steps_arg", "needs_data_dir", "total_steps", "scale_factor",
        "priority_weight", "SLO", "arrival_time")  # fmt: skip
_OLD = ("job_type", "command", "num_steps_arg", "needs_data_dir", "total_steps", "arrival_time", "scale_factor")
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
    curves = _curves(throughputs, gpu)
    fields = read_bytes(path).split(b"\n", 1)[0].count(b"\t") + 1
    columns = _OLD if fields == len(_OLD) else _NEW
    arrivals: list[Arrival] = []
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
        job = {
            "name": f"{model} #{row.line}",
            "arrival_time": row.number("arrival_time", largest=LATEST),
            "steps": row.number("total_steps", positive=True),
            "curve": curve,
            "least_nodes": curve.least,
            "most_nodes": curve.most,
            "requested_nodes": gpus,
            "kind": model,
        }
        arrivals.append((row, job))
    return assemble(arrivals, path)


def _curves(path: str | os.PathLike[str], gpu: str) -> dict[str, dict[int, float]]:
    try:
        curves: dict[str, dict[int, float]] = {}
        for key, speeds in json.loads(read_bytes(path))[gpu].items():
            match = _KEY.fullmatch(key)
            if match and speeds.get("null", 0) > 0:
                curves.setdefault(match["model"], {})[int(match["gpus"])] = float(speeds["null"])
        for points in curves.values():
            TableCurve(points)
    except ModelError as error:
        raise DataError(f"{path}: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DataError(
            f'{path}: expected JSON {{gpu type: {{"(\'model\', gpus)": {{"null": steps/s}}}}}} with {gpu!r}, got '
            f"{type(error).__name__}: {str(error)[:80]}"
        ) from None
    return curves
