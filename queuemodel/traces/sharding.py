"""Which server holds which tensor, when the simulated servers are not as many as the profiled ones."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from ..training.operations import Operation
from ..training.profile import Profile
from .policies import by_first_use

Sharding = Literal["round-robin", "greedy"]
SHARDINGS = get_args(Sharding)


def shard(profile: Profile, parameter_servers: int, sharding: Sharding) -> list[np.ndarray]:
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


def _deal(sizes: list[int], servers: int, sharding: Sharding) -> list[int]:
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
