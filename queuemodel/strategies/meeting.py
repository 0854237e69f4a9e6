"""What it costs to meet at the servers: fetches of all at once, results that come together, and the pace of rounds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..training.parallel_servers import ParallelServers
from ..training.rules import NOTHING, Pace, Rule
from .order_statistics import shared


def phases(D: np.ndarray, servers: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Seconds of a fetch at the busiest server and of all of it, and the same of what comes after computing."""
    each = D.reshape(*D.shape[:-1], servers, -1)
    busiest, whole = each.max(axis=-2), each.sum(axis=-2)
    first = 1 if each.shape[-1] > 1 else 0  # one station alone serves what comes after computing
    after = busiest[..., first:].max(axis=-1), whole[..., first:].sum(axis=-1)
    return busiest[..., :first].sum(axis=-1), whole[..., :first].sum(axis=-1), *after


def settled(base: Rule) -> float:
    """How firmly groups settle in opposite phases, 0 to 1: what drives workers apart drives groups apart."""
    return base.settled if isinstance(base, ParallelServers) else 0.0


def fetching(D: np.ndarray, servers: int, n: int) -> np.ndarray:
    """Seconds until n workers who ask at once have the parameters."""
    busiest, whole, *_ = phases(D, servers)
    return np.maximum(n * busiest, whole)


def arriving(own: np.ndarray, fetch: np.ndarray, spread: float) -> np.ndarray:
    """Mean times (..., n), increasing, of n results that follow own times (..., n) after fetches of one beginning.

    The n fetches take ``fetch`` (...) together, and end one after the other by unequal shares of the link (`shared`).
    Exact where fetches end together or own times are alike; else both spreads are combined as those of independent
    times.
    """
    ends = fetch[..., None] * shared(own.shape[-1], spread)
    apart, later = ends - ends.mean(axis=-1, keepdims=True), own - own.mean(axis=-1, keepdims=True)
    first, second = apart.std(axis=-1, keepdims=True), later.std(axis=-1, keepdims=True)
    between = (first * apart + second * later) / np.maximum(np.hypot(first, second), NOTHING)
    return (ends + own).mean(axis=-1, keepdims=True) + between


def pushes(D: np.ndarray, servers: int) -> np.ndarray:
    """The demands without those of fetches."""
    each = D.reshape(*D.shape[:-1], servers, -1).copy()
    if each.shape[-1] > 1:
        each[..., 0] = 0.0
    return each.reshape(D.shape)


def passing(arrivals: np.ndarray, D: np.ndarray, servers: int, K: int) -> np.ndarray:
    """Seconds until K of the results that arrive at these increasing times (..., n) are through, shape (...).

    Exact for a server that shares its time equally: who comes first is through first, and the last of all when a server
    that takes them in order is done. Where several stations follow, the busiest is shared.
    """
    *_, busiest, whole = phases(D, servers)
    n = arrivals.shape[-1]
    if n == K:
        behind = np.arange(n)[::-1]
        return (arrivals + behind * busiest[..., None]).max(axis=-1) + whole
    from .kernels.passing import kth_through

    rows = np.ascontiguousarray(arrivals.reshape(-1, n), dtype=float)
    now = kth_through(rows, np.broadcast_to(busiest, whole.shape).ravel(), K).reshape(whole.shape)
    return now + whole - busiest


def paces(
    base: Rule,
    D: np.ndarray,
    Z: np.ndarray,
    populations: np.ndarray,
    round_of: Callable[[np.ndarray, np.ndarray, int], tuple[int, np.ndarray] | None],
    bounds_of: Callable[[np.ndarray, np.ndarray, int], tuple[np.ndarray, np.ndarray]],
) -> Pace:
    """Paces from the steps of a round that count and its time, within their bounds; ``base``'s where no round can be.

    The servers' share of a worker's cycle is that of an asynchronous one; waiting for others counts as its own time.
    """
    pace = base.solve(D, Z, populations)
    X = pace.X.copy()
    for row, n in enumerate(populations.tolist()):
        counted = round_of(D, Z, n)
        if counted is not None:
            X[row] = np.clip(counted[0] / np.maximum(counted[1], NOTHING), *bounds_of(D, Z, n))
    cycle = populations.reshape(-1, *[1] * Z.ndim) / X
    R = np.minimum(pace.R, cycle[..., None] / D.shape[-1])
    return Pace(X, R, cycle - R.sum(axis=-1))
