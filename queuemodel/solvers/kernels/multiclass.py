"""Multi-class inner loops: mean-value analysis on the lattice of populations, and placing customers one by one."""

import numpy as np

from ...compiled import compiled


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


@compiled()
def place(P, j, strides, side, z, d):
    """One more customer, in place: P(j) = z P(j) + sum of d_k P(j - e_k); then the largest becomes 1."""
    K = len(d)
    j[:] = side - 1
    most = 0.0
    for at in range(len(P) - 1, -1, -1):
        p = z * P[at]
        for k in range(K):
            if j[k] > 0:
                p += d[k] * P[at - strides[k]]
        P[at] = p
        most = max(most, p)
        for k in range(K - 1, -1, -1):
            if j[k] > 0:
                j[k] -= 1
                break
            j[k] = side - 1
    for at in range(len(P)):
        P[at] /= most


@compiled()
def withdraw(B, j, strides, side, z, d):
    """The same step backwards, in place: B(j) = z B(j) + sum of d_k B(j + e_k); then the largest becomes 1."""
    K = len(d)
    j[:] = 0
    most = 0.0
    for at in range(len(B)):
        b = z * B[at]
        for k in range(K):
            if j[k] < side - 1:
                b += d[k] * B[at + strides[k]]
        B[at] = b
        most = max(most, b)
        for k in range(K - 1, -1, -1):
            if j[k] < side - 1:
                j[k] += 1
                break
            j[k] = 0
    for at in range(len(B)):
        B[at] /= most


@compiled()
def share(P, B, j, strides, side, z, d, Q):
    """Where one customer is, the others being placed by P and weighed by B: Q (K,); returns its throughput."""
    K = len(d)
    j[:] = 0
    out = 0.0
    Q[:] = 0.0
    for at in range(len(P)):
        p = P[at]
        if p > 0.0:
            out += p * B[at]
            for k in range(K):
                if j[k] < side - 1:
                    Q[k] += p * B[at + strides[k]]
        for k in range(K - 1, -1, -1):
            if j[k] < side - 1:
                j[k] += 1
                break
            j[k] = 0
    total = z * out
    for k in range(K):
        Q[k] *= d[k]
        total += Q[k]
    for k in range(K):
        Q[k] /= total
    return out / total, total


@compiled()
def by_customer(D, Z, N, weights, X, Q, empty):
    """Exact measures by placing customers one by one on stations of any rates.

    D (C, K) and Z (C,), N (C,); weights (K, total + 1) hold n! / (mu(1) ... mu(n)), scaled like D. Fills X (C,),
    Q (C, K) and empty (K,), the probabilities that nobody is at a station. Returns the smallest sum, a measure of
    how close the numbers came to underflow.
    """
    C, K = D.shape
    side = weights.shape[1]
    strides = np.ones(K, dtype=np.int64)
    for k in range(K - 2, -1, -1):
        strides[k] = strides[k + 1] * side
    size = strides[0] * side
    j = np.zeros(K, dtype=np.int64)
    P = np.zeros(size)
    P[0] = 1.0
    kept = np.zeros((C, size))
    for c in range(C):
        for i in range(N[c]):
            if i == N[c] - 1:
                kept[c] = P
            place(P, j, strides, side, Z[c], D[c])
    B = np.ones(size)
    j[:] = 0
    for at in range(size):
        total = 0
        for k in range(K):
            B[at] *= weights[k, j[k]]
            total += j[k]
        if total >= side:
            B[at] = 0.0
        for k in range(K - 1, -1, -1):
            if j[k] < side - 1:
                j[k] += 1
                break
            j[k] = 0
    G = 0.0
    empty[:] = 0.0
    j[:] = 0
    for at in range(size):
        g = P[at] * B[at]
        G += g
        for k in range(K):
            if j[k] == 0:
                empty[k] += g
        for k in range(K - 1, -1, -1):
            if j[k] < side - 1:
                j[k] += 1
                break
            j[k] = 0
    for k in range(K):
        empty[k] /= G
    least = 1.0
    for c in range(C - 1, -1, -1):
        x, total = share(kept[c], B, j, strides, side, Z[c], D[c], Q[c])
        least = min(least, total)
        X[c] = N[c] * x
        for k in range(K):
            Q[c, k] *= N[c]
        for _ in range(N[c]):
            withdraw(B, j, strides, side, Z[c], D[c])
    return least
