"""Profiles as arrays: graphs of operations, orders in which connections send tensors, and tensors' servers."""

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

KERNEL_KINDS = {"fetch": FETCH, "compute": COMPUTE, "push": PUSH, "update": UPDATE}
INTEGER_COLUMNS, FLOAT_COLUMNS = ("kind", "server", "variable", "degree"), ("size", "duration", "delay", "rank")
#: Arguments of `prepare`.
MACHINES = ("parameter_servers", "bandwidth", "transfer_order", "sharding", "links")


def ranks(profile: Profile, transfer_order: str, links: LinkRates) -> list[np.ndarray] | None:
    """Ranks of each step's operations (n,): a connection serves the lowest first; None: first come first served."""
    if transfer_order in ("random", "multiplexed"):
        return None
    if transfer_order == "tensorflow":  # by the middle of each transmission: the link's order, not the threads'
        rate = links.transmit.rate
        return [
            np.array([o.end - o.bytes / rate / 2 if o.kind == "fetch" else 0.0 for o in step.operations])
            for step in profile.steps
        ]
    operations = profile.steps[0].operations
    if transfer_order in ("in-order", "reverse"):
        order = by_first_use(operations)[:: -1 if transfer_order == "reverse" else 1]
        rank = {operations[i].name: float(position) for position, i in enumerate(order)}
    else:
        rank = _tic(operations) if transfer_order == "tic" else _tac(operations, links.transmit.rate)
    return [
        np.array([rank.get(o.name, 0.0) if o.kind == "fetch" else 0.0 for o in step.operations])
        for step in profile.steps
    ]


def _needs(operations: list[Operation]) -> tuple[list[int], list[int], np.ndarray]:
    """Fetches, computations (indices), and needs (computations, fetches), direct or not."""
    fetches, computes = ([i for i, o in enumerate(operations) if o.kind == kind] for kind in ("fetch", "compute"))
    needs = np.zeros((len(operations), len(fetches)), bool)
    needs[fetches, range(len(fetches))] = True
    for i, operation in enumerate(operations):  # predecessors come first in the list
        for earlier in operation.after:
            needs[i] |= needs[earlier]
    return fetches, computes, needs[computes]


def by_first_use(operations: list[Operation]) -> list[int]:
    """Fetches in the order in which the computation first needs them, as far as the graph determines."""
    fetches, computes, needs = _needs(operations)
    parameters, unused = needs.sum(axis=1).tolist(), (len(fetches) + 1, len(computes))
    first = [  # a computation that needs fewer parameters comes first
        min(((n, i) for i, n in enumerate(parameters) if needs[i, f]), default=unused) for f in range(len(fetches))
    ]
    return [fetches[f] for f in sorted(range(len(fetches)), key=lambda f: (first[f], f))]


def _properties(
    needs: np.ndarray, times: np.ndarray, open_: np.ndarray, transfer: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """P and M+ of the parameters still open (TicTac, algorithm 1; Hashemi et al., MLSys 2019)."""
    missing = needs & open_
    count, total = missing.sum(axis=1), missing @ transfer
    P = (missing & (count == 1)[:, None]).T @ times  # computation that a parameter alone sets free
    shared = missing[count > 1]
    M_plus = np.where(shared, total[count > 1][:, None], math.inf).min(axis=0, initial=math.inf)  # with others: min M
    return P, M_plus


def _tic(operations: list[Operation]) -> dict[str, float]:
    """Timing-independent order: smallest M+ first, each transmission counted as 1 (Hashemi et al., MLSys 2019)."""
    fetches, computes, needs = _needs(operations)
    ones = np.ones(len(fetches))
    _, M_plus = _properties(needs, np.zeros(len(computes)), ones.astype(bool), ones)
    return {operations[i].name: float(M_plus[f]) for f, i in enumerate(fetches)}


def _tac(operations: list[Operation], rate: float) -> dict[str, float]:
    """Timing-aware order: one by one the parameter whose early arrival saves most (Hashemi et al., MLSys 2019)."""
    fetches, computes, needs = _needs(operations)
    times = np.array([operations[i].end - operations[i].start for i in computes])
    transfer = np.array([operations[i].bytes / rate for i in fetches])
    open_ = np.ones(len(fetches), bool)
    rank: dict[str, float] = {}
    while open_.any():
        P, M_plus = _properties(needs, times, open_, transfer)
        best, *candidates = np.flatnonzero(open_).tolist()
        for f in candidates:  # overlap of computation and transfer in either order
            best_first, f_first = min(P[best], transfer[f]), min(P[f], transfer[best])
            if best_first < f_first or (best_first == f_first and M_plus[f] < M_plus[best]):
                best = f
        rank[operations[fetches[best]].name] = float(len(rank))
        open_[best] = False
    return rank


def shard(profile: Profile, parameter_servers: int, sharding: str) -> list[np.ndarray]:
    """Servers of each step's operations (n,): parameters by first use; gradients by size, in reverse of first use."""
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
    for i in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):  # largest first (Graham, 1969)
        home[i] = load.index(min(load))
        load[home[i]] += sizes[i]
    return home


def _assign(operations: list[Operation], fetched: dict[str, int], sizes: dict[int, list[int]]) -> np.ndarray:
    server = np.zeros(len(operations), np.int64)
    unassigned = {size: list(homes) for size, homes in sizes.items()}
    spread = max(fetched.values(), default=0) + 1
    for i, operation in enumerate(operations):
        if operation.kind == "fetch":
            server[i] = fetched.get(operation.name, 0)
        elif operation.kind == "push":
            homes = unassigned.get(operation.bytes)
            server[i] = homes.pop() if homes else i % spread
        elif operation.kind == "update":
            pushes = [j for j in operation.after if operations[j].kind == "push"]
            server[i] = server[pushes[0]] if pushes else i % spread
    return server


