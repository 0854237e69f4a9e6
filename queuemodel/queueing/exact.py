"""Exact measures of product-form networks: identical chains are merged, then the cheapest recursion is taken."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, NoReturn

import numpy as np

from ..base.checks import by_keyword
from ..base.errors import ModelError
from ..base.results import counted
from .kernels.product_form import convolve, factor, geometric, lattice, recursion, residence
from .lowered import Lowered, lowered_product_form, speeds_beside_open, speeds_of
from .network import Network
from .solution import Solution, by_class, solution_of

#: Most bytes that a single request may take, and most station steps (about 2 ns each): minutes.
MEMORY, MOST_WORK = 4 * 2**30, 1e11
OPEN_REASON = "open classes with product form: each station is solved alone, in closed form (Jackson, 1963)"
#: Above this population the recursion by customer could underflow.
MOST_CUSTOMERS = 1000

Pairs = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """Chains with delays folded into think times, without idle chains; identical chains are merged."""

    D: np.ndarray  # (C, K): demands at the stations that queue
    Z: np.ndarray
    N: np.ndarray
    stations: list[int]  # indices of these stations
    speeds: list[np.ndarray | None]  # their speeds, by `speeds_of`
    member: list[list[int]]  # original chains of each merged chain


def merge(low: Lowered) -> Merged:
    queues, counts, Z = low.queues.tolist(), low.N.tolist(), low.think.tolist()
    chains: dict[tuple[float, ...], list[int]] = {}  # by think time and demands
    for c, demands in enumerate(low.closed_demand[queues].T.tolist()):
        if counts[c]:
            chains.setdefault((Z[c], *demands), []).append(c)
    customers = {key: sum(counts[c] for c in group) for key, group in chains.items()}
    keys, total = sorted(chains, key=lambda key: -customers[key]), sum(counts)  # the largest first
    of = np.array(keys).reshape(len(keys), 1 + len(queues))
    N = np.array([customers[key] for key in keys], dtype=np.int64)
    speeds = [speeds_of(low, k, total) for k in queues]
    return Merged(of[:, 1:].copy(), of[:, 0].copy(), N, queues, speeds, [chains[key] for key in keys])


def expand(
    low: Lowered, merged: Merged, X: np.ndarray, Q: np.ndarray, busy: np.ndarray | None, **about: Any
) -> Solution:
    """Measures of every class and station from those of merged chains, X (C,), Q (C, K) and busy (K,)."""
    K, C = low.D.shape
    all_X, all_Q, all_busy = np.zeros(C), np.zeros((K, C)), None
    for m, group in enumerate(merged.member):
        for c in group:
            part = low.N[c] / merged.N[m]  # identical customers have equal shares
            all_X[c], all_Q[merged.stations, c] = X[m] * part, Q[m] * part
    all_Q[low.delay] = low.D[low.delay] * all_X  # Little's law, R = D
    if busy is not None:
        all_busy = np.full(K, np.nan)
        all_busy[merged.stations] = busy
    if low.network.open_classes:
        all_busy = with_open(low, all_X, all_Q, all_busy, lambda k: _closed_marginal(low, k))
    return solution_of(low, *by_class(low, all_X, all_Q), busy=all_busy, exact=True, **about)


def with_open(
    low: Lowered, X: np.ndarray, Q: np.ndarray, busy: np.ndarray | None, closed_marginal: Callable[[int], np.ndarray]
) -> np.ndarray:
    """Fill X (chains,) and Q (K, chains) of open chains in, and return the probability of a customer there (K,) or NaN.

    An open customer finds n closed ones with probability ``closed_marginal(k)[n]``, and then stays D (n+1) / a(n+1), a
    being the `speeds_beside_open`: D (1 + Q) / (1 - rho) at a single server, D at a delay.
    """
    K, is_open = len(Q), low.arrivals > 0
    stretch, busy = np.ones(K), np.full(K, np.nan) if busy is None else busy  # stretch: R / D of open customers
    for k in np.flatnonzero((low.D[:, is_open] > 0).any(axis=1) & ~low.delay).tolist():
        station, rho = low.network.stations[k], float(low.open_load[k])
        if station.rates is None and station.servers == 1:
            stretch[k] = (1.0 + Q[k].sum()) / (1.0 - rho)  # R = D (1 + Q_closed) / (1 - rho)
        else:
            p = closed_marginal(k)
            stretch[k] = p @ (np.arange(1.0, len(p) + 1) / low.speeds(k, len(p)))  # sum of p(n) (n+1) / a(n+1)
            no_closed = p[0] if np.isnan(busy[k]) else 1.0 - busy[k]
            busy[k] = 1.0 - no_closed * speeds_beside_open(station.listed_speeds, rho, 0)[1]  # 1 - P(no customer)
    X[is_open] = low.arrivals[is_open]  # flow balance
    Q[:, is_open] = (low.D * stretch[:, None] * X)[:, is_open]  # Little's law
    return busy


class Lattice:
    """Constants G(n) at all populations n <= N of C classes (Reiser and Kobayashi, 1975), as pairs of flat arrays."""

    def __init__(self, merged: Merged) -> None:
        self.D, self.N, self.speeds = merged.D, merged.N, merged.speeds
        shape = tuple(int(n) + 1 for n in self.N)
        self.size = math.prod(shape)
        self.strides = np.array([math.prod(shape[c + 1 :]) for c in range(len(shape))], dtype=np.int64)
        self.points = np.indices(shape).reshape(len(shape), -1).T
        visited = np.flatnonzero((self.D > 0).any(axis=0)).tolist()
        self.dependent = [k for k in visited if self.speeds[k] is not None]
        thinking = self.factor(merged.Z, np.arange(1.0, self.N.sum() + 1))  # a delay: mu(n) = n
        self.base = reduce(self.add, [k for k in visited if self.speeds[k] is None], thinking)
        self.total = reduce(self.add, self.dependent, self.base)  # G(n) = sum over i <= n of f_k(i) G_without_k(n - i)

    def factor(self, D: np.ndarray, mu: np.ndarray) -> Pairs:
        """Factors f(n) of each population at a station."""
        f = np.zeros(self.size), np.zeros(self.size, dtype=np.int64)
        factor(D, mu, self.N, self.strides, *f)
        return f

    def add(self, constants: Pairs, k: int) -> Pairs:
        """Constants with station k added; the convolution is short where the last rate is the highest."""
        m, e = constants[0].copy(), constants[1].copy()
        mu, D = self.speeds[k], self.D[:, k]
        if mu is None:
            geometric(D, self.N, self.strides, m, e)
            return m, e
        f, exponents = self.factor(D, mu)
        n = self.points.sum(axis=1)
        if is_bounded(mu):  # f(n) - D/mu(m) f(n-1) = f(n) (1 - mu(n)/mu(m)) >= 0 ends at n = m: no subtraction
            f = f * np.where(n > 0, 1.0 - mu[np.clip(n, 1, len(mu)) - 1] / mu[-1], 1.0)
        at = np.flatnonzero(f > 0)
        convolve(self.points[at], at, f[at], exponents[at], self.N, m, e)
        if is_bounded(mu):
            geometric(D / mu[-1], self.N, self.strides, m, e)
        return m, e

    @cached_property
    def without(self) -> dict[int, Pairs]:
        """Constants without each load-dependent station, all others added (divide and conquer)."""

        def split(stations: list[int], constants: Pairs) -> dict[int, Pairs]:
            if len(stations) < 2:
                return dict.fromkeys(stations, constants)
            left, right = stations[: len(stations) // 2], stations[len(stations) // 2 :]
            with_right, with_left = reduce(self.add, right, constants), reduce(self.add, left, constants)
            return split(left, with_right) | split(right, with_left)

        return split(self.dependent, self.base)


def solve_lattice(merged: Merged) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X (C,), Q (C, K) and the probabilities (K,) that a customer is there (NaN at stations of constant rate)."""
    work = Lattice(merged)
    (m, e), before = work.total, work.size - 1 - work.strides  # before: index of N - e_c
    X = _number(m[before] / m[-1], e[before] - e[-1])  # X_c = G(N - e_c) / G(N)
    Q, busy = np.zeros(merged.D.shape), np.full(len(merged.stations), np.nan)
    for k, mu in enumerate(merged.speeds):
        if mu is None:
            g, exponents = work.add(work.total, k)  # Q_ck = D_ck G+k(N - e_c) / G(N), G+k with station k twice
            Q[:, k] = merged.D[:, k] * _number(g[before] / m[-1], exponents[before] - e[-1])
        else:
            (f, f_e), (g, g_e) = work.factor(merged.D[:, k], mu), work.without[k]
            p = _number(f * g[::-1] / m[-1], f_e + g_e[::-1] - e[-1])  # p_k(n) = f_k(n) G_without_k(N - n) / G(N)
            Q[:, k], busy[k] = p @ work.points, 1.0 - p[0]
    return X, Q, busy


