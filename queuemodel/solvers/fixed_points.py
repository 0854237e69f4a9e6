"""Fixed points of approximate mean-value analysis: which queues a customer meets, given the queues there are."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np

from ..errors import QueueModelWarning
from .amva import Model

MOST_ITERATIONS = 20_000


def _fixed_point(
    model: Model, N: np.ndarray, meets: Callable[[np.ndarray], np.ndarray], tolerance: float
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
        stacklevel=4,
    )
    return X, R, Q


def _less_one(N: np.ndarray) -> np.ndarray:
    """Shape (R, C): what is left of class r's population when one of class c is taken away."""
    return np.maximum(N[:, None] - np.eye(len(N)), 0.0)


def _over(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Their ratio, and 0 where there is nothing."""
    return np.where(whole > 0, part / np.maximum(whole, 1e-300), 0.0)


def schweitzer(model: Model, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    N = model.N.astype(float)
    scale = _over(_less_one(N), N[:, None])
    X, R, _ = _fixed_point(model, N, lambda Q: Q[:, :, None] * scale, tolerance)
    return X, R


def linearizer(model: Model, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    N = model.N.astype(float)
    K, C = model.D.shape
    delta = np.zeros((K, C, C))

    def core(n: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        left = _less_one(n)
        return _fixed_point(model, n, lambda Q: np.maximum(left * (_over(Q, n)[:, :, None] + delta), 0.0), tolerance)

    for _ in range(3):
        X, R, Q = core(N)
        F = _over(Q, N)
        change = np.zeros_like(delta)
        for c in np.flatnonzero(N > 0):
            n = N.copy()
            n[c] -= 1.0
            if n.sum() > 0:
                change[:, :, c] = np.where(n > 0, _over(core(n)[2], n), F) - F
        delta = change
    X, R, _ = core(N)
    return X, R


def aggregate(model: Model, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    N = model.N.astype(float)
    K, C = model.D.shape
    gamma = np.zeros((K, C))

    def core(n: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        total, scale = n.sum(), _over(_less_one(n), n[:, None])

        def meets(Q: np.ndarray) -> np.ndarray:
            parts = Q[:, :, None] * scale
            wanted = np.maximum((total - 1.0) * (Q.sum(axis=1)[:, None] / total + gamma), 0.0)
            return parts * _over(wanted, parts.sum(axis=1))[:, None, :]

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
