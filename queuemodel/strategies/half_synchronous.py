"""Rounds on parameter servers: all workers start together, and the round ends with the K-th result.

Each is a rule of `queuemodel.training.rules` around the closed network of the same job, so that fit, what-ifs,
intervals and plans are those of asynchronous training. What all do together comes to the servers at once: n workers
fetch for n times as long, some sooner than others, and the results share the server.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..training.rules import Pace, Rule
from .half_bounds import Bounds, k_batch_sync, k_sync
from .meeting import arriving, fetching, paces, passing, phases, pushes
from .order_statistics import ordered, shared, superposed


@dataclass(frozen=True, slots=True)
class KSync:
    """The K fastest of n count; the others are cut short, and all start anew (Dutta et al., 2018).

    K = n is the barrier of synchronous training; K = n - b has b backup workers (Chen et al., 2016). The mean of the
    K-th smallest own time is exact. Results come to a server that shares its time equally (`passing`) at their mean
    times (`arriving`), which is exact where nobody waits or nothing varies, and mostly a little too fast otherwise.

    Attributes
    ----------
    base : Rule
        Of the same cluster without rounds.
    servers : int
    scv : float
        Squared coefficient of variation of a worker's own time.
    k, backup_workers : int
        0: all; and how many fewer than all.
    spread : float
        Standard deviation of the logarithm of fetches' shares of the link: those that begin together end one after the
        other, so that pushes meet less.
    """

    base: Rule
    servers: int
    scv: float
    k: int = 0
    backup_workers: int = 0
    spread: float = 0.0

    method = "order statistics (rounds, approximate)"

    def solve(self, D: np.ndarray, Z: np.ndarray, populations: np.ndarray) -> Pace:
        """See `Rule`."""
        return paces(self.base, D, Z, populations, self._round, self.bounds)

    def bounds(self, D: np.ndarray, Z: np.ndarray, n: int) -> Bounds:
        """Least and most steps per second that count, of n workers; NaN where no round can be."""
        K = self.k or n - self.backup_workers
        if not 0 < K <= n:
            return Bounds(np.full(Z.shape, np.nan), np.full(Z.shape, np.nan))
        return k_sync(D, Z, n, servers=self.servers, scv=self.scv, K=K)

    def _round(self, D: np.ndarray, Z: np.ndarray, n: int) -> tuple[int, np.ndarray] | None:
        K = self.k or n - self.backup_workers
        if not 0 < K <= n:
            return None
        own = Z[..., None] * ordered(n, n, self.scv)
        return K, passing(arriving(own, fetching(D, self.servers, n), self.spread), D, self.servers, K)


@dataclass(frozen=True, slots=True)
class KBatchSync:
    """The first K results of any worker count; who is through begins another at once (Dutta et al., 2018).

    Without waiting at the server exact for gamma times, K/(n mu) for exponential ones. With a server, each result
    takes a worker its own time and its push, and the K-th is not through before the closed network without fetches has
    made K steps (approximate). Fetches end as in `KSync`.
    """

    base: Rule
    servers: int
    scv: float
    k: int
    spread: float = 0.0

    method = "order statistics (rounds, approximate)"

    def solve(self, D: np.ndarray, Z: np.ndarray, populations: np.ndarray) -> Pace:
        """See `Rule`."""
        pushing = self.base.solve(pushes(D, self.servers), Z, populations).X
        steady = {n: self.k / X for n, X in zip(populations.tolist(), pushing, strict=True)}

        def round_of(D: np.ndarray, Z: np.ndarray, n: int) -> tuple[int, np.ndarray]:
            push, fetch = phases(D, self.servers)[3], fetching(D, self.servers, n)
            ends = (Z + push)[..., None] * superposed(max(self.k, n), n, self.scv) - push[..., None]
            first = arriving(ends[..., :n], fetch, self.spread)
            later = ends[..., n:] + (fetch * shared(n, self.spread).mean())[..., None]
            came = np.sort(np.concatenate([first, later], axis=-1), axis=-1)
            begun = fetch * shared(n, self.spread)[0]
            return self.k, np.maximum(passing(came, D, self.servers, self.k), begun + steady[n])

        return paces(self.base, D, Z, populations, round_of, self.bounds)

    def bounds(self, D: np.ndarray, Z: np.ndarray, n: int) -> Bounds:
        """Least and most steps per second that count, of n workers."""
        return k_batch_sync(D, Z, n, servers=self.servers, scv=self.scv, K=self.k)