@dataclass(frozen=True, eq=False)
class Graphs:
    """A profile prepared for many simulations; takes its place in `simulate`."""

    profile: Profile
    steps: Steps
    links: LinkRates
    parameter_servers: int
    transfer_order: str
    bandwidth: float | None = None  # specified
    carried: tuple[float, float] | None = None  # bytes per second of servers' links that one worker does not fill


def prepare(
    profile: Profile,
    *,
    parameter_servers: int | None = None,
    bandwidth: float | None = None,
    transfer_order: str = "tensorflow",
    sharding: str = "round-robin",
    links: LinkRates | None = None,
) -> Graphs:
    """Packed graphs of a profile, with its links and servers or others; arguments are those of `simulate`."""
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
    servers = None if profiled == K else shard(profile, K, sharding)
    steps = pack(profile, links, K, ranks(profile, transfer_order, links), servers)
    return Graphs(profile, steps, links, K, transfer_order, bandwidth, carried)


def pack(
    profile: Profile, links: LinkRates, K: int, ranks: list[np.ndarray] | None, servers: list[np.ndarray] | None
) -> Steps:
    """Every step's graph without waiting, of ``K`` servers; transfers on an idle link start late, as its rates say."""
    columns: dict[str, list] = {name: [] for name in (*INTEGER_COLUMNS, *FLOAT_COLUMNS)}
    first, next_first, following = [0], [0], []
    variables: dict[str, int] = {}
    if not profile.steps:
        raise DataError(f"profile {profile.job.name!r} has no recorded steps, which a simulation needs")
    for number, step in enumerate(profile.steps):
        operations = step.operations
        homes = [o.server for o in operations] if servers is None else servers[number]
        _check(operations, homes, K, f"profile {profile.job.name!r}: step {number}")
        order = arrival_order(operations)
        place = {int(i): position for position, i in enumerate(order)}
        causes = dependencies(operations)
        starts = _starts(operations, links)
        successors: list[list[int]] = [[] for _ in operations]
        for i in order:
            operation, (after, delay) = operations[i], causes[i]
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
        first=np.array(first), next_first=np.array(next_first), next=np.array(following, np.int64),
        pause=_pauses(profile),
        **{name: np.array(values, np.int64 if name in INTEGER_COLUMNS else float) for name, values in columns.items()},
    )  # fmt: skip
    work = np.add.reduceat(packed.size + packed.duration + packed.delay, packed.first[:-1]) + packed.pause
    if not work.all():
        raise DataError(
            f"profile {profile.job.name!r}: step {int(work.argmin())} takes no time when simulated; "
            "its transfers need bytes, or its computations a duration"
        )
    return packed


def _check(
    operations: Sequence[Operation], servers: Sequence[int] | np.ndarray, parameter_servers: int, where: str
) -> None:
    """Refuse servers and predecessors outside the arrays: compiled code does not check indices."""
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


def dependencies(operations: Sequence[Operation]) -> list[tuple[list[int], float]]:
    """Predecessors of each operation, on its processor too, and seconds from the last one's end to its start."""
    # fetches without predecessors are requested together; the time until they arrive is transmission
    requested = min((o.start for o in operations if o.kind == "fetch" and not o.after), default=0.0)
    ends: dict[tuple[str, int], list[tuple[float, int]]] = {}
    for i, operation in enumerate(operations):
        ends.setdefault((operation.kind, operation.server), []).append((operation.end, i))
    for processor in ends.values():
        processor.sort()
    causes = []
    for operation in operations:
        after = list(dict.fromkeys(operation.after))
        ready = max((operations[j].end for j in after), default=0.0)
        if operation.kind == "fetch" and not after:
            causes.append((after, requested))
            continue
        if operation.kind in ("compute", "update") and after:
            processor = ends[operation.kind, operation.server]
            before = bisect.bisect_right(processor, (operation.start, len(operations))) - 1
            end, previous = processor[before]
            if before >= 0 and ready < end < operation.end and operations[previous] is not operation:
                ready = end
                if operation.kind == "compute":  # updates queue in the simulation
                    after.append(previous)
        causes.append((after, max(0.0, operation.start - ready)))
    return causes


def _starts(operations: Sequence[Operation], links: LinkRates) -> dict[int, float]:
    """Seconds before the first byte of transfers on an idle link, by operation."""
    starts = {}
    for kind, link in (("fetch", links.transmit), ("push", links.receive)):
        busy_until = -math.inf
        for i in sorted(range(len(operations)), key=lambda i: operations[i].start):
            o = operations[i]
            sends = o.kind == kind and o.bytes > 0
            if (sends and o.start > busy_until) or (o.kind == kind == "fetch" and not o.after):
                starts[i] = max(link.start_time, 0.0)
            if sends:
                busy_until = max(busy_until, o.end)
    return starts


def _pauses(profile: Profile) -> np.ndarray:
    """Seconds from each step's last operation to the next step; the median where the record ends."""
    pauses = np.array([step.step_time - max(o.end for o in step.operations) for step in profile.steps])
    positive = pauses[pauses > 0]
    return np.where(pauses > 0, pauses, np.median(positive) if len(positive) else 0.0)
