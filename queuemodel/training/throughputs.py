"""Measured throughputs as a plain CSV: ``workers,steps_per_second[,parameter_servers]``."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ..errors import DataError
from ..rows import Row, read_rows
from .job import Throughput


def read_throughputs(path: str | os.PathLike[str]) -> list[Throughput]:
    """Read measured throughputs from a CSV with a header.

    Returns
    -------
    list of Throughput
        In the order of the file.

    Raises
    ------
    DataError
        One line that names the file, the line, the column and the value.
    """
    rows = read_rows(
        path, required=("workers", "steps_per_second"), optional=("parameter_servers",), what="measurements"
    )
    return [_throughput(row) for row in rows]


def _throughput(row: Row) -> Throughput:
    workers, servers = row.count("workers"), row.count("parameter_servers", 1)
    speed = row.number("steps_per_second")
    try:
        return Throughput(workers=workers, steps_per_second=speed, parameter_servers=servers)
    except DataError as error:
        raise DataError(f"{row.where}: {error}") from None


def doubt(points: Iterable[Throughput], against: str) -> str:
    """What a fit says of points that it does not meet."""
    named = ", ".join(f"{p.steps_per_second:.4g} steps/s with {p.workers} worker(s)" for p in points)
    return f"{named}: does not fit {against} and counts little; measure it again"
