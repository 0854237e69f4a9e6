"""A network's numbers for those who solve, bound or write it: chains, demands, delays, speeds, routes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.checks import require_count
from ..base.errors import ModelError
from .network import Network
from .stations import LARGEST_POPULATION, Station


@dataclass(frozen=True, slots=True, eq=False)
class Lowered:
    """A network's numbers at a population, its C classes merged into the chains that customers stay in."""

    network: Network
    N: np.ndarray  # (chains,): populations; one chain without classes
    populations: tuple[int, ...]  # of classes; empty without
    D: np.ndarray  # (K, chains): service demands, seconds per cycle
    Z: np.ndarray  # (chains,): seconds per cycle outside all stations
    delay: np.ndarray  # (K,): without queueing

    @property
    def share(self) -> np.ndarray:
        """Each class's part in its chain's demand at a station, in its visits where they take no time, shape (K, C)."""
        V, D = self.network.class_visit_ratios, self.network.class_service_demand
        share = np.zeros(D.shape)
        for members in map(list, self.network.chains):
            d, v = D[:, members], V[:, members]
            parts = np.where(d.any(axis=1, keepdims=True), d, v)
            share[:, members] = parts / np.maximum(parts.sum(axis=1, keepdims=True), 1e-300)
        return share

    @property
    def queues(self) -> np.ndarray:
        """Indexes of the stations where customers may wait."""
        return np.flatnonzero(~self.delay & (self.D[:, self.N > 0] > 0).any(axis=1))

    @property
    def think(self) -> np.ndarray:
        """Seconds per cycle of chains outside all stations and at delays, shape (C,)."""
        return self.Z + self.D[self.delay].sum(axis=0)

    @property
    def load(self) -> np.ndarray:
        """Seconds per cycle that each station needs at its fastest, shape (K, C): none at delays."""
        return self._over(np.max) / np.array([s.servers for s in self.network.stations])[:, None]

    @property
    def least(self) -> np.ndarray:
        """Seconds per cycle at each station, (K, C), without waiting, if each customer had the best rate."""
        return self._over(lambda mu: (mu / np.arange(1, len(mu) + 1)).max())

    @property
    def most(self) -> np.ndarray:
        """Seconds per cycle at each queue, (K, C), at its slowest."""
        return self._over(np.min) * ~self.delay[:, None]

    def _over(self, speed: Callable[[np.ndarray], float]) -> np.ndarray:
        total = int(self.N.sum())
        return self.D / np.array([[1.0 if s.rates is None else speed(s.speeds(total))] for s in self.network.stations])

    def why_not_product_form(self) -> str | None:
        network = self.network
        if all(s.discipline == "ps" for s in network.stations):
            return None
        present = [c for chain, n in zip(network.chains, self.N.tolist(), strict=True) if n > 0 for c in chain]
        for station, visits in zip(network.stations, network.class_visit_ratios.tolist(), strict=True):
            if why := station.why_not_product_form([network.labels[c] for c in present if visits[c] > 0]):
                return why
        return None

    def why_not_plain(self) -> str | None:
        """Which station is no single server of constant speed and no delay; or None."""
        for s in self.network.stations:
            if s.rates is not None:
                return f"station {s.name!r} has load-dependent rates"
            if s.servers != 1 and not s.is_delay:
                return f"station {s.name!r} has {s.servers:g} servers"
        return None


def lower(network: Network, population: int | tuple[int, ...] = 1) -> Lowered:
    """The numbers of a network at a population: one per class, or an int without classes (or for all of them)."""
    counts = population if isinstance(population, tuple) else ()
    D, Z, delay = network.class_service_demand, network.think_times, network.is_delay
    N = np.array(counts or [population] * len(network.chains))
    if network.routing is not None:  # without, none switches: each class is the whole of its chain
        at_reference, chains = network.class_visit_ratios[network.reference_index], [list(c) for c in network.chains]
        if counts:
            N = np.array([sum(counts[c] for c in chain) for chain in chains])
        D = np.array([D[:, chain].sum(axis=1) for chain in chains]).T
        Z = np.array([at_reference[c] @ Z[c] if len(c) > 1 else Z[c[0]] for c in chains])
    for station, demands in zip(network.stations, D, strict=True):
        if station.rates is not None and (crowd := int(N[demands > 0].sum())) > len(station.rates):
            raise ModelError(
                f"station {station.name!r}: rates has {len(station.rates)} values, but {crowd} customers can be "
                "here; give one rate for each"
            )
    return Lowered(network, N, counts, D, Z, delay)


def speeds_of(station: Station, population: int) -> np.ndarray | None:
    """Speeds with 1, 2, ... customers up to the last change; None at a queue of constant speed 1 or a delay."""
    if station.rates is None and (station.servers == 1 or station.is_delay):
        return None
    mu = station.speeds(population)
    changes = np.flatnonzero(mu != mu[-1])
    mu = mu[: changes[-1] + 2] if len(changes) else mu[:1]
    return None if len(mu) == 1 and mu[0] == 1.0 else mu


