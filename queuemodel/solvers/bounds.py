"""Bounds on throughput that need no solution: asymptotic and balanced-job, and where the asymptotes cross."""

from dataclasses import dataclass

import numpy as np

from ..errors import ModelError
from ..network import Network


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """Lower and upper bounds on throughput (1/s), arrays shaped like `population`."""

    population: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    def __post_init__(self) -> None:
        for name in ("population", "lower", "upper"):
            array = np.asarray(getattr(self, name))
            array.flags.writeable = False
            object.__setattr__(self, name, array)


def asymptotic_bounds(network: Network, population: int | np.ndarray) -> Bounds:
    """Asymptotic bounds (Muntz and Wong, 1974; Denning and Buzen, 1978): no queueing at all, and all of it.

    N / (N D + Z) <= X(N) <= min(N / (D + Z), 1 / D_max), where delay stations count as think time. They hold for any
    service distribution and discipline that keeps a server busy while somebody waits.

    Parameters
    ----------
    network : Network
    population : int or array of int
        At least 1.
    """
    N, D, Dmax, _, Z = _demands(network, population)
    upper = N / (D + Z)
    if Dmax > 0:
        upper = np.minimum(upper, 1.0 / Dmax)
    return Bounds(N, N / (N * D + Z), upper)


def balanced_job_bounds(network: Network, population: int | np.ndarray) -> Bounds:
    """Balanced-job bounds (Zahorjan et al., 1982), tighter than the asymptotic ones, for product-form networks.

    With D the queueing stations' total demand, D_avg and D_max their mean and largest, and Z the delays and think time:

    N / (D + Z + (N-1) D_max / (1 + Z/(N D))) <= X(N)
    X(N) <= min(1/D_max, N / (D + Z + (N-1) D_avg / (1 + Z/D))).
    """
    N, D, Dmax, K, Z = _demands(network, population)
    if D == 0:
        return Bounds(N, N / Z, N / Z)
    lower = N / (D + Z + (N - 1) * Dmax / (1 + Z / (N * D)))
    upper = N / (D + Z + (N - 1) * (D / K) / (1 + Z / D))
    return Bounds(N, lower, np.minimum(upper, 1.0 / Dmax))


def saturation_population(network: Network) -> float:
    """N* = (D + Z) / D_max, where the asymptotes cross; infinite when nobody queues anywhere."""
    _, D, Dmax, _, Z = _demands(network, 1)
    return (D + Z) / Dmax if Dmax > 0 else float("inf")


def _demands(network: Network, population: int | np.ndarray) -> tuple[np.ndarray, float, float, int, float]:
    N = np.array(population, dtype=float)
    if N.size == 0 or not np.all(np.isfinite(N)) or N.min() < 1 or np.any(np.floor(N) != N):
        raise ModelError(f"bounds: population must be whole numbers of at least 1, got {population!r}")
    demand, delay = network.service_demand, network.is_delay
    D = demand[~delay & (demand > 0)]
    Z = network.think_time + demand[delay].sum()
    return N, float(D.sum()), float(D.max(initial=0.0)), len(D), float(Z)
