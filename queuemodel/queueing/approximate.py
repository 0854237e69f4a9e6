"""Approximate mean-value analysis: large populations, many classes, and networks without product form."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.checks import require_choice
from ..base.errors import QueueModelWarning
from ..base.files import constants
from .exact import solved_exactly, with_open
from .lowered import Lowered, lower, lowered_product_form, require_populations
from .network import Network
from .solution import Solution, by_class, solution_of

#: Methods, and the names of their solutions.
AMVA_METHODS = {"recursion": "approximate MVA", "bard-schweitzer": "Bard-Schweitzer", "linearizer": "Linearizer"}
MOST_ITERATIONS = 20_000
AMVA_ROUNDING = 1e-9
#: The throughput's error where `solve` has no exact answer: ``python docs/scripts/approximation_errors.py``.
MEASURED = "within 9 % of the exact throughput on 90 % of 62 random networks"
#: Measured errors, with their sources: constants.toml.
_ERRORS = constants(__package__)["approximate"]["error"]
BOUNDED = "; held to the asymptotic bounds"


@dataclass(frozen=True, slots=True)
class ApproximateMVA:
    """Approximate mean-value analysis, with corrections for networks without product form.

    First-come-first-served queues with any variability or class-dependent service (Reiser, 1979; Eager, Sorin and
    Vernon, 2000) and several servers (Suri, Sahu and Vernon, 2007), whichever the method. Throughputs are held to the
    asymptotic bounds. Measured errors: validation/notes/solver-measurements.

    Parameters
    ----------
    method : {"recursion", "bard-schweitzer", "linearizer"}
        ``recursion`` goes over all populations and keeps them; with classes it is ``linearizer``. At several servers
        its throughput may be far too low (two servers, two customers, no think time: 21 %). The others' time does not
        depend on the population. ``bard-schweitzer`` (Bard, 1979; Schweitzer, 1979): a customer finds (N-1)/N of
        its own class's queue. ``linearizer`` (Chandy and Neuse, 1982) corrects the shares of queues from the
        populations with one customer fewer: several times closer, and 3 C times slower with C classes.
    """

    method: str = "recursion"

    def __post_init__(self) -> None:
        require_choice(self.method, "approximate MVA: method", AMVA_METHODS)

    def solve(self, network: Network, population: int | tuple[int, ...]) -> Solution:
        """Measures at ``population``; for populations 1 to ``population`` by the recursion, without classes."""
        if network.open_classes:
            low = lowered_product_form(network, population, "approximate MVA")
            return solved_approximately(low, self.method) if low.N.any() else solved_exactly(low)
        return solved_approximately(lower(network, require_populations(network, population)), self.method)


def solved_approximately(low: Lowered, method: str, reason: str = "") -> Solution:
    """The solution by one of `AMVA_METHODS`; ``reason``: why not an exact one."""
    model, name = _Model(low), AMVA_METHODS[method]
    if method == "recursion":
        if not low.network.classes:
            return _by_recursion(model, reason)
        method, name = "linearizer", f"{name} (Linearizer)"
    with np.errstate(divide="ignore", invalid="ignore"):
        X, R = _schweitzer(model) if method == "bard-schweitzer" else _linearizer(model)
    X, R, bounded = (array[0] for array in _bounded(low, low.N[None], X[None], R[None]))
    Q = X * R  # Little's law
    curves = model.busy(X[None, :], Q.sum(axis=1)[None, :])
    busy = None if curves is None else curves[0]
    if low.network.open_classes:
        busy = with_open(low, X, Q, busy, lambda k: _two_points(Q[k].sum()))
    why = (reason or f"{name} was specified: approximate at any population") + (BOUNDED if bounded else "")
    about: dict[str, Any] = {"reason": why, "expected_error": _expected_error(low, method)}
    return solution_of(low, *by_class(low, X, Q), busy=busy, solver=name, exact=False, **about)


def _expected_error(low: Lowered, method: str) -> float:
    """The 95th percentile of the throughput's error on random networks of this kind, NaN where none is measured."""
    several = bool(low.why_not_single_servers())
    if any(s.rates is not None for s in low.network.stations) or (several and low.network.open_classes):
        return math.nan
    kind = "several-servers" if several else "single-servers"
    kind = "without-product-form" if low.why_not_product_form() else kind
    return float(_ERRORS[kind].get(method, math.nan))


