"""Approximate mean-value analysis: large populations, many classes, and networks without product form."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import require_choice
from ..errors import QueueModelWarning
from ..network import Network, Solution
from .chains import Chains, chains_of

#: The methods, with the names that their solutions have.
METHODS = {
    "recursion": "approximate MVA",
    "bard-schweitzer": "Bard-Schweitzer",
    "linearizer": "Linearizer",
    "aql": "AQL",
}
MOST_ITERATIONS = 20_000
#: Rounding that is not worth a word.
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class ApproximateMVA:
    """Approximate mean-value analysis, with corrections for networks without product form.

    First-come-first-served queues with any variability or class-dependent service (Reiser, 1979; Eager, Sorin and
    Vernon, 2000), several servers (Suri, Sahu and Vernon, 2007), whichever the
    method. Approximate; measured errors: docs/explanation/solver-measurements. Throughputs are held to the asymptotic
    bounds.

    Parameters
    ----------
    method : {"recursion", "bard-schweitzer", "linearizer", "aql"}
        ``recursion`` goes over all populations up to the one asked for, and keeps them; with classes it is
        ``linearizer``. The others' time does not depend on the population. ``bard-schweitzer`` (Bard, 1979; Schweitzer,
        1979): a customer meets (N-1)/N of its own class's queue. ``linearizer`` (Chandy and Neuse, 1982): the shares of
        queues are corrected from the populations with one customer fewer, several times closer and as many times slower
        as there are classes, times three. ``aql`` (Zahorjan, Eager and Sweillam, 1988): one correction per station.
    """

    method: str = "recursion"

    def __post_init__(self) -> None:
        require_choice(self.method, "approximate MVA: method", METHODS)

    def solve(self, network: Network, population: int | tuple[int, ...]) -> Solution:
        """Measures at ``population``; for populations 1 to ``population`` by the recursion, without classes."""
        return solved_approximately(network, population, self.method)


def solved_approximately(
    network: Network, population: int | tuple[int, ...], method: str, reason: str = ""
) -> Solution:
    """The solution by one of `METHODS`, and why it was taken where it was not asked for."""
    model, name = _model_of(network, population), METHODS[method]
    if method == "recursion":
        if isinstance(population, int):
            return _by_recursion(model, population, reason)
        method, name = "linearizer", f"{name} (Linearizer)"
    with np.errstate(divide="ignore", invalid="ignore"):
        X, R = _schweitzer(model) if method == "bard-schweitzer" else _corrected(model, by_class=method == "linearizer")
    X, R, held = _hold_classes(model.chains, X, R)
    Q = X * R
    busy = model.busy(X[None, :], Q.sum(axis=1)[None, :])
    why = reason or f"{name} was asked for: approximate at any population"
    return model.chains.solution(
        X, Q, busy=None if busy is None else busy[0], solver=name, exact=False, reason=why + held
    )


def _by_recursion(model: _Model, population: int, reason: str) -> Solution:
    network = model.chains.network
    K, Z = len(network.stations), network.think_time
    X, R = np.empty(population), np.empty((population, K))
    Q, U = np.zeros((K, 1, 1)), np.zeros((K, 1, 1))
    for n in range(1, population + 1):
        r = model.with_servers(model.residence(Q, U, rarer=False)[:, 0], n)
        x = n / (Z + r.sum())
        X[n - 1], R[n - 1] = x, r
        Q[:, 0, 0], U[:, 0, 0] = x * r, x * model.D[:, 0]
    X, R, held = _hold_curve(model.chains, X, R)
    busy = model.busy(X[:, None], X[:, None] * R)
    why = reason + held if reason else held[2:]
    return Solution(network, population, X, R, solver=METHODS["recursion"], exact=False, reason=why, busy=busy)


@dataclass(frozen=True, slots=True, eq=False)
class _Model:
    """Arrays of a network: demands D, visits V, service times S and their scv, all (K, C); Z and N (C,)."""

    chains: Chains
    D: np.ndarray
    V: np.ndarray
    S: np.ndarray
    scv: np.ndarray
    Z: np.ndarray
    N: np.ndarray
    servers: np.ndarray
    fcfs: np.ndarray
    curves: dict[int, np.ndarray]

    def residence(self, A: np.ndarray, U: np.ndarray, *, rarer: bool = True) -> np.ndarray:
        """R (K, C), given the queues A (K, R, C) of class r that class c meets, and utilizations U likewise.

        Processor sharing: D (1 + A). First come first served (Reiser, 1979; Eager, Sorin and Vernon, 2000): who waits
        is served before, who is in service needs his residual life: S (1 + scv) / 2 at an idle station, S at a busy
        one, where customers mostly come just after another has left (the straight line between is ours, measured to
        err a quarter as much as the residual life alone). Several servers: waiting is
        1/m of that, and rarer by rho**(4.464 (m**0.676 - 1)) (Suri, Sahu and Vernon, 2007) unless that is left to the
        caller.
        """
        met = A.sum(axis=1)
        R = self.D * (1.0 + met)
        if self.fcfs.any():
            S, D = self.S[:, :, None], self.D
            full = np.minimum(U.sum(axis=1, keepdims=True), 1.0)
            residual = S * (1.0 + 0.5 * (self.scv[:, :, None] - 1.0) * (1.0 - full))
            waiting = self.V * (S * np.maximum(A - U, 0.0) + residual * np.minimum(U, A)).sum(axis=1)
            R = np.where(self.fcfs[:, None], D + waiting, R)
        for k in np.flatnonzero(self.servers > 1).tolist():
            m = self.servers[k]
            rho = np.minimum(U[k].sum(axis=0) / m, 1.0) if rarer else 1.0
            R[k] = self.D[k] + (R[k] - self.D[k]) / m * rho ** _suri_exponent(m)
        for k, curve in self.curves.items():
            n = 1.0 + met[k]
            R[k] = self.D[k] * n / np.interp(n, np.arange(1, len(curve) + 1), curve)
        R[self.chains.delay] = self.D[self.chains.delay]
        return R

    def with_servers(self, R: np.ndarray, customers: int) -> np.ndarray:
        """R (K,) of one class where waiting at several servers is as rare as the throughput makes it that follows.

        Taken from one customer fewer, throughputs would jump from one population to the next.
        """
        several = np.flatnonzero(self.servers > 1)
        if not len(several):
            return R
        least, m = self.D[several, 0], self.servers[several]
        waiting, rest = R[several] - least, float(self.Z[0] + R.sum() - R[several].sum() + least.sum())
        powers = _suri_exponent(m)
        low, high = 0.0, customers / rest  # throughput without waiting there
        for _ in range(50):
            middle = 0.5 * (low + high)
            rare = np.minimum(middle * least / m, 1.0) ** powers
            low, high = (middle, high) if middle * (rest + waiting @ rare) < customers else (low, middle)
        R[several] = least + waiting * np.minimum(high * least / m, 1.0) ** powers
        return R

    def busy(self, X: np.ndarray, Q: np.ndarray) -> np.ndarray | None:
        """About how often somebody is at each load-dependent station, for throughputs (n, C) and queues (n, K).

        Work done, X D, is that share times the mean speed with the customers that are there then: about one, and more
        whose number is spread exponentially.
        """
        if not self.curves:
            return None
        share = np.full(Q.shape, np.nan)
        spread = -np.log((np.arange(16) + 0.5) / 16)
        for k, curve in self.curves.items():
            work = X @ self.D[k]
            p = 1.0 - np.exp(-Q[:, k])  # as if nobody waited
            for _ in range(30):
                more = np.maximum(Q[:, k] / np.maximum(p, 1e-300) - 1.0, 0.0)
                speed = np.interp(1.0 + more[:, None] * spread, np.arange(1, len(curve) + 1), curve).mean(axis=1)
                p = np.clip(0.5 * (p + work / speed), 0.0, 1.0)
            share[:, k] = p
        return share


def _model_of(network: Network, population: int | tuple[int, ...]) -> _Model:
    """The arrays of a network at a population."""
    chains = chains_of(network, population)
    V, S, second = _visits(network)
    total = range(1, int(chains.N.sum()) + 1)
    stations = list(enumerate(network.stations))
    with np.errstate(invalid="ignore", divide="ignore"):
        scv = np.where(S > 0, np.maximum(second / (S * S) - 1.0, 0.0), 1.0)
    return _Model(
        chains,
        chains.D,
        V,
        S,
        scv,
        chains.Z,
        chains.N,
        servers=np.array([1.0 if s.is_delay else s.servers for s in network.stations]),
        fcfs=np.array([s.discipline == "fcfs" and not s.is_delay for s in network.stations]),
        curves={k: np.array([s.rate(n) for n in total]) for k, s in stations if s.rates is not None},
    )


def _suri_exponent(servers: Any) -> Any:
    """How fast waiting at several servers becomes rare as they are less busy."""
    return 4.464 * (servers**0.676 - 1.0)


def _visits(network: Network) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Visits, mean service times and second moments of chains, each (K, C)."""
    V, S = network.class_visit_ratios, network.class_service_times
    second = np.array([[1.0 + s.scv_of(c) for c in network.labels] for s in network.stations]) * S * S
    groups = [list(chain) for chain in network.chains]
    visits = np.array([V[:, g].sum(axis=1) for g in groups]).T
    with np.errstate(invalid="ignore", divide="ignore"):
        times, squares = (
            np.where(visits > 0, np.array([(V * x)[:, g].sum(axis=1) for g in groups]).T / visits, 0.0)
            for x in (S, second)
        )
    return visits, times, squares


