"""In which order a connection serves the tensors queued on it, and which server holds which tensor."""

from __future__ import annotations

import math

import numpy as np

from ..training.operations import Operation
from ..training.profile import Profile
from .links import Links

#: HTTP/2's initial flow-control window: what a stream may send before the next one has its turn (RFC 9113, 6.9.2).
WINDOW = 65_535


def chunk_bytes(policy: str) -> float:
    """How much of a tensor is sent before the next one may have its turn."""
    return WINDOW if policy == "multiplexed" else math.inf


def ranks(profile: Profile, policy: str, links: Links) -> list[np.ndarray] | None:
    """
    Per step and operation, whom its connection serves first (the lowest); None for first come, first served.

    Orders are computed once, on the first step, and hold for the parameters of all steps by name; gradients are always
    sent as they become ready.
    """
    if policy in ("random", "multiplexed"):
        return None
    if policy == "tensorflow":
        return [np.array([_carried(o, links.transmit.rate) for o in step.operations]) for step in profile.steps]
    operations = profile.steps[0].operations
    fetches = [i for i, o in enumerate(operations) if o.kind == "fetch"]
    if policy in ("in-order", "reverse"):
        order = by_first_use(operations, fetches)
        if policy == "reverse":
            order.reverse()
        rank = {operations[i].name: float(position) for position, i in enumerate(order)}
    elif policy == "tic":
        rank = _tic(operations, fetches)
    else:
        rank = _tac(operations, fetches, links.transmit.rate)
    return [
        np.array([rank.get(o.name, 0.0) if o.kind == "fetch" else 0.0 for o in step.operations])
        for step in profile.steps
    ]


def _carried(operation: Operation, rate: float) -> float:
    """
    When half of a parameter had been carried, if its bytes were the last before its end.

    Of parameters that end together, as when those behind a large one were held up with it, this is the order in which
    the link can have carried them; their ends alone are in the order in which threads woke up.
    """
    return operation.end - operation.bytes / rate / 2 if operation.kind == "fetch" else 0.0


def _needs(operations: list[Operation], fetches: list[int]) -> np.ndarray:
    """Which parameters each operation needs, directly or not: shape (operations, fetches)."""
    needs = np.zeros((len(operations), len(fetches)), bool)
    needs[fetches, range(len(fetches))] = True
    for i, operation in enumerate(operations):  # earlier operations come first in the list
        for earlier in operation.after:
            needs[i] |= needs[earlier]
    return needs


def by_first_use(operations: list[Operation], fetches: list[int]) -> list[int]:
    """Fetches in the order in which the computation first needs them, as far as the graph says."""
    needs = _needs(operations, fetches)
    computes = [i for i, o in enumerate(operations) if o.kind == "compute"]
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
    """P and M+ of the parameters still open (TicTac, algorithm 1): computation that each alone unlocks, and least
    transmission among the operations that need it together with others."""
    wanted = needs & open_
    amount, total = wanted.sum(axis=1), wanted @ transfer
    P = (wanted & (amount == 1)[:, None]).T @ times
    shared = wanted[amount > 1]
    M_plus = np.where(shared, total[amount > 1][:, None], math.inf).min(axis=0, initial=math.inf)
    return P, M_plus


def _tic(operations: list[Operation], fetches: list[int]) -> dict[str, float]:
    """Timing-independent order: least M+ first, each transmission counted as 1 (Hashemi et al., MLSys 2019)."""
    others = [i for i, o in enumerate(operations) if o.kind == "compute"]
    needs = _needs(operations, fetches)[others]
    ones = np.ones(len(fetches))
    _, M_plus = _properties(needs, np.zeros(len(others)), ones.astype(bool), ones)
    return {operations[i].name: float(M_plus[f]) for f, i in enumerate(fetches)}


def _tac(operations: list[Operation], fetches: list[int], rate: float) -> dict[str, float]:
    """Timing-aware order: one by one the parameter whose early arrival saves most (Hashemi et al., MLSys 2019)."""
    others = [i for i, o in enumerate(operations) if o.kind == "compute"]
    needs = _needs(operations, fetches)[others]
    times = np.array([operations[i].end - operations[i].start for i in others])
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
    """
    Per step, the server of every operation.

    Parameters are dealt in the order in which the computation first needs them (that in which a program usually creates
    them); a gradient and its update go where a parameter of the same size is, the first used last, as in
    backpropagation.
    """
    operations = profile.steps[0].operations
    order = [
        operations[i] for i in by_first_use(operations, [i for i, o in enumerate(operations) if o.kind == "fetch"])
    ]
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
