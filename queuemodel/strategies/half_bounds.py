"""Bounds of half-synchronous throughput: for constant demands, gamma own times and servers that never idle with work.

A round is over when those it waits for have computed and all that they brought to the servers meanwhile is served; it
lasts at least as long as their computation with a step's demands, and as the busiest server needs for what counts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..training.rules import NOTHING
from .meeting import phases
from .order_statistics import ordered, superposed


class Bounds(NamedTuple):
    """Steps per second that count: at least, and at most."""

    lower: np.ndarray
    upper: np.ndarray


def free(D: np.ndarray, Z: np.ndarray, n: int) -> Bounds:
    """Workers who wait for nobody: n / (Z + n D), and the least of n / (Z + D) and 1 / D_max (Denning and Buzen, 1978).

    Those who wait besides keep the upper ones.
    """
    total = D.sum(axis=-1)
    return Bounds(n / (Z + n * total), np.minimum(n / (Z + total), 1 / np.maximum(D.max(axis=-1), NOTHING)))


def k_sync(D: np.ndarray, Z: np.ndarray, n: int, *, servers: int, scv: float, K: int) -> Bounds:
    """The first K of n count: own times t_(K), with the work of all n or of one."""
    own = Z * ordered(K, n, scv)[-1]
    busiest_fetch, fetch, busiest, after = phases(D, servers)
    lower = K / (own + n * (fetch + after))
    return Bounds(lower, K / np.maximum.reduce([own + fetch + after, K * busiest_fetch, K * busiest]))


def with_late(D: np.ndarray, Z: np.ndarray, n: int, *, servers: int, scv: float, K: int) -> Bounds:
    """Others begin later than the K who begin together, so that no round is shorter than with all from the start.

    It is over when the slowest of the K is, with the work of all and what late steps still bring.
    """
    _, fetch, _, after = phases(D, servers)
    lower = K / (Z * ordered(K, K, scv)[-1] + n * (fetch + after) + (n - K) * after)
    return Bounds(lower, k_sync(D, Z, n, servers=servers, scv=scv, K=K).upper)


def k_batch_sync(D: np.ndarray, Z: np.ndarray, n: int, *, servers: int, scv: float, K: int) -> Bounds:
    """The first K results of any worker: at the latest when each has made ⌈K/n⌉."""
    _, fetch, busiest, after = phases(D, servers)
    steps = -(-K // n)
    last = Z * steps * ordered(n, n, scv / steps)[-1]
    first = Z * superposed(K, n, scv)[-1]
    lower = K / (last + n * fetch + (K + n - 1) * after)
    return Bounds(lower, K / np.maximum(first + fetch + after, K * busiest))


def k_async(D: np.ndarray, Z: np.ndarray, n: int, *, scv: float, K: int) -> Bounds:
    """The K who begin together are through when the slowest of them is, others may be sooner."""
    without = free(D, Z, n)
    if K == 1:
        return without
    return Bounds(K / (Z * ordered(K, K, scv)[-1] + n * D.sum(axis=-1)), without.upper)


def bounded_staleness(D: np.ndarray, Z: np.ndarray, n: int, *, scv: float) -> Bounds:
    """The slowest worker makes its next step in the time of the slowest of n steps and the work of all."""
    return Bounds(n / (Z * ordered(n, n, scv)[-1] + n * D.sum(axis=-1)), free(D, Z, n).upper)
