"""Normalizing constants of product-form networks with any rates: no overflow, underflow or cancellation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np

from ..checks import require_count
from ..errors import ModelError
from ..network import LARGEST_POPULATION, Network, Solution
from .chains import Merged, chains_of, refuse_without_product_form

#: Multiplications (about 2 ns each) beyond which a request with rates that never settle is refused.
MOST_WORK = 2e11

Pairs = tuple[np.ndarray, np.ndarray]


def recursion(D: np.ndarray, Z: float, population: int) -> tuple[np.ndarray, np.ndarray]:
    """X (N,) and R (N, K) of single-server queues D and think time Z, for every population."""
    X, R = np.empty(population), np.empty((population, len(D)))
    demands = D.tolist()
    Q, x, most = [0.0] * len(demands), 0.0, 1.0 / max([*demands, 1e-300])
    for n in range(1, population + 1):
        r = [d * (1.0 + q) for d, q in zip(demands, Q, strict=True)]  # arrival theorem
        x = max(x, min(n / (Z + sum(r)), most))  # rounding must not break the laws
        Q = [x * t for t in r]  # Little's law
        X[n - 1], R[n - 1] = x, r
    return X, R


class Lattice:
    """Constants G(n) of stations and think times at all populations n <= N of C classes (Reiser and Kobayashi, 1975).

    Arrays are flat, the last class running fastest; of constants, pairs as `kernels.convolution` has them.

    Parameters
    ----------
    D : ndarray, shape (C, K)
        Service demands at the stations that queue; one of demand 0 is where nobody is.
    Z : ndarray, shape (C,)
    N : ndarray, shape (C,)
    speeds : list of K
        As `lowered.speeds_of` gives them.
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

    def marginal(self, f: Pairs, rest: Pairs) -> np.ndarray:
        """Probability of each population at a station with factor f, where the others have constants ``rest``."""
        m, e = self.total
        return _number(f[0] * rest[0][::-1] / m[-1], f[1] + rest[1][::-1] - e[-1])