def require_populations(network: Network, population: Any) -> int | tuple[int, ...]:
    """The population: an int without classes, else one per class; a `ModelError` when it makes no sense."""
    if not network.classes:
        if not isinstance(population, int | str) and isinstance(population, Sequence | Mapping):
            raise ModelError(f"population must be a whole number for a network without classes, got {population!r}")
        if population is None:
            raise ModelError("population is needed for a network without classes: solve(network, population=...)")
        return require_count(population, "population", most=LARGEST_POPULATION)
    names = network.class_names
    if population is None:
        population = [c.population for c in network.classes]
    elif isinstance(population, Mapping):
        if unknown := [c for c in population if c not in names]:
            raise ModelError(f"population names class {unknown[0]!r}, but the classes are: {', '.join(names)}")
        if missing := [c for c in names if c not in population]:
            raise ModelError(f"population must name every class, {missing[0]!r} is missing")
        population = [population[c] for c in names]
    several = isinstance(population, np.ndarray | Sequence) and not isinstance(population, str | bytes)
    numbers, most = list(population) if several else [population], LARGEST_POPULATION
    if len(numbers) != len(names):
        raise ModelError(f"population must be {len(names)} numbers, one per class, got {population!r}")
    counts = [
        require_count(n, f"population of class {c!r}", least=0, most=most) for c, n in zip(names, numbers, strict=True)
    ]
    require_count(sum(counts), "population of all classes together", most=most)
    return tuple(counts)


def lowered_product_form(network: Network, population: Any, solver: str) -> Lowered:
    """The numbers of a network, or a `ModelError` of this exact solver where there is no product form."""
    low = lower(network, require_populations(network, population))
    if why := low.why_not_product_form():
        raise ModelError(
            f"{solver}: {why}, so there is no product form; use ApproximateMVA, MarkovChain (if small) or Simulation"
        )
    return low


@dataclass(frozen=True, slots=True, eq=False)
class Routes:
    """Moves between (class, place), place K for thinking; rows and columns of P are 0 where a class spends no time."""

    network: Network
    P: np.ndarray  # (C, K+1, C, K+1): probabilities
    visits: np.ndarray  # (K+1, C): per cycle, 1 of which (per chain) is to think
    service_times: np.ndarray  # (K+1, C)

    @property
    def stay(self) -> np.ndarray:
        """Where each class spends time, shape (K+1, C)."""
        return np.asarray(self.P.sum(axis=(2, 3)).T > 0)

    def cycles(self, departures: np.ndarray) -> np.ndarray:
        """Cycles of each class's chain from departures (..., C)."""
        visits = (self.visits * self.stay).sum(axis=0)
        cycles = np.zeros(departures.shape)
        for chain in map(list, self.network.chains):
            cycles[..., chain] = departures[..., chain].sum(axis=-1, keepdims=True) / visits[chain].sum()
        return cycles


def routes_of(network: Network) -> Routes:
    """The network's routing, or one that its visit ratios imply: with product form all of the same ratios are alike."""
    V, at = network.class_visit_ratios, network.reference_index
    K, C = V.shape
    P = np.zeros((C, K + 1, C, K + 1))
    times = np.vstack([network.class_service_times, network.think_times])
    visits = np.vstack([V, np.ones(C) if network.routing is None else V[at]])
    if network.routing is None:
        for c in range(C):
            P[c, :, c, :] = _implied(V[:, c])
    else:
        P[:, :K, :, :K] = network.transitions
        for c in range(C):  # customers think on their way to the reference station
            P[:, :, c, K] += P[:, :, c, at]
            P[:, :, c, at] = 0.0
            P[c, K, c, at] = 1.0
    flat = P.reshape(C * (K + 1), C * (K + 1))
    for s in np.flatnonzero((times.T == 0) | (visits.T == 0)):  # no stay: who would come goes on at once
        stay = flat[s, s]
        if stay < 1:
            flat += np.outer(flat[:, s], flat[s] / (1 - stay))
        flat[:, s] = flat[s] = 0.0
    return Routes(network, P, visits, times)


def _implied(V: np.ndarray) -> np.ndarray:
    """Probabilities from visit ratios (K,): once each goes in order, then to thinking; else each next one is random."""
    K = len(V)
    P = np.zeros((K + 1, K + 1))
    stops = [*np.flatnonzero(V > 0).tolist(), K]
    if all(V[k] == 1.0 for k in stops[:-1]):
        P[stops, [*stops[1:], stops[0]]] = 1.0
    else:
        P[np.ix_(stops, stops)] = np.append(V, 1.0)[stops] / (V.sum() + 1.0)
    return P
