"""Arrays of a network for solvers, bounds and files: chains, demands, delays, speeds, routes.

Open classes are chains without population. Product form reduces a mixed network to a closed one (Lavenberg and Sauer,
1983; Bruell, Balbo and Afshari, 1984): an open load rho, the work per second that arrives, leaves closed customers
1 - rho of a single server, and modified speeds (`speeds_beside_open`) of other stations. Delays do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..base.checks import require_count
from ..base.errors import ModelError
from .network import Network
from .stations import LARGEST_POPULATION

#: Most servers beside open classes: the speeds take time in proportion to their square.
MOST_OPEN_SERVERS = 5_000


@dataclass(frozen=True, slots=True, eq=False)
class Lowered:
    """Arrays of a network at a population, its C classes merged into the chains that customers stay in."""

    network: Network
    N: np.ndarray  # (chains,): populations; one chain without classes
    populations: tuple[int, ...]  # of classes; empty without
    D: np.ndarray  # (K, chains): service demands, seconds per cycle
    Z: np.ndarray  # (chains,): seconds per cycle outside all stations
    delay: np.ndarray  # (K,): whether a station is a delay
    arrivals: np.ndarray  # (chains,): arrivals per second, 0 of closed chains
    open_load: np.ndarray  # (K,): seconds of work that open chains bring per second, 0 at delays

    @property
    def share(self) -> np.ndarray:
        """Each class's share of its chain's demand at a station (of its visits where service takes no time), (K, C)."""
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

    def counts_with(self, most_open: int) -> tuple[int, ...]:
        """Customers of each class, C of them: ``most_open`` of an open class, at stations or about to arrive."""
        counts = self.populations or (int(self.N[0]),)
        return tuple(most_open if rate else n for n, rate in zip(counts, self.network.arrival_rates, strict=True))

    @property
    def closed(self) -> Lowered:
        """The closed chains, beside the open load."""
        c = self.arrivals == 0
        return replace(self, N=self.N[c], D=self.D[:, c], Z=self.Z[c], arrivals=self.arrivals[c])

    @property
    def closed_demand(self) -> np.ndarray:
        """Demands of closed chains in the closed network of the same product form: D / (1 - rho) at single servers."""
        single = np.array([s.rates is None and s.servers == 1 for s in self.network.stations])
        return self.D / (1.0 - self.open_load * single)[:, None]

    def speeds(self, k: int, customers: int) -> np.ndarray:
        """Speeds at which station k serves 1, 2, ... ``customers`` closed customers, beside open ones."""
        station, rho = self.network.stations[k], float(self.open_load[k])
        return speeds_beside_open(station.listed_speeds, rho, customers)[0] if rho else station.speeds(customers)

    @property
    def load(self) -> np.ndarray:
        """Seconds per cycle that each station needs at its fastest beside the open load, shape (K, C): 0 at delays."""
        total, fastest = int(self.N.sum()), []
        for s, rho in zip(self.network.stations, self.open_load, strict=True):
            customers = max(total, len(s.rates or ())) if rho else max(total, 1)
            fastest.append(s.servers if s.rates is None else s.speeds(customers).max())
        return self.D / (np.array(fastest) - self.open_load)[:, None]  # D / (max mu - rho): X load = utilization

    @property
    def min_residence(self) -> np.ndarray:
        """Seconds per cycle at each station without waiting, (K, C): D over the best speed per customer."""
        return self._over(lambda mu: (mu / np.arange(1, len(mu) + 1)).max())

    @property
    def max_residence(self) -> np.ndarray:
        """Seconds of service per cycle at each queue, (K, C): D over its lowest speed."""
        return self._over(np.min) * ~self.delay[:, None]

    def _over(self, speed: Callable[[np.ndarray], float]) -> np.ndarray:
        total, stations = max(1, int(self.N.sum())), enumerate(self.network.stations)
        constant = [s.rates is None and not self.open_load[k] for k, s in stations]
        return self.D / np.array([[1.0 if fixed else speed(self.speeds(k, total))] for k, fixed in enumerate(constant)])

    def why_not_product_form(self) -> str | None:
        """The condition of product form that a station breaks, or None."""
        network = self.network
        if all(s.discipline == "ps" for s in network.stations):
            return None
        active = ((self.N > 0) | (self.arrivals > 0)).tolist()
        present = [c for chain, occupied in zip(network.chains, active, strict=True) if occupied for c in chain]
        for station, visits in zip(network.stations, network.class_visit_ratios.tolist(), strict=True):
            if why := station.why_not_product_form([network.labels[c] for c in present if visits[c] > 0]):
                return why
        return None

    def why_not_single_servers(self) -> str | None:
        """The station that is neither a single server of constant speed nor a delay, or None."""
        for s in self.network.stations:
            if s.rates is not None:
                return f"station {s.name!r} has load-dependent rates"
            if s.servers != 1 and not s.is_delay:
                return f"station {s.name!r} has {s.servers:g} servers"
        return None


def lower(network: Network, population: int | tuple[int, ...] = 1) -> Lowered:
    """Arrays of a network at a population: one number per class, or an int without classes (or for all of them)."""
    counts = population if isinstance(population, tuple) else ()
    D, Z, delay = network.class_service_demand, network.think_times, network.is_delay
    load, opened = np.zeros(len(delay)), bool(network.open_classes)
    arrivals = network.arrival_rates if opened else np.zeros(len(Z))
    N = np.array(counts or [population] * len(network.chains))
    if network.routing is not None:  # without a routing nobody switches: each class is the whole of its chain
        at_reference, chains = network.class_visit_ratios[network.reference_index], [list(c) for c in network.chains]
        if counts:
            N = np.array([sum(counts[c] for c in chain) for chain in chains])
        D = np.array([D[:, chain].sum(axis=1) for chain in chains]).T
        Z = np.array([at_reference[c] @ Z[c] if len(c) > 1 else Z[c[0]] for c in chains])  # sum of V_c Z_c
        arrivals = np.array([arrivals[c[0]] for c in chains])
    if opened:
        N, load = np.where(arrivals > 0, 0, N), np.where(delay, 0.0, D @ arrivals)  # rho_k = sum of lambda_c D_ck
    for k, station in enumerate(network.stations):
        if station.rates is None or station.rates[-1] is ...:
            continue
        crowd = "any number of" if load[k] else int(N[D[k] > 0].sum())
        if isinstance(crowd, str) or crowd > len(station.rates):
            raise ModelError(
                f"station {station.name!r}: rates has {len(station.rates)} values, but {crowd} customers can be "
                "here; give one rate for each, or end the list with ... for the last one to repeat"
            )
    if opened:
        _require_stability(network, load)
    return Lowered(network, N, counts, D, Z, delay, arrivals, load)


def _require_stability(network: Network, load: np.ndarray) -> None:
    share = load / np.array([np.inf if s.is_delay else s.listed_speeds[-1] for s in network.stations])
    k = int(share.argmax())
    if share[k] > 1 - 1e-12:
        raise ModelError(
            f"network: no steady state: open classes load station {network.names[k]!r} to {share[k]:.4g} of its "
            f"capacity, the most of all; arrival rates below {1 / share[k]:.4g} times these are stable"
        )
    for s, rho in zip(network.stations, load.tolist(), strict=True):
        if rho and s.rates is None and s.servers > MOST_OPEN_SERVERS:
            raise ModelError(
                f"station {s.name!r}: {s.servers:,} servers are too many beside open classes (at most "
                f"{MOST_OPEN_SERVERS:,}); make it a delay station (servers=math.inf)"
            )


def speeds_beside_open(mu: np.ndarray, rho: float, customers: int) -> tuple[np.ndarray, float]:
    """Speeds with 1, 2, ... ``customers`` closed customers beside an open load rho, and P(nobody | no closed one).

    n closed customers weigh E(n) = sum over m >= 0 of C(n+m, m) rho**m / (mu(1) ... mu(n+m)), so that their speed is
    a(n) = E(n-1) / E(n) (Bruell, Balbo and Afshari, 1984). The last speed r of ``mu`` repeats: beyond it a(n) is
    r - rho. From there back, one speed at a time and without a difference that could lose digits:
    E'(n) = (rho E(n) + E(n-1)) / mu for n >= 1, E'(0) = 1 + rho E(0) / mu = 1 / P(nobody).
    """
    changing = min(customers, len(mu) + 1)
    a, empty = np.full(changing, mu[-1] - rho), (mu[-1] - rho) / mu[-1]
    for speed in mu[::-1].tolist():
        a = a * (rho + np.append(speed * empty, a[:-1])[:changing]) / (rho + a)  # a'(n) = E'(n-1) / E'(n)
        empty = speed * empty / (speed * empty + rho)  # 1 / E'(0)
    return np.append(a, np.full(customers - changing, mu[-1] - rho)), empty


def speeds_of(low: Lowered, k: int, population: int) -> np.ndarray | None:
    """Speeds with 1, 2, ... closed customers up to the last change; None at a single server or a delay."""
    station = low.network.stations[k]
    if station.rates is None and (station.servers == 1 or station.is_delay):
        return None
    mu = low.speeds(k, population)
    changes = np.flatnonzero(mu != mu[-1])
    mu = mu[: changes[-1] + 2] if len(changes) else mu[:1]
    return None if len(mu) == 1 and mu[0] == 1.0 else mu


def require_populations(network: Network, population: Any) -> int | tuple[int, ...]:
    """The checked population: an int without classes, else a tuple with one number per class, or a `ModelError`."""
    if not network.classes:
        if not isinstance(population, int | str) and isinstance(population, Sequence | Mapping):
            raise ModelError(f"population must be a whole number for a network without classes, got {population!r}")
        if population is None:
            raise ModelError("population is needed for a network without classes: solve(network, population=...)")
        return require_count(population, "population", most=LARGEST_POPULATION)
    names, opened = network.class_names, network.open_classes
    if population is None:
        population = [c.population for c in network.classes]
    elif isinstance(population, Mapping):
        if unknown := [c for c in population if c not in names]:
            raise ModelError(f"population names class {unknown[0]!r}, but the classes are: {', '.join(names)}")
        if missing := [c for c in names if c not in population and c not in opened]:
            raise ModelError(f"population must name every class, {missing[0]!r} is missing")
        population = [population.get(c, 0) for c in names]
    several = isinstance(population, np.ndarray | Sequence) and not isinstance(population, str | bytes)
    numbers, most = list(population) if several else [population], LARGEST_POPULATION
    if opened and len(numbers) == len(names) - len(opened):
        given = iter(numbers)
        numbers = [0 if c in opened else next(given) for c in names]
    if len(numbers) != len(names):
        whose = "one per class" + (", 0 of open ones" if opened else "")
        raise ModelError(f"population must be {len(names)} numbers, {whose}, got {population!r}")
    for c, n in zip(names, numbers, strict=True):
        if c in opened and n != 0:
            raise ModelError(f"population of class {c!r} must be 0, as it is open; got {n!r}")
    counts = [
        require_count(n, f"population of class {c!r}", least=0, most=most) for c, n in zip(names, numbers, strict=True)
    ]
    require_count(sum(counts), "population of all classes together", least=0 if opened else 1, most=most)
    return tuple(counts)


def lowered_product_form(network: Network, population: Any, solver: str) -> Lowered:
    """Arrays of a network, or a `ModelError` of this exact solver where there is no product form."""
    return require_product_form(lower(network, require_populations(network, population)), solver)


def require_product_form(low: Lowered, solver: str) -> Lowered:
    """The same arrays, or a `ModelError`."""
    if why := low.why_not_product_form():
        other = "" if low.network.open_classes else "ApproximateMVA, "
        raise ModelError(
            f"{solver}: {why}, so there is no product form; use {other}MarkovChain (if small) or Simulation"
        )
    return low


@dataclass(frozen=True, slots=True, eq=False)
class Routes:
    """Transitions between (class, place), place K for thinking; rows and columns of P are 0 without time there."""

    network: Network
    P: np.ndarray  # (C, K+1, C, K+1): probabilities
    visits: np.ndarray  # (K+1, C): per cycle; to place K, thinking or an open class's source, 1 in all per chain
    service_times: np.ndarray  # (K+1, C)

    @property
    def stay(self) -> np.ndarray:
        """Whether a class spends time at a place, shape (K+1, C)."""
        return np.asarray(self.P.sum(axis=(2, 3)).T > 0)

    def cycles(self, departures: np.ndarray) -> np.ndarray:
        """Cycles of each class's chain from departures (..., C)."""
        visits = (self.visits * self.stay).sum(axis=0)
        cycles = np.zeros(departures.shape)
        for chain in map(list, self.network.chains):
            # forced-flow law: X_k = V_k X
            cycles[..., chain] = departures[..., chain].sum(axis=-1, keepdims=True) / visits[chain].sum()
        return cycles


