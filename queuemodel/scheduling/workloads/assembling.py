"""From the rows of a public job stream to a workload: what its readers share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import DataError, ModelError
from ...rows import Row
from ..curves import PowerLawCurve
from ..jobs import Job, Workload

#: Largest time of a stream, which may be Unix time in seconds.
LATEST = 1e10


@dataclass(frozen=True, slots=True)
class Arrival:
    """A row's job, its time as the file counts it: from any origin."""

    row: Row
    name: str
    time: float
    values: dict[str, Any]


def logged(
    row: Row, name: str, *, time: float, seconds: float, gpus: int, exponent: float, drop_empty: bool
) -> list[Arrival]:
    """A job of which only the time on its GPUs is known, at a speed of (n / gpus) ** exponent: a step is a second.

    An empty job gives nothing when ``drop_empty``.
    """
    if seconds <= 0:
        if drop_empty and seconds == 0:
            return []
        raise DataError(
            f"{row.where}: the job ran for {seconds:g} s, so it has no work; pass drop_empty=True to leave it out"
        )
    curve = PowerLawCurve(exponent, speed=gpus**-exponent)
    values = {"steps": seconds, "curve": curve, "requested_nodes": gpus, "kind": f"{gpus} GPUs"}
    return [Arrival(row, name, time, values)]


def assemble(arrivals: Sequence[Arrival], path: str | os.PathLike[str]) -> Workload:
    """The jobs in order of time (logs are not always), from the first one's arrival on.

    Raises
    ------
    DataError
        When there is none, or a row makes no job.
    """
    if not arrivals:
        raise DataError(f"{path}: no jobs")
    first = min(one.time for one in arrivals)
    jobs = []
    for one in sorted(arrivals, key=lambda one: one.time):
        try:
            jobs.append(Job(one.name, arrival_time=one.time - first, **one.values))
        except ModelError as error:
            raise DataError(f"{one.row.where}: {error}") from None
    try:
        return Workload(jobs, os.path.basename(path))
    except ModelError as error:
        raise DataError(f"{path}: {error}") from None
