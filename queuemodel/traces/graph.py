"""From a profile's recorded operations to the packed graphs that the simulator runs, on links and servers as asked."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..checks import require_choice, require_count
from ..errors import DataError, ModelError
from ..training.bandwidth import carried_for_several
from ..training.job import require_bandwidth
from ..training.operations import Operation
from ..training.profile import Profile
from ..training.scenario import POLICIES, SHARDINGS
from .kernel.state import COMPUTE, FETCH, PUSH, UPDATE, Steps
from .links import Links, at_bandwidth, estimate_links
from .policies import ranks, shard

KINDS = {"fetch": FETCH, "compute": COMPUTE, "push": PUSH, "update": UPDATE}
WHOLE, REAL = ("kind", "server", "variable", "degree"), ("size", "duration", "delay", "rank")


#: Arguments of `prepare`.
MACHINES = ("parameter_servers", "bandwidth", "policy", "sharding", "links")


@dataclass(frozen=True, eq=False)
class Graphs:
    """A profile made ready to be simulated many times; takes its place in `simulate`."""

    profile: Profile
    steps: Steps
    links: Links
    parameter_servers: int
    policy: str
    bandwidth: float | None = None  # asked for
    carried: tuple[float, float] | None = None  # by servers' links, where one worker does not fill them


def prepare(
    profile: Profile,
    *,
    parameter_servers: int | None = None,
    bandwidth: float | None = None,
    policy: str = "tensorflow",
    sharding: str = "round-robin",
    links: Links | None = None,
) -> Graphs:
    """Turn a profile into packed graphs, on links and servers that may be others than the profiled ones.

    Arguments and errors are those of `simulate`.
    """
    require_choice(policy, "simulate: policy", POLICIES)
    require_choice(sharding, "simulate: sharding", SHARDINGS)
    profiled = profile.cluster.parameter_servers
    K = (
        profiled
        if parameter_servers is None
        else require_count(parameter_servers, "simulate: parameter_servers", most=1000)
    )
    carried = None if links else carried_for_several(profile, bandwidth)
    links = links or estimate_links(profile)
    if bandwidth is not None:
        require_bandwidth(bandwidth, "simulate: bandwidth", error=ModelError)
        links = at_bandwidth(links, profile, bandwidth)
    starts = (max(links.transmit.start_time, 0.0), max(links.receive.start_time, 0.0))
    dealt = None if profiled == K else shard(profile, K, sharding)
    steps = pack(
        profile,
        parameter_servers=K,
        start_times=starts,
        ranks=ranks(profile, policy, links),
        servers=dealt,
    )
    return Graphs(profile, steps, links, K, policy, bandwidth, carried)


def pack(
    profile: Profile,
    *,
    parameter_servers: int,
    start_times: tuple[float, float] = (0.0, 0.0),
    ranks: Sequence[np.ndarray] | None = None,
    servers: Sequence[np.ndarray] | None = None,
) -> Steps:
    """
    Turn every recorded step into a graph of operations with durations freed from waiting.

    ``start_times`` are seconds before the first byte of a fetch and of a push that found the link idle; ``ranks`` and
    ``servers`` are per step and operation.

    Raises
    ------
    DataError
        When a step has no operations or takes no time, or an operation names a server, or another one before it, that
        is not there.
    """
    columns: dict[str, list] = {name: [] for name in (*WHOLE, *REAL)}
    first, next_first, following = [0], [0], []
    variables: dict[str, int] = {}
    if not profile.steps:
        raise DataError(f"profile {profile.job.name!r} has no recorded steps, which a simulation needs")
    for number, step in enumerate(profile.steps):
        operations = step.operations
        homes = [o.server for o in operations] if servers is None else servers[number]
        _check(operations, homes, parameter_servers, f"profile {profile.job.name!r}: step {number}")
        order = arrival_order(operations)
        place = {int(i): position for position, i in enumerate(order)}
        waits = causes(operations)
        starts = _starts(operations, {"fetch": start_times[0], "push": start_times[1]})
        successors: list[list[int]] = [[] for _ in operations]
        for i in order:
            operation, (after, delay) = operations[i], waits[i]
            kind = KINDS[operation.kind]
            update = kind == UPDATE
            columns["kind"].append(kind)
            columns["size"].append(float(operation.bytes) if kind in (FETCH, PUSH) else 0.0)
            columns["duration"].append(operation.end - operation.start if kind in (COMPUTE, UPDATE) else 0.0)
            columns["delay"].append(delay + starts.get(i, 0.0))
            columns["server"].append(homes[i])
            columns["variable"].append(variables.setdefault(operation.name, len(variables)) if update else -1)
            columns["rank"].append(0.0 if ranks is None else ranks[number][i])
            columns["degree"].append(len(after))
            for earlier in after:
                successors[place[earlier]].append(place[int(i)])
        for successor in successors:
            following += successor
            next_first.append(len(following))
        first.append(first[-1] + len(operations))
    packed = Steps(
        first=np.array(first),
        next_first=np.array(next_first),
        next=np.array(following, np.int64),
        pause=_pauses(profile),
        **{name: np.array(values, np.int64 if name in WHOLE else float) for name, values in columns.items()},
    )
    takes = np.add.reduceat(packed.size + packed.duration + packed.delay, packed.first[:-1]) + packed.pause
    if not takes.all():
        raise DataError(
            f"profile {profile.job.name!r}: step {int(takes.argmin())} takes no time when simulated; "
            "its transfers need bytes, or its computations a duration"
        )
    return packed


def _check(
    operations: Sequence[Operation], servers: Sequence[int] | np.ndarray, parameter_servers: int, where: str
) -> None:
    """Refuse what compiled code could not index (it does not look)."""
    if not operations:
        raise DataError(
            f"{where} has no operations, which a simulation needs; "
            "import traces that record them (queuemodel import-trace)"
        )
    for i, (operation, server) in enumerate(zip(operations, servers, strict=True)):
        what = f"{where}, operation {i} ({operation.name!r})"
        if not 0 <= server < parameter_servers:
            raise DataError(f"{what}: server must be below the number of servers, {parameter_servers}, got {server!r}")
        if not all(0 <= earlier < i for earlier in operation.after):
            raise DataError(f"{what}: after must name operations before it in the list, got {operation.after!r}")


def arrival_order(operations: Sequence[Operation]) -> list[int]:
    """Indices of a step's operations with the fetches first, in the order in which they arrived."""
    return sorted(range(len(operations)), key=lambda i: (operations[i].kind != "fetch", operations[i].end, i))


