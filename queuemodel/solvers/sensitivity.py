"""Exact derivatives of a network's measures: which component is worth speeding up, and by how much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..network import Network
from ..network.jobclass import require_count
from ..tables import html_table, text_table
from .convolution import Constants
from .lowering import refuse_without_product_form
from .sensitivity_classes import ClassSensitivity, class_sensitivity


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sensitivity:
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
    def dU_dD(self) -> np.ndarray:
        """Of the utilization (per server) of a station (row) by a demand (column): U = X D / m."""
        m = np.array([1.0 if s.is_delay else s.servers for s in self.network.stations])
        D: np.ndarray = self.network.service_demand
        return (self.dX_dD * D[:, None] + self.throughput * np.eye(len(D))) / m[:, None]

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

    def _caption(self) -> str:
        return f"throughput {self.throughput:.6g} /s at population {self.population}, dX/dZ {self.dX_dZ:.4g}"

    def __repr__(self) -> str:
        return f"{self._caption()}\n{text_table(self.to_rows())}"

    def _repr_html_(self) -> str:
        return html_table(self.to_rows(), caption=self._caption())


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
    N = require_count(population, "population")
    refuse_without_product_form(network, "sensitivity")
    if any(s.rates is not None or (s.servers != 1 and not s.is_delay) for s in network.stations):
        return _by_moments(network, N)
    from .kernels import single

    D, delay = network.service_demand, network.is_delay
    queues = np.flatnonzero(~delay)
    K, k = len(D), len(queues)
    dX, dR = np.zeros(k + 1), np.zeros((k, k + 1))
    X = single.gradients(D[queues], network.think_time + float(D[delay].sum()), N, dX, dR)
    dX_dD, dR_dD, dR_dZ = np.full(K, dX[k]), np.zeros((K, K)), np.zeros(K)
    dX_dD[queues] = dX[:k]  # a delay's demand is think time
    dR_dD[np.ix_(queues, queues)] = dR[:, :k]
    dR_dD[np.ix_(queues, np.flatnonzero(delay))] = dR[:, [k]]
    dR_dD[delay, delay] = 1.0
    dR_dZ[queues] = dR[:, k]
    from .mva import ExactMVA

    R = ExactMVA().solve(network, N).residence_time
    return Sensitivity(network, N, float(X), R, dX_dD, float(dX[k]), dR_dD, dR_dZ, {})


def _by_moments(network: Network, N: int) -> Sensitivity:
    work = Constants.of(network, N)
    R = work.residence_times()
    D, X = work.D, work.X
    Q = X[:, None] * R
    before_Q = Q[-2] if N > 1 else np.zeros(len(D))
    before_X = float(X[-2]) if N > 1 else 0.0
    x = float(X[-1])
    with np.errstate(divide="ignore", invalid="ignore"):
        dX_dD = np.where(D > 0, x * (before_Q - Q[-1]) / D, np.nan)
    for k in np.flatnonzero(D == 0).tolist():  # a demand of nothing meets whoever is there: none
        dX_dD[k] = -x * (x - before_X) if network.stations[k].is_delay else np.nan
    dX_dZ = x * (before_X - x)
    dR_dD, dR_dZ = _residence_derivatives(work, Q[-1], dX_dD, dX_dZ, R[-1])
    rates = {network.names[k]: _rate_derivatives(work, k, mu) for k, mu in work.dependent.items()}
    return Sensitivity(network, N, x, R[-1], dX_dD, dX_dZ, dR_dD, dR_dZ, rates)


def _residence_derivatives(
    work: Constants, Q: np.ndarray, dX_dD: np.ndarray, dX_dZ: float, R: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """dR from dQ_k / d log D_j = Cov(n_k, n_j), by the joint moments E[n_k n_j] of pairs of stations."""
    K, N, x = len(work.D), work.population, float(work.X[-1])
    n = np.arange(N + 1.0)
    cov = np.full((K, K + 1), np.nan)
    p = [work.marginal(k) for k in range(K)]
    for k in range(K):
        cov[k, k] = p[k] @ (n - p[k] @ n) ** 2
        for j in range(k + 1, K):
            cov[k, j] = cov[j, k] = _covariance(work, k, j, p[j], Q)
        cov[k, K] = -np.nansum(cov[k, :K])  # all customers together do not vary
    delays = np.flatnonzero(work.network.is_delay & (work.D > 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        dQ_dD = np.where(work.D > 0, cov[:, :K] / work.D, np.nan)
    if work.network.think_time > 0:
        dQ_dZ = cov[:, K] / work.network.think_time
    else:  # a delay's demand is think time by another name
        dQ_dZ = dQ_dD[:, int(delays[0])] if len(delays) else np.full(K, np.nan)
    dR_dD = (dQ_dD - dX_dD * R[:, None]) / x
    dR_dZ = (dQ_dZ - dX_dZ * R) / x
    return dR_dD, dR_dZ


def _covariance(work: Constants, k: int, j: int, p: np.ndarray, Q: np.ndarray) -> float:
    """Cov(n_k, n_j) = sum over n of p_j(n) n (E[n_k | N - n elsewhere] - Q_k)."""
    others = [s for i, s in enumerate(work.network.stations) if i != j]
    if not any(s.service_demand > 0 for s in others):
        return float("nan")
    rest = Constants.of(Network(others, think_time=work.network.think_time), work.population)
    lengths = rest.X * rest.residence_times()[:, k - (k > j)]
    n = np.arange(work.population + 1.0)
    conditional = np.concatenate([[0.0], lengths])[::-1]  # with N - n customers elsewhere
    return float((p * (n - Q[j])) @ (conditional - Q[k]))


def _rate_derivatives(work: Constants, k: int, mu: np.ndarray) -> np.ndarray:
    """dX/dmu(n): d log G / d log mu(n) = -P(n_k >= n), so d log X is the difference of two such tails."""
    now = work.marginal(k)[::-1].cumsum()[::-1]
    before = np.zeros(work.population + 1)
    if work.population > 1:
        before[:-1] = Constants.of(work.network, work.population - 1).marginal(k)[::-1].cumsum()[::-1]
    change = now[1:] - before[1:]
    slopes = np.zeros(len(mu))
    last = len(mu) - 1
    slopes[:last] = change[:last]
    slopes[last] = change[last:].sum()
    return float(work.X[-1]) * slopes / mu
