"""Alibaba PAI's task table (Weng et al., NSDI 2022)."""

from __future__ import annotations

import math
import os

from ...base.files import read_rows
from ..jobs import Workload
from .assembling import LATEST, Arrival, assemble, logged

_COLUMNS = ("job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu",
            "gpu_type")  # fmt: skip


def read_alibaba(path: str | os.PathLike[str], *, exponent: float = 0.8, drop_empty: bool = False) -> Workload:
    """Alibaba PAI's task table: no header, 10 columns, one task of a job per row.

    Tasks that ended and asked for GPUs become jobs: inst_num instances of plan_gpu percent each, rounded up to whole
    GPUs; they arrive when they started. Speeds and options as in `read_philly`.
    """
    arrivals: list[Arrival] = []
    for row in read_rows(path, required=_COLUMNS, header=_COLUMNS, what="tasks"):
        if row.text("status", "") != "Terminated" or not row.given("plan_gpu") or not row.given("end_time"):
            continue
        gpus = math.ceil(row.count("inst_num") * row.number("plan_gpu", positive=True) / 100 - 1e-9)
        name = f"{row.text('job_name')}/{row.text('task_name')} #{row.line}"
        start, end = (row.number(column, largest=LATEST) for column in ("start_time", "end_time"))
        arrivals += logged(
            row, name, time=start, seconds=end - start, gpus=max(gpus, 1), exponent=exponent, drop_empty=drop_empty
        )
    return assemble(arrivals, path)
