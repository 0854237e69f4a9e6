"""Exact mean-value analysis."""

from dataclasses import dataclass

import numpy as np

from ..network import Network, Solution


@dataclass(frozen=True, slots=True)
class ExactMVA:
    """Exact mean-value analysis of a single-class network of queues and delays (Reiser and Lavenberg, 1980).

    Exact (up to rounding) when the network has product form: processor sharing or last-come-first-served-preemptive
    queues with any service distribution, first-come-first-served queues with exponential service, and delays with any.
    Time is proportional to the population times the number of stations.
    """

    def solve(self, network: Network, population: int) -> Solution:
        """Measures for populations 1 to ``population``."""
        X, R = mva_recursion(network.service_demand, network.think_time, network.is_delay, np.arange(1, population + 1))
        return Solution(network, population, X, R, solver="exact MVA", exact=True)


def mva_recursion(
    D: np.ndarray, Z: float | np.ndarray, is_delay: np.ndarray, populations: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """X (n, ...) and R (n, ..., K) at increasing populations (n,), for demands D (..., K) and think times Z (...)."""
    queues = np.where(is_delay, 0.0, 1.0)
    X = np.empty((len(populations), *D.shape[:-1]))
    R = np.empty((len(populations), *D.shape))
    Q = np.zeros(D.shape)
    row = 0
    for n in range(1, int(populations[-1]) + 1):
        r = D * (1.0 + queues * Q)  # arrival theorem
        x = n / (Z + r.sum(axis=-1))
        Q = x[..., None] * r  # Little's law
        if n == populations[row]:
            X[row], R[row], row = x, r, row + 1
    return X, R