def _by_constants(low: Lowered, merged: Merged) -> Solution:
    """One class at all populations, with several servers or rates, by normalizing constants (Buzen, 1973)."""
    N, K = int(merged.N[0]), len(low.D)
    work = Lattice(merged)
    m, e = work.total
    X = _number(m[:-1] / m[1:], e[:-1] - e[1:])  # X(n) = G(n-1) / G(n)
    if all(mu is None or (is_bounded(mu) and np.all(np.diff(mu) >= 0)) for mu in merged.speeds):
        X = np.maximum.accumulate(X)  # it grows with n; rounding must not make it look otherwise
    R, busy = np.zeros((K, N)), np.full((N, K), np.nan)
    R[low.delay] = low.D[low.delay]
    for i, k in enumerate(merged.stations):
        mu, empty, speeds, bounded = merged.speeds[i], np.ones(N + 1), np.ones(1), True
        if mu is not None:
            g, exponents = work.without[i]
            empty, bounded = _number(g / m, exponents - e), is_bounded(mu)  # p(0|n) = G_without_k(n) / G(n)
            speeds = mu if bounded else extended(mu, N)
            busy[:, k] = 1.0 - empty[1:]
        residence(low.D[k, 0], speeds, bounded, X, empty, R[k])
    why = "single class with product form: exact for load-dependent and multi-server stations"
    R = np.ascontiguousarray(R.T)
    return Solution(low.network, N, X, R, solver="convolution", exact=True, reason=why, busy=busy)


