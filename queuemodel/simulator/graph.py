"""Profiles as arrays: a step's graph of operations, the order in which connections send tensors, and their servers."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..base.checks import require_choice, require_count
from ..base.errors import DataError, ModelError
from ..profile.bandwidth import carried_for_several
from ..profile.job import require_bandwidth
from ..profile.profile import Profile
from ..profile.records import Operation
from ..profile.scenario import SHARDINGS, TRANSFER_ORDERS
from .kernel.loop import COMPUTE, FETCH, PUSH, UPDATE, Steps
from .links import LinkRates, at_bandwidth, estimate_links

#: HTTP/2's initial flow-control window: what a stream may send before the next one has its turn (RFC 9113, 6.9.2).
WINDOW = 65_535


def chunk_bytes(transfer_order: str) -> float:
    return WINDOW if transfer_order == "multiplexed" else math.inf


def ranks(profile: Profile, transfer_order: str, links: LinkRates) -> list[np.ndarray] | None:
    """Per step and operation, whom its connection serves first (the lowest), by the first step; None: as they come."""
    if transfer_order in ("random", "multiplexed"):
        return None
    if transfer_order == "tensorflow":
        return [np.array([_carried(o, links.transmit.rate) for o in step.operations]) for step in profile.steps]
    operations = profile.steps[0].operations
    if transfer_order in ("in-order", "reverse"):
        order = by_first_use(operations)
        if transfer_order == "reverse":
            order.reverse()
        rank = {operations[i].name: float(position) for position, i in enumerate(order)}
    elif transfer_order == "tic":
        rank = _tic(operations)
    else:
        rank = _tac(operations, links.transmit.rate)
    return [
        np.array([rank.get(o.name, 0.0) if o.kind == "fetch" else 0.0 for o in step.operations])
        for step in profile.steps
    ]


def _carried(operation: Operation, rate: float) -> float:
    """When half of a parameter had been carried: of those that end together, the order of the link, not of threads."""
    return operation.end - operation.bytes / rate / 2 if operation.kind == "fetch" else 0.0


def _indices(operations: Sequence[Operation], kind: str) -> list[int]:
    return [i for i, o in enumerate(operations) if o.kind == kind]


def _needs(operations: list[Operation], fetches: list[int]) -> np.ndarray:
    """Which parameters each operation needs, directly or not: shape (operations, fetches)."""
    needs = np.zeros((len(operations), len(fetches)), bool)
    needs[fetches, range(len(fetches))] = True
    for i, operation in enumerate(operations):  # earlier operations come first in the list
        for earlier in operation.after:
            needs[i] |= needs[earlier]
    return needs


def by_first_use(operations: list[Operation]) -> list[int]:
    """Fetches in the order in which the computation first needs them, as far as the graph determines."""
    fetches, computes = _indices(operations, "fetch"), _indices(operations, "compute")
    needs = _needs(operations, fetches)
    amount = np.array([needs[i].sum() for i in computes])
    first = [
        min((int(n), position) for position, (i, n) in enumerate(zip(computes, amount, strict=True)) if needs[i, f])
        if needs[computes, f].any()
        else (len(fetches) + 1, len(computes))
        for f in range(len(fetches))
    ]
    return [fetches[f] for f in sorted(range(len(fetches)), key=lambda f: (first[f], f))]


def _properties(
    needs: np.ndarray, times: np.ndarray, open_: np.ndarray, transfer: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """P and M+ of the parameters still open (TicTac, algorithm 1; Hashemi et al., MLSys 2019)."""
    wanted = needs & open_
    amount, total = wanted.sum(axis=1), wanted @ transfer
    P = (wanted & (amount == 1)[:, None]).T @ times
    shared = wanted[amount > 1]
    M_plus = np.where(shared, total[amount > 1][:, None], math.inf).min(axis=0, initial=math.inf)
    return P, M_plus


def _tic(operations: list[Operation]) -> dict[str, float]:
    """Timing-independent order: least M+ first, each transmission counted as 1 (Hashemi et al., MLSys 2019)."""
    fetches, computes = _indices(operations, "fetch"), _indices(operations, "compute")
    needs = _needs(operations, fetches)[computes]
    ones = np.ones(len(fetches))
    _, M_plus = _properties(needs, np.zeros(len(computes)), ones.astype(bool), ones)
    return {operations[i].name: float(M_plus[f]) for f, i in enumerate(fetches)}


def _tac(operations: list[Operation], rate: float) -> dict[str, float]:
    """Timing-aware order: one by one the parameter whose early arrival saves most (Hashemi et al., MLSys 2019)."""
    fetches, computes = _indices(operations, "fetch"), _indices(operations, "compute")
    needs = _needs(operations, fetches)[computes]
    times = np.array([operations[i].end - operations[i].start for i in computes])
    transfer = np.array([operations[i].bytes / rate for i in fetches])
    open_ = np.ones(len(fetches), bool)
    rank: dict[str, float] = {}
    while open_.any():
        P, M_plus = _properties(needs, times, open_, transfer)
        best, *others_open = np.flatnonzero(open_).tolist()
        for f in others_open:
            one, other = min(P[best], transfer[f]), min(P[f], transfer[best])
            if one < other or (one == other and M_plus[f] < M_plus[best]):
                best = f
        rank[operations[fetches[best]].name] = float(len(rank))
        open_[best] = False
    return rank


def shard(profile: Profile, parameter_servers: int, sharding: str) -> list[np.ndarray]:
    """Per step, each operation's server: parameters by first use; gradients by size, the parameter used last first."""
    operations = profile.steps[0].operations
    order = [operations[i] for i in by_first_use(operations)]
    home = _deal([o.bytes for o in order], parameter_servers, sharding)
    fetched = {o.name: server for o, server in zip(order, home, strict=True)}
    sizes: dict[int, list[int]] = {}
    for parameter, server in zip(order, home, strict=True):
        sizes.setdefault(parameter.bytes, []).append(server)
    return [_assign(step.operations, fetched, sizes) for step in profile.steps]


