"""Normalizing constants of single-class product-form networks: no overflow, underflow or cancellation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce

import numpy as np

from ..checks import require_count
from ..errors import ModelError
from ..network import LARGEST_POPULATION, Network, Solution
from .chains import chains_of, refuse_without_product_form

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


@dataclass(eq=False)
class Constants:
    """Normalizing constants G(0..N) of stations and think time, and what follows from them.

    Attributes
    ----------
    D : ndarray, shape (K,)
        Service demands; a station of demand 0 is one where nobody is.
    speeds : list of K
        As `lowered.speeds_of` gives them.
    delay : ndarray of bool, shape (K,)
    Z : float
        Think time outside all stations.
    population : int
    """

    D: np.ndarray
    speeds: Sequence[np.ndarray | None]
    delay: np.ndarray
    Z: float
    population: int
    dependent: dict[int, np.ndarray] = field(init=False)
    base: Pairs = field(init=False)
    total: Pairs = field(init=False)
    X: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        from .kernels import single

        N, D = self.population, self.D
        self.dependent = {k: mu for k, mu in enumerate(self.speeds) if mu is not None and D[k] > 0}
        _require_work(N, self.dependent)
        fixed = [k for k in np.flatnonzero(~self.delay & (D > 0)).tolist() if k not in self.dependent]
        Z = self.Z + float(D[self.delay].sum())
        self.base = np.zeros(N + 1), np.zeros(N + 1, dtype=np.int64)
        self.base[0][0] = 1.0
        self.X = np.zeros(N)
        if fixed or Z > 0:
            self.X, _ = recursion(D[fixed], Z, N)
            single.constants(self.X, *self.base)
        self.total = self.base
        for k, mu in self.dependent.items():
            self.total = _with(self.total, D[k], mu)
        if self.dependent:
            single.throughput(self.total[0], self.total[1], self.X)
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

    def leaving_out(self, k: int) -> Constants:
        """Those of the network without station k."""
        rest = self.D.copy()
        rest[k] = 0.0
        return Constants(rest, self.speeds, self.delay, self.Z, self.population)

    @cached_property
    def without(self) -> dict[int, Pairs]:
        """Constants of the network without each load-dependent station."""
        return without_each(list(self.dependent), self.base, lambda done, k: _with(done, self.D[k], self.dependent[k]))

    def empty_probability(self, k: int) -> np.ndarray:
        """p(0|n) of a load-dependent station for n = 0..N."""
        from .kernels import single

        p0 = np.empty(self.population + 1)
        single.ratio(*self.without[k], *self.total, p0)
        return p0

    def residence_times(self) -> np.ndarray:
        """R, shape (N, K)."""
        from .kernels import single

        R = np.zeros((self.population, len(self.D)))
        for k, d in enumerate(self.D.tolist()):
            column = np.zeros(self.population)
            if self.delay[k]:
                column[:] = d
            elif k in self.dependent:
                mu = self.dependent[k]
                bounded = is_bounded(mu)
                single.dependent_residence(
                    d,
                    mu if bounded else extended(mu, self.population),
                    bounded,
                    self.X,
                    self.empty_probability(k),
                    column,
                )
            elif d > 0:
                single.queue_residence(d, self.X, column)
            R[:, k] = column
        return R

    def busy(self, stations: Sequence[int]) -> np.ndarray:
        """1 - p(0|n) at the stations named, NaN elsewhere; shape (N, K)."""
        U = np.full((self.population, len(self.D)), np.nan)
        for k in stations:
            U[:, k] = 1.0 - self.empty_probability(k)[1:] if k in self.dependent else self.X * self.D[k]
        return U

    def marginal(self, k: int) -> np.ndarray:
        """p(j|N) for j = 0..N customers at station k."""
        from .kernels import single

        N, p = self.population, np.zeros(self.population + 1)
        if self.D[k] == 0:
            p[0] = 1.0
            return p
        rest = self.without[k] if k in self.dependent else self.leaving_out(k).total
        mu = np.arange(1.0, N + 1) if self.delay[k] else self.dependent.get(k, np.ones(1))
        f = np.zeros(N + 1), np.zeros(N + 1, dtype=np.int64)
        single.factor(self.D[k], mu, *f)
        single.marginal(*f, *rest, self.total[0][N], self.total[1][N], p)
        return p


def without_each(stations: Sequence[int], done: Pairs, add: Callable[[Pairs, int], Pairs]) -> dict[int, Pairs]:
    """Constants without each of the stations, all others of them added to what is ``done`` (divide and conquer)."""
    if len(stations) < 2:
        return dict.fromkeys(stations, done)
    half = len(stations) // 2
    first, second = stations[:half], stations[half:]
    return without_each(first, reduce(add, second, done), add) | without_each(second, reduce(add, first, done), add)


def extended(mu: np.ndarray, N: int) -> np.ndarray:
    """Speeds with 1 to N customers: the last one holds from there on."""
    return np.concatenate([mu, np.full(max(0, N - len(mu)), mu[-1])])[:N]


def is_bounded(mu: np.ndarray) -> bool:
    """Whether the last of the speeds is the highest."""
    return bool(mu.max() == mu[-1])


def _with(constants: Pairs, D: float, mu: np.ndarray) -> Pairs:
    """Constants of the network with one more station.

    When rates grow to a last one, mu(m), f(n) - D/mu(m) f(n-1) = f(n) (1 - mu(n)/mu(m)) is >= 0 and ends at n = m, so
    a short convolution and a geometric recursion do, both without subtractions.
    """
    from .kernels import single

    m, e = constants[0].copy(), constants[1].copy()
    bounded = is_bounded(mu)
    length = min(len(mu), len(m)) if bounded else len(m)
    f = np.zeros(length), np.zeros(length, dtype=np.int64)
    single.factor(D, mu, *f)
    if bounded:
        f[0][1:] *= 1.0 - mu[: length - 1] / mu[-1]
    single.convolve(m, e, *f, length)
    if bounded:
        single.geometric(m, e, D / mu[-1])
    return m, e


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
