"""Exact multi-class convolution for multi-server and load-dependent stations (Reiser and Kobayashi, 1975)."""

from __future__ import annotations

import math

import numpy as np

from .chains import Merged
from .convolution import Pairs, is_bounded, without_each


def cost(merged: Merged) -> tuple[float, float]:
    """Station steps and bytes that `solve_lattice` needs."""
    points = math.prod(int(n) + 1 for n in merged.N)
    rates = merged.speeds
    C, M = len(merged.N), sum(mu is not None for mu in rates)
    rounds = 2 + math.ceil(math.log2(max(1, M)))
    terms = sum(min(points, math.comb(_reach(mu, merged.N) - 1 + C, C)) for mu in rates if mu is not None)
    return points * (2.0 * C * len(rates) + rounds * 2.0 * terms), points * 16.0 * (rounds + 3)


def _reach(mu: np.ndarray, N: np.ndarray) -> int:
    """Points of the station's polynomial have fewer customers than this."""
    total = int(N.sum())
    return min(len(mu), total + 1) if is_bounded(mu) else total + 1


class _Work:
    """The lattice's shape, and its stations."""

    def __init__(self, merged: Merged) -> None:
        self.D, self.N = merged.D, merged.N
        self.rates = merged.speeds
        self.strides = np.ones(len(self.N), dtype=np.int64)
        for c in range(len(self.N) - 2, -1, -1):
            self.strides[c] = self.strides[c + 1] * (self.N[c + 1] + 1)
        self.size = int(self.strides[0] * (self.N[0] + 1))
        self.totals = np.indices(tuple(self.N + 1), dtype=np.int32).sum(axis=0).ravel()

    def empty(self) -> Pairs:
        return np.zeros(self.size), np.zeros(self.size, dtype=np.int64)

    def factor(self, k: int) -> Pairs:
        from .kernels import lattice

        f, mu = self.empty(), self.rates[k]
        lattice.factor(self.D[:, k], np.ones(1) if mu is None else mu, self.N, self.strides, *f)
        return f

    def add(self, constants: Pairs, k: int) -> Pairs:
        """Constants with station k; the decomposition of `convolution._with` for several classes."""
        from .kernels import lattice

        m, e = constants[0].copy(), constants[1].copy()
        mu, D = self.rates[k], self.D[:, k]
        if mu is None:
            lattice.geometric(D, self.N, self.strides, m, e)
            return m, e
        f, bounded = self.factor(k), is_bounded(mu)
        at = np.flatnonzero((self.totals < _reach(mu, self.N)) & (f[0] > 0))
        values = f[0][at]
        if bounded:
            busy = self.totals[at]
            values = values * np.where(busy > 0, 1.0 - mu[np.maximum(busy, 1) - 1] / mu[-1], 1.0)
        points = np.stack(np.unravel_index(at, tuple(self.N + 1)), axis=1).astype(np.int64)
        lattice.convolve(points, at, values, f[1][at], self.N, m, e)
        if bounded:
            lattice.geometric(D / mu[-1], self.N, self.strides, m, e)
        return m, e


def solve_lattice(merged: Merged) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X (C,), Q (C, K) and the probabilities (K,) that nobody is there (NaN at stations of constant rate)."""
    from .kernels import lattice

    work = _Work(merged)
    C, K = merged.D.shape
    base = work.empty()
    lattice.thinking(merged.Z, work.N, work.strides, *base)
    dependent = [k for k in range(K) if work.rates[k] is not None]
    for k in range(K):
        if k not in dependent:
            base = work.add(base, k)
    without = without_each(dependent, base, work.add)
    G = work.add(without[dependent[0]], dependent[0]) if dependent else base
    top, before = work.size - 1, work.size - 1 - work.strides
    X = np.array([lattice.plain(G[0][b], G[1][b], G[0][top], G[1][top]) for b in before])
    Q, empty = np.zeros((C, K)), np.full(K, np.nan)
    for k in range(K):
        if k in dependent:
            rest = without[k]
            lattice.lengths(*work.factor(k), *rest, G[0][top], G[1][top], work.N, Q[:, k])
            empty[k] = lattice.plain(rest[0][top], rest[1][top], G[0][top], G[1][top])
        else:
            twice = work.add(G, k)
            Q[:, k] = [
                merged.D[c, k] * lattice.plain(twice[0][b], twice[1][b], G[0][top], G[1][top])
                for c, b in enumerate(before)
            ]
    return X, Q, empty
