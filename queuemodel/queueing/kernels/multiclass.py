"""Mean-value analysis on the lattice of populations."""

import numpy as np

from ...base.compiled import compiled


@compiled()
def lattice(D, Z, N, X, R):
    """Reiser and Lavenberg (1980), keeping one plane: all populations of classes 1.. at the current one of class 0.

    D (C, K), Z (C,), N (C,). Fills X (C,) and R (C, K) at N.
    """
    C, K = D.shape
    strides = np.ones(C, dtype=np.int64)
    for c in range(C - 2, -1, -1):
        strides[c] = strides[c + 1] * (N[c + 1] + 1)
    Q, new = np.zeros((strides[0], K)), np.zeros(K)
    n = np.zeros(C, dtype=np.int64)
    for first in range(N[0] + 1):
        n[1:] = 0
        n[0] = first
        for at in range(strides[0]):
            new[:] = 0.0
            for c in range(C):
                if n[c] == 0:
                    continue
                before = at if c == 0 else at - strides[c]
                total = Z[c]
                for k in range(K):
                    R[c, k] = D[c, k] * (1.0 + Q[before, k])  # arrival theorem
                    total += R[c, k]
                X[c] = n[c] / total
                for k in range(K):
                    new[k] += X[c] * R[c, k]  # Little's law
            Q[at] = new
            for c in range(C - 1, 0, -1):
                if n[c] < N[c]:
                    n[c] += 1
                    break
                n[c] = 0
