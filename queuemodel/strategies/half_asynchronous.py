"""Between a barrier and none: the server waits for K results, or workers for each other, but nobody starts together."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..training.parallel_servers import ParallelServers
from ..training.rules import Pace, Rule
from .half_bounds import Bounds, bounded_staleness, k_async
from .half_synchronous import KSync
from .meeting import arriving, fetching, paces, passing, settled
from .order_statistics import ordered

#: Populations with own times of their own that are solved at once.
TOGETHER = 16


@dataclass(frozen=True, slots=True)
class KAsync:
    """The server applies K results of different workers at once; these wait for it, the others go on (Dutta et al.).

    Exact for exponential times without a server, where the others' rest is as long as a new time, and for K = 1, the
    closed network; K = n is the barrier of `KSync`. For times that vary less the least of three: the K-th smallest of
    n, of their own law and of the exponential one, and floor(n / K) groups of K one after the other. The K who start
    together meet at the server; the more times vary, the more of that is hidden by the others. As far as workers are
    ``settled`` in opposite phases (`ParallelServers`), so are groups, each one customer with K times the demands. Never
    faster than the closed network.
    """

    base: Rule
    servers: int
    scv: float
    k: int
    spread: float = 0.0

    method = "order statistics (k-async, approximate)"

    def solve(self, D: np.ndarray, Z: np.ndarray, populations: np.ndarray) -> Pace:
        """See `Rule`."""
        asynchronous = dict(zip(populations.tolist(), self.base.solve(D, Z, populations).X, strict=True))

        def round_of(D: np.ndarray, Z: np.ndarray, n: int) -> tuple[int, np.ndarray] | None:
            K = self.k
            if not 1 < K <= n:
                return None

            def ending(times: np.ndarray, groups: int = 1) -> np.ndarray:
                own = Z[..., None] * times
                came = arriving(own, fetching(D, self.servers, K), self.spread)
                served = passing(came, D, self.servers, K) - own[..., -1]
                return own[..., -1] / groups + share * served

            share = 1 - (1 - K / n) * min(self.scv**0.5, 1.0)
            ends = [ending(ordered(K, n, self.scv)), ending(ordered(K, K, self.scv), n // K)]
            if self.scv < 1 and n > K:  # there are others
                ends.append(ending(ordered(K, n, 1.0)))
            together = np.minimum.reduce(ends)
            apart = np.minimum(self._apart(D, Z * ordered(K, K, self.scv)[-1], n // K), together)
            return K, np.maximum(together + settled(self.base) * (apart - together), K / asynchronous[n])

        return paces(self.base, D, Z, populations, round_of, self.bounds)

    def _apart(self, D: np.ndarray, Z: np.ndarray, groups: int) -> np.ndarray:
        """Seconds between the rounds of so many groups, each of which visits the servers as one customer."""
        base = replace(self.base, flights=None) if isinstance(self.base, ParallelServers) else self.base
        return 1 / base.solve(self.k * D, Z, np.array([groups])).X[0]

    def bounds(self, D: np.ndarray, Z: np.ndarray, n: int) -> Bounds:
        """Least and most steps per second, of n workers."""
        return k_async(D, Z, n, scv=self.scv, K=min(self.k, n))


@dataclass(frozen=True, slots=True)
class KBatchAsync:
    """The server applies K results at once, of whatever workers, who never wait: results come as without it.

    Exact: updates come at X(N)/K of the closed network, also with unequal workers.
    """

    base: Rule
    k: int

    @property
    def method(self) -> str:
        """That of the closed network."""
        return self.base.method

    def solve(self, D: np.ndarray, Z: np.ndarray, populations: np.ndarray) -> Pace:
        """See `Rule`."""
        return self.base.solve(D, Z, populations)


@dataclass(frozen=True, slots=True)
class BoundedStaleness:
    """A worker is at most s steps ahead of the slowest (Ho et al., 2013); s = 0 is a barrier.

    Approximate for s >= 1. Workers drift apart like Brownian particles held within s steps of the last one. For two of
    them the leader is held up for scv/2s of its own time; for n, with a first-order correction for whole steps, for
    H_{n-1}/2 scv / (s + 0.6 cv). The closed network has that much more own time, as waiting for servers hides it. What
    meeting at the servers costs at a barrier is there every s + 1 steps, and less where times hardly vary (a share of
    3 cv, found by simulation).
    """

    base: Rule
    servers: int
    scv: float
    staleness_bound: int
    spread: float = 0.0

    method = "mva (approximate, bounded staleness)"

    def solve(self, D: np.ndarray, Z: np.ndarray, populations: np.ndarray) -> Pace:
        """See `Rule`."""
        barrier = KSync(self.base, self.servers, self.scv, spread=self.spread).solve(D, Z, populations)
        s = self.staleness_bound
        if s == 0:
            return barrier
        longer = []
        for n in populations.tolist():
            held = sum(1 / i for i in range(1, n)) / 2 * self.scv / (s + 0.6 * self.scv**0.5)
            most = float(ordered(n, n, self.scv / (s + 1))[-1])  # a barrier every s + 1 steps
            longer.append(min(1 + held, most))
        X, R = _each(self.base, D, Z, populations, np.array(longer))
        N = populations.reshape(-1, *[1] * Z.ndim)
        slowest = np.array([ordered(n, n, self.scv)[-1] for n in populations.tolist()]).reshape(N.shape)
        meeting = np.maximum(N / barrier.X - slowest * Z - R.sum(axis=-1), 0.0)
        meeting *= min(1.0, 3 * self.scv**0.5) / (s + 1)
        X = np.maximum(N / (N / X + meeting), barrier.X)
        limits = (self.bounds(D, Z, n) for n in populations.tolist())
        X = np.clip(X, *map(np.array, zip(*limits, strict=True)))
        return Pace(X, R, N / X - R.sum(axis=-1))

    def bounds(self, D: np.ndarray, Z: np.ndarray, n: int) -> Bounds:
        """Least and most steps per second, of n workers."""
        return bounded_staleness(D, Z, n, scv=self.scv)


def _each(
    base: Rule, D: np.ndarray, Z: np.ndarray, populations: np.ndarray, longer: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """X and R of each population when own times are ``longer`` (n,) times as long, some populations at once."""
    X, R = [], []
    for first in range(0, len(populations), TOGETHER):
        block = slice(first, first + TOGETHER)
        own = longer[block].reshape(-1, *[1] * Z.ndim) * Z
        pace = base.solve(np.broadcast_to(D, (len(own), *D.shape)), own, populations[block])
        for i in range(len(own)):
            X.append(pace.X[i, i])
            R.append(pace.R[i, i])
    return np.array(X), np.array(R)
