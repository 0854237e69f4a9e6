"""Measured throughputs as models take them: of several workers' traces, on the profiled links, and doubts of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ..base.errors import DataError, ModelError, QueueModelWarning
from ..base.files import constants
from ..base.results import counted
from .measurements import Measurement
from .profile import Profile

_NUMBERS = constants(__package__)["throughputs"]
EXPECTED = "expected a Profile or measurements, got {}; load reads files, read_measurements tables"
STEP_ERROR, LEAST_GROWTH = _NUMBERS["step_error"], _NUMBERS["least_growth"]


def require_measured(data: Any, where: str) -> None:
    """Refuse what is neither a profile nor a list of measurements: for example the path of a file."""
    if isinstance(data, (str, bytes)) or not isinstance(data, (Profile, Iterable)):
        raise ModelError(f"{where}: {EXPECTED.format(type(data).__name__)}")


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
    for other in (one for one in found if not isinstance(one, Measurement)):
        raise ModelError(EXPECTED.format(type(other).__name__))
    return found


def warn_of_rounds(measured: Sequence[Measurement]) -> None:
    """Warn of steps that grow like rounds with the workers: 6 of 191 published series do, and all in rounds."""
    few, many = (pick(measured, key=lambda p: p.workers) for pick in (min, max))
    growth = many.steps_per_second / few.steps_per_second
    if many.workers >= 2 * few.workers and growth < LEAST_GROWTH:
        warnings.warn(
            f"{many.workers} workers make {growth:.3g} times the steps per second of {few.workers} "
            f"({many.steps_per_second:.4g} and {few.steps_per_second:.4g}); if these are iterations of the whole "
            "group, call the column iterations_per_second, or multiply them by the workers",
            QueueModelWarning,
            stacklevel=2,
        )


def on_profiled_links(points: Sequence[Measurement], profile: Profile) -> list[Measurement]:
    """The same, without the bandwidth where it is the profile's."""
    own = profile.cluster.bandwidth
    return [msgspec.structs.replace(p, bandwidth=None) if p.bandwidth == own else p for p in points]


def doubt(points: Iterable[Measurement], against: str) -> str:
    """A fit's note on its outliers."""
    named = ", ".join(f"{p.steps_per_second:.4g} steps/s with {p.group}" for p in points)
    return f"{named}: does not fit {against} and has little weight: measure it again"
