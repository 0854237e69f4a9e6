"""Many single-class networks at once: the inner loop runs across models, which the processor does several at a time."""

import numpy as np

from ...base.compiled import compiled

#: Models whose state stays in the first-level cache.
BLOCK = 512


@compiled(error_model="numpy")
def _step(n, K, d, z, Q, R, total, xs):
    """One population more for a block of models."""
    for i in range(BLOCK):
        total[i] = z[i]
    for k in range(K):
        for i in range(BLOCK):
            r = d[k, i] * (1.0 + Q[k, i])  # arrival theorem
            R[k, i] = r
            total[i] += r
    for i in range(BLOCK):
        xs[i] = n / total[i]
    for k in range(K):
        for i in range(BLOCK):
            Q[k, i] = xs[i] * R[k, i]  # Little's law


@compiled(error_model="numpy")
def solve(D, Z, N, X, last, last_R):
    """Mean-value analysis of M models with K queues: D (K, M), Z (M,), N (M,).

    Fills X (largest N or 0, M), and last (M,) and last_R (K, M) at each model's own population.
    """
    K, M = D.shape
    keep = X.shape[0] > 0
    d, Q, R = np.zeros((K, BLOCK)), np.zeros((K, BLOCK)), np.zeros((K, BLOCK))
    z, total, xs = np.ones(BLOCK), np.ones(BLOCK), np.ones(BLOCK)
    for start in range(0, M, BLOCK):
        width = min(BLOCK, M - start)
        for k in range(K):
            for i in range(BLOCK):
                Q[k, i] = 0.0
        first, ends = N[start], N[start]
        for i in range(width):
            z[i] = Z[start + i]
            first, ends = min(first, N[start + i]), max(ends, N[start + i])
            for k in range(K):
                d[k, i] = D[k, start + i]
        for n in range(1, ends + 1):
            _step(float(n), K, d, z, Q, R, total, xs)
            if keep:
                for i in range(width):
                    X[n - 1, start + i] = xs[i]
            if n >= first:
                for i in range(width):
                    if N[start + i] == n:
                        last[start + i] = xs[i]
                        for k in range(K):
                            last_R[k, start + i] = R[k, i]
