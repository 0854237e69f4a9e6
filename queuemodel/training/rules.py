"""How steps wait for each other: a rule of its own for each kind of cluster, each a value with one method.

A rule gets what a step demands and says how fast so many workers make steps. Another way of training (all-reduce,
synchronous servers) is another rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from ..errors import ModelError
from ..solvers import knee_throughput
from ..solvers.recursions import mva_recursion

if TYPE_CHECKING:
    from .curve import ThroughputCurve

#: In the place of a demand of nothing, so that quotients stay finite (seconds).
NOTHING = 1e-300


class Pace(NamedTuple):
    """How fast n workers are: throughput X (n, ...), residence times R (n, ..., K), worker's own time Z (n, ...)."""

    X: np.ndarray
    R: np.ndarray
    Z: np.ndarray


class Rule(Protocol):
    """A kind of cluster."""

    @property
    def method(self) -> str:
        """Name of the method, and whether it is exact."""

    def solve(self, D: np.ndarray, Z: np.ndarray, populations: np.ndarray) -> Pace:
        """The pace at increasing populations (n,), for demands D (..., K) and workers' own times Z."""


class Waiting(Protocol):
    """Another way of training on the same cluster, in which results or workers wait for others."""

    def __call__(self, base: Rule, servers: int, /) -> Rule:
        """The rule around that of workers on their own."""

    def require_workers(self, workers: list[int], /) -> None:
        """Refuse numbers of workers that cannot train so."""

    def bounds(self, rule: Rule, D: np.ndarray, Z: np.ndarray, workers: np.ndarray, /) -> tuple[np.ndarray, np.ndarray]:
        """Least and most steps per second of equal workers."""

    def told(self, curve: ThroughputCurve, /) -> ThroughputCurve:
        """The curve, with what a round of it is."""


@dataclass(frozen=True, slots=True)
class ClosedNetwork:
    """Equal workers and one server: a closed network of processor-sharing queues, Z (...).

    Mean-value analysis (Reiser and Lavenberg, 1980), exact for any distribution of service times (Baskett, Chandy,
    Muntz and Palacios, 1975).
    """

    method = "mva (exact, processor sharing)"

    def solve(self, D: np.ndarray, Z: np.ndarray, populations: np.ndarray) -> Pace:
        """See `Rule`."""
        X, R = mva_recursion(D, Z, np.zeros(D.shape[-1], dtype=bool), populations)
        return Pace(X, R, np.broadcast_to(Z, X.shape))


@dataclass(frozen=True, slots=True)
class ParallelServers:
    """Equal workers whose steps visit all servers at once, for demands D with one server's after the other's, Z (...).

    Mean-value analysis with three additions, all without effect for one worker. Exact for one server, ``settled`` and
    ``handover`` of 0 (the default), else approximate. The phase's time is reported as its servers' residence times, in
    proportion to their demands.

    Attributes
    ----------
    servers : int
        With several, means are those of a maximum (`in_parallel`): against simulations of the same network within 3 %
        where servers are alike, and up to 11 % too high around the knee where one has most of the load, because
        workers then bunch there.
    settled : float
        How firmly workers settle in opposite phases, 0 to 1. Computation that overlaps transfers drives them apart: who
        comes second to a link has it alone at the end, and the less of its computation is done by then. Of one of the
        others, its neighbour, a worker then meets half as much as by chance: D U / (2 (n - 1)) less waiting. Half is
        between simulations of steps that repeat exactly (nothing left to meet) and of recorded ones (two thirds).
    handover : float
        Relative loss of a link's rate while several connections share it.
    """

    servers: int = 1
    settled: float = 0.0
    handover: float = 0.0

    @property
    def method(self) -> str:
        """Name of the method, and whether it is exact."""
        return f"mva (approximate, {'servers in parallel' if self.servers > 1 else 'settled phases'})"

    def solve(self, D: np.ndarray, Z: np.ndarray, populations: np.ndarray) -> Pace:
        """See `Rule`."""
        D = D.reshape(*D.shape[:-1], self.servers, -1)
        largest_first, own = -np.sort(-D, axis=-2), D.sum(axis=-2)
        busiest = largest_first[..., 0, :]
        met = busiest - largest_first[..., 1, :] if self.servers > 1 else busiest  # what another worker delays
        X = np.empty((len(populations), *D.shape[:-2]))
        R = np.empty((len(populations), *D.shape))
        Q, U = np.zeros(own.shape), np.zeros(own.shape)
        best = np.zeros(D.shape[:-2])
        row = 0
        for n in range(1, int(populations[-1]) + 1):
            slower = 1.0 + self.handover * np.minimum(Q, 1.0)
            spared = self.settled * met * U / (2 * max(n - 1, 1))
            phase = slower * (in_parallel(largest_first, Q, others=n - 1) - spared)
            capacity = 1.0 / np.maximum((busiest * slower).max(axis=-1), NOTHING)
            x = np.minimum(n / (Z + phase.sum(axis=-1)), capacity)
            best = np.maximum(best, x)  # more workers never slow the servers down
            Q, U = best[..., None] * phase, best[..., None] * busiest
            if n == populations[row]:
                spent = phase * ((n / best - Z) / np.maximum(phase.sum(axis=-1), NOTHING))[..., None]  # Little's law
                X[row], R[row] = best, D * (spent / np.maximum(own, NOTHING))[..., None, :]
                row += 1
        return Pace(X, R.reshape(*R.shape[:-2], -1), np.broadcast_to(Z, X.shape))


def in_parallel(D: np.ndarray, Q: np.ndarray, *, others: int) -> np.ndarray:
    """Mean time (..., F) of phases that end with their slowest server, when others are met there.

    A worker that is alone needs its own link for all demands, one after the other. Where K others are in the same
    phase, the busiest server gives each a share, and hides the K next busiest servers: the worker's link has room for
    them beside it. With D_1 >= D_2 >= ... and K binomial of mean Q,
    E[T] = D_1 (1 + Q) + P(K = 0) D_2 + P(K <= 1) D_3 + ...

    Parameters
    ----------
    D : ndarray, shape (..., P, F)
        Seconds of P servers, the largest first, for each of F phases.
    Q : ndarray, shape (..., F)
        Mean number of other workers in the phase, at most ``others``.
    others : int
    """
    p = np.minimum(Q / max(others, 1), 1.0 - 1e-9)
    exactly = (1.0 - p) ** others
    at_most = exactly
    uncertain = min(others, D.shape[-2] - 1)  # no more than the others are ever there
    time = D[..., 0, :] * (1.0 + Q) + D[..., uncertain + 1 :, :].sum(axis=-2)
    for k in range(uncertain):
        time = time + at_most * D[..., k + 1, :]
        exactly = exactly * (p / (1.0 - p)) * ((others - k) / (k + 1))
        at_most = at_most + exactly
    return time


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
    handover: float = 0.0,
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
    exact = servers == 1 and not (settled or handover)
    sharing = ClosedNetwork() if exact else ParallelServers(servers, settled, handover)
    return sharing if width is None else Knee(width, sharing)
