"""Convolution on the lattice of multi-class populations, in pairs (see `single`): all terms positive."""

import numpy as np

from ...compiled import compiled
from .single import DOWN, UP, add, normal


@compiled()
def advance(n, N):
    """The next lattice point, the last class running fastest."""
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
    """h(n) = sum over points i <= n of f(i) g(n - i), in place of g."""
    C = len(N)
    n = N.copy()
    for at in range(len(m) - 1, -1, -1):
        a, b = 0.0, 0
        for p in range(len(offsets)):
            inside = True
            for c in range(C):
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
def plain(m, e, p, q):
    """(m, e) / (p, q) as a number."""
    d = e - q
    x = m / p
    if d == 0:
        return x
    if d == 1:
        return x * UP
    if d == -1:
        return x * DOWN
    return 0.0 if d < 0 else np.inf


@compiled()
def lengths(fm, fe, m, e, gm, ge, N, Q):
    """Q_c = sum over i of i_c f(i) g(N - i) / G, g being the network without the station, G = (gm, ge)."""
    n = np.zeros(len(N), dtype=np.int64)
    last = len(m) - 1
    Q[:] = 0.0
    for at in range(1, len(m)):
        advance(n, N)
        a, b = normal(fm[at] * m[last - at], fe[at] + e[last - at])
        p = plain(a, b, gm, ge)
        for c in range(len(N)):
            Q[c] += n[c] * p
