"""Bounds on throughput that need no solution, and where they cross."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import require_choice
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


def bounds(network: Network, population: int | np.ndarray, *, kind: str = "asymptotic") -> Bounds:
    """Bounds on the throughput of a network without classes, that need no solution.

    With D the queueing stations' total demand, D_avg and D_max their mean and largest, Z the delays and think time:

    asymptotic (Muntz and Wong, 1974; Denning and Buzen, 1978)
        N / (N D + Z) <= X(N) <= min(N / (D + Z), 1 / max D_k/m_k): no queueing at all, and all of it. They hold for any
        service distribution and discipline that keeps a server busy while somebody waits. A
        load-dependent station's D is over the best rate
        per customer above and over the lowest rate below, its m the highest rate, up to the largest population.
    balanced-job (Zahorjan et al., 1982), like the following for product form with single servers; tighter
        N / (D + Z + (N-1) D_max / (1 + Z/(N D))) <= X(N)
        X(N) <= min(1/D_max, N / (D + Z + (N-1) D_avg / (1 + Z/D))).
    proportional (Hsieh and Lam, 1987)
        N / (D + Z + (N-1) sum D_k**N / sum D_k**(N-1)) <= X(N)
        X(N) <= min(1/D_max, N / (D + Z + (N-1 - Z/D_max) sum D_k**2 / sum D_k)).
    geometric (Casale, Muntz and Serazzi, 2008), the tightest
        Queue lengths with one customer fewer are bounded by geometric sums (y - y**N) / (1 - y), with y_k = D_k N /
        (Z + D + D_max N) from below and y_k = D_k X_upper from above, X_upper being the proportional bound; the
        bottlenecks have the rest.

    The last two are as published: with think time for few customers the asymptotic ones may be tighter.

    Parameters
    ----------
    network : Network
    population : int or array of int
        At least 1.
    kind : {"asymptotic", "balanced-job", "proportional", "geometric"}

    Raises
    ------
    ModelError
        When the population is not whole and at least 1, the network has classes, or the bounds do not hold for it.

    Examples
    --------
    >>> from queuemodel import Network, Station
    >>> network = Network([Station("server", service_time=0.5)], think_time=1.0)
    >>> float(bounds(network, 2).upper)
    1.3333333333333333
    """
    require_choice(kind, "bounds: kind", KINDS)
    N = _populations(population)
    if network.classes:
        raise ModelError("bounds: the network has classes; these bounds are for single-class networks")
    low = lower(network, int(N.max()))
    Z = float(low.think[0])
    if kind == "asymptotic":
        upper = np.minimum(N / (float(low.Z[0]) + low.least.sum()), 1.0 / max(float(low.load.max()), 1e-300))
        return Bounds(N, np.asarray(N / (N * low.most.sum() + Z)), np.asarray(upper), Z, kind)
    if why := low.why_not_plain() or low.why_not_product_form():
        raise ModelError(
            f"bounds: {why}; {kind} bounds are for product form with single servers, use kind='asymptotic'"
        )
    demand = low.D[low.queues, 0]
    if len(demand):
        low_X, high_X = KINDS[kind](N, demand, Z)
        return Bounds(N, np.asarray(low_X), np.asarray(high_X), Z, kind)
    return Bounds(N, np.asarray(N / Z), np.asarray(N / Z), Z, kind)


def _balanced_job(N: np.ndarray, demand: np.ndarray, Z: float) -> tuple[np.ndarray, np.ndarray]:
    D, largest = demand.sum(), demand.max()
    upper = N / (D + Z + (N - 1) * demand.mean() / (1 + Z / D))
    return N / (D + Z + (N - 1) * largest / (1 + Z / (N * D))), np.minimum(upper, 1.0 / largest)


def _proportional(N: np.ndarray, demand: np.ndarray, Z: float) -> tuple[np.ndarray, np.ndarray]:
    D, largest, n = demand.sum(), demand.max(), N[..., None]
    share = demand / largest  # at most 1, so that no power overflows
    slow = largest * (share**n).sum(axis=-1) / (share ** (n - 1)).sum(axis=-1)
    fast = largest * (share**2).sum() / share.sum()
    upper = np.minimum(N / (D + Z + (N - 1 - Z / largest) * fast), 1.0 / largest)
    return N / (D + Z + (N - 1) * slow), upper


def _geometric(N: np.ndarray, everywhere: np.ndarray, Z: float) -> tuple[np.ndarray, np.ndarray]:
    D, Dmax, n = everywhere.sum(), everywhere.max(), N[..., None]
    demand = everywhere[everywhere < Dmax * (1 - 1e-15)]
    spread = (everywhere**2).sum() / everywhere.sum()
    thinking = Z * np.minimum(1.0 / Dmax, np.maximum(n - 2, 0) / (D + Z))
    most = np.minimum(1.0 / Dmax, (n - 1) / (D + Z + spread * np.maximum(n - 2 - thinking, 0)))  # at N - 1
    X = []
    for y, others in ((demand * (n - 1) / (Z + D + Dmax * (n - 1)), N - 1), (demand * most, N)):
        Q = (y - y**n) / (1 - y)  # the paper's think-time terms differ in the population they take
        b = Z + D + Dmax * (N - 1) - ((Dmax - demand) * Q).sum(axis=-1)
        X.append(2 * N / (b + np.sqrt(np.maximum(b * b - 4 * Z * Dmax * others, 0.0))))
    return X[0], X[1]


#: Lower and upper bounds from populations, the demands > 0 of queues, and think time.
KINDS: dict[str, Any] = {
    "asymptotic": None,
    "balanced-job": _balanced_job,
    "proportional": _proportional,
    "geometric": _geometric,
}


def _populations(population: int | np.ndarray) -> np.ndarray:
    try:
        N = np.array(population, dtype=float)
    except (TypeError, ValueError):
        N = np.array([])
    if N.size == 0 or not np.all(np.isfinite(N)) or N.min() < 1 or np.any(np.floor(N) != N):
        raise ModelError(f"bounds: population must be whole numbers of at least 1, got {population!r}")
    return N


def saturation_population(network: Network) -> float:
    """N* where the asymptotes of the asymptotic `bounds` cross; infinite when nobody queues anywhere.

    (D + Z) / max D_k/m_k, D being what a customer who is alone needs of the queueing stations. With load-dependent
    rates D_k is over the best rate per customer and m_k the highest of the list.

    Raises
    ------
    ModelError
        When the network has classes.
    """
    if network.classes:
        raise ModelError("saturation population: the network has classes; it is of single-class networks")
    low = lower(network, max([1, *[len(s.rates) for s in network.stations if s.rates]]))
    largest = float(low.load.max())
    return float(low.Z[0] + low.least.sum()) / largest if largest > 0 else float("inf")
