"""What a fit found out about a job on the machines that it was measured on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .demands import Demands, Servers
from .ensemble import Bend
from .job import Job, Throughput
from .parameters import Origin, Parameter, standard_errors
from .rules import Flights

#: Names of the demands at the servers.
NAMES = {"fetch": "transmit link demand", "push": "receive link demand", "update": "server update demand"}


@dataclass(frozen=True, slots=True)
class Recorded:
    """What only recorded steps tell about a job, and what-ifs need."""

    compute: float  # Seconds of computation per step, overlapped or not; what a faster accelerator shortens
    transferred: tuple[float, float]  # Bytes per step from and to the servers
    #: Sizes of the parameters' tensors in their order, when known: what is dealt to several servers
    tensor_bytes: tuple[int, ...] = ()
    #: Bytes per second of each host's link when profiled; infinite on loopback, None when not known
    bandwidth: float | None = None
    steps: int = 1  # steps, workers: How many steps were recorded, and with how many workers at work
    workers: int = 1
    note: str = ""  # What to know about the demands at the servers


@dataclass(frozen=True, eq=False, kw_only=True)
class Fitted:
    """What a fit found out about a job on the machines that it was measured on."""

    demands: Demands  # Of shape ()
    draws: Demands  # The same, resampled, shape (B,): the fit's uncertainty
    job: Job
    servers: Servers
    recorded: Recorded
    #: settled, flights: How equal workers meet at shared links, see `queuemodel.training.rules.ParallelServers`
    settled: float = 0.0
    flights: Flights | None = None
    doubted: Flights | None = None  # The flights that there are if TCP's congestion control, which nobody told, is BBR
    measured: tuple[Throughput, ...] = ()
    bend: Bend | None = None  # How far throughputs of more workers bend the curve of the machines that it was fitted on
    others: tuple[Parameter, ...] = ()  # Parameters that do not follow from the demands
    note: str = ""  # What this fit cannot know
    contradiction: str = ""  # Which throughputs contradict the profile; empty for none


def step_parameters(
    demands: Demands, draws: Demands, recorded: Recorded, *, origin: Origin = "measured"
) -> list[Parameter]:
    """Demands and effective bandwidths, with the spread of the draws as their errors."""

    def parameter(name: str, field: str, **about: Any) -> Parameter:
        error = float(standard_errors(getattr(draws, field)).mean())
        return Parameter(name, float(getattr(demands, field).mean()), "s", standard_error=error, **about)

    few = "" if recorded.steps > 1 else "one step only: its spread is assumed"
    rows = [
        parameter(name, field, origin=origin, identified=bool(getattr(demands, field) > 0), note=recorded.note or few)
        for field, name in NAMES.items()
    ]
    overlap = recorded.compute - float(demands.worker.mean())
    what = f"{overlap:.3g} s of {recorded.compute:.3g} s computation overlap transfers"
    if overlap < 0:
        what = f"{-overlap:.3g} s more than the {recorded.compute:.3g} s of computation"
    note = f"step time less demands; {what}"
    rows.append(parameter("worker time", "worker", origin="derived", identified=not few, note=note))
    for way, size, link in (("down", recorded.transferred[0], rows[0]), ("up", recorded.transferred[1], rows[1])):
        if size and link.value > 0:
            rate = size / link.value
            rows.append(
                Parameter(
                    f"effective bandwidth {way}", rate, "B/s", standard_error=rate * link.standard_error / link.value,
                    origin="derived", note="bytes over busy time, headers and serialization included",
                )
            )  # fmt: skip
    return rows