def _two_points(mean: float) -> np.ndarray:
    """Probabilities of the two whole numbers around a mean."""
    return np.append(np.zeros(int(mean)), [1.0 - mean % 1.0, mean % 1.0])


def _by_recursion(model: _Model, reason: str) -> Solution:
    low = model.low
    K, Z, population = len(low.D), float(low.Z[0]), int(low.N[0])
    X, R = np.empty((population, 1)), np.empty((population, K, 1))
    Q, U = np.zeros((K, 1, 1)), np.zeros((K, 1, 1))
    for n in range(1, population + 1):
        r = model.with_servers(model.residence(Q, U, rarer=False)[:, 0], n)  # arrival theorem: Q, U at n - 1
        x = n / (Z + r.sum())  # X(n) = n / (Z + R(n))
        X[n - 1], R[n - 1, :, 0] = x, r
        Q[:, 0, 0], U[:, 0, 0] = x * r, x * low.D[:, 0]  # Little's law, utilization law
    X, R, bounded = _bounded(low, np.arange(1, population + 1)[:, None], X, R)
    busy = model.busy(X, X * R[:, :, 0])
    held = f"{BOUNDED[2:]} at {bounded.sum():,} of {population:,} populations" if bounded.any() else ""
    why, name = "; ".join(filter(None, [reason, held])), AMVA_METHODS["recursion"]
    about: dict[str, Any] = {"reason": why, "expected_error": _expected_error(low, "recursion")}
    return Solution(low.network, population, X[:, 0], R[:, :, 0], solver=name, exact=False, busy=busy, **about)


