"""ElasticFlow's traces (Gu et al., ASPLOS 2023)."""

from __future__ import annotations

import os
from pathlib import Path

from ...base.errors import DataError, ModelError
from ...base.files import Row, read_rows
from ..curves import TableCurve
from ..jobs import Workload
from .assembling import LATEST, Arrival, assemble

_REQUIRED = ("job_id", "submit_time", "iteration", "model_name", "batch_size", "num_gpu")
_NOT_MEASURED = ("", "nan", "0", "0.0")


def read_elasticflow(path: str | os.PathLike[str], throughputs: str | os.PathLike[str]) -> Workload:
    """ElasticFlow's traces: job_id, submit_time, iteration, model_name, batch_size, num_gpu; others are not read.

    ``throughputs`` is the folder of MODEL.csv: global_batch_size, then iterations/s by number of GPUs (nan, 0 or blank:
    not measured).
    """
    curves: dict[str, dict[int, TableCurve]] = {}
    arrivals: list[Arrival] = []
    for row in read_rows(path, required=_REQUIRED, what="jobs", others=True):
        model, batch = row.text("model_name"), row.count("batch_size")
        if model not in curves:
            curves[model] = _curves(row, Path(throughputs), model)
        curve = curves[model].get(batch)
        if curve is None:
            raise DataError(f"{row.where}: {throughputs} has no speeds of {model!r} with a batch of {batch}")
        job = {
            "name": f"{model}-{row.text('job_id')}",
            "arrival_time": row.number("submit_time", largest=LATEST),
            "steps": row.number("iteration", positive=True),
            "curve": curve,
            "least_nodes": curve.least,
            "most_nodes": curve.most,
            "requested_nodes": min(max(row.count("num_gpu"), curve.least), curve.most),
            "kind": model,
        }
        arrivals.append((row, job))
    return assemble(arrivals, path)


def _curves(asking: Row, folder: Path, model: str) -> dict[int, TableCurve]:
    if not model.isprintable() or "/" in model:
        raise DataError(f"{asking.where}: model_name must be the name of a file in {folder}, got {model!r}")
    curves = {}
    for row in read_rows(folder / f"{model}.csv", required=("global_batch_size",), others=True):
        points = {
            float(column): row.number(column, positive=True)
            for column, text in row.values.items()
            if column.isdecimal() and text.strip().lower() not in _NOT_MEASURED
        }
        if points:
            try:
                curves[row.count("global_batch_size")] = TableCurve(points)
            except ModelError as error:
                raise DataError(f"{row.where}: {error}") from None
    return curves
