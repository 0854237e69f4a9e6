"""Approximate mean-value analysis: large populations, many classes, and networks without product form."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import QueueModelWarning
from ..network import Network, Solution
from .amva import Model, model_of, rejoin_seidmann, split_seidmann
from .held import hold_classes, hold_curve

MOST_ITERATIONS = 20_000


@dataclass(frozen=True, slots=True)
class BardSchweitzer:
    """The fixed point of Bard (1979) and Schweitzer (1979): a customer meets (N-1)/N of its own class's queue.

    Approximate. Time does not depend on the population. Measured error: docs/explanation/solvers.

    Parameters
    ----------
    multi_server : {"suri", "seidmann"}
        How stations with several servers are approximated.
    tolerance : float
        Largest relative change of a queue length at which the iteration stops.
    """

    multi_server: str = "suri"
    tolerance: float = 1e-12

    def solve(self, network: Network, population: int | tuple[int, ...]) -> Solution:
        """Measures at ``population``."""
        return _solve(self, "Bard-Schweitzer", network, population, _schweitzer)


@dataclass(frozen=True, slots=True)
class Linearizer:
    """Chandy and Neuse (1982): the shares of queues are corrected from the populations with one customer fewer.

    Approximate, several times closer than `BardSchweitzer` and as many times slower as there are classes, times three.
    Measured error: docs/explanation/solvers.

    Parameters
    ----------
    multi_server, tolerance
        As of `BardSchweitzer`.
    """

    multi_server: str = "suri"
    tolerance: float = 1e-10

    def solve(self, network: Network, population: int | tuple[int, ...]) -> Solution:
        """Measures at ``population``."""
        return _solve(self, "Linearizer", network, population, _linearizer)


@dataclass(frozen=True, slots=True)
class AQL:
    """Aggregate queue lengths (Zahorjan, Eager and Sweillam, 1988): `Linearizer` with one correction per station.

    Approximate, about as close as `Linearizer` with less memory. Measured error: docs/explanation/solvers.

    Parameters
    ----------
    multi_server, tolerance
        As of `BardSchweitzer`.
    """

    multi_server: str = "suri"
    tolerance: float = 1e-10

    def solve(self, network: Network, population: int | tuple[int, ...]) -> Solution:
        """Measures at ``population``."""
        return _solve(self, "AQL", network, population, _aggregate)


@dataclass(frozen=True, slots=True)
class ApproximateMVA:
    """Mean-value analysis with corrections for networks without product form.

    First-come-first-served queues with any variability or class-dependent service (Reiser, 1979; Eager, Sorin and
    Vernon, 2000), fork-joins (Nelson and Tantawi, 1988), several servers (Suri, Sahu and Vernon, 2007). Without
    classes it is the recursion over populations, all of which are kept; with classes `Linearizer` around the same
    corrections.
    Approximate; what it costs is measured in docs/explanation/solvers.
    """

    reason: str = ""

    def solve(self, network: Network, population: int | tuple[int, ...]) -> Solution:
        """Measures for populations 1 to ``population``, or at the classes' populations."""
        if not isinstance(population, int):
            return _solve(self, "approximate MVA (Linearizer)", network, population, _linearizer)
        model = model_of(network, population)
        K, Z = len(network.stations), network.think_time
        X, R = np.empty(population), np.empty((population, K))
        Q, U = np.zeros((K, 1, 1)), np.zeros((K, 1, 1))
        for n in range(1, population + 1):
            r = model.with_servers(model.residence(Q, U, rarer=False)[:, 0], n)
            x = n / (Z + r.sum())
            X[n - 1], R[n - 1] = x, r
            Q[:, 0, 0], U[:, 0, 0] = x * r, x * model.D[:, 0]
        X, R, held = hold_curve(model.chains, X, R)
        busy = model.busy(X[:, None], X[:, None] * R)
        reason = self.reason + held if self.reason else held[2:]
        return Solution(network, population, X, R, solver="approximate MVA", exact=False, reason=reason, busy=busy)


