"""Analytical rules of contention, one for each kind of cluster: from service demands to the throughput of n workers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np

from ...base.checks import require_count
from ...base.errors import ModelError
from ...base.files import constants
from ...queueing.solve import mva_recursion
from ...transport.sharing import NOTHING, BbrSharing

#: Measured and assumed numbers, with their sources: constants.toml.
_NUMBERS = constants(__package__)["rules"]
SPREAD = _NUMBERS["spread"]
MOST_LEVELS = 40  #: Numbers of workers at a link for which its rate is given, at most.
#: Quantiles of a normal law: standard deviations that they cover, and the step between them for n = 1.
SIGMAS, STEP = 8.2, 0.6
ROWS = 1000  #: Order statistics that are integrated together.
CONSTANT = 1e-12  #: Squared coefficient of variation below which times are constant.


class Pace(NamedTuple):
    """Throughput X (n, ...), residence times R (n, ..., K) and worker times Z (n, ...) of n numbers of workers."""

    X: np.ndarray
    R: np.ndarray
    Z: np.ndarray


class Rule(Protocol):
    """A kind of cluster."""

    @property
    def method(self) -> str:
        """Name of the method, and whether it is exact."""

    def solve(self, D: np.ndarray, Z: np.ndarray, populations: np.ndarray) -> Pace:
        """Throughput at increasing populations (n,), for service demands D (..., K) and worker times Z."""


@dataclass(frozen=True, slots=True)
class ParallelServers:
    """Equal workers whose steps visit all servers at once, for demands D with one server's after the other's, Z (...).

    Mean-value analysis of stations whose rate depends on how many are there (Reiser and Lavenberg, 1980), with three
    additions, all without effect for one worker. A phase (fetch, push, update) is such a station. Exact for one server,
    ``desynchronization`` of 0 and no ``bbr_sharing`` (the default), else approximate. The phase's time is reported as
    its servers' residence times, in proportion to their demands.
    """

    #: With several, a phase ends with the slowest. With D_1 >= D_2 >= ... it takes j workers j D_1 + D_(j+1) + D_(j+2)
    #: + ...: each has a j-th of the busiest server, and its own link carries the j - 1 next busiest beside that.
    #: Against simulations of the same network within 4 % where servers are alike, and up to 12 % too high around the
    #: knee where one has most of the load, because workers then bunch there
    servers: int = 1
    #: Strength of desynchronization, 0 to 1: computation that overlaps transfers drives workers apart. An arrival finds
    #: a link busy with probability U^2 instead of U, which shortens waiting by D U (1 - U). Under BBR
    #: (``bbr_sharing``), whose losses mix offsets, it meets one neighbour half as often: D U / (2 (n - 1)), as recorded
    #: on the testbed
    desynchronization: float = 0.0
    #: How much of a link few workers use, of the first two phases: those that fetch and those that push
    bbr_sharing: BbrSharing | None = None

    @property
    def method(self) -> str:
        """Name of the method, and whether it is exact."""
        if self.servers > 1:
            return "mva (approximate, servers in parallel)"
        return f"mva (approximate, {'settled phases' if self.desynchronization else 'underutilized links'})"

    def solve(self, D: np.ndarray, Z: np.ndarray, populations: np.ndarray) -> Pace:
        D = D.reshape(*D.shape[:-1], self.servers, -1)
        largest_first, total = -np.sort(-D, axis=-2), D.sum(axis=-2)
        busiest = largest_first[..., 0, :]
        competing = busiest - largest_first[..., 1, :] if self.servers > 1 else busiest  # demand that another delays
        min_share = self.bbr_sharing.least_share(total[..., :2]) if self.bbr_sharing else np.ones(1)
        levels = min(max(self.servers, math.ceil(1.0 / min_share.min())) - 1, MOST_LEVELS, int(populations[-1]))
        j = np.arange(1, levels + 1).reshape(-1, *[1] * busiest.ndim)  # workers in a phase together
        # (D_(j+1) + D_(j+2) + ...) / D_1: the servers that j workers keep busy besides
        other_servers = np.array([largest_first[..., i + 1 :, :].sum(axis=-2) for i in range(levels)]).reshape(
            levels, *busiest.shape
        ) / np.maximum(busiest, NOTHING)
        X = np.empty((len(populations), *D.shape[:-2]))
        R = np.empty((len(populations), *D.shape))
        Q, U = np.zeros(total.shape), np.zeros(total.shape)
        p = np.zeros((levels + 1, *total.shape))  # probability of 0, 1, ... workers in a phase
        p[0] = 1.0
        best, row = np.zeros(D.shape[:-2]), 0
        for n in range(1, int(populations[-1]) + 1):
            slowness = j + other_servers  # time of a phase with j workers, in D_1
            if self.bbr_sharing:
                used = self.bbr_sharing.rates(min_share, Q[..., :2], workers=n, levels=levels)
                slowness[..., :2] += j / used - j  # BBR: j workers use less than the whole link
            # D U (1 - U), or D U / (2 (n - 1)) under BBR
            shorter = 1.0 / (2 * max(n - 1, 1)) if self.bbr_sharing else 1.0 - U
            saved = self.desynchronization * competing * U * shorter
            p_others = _thinned(p, saved / np.maximum(busiest * Q, NOTHING))
            # arrival theorem: R_n = D (1 + Q_(n-1)), where j at a time take more than j D also that
            phase = busiest * (1.0 + Q + (p_others * (slowness - j)).sum(axis=0)) - saved
            # X = n / (Z + R), at most 1 / D_max
            x = np.minimum(n / (Z + phase.sum(axis=-1)), 1.0 / np.maximum(busiest.max(axis=-1), NOTHING))
            best = np.maximum(best, x)  # more workers never slow the servers down
            Q, U = best[..., None] * phase, best[..., None] * busiest  # Little's law, utilization law
            p[1:] = U * slowness / j * p_others  # balance: rate of arrivals to j - 1 = rate of departures from j
            p[0] = np.maximum(1.0 - U - ((1.0 - j / slowness) * p[1:]).sum(axis=0), 0.0)
            p /= np.maximum(p.sum(axis=0), 1.0)
            if n == populations[row]:
                spent = phase * ((n / best - Z) / np.maximum(phase.sum(axis=-1), NOTHING))[..., None]  # Little's law
                X[row], R[row] = best, D * (spent / np.maximum(total, NOTHING))[..., None, :]
                row += 1
        return Pace(X, R.reshape(*R.shape[:-2], -1), np.broadcast_to(Z, X.shape))


def _thinned(p: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Probabilities (levels, ...) of 0, 1, ... others when each is absent with the small probability ``share``."""
    count = np.arange(len(p)).reshape(-1, *[1] * share.ndim)
    absent = count * p * share  # first order: j others become j - 1
    return p[:-1] + absent[1:] - absent[:-1]


