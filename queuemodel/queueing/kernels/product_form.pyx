"""Networks with product form: mean-value analysis and convolution.

A pair (m, e) stands for m * 2**(512 e), 2**-256 <= m < 2**256 or 0: no overflow, and no cancellation, as all terms are
positive. Arrays go through all populations of C classes, the last class fastest.
"""

import numpy as np

from libc.math cimport INFINITY

cdef enum:  # networks whose state stays in the first-level cache
    BLOCK = 512
cdef double BIG = 2.0**256, SMALL = 2.0**-256
cdef double UP = 2.0**512, DOWN = 2.0**-512


def recursion(const double[:] D, double Z, long N):
    """X (N,) and R (N, K) of single-server queues D and think time Z, for every population."""
    K = len(D)
    cdef double[::1] X = np.empty(N), Q = np.zeros(K)
    cdef double[:, ::1] R = np.empty((N, K))
    cdef double total, x = 0.0, largest = 1e-300
    for k in range(K):
        largest = max(largest, D[k])
    for n in range(1, N + 1):
        total = Z
        for k in range(K):
            R[n - 1, k] = D[k] * (1.0 + Q[k])  # arrival theorem: R_k(n) = D_k (1 + Q_k(n-1))
            total += R[n - 1, k]
        x = max(x, min(n / total, 1.0 / largest))  # X(n) = n / (Z + R(n)); rounding keeps X(n-1) <= X(n) <= 1 / D_max
        X[n - 1] = x
        for k in range(K):
            Q[k] = x * R[n - 1, k]  # Little's law: Q_k = X R_k
    return X.base, R.base


cdef void next_point(long* n, const long* N, long C) noexcept nogil:
    """Step to the next population, the last class fastest."""
    for c in range(C - 1, -1, -1):
        if n[c] < N[c]:
            n[c] += 1
            return
        n[c] = 0


def lattice(
    const double[:, :] D, const double[:] Z, const long[::1] N, double[::1] X, double[:, ::1] R
):
    """All populations of C classes, one plane at a time, that of class 0: D (C, K), Z, N (C,); fills X, R at N."""
    C, K = D.shape[0], D.shape[1]
    cdef long[::1] n = np.zeros(C, np.int64), strides = np.ones(C, np.int64)
    for c in range(C - 2, -1, -1):
        strides[c] = strides[c + 1] * (N[c + 1] + 1)
    cdef double[:, ::1] Q = np.zeros((strides[0], K))
    cdef double[::1] new = np.zeros(K)
    cdef double total
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
                    R[c, k] = D[c, k] * (1.0 + Q[before, k])  # arrival theorem: R_ck(n) = D_ck (1 + Q_k(n - e_c))
                    total += R[c, k]
                X[c] = n[c] / total  # Little's law for a cycle: n_c = X_c (Z_c + R_c)
                for k in range(K):
                    new[k] += X[c] * R[c, k]  # Q_k = sum_c X_c R_ck
            for k in range(K):
                Q[at, k] = new[k]
            next_point(&n[1], &N[1], C - 1)


cdef void _step(
    double n, long K, double[:, ::1] d, double[::1] z, double[:, ::1] Q, double[:, ::1] R, double[::1] total,
    double[::1] xs
) noexcept nogil:
    """One population more for a block of models."""
    for i in range(BLOCK):
        total[i] = z[i]
    for k in range(K):
        for i in range(BLOCK):
            r = d[k, i] * (1.0 + Q[k, i])  # arrival theorem
            R[k, i] = r
            total[i] += r
    for i in range(BLOCK):
        xs[i] = n / total[i]  # X(n) = n / (Z + R(n))
    for k in range(K):
        for i in range(BLOCK):
            Q[k, i] = xs[i] * R[k, i]  # Little's law


def recursions(
    const double[:, ::1] D, const double[::1] Z, const long[::1] N, double[:, ::1] X, double[::1] last,
    double[:, ::1] last_R
):
    """`recursion` of M networks, D (K, M), Z, N (M,): fills X (max N or 0, M), and last, last_R at each network's N."""
    K, M = D.shape[0], D.shape[1]
    cdef double[:, ::1] d = np.zeros((K, BLOCK)), Q = np.zeros((K, BLOCK)), R = np.zeros((K, BLOCK))
    cdef double[::1] z = np.ones(BLOCK), total = np.ones(BLOCK), xs = np.ones(BLOCK)
    cdef long start, end, min_N, max_N
    for start in range(0, M, BLOCK):
        end = min(start + BLOCK, M)
        Q[:] = 0.0
        z[: end - start] = Z[start:end]
        d[:, : end - start] = D[:, start:end]
        min_N = max_N = N[start]
        for i in range(start, end):
            min_N, max_N = min(min_N, N[i]), max(max_N, N[i])
        for n in range(1, max_N + 1):
            _step(n, K, d, z, Q, R, total, xs)
            if len(X):
                X[n - 1, start:end] = xs[: end - start]
            if n >= min_N:
                for i in range(start, end):
                    if N[i] == n:
                        last[i] = xs[i - start]
                        for k in range(K):
                            last_R[k, i] = R[k, i - start]


