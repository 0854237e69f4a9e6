"""Logs like Philly's (Jeon et al., ATC 2019)."""

from __future__ import annotations

import datetime
import os

from ...errors import DataError
from ...rows import Row, read_rows
from ..jobs import Workload
from .assembling import Arrival, assemble, logged


def read_philly(path: str | os.PathLike[str], *, exponent: float = 0.8, drop_empty: bool = False) -> Workload:
    """Philly-style logs: columns timestamp, duration (seconds), num_gpus; others are not read.

    The log tells how long a job ran on its GPUs, not how it would scale, so its speed on n GPUs is taken as
    (n / num_gpus) ** ``exponent``; a step is one second on the GPUs it had. Rows are put in order of time.

    Parameters
    ----------
    path : path
    exponent : float, default 0.8
    drop_empty : bool, default False
        Leave out jobs of duration 0 instead of refusing them.

    Raises
    ------
    DataError
        One line with file, row and what is wrong; also where some timestamps have a time zone and others none.
    """
    arrivals: list[Arrival] = []
    first: tuple[Row, datetime.datetime] | None = None
    for row in read_rows(path, required=("timestamp", "duration", "num_gpus"), what="jobs", others=True):
        time = _time(row)
        first = first or (row, time)
        if (first[1].tzinfo is None) != (time.tzinfo is None):
            raise DataError(
                f"{row.where}: timestamp {row.text('timestamp')!r} and {first[0].text('timestamp')!r} of line "
                f"{first[0].line}: one has a time zone and the other none; give all of them one, or none"
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


def _time(row: Row) -> datetime.datetime:
    text = row.text("timestamp")
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError:
        raise DataError(f"{row.where}: timestamp must be like 2017-10-09 07:01:55, got {text!r}") from None