@dataclass(frozen=True, slots=True)
class ClosedNetwork:
    """Equal workers and one server: a closed network of processor-sharing queues, Z (...).

    Mean-value analysis (Reiser and Lavenberg, 1980), exact for any distribution of service times (Baskett, Chandy,
    Muntz and Palacios, 1975).
    """

    method = "mva (exact, processor sharing)"

    def solve(self, D: np.ndarray, Z: np.ndarray, populations: np.ndarray) -> Pace:
        X, R = mva_recursion(D, Z, populations)
        return Pace(X, R, np.broadcast_to(Z, X.shape))


@dataclass(frozen=True, slots=True)
class UnequalWorkers:
    """One server and workers with different times, Z (..., N): n workers are the first n of them.

    Exact for processor sharing. All workers demand the same of the server, so that it serves m of them at the rate x(m)
    of a closed network of m customers without think time (Chandy, Herzog and Woo, 1975), whichever they are; W(m), how
    likely m of n workers are there, follows by adding worker after worker:
    W_n(m) ~ Z_n W_{n-1}(m) + m / x(m) W_{n-1}(m-1).
    """

    method = "mva (exact, processor sharing, unequal workers)"

    def solve(self, D: np.ndarray, Z: np.ndarray, populations: np.ndarray) -> Pace:
        N = int(populations[-1])
        D = np.maximum(D, NOTHING)
        x, r, _ = ClosedNetwork().solve(D, np.zeros(D.shape[:-1]), np.arange(1, N + 1))
        slowness = np.arange(1, N + 1).reshape(-1, *[1] * (x.ndim - 1)) / x  # m / x(m)
        queues = x[..., None] * r  # Little's law, of m customers at the server
        W = np.zeros((N + 1, *x.shape[1:]))
        W[0] = 1.0
        paces = []
        for n in range(1, N + 1):  # W_n(m) ~ Z_n W_(n-1)(m) + m / x(m) W_(n-1)(m-1)
            W[1 : n + 1] = Z[..., n - 1] * W[1 : n + 1] + slowness[:n] * W[:n]
            W[0] *= Z[..., n - 1]
            W[: n + 1] /= W[: n + 1].sum(axis=0)
            if n in populations:
                X = (W[1 : n + 1] * x[:n]).sum(axis=0)  # mean rate over m
                R = np.einsum("m...,m...k->...k", W[1 : n + 1], queues[:n]) / X[..., None]  # Little's law
                paces.append(Pace(X, R, n / X - R.sum(axis=-1)))
        return Pace(*map(np.array, zip(*paces, strict=True)))