class _Model:
    """A network's visits V, service times S and their scv (K, C), servers (K,), and load-dependent speeds."""

    def __init__(self, low: Lowered) -> None:
        stations = low.network.stations
        self.low, self.D, self.N = low, low.closed_demand, low.N
        self.V, self.S, second = _visits(low.network)
        with np.errstate(invalid="ignore", divide="ignore"):
            self.scv = np.where(self.S > 0, np.maximum(second / (self.S * self.S) - 1.0, 0.0), 1.0)  # E(S^2) / S^2 - 1
        rated = (low.open_load > 0) & np.array([s.servers > 1 for s in stations])
        self.servers = np.array([1.0 if s.is_delay or rated[k] else s.servers for k, s in enumerate(stations)])
        ordered = not low.network.open_classes  # beside open classes there is product form, as in processor sharing
        self.fcfs = np.array([ordered and s.discipline == "fcfs" and not s.is_delay for s in stations])
        rated |= [s.rates is not None for s in stations]
        self.curves = {k: low.speeds(k, max(1, int(low.N.sum()))) for k in np.flatnonzero(rated).tolist()}

    def residence(self, A: np.ndarray, U: np.ndarray, *, rarer: bool = True) -> np.ndarray:
        """R (K, C); A and U (K, R, C): queue lengths and utilizations of class r at arrivals of class c."""
        Q = A.sum(axis=1)
        R = self.D * (1.0 + Q)  # processor sharing: R = D (1 + A)
        if self.fcfs.any():
            S, D = self.S[:, :, None], self.D
            full = np.minimum(U.sum(axis=1, keepdims=True), 1.0)
            # residual life: S (1 + scv) / 2 at an idle station, S at a busy one, linear in between (ours)
            residual = S * (1.0 + 0.5 * (self.scv[:, :, None] - 1.0) * (1.0 - full))
            # those waiting, A - U, take S each, and who is in service, with probability U, the residual life
            waiting = self.V * (S * np.maximum(A - U, 0.0) + residual * np.minimum(U, A)).sum(axis=1)
            R = np.where(self.fcfs[:, None], D + waiting, R)
        for k in np.flatnonzero(self.servers > 1).tolist():  # W_m = W_1 / m rho**b(m) (Suri, Sahu and Vernon, 2007)
            m = self.servers[k]
            rho = np.minimum(U[k].sum(axis=0) / m, 1.0) if rarer else 1.0
            R[k] = self.D[k] + (R[k] - self.D[k]) / m * rho ** _suri_exponent(m)
        for k, curve in self.curves.items():
            n = 1.0 + Q[k]
            R[k] = self.D[k] * n / np.interp(n, np.arange(1, len(curve) + 1), curve)  # R = D n / mu(n) at the mean n
        R[self.low.delay] = self.D[self.low.delay]
        return R

    def with_servers(self, R: np.ndarray, customers: int) -> np.ndarray:
        """R (K,) of one class where throughput and waiting at several servers agree, by bisection."""
        several = np.flatnonzero(self.servers > 1)
        if not len(several):
            return R
        D, m, exponent = self.D[several, 0], self.servers[several], _suri_exponent(self.servers[several])
        waiting, cycle = R[several] - D, float(self.low.Z[0] + R.sum() - R[several].sum() + D.sum())
        low, high = 0.0, customers / cycle  # X without waiting there
        for _ in range(50):  # X (Z + R(X)) = n, R(X) = D + W (X D / m)**exponent, grows with X
            X = 0.5 * (low + high)
            below = X * (cycle + waiting @ np.minimum(X * D / m, 1.0) ** exponent) < customers
            low, high = (X, high) if below else (low, X)
        R[several] = D + waiting * np.minimum(high * D / m, 1.0) ** exponent
        return R

    def busy(self, X: np.ndarray, Q: np.ndarray) -> np.ndarray | None:
        """About P(n_k > 0) at load-dependent stations (n, K), for throughputs X (n, C), queue lengths Q (n, K)."""
        if not self.curves:
            return None
        P = np.full(Q.shape, np.nan)
        spread = -np.log((np.arange(16) + 0.5) / 16)  # customers beyond the first, exponentially distributed
        for k, curve in self.curves.items():
            work = X @ self.D[k]
            p = 1.0 - np.exp(-Q[:, k])  # as without waiting: Poisson
            for _ in range(30):  # p = X D / E(mu(n) | n > 0), E(n | n > 0) = Q / p
                more = np.maximum(Q[:, k] / np.maximum(p, 1e-300) - 1.0, 0.0)
                speed = np.interp(1.0 + more[:, None] * spread, np.arange(1, len(curve) + 1), curve).mean(axis=1)
                p = np.clip(0.5 * (p + work / speed), 0.0, 1.0)
            P[:, k] = p
        return P


def _suri_exponent(servers: Any) -> Any:
    return 4.464 * (servers**0.676 - 1.0)  # fitted by the authors to simulations


def _visits(network: Network) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Visits, mean service times and second moments of chains, each (K, C): means weighted by visits."""
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
    model: _Model, N: np.ndarray, arrival_queue: Callable[[np.ndarray], np.ndarray], tolerance: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X (C,), R and Q (K, C) where class c finds A = arrival_queue(Q) (K, R, C) on arrival, and U scaled as A is."""
    K, C = model.D.shape
    active = np.where(N > 0, 1.0, 0.0)
    visited = model.D > 0
    Q = np.where(visited, N / np.maximum(visited.sum(axis=0), 1), 0.0)  # start: customers spread evenly
    U = np.zeros((K, C))
    weight, best, since = 1.0, np.inf, 0
    for _ in range(MOST_ITERATIONS):
        A = arrival_queue(Q)
        R = model.residence(A, U[:, :, None] * _over(A, Q[:, :, None]))
        X = active * N / np.maximum(model.low.Z + R.sum(axis=0), 1e-300)  # X_c = N_c / (Z_c + R_c)
        new = X * R  # Little's law
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
    """Population of class r without a customer of class c, shape (R, C)."""
    return np.maximum(N[:, None] - np.eye(len(N)), 0.0)