def _solve(
    solver: Any, name: str, network: Network, population: int | tuple[int, ...], method: Callable[..., Any]
) -> Solution:
    model = model_of(network, population, getattr(solver, "multi_server", "suri"))
    split = model.multi_server == "seidmann"
    work = split_seidmann(model) if split else model
    with np.errstate(divide="ignore", invalid="ignore"):
        X, R = method(work, getattr(solver, "tolerance", 1e-10))
    if split:
        R = rejoin_seidmann(model, R)
    X, R, held = hold_classes(model.chains, X, R)
    reason = getattr(solver, "reason", "") or f"{name} was asked for: approximate at any population"
    Q = X * R
    busy = model.busy(X[None, :], Q.sum(axis=1)[None, :])
    about = {"solver": name, "exact": False, "reason": reason + held}
    return model.chains.solution(X, Q, busy=None if busy is None else busy[0], **about)


def _fixed_point(model: Model, N: np.ndarray, meets, tolerance: float):
    """X (C,), R and Q (K, C) where each class c meets A = meets(Q), utilizations being scaled alike."""
    K, C = model.D.shape
    active = np.where(N > 0, 1.0, 0.0)
    visited = model.D > 0
    Q = np.where(visited, N / np.maximum(visited.sum(axis=0), 1), 0.0)
    U = np.zeros((K, C))
    weight, best, since = 1.0, np.inf, 0
    for _ in range(MOST_ITERATIONS):
        A = meets(Q)
        seen = np.where(Q[:, :, None] > 0, A / Q[:, :, None], 0.0)
        R = model.residence(A, U[:, :, None] * seen)
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
        stacklevel=4,
    )
    return X, R, Q


def _less_one(N: np.ndarray) -> np.ndarray:
    """Shape (R, C): what is left of class r's population when one of class c is taken away."""
    return np.maximum(N[:, None] - np.eye(len(N)), 0.0)


def _schweitzer(model: Model, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    N = model.N.astype(float)
    scale = np.where(N[:, None] > 0, _less_one(N) / np.maximum(N[:, None], 1e-300), 0.0)
    X, R, _ = _fixed_point(model, N, lambda Q: Q[:, :, None] * scale, tolerance)
    return X, R


def _linearizer(model: Model, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    N = model.N.astype(float)
    K, C = model.D.shape
    delta = np.zeros((K, C, C))

    def core(n: np.ndarray):
        left = _less_one(n)

        def meets(Q: np.ndarray) -> np.ndarray:
            F = np.where(n > 0, Q / np.maximum(n, 1e-300), 0.0)
            return np.maximum(left * (F[:, :, None] + delta), 0.0)

        return _fixed_point(model, n, meets, tolerance)

    for _ in range(3):
        X, R, Q = core(N)
        F = np.where(N > 0, Q / np.maximum(N, 1e-300), 0.0)
        change = np.zeros_like(delta)
        for c in np.flatnonzero(N > 0):
            n = N.copy()
            n[c] -= 1.0
            if n.sum() == 0:
                change[:, :, c] = 0.0
                continue
            _, _, Qc = core(n)
            change[:, :, c] = np.where(n > 0, Qc / np.maximum(n, 1e-300), F) - F
        delta = change
    X, R, _ = core(N)
    return X, R


def _aggregate(model: Model, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    N = model.N.astype(float)
    K, C = model.D.shape
    gamma = np.zeros((K, C))

    def core(n: np.ndarray):
        total = n.sum()
        scale = np.where(n[:, None] > 0, _less_one(n) / np.maximum(n[:, None], 1e-300), 0.0)

        def meets(Q: np.ndarray) -> np.ndarray:
            parts = Q[:, :, None] * scale
            wanted = np.maximum((total - 1.0) * (Q.sum(axis=1)[:, None] / total + gamma), 0.0)
            sums = parts.sum(axis=1)
            return parts * np.where(sums > 0, wanted / np.maximum(sums, 1e-300), 0.0)[:, None, :]

        return _fixed_point(model, n, meets, tolerance)

    for _ in range(4):
        X, R, Q = core(N)
        change = np.zeros_like(gamma)
        for c in np.flatnonzero(N > 0):
            n = N.copy()
            n[c] -= 1.0
            if n.sum() > 0:
                change[:, c] = core(n)[2].sum(axis=1) / n.sum() - Q.sum(axis=1) / N.sum()
        gamma = change
    X, R, _ = core(N)
    return X, R
