"""Logs like Philly's (Jeon et al., ATC 2019)."""

from __future__ import annotations

import datetime
import os

from ...base.errors import DataError
from ...base.files import read_rows
from ..jobs import Workload
from .assembling import Arrival, assemble, logged


def read_philly(path: str | os.PathLike[str], *, exponent: float = 0.8, drop_empty: bool = False) -> Workload:
    """Philly-style logs: columns timestamp, duration (seconds), num_gpus; others are not read.

    The log tells how long a job ran on its GPUs, not how it would scale, so its speed on n GPUs is taken as
    (n / num_gpus) ** ``exponent``; a step is one second on the GPUs it had. Rows are put in order of time. Jobs of
    duration 0 are refused, or left out when ``drop_empty``, and timestamps of which some have a time zone.
    """
    arrivals: list[Arrival] = []
    first = None
    for row in read_rows(path, required=("timestamp", "duration", "num_gpus"), what="jobs", others=True):
        text = row.text("timestamp")
        try:
            time = datetime.datetime.fromisoformat(text)
        except ValueError:
            raise DataError(f"{row.where}: timestamp must be like 2017-10-09 07:01:55, got {text!r}") from None
        first = first or (row, time)
        if (first[1].tzinfo is None) != (time.tzinfo is None):
            raise DataError(
                f"{row.where}: timestamp {text!r} and {first[0].text('timestamp')!r} of line {first[0].line}: one has "
                "a time zone and the other none; give all of them one, or none"
            )
        arrivals += logged(
            row,
            f"job-{row.line}",
            time=(time - first[1]).total_seconds(),
            seconds=row.number("duration"),
            gpus=row.count("num_gpus"),
            exponent=exponent,
            drop_empty=drop_empty,
        )
    return assemble(arrivals, path)