def _deal(sizes: list[int], servers: int, sharding: str) -> list[int]:
    if sharding == "round-robin":
        return [i % servers for i in range(len(sizes))]
    load, home = [0] * servers, [0] * len(sizes)
    for i in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        home[i] = load.index(min(load))
        load[home[i]] += sizes[i]
    return home


def _assign(operations: list[Operation], fetched: dict[str, int], sizes: dict[int, list[int]]) -> np.ndarray:
    server = np.zeros(len(operations), np.int64)
    left = {size: list(homes) for size, homes in sizes.items()}
    spread = max(fetched.values(), default=0) + 1
    for i, operation in enumerate(operations):
        if operation.kind == "fetch":
            server[i] = fetched.get(operation.name, 0)
        elif operation.kind == "push":
            homes = left.get(operation.bytes)
            server[i] = homes.pop() if homes else i % spread
        elif operation.kind == "update":
            pushes = [j for j in operation.after if operations[j].kind == "push"]
            server[i] = server[pushes[0]] if pushes else i % spread
    return server


KERNEL_KINDS = {"fetch": FETCH, "compute": COMPUTE, "push": PUSH, "update": UPDATE}
WHOLE, REAL = ("kind", "server", "variable", "degree"), ("size", "duration", "delay", "rank")
#: Arguments of `prepare`.
MACHINES = ("parameter_servers", "bandwidth", "transfer_order", "sharding", "links")


@dataclass(frozen=True, eq=False)
class Graphs:
    """A profile prepared for many simulations; takes its place in `simulate`."""

    profile: Profile
    steps: Steps
    links: LinkRates
    parameter_servers: int
    transfer_order: str
    bandwidth: float | None = None  # specified
    carried: tuple[float, float] | None = None  # by servers' links, where one worker does not fill them


def prepare(
    profile: Profile,
    *,
    parameter_servers: int | None = None,
    bandwidth: float | None = None,
    transfer_order: str = "tensorflow",
    sharding: str = "round-robin",
    links: LinkRates | None = None,
) -> Graphs:
    """Packed graphs of a profile, on links and servers that may be others; arguments are those of `simulate`."""
    require_choice(transfer_order, "simulate: transfer_order", TRANSFER_ORDERS)
    require_choice(sharding, "simulate: sharding", SHARDINGS)
    K = profiled = profile.cluster.parameter_servers
    if parameter_servers is not None:
        K = require_count(parameter_servers, "simulate: parameter_servers", most=1000)
    carried = None if links else carried_for_several(profile, bandwidth)
    links = links or estimate_links(profile)
    if bandwidth is not None:
        require_bandwidth(bandwidth, "simulate: bandwidth", error=ModelError)
        links = at_bandwidth(links, profile, bandwidth)
    starts = (max(links.transmit.start_time, 0.0), max(links.receive.start_time, 0.0))
    dealt = None if profiled == K else shard(profile, K, sharding)
    order = ranks(profile, transfer_order, links)
    steps = pack(profile, parameter_servers=K, start_times=starts, ranks=order, servers=dealt)
    return Graphs(profile, steps, links, K, transfer_order, bandwidth, carried)


def pack(
    profile: Profile,
    *,
    parameter_servers: int,
    start_times: tuple[float, float],
    ranks: Sequence[np.ndarray] | None,
    servers: Sequence[np.ndarray] | None,
) -> Steps:
    """Every step's graph, freed from waiting, fetches and pushes on an idle link starting ``start_times`` (s) late."""
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
            kind = KERNEL_KINDS[operation.kind]
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
    """What each operation waited for, its processor included, and the seconds from that to its start."""
    # fetches that wait for nothing are requested together; what follows until they arrive is transmission
    requested = min((o.start for o in operations if o.kind == "fetch" and not o.after), default=0.0)
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
            found.append((after, requested))
            continue
        if operation.kind in ("compute", "update") and after:
            same = ends[operation.kind, operation.server]
            before = bisect.bisect_right(same, (operation.start, len(operations))) - 1
            if before >= 0 and ready < same[before][0] < operation.end and operations[same[before][1]] is not operation:
                ready = same[before][0]
                if operation.kind == "compute":  # updates queue in the simulation
                    after.append(same[before][1])
        found.append((after, max(0.0, operation.start - ready)))
    return found


def _starts(operations: Sequence[Operation], seconds: dict[str, float]) -> dict[int, float]:
    """Seconds before the first byte of those transfers that found their link idle, by kind."""
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