@dataclass(frozen=True, slots=True)
class SlowConnections:
    """Equal workers whose connections are slower than the links that they share, as behind a policer, Z (...).

    They do not queue for a link until their rates add up to its own: throughput is its upper asymptotic bound
    (R. Muntz and J. Wong, 1974). Approximate: rates vary, so that links are full at times below that.
    """

    method = "asymptotic bound (approximate, connections slower than their links)"

    def solve(self, D: np.ndarray, Z: np.ndarray, populations: np.ndarray) -> Pace:
        """See `Rule`; all waiting is at the busiest station."""
        n, busiest = populations.reshape(-1, *[1] * Z.ndim), D.max(axis=-1)
        cycle = Z + D.sum(axis=-1)
        X = np.minimum(n / cycle, 1.0 / np.maximum(busiest, NOTHING))  # min(n / (Z + D), 1 / D_max)
        # R_k = D_k + (n / X - Z - D) at the busiest: Little's law over the cycle
        waiting = (n / X - cycle)[..., None] * (np.arange(D.shape[-1]) == D.argmax(axis=-1)[..., None])
        return Pace(X, D + waiting, np.broadcast_to(Z, X.shape))


def rule_for(
    *,
    servers: int,
    unequal: bool = False,
    desynchronization: float = 0.0,
    bbr_sharing: BbrSharing | None = None,
    slow_connections: bool = False,
) -> Rule:
    """The rule of a cluster; a `ModelError` for a combination that no rule covers.

    Equal workers alone are ``desynchronization``: cycles of different length drift through all phases.
    """
    if unequal and servers > 1:
        raise ModelError(
            f"worker_speeds: no rule of the closed network covers unequal workers with {servers} parameter servers; "
            "use one server, or simulate recorded operations (method 'trace')"
        )
    if unequal:
        return UnequalWorkers()
    if slow_connections:
        return SlowConnections()
    exact = servers == 1 and not (desynchronization or bbr_sharing)
    return ClosedNetwork() if exact else ParallelServers(servers, desynchronization, bbr_sharing)