def lattice_cost(merged: Merged) -> tuple[float, float]:
    """Station steps and bytes that `solve_lattice` needs."""
    points, total = math.prod(int(n) + 1 for n in merged.N), int(merged.N.sum())
    C, rates = len(merged.N), [mu for mu in merged.speeds if mu is not None]
    reach = [min(len(mu), total + 1) if is_bounded(mu) else total + 1 for mu in rates]
    terms = sum(min(points, math.comb(n - 1 + C, C)) for n in reach)  # populations of C classes below n in all
    rounds = 2 + math.ceil(math.log2(max(1, len(rates))))
    return points * (2.0 * C * len(merged.speeds) + rounds * 2.0 * terms), points * (16.0 * (rounds + 3) + 8.0 * C)


def is_bounded(mu: np.ndarray) -> bool:
    """Whether the last of the speeds is the highest."""
    return bool(mu.max() == mu[-1])


def _number(m: np.ndarray, e: np.ndarray) -> np.ndarray:
    return np.asarray(np.ldexp(m, 512 * np.clip(e, -4, 4)))


def extended(mu: np.ndarray, N: int) -> np.ndarray:
    """Speeds with 1 to N customers: the last one holds from there on."""
    return np.concatenate([mu, np.full(max(0, N - len(mu)), mu[-1])])[:N]


