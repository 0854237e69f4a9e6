"""A request to solve: the numbers of a network at a population, and the way back to a solution."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import ModelError
from ..network import Network, Solution
from ..network.lowered import Lowered, lower

#: Memory that a single request may take, in bytes, unless a solver says otherwise.
MEMORY = 4 * 2**30


@dataclass(frozen=True, slots=True, eq=False)
class Chains(Lowered):
    """A lowered network at a population.

    Attributes
    ----------
    N : ndarray of int, shape (C,)
        Populations of chains.
    populations : tuple of int
        Populations of classes; empty without classes.
    """

    N: np.ndarray
    populations: tuple[int, ...]

    @property
    def present(self) -> list[bool]:
        """Which classes have customers: all of a chain that has."""
        if not self.network.classes:
            return [True]
        there = {c for chain, n in zip(self.network.chains, self.N, strict=True) if n > 0 for c in chain}
        return [c in there for c in range(max(1, len(self.network.classes)))]

    def solution(self, X: np.ndarray, Q: np.ndarray, *, busy: np.ndarray | None = None, **about: Any) -> Solution:
        """A solution from chain throughputs (C,) and queue lengths (K, C) at the full population."""
        network = self.network
        total = float(X.sum())
        R = (Q.sum(axis=1) / total)[None, :]
        at = None if busy is None else busy[None, :]
        if not network.classes:
            return Solution(network, int(self.N[0]), np.array([total]), R, busy=at, **about)
        classes, lengths = np.zeros(len(network.classes)), np.zeros(self.share.shape)
        for c, chain in enumerate(network.chains):
            members = list(chain)
            classes[members] = X[c]  # customers that switch classes are in all of them in each cycle
            lengths[:, members] = Q[:, [c]] * self.share[:, members]
        with np.errstate(invalid="ignore", divide="ignore"):
            per_class = np.where(classes > 0, lengths / classes, 0.0)
        return Solution(
            network,
            int(self.N.sum()),
            np.array([total]),
            R,
            class_populations=self.populations,
            class_throughputs=classes,
            class_residence_times=per_class,
            busy=at,
            **about,
        )


def chains_of(network: Network, population: int | tuple[int, ...]) -> Chains:
    """A network at a population: an int without classes, else one per class."""
    low = lower(network)
    counts = () if isinstance(population, int) else population
    N = [sum(counts[c] for c in chain) for chain in network.chains] if counts else [population]
    return Chains(low.network, low.D, low.Z, low.share, low.delay, np.array(N), counts)


def refuse_without_product_form(low: Lowered, solver: str) -> None:
    """Raise the error of an exact solver that is asked for what it cannot do."""
    if why := low.why_not_product_form():
        raise ModelError(
            f"{solver}: {why}, so there is no product form; use ApproximateMVA, MarkovChain (if small) or Simulation"
        )


def solution_of(
    network: Network,
    population: int | tuple[int, ...],
    X: np.ndarray,
    Q: np.ndarray,
    *,
    busy: np.ndarray,
    **about: Any,
) -> Solution:
    """
    The solution with class throughputs X (C,), queue lengths Q (K, C) and the probability that somebody is there (K,).

    Classes that customers switch between share the throughput of their chain; ``about`` is the rest of a `Solution`.
    """
    members = [list(chain) for chain in network.chains]
    dependent = np.array([s.rates is not None for s in network.stations])
    solution = chains_of(network, population).solution(
        np.array([X[m[0]] for m in members]),
        np.array([Q[:, m].sum(axis=1) for m in members]).T,
        busy=np.where(dependent, busy, np.nan) if dependent.any() else None,
        **about,
    )
    if not network.classes:
        return solution
    with np.errstate(invalid="ignore", divide="ignore"):
        return replace(solution, class_residence_times=np.where(X > 0, Q / X, 0.0))


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """Chains with their delays folded into think times, idle ones left out and identical ones made one.

    Attributes
    ----------
    D : ndarray, shape (C, K)
        Demands at the stations that queue.
    stations : list of int
        Which stations those are.
    speeds : list
        Of those stations, as `lowered.speeds_of` gives them.
    member : list of list of int
        The chains that each merged one stands for.
    """

    D: np.ndarray
    Z: np.ndarray
    N: np.ndarray
    stations: list[int]
    speeds: list[np.ndarray | None]
    member: list[list[int]]


def merge(chains: Chains) -> Merged:
    """Fold delays, leave out chains without customers, and make identical chains one (which changes nothing)."""
    queues, Z = chains.queues.tolist(), chains.think
    alike: dict[tuple[float, ...], list[int]] = {}
    for c in np.flatnonzero(chains.N > 0):
        alike.setdefault((float(Z[c]), *chains.D[queues, c].tolist()), []).append(int(c))
    member = sorted(alike.values(), key=lambda group: -int(chains.N[group].sum()))  # the largest first
    first = [group[0] for group in member]
    N = np.array([chains.N[group].sum() for group in member], dtype=np.int64)
    speeds = chains.speeds(int(N.sum()))
    D = np.ascontiguousarray(chains.D[np.ix_(queues, first)].T)
    return Merged(D, Z[first], N, queues, [speeds[k] for k in queues], member)


def expand(
    chains: Chains, merged: Merged, X: np.ndarray, Q: np.ndarray, empty: np.ndarray | None, name: str, reason: str
) -> Solution:
    """Measures of merged chains (X (C,), Q (C, K)) given back to each chain and each station.

    ``empty`` (K,) has the probabilities that nobody is at a station, NaN where its speed is constant.
    """
    K, C = chains.D.shape
    all_X, all_Q, busy = np.zeros(C), np.zeros((K, C)), np.full(K, np.nan)
    for m, group in enumerate(merged.member):
        for c in group:
            part = chains.N[c] / merged.N[m]
            all_X[c] = X[m] * part
            all_Q[merged.stations, c] = Q[m] * part
    all_Q[chains.delay] = chains.D[chains.delay] * all_X
    if empty is not None:
        dependent = [at for at, k in enumerate(merged.stations) if chains.network.stations[k].rates is not None]
        busy[[merged.stations[at] for at in dependent]] = 1.0 - empty[dependent]
    seen = busy if np.isfinite(busy).any() else None
    return chains.solution(all_X, all_Q, busy=seen, solver=name, exact=True, reason=reason)
