"""Normalizing constants of product-form networks with any rates: no overflow, underflow or cancellation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, reduce

import numpy as np

from ..errors import ModelError
from ..network import Network
from .chains import Merged, lowered_product_form, merge

Pairs = tuple[np.ndarray, np.ndarray]


class Lattice:
    """Constants G(n) of stations and think times at all populations n <= N of C classes (Reiser and Kobayashi, 1975).

    Arrays are flat, the last class running fastest; of constants, pairs as `kernels.convolution` has them. D (C, K) are
    demands at stations that queue, Z and N (C,), speeds as `lowered.speeds_of` gives them.
    """

    def __init__(self, D: np.ndarray, Z: np.ndarray, N: np.ndarray, speeds: Sequence[np.ndarray | None]) -> None:
        from .kernels import convolution

        self.D, self.Z, self.N, self.speeds = D, Z, N, speeds
        shape = tuple(int(n) + 1 for n in N)
        self.size = math.prod(shape)
        self.strides = np.array([math.prod(shape[c + 1 :]) for c in range(len(shape))], dtype=np.int64)
        self.points = np.indices(shape).reshape(len(shape), -1).T
        visited = np.flatnonzero((D > 0).any(axis=0)).tolist()
        self.dependent = [k for k in visited if speeds[k] is not None]
        self.base = self._empty()
        convolution.thinking(Z, N, self.strides, *self.base)
        for k in visited:
            if speeds[k] is None:
                self.base = self.add(self.base, k)
        self.total = reduce(self.add, self.dependent, self.base)

    def _empty(self) -> Pairs:
        return np.zeros(self.size), np.zeros(self.size, dtype=np.int64)

    def factor(self, D: np.ndarray, mu: np.ndarray) -> Pairs:
        """What each population contributes at a station alone."""
        from .kernels import convolution

        f = self._empty()
        convolution.factor(D, mu, self.N, self.strides, *f)
        return f

    def add(self, constants: Pairs, k: int) -> Pairs:
        """Constants with station k.

        When rates grow to a last one, mu(m), f(n) - D/mu(m) f(n-1) = f(n) (1 - mu(n)/mu(m)) is >= 0 and ends at n = m,
        so a short convolution and a geometric recursion do, both without subtractions.
        """
        from .kernels import convolution

        m, e = constants[0].copy(), constants[1].copy()
        mu, D = self.speeds[k], self.D[:, k]
        if mu is None:
            convolution.geometric(D, self.N, self.strides, m, e)
            return m, e
        f, exponents = self.factor(D, mu)
        there = self.points.sum(axis=1)
        bounded = is_bounded(mu)
        if bounded:
            f = f * np.where(there > 0, 1.0 - mu[np.clip(there, 1, len(mu)) - 1] / mu[-1], 1.0)
        at = np.flatnonzero(f > 0)
        convolution.convolve(self.points[at], at, f[at], exponents[at], self.N, m, e)
        if bounded:
            convolution.geometric(D / mu[-1], self.N, self.strides, m, e)
        return m, e

    @cached_property
    def without(self) -> dict[int, Pairs]:
        """Constants without each load-dependent station, all others added (divide and conquer)."""

        def each(stations: list[int], done: Pairs) -> dict[int, Pairs]:
            if len(stations) < 2:
                return dict.fromkeys(stations, done)
            half = len(stations) // 2
            first, second = stations[:half], stations[half:]
            return each(first, reduce(self.add, second, done)) | each(second, reduce(self.add, first, done))

        return each(self.dependent, self.base)


def solve_lattice(merged: Merged) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X (C,), Q (C, K) and the probabilities (K,) that somebody is there (NaN at stations of constant rate)."""
    work = Lattice(merged.D, merged.Z, merged.N, merged.speeds)
    (m, e), before = work.total, work.size - 1 - work.strides
    X = _number(m[before] / m[-1], e[before] - e[-1])
    Q, busy = np.zeros(merged.D.shape), np.full(len(merged.stations), np.nan)
    for k, mu in enumerate(merged.speeds):
        if mu is None:
            twice = work.add(work.total, k)
            Q[:, k] = merged.D[:, k] * _number(twice[0][before] / m[-1], twice[1][before] - e[-1])
        else:
            (f, exponents), (rest, others) = work.factor(merged.D[:, k], mu), work.without[k]
            p = _number(f * rest[::-1] / m[-1], exponents + others[::-1] - e[-1])
            Q[:, k], busy[k] = p @ work.points, 1.0 - p[0]
    return X, Q, busy