def _closed_marginal(low: Lowered, k: int) -> np.ndarray:
    """Probabilities of 0, 1, ..., N closed customers of all classes at station k."""
    N = int(low.N.sum())
    if not (low.D[k, low.N > 0] > 0).any():
        return (np.arange(N + 1) == 0).astype(float)
    if low.delay[k]:  # a station that serves n customers n times as fast
        low = replace(low, delay=low.delay & (np.arange(len(low.delay)) != k))
    merged = merge(low)
    work, size = lattice_cost(merged)
    if work > MOST_WORK or size > MEMORY:
        _refuse([("marginal distribution", work, size)], len(merged.N), N)
    i = merged.stations.index(k)
    speeds = merged.speeds[:i] + merged.speeds[i + 1 :]
    others = Lattice(replace(merged, D=np.delete(merged.D, i, axis=1), speeds=speeds))
    mu = np.arange(1.0, N + 1) if low.network.stations[k].is_delay else merged.speeds[i]
    f, m = others.factor(merged.D[:, i], np.ones(1) if mu is None else mu), others.total
    weight, exponents = f[0] * m[0][::-1], f[1] + m[1][::-1]  # p_k(n) ~ f_k(n) G_without_k(N - n)
    weight = _number(weight, exponents - exponents[weight > 0].max())
    return np.bincount(others.points.sum(axis=1), weight / weight.sum(), N + 1)


#: Tail of a distribution that is left out; the most customers that one may have beside open classes.
SMALLEST_TAIL, MOST_STATES = 1e-12, 1_000_000


def _beside_open(p: np.ndarray, mu: np.ndarray, rho: float) -> np.ndarray:
    """Probabilities of 0, 1, ... customers from those p of n closed ones; m open ones weigh as in the sum E(n)."""
    most = len(mu) + int((len(p) + 60.0) * mu[-1] / (mu[-1] - rho))
    if most > MOST_STATES:
        raise ModelError(
            f"marginal distribution: so near to saturation it has up to {most:,} customers (at most {MOST_STATES:,} "
            "fit); take mean queue lengths, or lower arrival rates"
        )
    total, m = np.zeros(len(p) + most), np.arange(1.0, most)
    for n, share in enumerate(p.tolist()):
        speed = mu[np.minimum(n + m.astype(int), len(mu)) - 1]
        weight = np.append(0.0, np.log(rho * (n + m) / (m * speed)).cumsum())  # C(n+m, m) rho**m / (mu(n+1)..mu(n+m))
        weight = np.exp(weight - weight.max())
        total[n : n + most] += share * weight / weight.sum()
    return total[: np.flatnonzero(total[::-1].cumsum()[::-1] > SMALLEST_TAIL)[-1] + 1]


@by_keyword
def marginal_distribution(network: Network, station: str | int, *, population: Any = None) -> np.ndarray:
    """Probabilities of 0, 1, ... customers of all classes at a station, waiting and in service; exact.

    Parameters
    ----------
    network : Network
        With product form.
    station : str or int
        Name or index.
    population : int, or one per class
        As of `solve`.

    Returns
    -------
    ndarray, shape (population + 1,); where open classes come, until the rest is below 1e-12.

    Raises
    ------
    ModelError
        When there is no product form or no such station, or the distribution would not fit.

    Examples
    --------
    >>> from queuemodel.queueing import Network, Station
    >>> network = Network([Station("a", service_time=1.0), Station("b", service_time=1.0)])
    >>> marginal_distribution(network, "a", population=3)
    array([0.25, 0.25, 0.25, 0.25])
    """
    k = next((k for k, name in enumerate(network.names) if station in (name, k)), None)
    if k is None:
        raise ModelError(f"station must be one of {', '.join(map(repr, network.names))} or its index, got {station!r}")
    low = lowered_product_form(network, population, "marginal distribution")
    p, open_work = _closed_marginal(low, k), float(low.D[k] @ low.arrivals)
    if not open_work:
        return p
    if low.delay[k]:
        most = len(p) + int(open_work + 60.0 * (1.0 + math.sqrt(open_work)))  # Poisson: mean and variance open_work
        return _beside_open(p, np.arange(1.0, most), open_work)
    return _beside_open(p, network.stations[k].listed_speeds, open_work)


