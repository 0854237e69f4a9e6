"""From a network to the numbers that solvers work on: chains of classes, demands, rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ModelError
from ..network import Network, Place, Solution
from ..network.jobclass import require_count

#: Memory that a single request may take, in bytes, unless a solver says otherwise.
MEMORY = 4 * 2**30


@dataclass(frozen=True, slots=True, eq=False)
class Chains:
    """A network's classes merged into the chains that customers stay in.

    Attributes
    ----------
    D : ndarray, shape (K, C)
        Service demands of chains.
    Z : ndarray, shape (C,)
        Think times of chains.
    N : ndarray of int, shape (C,)
        Populations of chains.
    share : ndarray, shape (K, number of classes)
        Each class's part in its chain's demand at a station.
    """

    network: Network
    D: np.ndarray
    Z: np.ndarray
    N: np.ndarray
    share: np.ndarray
    populations: tuple[int, ...]

    def solution(self, X: np.ndarray, Q: np.ndarray, *, busy: np.ndarray | None = None, **about: Any) -> Solution:
        """A solution from chain throughputs (C,) and queue lengths (K, C) at the full population."""
        network = self.network
        total = float(X.sum())
        R = Q.sum(axis=1) / total
        classes, lengths = np.zeros(len(network.classes)), np.zeros(self.share.shape)
        for c, chain in enumerate(network.chains):
            members = list(chain)
            classes[members] = X[c]  # customers that switch classes are in all of them in each cycle
            lengths[:, members] = Q[:, [c]] * self.share[:, members]
        with np.errstate(invalid="ignore", divide="ignore"):
            per_class = np.where(classes > 0, lengths / classes, 0.0)
        return Solution(
            network,
            int(sum(self.populations)),
            np.array([total]),
            R[None, :],
            class_populations=self.populations,
            class_throughputs=classes,
            class_residence_times=per_class,
            busy=None if busy is None else busy[None, :],
            **about,
        )


def chains_of(network: Network, population: tuple[int, ...]) -> Chains:
    """The chains of a network with classes, at the classes' populations."""
    D, Z, V = network.service_demand, network.think_times, network.visit_ratios
    share = np.zeros(D.shape)
    chain_D, chain_Z, chain_N = [], [], []
    for chain in network.chains:
        members = list(chain)
        d = D[:, members].sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            share[:, members] = np.where(d[:, None] > 0, D[:, members] / d[:, None], 0.0)
        chain_D.append(d)
        weight = V[network._reference_index, members] if len(members) > 1 else np.ones(1)
        chain_Z.append(float(weight @ Z[members]))
        chain_N.append(sum(population[c] for c in members))
    return Chains(network, np.array(chain_D).T, np.array(chain_Z), np.array(chain_N), share, population)


def require_populations(network: Network, population: object) -> int | tuple[int, ...]:
    """The population asked for: an int without classes, else one per class; a `ModelError` when it makes no sense."""
    if not network.classes:
        if isinstance(population, Mapping) or (isinstance(population, Sequence) and not isinstance(population, str)):
            raise ModelError(f"population must be a whole number for a network without classes, got {population!r}")
        if population is None:
            raise ModelError("population is needed for a network without classes: solve(network, population=...)")
        return require_count(population, "population")
    names = network.class_names
    if population is None:
        counts = [c.population for c in network.classes]
    elif isinstance(population, Mapping):
        if unknown := [c for c in population if c not in names]:
            raise ModelError(f"population names class {unknown[0]!r}, but the classes are: {', '.join(names)}")
        if missing := [c for c in names if c not in population]:
            raise ModelError(f"population must name every class, {missing[0]!r} is missing")
        counts = [require_count(population[c], f"population of class {c!r}", least=0) for c in names]
    elif isinstance(population, np.ndarray | Sequence) and not isinstance(population, str | bytes):
        if len(population) != len(names):
            raise ModelError(f"population must be {len(names)} numbers, one per class, got {population!r}")
        counts = [
            require_count(n, f"population of class {c!r}", least=0) for c, n in zip(names, population, strict=True)
        ]
    elif len(names) == 1:
        counts = [require_count(population, f"population of class {names[0]!r}")]
    else:
        raise ModelError(f"population must be {len(names)} numbers, one per class, got {population!r}")
    require_count(sum(counts), "population of all classes together")
    return tuple(counts)


def rates_of(station: Place, population: int) -> np.ndarray | None:
    """Relative rates with 1, 2, ... customers up to the last change; None at a queue of constant rate 1 or a delay."""
    if station.rates is None:
        if station.servers == 1 or station.is_delay:
            return None
        return np.arange(1.0, min(station.servers, population) + 1)
    mu = np.array([station.rate(n) for n in range(1, population + 1)])
    changes = np.flatnonzero(mu != mu[-1])
    return mu[: changes[-1] + 2] if len(changes) else mu[:1]


def why_not_product_form(network: Network) -> str | None:
    """Why a network has no product form, or None when it has."""
    labels = network.class_names or [None]  # type: ignore[list-item]
    V = np.reshape(network.visit_ratios, (len(network.stations), -1))
    whys = (
        station.why_not_product_form([label for label, v in zip(labels, visits, strict=True) if v > 0])
        for station, visits in zip(network.stations, V.tolist(), strict=True)
    )
    return next((why for why in whys if why), None)


def refuse_without_product_form(network: Network, solver: str) -> None:
    """Raise the error of an exact solver that is asked for what it cannot do."""
    if why := why_not_product_form(network):
        raise ModelError(
            f"{solver}: {why}, so there is no product form; use ApproximateMVA, MarkovChain (if small) or Simulation"
        )
