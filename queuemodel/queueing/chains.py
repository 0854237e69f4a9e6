"""From the numbers of a network to those of its solution, and what is alike in it made one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.checks import require_count
from ..base.errors import ModelError
from .lowered import Lowered, lower, speeds_of
from .network import Network
from .solution import Solution
from .stations import LARGEST_POPULATION

#: Memory that a single request may take, in bytes.
MEMORY = 4 * 2**30


def require_populations(network: Network, population: Any) -> int | tuple[int, ...]:
    """The population asked for: an int without classes, else one per class; a `ModelError` when it makes no sense."""
    if not network.classes:
        if not isinstance(population, int | str) and isinstance(population, Sequence | Mapping):
            raise ModelError(f"population must be a whole number for a network without classes, got {population!r}")
        if population is None:
            raise ModelError("population is needed for a network without classes: solve(network, population=...)")
        return require_count(population, "population", most=LARGEST_POPULATION)
    names = network.class_names
    if population is None:
        counts = [c.population for c in network.classes]
    elif isinstance(population, Mapping):
        if unknown := [c for c in population if c not in names]:
            raise ModelError(f"population names class {unknown[0]!r}, but the classes are: {', '.join(names)}")
        if missing := [c for c in names if c not in population]:
            raise ModelError(f"population must name every class, {missing[0]!r} is missing")
        counts = [population[c] for c in names]
    else:
        several = isinstance(population, np.ndarray | Sequence) and not isinstance(population, str | bytes)
        counts = list(population) if several else [population]
        if len(counts) != len(names):
            raise ModelError(f"population must be {len(names)} numbers, one per class, got {population!r}")
    most = LARGEST_POPULATION
    counts = [
        require_count(n, f"population of class {c!r}", least=0, most=most) for c, n in zip(names, counts, strict=True)
    ]
    require_count(sum(counts), "population of all classes together", most=most)
    return tuple(counts)


def lowered_product_form(network: Network, population: Any, solver: str) -> Lowered:
    """The numbers of a network, or the error of an exact solver that is asked for what it cannot do."""
    low = lower(network, require_populations(network, population))
    if why := low.why_not_product_form():
        raise ModelError(
            f"{solver}: {why}, so there is no product form; use ApproximateMVA, MarkovChain (if small) or Simulation"
        )
    return low


def solution_of(
    low: Lowered, X: np.ndarray, Q: np.ndarray, *, busy: np.ndarray | None = None, **about: Any
) -> Solution:
    """The solution with throughputs X (C,) and queue lengths Q (K, C) of classes; ``about`` is the rest of it."""
    network = low.network
    total = float(X[[chain[0] for chain in network.chains]].sum())
    if network.classes:
        with np.errstate(invalid="ignore", divide="ignore"):
            about["class_residence_times"] = np.where(X > 0, Q / X, 0.0)
        about |= {"class_populations": low.populations, "class_throughputs": X}
    R = (Q.sum(axis=1) / total)[None, :]
    return Solution(network, int(low.N.sum()), np.array([total]), R, busy=None if busy is None else busy[None], **about)


def by_class(low: Lowered, X: np.ndarray, Q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """X and Q (K, C) of classes from those of chains: who switches classes is in all of them in each cycle."""
    chain_of = np.empty(low.share.shape[1], dtype=int)
    for c, chain in enumerate(low.network.chains):
        chain_of[list(chain)] = c
    return X[chain_of], Q[:, chain_of] * low.share


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """Chains with their delays folded into think times, idle ones left out and identical ones made one."""

    D: np.ndarray  # (C, K): demands at the stations that queue
    Z: np.ndarray
    N: np.ndarray
    stations: list[int]  # which those are
    speeds: list[np.ndarray | None]  # theirs, by `lowered.speeds_of`
    member: list[list[int]]  # the chains that each merged one stands for


def merge(low: Lowered) -> Merged:
    """Fold delays, leave out chains without customers, and make identical chains one (which changes nothing)."""
    queues, Z = low.queues.tolist(), low.think
    alike: dict[tuple[float, ...], list[int]] = {}
    for c in np.flatnonzero(low.N > 0).tolist():
        alike.setdefault((float(Z[c]), *low.D[queues, c].tolist()), []).append(c)
    member = sorted(alike.values(), key=lambda group: -int(low.N[group].sum()))  # the largest first
    first = [group[0] for group in member]
    N = np.array([low.N[group].sum() for group in member], dtype=np.int64)
    speeds = [speeds_of(low.network.stations[k], int(N.sum())) for k in queues]
    return Merged(np.ascontiguousarray(low.D[np.ix_(queues, first)].T), Z[first], N, queues, speeds, member)


def expand(
    low: Lowered, merged: Merged, X: np.ndarray, Q: np.ndarray, busy: np.ndarray | None, **about: Any
) -> Solution:
    """Measures of merged chains (X (C,), Q (C, K), busy (K,)) given back to each class and each station."""
    K, C = low.D.shape
    all_X, all_Q, all_busy = np.zeros(C), np.zeros((K, C)), None
    for m, group in enumerate(merged.member):
        part = low.N[group] / merged.N[m]
        all_X[group] = X[m] * part
        all_Q[np.ix_(merged.stations, group)] = Q[m][:, None] * part
    all_Q[low.delay] = low.D[low.delay] * all_X
    if busy is not None:
        all_busy = np.full(K, np.nan)
        all_busy[merged.stations] = busy
    return solution_of(low, *by_class(low, all_X, all_Q), busy=all_busy, exact=True, **about)
