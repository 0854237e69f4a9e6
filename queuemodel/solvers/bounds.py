"""Bounds on throughput that need no solution, where the asymptotes cross, and where bottlenecks switch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import ModelError
from ..network import Network


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """Lower and upper bounds on throughput (1/s), arrays shaped like `population`; bounds on response time follow.

    Attributes
    ----------
    population, lower, upper : ndarray
    think_time : float
        Seconds per cycle at delays and outside all stations, which the response times leave out.
    """

    population: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    think_time: float = 0.0

    def __post_init__(self) -> None:
        for name in ("population", "lower", "upper"):
            array = np.asarray(getattr(self, name))
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @property
    def response_lower(self) -> np.ndarray:
        """Lower bound on the seconds per cycle at queueing stations, N / X_upper - Z."""
        return np.asarray(self.population / self.upper - self.think_time)

    @property
    def response_upper(self) -> np.ndarray:
        """Upper bound on the seconds per cycle at queueing stations, N / X_lower - Z."""
        return np.asarray(self.population / self.lower - self.think_time)


def asymptotic_bounds(network: Network, population: int | np.ndarray) -> Bounds:
    """Asymptotic bounds (Muntz and Wong, 1974; Denning and Buzen, 1978): no queueing at all, and all of it.

    N / (N D + Z) <= X(N) <= min(N / (D + Z), 1 / max D_k/m_k), where delay stations count as think time. They hold for
    any service distribution and discipline that keeps a server busy while somebody waits.

    Parameters
    ----------
    network : Network
        Without classes.
    population : int or array of int
        At least 1.

    Raises
    ------
    ModelError
        When the population is not whole and at least 1, or the network has classes or load-dependent rates.
    """
    N = _populations(population)
    D, Z, fastest = _totals(network)
    upper = N / (D + Z)
    if fastest > 0:
        upper = np.minimum(upper, 1.0 / fastest)
    return Bounds(N, N / (N * D + Z), upper, Z)


def balanced_job_bounds(network: Network, population: int | np.ndarray) -> Bounds:
    """Balanced-job bounds (Zahorjan et al., 1982), tighter than the asymptotic ones, for product-form networks.

    With D the queueing stations' total demand, D_avg and D_max their mean and largest, and Z the delays and think time:

    N / (D + Z + (N-1) D_max / (1 + Z/(N D))) <= X(N)
    X(N) <= min(1/D_max, N / (D + Z + (N-1) D_avg / (1 + Z/D))).
    """
    N, D, Dmax, K, Z = _demands(network, population)
    if D == 0:
        return Bounds(N, N / Z, N / Z, Z)
    lower = N / (D + Z + (N - 1) * Dmax / (1 + Z / (N * D)))
    upper = N / (D + Z + (N - 1) * (D / K) / (1 + Z / D))
    return Bounds(N, lower, np.minimum(upper, 1.0 / Dmax), Z)


def proportional_bounds(network: Network, population: int | np.ndarray) -> Bounds:
    """Proportional bounds (Hsieh and Lam, 1987) for product-form networks without think time or delays.

    N / (D + (N-1) sum D_k**N / sum D_k**(N-1)) <= X(N) <= min(1/D_max, N / (D + (N-1) sum D_k**2 / sum D_k)).
    """
    N, D, Dmax, _, Z = _demands(network, population)
    if Z > 0:
        raise ModelError(f"proportional bounds: think time and delays must be 0, got {Z:g}; use geometric_bounds")
    share = _queueing(network) / Dmax  # at most 1, so that no power overflows
    n = N[..., None]
    slow = Dmax * (share**n).sum(axis=-1) / (share ** (n - 1)).sum(axis=-1)
    fast = Dmax * (share**2).sum() / share.sum()
    return Bounds(N, N / (D + (N - 1) * slow), np.minimum(N / (D + (N - 1) * fast), 1.0 / Dmax), Z)


def geometric_bounds(network: Network, population: int | np.ndarray) -> Bounds:
    """Geometric bounds (Casale, Muntz and Serazzi, 2008), the tightest of simple ones, for product-form networks.

    Queue lengths with one customer fewer are bounded by geometric sums (y - y**N) / (1 - y), with y_k = D_k N /
    (Z + D + D_max N) from below and y_k = D_k X_upper from above, X_upper being the proportional bound; the bottlenecks
    have the rest.
    """
    N, D, Dmax, _, Z = _demands(network, population)
    if D == 0:
        return Bounds(N, N / Z, N / Z, Z)
    demand = _queueing(network)
    demand = demand[demand < Dmax * (1 - 1e-15)]
    n = N[..., None]
    everywhere = _queueing(network)
    spread = (everywhere**2).sum() / everywhere.sum()
    thinking = Z * np.minimum(1.0 / Dmax, np.maximum(n - 2, 0) / (D + Z))
    most = np.minimum(1.0 / Dmax, (n - 1) / (D + Z + spread * np.maximum(n - 2 - thinking, 0)))  # at N - 1
    low = demand * (n - 1) / (Z + D + Dmax * (n - 1))
    high = demand * most
    X = []
    for y, others in ((low, N - 1), (high, N)):  # the paper's think-time terms differ in the population they take
        Q = (y - y**n) / (1 - y)
        b = Z + D + Dmax * (N - 1) - ((Dmax - demand) * Q).sum(axis=-1)
        X.append(2 * N / (b + np.sqrt(np.maximum(b * b - 4 * Z * Dmax * others, 0.0))))
    return Bounds(N, X[0], X[1], Z)  # as published; for few customers and much thinking the asymptotic one is tighter


def saturation_population(network: Network) -> float:
    """N* = (D + Z) / max D_k/m_k, where the asymptotes cross; infinite when nobody queues anywhere."""
    D, Z, fastest = _totals(network)
    return (D + Z) / fastest if fastest > 0 else float("inf")


@dataclass(frozen=True, slots=True)
class BottleneckSwitch:
    """Shares of two classes' throughput at which two stations are equally loaded.

    Attributes
    ----------
    stations : tuple of str
        The bottleneck below and above the share.
    share : float
        Part of all cycles that are the first class's, 0 to 1.
    """

    stations: tuple[str, str]
    share: float


def bottleneck_switches(network: Network) -> list[BottleneckSwitch]:
    """Where the bottleneck of a two-class network moves as the mix of classes changes (Balbo and Serazzi, 1997).

    Station k is the bottleneck at share b of the first class when b D_k1 + (1-b) D_k2 (per server) is the largest:
    the upper envelope of lines, whose corners these are, in increasing share.

    Raises
    ------
    ModelError
        When the network does not have two classes.
    """
    if len(network.classes) != 2:
        raise ModelError(f"bottleneck switches: two classes are needed, got {len(network.classes)}")
    servers = np.array([s.servers for s in network.stations])
    D = network.service_demand / servers[:, None]  # delays become 0
    switches: list[BottleneckSwitch] = []
    at, share = int(np.lexsort((D[:, 0], D[:, 1]))[-1]), 0.0
    slope = D[:, 0] - D[:, 1]
    while True:
        steeper = np.flatnonzero(slope > slope[at] + 1e-15 * np.abs(slope).max(initial=1e-300))
        if not len(steeper):
            return switches
        crossing = (D[at, 1] - D[steeper, 1]) / (slope[steeper] - slope[at])
        nearest = float(crossing.min())
        if nearest >= 1.0:
            return switches
        tied = steeper[crossing <= nearest + 1e-12]
        after = int(tied[slope[tied].argmax()])
        share = max(share, nearest)
        switches.append(BottleneckSwitch((network.names[at], network.names[after]), share))
        at = after


def _populations(population: int | np.ndarray) -> np.ndarray:
    try:
        N = np.array(population, dtype=float)
    except (TypeError, ValueError):
        N = np.array([])
    if N.size == 0 or not np.all(np.isfinite(N)) or N.min() < 1 or np.any(np.floor(N) != N):
        raise ModelError(f"bounds: population must be whole numbers of at least 1, got {population!r}")
    return N


def _require_single(network: Network) -> None:
    if network.classes:
        raise ModelError("bounds: the network has classes; these bounds are for single-class networks")
    for station in network.stations:
        if station.rates is not None:
            raise ModelError(f"bounds: station {station.name!r} has load-dependent rates; solve the network instead")


def _totals(network: Network) -> tuple[float, float, float]:
    """Total demand D of queueing stations, think time Z, and the largest demand per server."""
    _require_single(network)
    demand, delay = network.service_demand, network.is_delay
    servers = np.array([s.servers for s in network.stations])
    D = demand.copy()
    for k, station in enumerate(network.stations):
        if station.branches:  # at worst one branch after the other; at best all at once
            D[k] = station.visit_ratio * sum(station.branches)  # type: ignore[operator]
    Z = network.think_time + demand[delay].sum()
    return float(D[~delay].sum()), float(Z), float((demand / servers).max())


def _queueing(network: Network) -> np.ndarray:
    D = network.service_demand
    return D[~network.is_delay & (D > 0)]


def _demands(network: Network, population: int | np.ndarray) -> tuple[np.ndarray, float, float, int, float]:
    from .lowering import why_not_product_form

    N = _populations(population)
    _require_single(network)
    for station in network.stations:
        if station.servers != 1 and not station.is_delay:
            raise ModelError(
                f"bounds: station {station.name!r} has {station.servers:g} servers; these bounds are for single "
                "servers, use asymptotic_bounds"
            )
    if why := why_not_product_form(network):
        raise ModelError(f"bounds: {why}; these bounds are for product form, use asymptotic_bounds")
    D, Z, _ = _totals(network)
    queues = _queueing(network)
    return N, D, float(queues.max(initial=0.0)), len(queues), Z
