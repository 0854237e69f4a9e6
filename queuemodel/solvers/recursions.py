"""Exact mean-value recursions: over populations in plain NumPy, and compiled over the lattice of populations.

The third, across thousands of models at once, is in `batch`.
"""

from __future__ import annotations

import sys

import numpy as np

#: Recursions up to this many populations run in NumPy while the compiler is not loaded (it takes half a second), until
#: together they come to `ENOUGH`.
SMALL, ENOUGH = 500, 5_000


def recursion(D: np.ndarray, Z: float, population: int) -> tuple[np.ndarray, np.ndarray]:
    """X (N,) and R (N, K) of single-server queues D and think time Z, for every population."""
    if population <= SMALL and "numba" not in sys.modules and _in_plain_python(population):
        return mva_recursion(D, Z, np.zeros(len(D), dtype=bool), np.arange(1, population + 1))
    from .kernels import multiclass

    X, R, none = np.zeros((population, 1)), np.zeros((population, 1, len(D))), np.zeros((1, 0))
    multiclass.lattice(D[None, :], np.array([Z]), np.array([population]), X, R, none, np.zeros((1, len(D), 0)))
    return X[:, 0], R[:, 0]


def _in_plain_python(steps: int, done: list[int] = [0]) -> bool:  # noqa: B006  # counts over calls on purpose
    done[0] += steps
    return done[0] <= ENOUGH


def mva_recursion(
    D: np.ndarray, Z: float | np.ndarray, is_delay: np.ndarray, populations: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """X (n, ...) and R (n, ..., K) at increasing populations (n,), for demands D (..., K) and think times Z (...).

    Reiser and Lavenberg (1980); rounding is kept from breaking the laws that X grows and stays below 1 / max D.
    """
    queues = np.where(is_delay, 0.0, 1.0)
    most = 1.0 / np.maximum((D * queues).max(axis=-1, initial=0.0), 1e-300)
    X = np.empty((len(populations), *D.shape[:-1]))
    R = np.empty((len(populations), *D.shape))
    Q, x = np.zeros(D.shape), np.zeros(D.shape[:-1])
    row = 0
    for n in range(1, int(populations[-1]) + 1):
        r = D * (1.0 + queues * Q)  # arrival theorem
        x = np.maximum(x, np.minimum(n / (Z + r.sum(axis=-1)), most))
        Q = x[..., None] * r  # Little's law
        if n == populations[row]:
            X[row], R[row], row = x, r, row + 1
    return X, R


def lattice_recursion(
    D: np.ndarray, Z: np.ndarray, N: np.ndarray, *, slopes: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """X (C,) and R (C, K) of single-server queues with demands D (C, K), at populations N (C,), and their derivatives.

    These are dX (C, P) and dR (C, K, P), where the P parameters are demands (K, C) and then think times (C,); none
    without ``slopes``.
    """
    from .kernels import multiclass

    C, K = D.shape
    P = C * (K + 1) if slopes else 0
    X, R, dX, dR = np.zeros((1, C)), np.zeros((1, C, K)), np.zeros((C, P)), np.zeros((C, K, P))
    multiclass.lattice(np.ascontiguousarray(D), Z, N, X, R, dX, dR)
    return X[0], R[0], dX, dR