def solve_lattice(merged: Merged) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X (C,), Q (C, K) and the probabilities (K,) that nobody is there (NaN at stations of constant rate)."""
    work = Lattice(merged.D, merged.Z, merged.N, merged.speeds)
    (m, e), before = work.total, work.size - 1 - work.strides
    X = _number(m[before] / m[-1], e[before] - e[-1])
    Q, empty = np.zeros(merged.D.shape), np.full(len(merged.stations), np.nan)
    for k, mu in enumerate(merged.speeds):
        if mu is None:
            twice = work.add(work.total, k)
            Q[:, k] = merged.D[:, k] * _number(twice[0][before] / m[-1], twice[1][before] - e[-1])
        else:
            p = work.marginal(work.factor(merged.D[:, k], mu), work.without[k])
            Q[:, k], empty[k] = p @ work.points, p[0]
    return X, Q, empty


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


class Constants:
    """Normalizing constants of one class's stations and think time, and what follows from them.

    Parameters
    ----------
    D : ndarray, shape (K,)
        Service demands; a station of demand 0 is one where nobody is.
    speeds : list of K
    delay : ndarray of bool, shape (K,)
    Z : float
        Think time outside all stations.
    population : int
    """

    def __init__(
        self, D: np.ndarray, speeds: Sequence[np.ndarray | None], delay: np.ndarray, Z: float, population: int
    ) -> None:
        N = population
        self.D, self.speeds, self.delay, self.Z, self.population = D, speeds, delay, Z, N
        self.dependent = {k: mu for k, mu in enumerate(speeds) if mu is not None and D[k] > 0}
        _require_work(N, self.dependent)
        queues, thinking = np.where(delay, 0.0, D)[None, :], np.array([Z + float(D[delay].sum())])
        self.lattice = Lattice(queues, thinking, np.array([N], dtype=np.int64), speeds)
        m, e = self.lattice.total
        self.X = np.zeros(N)
        if m[-1] > 0:
            self.X = _number(m[:-1] / m[1:], e[:-1] - e[1:])
        if all(is_bounded(mu) and np.all(np.diff(mu) >= 0) for mu in self.dependent.values()):
            self.X = np.maximum.accumulate(self.X)  # it grows with n; rounding must not make it look otherwise

    @classmethod
    def of(cls, network: Network, population: int) -> Constants:
        """Those of a network, or a `ModelError` where it has no product form."""
        N = require_count(population, "population", most=LARGEST_POPULATION)
        if network.classes:
            raise ModelError("convolution: the network has classes; use ExactMVA")
        low = chains_of(network, N)
        refuse_without_product_form(low, "convolution")
        return cls(low.D[:, 0], low.speeds(N), low.delay, float(low.Z[0]), N)

    def empty_probability(self, k: int) -> np.ndarray:
        """p(0|n) of a load-dependent station for n = 0..N."""
        (m, e), (rest, exponents) = self.lattice.total, self.lattice.without[k]
        return _number(rest / m, exponents - e)

    def residence_times(self) -> np.ndarray:
        """R, shape (N, K)."""
        from .kernels import convolution

        R = np.zeros((len(self.D), self.population))
        for k, d in enumerate(self.D.tolist()):
            if self.delay[k]:
                R[k] = d
            elif k in self.dependent:
                mu, bounded = self.dependent[k], is_bounded(self.dependent[k])
                speeds = mu if bounded else extended(mu, self.population)
                convolution.dependent_residence(d, speeds, bounded, self.X, self.empty_probability(k), R[k])
            elif d > 0:
                convolution.queue_residence(d, self.X, R[k])
        return np.ascontiguousarray(R.T)

    def busy(self, stations: Sequence[int]) -> np.ndarray:
        """1 - p(0|n) at the stations named, NaN elsewhere; shape (N, K)."""
        U = np.full((self.population, len(self.D)), np.nan)
        for k in stations:
            U[:, k] = 1.0 - self.empty_probability(k)[1:] if k in self.dependent else self.X * self.D[k]
        return U

    def marginal(self, k: int) -> np.ndarray:
        """p(j|N) for j = 0..N customers at station k."""
        if self.D[k] == 0:
            return (np.arange(self.population + 1) == 0).astype(float)
        rest = self.D * (np.arange(len(self.D)) != k)
        left = (
            self.lattice.without[k]
            if k in self.dependent
            else Constants(rest, self.speeds, self.delay, self.Z, self.population).lattice.total
        )
        mu = np.arange(1.0, self.population + 1) if self.delay[k] else self.dependent.get(k, np.ones(1))
        return self.lattice.marginal(self.lattice.factor(self.D[[k]], mu), left)


def extended(mu: np.ndarray, N: int) -> np.ndarray:
    """Speeds with 1 to N customers: the last one holds from there on."""
    return np.concatenate([mu, np.full(max(0, N - len(mu)), mu[-1])])[:N]


def _require_work(N: int, dependent: dict[int, np.ndarray]) -> None:
    rounds = 2 + np.ceil(np.log2(max(1, len(dependent))))
    work = rounds * sum(N * (min(len(mu), N) if is_bounded(mu) else N / 2) for mu in dependent.values())
    if work > MOST_WORK:
        raise ModelError(
            f"convolution: {work:.2g} multiplications are needed for {len(dependent)} load-dependent station(s) at "
            f"population {N:,}, more than {MOST_WORK:.2g}; take a smaller population, or ApproximateMVA"
        )


@dataclass(frozen=True, slots=True)
class Convolution:
    """Exact solution of a single-class product-form network by its normalizing constants (Buzen, 1973).

    Multi-server and load-dependent stations keep all their digits at any population: every term of every sum is
    positive, and constants carry exponents of their own. A station with m servers costs N m operations, one whose
    rates never settle N**2. Exact (1e-9 at N = 10,000 against 50-digit arithmetic, tests/solvers).
    """

    def solve(self, network: Network, population: int) -> Solution:
        """Measures for populations 1 to ``population``."""
        work = Constants.of(network, population)
        dependent = [k for k, s in enumerate(network.stations) if s.rates is not None]
        return Solution(
            network,
            population,
            work.X,
            work.residence_times(),
            solver="convolution",
            exact=True,
            reason="single class with product form: exact for load-dependent and multi-server stations",
            busy=work.busy(dependent) if dependent else None,
        )


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
    return Constants.of(network, population).marginal(_station_index(network, station))


def _station_index(network: Network, station: str | int) -> int:
    """A station's index by name or index, or a `ModelError`."""
    if isinstance(station, str):
        if station in network.names:
            return network.names.index(station)
    elif isinstance(station, int) and not isinstance(station, bool) and 0 <= station < len(network.stations):
        return station
    raise ModelError(f"station must be one of {', '.join(map(repr, network.names))} or its index, got {station!r}")
