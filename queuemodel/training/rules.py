"""How steps wait for each other: a rule of its own for each kind of cluster, each a value with one method.

A rule gets what a step demands and says how fast so many workers make steps. Another way of training (all-reduce,
synchronous servers) is another rule.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import ModelError
from ..solvers import knee_throughput, mva_recursion
from .flights import Flights
from .pace import NOTHING, Pace, Rule
from .parallel_servers import ParallelServers


@dataclass(frozen=True, slots=True)
class ClosedNetwork:
    """Equal workers and one server: a closed network of processor-sharing queues, Z (...).

    Mean-value analysis (Reiser and Lavenberg, 1980), exact for any distribution of service times (Baskett, Chandy,
    Muntz and Palacios, 1975).
    """

    method = "mva (exact, processor sharing)"

    def solve(self, D: np.ndarray, Z: np.ndarray, populations: np.ndarray) -> Pace:
        """See `Rule`."""
        X, R = mva_recursion(D, Z, populations)
        return Pace(X, R, np.broadcast_to(Z, X.shape))


@dataclass(frozen=True, slots=True, eq=False)
class Knee:
    """Equal workers whom servers that vary little serve in order of arrival, Z (...).

    Throughput by `queuemodel.solvers.knee_throughput` (approximate), of a width of its own for each set of demands;
    waiting is divided over the stations as ``sharing`` has it.
    """

    width: np.ndarray | float
    sharing: ClosedNetwork | ParallelServers

    method = "mva (fcfs knee)"

    def solve(self, D: np.ndarray, Z: np.ndarray, populations: np.ndarray) -> Pace:
        """See `Rule`."""
        shared = self.sharing.solve(D, Z, populations).R  # shorter than the demands where servers work at once
        waiting = np.maximum(shared - D, 0.0) + 1e-9 * D  # where there is none, like the demands
        N = populations.reshape(-1, *[1] * Z.ndim)
        X = knee_throughput(N, cycle=D.sum(axis=-1) + Z, demand=D.max(axis=-1), width=self.width)
        left = np.maximum(N / X - Z - D.sum(axis=-1), 0.0)  # Little's law for the whole cycle
        R = D + waiting * (left / np.maximum(waiting.sum(axis=-1), NOTHING))[..., None]
        return Pace(X, R, np.broadcast_to(Z, X.shape))


@dataclass(frozen=True, slots=True)
class UnequalWorkers:
    """One server and workers with times of their own, Z (..., N): n workers are the first n of them.

    Exact for processor sharing. All workers demand the same of the server, so that it serves m of them at the rate x(m)
    of a closed network of m customers without think time (Chandy, Herzog and Woo, 1975), whoever they are; W(m), how
    likely m of n workers are there, follows by adding worker after worker:
    W_n(m) ~ Z_n W_{n-1}(m) + m / x(m) W_{n-1}(m-1).
    """

    method = "mva (exact, processor sharing, unequal workers)"

    def solve(self, D: np.ndarray, Z: np.ndarray, populations: np.ndarray) -> Pace:
        """See `Rule`."""
        most = int(populations[-1])
        D = np.maximum(D, NOTHING)
        x, r, _ = ClosedNetwork().solve(D, np.zeros(D.shape[:-1]), np.arange(1, most + 1))
        slowness = np.arange(1, most + 1).reshape(-1, *[1] * (x.ndim - 1)) / x
        queues = x[..., None] * r
        W = np.zeros((most + 1, *x.shape[1:]))
        W[0] = 1.0
        paces = []
        for n in range(1, most + 1):
            W[1 : n + 1] = Z[..., n - 1] * W[1 : n + 1] + slowness[:n] * W[:n]
            W[0] *= Z[..., n - 1]
            W[: n + 1] /= W[: n + 1].sum(axis=0)
            if n in populations:
                X = (W[1 : n + 1] * x[:n]).sum(axis=0)
                R = np.einsum("m...,m...k->...k", W[1 : n + 1], queues[:n]) / X[..., None]  # Little's law
                paces.append(Pace(X, R, n / X - R.sum(axis=-1)))
        return Pace(*map(np.array, zip(*paces, strict=True)))


def rule_for(
    *,
    servers: int,
    unequal: bool,
    width: np.ndarray | float | None,
    settled: float = 0.0,
    flights: Flights | None = None,
) -> Rule:
    """The rule of a cluster; ``width`` is the knee's, or None where the server shares its time.

    Equal workers alone are ``settled``: cycles of different length drift through all phases.

    Raises
    ------
    ModelError
        For a combination that no rule covers.
    """
    if unequal and (servers > 1 or width is not None):
        what = f"{servers} parameter servers" if servers > 1 else "a fit of throughputs"
        raise ModelError(
            f"worker_speeds: no rule of the closed network covers unequal workers with {what}; "
            "ask for one server, or simulate recorded operations (method 'trace')"
        )
    if unequal:
        return UnequalWorkers()
    exact = servers == 1 and not (settled or flights)
    sharing = ClosedNetwork() if exact else ParallelServers(servers, settled, flights)
    return sharing if width is None else Knee(width, sharing)
