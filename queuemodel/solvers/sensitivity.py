"""Exact derivatives of a network's measures: which component is worth speeding up, and by how much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import require_count
from ..network import LARGEST_POPULATION, Network
from ..results import Result
from .lowering import chains_of, refuse_without_product_form
from .sensitivity_classes import ClassSensitivity, class_sensitivity
from .sensitivity_moments import slopes_by_moments
from .slopes import slopes_by_recursion


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sensitivity(Result):
    """Derivatives at one population; columns are the K demands.

    Attributes
    ----------
    throughput : float
        Cycles per second.
    dX_dD : ndarray, shape (K,)
        Of the throughput by each service demand, 1/s per second.
    dX_dZ : float
        Of the throughput by the think time.
    dR_dD : ndarray, shape (K, K)
        Of the residence time at station (row) by a demand (column).
    dR_dZ : ndarray, shape (K,)
    dU_dD : ndarray, shape (K, K)
        Of the utilization of a station (row) by a demand (column): per server, and with load-dependent rates the
        probability that somebody is there.
    dX_drate : dict from station name to ndarray
        Of the throughput by each rate, ``rates[n-1]`` with n customers, of load-dependent and multi-server stations
        (up to the last that changes; the last entry is of all from there on).
    """

    network: Network
    population: int
    throughput: float
    residence_time: np.ndarray
    dX_dD: np.ndarray
    dX_dZ: float
    dR_dD: np.ndarray
    dR_dZ: np.ndarray
    dU_dD: np.ndarray
    dX_drate: dict[str, np.ndarray]

    @property
    def dQ_dD(self) -> np.ndarray:
        """Of the queue length at station (row) by a demand (column): Q = X R."""
        return self.dX_dD * self.residence_time[:, None] + self.throughput * self.dR_dD

    @property
    def dQ_dZ(self) -> np.ndarray:
        """Of the queue lengths by the think time."""
        return self.dX_dZ * self.residence_time + self.throughput * self.dR_dZ

    @property
    def elasticity(self) -> np.ndarray:
        """Percent of throughput won by one percent less demand at each station, shape (K,)."""
        return -self.dX_dD * self.network.service_demand / self.throughput

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per station: the elasticity says what is worth speeding up."""
        return [
            {"station": name, "service_demand": float(d), "dX_dD": float(x), "elasticity": float(e)}
            for name, d, x, e in zip(
                self.network.names, self.network.service_demand, self.dX_dD, self.elasticity, strict=True
            )
        ]

    def caption(self) -> str:
        """The throughput, and its slope by the think time."""
        return f"throughput {self.throughput:.6g} /s at population {self.population}, dX/dZ {self.dX_dZ:.4g}"


def sensitivity(network: Network, *, population: Any = None) -> Sensitivity | ClassSensitivity:
    """Derivatives of every measure by every demand, think time and rate; exact, product form.

    Of single-server queues and delays by differentiating the mean-value recursion (Liu and Nain, 1991, prove what it
    yields). With load-dependent stations from moments, by d log G / d log D_k = Q_k (de Souza e Silva and Muntz, 1988):
    d log X(N) / d log D_k = Q_k(N-1) - Q_k(N), and of queue lengths from covariances of stations.

    With classes (single-server queues and delays) a `ClassSensitivity`, from the recursion over the lattice of
    populations, differentiated; ``population`` is then as of `solve`.

    Examples
    --------
    >>> from queuemodel import Station
    >>> network = Network([Station("server", service_time=0.05)], think_time=1.0)
    >>> sensitivity(network, population=50).dX_dD.round(3)
    array([-400.])
    """
    if network.classes:
        return class_sensitivity(network, population)
    N = require_count(population, "population", most=LARGEST_POPULATION)
    chains = chains_of(network, N)
    refuse_without_product_form(chains, "sensitivity")
    if chains.why_not_plain():
        return Sensitivity(network, N, *slopes_by_moments(chains))
    X, R, dX_dD, dX_dZ, dR_dD, dR_dZ = slopes_by_recursion(chains)
    dX, K = dX_dD[0, :, 0], len(R)
    dU = dX * chains.D + X[0] * np.eye(K)
    return Sensitivity(
        network, N, float(X[0]), R[:, 0], dX, float(dX_dZ[0, 0]), dR_dD[:, 0, :, 0], dR_dZ[:, 0, 0], dU, {}
    )
