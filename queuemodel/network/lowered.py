"""What a network means to those who solve, bound or write it: chains, demands, delays as think time, speeds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .network import Network
from .stations import Station


@dataclass(frozen=True, slots=True, eq=False)
class Lowered:
    """A network's numbers, its classes merged into the chains that customers stay in (one, without classes).

    Attributes
    ----------
    D : ndarray, shape (K, C)
        Service demands of chains in seconds per cycle.
    Z : ndarray, shape (C,)
        Seconds per cycle of chains outside all stations.
    share : ndarray, shape (K, number of classes)
        Each class's part in its chain's demand at a station; in its visits where they take no time.
    delay : ndarray of bool, shape (K,)
        Where nobody queues.
    """

    network: Network
    D: np.ndarray
    Z: np.ndarray
    share: np.ndarray
    delay: np.ndarray

    @property
    def queues(self) -> np.ndarray:
        """Indexes of the stations where somebody is served and others may wait."""
        return np.flatnonzero(~self.delay & (self.D > 0).any(axis=1))

    @property
    def think(self) -> np.ndarray:
        """Seconds per cycle of chains where nobody queues: outside all stations and at delays, shape (C,)."""
        return self.Z + self.D[self.delay].sum(axis=0)

    def speeds(self, population: int) -> list[np.ndarray | None]:
        """`speeds_of` each station."""
        return [speeds_of(s, population) for s in self.network.stations]

    def fastest(self, population: int) -> np.ndarray:
        """The highest speed of each station with up to so many customers, infinite at delays, shape (K,)."""
        return np.array([_speeds(s, population).max() * s.servers for s in self.network.stations])

    def load(self, population: int) -> np.ndarray:
        """Seconds per cycle that each station needs of all that it has, shape (K, C): none at delays."""
        return self.D / self.fastest(population)[:, None]

    def least(self, population: int) -> np.ndarray:
        """Seconds per cycle at each station, (K, C), if nobody waited and each gave a customer the most that it can."""
        best = []
        for station in self.network.stations:
            mu = _speeds(station, population)
            best.append((mu / np.arange(1, len(mu) + 1)).max())
        return self.D / np.array(best)[:, None]

    def most(self, population: int) -> np.ndarray:
        """Seconds per cycle at each queue, (K, C), if it worked at its slowest."""
        longer = []
        for station in self.network.stations:
            longer.append(1.0 / _speeds(station, population).min())
        return self.D * np.array(longer)[:, None] * ~self.delay[:, None]

    @property
    def present(self) -> list[bool]:
        """Which classes can have customers."""
        return [True] * max(1, len(self.network.classes))

    def why_not_product_form(self) -> str | None:
        """Why the network has no product form (see `Station.why_not_product_form`), or None when it has."""
        network, labels, present = self.network, self.network.labels, self.present
        for station, visits in zip(network.stations, network.class_visit_ratios.tolist(), strict=True):
            visiting = [label for label, v, here in zip(labels, visits, present, strict=True) if here and v > 0]
            if visiting and (why := station.why_not_product_form(visiting)):
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


def lower(network: Network) -> Lowered:
    """The numbers of a network."""
    V, D, Z = network.class_visit_ratios, network.class_service_demand, network.think_times
    if network.routing is None:  # nobody switches: each class is the whole of its chain
        return Lowered(network, D, Z, (V > 0).astype(float), network.is_delay)
    share, chain_D, chain_Z = np.zeros(D.shape), [], []
    for chain in network.chains:
        members = list(chain)
        d = D[:, members].sum(axis=1)
        visits = V / np.maximum(V[:, members].sum(axis=1, keepdims=True), 1e-300)
        with np.errstate(invalid="ignore", divide="ignore"):
            share[:, members] = np.where(d[:, None] > 0, D[:, members] / d[:, None], visits[:, members])
        chain_D.append(d)
        weight = V[network.reference_index, members] if len(members) > 1 else np.ones(1)
        chain_Z.append(float(weight @ Z[members]))
    return Lowered(network, np.array(chain_D).T, np.array(chain_Z), share, network.is_delay)


def speeds_of(station: Station, population: int) -> np.ndarray | None:
    """Speeds with 1, 2, ... customers up to the last change; None at a queue of constant speed 1 or a delay."""
    if station.rates is None:
        if station.servers == 1 or station.is_delay:
            return None
        return np.arange(1.0, min(station.servers, population) + 1)
    mu = np.array([station.rate(n) for n in range(1, population + 1)])
    changes = np.flatnonzero(mu != mu[-1])
    mu = mu[: changes[-1] + 2] if len(changes) else mu[:1]
    return None if len(mu) == 1 and mu[0] == 1.0 else mu


def _speeds(station: Station, population: int) -> np.ndarray:
    mu = None if station.rates is None else speeds_of(station, population)
    return np.ones(1) if mu is None else mu
