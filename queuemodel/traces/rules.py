"""The cluster's rules, checked: how workers synchronize, which are slow, and how connections share a link."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from ..checks import require_choice, require_count, require_number, require_share
from ..errors import ModelError
from ..training.scenario import MOST_RESULTS
from .contention import Contention
from .kernel.state import ASYNC, BATCHES, BOUNDED, FIRST_FEW, GROUPS, SYNC, Rules
from .policies import chunk_bytes

Synchronization = Literal["async", "sync", "bounded", "groups", "first", "batches"]
MODES = {
    "async": ASYNC, "sync": SYNC, "bounded": BOUNDED, "groups": GROUPS, "first": FIRST_FEW, "batches": BATCHES,
}  # fmt: skip
#: Those in which all begin together.
BARRIERS = ("sync", "first", "batches")
#: Those that wait for so many results.
ROUNDS_OF = ("groups", "first", "batches")
#: Weights that vary by more than this (standard deviation of the logarithm) leave the others nothing.
LARGEST_UNFAIRNESS = 5.0

#: Share of its window to which a connection comes back in slow start after idleness (Linux: `tcp_current_ssthresh`);
#: cubic's curve, which keeps more at a loss, then brings it back to all of it at once.
RESUMED = 0.75


#: Arguments of `cluster_rules` that `simulate` has, too.
RULES = (
    "synchronization", "backup_workers", "results", "staleness_bound", "slowdown", "straggler_probability",
    "straggler_slowdown",
)  # fmt: skip


def cluster_rules(
    network: Contention,
    *,
    workers: int,
    policy: str,
    synchronization: Synchronization = "async",
    backup_workers: int = 0,
    results: int = 0,
    staleness_bound: int = 0,
    slowdown: Sequence[float] | None = None,
    straggler_probability: float = 0.0,
    straggler_slowdown: float = 1.0,
) -> Rules:
    """Arguments of `simulate` as the compiled loop takes them, or a `ModelError`; each worker alone unless told."""
    require_choice(synchronization, "simulate: synchronization", MODES)
    require_count(backup_workers, "simulate: backup_workers", least=0, most=workers - 1)
    require_count(staleness_bound, "simulate: staleness_bound", least=0)
    if synchronization in ROUNDS_OF:
        require_count(results, "simulate: results", most=MOST_RESULTS if synchronization == "batches" else workers)
    for name, value, where in (
        ("backup_workers", backup_workers, ("sync",)),
        ("results", results, ROUNDS_OF),
        ("staleness_bound", staleness_bound, ("bounded",)),
    ):
        if value and synchronization not in where:
            which = " or ".join(map(repr, where))
            raise ModelError(f"simulate: {name} must be 0 unless synchronization is {which}, got {value!r}")
    weights = require_number(network.unfairness, "simulate: unfairness", largest=LARGEST_UNFAIRNESS)
    return Rules(
        slowdown=per_worker("slowdown", [1.0] * workers if slowdown is None else slowdown, workers),
        chunk=float(chunk_bytes(policy)),
        shuffle=policy == "random",
        mode=MODES[synchronization],
        awaited=int(results or workers - backup_workers),
        bound=int(staleness_bound),
        straggler_probability=require_share(straggler_probability, "simulate: straggler_probability"),
        straggler_slowdown=require_number(straggler_slowdown, "simulate: straggler_slowdown", positive=True),
        loaded_trip=require_number(network.loaded_trip, "simulate: loaded_trip", unit="seconds"),
        unfairness=0.0 if network.window_kept else weights,  # windows alone are as unequal as plain connections
        kept=require_share(network.window_kept, "simulate: window_kept"),
        resumed=RESUMED if network.window_kept <= 0.5 else 1.0,
    )


def in_between(
    workers: np.ndarray,
    /,
    *,
    synchronization: Synchronization = "async",
    backup_workers: int = 0,
    results: int = 0,
    staleness_bound: int = 0,
    **_others: Any,
) -> np.ndarray:
    """Where so many workers (n,) wait for each other, but not for everybody in every step; arguments of `simulate`."""
    match synchronization:
        case "sync":
            waiting = np.full(workers.shape, backup_workers > 0)
        case "bounded":
            waiting = np.full(workers.shape, staleness_bound > 0)
        case "groups":
            waiting = (results > 1) & (results < workers)
        case "first":
            waiting = results < workers
        case _:
            waiting = np.full(workers.shape, synchronization == "batches")
    return (workers > 1) & waiting


def per_worker(name: str, values: Sequence[float], workers: int, *, largest: float = 1e9) -> np.ndarray:
    """One number > 0 per worker, or a `ModelError`."""
    numbers = list(values)
    if len(numbers) != workers:
        raise ModelError(f"simulate: {name} must be {workers} numbers > 0, one per worker, got {values!r}")
    return np.array([require_number(v, f"simulate: {name}", positive=True, largest=largest) for v in numbers])