@dataclass(frozen=True, slots=True)
class ExactMVA:
    """Exact mean-value analysis of product-form networks (Reiser and Lavenberg, 1980), closed, open or mixed.

    Exact (up to rounding) when the network has product form: processor sharing or last-come-first-served-preemptive
    queues with any service distribution, first-come-first-served queues with exponential service that is the same for
    all classes, and delays with any. Anything else is refused. Stations with several servers or load-dependent rates
    go through normalizing constants (Buzen, 1973), which keep the digits that the textbook's recursion loses (1e-9 at
    10,000 customers): a station with m servers costs N m operations, one whose rates never settle N**2.

    Without classes, time is proportional to the population times the number of stations and all populations up to the
    specified one are kept. With classes, the cheapest of several exact recursions is taken; its memory is at most the
    product of the populations (each plus one) of all classes but the largest, and classes that are alike count as one.
    Open classes take their load first, and closed ones are solved with what it leaves (Lavenberg and Sauer, 1983).
    """

    def solve(self, network: Network, population: int | tuple[int, ...]) -> Solution:
        """Measures for populations 1 to ``population``, or at the classes' populations."""
        return solved_exactly(lowered_product_form(network, population, "exact MVA"))


def solved_exactly(low: Lowered) -> Solution:
    """The solution by the cheapest exact recursion of a network with product form, or a refusal with the numbers."""
    if not low.network.classes and not low.why_not_single_servers():
        return _single_class_single_servers(low)
    merged = merge(low)
    if not len(merged.N):
        nobody = np.zeros((0, len(merged.stations)))
        return expand(low, merged, np.zeros(0), nobody, None, solver="open network", reason=OPEN_REASON)
    name, C = _cheapest(merged), len(merged.N)
    if not low.network.classes:
        return _by_constants(low, merged)
    solver = {"exact MVA": _over_lattice, "exact recursion by customer": _by_customer}.get(name, solve_lattice)
    alike = "" if (low.N > 0).sum() == C else f", merged into {C} that differ"
    closed, opened = int((low.arrivals == 0).sum()), len(low.network.open_classes)
    beside = f" beside {opened} open" if opened else ""
    reason = f"{counted(closed, 'class')}{beside} with product form{alike}: {name} is the cheapest exact recursion"
    return expand(low, merged, *solver(merged), solver=name, reason=reason)