def routes_of(network: Network) -> Routes:
    """The network's routing, or a routing with its visit ratios: product form depends on these alone."""
    V, at = network.class_visit_ratios, network.reference_index
    K, C = V.shape
    P, arrivals = np.zeros((C, K + 1, C, K + 1)), network.arrival_rates
    think = [1.0 / rate if rate else z for rate, z in zip(arrivals, network.think_times, strict=True)]
    times = np.vstack([network.class_service_times, think])  # an open class's source: one customer after the other
    visits = np.vstack([V, np.ones(C) if network.routing is None else np.where(arrivals > 0, 1.0, V[at])])
    if network.routing is None:
        for c in range(C):
            P[c, :, c, :] = _implied(V[:, c])
    else:
        P[:, :K, :, :K] = network.transitions
        for c in range(C):
            if arrivals[c]:  # what a row lacks to 1 leaves
                P[c, :K, c, K] = np.where(V[:, c] > 0, 1.0 - P[c, :K].sum(axis=(1, 2)), 0.0)
            else:  # customers think on their way to the reference station
                P[:, :, c, K] += P[:, :, c, at]
                P[:, :, c, at] = 0.0
            P[c, K, c, at] = 1.0
    flat = P.reshape(C * (K + 1), C * (K + 1))
    for s in np.flatnonzero((times.T == 0) | (visits.T == 0)):  # no time in s: the chain watched outside of it
        loop = flat[s, s]
        if loop < 1:
            flat += np.outer(flat[:, s], flat[s] / (1 - loop))  # P_ij + P_is P_sj / (1 - P_ss), a censored chain
        flat[:, s] = flat[s] = 0.0
    return Routes(network, P, visits, times)


def _implied(V: np.ndarray) -> np.ndarray:
    """Routing (K+1, K+1) with visit ratios (K,): all 1, in order, then thinking; else the next place is random."""
    K = len(V)
    P = np.zeros((K + 1, K + 1))
    stops = [*np.flatnonzero(V > 0).tolist(), K]
    if all(V[k] == 1.0 for k in stops[:-1]):
        P[stops, [*stops[1:], stops[0]]] = 1.0
    else:
        P[np.ix_(stops, stops)] = np.append(V, 1.0)[stops] / (V.sum() + 1.0)  # V = V P
    return P
