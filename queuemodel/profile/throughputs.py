"""Measured throughputs: from a CSV (``workers,steps_per_second`` or alike), or from several workers' traces."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from ..base.checks import FASTEST_LINK
from ..base.errors import DataError, ModelError, QueueModelError, QueueModelWarning
from ..base.files import Row, constants, parse_bandwidth, read_rows
from ..base.results import counted
from .measurements import Measurement
from .profile import Profile

#: Said where a table has no workers.
OTHER = {"workers": "or nodes, gpus, batch_size and step_time, for nodes of several GPUs"}
_NUMBERS = constants(__package__)["throughputs"]
STEP_ERROR, LEAST_GROWTH = _NUMBERS["step_error"], _NUMBERS["least_growth"]
#: Steps of all workers per second from the value of each column that may hold a row's speed, and the workers. In
#: ``step_time`` every worker makes a step: in a round, or on its own.
SPEEDS: dict[str, Callable[[float, int], float]] = {
    "steps_per_second": lambda steps, workers: steps,
    "rounds_per_second": lambda rounds, workers: rounds * workers,
    "iterations_per_second": lambda rounds, workers: rounds * workers,
    "step_time": lambda seconds, workers: workers / seconds,
}
OPTIONAL = (*SPEEDS, "parameter_servers", "standard_error", "bandwidth")
MEANINGS = {
    "steps_per_second": "of all workers: examples per second over one worker's batch size",
    "rounds_per_second": "of the whole group",
    "iterations_per_second": "of the whole group",
    "step_time": "seconds of a round, or of one worker's step",
}


class Stated(Measurement, frozen=True):
    """A throughput from a column that says whether a round or all steps count."""


def read_throughputs(path: str | os.PathLike[str]) -> list[Measurement]:
    """Read measured throughputs from a CSV with a header (docs/reference/throughput-csv).

    Returns
    -------
    list of Measurement
        In the order of the file.

    Raises
    ------
    DataError
        One line that names the file, the line, the column and the value.
    """
    rows = read_rows(path, required=("workers",), optional=OPTIONAL, what="measurements", meanings=MEANINGS | OTHER)
    return [_throughput(row) for row in rows]


def _throughput(row: Row) -> Measurement:
    workers, servers = row.count("workers"), row.count("parameter_servers", 1)
    found = [column for column in SPEEDS if row.given(column)]
    if len(found) != 1:
        columns = ", ".join(f"{column} ({meaning})" for column, meaning in MEANINGS.items())
        raise DataError(f"{row.where}: give one of {columns}; got {' and '.join(found) or 'none'}")
    value = row.number(found[0], positive=True)
    speed = SPEEDS[found[0]](value, workers)
    error = row.number("standard_error") * (speed / value) if row.given("standard_error") else None
    bandwidth = row.quantity("bandwidth", parse_bandwidth, largest=FASTEST_LINK)
    try:
        machines: dict[str, Any] = {"workers": workers, "parameter_servers": servers, "bandwidth": bandwidth}
        kind = Measurement if found == ["steps_per_second"] else Stated
        return kind(steps_per_second=speed, standard_error=error, **machines)
    except QueueModelError as refusal:
        raise DataError(f"{row.where}: {refusal}") from None


def require_measured(data: Any, where: str) -> None:
    """Refuse what is neither a profile nor a list of measurements: for example the path of a file."""
    if isinstance(data, (str, bytes)) or not isinstance(data, (Profile, Iterable)):
        raise ModelError(
            f"{where}: expected a Profile or Throughputs, got {type(data).__name__}; "
            "files are read by Profile.load and read_throughputs"
        )


def traced_throughput(profile: Profile) -> Measurement:
    """The throughput of all workers, from the steps of one of several, with `STEP_ERROR`."""
    cluster, times = profile.cluster, profile.values("step_time")
    if cluster.workers < 2 or not len(times):
        raise DataError(
            f"{profile.job.name or 'profile'}: a further profile must have steps recorded among several workers, got "
            f"{len(times)} steps of {counted(cluster.workers, 'worker')}; import it with the number that trained "
            "(--workers)"
        )
    speed = cluster.workers / float(times.mean())
    return Measurement(
        workers=cluster.workers,
        steps_per_second=speed,
        parameter_servers=cluster.parameter_servers,
        standard_error=min(1.0, STEP_ERROR / len(times) ** 0.5) * speed,
    )


def as_throughputs(measured: Iterable[Measurement | Profile]) -> list[Measurement]:
    """Throughputs as they are, and what profiles of several workers show (`traced_throughput`)."""
    found = [traced_throughput(one) if isinstance(one, Profile) else one for one in measured]
    for one in found:
        if not isinstance(one, Measurement):
            raise ModelError(
                f"expected a Profile or Throughputs, got {type(one).__name__}; "
                "files are read by Profile.load and read_throughputs"
            )
    return found


def warn_of_rounds(measured: Sequence[Measurement]) -> None:
    """Warn of steps that grow like rounds with the workers: 6 of 191 published series do, and all in rounds."""
    few, many = (pick(measured, key=lambda p: p.workers) for pick in (min, max))
    growth = many.steps_per_second / few.steps_per_second
    stated = isinstance(few, Stated) and isinstance(many, Stated)
    if many.workers >= 2 * few.workers and growth < LEAST_GROWTH and not stated:
        warnings.warn(
            f"{many.workers} workers make {growth:.3g} times the steps per second of {few.workers} "
            f"({many.steps_per_second:.4g} and {few.steps_per_second:.4g}); if these are iterations of the whole "
            "group, call the column rounds_per_second, or multiply them by the workers",
            QueueModelWarning,
            stacklevel=2,
        )


def on_profiled_links(points: Sequence[Measurement], profile: Profile) -> list[Measurement]:
    """The same, without the bandwidth where it is the profile's."""
    own = profile.cluster.bandwidth
    return [msgspec.structs.replace(p, bandwidth=None) if p.bandwidth == own else p for p in points]


def doubt(points: Iterable[Measurement], against: str) -> str:
    """A fit's note on its outliers."""
    named = ", ".join(f"{p.steps_per_second:.4g} steps/s with {counted(p.workers, 'worker')}" for p in points)
    return f"{named}: does not fit {against} and has little weight; measure it again"