@dataclass(frozen=True, slots=True)
class Barrier:
    """Rounds of all workers, a rule around that of the same cluster without rounds.

    All fetch at once, and end one after the other by unequal shares of the link (`ps_completion_times`). Gradients
    arrive in the order of means, with the spreads of fetches and of worker times combined as those of independent
    times, at a server that shares its time equally. Exact without waiting for a server, or where nothing varies; else
    mostly a little too fast (docs/explanation/strategies).
    """

    base: Rule  # Of the same cluster without rounds
    servers: int
    scv: float  # Squared coefficient of variation of a worker's own time, which follows a gamma law
    spread: float = SPREAD  # Standard deviation of the logarithms of fetches' shares of the link

    method = "order statistics (rounds, approximate)"

    def solve(self, D: np.ndarray, Z: np.ndarray, populations: np.ndarray) -> Pace:
        """See `Rule`; a worker's wait for the others counts as its own time."""
        pace = self.base.solve(D, Z, populations)
        rates = [n / np.maximum(self.round_time(D, Z, n), NOTHING) for n in populations.tolist()]  # X = n / T
        X = np.clip(rates, *self.bounds(D, Z, populations))
        cycle = populations.reshape(-1, *[1] * Z.ndim) / X
        R = np.minimum(pace.R, cycle[..., None] / D.shape[-1])  # of K stations none takes more than cycle / K
        return Pace(X, R, cycle - R.sum(axis=-1))

    def round_time(self, D: np.ndarray, Z: np.ndarray, n: int) -> np.ndarray:
        """Time of a round of n workers (s), shape of Z: max_i (arrival_i + (n - i) D_busiest) + D_push."""
        busiest_fetch, fetch, busiest_push, push = self._phases(D)
        # t_(i) of fetches, the last at n D_fetch or, of one worker, at the sum over servers; z_(i) of worker times
        t = np.maximum(n * busiest_fetch, fetch)[..., None] * ps_completion_times(n, self.spread)
        z = Z[..., None] * gamma_order_statistics(n, self.scv)
        # (t + z)_(i) = mean + (s_t dt_(i) + s_z dz_(i)) / s, s^2 = s_t^2 + s_z^2 of independent times
        dt, dz = t - t.mean(axis=-1, keepdims=True), z - z.mean(axis=-1, keepdims=True)
        s_t, s_z = dt.std(axis=-1, keepdims=True), dz.std(axis=-1, keepdims=True)
        deviations = (s_t * dt + s_z * dz) / np.maximum(np.hypot(s_t, s_z), NOTHING)
        arrivals = (t + z).mean(axis=-1, keepdims=True) + deviations
        backlog = np.arange(n)[::-1] * busiest_push[..., None]  # (n - i) D: gradients behind the i-th
        return np.asarray((arrivals + backlog).max(axis=-1) + push)

    def bounds(self, D: np.ndarray, Z: np.ndarray, populations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds of throughput (n, ...), for constant demands and servers that never idle with work.

        A round ends when the slowest has computed and all gradients are served. It lasts at least as long as the
        slowest with one step's demands, and as the busiest server needs for all.
        """
        busiest_fetch, fetch, busiest_push, push = self._phases(D)
        lower, upper = [], []
        for n in populations.tolist():
            slowest = Z * gamma_order_statistics(n, self.scv)[-1]  # E[max of n]
            lower.append(n / (slowest + n * (fetch + push)))
            upper.append(n / np.maximum.reduce([slowest + fetch + push, n * busiest_fetch, n * busiest_push]))
        return np.array(lower), np.array(upper)

    def _phases(self, D: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Seconds of a fetch at the busiest server and at all, and the same of pushes with their updates."""
        by_server = D.reshape(*D.shape[:-1], self.servers, -1)
        busiest, total = by_server.max(axis=-2), by_server.sum(axis=-2)
        fetches = 1 if by_server.shape[-1] > 1 else 0  # a single station serves the step after its computation
        push = busiest[..., fetches:].max(axis=-1), total[..., fetches:].sum(axis=-1)
        return busiest[..., :fetches].sum(axis=-1), total[..., :fetches].sum(axis=-1), *push


def order_statistic(isf: Callable[[np.ndarray], np.ndarray], k: int, n: int) -> float:
    """Mean of the k-th smallest of n independent times of any law (`ModelError` for other k and n).

    Exact up to quadrature (the trapezoidal rule over normal quantiles).

    Examples
    --------
    >>> import numpy as np
    >>> round(order_statistic(lambda p: -np.log(p), 4, 8), 4)  # exponential: H_8 - H_4
    0.6345
    """
    from scipy import special

    n = require_count(n, "order_statistic: n")
    k = require_count(k, "order_statistic: k", most=n)
    survival = np.clip(special.ndtr(-_quantiles(n)), 1e-300, 1 - 2**-53)  # P(T > t) = 1 - Phi(z)
    return float(_in_order(np.asarray(isf(survival)), n, np.array([k]))[0])


@lru_cache(maxsize=4096)
def gamma_order_statistics(n: int, scv: float) -> np.ndarray:
    """Means of the smallest, second, ... largest of n gamma times of mean 1, shape (n,), read-only.

    Exact up to quadrature; ``scv`` is the squared coefficient of variation, 1 that of the exponential law.
    """
    from scipy import special

    if scv <= CONSTANT:
        return _frozen(np.ones(n))
    z = _quantiles(n)
    low, high = special.ndtr(np.minimum(z, 0.0)), special.ndtr(-np.maximum(z, 0.0))  # each tail by its own side
    # shape 1 / scv and scale scv: mean 1, variance scv
    t = scv * np.where(z < 0, special.gammaincinv(1 / scv, low), special.gammainccinv(1 / scv, high))
    return _frozen(_in_order(t, n))


@lru_cache(maxsize=4096)
def ps_completion_times(n: int, spread: float) -> np.ndarray:
    """When n equal transfers that begin together end, in order, over the time of all, shape (n,), read-only.

    Each gets a share of the link in proportion to its weight, lognormal with ``spread`` the standard deviation of the
    logarithm; the k-th to end has the k-th largest. By then k have ended, and each of the others has sent the share
    w_i / w_k: t_k = (k + sum w_i / w_k) / n (discriminatory processor sharing, Kleinrock 1967). Exact up to quadrature.
    """
    from scipy import special

    z = _quantiles(n)  # of the k-th weight, from the smallest one
    # E[w_i / w_k | w_i < w_k] = exp(s^2 / 2 - s z) Phi(z - s) / Phi(z)
    lighter = np.exp(spread**2 / 2 - spread * z + special.log_ndtr(z - spread) - special.log_ndtr(z))
    k = np.arange(n, 0, -1)
    return _frozen((1 - (n - k) / n * (1 - _in_order(lighter, n)))[::-1])  # n - k lighter ones


def _quantiles(n: int) -> np.ndarray:
    """Normal quantiles, as dense as the beta laws of n order statistics need."""
    step = STEP / n**0.5
    return np.arange(-SIGMAS, SIGMAS + step, step)


def _in_order(t: np.ndarray, n: int, orders: np.ndarray | None = None) -> np.ndarray:
    """Means of a time t(z), at the normal quantiles of n, when z is the j-th smallest of n, for all j or given ones."""
    from scipy import special

    z = _quantiles(n)
    below, above = special.log_ndtr(z), special.log_ndtr(-z)
    orders = np.arange(1, n + 1) if orders is None else orders
    means = []
    for j in np.array_split(orders[:, None], -(-len(orders) // ROWS)):
        # density of the j-th: n binom(n - 1, j - 1) Phi^(j - 1) (1 - Phi)^(n - j) phi
        ways = special.gammaln(n + 1) - special.gammaln(j) - special.gammaln(n - j + 1)
        density = np.exp(ways + (j - 1) * below + (n - j) * above - z**2 / 2)
        means.append(density @ t / density.sum(axis=1))
    return np.concatenate(means)


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array