def _fixed_point(
    model: _Model, N: np.ndarray, meets: Callable[[np.ndarray], np.ndarray], tolerance: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X (C,), R and Q (K, C) where each class c meets A = meets(Q), utilizations being scaled alike."""
    K, C = model.D.shape
    active = np.where(N > 0, 1.0, 0.0)
    visited = model.D > 0
    Q = np.where(visited, N / np.maximum(visited.sum(axis=0), 1), 0.0)
    U = np.zeros((K, C))
    weight, best, since = 1.0, np.inf, 0
    for _ in range(MOST_ITERATIONS):
        A = meets(Q)
        R = model.residence(A, U[:, :, None] * _over(A, Q[:, :, None]))
        X = active * N / np.maximum(model.Z + R.sum(axis=0), 1e-300)
        new = X * R
        change = float(max(np.abs(new - Q).max() / max(N.sum(), 1.0), np.abs(model.D * X - U).max(initial=0.0) / 10))
        if change < tolerance:
            return X, R, new
        best, since = (change, 0) if change < 0.9 * best else (best, since + 1)
        if since > 20:
            weight, since, best = max(1e-3, weight * 0.5), 0, change  # it oscillates: smaller steps
        Q = Q + weight * (new - Q)
        U = U + weight * (model.D * X - U)
    warnings.warn(
        f"approximate MVA: not converged after {MOST_ITERATIONS} iterations (change {change:.1e}); "
        "take another solver for this network",
        QueueModelWarning,
        stacklevel=6,
    )
    return X, R, Q


def _less_one(N: np.ndarray) -> np.ndarray:
    """Shape (R, C): what is left of class r's population when one of class c is taken away."""
    return np.maximum(N[:, None] - np.eye(len(N)), 0.0)


def _over(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Their ratio, and 0 where there is nothing."""
    return np.where(whole > 0, part / np.maximum(whole, 1e-300), 0.0)


def _schweitzer(model: _Model) -> tuple[np.ndarray, np.ndarray]:
    N = model.N.astype(float)
    scale = _over(_less_one(N), N[:, None])
    X, R, _ = _fixed_point(model, N, lambda Q: Q[:, :, None] * scale, 1e-12)
    return X, R


def _corrected(model: _Model, *, by_class: bool) -> tuple[np.ndarray, np.ndarray]:
    """X (C,) and R (K, C) with the shares of queues corrected: each class's (Linearizer), or all together (AQL)."""
    N = model.N.astype(float)
    K, C = model.D.shape
    correction = np.zeros((K, C, C) if by_class else (K, C))  # the last axis: whose customer is taken away

    def core(n: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        left = _less_one(n)

        def meets(Q: np.ndarray) -> np.ndarray:
            if by_class:
                return np.maximum(left * (_over(Q, n)[:, :, None] + correction), 0.0)
            parts = Q[:, :, None] * _over(left, n[:, None])
            wanted = np.maximum((n.sum() - 1.0) * (Q.sum(axis=1)[:, None] / n.sum() + correction), 0.0)
            return parts * _over(wanted, parts.sum(axis=1))[:, None, :]

        return _fixed_point(model, n, meets, 1e-10)

    for _ in range(3 if by_class else 4):
        _, _, Q = core(N)
        change = np.zeros_like(correction)
        for c in np.flatnonzero(N > 0):
            n = N - (np.arange(C) == c)
            if n.sum() == 0:
                continue
            fewer = core(n)[2]
            if by_class:
                F = _over(Q, N)
                change[:, :, c] = np.where(n > 0, _over(fewer, n), F) - F
            else:
                change[:, c] = fewer.sum(axis=1) / n.sum() - Q.sum(axis=1) / N.sum()
        correction = change
    X, R, _ = core(N)
    return X, R


def _hold_curve(chains: Chains, X: np.ndarray, R: np.ndarray) -> tuple[np.ndarray, np.ndarray, str]:
    """X (N,) and R (N, K) at populations 1 to N of one chain, within the bounds, and what to say of it.

    What the cycle lacks above the upper bound is waited at the busiest station; below the lower one customers wait so
    much less, everywhere in proportion.
    """
    total, n = len(X), np.arange(1, len(X) + 1)
    load, least, Z = chains.load(total)[:, 0], chains.least(total)[:, 0], float(chains.Z[0])
    lower = n / (n * chains.most(total).sum() + float(chains.think[0]))
    upper = np.minimum(n / (Z + least.sum()), 1.0 / max(float(load.max()), 1e-300))
    over, under = upper * (1 + ROUNDING) < X, lower * (1 - ROUNDING) > X
    X, R, before = X.copy(), R.copy(), X
    X[over], X[under] = upper[over], lower[under]
    R[over, int(load.argmax())] += (n / X - n / before)[over]
    R[under] = _less_waiting(R[under], least, n[under] / X[under] - Z)
    held = int(over.sum() + under.sum())
    return X, R, f"; held to the asymptotic bounds at {held:,} of {total:,} populations" if held else ""


def _hold_classes(chains: Chains, X: np.ndarray, R: np.ndarray) -> tuple[np.ndarray, np.ndarray, str]:
    """The same of throughputs X (C,) and residence times R (K, C) of several chains.

    No station is busier than it can be; and what all together must get done at least,
    sum of X_c (Z_c + N D_c) >= N, is done.
    """
    N, total, someone = chains.N, int(chains.N.sum()), chains.N > 0
    load, least = chains.load(total), chains.least(total)
    X, R, before = X.copy(), R.copy(), X
    for _ in range(len(load)):
        busiest = int((load @ X).argmax())
        U = float((load @ X)[busiest])
        if U <= 1 + ROUNDING:
            break
        slowed = (load[busiest] > 0) & someone
        R[busiest, slowed] += (N / np.maximum(X, 1e-300) * (U - 1.0))[slowed]
        X[slowed] /= U
    lacking = total / float(X @ (chains.think + total * chains.most(total).sum(axis=0)))
    if lacking > 1 + ROUNDING:
        most = N / (chains.Z + least.sum(axis=0))
        X = np.minimum(X * min(lacking, 1.0 / max(float((load @ X).max()), 1e-300)), most)
        for c in np.flatnonzero(someone):
            R[:, c] = _less_waiting(R[None, :, c], least[:, c], np.array([N[c] / X[c] - chains.Z[c]]))[0]
    moved = float(np.abs(X - before).max()) > ROUNDING * float(before.max())
    return X, R, "; held to the asymptotic bounds" if moved else ""


def _less_waiting(R: np.ndarray, least: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Residence times (n, K) that sum to ``wanted`` (n,), with waiting beyond ``least`` (K,) scaled."""
    waiting = np.maximum(R - least, 0.0)
    scale = (wanted - least.sum()) / np.maximum(waiting.sum(axis=1), 1e-300)
    return least + waiting * scale[:, None]
