"""Mean-value analysis of what training adds to a plain network: servers visited at once, and unequal workers."""

from __future__ import annotations

import numpy as np

from ..network import JobClass, Network, Station
from ..solvers import solve


def parallel_servers(
    D: np.ndarray, Z: np.ndarray, servers: int, populations: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """X (n, ...) and R (n, ..., K) when each phase visits all servers at once, for demands D (..., K), servers first.

    Mean-value analysis in which a phase takes as long as its slowest server, but at least as long as the worker's own
    link needs for all of it (approximate: the largest of the means stands for the mean of the largest). The phase's
    time is reported as its servers' residence times, in proportion.
    """
    D = D.reshape(*D.shape[:-1], servers, -1)
    own = D.sum(axis=-2)
    X = np.empty((len(populations), *D.shape[:-2]))
    R = np.empty((len(populations), *D.shape))
    Q = np.zeros(D.shape)
    best = np.zeros(D.shape[:-2])
    row = 0
    for n in range(1, int(populations[-1]) + 1):
        r = D * (1.0 + Q)
        phase = np.maximum(own, r.max(axis=-2))
        x = n / (Z + phase.sum(axis=-1))
        best = np.maximum(best, x)  # more workers never slow the servers down
        Q = x[..., None, None] * r
        if n == populations[row]:
            spent = phase * ((n / best - Z) / np.maximum(phase.sum(axis=-1), 1e-300))[..., None]  # Little's law
            X[row], R[row] = best, r * (spent / np.maximum(r.sum(axis=-2), 1e-300))[..., None, :]
            row += 1
    return X, R.reshape(*R.shape[:-2], -1)


def unequal_workers(
    D: np.ndarray, Z: np.ndarray, compute: float, speeds: tuple[float, ...], populations: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X (n, ...), R (n, ..., K) and think times (n, ...) when the first n workers have these speeds.

    Exact (a job class per speed) for one set of demands D (K,). Many sets (..., K) are solved by Bard's approximation,
    times the exact answer for their mean over Bard's.
    """
    rows = []
    for n in populations:
        factors = 1.0 / np.array(speeds[:n]) - 1.0
        Zi = np.maximum(Z[..., None] + compute * factors, 0.0)
        x, r = _one_customer_classes(D, Zi)
        weight = x / x.sum(axis=-1, keepdims=True)
        think = (weight * Zi).sum(axis=-1)
        bard = x.sum(axis=-1)
        if D.ndim == 1:
            X = np.asarray(_exact(D, Zi))
        else:
            mean, mean_think = D.reshape(-1, D.shape[-1]).mean(axis=0), Zi.reshape(-1, Zi.shape[-1]).mean(axis=0)
            X = bard * _exact(mean, mean_think) / _one_customer_classes(mean, mean_think)[0].sum()
        R = (weight[..., None] * r).sum(axis=-2)
        left = np.maximum(n / X - think, 0.0)  # Little's law for the whole cycle
        rows.append((X, R * (left / R.sum(axis=-1))[..., None], think))
    X, R, think = (np.array(column) for column in zip(*rows, strict=True))
    return X, R, think


def _exact(D: np.ndarray, Z: np.ndarray) -> float:
    """Throughput of all workers, those of the same think time in one class."""
    kinds, counts = np.unique(Z, return_counts=True)
    classes = [
        JobClass(f"worker {i}", population=int(count), think_time=float(think))
        for i, (think, count) in enumerate(zip(kinds, counts, strict=True))
    ]
    stations = [Station(f"station {k}", service_time=float(demand)) for k, demand in enumerate(D)]
    return solve(Network(stations, classes=classes)).throughput


def _one_customer_classes(D: np.ndarray, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Throughputs (..., N) and residence times (..., N, K) of N classes of one customer with think times Z (..., N)."""
    K = D.shape[-1]
    Q = np.full((*Z.shape, K), 1.0 / (K + 1))
    for _ in range(10_000):
        r = D[..., None, :] * (1.0 + Q.sum(axis=-2, keepdims=True) - Q)  # an arrival sees the others (Bard, 1979)
        x = 1.0 / (Z + r.sum(axis=-1))
        before, Q = Q, x[..., None] * r
        if np.abs(Q - before).max() < 1e-10:
            break
    return x, r
