"""A request to solve, lowered: the numbers of a network at a population, and the way back to a solution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import require_count
from ..errors import ModelError
from ..network import LARGEST_POPULATION, Network, Solution
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


def require_populations(network: Network, population: object) -> int | tuple[int, ...]:
    """The population asked for: an int without classes, else one per class; a `ModelError` when it makes no sense."""
    if not network.classes:
        if isinstance(population, Sequence | Mapping) and not isinstance(population, str):
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
        counts = [_class_count(population[c], c) for c in names]
    elif isinstance(population, np.ndarray | Sequence) and not isinstance(population, str | bytes):
        if len(population) != len(names):
            raise ModelError(f"population must be {len(names)} numbers, one per class, got {population!r}")
        counts = [_class_count(n, c) for c, n in zip(names, population, strict=True)]
    elif len(names) == 1:
        counts = [_class_count(population, names[0])]
    else:
        raise ModelError(f"population must be {len(names)} numbers, one per class, got {population!r}")
    require_count(sum(counts), "population of all classes together", most=LARGEST_POPULATION)
    return tuple(counts)


def _class_count(population: Any, name: str) -> int:
    return require_count(population, f"population of class {name!r}", least=0, most=LARGEST_POPULATION)


def refuse_without_product_form(low: Lowered, solver: str) -> None:
    """Raise the error of an exact solver that is asked for what it cannot do."""
    if why := low.why_not_product_form():
        raise ModelError(
            f"{solver}: {why}, so there is no product form; use ApproximateMVA, MarkovChain (if small) or Simulation"
        )