def _cheapest(merged: Merged) -> str:
    """The recursion that needs the fewest station steps and fits; a `ModelError` when none does."""
    total, (C, K) = int(merged.N.sum()), merged.D.shape
    points = math.prod(int(n) + 1 for n in merged.N)
    options = []
    if all(mu is None for mu in merged.speeds):
        options.append(("exact MVA", points * K * C * 1.0, points // (int(merged.N[0]) + 1) * K * 8))
    else:
        options.append(("multi-class convolution" if C > 1 else "convolution", *lattice_cost(merged)))
    if C > 1 and total <= MOST_CUSTOMERS and K > 0:
        boxes = (total + 1) ** K
        options.append(("exact recursion by customer", 2.5 * total * boxes * (K + 1), (C + 5) * boxes * 8))
    fitting = [option for option in options if option[1] <= MOST_WORK and option[2] <= MEMORY]
    if not fitting:
        _refuse(options, C, total)
    return min(fitting, key=lambda option: option[1])[0]


def _refuse(options: list[tuple[str, float, float]], C: int, total: int) -> NoReturn:
    name, work, size = min(options, key=lambda option: max(option[1] / MOST_WORK, option[2] / MEMORY))
    raise ModelError(
        f"{name}: {f'{C} different classes with ' if C > 1 else ''}{total:,} customers need {size:.3g} bytes (limit "
        f"{MEMORY:.3g}) and {work:.3g} station steps (limit {MOST_WORK:.3g}); take an approximate solver: "
        "ApproximateMVA('linearizer')"
    )


def _single_class_single_servers(low: Lowered) -> Solution:
    """The recursion over the populations of one class (Reiser and Lavenberg, 1980): the usual what-if, kept fast."""
    N, D, delay, Z = int(low.N[0]), low.D[:, 0], low.delay, float(low.Z[0])
    size = 8 * N * (len(D) + 1)
    if size > MEMORY:
        _refuse([("exact MVA", float(N * len(D)), size)], 1, N)
    if True in delay.tolist():
        X, R = recursion(np.where(delay, 0.0, D), Z + float(D[delay].sum()), N)
        R[:, delay] = D[delay]
    else:
        X, R = recursion(D, Z, N)
    why = "single class with product form: the recursion is exact and cheap"
    return Solution(low.network, N, X, R, solver="exact MVA", exact=True, reason=why)


def _over_lattice(merged: Merged) -> tuple[np.ndarray, np.ndarray, None]:
    X, R = np.zeros(len(merged.N)), np.zeros(merged.D.shape)
    lattice(merged.D, merged.Z, merged.N, X, R)
    return X, X[:, None] * R, None  # Little's law


def _by_customer(merged: Merged) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X (C,), Q (C, K) and P(n_k > 0) (K,) by the transpose of RECAL (Conway and Georganas, 1986)."""
    (C, K), total = merged.D.shape, int(merged.N.sum())
    n = np.arange(1.0, total + 1)
    steps = np.array([n / (1.0 if mu is None else extended(mu, total)) for mu in merged.speeds])
    scale = np.exp(np.maximum(np.log(steps).mean(axis=1).max(), np.log(steps[:, 0]).max()))
    weights = np.hstack([np.ones((K, 1)), np.cumprod(steps / scale, axis=1)])  # n! / (mu(1) ... mu(n)) / scale**n
    unit = float((merged.D.sum() + merged.Z.sum()) / merged.D.size)
    D, Z = merged.D * scale / unit, merged.Z / unit
    tail = [np.s_[(slice(None),) * k + (slice(1, None),)] for k in range(K)]  # n_k >= 1
    head = [np.s_[(slice(None),) * k + (slice(None, -1),)] for k in range(K)]  # n_k - 1

    def with_customer(A: np.ndarray, c: int, to: list, source: list) -> np.ndarray:
        after = Z[c] * A
        for k in range(K):
            after[to[k]] += D[c, k] * A[source[k]]  # P'(n) = Z_c P(n) + sum_k D_ck P(n - e_k)
        return after / after.max()  # a common factor cancels in X and Q

    # P(n): weight of the customers placed so far being at stations n; B(n): of all completions from n
    P, before = np.zeros((total + 1,) * K), []
    P[(0,) * K] = 1.0
    for c in range(C):
        for _ in range(merged.N[c]):
            last, P = P, with_customer(P, c, tail, head)
        before.append(last)  # without the last customer of class c
    B = np.where(np.indices(P.shape).sum(axis=0) <= total, 1.0, 0.0)
    for k in range(K):
        B *= weights[k].reshape(-1, *[1] * (K - 1 - k))
    weight = P * B
    busy = np.array([1.0 - weight.take(0, axis=k).sum() / weight.sum() for k in range(K)])
    X, Q, smallest = np.zeros(C), np.zeros((C, K)), 1.0
    for c in reversed(range(C)):
        outside = (before[c] * B).sum()  # ~ G(N - e_c)
        stays = np.array([D[c, k] * (before[c][head[k]] * B[tail[k]]).sum() for k in range(K)])
        whole = Z[c] * outside + stays.sum()  # ~ G(N)
        smallest = min(smallest, whole)
        X[c], Q[c] = merged.N[c] * outside / whole, merged.N[c] * stays / whole
        for _ in range(merged.N[c]):
            B = with_customer(B, c, head, tail)
    if not smallest > 1e-200:
        raise ModelError(
            "exact recursion by customer: demands differ too much for its range; use ApproximateMVA('linearizer')"
        )
    return X / unit, Q, busy
