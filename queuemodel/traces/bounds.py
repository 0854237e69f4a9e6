"""Asymptotic bounds of a simulated curve, from what its stations were busy with."""

from __future__ import annotations

import numpy as np


def busy_bounds(
    workers: np.ndarray, X: np.ndarray, D: np.ndarray, single: float, speeds: np.ndarray, synchronization: str
) -> tuple[np.ndarray, np.ndarray]:
    """
    Asymptotic bounds on throughput (Muntz and Wong, 1974) from what simulated steps used.

    At best nobody waits, or the busiest station always works; at worst every worker waits for all others at every
    station. Where sampling takes the simulated throughput itself across a bound, the bound is moved there.

    Parameters
    ----------
    workers, X : ndarray, shape (n,)
        Numbers of workers, and simulated steps per second.
    D : ndarray, shape (n, K)
        Seconds that a step keeps each of the servers' stations busy.
    single : float
        Steps per second of the first worker alone.
    speeds : ndarray, shape (1,) or (N,)
        Of the workers' computations, relative to the first's; one for all, or one each.
    synchronization : str
        Those who wait for others by rule have no lower bound: it is NaN.

    Returns
    -------
    lower, upper : ndarray, shape (n,)
    """
    lower, upper = np.full(len(workers), np.nan), np.empty(len(workers))
    for i, n in enumerate(workers.tolist()):
        each = np.broadcast_to(speeds, n) if len(speeds) == 1 else speeds[:n]
        upper[i] = min(single * np.maximum(each, 1.0).sum(), 1.0 / max(D[i].max(), 1e-300))
        if synchronization == "async":
            lower[i] = (1.0 / (np.maximum(1 / each, 1.0) / single + (n - 1) * D[i].sum())).sum()
    return np.minimum(lower, X), np.maximum(upper, X)
