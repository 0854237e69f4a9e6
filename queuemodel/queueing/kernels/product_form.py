"""Networks with product form: mean-value analysis and convolution.

A pair (m, e) stands for m * 2**(512 e), 2**-256 <= m < 2**256 or 0: no overflow, and no cancellation, as all terms are
positive. Arrays go through all populations of C classes, the last class fastest.
"""

import numpy as np

from ...base.compiled import compiled

#: Networks whose state stays in the first-level cache.
BLOCK = 512
BIG, SMALL = 2.0**256, 2.0**-256
UP, DOWN = 2.0**512, 2.0**-512


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


@compiled()
def next_point(n, N):
    for c in range(len(N) - 1, -1, -1):
        if n[c] < N[c]:
            n[c] += 1
            return
        n[c] = 0


@compiled()
def lattice(D, Z, N, X, R):
    """All populations of C classes, one plane at a time, that of class 0: D (C, K), Z, N (C,); fills X, R at N."""
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
            next_point(n[1:], N[1:])


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
def recursions(D, Z, N, X, last, last_R):
    """`recursion` of M networks, D (K, M), Z, N (M,): fills X (largest N or 0, M), and last, last_R at each own N."""
    K, M = D.shape
    d, Q, R = np.zeros((K, BLOCK)), np.zeros((K, BLOCK)), np.zeros((K, BLOCK))
    z, total, xs = np.ones(BLOCK), np.ones(BLOCK), np.ones(BLOCK)
    for start in range(0, M, BLOCK):
        end = min(start + BLOCK, M)
        Q[:] = 0.0
        z[: end - start] = Z[start:end]
        d[:, : end - start] = D[:, start:end]
        for n in range(1, N[start:end].max() + 1):
            _step(float(n), K, d, z, Q, R, total, xs)
            if len(X):
                X[n - 1, start:end] = xs[: end - start]
            if n >= N[start:end].min():
                for i in range(start, end):
                    if N[i] == n:
                        last[i], last_R[:, i] = xs[i - start], R[:, i - start]


@compiled()
def normal(m, e):
    if not m < np.inf:
        return m, e
    while m >= BIG:
        m *= DOWN
        e += 1
    while 0.0 < m < SMALL:
        m *= UP
        e -= 1
    return m, e


@compiled()
def add(m, e, p, q):
    """(m, e) + (p, q) for terms that need not be normal; the sum need not be either."""
    if m == 0.0 or (p != 0.0 and q > e):
        m, e, p, q = p, q, m, e
    if q == e:
        m += p
    elif q == e - 1:
        m += p * DOWN
    return m, e


@compiled()
def factor(D, mu, N, strides, m, e):
    """f(n) = |n|! / (mu(1) ... mu(|n|)) times the product of D_c**n_c / n_c!; mu ends with its last value."""
    n = np.zeros(len(N), dtype=np.int64)
    m[0], e[0] = 1.0, 0
    for at in range(1, len(m)):
        next_point(n, N)
        total = n.sum()
        for c in range(len(N)):
            if n[c] > 0:
                before = at - strides[c]
                step = D[c] * total / n[c] / mu[min(total, len(mu)) - 1]
                m[at], e[at] = normal(m[before] * step, e[before])
                break


@compiled()
def geometric(D, N, strides, m, e):
    """h(n) = g(n) + sum of D_c h(n - e_c), in place: a station of constant rate."""
    n = np.zeros(len(N), dtype=np.int64)
    for at in range(1, len(m)):
        next_point(n, N)
        a, b = m[at], e[at]
        for c in range(len(N)):
            if n[c] > 0 and D[c] > 0.0:
                a, b = add(a, b, D[c] * m[at - strides[c]], e[at - strides[c]])
        m[at], e[at] = normal(a, b)


@compiled()
def convolve(points, offsets, fm, fe, N, m, e):
    """h(n) = sum over points i <= n of f(i) g(n - i), in place of g; offsets increase."""
    C = len(N)
    n = N.copy()
    for at in range(len(m) - 1, -1, -1):
        a, b = 0.0, 0
        for p in range(len(offsets)):
            if offsets[p] > at:
                break
            inside = True
            for c in range(1, C):
                if points[p, c] > n[c]:
                    inside = False
                    break
            if inside:
                a, b = add(a, b, fm[p] * m[at - offsets[p]], fe[p] + e[at - offsets[p]])
        m[at], e[at] = normal(a, b)
        for c in range(C - 1, -1, -1):
            if n[c] > 0:
                n[c] -= 1
                break
            n[c] = N[c]


@compiled()
def residence(D, mu, bounded, X, p0, R):
    """R(n) of one class at a station of rates mu (N,), p(j|n) = X(n) D / mu(j) p(j-1|n-1); ``bounded``: up to mu(m)."""
    m, N = len(mu), len(X)
    p = np.zeros(m + 1)
    p[0] = 1.0
    last = 1.0 / mu[m - 1] if bounded else 0.0
    w = np.empty(m + 1)
    for j in range(1, m + 1):
        w[j] = j * (1.0 / mu[j - 1] - last)
    Q = 0.0
    for n in range(1, N + 1):
        total = (1.0 + Q) * last
        for j in range(1, min(n, m) + 1):
            total += w[j] * p[j - 1]
        R[n - 1] = D * total
        Q = X[n - 1] * R[n - 1]
        for j in range(min(n, m), 0, -1):
            p[j] = X[n - 1] * D / mu[j - 1] * p[j - 1]
        p[0] = p0[n]
