"""The strategies that are compared, by name: what each does to the loss, and how its time is predicted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..checks import require_choice, require_number
from ..descent import (
    AdaComm,
    AdaQuantFL,
    BlockSign,
    DoubleCompression,
    LocalSGD,
    OrderedGradient,
    OverlapLocalSGD,
    ServerSGD,
    SquarmSGD,
    Strategy,
    SynchronousSGD,
    TopK,
)
from ..errors import ModelError
from ..strategies.half_synchronous import in_closed_network


@dataclass(frozen=True)
class Candidate:
    """A way of training to compare.

    Attributes
    ----------
    name : str
    descent : Strategy
        What it does to the loss (`queuemodel.descent`).
    asks : dict
        Arguments of `predict` for the seconds of its gradients, without a barrier of all workers; empty: its workers
        step together, and meet for a transfer.
    compression : float
        Seconds that each worker computes at a meeting, to compress and to sum up; no profile tells them.

    Raises
    ------
    ModelError
        When these seconds are none.
    """

    name: str
    descent: Strategy
    asks: dict[str, Any] = field(default_factory=dict)
    compression: float = 0.0

    def __post_init__(self) -> None:
        require_number(self.compression, f"compare: compression of {self.name!r}", unit="seconds")


def _half(name: str, n: int) -> Candidate:
    k = max(n // 2, 1)
    return Candidate(name, ServerSGD(name, k), {"strategy": name, "k": k})


#: Strategies that need a parameter server, by number of workers.
ON_SERVERS: dict[str, Callable[[int], Candidate]] = {
    "async-ps": lambda n: Candidate("async-ps", ServerSGD(), {"strategy": "async-ps"}),
    "backup-worker": lambda n: Candidate(
        "backup-worker", ServerSGD("k-sync", max(n - 1, 1)), {"strategy": "sync-ps", "backup_workers": min(n - 1, 1)}
    ),
    **{name: partial(_half, name) for name in ("k-sync", "k-batch-sync", "k-async", "k-batch-async")},
    "bounded-staleness": lambda n: Candidate(
        "bounded-staleness",
        ServerSGD("bounded-staleness", staleness_bound=2),
        {"strategy": "bounded-staleness", "staleness_bound": 2},
    ),
    "ordered-gradient": lambda n: Candidate("ordered-gradient", OrderedGradient()),
}

#: Strategies whose workers meet, on servers or in an all-reduce.
TOGETHER: dict[str, Callable[[int], Candidate]] = {
    "sync": lambda n: Candidate("sync", SynchronousSGD()),
    "local-sgd": lambda n: Candidate("local-sgd", LocalSGD(8)),
    "adacomm": lambda n: Candidate("adacomm", AdaComm(16)),
    "overlap-local-sgd": lambda n: Candidate("overlap-local-sgd", OverlapLocalSGD(2)),
    "top-k": lambda n: Candidate("top-k", DoubleCompression(TopK(0.01))),
    "block-sign": lambda n: Candidate("block-sign", DoubleCompression(BlockSign(8))),
    "block-sign-local": lambda n: Candidate("block-sign-local", DoubleCompression(BlockSign(8), local_steps=8)),
    "adaquant": lambda n: Candidate("adaquant", AdaQuantFL(8)),
}

#: Strategies that need links between workers.
BETWEEN_WORKERS: dict[str, Callable[[int], Candidate]] = {
    "squarm-ring": lambda n: Candidate("squarm-ring", SquarmSGD("ring", BlockSign(8), mixing=0.3)),
}

NAMES = (*ON_SERVERS, *TOGETHER, *BETWEEN_WORKERS)


def candidates(
    asked: Sequence[str | Candidate] | None, workers: int, *, servers: bool, simulated: bool = True
) -> list[Candidate]:
    """Those asked for, or all that the profiled machines can run; k is half of the workers.

    Unless the profile can be ``simulated`` these are without strategies that only the simulation predicts.

    Raises
    ------
    ModelError
        For an unknown one, one that needs other machines, or none.
    """
    known = TOGETHER | (ON_SERVERS if servers else BETWEEN_WORKERS)
    if asked is None:
        every = [make(workers) for make in known.values()]
        asks = [(one, one.asks.get("strategy"), one.asks.get("backup_workers")) for one in every]
        return [one for one, *asked in asks if simulated or in_closed_network(*asked)]
    chosen = []
    for one in [asked] if isinstance(asked, str) else asked:
        if isinstance(one, str) and require_choice(one, "compare: strategy", NAMES) not in known:
            needs = "a profile with a parameter server" if one in ON_SERVERS else "a profile of data-parallel rounds"
            raise ModelError(f"compare: strategy {one!r} needs {needs}; leave it out")
        if isinstance(one, Candidate) and one.asks and not servers:
            raise ModelError(f"compare: strategy {one.name!r} needs a profile with a parameter server; leave it out")
        chosen.append(known[one](workers) if isinstance(one, str) else one)
    names = [one.name for one in chosen]
    if not chosen or len(set(names)) < len(names):
        raise ModelError(f"compare: strategies must be different and at least one, got {names}")
    return chosen
