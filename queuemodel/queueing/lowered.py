"""What a network means to those who solve, bound or write it: chains, demands, delays as think time, speeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .network import Network
from .stations import Station


@dataclass(frozen=True, slots=True, eq=False)
class Lowered:
    """A network's numbers at a population, its C classes merged into the chains that customers stay in."""

    network: Network
    N: np.ndarray  # (chains,): populations; one chain without classes
    populations: tuple[int, ...]  # of classes; empty without
    D: np.ndarray  # (K, chains): service demands, seconds per cycle
    Z: np.ndarray  # (chains,): seconds per cycle outside all stations
    delay: np.ndarray  # (K,): where nobody queues

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
        """Indexes of the stations where somebody is served and others may wait."""
        return np.flatnonzero(~self.delay & (self.D > 0).any(axis=1))

    @property
    def think(self) -> np.ndarray:
        """Seconds per cycle of chains where nobody queues: outside all stations and at delays, shape (C,)."""
        return self.Z + self.D[self.delay].sum(axis=0)

    @property
    def load(self) -> np.ndarray:
        """Seconds per cycle that each station needs of all that it has, shape (K, C): none at delays."""
        return self._over(np.max) / np.array([s.servers for s in self.network.stations])[:, None]

    @property
    def least(self) -> np.ndarray:
        """Seconds per cycle at each station, (K, C), if nobody waited and each gave a customer the most that it can."""
        return self._over(lambda mu: (mu / np.arange(1, len(mu) + 1)).max())

    @property
    def most(self) -> np.ndarray:
        """Seconds per cycle at each queue, (K, C), if it worked at its slowest."""
        return self._over(np.min) * ~self.delay[:, None]

    def _over(self, speed: Callable[[np.ndarray], float]) -> np.ndarray:
        """Demands over a figure of the rates where a station has some."""
        total = int(self.N.sum())
        return self.D / np.array([[1.0 if s.rates is None else speed(s.speeds(total))] for s in self.network.stations])

    def why_not_product_form(self) -> str | None:
        """Why the network has no product form (see `Station.why_not_product_form`), or None when it has."""
        network = self.network
        if all(s.discipline == "ps" for s in network.stations):
            return None
        present = [c for chain, n in zip(network.chains, self.N.tolist(), strict=True) if n > 0 for c in chain]
        for station, visits in zip(network.stations, network.class_visit_ratios.tolist(), strict=True):
            if why := station.why_not_product_form([network.labels[c] for c in present if visits[c] > 0]):
                return why
        return None

    def why_not_plain(self) -> str | None:
        """Which station keeps this from being a network of single servers of constant speed and delays; or None."""
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
    if network.routing is None:  # nobody switches: each class is the whole of its chain
        return Lowered(network, N, counts, D, Z, delay)
    at_reference, chain_N, chain_D, chain_Z = network.class_visit_ratios[network.reference_index], [], [], []
    for members in map(list, network.chains):
        chain_N.append(N[members].sum() if counts else population)
        chain_D.append(D[:, members].sum(axis=1))
        chain_Z.append(float(at_reference[members] @ Z[members]) if len(members) > 1 else float(Z[members[0]]))
    return Lowered(network, np.array(chain_N), counts, np.array(chain_D).T, np.array(chain_Z), delay)


def speeds_of(station: Station, population: int) -> np.ndarray | None:
    """Speeds with 1, 2, ... customers up to the last change; None at a queue of constant speed 1 or a delay."""
    if station.rates is None and (station.servers == 1 or station.is_delay):
        return None
    mu = station.speeds(population)
    changes = np.flatnonzero(mu != mu[-1])
    mu = mu[: changes[-1] + 2] if len(changes) else mu[:1]
    return None if len(mu) == 1 and mu[0] == 1.0 else mu
