"""Derivatives of single-class networks with several servers or load-dependent rates, from moments of their queues."""

from __future__ import annotations

import numpy as np

from .constants import Constants
from .lowering import Chains

Slopes = tuple[float, np.ndarray, np.ndarray, float, np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]


def slopes_by_moments(chains: Chains) -> Slopes:
    """X, R (K,), dX_dD (K,), dX_dZ, dR_dD (K, K), dR_dZ (K,), dU_dD (K, K) and dX_drate; exact.

    By d log G / d log D_k = Q_k (de Souza e Silva and Muntz, 1988), and d G(N) / d D_k = G(N-1) / mu_k(1) at a demand
    of nothing; think time is the demand of a delay.
    """
    network, N = chains.network, int(chains.N[0])
    work = Constants(chains.D[:, 0], chains.speeds(N), chains.delay, float(chains.Z[0]), N)
    D, X, R = work.D, work.X, work.residence_times()
    x, Q = float(X[-1]), X[-1] * R[-1]
    earlier_x, earlier_Q = (float(X[-2]), X[-2] * R[-2]) if N > 1 else (0.0, np.zeros(len(D)))
    alone = np.array([1.0 if mu is None else mu[0] for mu in work.speeds])
    nobody = D == 0
    size = np.where(nobody, 1.0, D)
    dX_dZ, dQ_dZ = x * (earlier_x - x), x * (earlier_Q - Q)
    dX_dD = np.where(nobody, dX_dZ / alone, x * (earlier_Q - Q) / size)
    dQ_dD = np.where(nobody, dQ_dZ[:, None] / alone, _covariances(work, Q) / size)
    dQ_dD[nobody, nobody] = x / alone[nobody]
    dU_dD = np.outer(D, dX_dD) + x * np.eye(len(D))
    for k, station in enumerate(network.stations):
        if station.rates is None:
            dU_dD[k] /= 1.0 if station.is_delay else station.servers
        elif k in work.dependent:
            dU_dD[k] = _busy_slopes(work, k, Q, nobody, alone)
    rates = {network.names[k]: _rate_slopes(work, k, mu) for k, mu in work.dependent.items()}
    return x, R[-1], dX_dD, dX_dZ, (dQ_dD - dX_dD * R[-1][:, None]) / x, (dQ_dZ - dX_dZ * R[-1]) / x, dU_dD, rates


def _covariances(work: Constants, Q: np.ndarray) -> np.ndarray:
    """Cov(n_k, n_j) = d Q_k / d log D_j = sum over n of p_j(n) (n - Q_j) E[n_k | N - n elsewhere]; (K, K)."""
    K, n = len(work.D), np.arange(work.population + 1.0)
    covariance = np.zeros((K, K))
    for j in np.flatnonzero(work.D > 0).tolist():
        weights = work.marginal(j) * (n - Q[j])
        rest = work.leaving_out(j)
        elsewhere = np.zeros((work.population + 1, K))
        elsewhere[1:] = rest.X[:, None] * rest.residence_times()
        covariance[:, j] = weights @ elsewhere[::-1]
        covariance[j, j] = weights @ n
    return covariance


def _busy_slopes(work: Constants, k: int, Q: np.ndarray, nobody: np.ndarray, alone: np.ndarray) -> np.ndarray:
    """Of 1 - p(0) at station k, by log p(0) = log G(N) without k - log G(N)."""
    idle = float(work.empty_probability(k)[-1])
    rest = work.leaving_out(k)
    others = rest.X[-1] * rest.residence_times()[-1]
    logarithmic = np.where(nobody, (rest.X[-1] - work.X[-1]) / alone, (others - Q) / np.where(nobody, 1.0, work.D))
    return -idle * logarithmic


def _rate_slopes(work: Constants, k: int, mu: np.ndarray) -> np.ndarray:
    """dX/dmu(n): d log G / d log mu(n) = -P(n_k >= n), so d log X is the difference of two such tails."""
    now = work.marginal(k)[::-1].cumsum()[::-1]
    before = np.zeros(work.population + 1)
    if work.population > 1:
        fewer = Constants(work.D, work.speeds, work.delay, work.Z, work.population - 1)
        before[:-1] = fewer.marginal(k)[::-1].cumsum()[::-1]
    change = now[1:] - before[1:]
    slopes = np.zeros(len(mu))
    last = len(mu) - 1
    slopes[:last] = change[:last]
    slopes[last] = change[last:].sum()
    return float(work.X[-1]) * slopes / mu
