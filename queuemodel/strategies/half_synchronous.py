"""Rounds on parameter servers: all workers start together, and the round ends with the K-th result.

Each is a rule of `queuemodel.training.rules` around the closed network of the same job, so that fit, what-ifs,
intervals and plans are those of asynchronous training. What all do together comes to the servers at once: n workers
fetch for n times as long, some sooner than others, and the results share the server.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..training.rules import Pace, Rule
from .half_bounds import Bounds, k_batch_sync, k_sync, with_late
from .meeting import arriving, fetching, paces, passing, phases, pushes, settled
from .order_statistics import ordered, rejoined, shared, superposed


@dataclass(frozen=True, slots=True)
class KSync:
    """The K fastest of n count; the others are cut short, and all start anew (Dutta et al., 2018).

    K = n is the barrier of synchronous training. The mean of the K-th smallest own time is exact. Results come to a
    server that shares its time equally (`passing`) at their mean times (`arriving`), which is exact where nobody waits
    or nothing varies, and mostly a little too fast otherwise.

    Attributes
    ----------
    base : Rule
        Of the same cluster without rounds.
    servers : int
    scv : float
        Squared coefficient of variation of a worker's own time.
    k : int
        0: all.
    spread : float
        Standard deviation of the logarithm of fetches' shares of the link: those that begin together end one after the
        other, so that pushes meet less.
    """

    base: Rule
    servers: int
    scv: float
    k: int = 0
    spread: float = 0.0

    method = "order statistics (rounds, approximate)"

    def solve(self, D: np.ndarray, Z: np.ndarray, populations: np.ndarray) -> Pace:
        """See `Rule`."""
        return paces(self.base, D, Z, populations, self._round, self.bounds)

    def bounds(self, D: np.ndarray, Z: np.ndarray, n: int) -> Bounds:
        """Least and most steps per second that count, of n workers; NaN where no round can be."""
        K = self.k or n
        if n < K:
            return Bounds(np.full(Z.shape, np.nan), np.full(Z.shape, np.nan))
        return k_sync(D, Z, n, servers=self.servers, scv=self.scv, K=K)

    def _round(self, D: np.ndarray, Z: np.ndarray, n: int) -> tuple[int, np.ndarray] | None:
        K = self.k or n
        return None if n < K else (K, self.seconds(D, Z, n, K))

    def seconds(self, D: np.ndarray, Z: np.ndarray, n: int, K: int) -> np.ndarray:
        """Seconds until K of n who begin together are through, shape of Z."""
        own = Z[..., None] * ordered(n, n, self.scv)
        return passing(arriving(own, fetching(D, self.servers, n), self.spread), D, self.servers, K)


@dataclass(frozen=True, slots=True)
class BackupWorkers:
    """The first n - b count; who is late ends its step, which is lost, and joins the round under way.

    Backup workers of Chen et al. (2016), late ones as TensorFlow's. The K = n - b who count wait for the slowest of
    them, late ones for nobody, so that these catch up, until they count: as many as K follow close behind, and a round
    is that of `KSync`. Where own times vary they end late steps first (`rejoined`, in proportion to ``scv``). More of
    them, n - 2K of n - 2, go on in any phase, as all do where K = 1; then K of n asynchronous steps count. What drives
    workers apart (`ParallelServers.settled`) drives those who count and late ones apart, too, the less the more count
    and the fewer are late: a K-th of it, or the late ones' share b/n, whichever is less. Exact for exponential times
    without a server; else approximate, with shares found by simulation.
    """

    base: Rule
    servers: int
    scv: float
    backup_workers: int
    spread: float = 0.0

    method = KSync.method

    def solve(self, D: np.ndarray, Z: np.ndarray, populations: np.ndarray) -> Pace:
        """See `Rule`."""
        asynchronous = dict(zip(populations.tolist(), self.base.solve(D, Z, populations).X, strict=True))
        cut = KSync(self.base, self.servers, self.scv, spread=self.spread)
        rejoining = rejoined(max(int(populations[-1]) - self.backup_workers, 1), self.backup_workers)

        def round_of(D: np.ndarray, Z: np.ndarray, n: int) -> tuple[int, np.ndarray] | None:
            K = n - self.backup_workers
            if K < 1:
                return None
            late, scv = rejoining[K - 1], min(self.scv, 1.0)
            behind = K / (cut.seconds(D, Z, n, K) + scv * Z * (late - ordered(K, n, 1.0)[-1]))
            own = Z * asynchronous[n] / n
            varies = scv * own**2 + (self.spread * (1 - own)) ** 2
            apart = K / n * asynchronous[n] * (1 + varies * (1 / late - 1))
            return K, K / (behind + self._apart(K, n) * (apart - behind))

        return paces(self.base, D, Z, populations, round_of, self.bounds)

    def _apart(self, K: int, n: int) -> float:
        """How far late workers are in any phase, rather than close behind the K who count, 0 to 1."""
        if K == 1:
            return 1.0
        free = max(n - 2 * K, 0) / (n - 2)
        return free + (1 - free) * settled(self.base) * min(1 / K, 1 - K / n)

    def bounds(self, D: np.ndarray, Z: np.ndarray, n: int) -> Bounds:
        """Least and most steps per second that count, of n workers; NaN where no round can be."""
        K = n - self.backup_workers
        if K < 1:
            return Bounds(np.full(Z.shape, np.nan), np.full(Z.shape, np.nan))
        return with_late(D, Z, n, servers=self.servers, scv=self.scv, K=K)


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