def causes(operations: Sequence[Operation]) -> list[tuple[list[int], float]]:
    """
    What each operation waited for, and how many seconds passed between that and its start.

    A computation that was ready, but began only when another one had ended, waited for that one too: it needed the
    same processor. (Updates queue in the simulation, so there the other one only takes its part of the time away.)
    Fetches that wait for nothing were asked for together, when the first of them was; what follows until they arrive
    is transmission.
    """
    asked = min((o.start for o in operations if o.kind == "fetch" and not o.after), default=0.0)
    ends: dict[tuple[str, int], list[tuple[float, int]]] = {}
    for i, operation in enumerate(operations):
        ends.setdefault((operation.kind, operation.server), []).append((operation.end, i))
    for same in ends.values():
        same.sort()
    found = []
    for operation in operations:
        after = list(dict.fromkeys(operation.after))
        ready = max((operations[j].end for j in after), default=0.0)
        if operation.kind == "fetch" and not after:
            found.append((after, asked))
            continue
        if operation.kind in ("compute", "update") and after:
            same = ends[operation.kind, operation.server]
            before = bisect.bisect_right(same, (operation.start, len(operations))) - 1
            if before >= 0 and ready < same[before][0] < operation.end and operations[same[before][1]] is not operation:
                ready = same[before][0]
                if operation.kind == "compute":
                    after.append(same[before][1])
        found.append((after, max(0.0, operation.start - ready)))
    return found


def _starts(operations: Sequence[Operation], seconds: dict[str, float]) -> dict[int, float]:
    """Seconds before the first byte of those transfers that found their link idle, by kind; parameters are asked for
    together."""
    found = {}
    for kind, late in seconds.items():
        until = -math.inf
        for i in sorted(range(len(operations)), key=lambda i: operations[i].start):
            one = operations[i]
            sends = one.kind == kind and one.bytes > 0
            if (sends and one.start > until) or (one.kind == kind == "fetch" and not one.after):
                found[i] = late
            if sends:
                until = max(until, one.end)
    return found


def _pauses(profile: Profile) -> np.ndarray:
    """Seconds from each step's last operation to the next step; the median where the record ends."""
    pauses = np.array([step.step_time - max(o.end for o in step.operations) for step in profile.steps])
    known = pauses[pauses > 0]
    return np.where(pauses > 0, pauses, np.median(known) if len(known) else 0.0)
