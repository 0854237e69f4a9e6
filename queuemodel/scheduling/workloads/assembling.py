"""From the rows of a public job stream to a workload: what its readers share."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, TypeAlias

from ...base.errors import DataError, ModelError
from ...base.files import Row
from ..curves import PowerLawCurve
from ..jobs import Job, Workload

#: Largest time of a stream, which may be Unix time in seconds.
LATEST = 1e10

#: A row, and what `Job` takes; its arrival time as the file counts it, from any origin.
Arrival: TypeAlias = tuple[Row, dict[str, Any]]


def logged(
    row: Row, name: str, *, time: float, seconds: float, gpus: int, exponent: float, drop_empty: bool
) -> list[Arrival]:
    """A job of which only the time on its GPUs is known, at a speed of (n / gpus) ** exponent: a step is a second.

    An empty job gives nothing when ``drop_empty``.
    """
    if seconds == 0 and drop_empty:
        return []
    if seconds <= 0:
        raise DataError(
            f"{row.where}: the job ran for {seconds:g} s, so it has no work; pass drop_empty=True to leave it out"
        )
    curve = PowerLawCurve(exponent, speed=gpus**-exponent)
    job = {"arrival_time": time, "steps": seconds, "curve": curve, "requested_nodes": gpus, "kind": f"{gpus} GPUs"}
    return [(row, {"name": name} | job)]


def assemble(arrivals: Iterable[Arrival], path: str | os.PathLike[str]) -> Workload:
    """The jobs in order of time (logs are not always), from the first one's arrival on."""
    found = sorted(arrivals, key=lambda one: one[1]["arrival_time"])
    if not found:
        raise DataError(f"{path}: no jobs")
    first = found[0][1]["arrival_time"]
    jobs = []
    for row, job in found:
        try:
            jobs.append(Job(**job | {"arrival_time": job["arrival_time"] - first}))
        except ModelError as error:
            raise DataError(f"{row.where}: {error}") from None
    try:
        return Workload(jobs, os.path.basename(path))
    except ModelError as error:
        raise DataError(f"{path}: {error}") from None