def _over(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """The quotient, 0 where the denominator is not positive."""
    return np.where(whole > 0, part / np.maximum(whole, 1e-300), 0.0)


def _schweitzer(model: _Model) -> tuple[np.ndarray, np.ndarray]:
    N = model.N.astype(float)
    scale = _over(_less_one(N), N[:, None])  # Q_r(N - e_c) = Q_r(N) (N_r - [r = c]) / N_r (Schweitzer, 1979)
    return _fixed_point(model, N, lambda Q: Q[:, :, None] * scale, 1e-12)[:2]


def _linearizer(model: _Model) -> tuple[np.ndarray, np.ndarray]:
    N = model.N.astype(float)
    K, C = model.D.shape
    correction = np.zeros((K, C, C))  # D_krc = F_kr(N - e_c) - F_kr(N), fractions F = Q / N (Chandy and Neuse, 1982)

    def core(n: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        fewer = _less_one(n)  # Q_kr(n - e_c) = (n_r - [r = c]) (F_kr(n) + D_krc)
        return _fixed_point(model, n, lambda Q: np.maximum(fewer * (_over(Q, n)[:, :, None] + correction), 0.0), 1e-10)

    for _ in range(3):
        F, change = _over(core(N)[2], N), np.zeros_like(correction)
        for c in np.flatnonzero(N > 0):
            n = N - (np.arange(C) == c)
            if n.any():
                change[:, :, c] = np.where(n > 0, _over(core(n)[2], n), F) - F
        correction = change
    return core(N)[:2]


def _bounded(low: Lowered, N: np.ndarray, X: np.ndarray, R: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X (n, C) and R (n, K, C) at populations N (n, C) held to the asymptotic bounds, and whether they moved (n,)."""
    load, D_min, before, rows, R = low.load, low.min_residence, X, np.arange(len(X)), R.copy()
    for _ in load:  # utilization law: X D_k / m_k <= 1; the excess is waited at the busiest station
        busiest = (X @ load.T).argmax(axis=1)
        U = (X * load[busiest]).sum(axis=1)
        if U.max() <= 1 + AMVA_ROUNDING:
            break
        slowed = (U > 1 + AMVA_ROUNDING)[:, None] & (load[busiest] > 0) & (N > 0)
        slower = np.where(slowed, U[:, None], 1.0)
        R[rows, busiest] += N / np.maximum(X, 1e-300) * (slower - 1.0)
        X = X / slower
    total = N.sum(axis=1, keepdims=True)
    deficit = total[:, 0] / (X * (low.think + total * low.max_residence.sum(axis=0))).sum(axis=1)
    slow = np.flatnonzero(deficit > 1 + AMVA_ROUNDING)  # lower bound: sum of X_c (Z_c + N D_c) >= N
    if len(slow):
        faster = np.minimum(deficit[slow], 1.0 / np.maximum((X[slow] @ load.T).max(axis=1), 1e-300))
        X = X.copy()
        X[slow] = np.minimum(X[slow] * faster[:, None], N[slow] / (low.Z + D_min.sum(axis=0)))  # X <= N / (Z + D)
        waiting = np.maximum(R[slow] - D_min, 0.0)
        needed = np.where(N[slow] > 0, N[slow] / np.maximum(X[slow], 1e-300) - low.Z - D_min.sum(axis=0), 0.0)
        R[slow] = D_min + waiting * (needed / np.maximum(waiting.sum(axis=1), 1e-300))[:, None]
    return X, R, np.abs(X - before).max(axis=1) > AMVA_ROUNDING * before.max(axis=1)