cdef (double, long) normal(double m, long e) noexcept nogil:
    """The same number with 2**-256 <= m < 2**256, or 0."""
    if not m < INFINITY:
        return m, e
    while m >= BIG:
        m *= DOWN
        e += 1
    while 0.0 < m < SMALL:
        m *= UP
        e -= 1
    return m, e


cdef (double, long) add(double m, long e, double p, long q) noexcept nogil:
    """(m, e) + (p, q) for terms that need not be normal; the sum need not be either."""
    if m == 0.0 or (p != 0.0 and q > e):
        m, e, p, q = p, q, m, e
    if q == e:
        m += p
    elif q == e - 1:
        m += p * DOWN  # terms with q < e - 1 are below the last bit
    return m, e


def factor(
    const double[:] D, const double[:] mu, const long[::1] N, const long[:] strides, double[::1] m, long[::1] e
):
    """f(n) = |n|! / (mu(1) ... mu(|n|)) times the product of D_c**n_c / n_c!; mu ends with its last value."""
    cdef long[::1] n = np.zeros(len(N), np.int64)
    m[0], e[0] = 1.0, 0
    for at in range(1, len(m)):
        next_point(&n[0], &N[0], len(N))
        total = 0
        for c in range(len(N)):
            total += n[c]
        for c in range(len(N)):
            if n[c] > 0:
                before = at - strides[c]
                step = D[c] * total / n[c] / mu[min(total, len(mu)) - 1]
                m[at], e[at] = normal(m[before] * step, e[before])  # f(n) = f(n - e_c) D_c |n| / (n_c mu(|n|))
                break


def geometric(const double[:] D, const long[::1] N, const long[:] strides, double[::1] m, long[::1] e):
    """h(n) = g(n) + sum of D_c h(n - e_c), in place: a station of constant rate (Reiser and Kobayashi, 1975)."""
    cdef long[::1] n = np.zeros(len(N), np.int64)
    for at in range(1, len(m)):
        next_point(&n[0], &N[0], len(N))
        a, b = m[at], e[at]
        for c in range(len(N)):
            if n[c] > 0 and D[c] > 0.0:
                a, b = add(a, b, D[c] * m[at - strides[c]], e[at - strides[c]])
        m[at], e[at] = normal(a, b)


def convolve(
    const long[:, :] points, const long[:] offsets, const double[:] fm, const long[:] fe, const long[::1] N,
    double[::1] m, long[::1] e
):
    """h(n) = sum over points i <= n of f(i) g(n - i), in place of g; offsets increase."""
    C = len(N)
    cdef long[::1] n = np.array(N)
    cdef bint inside
    for at in range(len(m) - 1, -1, -1):  # downwards: g(n - i) is not overwritten yet
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


def residence(double D, const double[:] mu, bint bounded, const double[:] X, const double[:] p0, double[:] R):
    """R(n) of one class at a station of rates mu (N,), p(j|n) = X(n) D / mu(j) p(j-1|n-1); ``bounded``: up to mu(m)."""
    m, N = len(mu), len(X)
    cdef double[::1] p = np.zeros(m + 1), w = np.empty(m + 1)
    p[0] = 1.0
    last = 1.0 / mu[m - 1] if bounded else 0.0
    for j in range(1, m + 1):
        w[j] = j * (1.0 / mu[j - 1] - last)  # 0 where mu(j) = mu(m)
    Q = 0.0
    for n in range(1, N + 1):
        # R(n) = D sum_j j / mu(j) p(j-1|n-1) (Reiser, 1981), and sum_j j p(j-1|n-1) = 1 + Q(n-1)
        total = (1.0 + Q) * last
        for j in range(1, min(n, m) + 1):
            total += w[j] * p[j - 1]
        R[n - 1] = D * total
        Q = X[n - 1] * R[n - 1]  # Little's law
        for j in range(min(n, m), 0, -1):
            p[j] = X[n - 1] * D / mu[j - 1] * p[j - 1]
        p[0] = p0[n]
