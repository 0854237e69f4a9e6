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
        D, Z = network.service_demand, network.think_time
        queues = np.where(network.is_delay, 0.0, 1.0)
        X = np.empty(population)
        R = np.empty((population, len(D)))
        Q = np.zeros(len(D))
        for n in range(1, population + 1):
            r = R[n - 1]
            r[:] = D * (1.0 + queues * Q)  # arrival theorem
            X[n - 1] = x = n / (Z + r.sum())
            Q = x * r  # Little's law
        return Solution(network, population, X, R, solver="exact MVA", exact=True)
