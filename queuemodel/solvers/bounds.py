"""Bounds on throughput that need no solution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ModelError
from ..network import Network
from ..network.lowered import lower
from ..results import Result, rows_of


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Bounds(Result):
    """Lower and upper bounds on throughput (1/s), arrays shaped like `population`; bounds on response time follow.

    Attributes
    ----------
    population, lower, upper : ndarray
    think_time : float
        Seconds per cycle at delays and outside all stations, which the response times leave out.
    method : str
    """

    population: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    think_time: float = 0.0
    method: str = ""

    def __post_init__(self) -> None:
        for name in ("population", "lower", "upper"):
            object.__setattr__(self, name, np.asarray(getattr(self, name)))
        Result.__post_init__(self)

    @property
    def response_lower(self) -> np.ndarray:
        """Lower bound on the seconds per cycle at queueing stations, N / X_upper - Z."""
        return np.asarray(self.population / self.upper - self.think_time)

    @property
    def response_upper(self) -> np.ndarray:
        """Upper bound on the seconds per cycle at queueing stations, N / X_lower - Z."""
        return np.asarray(self.population / self.lower - self.think_time)

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per population."""
        return rows_of({
            "population": self.population.astype(int),
            "throughput_lower": self.lower,
            "throughput_upper": self.upper,
            "response_lower": self.response_lower,
            "response_upper": self.response_upper,
        })  # fmt: skip

    def caption(self) -> str:
        """Which bounds, of what."""
        return f"{self.method} bounds on throughput (1/s) and response time (s), think time {self.think_time:g} s"


def asymptotic_bounds(network: Network, population: int | np.ndarray) -> Bounds:
    """Asymptotic bounds (Muntz and Wong, 1974; Denning and Buzen, 1978): no queueing at all, and all of it.

    N / (N D + Z) <= X(N) <= min(N / (D + Z), 1 / max D_k/m_k), where delay stations count as think time. They hold for
    any service distribution and discipline that keeps a server busy while somebody waits. A fork-join's D is that of
    its slowest branch above, and of all branches in turn below; a load-dependent station's is over the best rate per
    customer above and over the lowest rate below, its m the highest rate, up to the largest population.

    Parameters
    ----------
    network : Network
        Without classes.
    population : int or array of int
        At least 1.

    Raises
    ------
    ModelError
        When the population is not whole and at least 1, or the network has classes.
    """
    N = _populations(population)
    _require_single_class(network)
    low, most = lower(network), int(N.max())
    Z, largest = float(low.think[0]), float(low.load(most).max())
    upper = N / (float(low.Z[0]) + low.least(most).sum())
    if largest > 0:
        upper = np.minimum(upper, 1.0 / largest)
    return Bounds(N, N / (N * low.most(most).sum() + Z), upper, Z, "asymptotic")


def balanced_job_bounds(network: Network, population: int | np.ndarray) -> Bounds:
    """Balanced-job bounds (Zahorjan et al., 1982), tighter than the asymptotic ones, for product-form networks.

    With D the queueing stations' total demand, D_avg and D_max their mean and largest, and Z the delays and think time:

    N / (D + Z + (N-1) D_max / (1 + Z/(N D))) <= X(N)
    X(N) <= min(1/D_max, N / (D + Z + (N-1) D_avg / (1 + Z/D))).
    """
    N, demand, Z = _plain(network, population)
    if not len(demand):
        return Bounds(N, N / Z, N / Z, Z, "balanced-job")
    D, largest = demand.sum(), demand.max()
    lower = N / (D + Z + (N - 1) * largest / (1 + Z / (N * D)))
    upper = N / (D + Z + (N - 1) * demand.mean() / (1 + Z / D))
    return Bounds(N, lower, np.minimum(upper, 1.0 / largest), Z, "balanced-job")


def proportional_bounds(network: Network, population: int | np.ndarray) -> Bounds:
    """Proportional bounds (Hsieh and Lam, 1987) for product-form networks, as published.

    N / (D + Z + (N-1) sum D_k**N / sum D_k**(N-1)) <= X(N)
    X(N) <= min(1/D_max, N / (D + Z + (N-1 - Z/D_max) sum D_k**2 / sum D_k)).

    With think time for few customers the asymptotic ones may be tighter.
    """
    N, demand, Z = _plain(network, population)
    if not len(demand):
        return Bounds(N, N / Z, N / Z, Z, "proportional")
    D, largest, n = demand.sum(), demand.max(), N[..., None]
    share = demand / largest  # at most 1, so that no power overflows
    slow = largest * (share**n).sum(axis=-1) / (share ** (n - 1)).sum(axis=-1)
    fast = largest * (share**2).sum() / share.sum()
    upper = np.minimum(N / (D + Z + (N - 1 - Z / largest) * fast), 1.0 / largest)
    return Bounds(N, N / (D + Z + (N - 1) * slow), upper, Z, "proportional")


def geometric_bounds(network: Network, population: int | np.ndarray) -> Bounds:
    """Geometric bounds (Casale, Muntz and Serazzi, 2008), the tightest of simple ones, for product-form networks.

    Queue lengths with one customer fewer are bounded by geometric sums (y - y**N) / (1 - y), with y_k = D_k N /
    (Z + D + D_max N) from below and y_k = D_k X_upper from above, X_upper being the proportional bound; the bottlenecks
    have the rest.
    """
    N, everywhere, Z = _plain(network, population)
    if not len(everywhere):
        return Bounds(N, N / Z, N / Z, Z, "geometric")
    D, Dmax, n = everywhere.sum(), everywhere.max(), N[..., None]
    demand = everywhere[everywhere < Dmax * (1 - 1e-15)]
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
    return Bounds(N, X[0], X[1], Z, "geometric")  # as published: few customers, much thinking: asymptotic is tighter


def _populations(population: int | np.ndarray) -> np.ndarray:
    try:
        N = np.array(population, dtype=float)
    except (TypeError, ValueError):
        N = np.array([])
    if N.size == 0 or not np.all(np.isfinite(N)) or N.min() < 1 or np.any(np.floor(N) != N):
        raise ModelError(f"bounds: population must be whole numbers of at least 1, got {population!r}")
    return N


def _plain(network: Network, population: int | np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Populations, the demands > 0 of queues, and think time, of product-form networks of single servers and delays."""
    N = _populations(population)
    _require_single_class(network)
    low = lower(network)
    if why := low.why_not_plain() or low.why_not_product_form():
        raise ModelError(f"bounds: {why}; these bounds are for product form with single servers, use asymptotic_bounds")
    return N, low.D[low.queues, 0], float(low.think[0])


def _require_single_class(network: Network) -> None:
    if network.classes:
        raise ModelError("bounds: the network has classes; these bounds are for single-class networks")
