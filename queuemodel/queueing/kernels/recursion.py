"""Mean-value analysis of one class, over all populations."""

import numpy as np

from ...base.compiled import compiled


@compiled()
def recursion(D, Z, N):
    """X (N,) and R (N, K) of single-server queues D and think time Z, for every population."""
    K = len(D)
    X, R, Q = np.empty(N), np.empty((N, K)), np.zeros(K)
    x, largest = 0.0, 1e-300
    for k in range(K):
        largest = max(largest, D[k])
    for n in range(1, N + 1):
        total = Z
        for k in range(K):
            R[n - 1, k] = D[k] * (1.0 + Q[k])  # arrival theorem
            total += R[n - 1, k]
        x = max(x, min(n / total, 1.0 / largest))  # rounding must not break the laws
        X[n - 1] = x
        for k in range(K):
            Q[k] = x * R[n - 1, k]  # Little's law
    return X, R
