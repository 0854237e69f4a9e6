"""The strategies that are compared, by name: what each does to the loss, and how its time is predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
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
    """A way of training to compare."""

    name: str
    descent: Strategy  #: what it does to the loss
    #: Arguments of `predict` for the seconds of its gradients; empty: its workers meet for a transfer.
    asks: dict[str, Any] = field(default_factory=dict)
    compression: float = 0.0  #: seconds that each worker computes at a meeting to compress; no profile tells them

    def __post_init__(self) -> None:
        require_number(self.compression, f"compare: compression of {self.name!r}", unit="seconds")


def on_servers(workers: int) -> dict[str, Candidate]:
    """Strategies that need a parameter server; k is half of the workers."""
    k, backup = max(workers // 2, 1), min(workers - 1, 1)
    late = {"strategy": "bounded-staleness", "staleness_bound": 2}
    every = [
        Candidate("async-ps", ServerSGD(), {"strategy": "async-ps"}),
        Candidate(
            "backup-worker", ServerSGD("k-sync", workers - backup), {"strategy": "sync-ps", "backup_workers": backup}
        ),
        *(
            Candidate(name, ServerSGD(name, k), {"strategy": name, "k": k})
            for name in ("k-sync", "k-batch-sync", "k-async", "k-batch-async")
        ),
        Candidate("bounded-staleness", ServerSGD("bounded-staleness", staleness_bound=2), late),
        Candidate("ordered-gradient", OrderedGradient()),
    ]
    return {one.name: one for one in every}


#: Strategies whose workers meet, on servers or in an all-reduce.
TOGETHER: dict[str, Strategy] = {
    "sync": SynchronousSGD(),
    "local-sgd": LocalSGD(8),
    "adacomm": AdaComm(16),
    "overlap-local-sgd": OverlapLocalSGD(2),
    "top-k": DoubleCompression(TopK(0.01)),
    "block-sign": DoubleCompression(BlockSign(8)),
    "block-sign-local": DoubleCompression(BlockSign(8), local_steps=8),
    "adaquant": AdaQuantFL(8),
}

#: Strategies that need links between workers.
BETWEEN_WORKERS: dict[str, Strategy] = {"squarm-ring": SquarmSGD("ring", BlockSign(8), mixing=0.3)}

NAMES = (*on_servers(2), *TOGETHER, *BETWEEN_WORKERS)


def candidates(
    asked: Sequence[str | Candidate] | None, workers: int, *, servers: bool, simulated: bool = True
) -> list[Candidate]:
    """Those asked for, or all that the profiled machines can run.

    Unless the profile can be ``simulated`` these are without strategies that only the simulation predicts.
    """
    known = {name: Candidate(name, strategy) for name, strategy in TOGETHER.items()}
    known |= on_servers(workers) if servers else {name: Candidate(name, s) for name, s in BETWEEN_WORKERS.items()}
    if asked is None:
        asks = [(one, one.asks.get("strategy"), one.asks.get("backup_workers")) for one in known.values()]
        return [one for one, *asked in asks if simulated or in_closed_network(*asked)]
    chosen = []
    for one in [asked] if isinstance(asked, str) else asked:
        if isinstance(one, str) and require_choice(one, "compare: strategy", NAMES) not in known:
            needs = "of data-parallel rounds" if one in BETWEEN_WORKERS else "with a parameter server"
            raise ModelError(f"compare: strategy {one!r} needs a profile {needs}; leave it out")
        if isinstance(one, Candidate) and one.asks and not servers:
            raise ModelError(f"compare: strategy {one.name!r} needs a profile with a parameter server; leave it out")
        chosen.append(known[one] if isinstance(one, str) else one)
    names = [one.name for one in chosen]
    if not chosen or len(set(names)) < len(names):
        raise ModelError(f"compare: strategies must be different and at least one, got {names}")
    return chosen
