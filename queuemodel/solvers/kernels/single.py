"""Convolution of single-class networks, in numbers with an exponent of their own.

A number is a pair (m, e) that stands for m * 2**(512 e) with m = 0 or 2**-256 <= m < 2**256, so that nothing overflows
or underflows; all terms are positive, so that nothing cancels.
"""

import numpy as np

from ...compiled import compiled

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
def constants(X, m, e):
    """G(n) = G(n-1) / X(n), from G(0) = 1, into m, e of length N + 1."""
    m[0], e[0] = 1.0, 0
    for n in range(1, len(m)):
        m[n], e[n] = normal(m[n - 1] / X[n - 1], e[n - 1])


@compiled()
def factor(D, mu, m, e):
    """f(n) = D**n / (mu(1) ... mu(n)); beyond its end mu stays as it was."""
    m[0], e[0] = 1.0, 0
    for n in range(1, len(m)):
        m[n], e[n] = normal(m[n - 1] * D / mu[min(n, len(mu)) - 1], e[n - 1])


@compiled()
def convolve(m, e, fm, fe, length):
    """h(n) = sum over i < length of f(i) g(n - i), in place of g = (m, e)."""
    for n in range(len(m) - 1, -1, -1):
        a, b = 0.0, 0
        for i in range(min(length, n + 1)):
            a, b = add(a, b, fm[i] * m[n - i], fe[i] + e[n - i])
        m[n], e[n] = normal(a, b)


@compiled()
def geometric(m, e, r):
    """h(n) = g(n) + r h(n-1), in place: a station of constant rate."""
    for n in range(1, len(m)):
        a, b = add(m[n], e[n], r * m[n - 1], e[n - 1])
        m[n], e[n] = normal(a, b)


@compiled()
def ratio(am, ae, bm, be, out):
    """a(n) / b(n) as plain numbers."""
    for n in range(len(out)):
        d = ae[n] - be[n]
        x = am[n] / bm[n]
        if d == 0:
            out[n] = x
        elif d == 1:
            out[n] = x * UP
        elif d == -1:
            out[n] = x * DOWN
        else:
            out[n] = 0.0 if d < 0 else np.inf


@compiled()
def throughput(m, e, X):
    """X(n) = G(n-1) / G(n) for n = 1..N."""
    for n in range(1, len(m)):
        x = m[n - 1] / m[n]
        d = e[n - 1] - e[n]
        X[n - 1] = x * UP if d > 0 else (x * DOWN if d < 0 else x)


@compiled()
def queue_residence(D, X, R):
    """R(n) = D (1 + Q(n-1)) of a queue of constant rate, by the network's throughputs."""
    Q = 0.0
    for n in range(len(X)):
        R[n] = D * (1.0 + Q)
        Q = X[n] * R[n]


@compiled()
def dependent_residence(D, mu, bounded, X, p0, R):
    """R(n) of a load-dependent station from p(0|n) and p(j|n) = X(n) D / mu(j) p(j-1|n-1).

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


@compiled()
def marginal(fm, fe, gm, ge, m, e, p):
    """p(j|N) = f(j) G_-k(N-j) / G(N)."""
    N = len(fm) - 1
    for j in range(N + 1):
        x = fm[j] * gm[N - j] / m
        d = fe[j] + ge[N - j] - e
        if d == 1:
            x *= UP
        elif d == -1:
            x *= DOWN
        elif d < -1:
            x = 0.0
        p[j] = x
