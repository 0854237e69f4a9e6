"""Exact single-class networks with any rates: convolution without overflow, underflow or cancellation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import ModelError
from ..network import Network, Solution
from ..network.jobclass import require_count
from .lowering import rates_of, refuse_without_product_form

#: Multiplications (about 2 ns each) beyond which a request with rates that never settle is refused.
MOST_WORK = 2e11

Pairs = tuple[np.ndarray, np.ndarray]


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
        return Solution(
            network,
            population,
            work.X,
            work.residence_times(),
            solver="convolution",
            exact=True,
            reason="single class with product form: exact for load-dependent and multi-server stations",
            busy=work.busy() if any(s.rates is not None for s in network.stations) else None,
        )


@dataclass(slots=True, eq=False)
class Constants:
    """Normalizing constants G(0..N) of a single-class network, and what follows from them."""

    network: Network
    D: np.ndarray
    Z: float
    population: int
    dependent: dict[int, np.ndarray]
    base: Pairs
    total: Pairs
    X: np.ndarray
    _without: dict[int, Pairs]

    @classmethod
    def of(cls, network: Network, population: int) -> Constants:
        """Convolve all stations."""
        from .kernels import single

        N = require_count(population, "population")
        if network.classes:
            raise ModelError("convolution: the network has classes; use ExactMVA")
        refuse_without_product_form(network, "convolution")
        D = network.service_demand
        dependent = {
            k: mu
            for k, s in enumerate(network.stations)
            if D[k] > 0 and (mu := rates_of(s, N)) is not None and not (len(mu) == 1 and mu[0] == 1.0)
        }
        _require_work(N, dependent)
        fixed = [k for k, s in enumerate(network.stations) if k not in dependent and not s.is_delay and D[k] > 0]
        Z = network.think_time + float(D[network.is_delay].sum())
        m, e = np.zeros(N + 1), np.zeros(N + 1, dtype=np.int64)
        m[0] = 1.0
        if fixed or Z > 0:
            X, R = np.empty(N), np.empty((N, len(fixed)))
            single.mva(D[fixed], Z, N, X, R)
            single.constants(X, m, e)
        total = (m, e)
        for k, mu in dependent.items():
            total = _with(total, D[k], mu)
        X = np.empty(N)
        single.throughput(*total, X)
        if all(_bounded(mu) and np.all(np.diff(mu) >= 0) for mu in dependent.values()):
            X = np.maximum.accumulate(X)  # it grows with n; rounding must not make it look otherwise
        return cls(network, D, Z, N, dependent, (m, e), total, X, {})

    def without(self) -> dict[int, Pairs]:
        """Constants of the network without each load-dependent station, all others convolved (divide and conquer)."""
        if not self._without and self.dependent:
            self._leave_out(self.base, list(self.dependent))
        return self._without

    def _leave_out(self, done: Pairs, stations: list[int]) -> None:
        if len(stations) == 1:
            self._without[stations[0]] = done
            return
        half = len(stations) // 2
        for keep, others in ((stations[:half], stations[half:]), (stations[half:], stations[:half])):
            rest = done
            for k in others:
                rest = _with(rest, self.D[k], self.dependent[k])
            self._leave_out(rest, keep)

    def empty_probability(self, k: int) -> np.ndarray:
        """p(0|n) of a load-dependent station for n = 0..N."""
        from .kernels import single

        p0 = np.empty(self.population + 1)
        single.ratio(*self.without()[k], *self.total, p0)
        return p0

    def residence_times(self) -> np.ndarray:
        """R, shape (N, K)."""
        from .kernels import single

        R = np.zeros((self.population, len(self.D)))
        for k, station in enumerate(self.network.stations):
            column = np.zeros(self.population)
            if station.is_delay:
                column[:] = self.D[k]
            elif k in self.dependent:
                mu = self.dependent[k]
                p0 = self.empty_probability(k)
                if not _bounded(mu):
                    mu = _extended(mu, self.population)
                single.dependent_residence(self.D[k], mu, _bounded(self.dependent[k]), self.X, p0, column)
            elif self.D[k] > 0:
                single.queue_residence(self.D[k], self.X, column)
            R[:, k] = column
        return R

    def busy(self) -> np.ndarray:
        """1 - p(0|n) at stations with rates, NaN elsewhere; shape (N, K)."""
        U = np.full((self.population, len(self.D)), np.nan)
        for k, station in enumerate(self.network.stations):
            if station.rates is not None:
                mu = self.dependent.get(k)
                U[:, k] = self.X * self.D[k] if mu is None else 1.0 - self.empty_probability(k)[1:]
        return U

    def log(self) -> np.ndarray:
        """log G(n) for n = 0..N."""
        m, e = self.total
        value: np.ndarray = np.log(m) + e * (512.0 * np.log(2.0))
        return value

    def marginal(self, k: int) -> np.ndarray:
        """p(j|N) for j = 0..N customers at station k."""
        from .kernels import single

        N, p = self.population, np.empty(self.population + 1)
        if self.D[k] == 0:
            p[:] = 0.0
            p[0] = 1.0
            return p
        rest = self.without()[k] if k in self.dependent else self._without_fixed(k)
        mu = self.dependent.get(k, np.ones(1))
        if self.network.stations[k].is_delay:
            mu = np.arange(1.0, N + 1)
        f = np.zeros(N + 1), np.zeros(N + 1, dtype=np.int64)
        single.factor(self.D[k], mu, *f)
        single.marginal(*f, *rest, self.total[0][N], self.total[1][N], p)
        return p

    def _without_fixed(self, k: int) -> Pairs:
        from .kernels import single

        N, stations = self.population, self.network.stations
        fixed = [
            j for j, s in enumerate(stations) if j not in self.dependent and not s.is_delay and self.D[j] > 0 and j != k
        ]
        Z = self.network.think_time + float(sum(self.D[j] for j, s in enumerate(stations) if s.is_delay and j != k))
        m, e = np.zeros(N + 1), np.zeros(N + 1, dtype=np.int64)
        m[0] = 1.0
        if fixed or Z > 0:
            X, R = np.empty(N), np.empty((N, len(fixed)))
            single.mva(self.D[fixed], Z, N, X, R)
            single.constants(X, m, e)
        rest = (m, e)
        for j, mu in self.dependent.items():
            rest = _with(rest, self.D[j], mu)
        return rest


def _bounded(mu: np.ndarray) -> bool:
    return bool(mu.max() == mu[-1])


def _extended(mu: np.ndarray, N: int) -> np.ndarray:
    return np.concatenate([mu, np.full(max(0, N - len(mu)), mu[-1])])[:N]


def _with(constants: Pairs, D: float, mu: np.ndarray) -> Pairs:
    """Constants of the network with one more station.

    When rates grow to a last one, mu(m), f(n) - D/mu(m) f(n-1) = f(n) (1 - mu(n)/mu(m)) is >= 0 and ends at n = m, so
    a short convolution and a geometric recursion do, both without subtractions.
    """
    from .kernels import single

    m, e = constants[0].copy(), constants[1].copy()
    bounded = _bounded(mu)
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
    work = rounds * sum(N * (min(len(mu), N) if _bounded(mu) else N / 2) for mu in dependent.values())
    if work > MOST_WORK:
        raise ModelError(
            f"convolution: {work:.2g} multiplications are needed for {len(dependent)} load-dependent station(s) at "
            f"population {N:,}, more than {MOST_WORK:.2g}; take a smaller population, or ApproximateMVA"
        )


def log_normalizing_constants(network: Network, *, population: int) -> np.ndarray:
    """log G(n) for n = 0..population of a single-class product-form network (Buzen, 1973); exact.

    Demands are per cycle as given, think time is a delay: G(n) = sum over states of the product of
    D_k**n_k / (mu_k(1) ... mu_k(n_k)) and Z**z / z!.

    Examples
    --------
    >>> from queuemodel import Network, Station
    >>> network = Network([Station("a", service_time=1.0), Station("b", service_time=1.0)])
    >>> np.exp(log_normalizing_constants(network, population=3)).round(9)
    array([1., 2., 3., 4.])
    """
    return Constants.of(network, population).log()


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
    return Constants.of(network, population).marginal(station_index(network, station))


def queue_length_variance(network: Network, *, population: int) -> np.ndarray:
    """Variance of the number of customers at each station, shape (K,); exact, from the marginal distributions."""
    work = Constants.of(network, population)
    n = np.arange(work.population + 1.0)
    variances = []
    for k in range(len(network.stations)):
        p = work.marginal(k)
        variances.append(float(p @ (n - p @ n) ** 2))
    return np.array(variances)


def station_index(network: Network, station: str | int) -> int:
    """A station's index by name or index, or a `ModelError`."""
    if isinstance(station, str):
        if station in network.names:
            return network.names.index(station)
    elif isinstance(station, int) and not isinstance(station, bool) and 0 <= station < len(network.stations):
        return station
    raise ModelError(f"station must be one of {', '.join(map(repr, network.names))} or its index, got {station!r}")
