"""Convolution on the lattice of populations, in numbers with an exponent of their own.

A number is a pair (m, e) that stands for m * 2**(512 e) with m = 0 or 2**-256 <= m < 2**256, so that nothing overflows
or underflows; all terms are positive, so that nothing cancels. Arrays go through all populations of C classes, the last
class running fastest.
"""

import numpy as np

from ...base.compiled import compiled

BIG, SMALL = 2.0**256, 2.0**-256
UP, DOWN = 2.0**512, 2.0**-512


@compiled()
def normal(m, e):
    """The pair in its normal form."""
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
    if p == 0.0:
        return m, e
    if m == 0.0 or q > e + 1:
        return p, q
    if q == e:
        return m + p, e
    if q == e + 1:
        return p + m * DOWN, q
    if q == e - 1:
        return m + p * DOWN, e
    return m, e


@compiled()
def advance(n, N):
    """The next lattice point."""
    for c in range(len(N) - 1, -1, -1):
        if n[c] < N[c]:
            n[c] += 1
            return
        n[c] = 0


@compiled()
def thinking(Z, N, strides, m, e):
    """G(n) = product of Z_c**n_c / n_c!."""
    n = np.zeros(len(N), dtype=np.int64)
    m[0], e[0] = 1.0, 0
    for at in range(1, len(m)):
        advance(n, N)
        for c in range(len(N)):
            if n[c] > 0:
                before = at - strides[c]
                m[at], e[at] = normal(m[before] * Z[c] / n[c], e[before])
                break


@compiled()
def factor(D, mu, N, strides, m, e):
    """f(n) = |n|! / (mu(1) ... mu(|n|)) times the product of D_c**n_c / n_c!; mu ends with its last value."""
    n = np.zeros(len(N), dtype=np.int64)
    m[0], e[0] = 1.0, 0
    for at in range(1, len(m)):
        advance(n, N)
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
        advance(n, N)
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
    """R(n) of a station and one class from p(0|n) and p(j|n) = X(n) D / mu(j) p(j-1|n-1).

    With ``bounded`` the rates grow to the last one, mu(m), and only p(j) for j < m are needed:
    R(n) = D ((1 + Q(n-1)) / mu(m) + sum over j < m of j (1/mu(j) - 1/mu(m)) p(j-1|n-1)); else mu has N values.
    """
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