def constants_of_one_class(merged: Merged) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X (N,), R (N, K) and the probabilities (N, K) that somebody is there, of one class at all populations.

    Every term of every sum is positive, and constants carry exponents of their own (1e-9 at N = 10,000 against 50-digit
    arithmetic, tests/solvers). NaN at stations of constant rate.
    """
    from .kernels import convolution

    N, D = int(merged.N[0]), merged.D[0].tolist()
    work = Lattice(merged.D, merged.Z, merged.N, merged.speeds)
    m, e = work.total
    X = _number(m[:-1] / m[1:], e[:-1] - e[1:])
    if all(mu is None or (is_bounded(mu) and np.all(np.diff(mu) >= 0)) for mu in merged.speeds):
        X = np.maximum.accumulate(X)  # it grows with n; rounding must not make it look otherwise
    R, busy = np.zeros((len(D), N)), np.full((N, len(D)), np.nan)
    for k, mu in enumerate(merged.speeds):
        empty, speeds, bounded = np.ones(N + 1), np.ones(1), True
        if mu is not None:
            rest, exponents = work.without[k]
            empty, bounded = _number(rest / m, exponents - e), is_bounded(mu)
            speeds = mu if bounded else extended(mu, N)
            busy[:, k] = 1.0 - empty[1:]
        convolution.residence(D[k], speeds, bounded, X, empty, R[k])
    return X, np.ascontiguousarray(R.T), busy


def lattice_cost(merged: Merged) -> tuple[float, float]:
    """Station steps and bytes that `solve_lattice` needs."""
    points, total = math.prod(int(n) + 1 for n in merged.N), int(merged.N.sum())
    C, rates = len(merged.N), [mu for mu in merged.speeds if mu is not None]
    reach = [min(len(mu), total + 1) if is_bounded(mu) else total + 1 for mu in rates]
    terms = sum(min(points, math.comb(n - 1 + C, C)) for n in reach)
    rounds = 2 + math.ceil(math.log2(max(1, len(rates))))
    return points * (2.0 * C * len(merged.speeds) + rounds * 2.0 * terms), points * (16.0 * (rounds + 3) + 8.0 * C)


def is_bounded(mu: np.ndarray) -> bool:
    """Whether the last of the speeds is the highest."""
    return bool(mu.max() == mu[-1])


def _number(m: np.ndarray, e: np.ndarray) -> np.ndarray:
    """Pairs as plain numbers."""
    return np.asarray(np.ldexp(m, 512 * np.clip(e, -4, 4)))


def extended(mu: np.ndarray, N: int) -> np.ndarray:
    """Speeds with 1 to N customers: the last one holds from there on."""
    return np.concatenate([mu, np.full(max(0, N - len(mu)), mu[-1])])[:N]


def marginal_distribution(network: Network, station: str | int, *, population: int) -> np.ndarray:
    """Probabilities of 0, 1, ..., ``population`` customers at a station, waiting and in service; exact.

    Parameters
    ----------
    network : Network
        Single-class, with product form.
    station : str or int
        Name or index.
    population : int

    Returns
    -------
    ndarray, shape (population + 1,)

    Examples
    --------
    >>> from queuemodel import Network, Station
    >>> network = Network([Station("a", service_time=1.0), Station("b", service_time=1.0)])
    >>> marginal_distribution(network, "a", population=3)
    array([0.25, 0.25, 0.25, 0.25])
    """
    if network.classes:
        raise ModelError("marginal distribution: the network has classes; it is of single-class networks")
    k = next((k for k, name in enumerate(network.names) if station in (name, k)), None)
    if k is None:
        raise ModelError(f"station must be one of {', '.join(map(repr, network.names))} or its index, got {station!r}")
    low = lowered_product_form(network, population, "marginal distribution")
    N = int(low.N[0])
    if low.D[k, 0] == 0:
        return (np.arange(N + 1) == 0).astype(float)
    others = replace(low, D=np.where(np.arange(len(low.D))[:, None] == k, 0.0, low.D))
    merged, mu = merge(others), network.stations[k].speeds(N)
    rest = Lattice(merged.D, merged.Z, merged.N, merged.speeds)
    f, m = rest.factor(low.D[k], mu), rest.total
    weight, exponents = f[0] * m[0][::-1], f[1] + m[1][::-1]
    weight = _number(weight, exponents - exponents[weight > 0].max())
    return weight / weight.sum()
