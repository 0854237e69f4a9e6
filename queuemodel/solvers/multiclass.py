"""Exact multi-class networks: which of the exact recursions is cheapest, and what to do when none can fit."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..errors import ModelError
from ..network import Solution
from .lowering import Chains, rates_of

#: Station steps (about 2 ns each) beyond which a recursion is refused: minutes.
MOST_WORK = 1e11

#: Above this population the recursion by customer could underflow.
MOST_CUSTOMERS = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """Chains with their delays folded into think times, idle ones left out and identical ones made one.

    Attributes
    ----------
    D : ndarray, shape (C, K)
        Demands at the stations that queue.
    stations : list of int
        Which stations those are.
    member : list of list of int
        The chains that each merged one stands for.
    """

    D: np.ndarray
    Z: np.ndarray
    N: np.ndarray
    stations: list[int]
    member: list[list[int]]


def merge(chains: Chains) -> Merged:
    """Fold delays, leave out chains without customers, and make identical chains one (which changes nothing)."""
    delay = chains.network.is_delay
    queues = [k for k in range(len(delay)) if not delay[k] and (chains.D[k] > 0).any()]
    Z = chains.Z + chains.D[delay].sum(axis=0)
    alike: dict[tuple[float, ...], list[int]] = {}
    for c in np.flatnonzero(chains.N > 0):
        alike.setdefault((float(Z[c]), *chains.D[queues, c].tolist()), []).append(int(c))
    member = sorted(alike.values(), key=lambda group: -int(chains.N[group].sum()))  # the largest first
    first = [group[0] for group in member]
    N = np.array([chains.N[group].sum() for group in member], dtype=np.int64)
    return Merged(np.ascontiguousarray(chains.D[np.ix_(queues, first)].T), Z[first], N, queues, member)


def solve_classes(chains: Chains, memory: int) -> Solution:
    """Solve by the cheapest exact recursion, or refuse with the numbers."""
    merged = merge(chains)
    network = chains.network
    total = int(merged.N.sum())
    rates = [rates_of(network.stations[k], total) for k in merged.stations]
    plain = all(mu is None or (len(mu) == 1 and mu[0] == 1.0) for mu in rates)
    if len(merged.N) == 1:
        return _single(chains, merged)
    points = math.prod(int(n) + 1 for n in merged.N)
    C, K = merged.D.shape
    plane = points // (int(merged.N[0]) + 1)
    boxes = (total + 1) ** K
    options = []
    if plain:
        options.append(("exact MVA", points * K * C * 1.0, plane * K * 8))
    else:
        from .lattice import cost

        options.append(("multi-class convolution", *cost(merged, rates)))
    if total <= MOST_CUSTOMERS and K > 0:
        options.append(("exact recursion by customer", 2.5 * total * boxes * (K + 1), (C + 3) * boxes * 8))
    fitting = [o for o in options if o[1] <= MOST_WORK and o[2] <= memory]
    if not fitting:
        _refuse(options, memory, C, total)
    name = min(fitting, key=lambda o: o[1])[0]
    busy = np.full(len(network.stations), np.nan)
    if name == "exact MVA":
        X, Q = _lattice(merged)
    elif name == "exact recursion by customer":
        X, Q, empty = _by_customer(merged, rates)
        for at, k in enumerate(merged.stations):
            if network.stations[k].rates is not None:
                busy[k] = 1.0 - empty[at]
    else:
        from .lattice import solve_lattice

        X, Q, empty = solve_lattice(merged, rates)
        for at, k in enumerate(merged.stations):
            if network.stations[k].rates is not None:
                busy[k] = 1.0 - empty[at]
    return expand(chains, merged, X, Q, busy if np.isfinite(busy).any() else None, name, _reason(chains, merged, name))


def _reason(chains: Chains, merged: Merged, name: str) -> str:
    alike = "" if len(merged.N) == (chains.N > 0).sum() else f", merged into {len(merged.N)} that differ"
    return f"{len(chains.N)} classes with product form{alike}: {name} is the cheapest exact recursion"


def expand(
    chains: Chains, merged: Merged, X: np.ndarray, Q: np.ndarray, busy: np.ndarray | None, name: str, reason: str
) -> Solution:
    """Measures of merged chains (X (C,), Q (C, K)) given back to each chain and each station."""
    K, C = chains.D.shape
    delay = chains.network.is_delay
    all_X, all_Q = np.zeros(C), np.zeros((K, C))
    for m, group in enumerate(merged.member):
        for c in group:
            part = chains.N[c] / merged.N[m]
            all_X[c] = X[m] * part
            all_Q[merged.stations, c] = Q[m] * part
    all_Q[delay] = chains.D[delay] * all_X
    return chains.solution(all_X, all_Q, busy=busy, solver=name, exact=True, reason=reason)


def _refuse(options: list[tuple[str, float, float]], memory: int, C: int, total: int) -> None:
    name, work, size = min(options, key=lambda o: max(o[1] / MOST_WORK, o[2] / memory))
    raise ModelError(
        f"{name}: {C} different classes with {total:,} customers need {size:.3g} bytes (limit {memory:.3g}) and "
        f"{work:.3g} station steps (limit {MOST_WORK:.3g}); take an approximate solver: Linearizer(), BardSchweitzer()"
    )


def _single(chains: Chains, merged: Merged) -> Solution:
    """One kind of customer: the single-class solvers, and each chain its part."""
    from ..network import Network, Station
    from .convolution import Constants
    from .mva import recursion

    network, N = chains.network, int(merged.N[0])
    busy = np.full(len(network.stations), np.nan)
    rates = [rates_of(network.stations[k], N) for k in merged.stations]
    if all(mu is None for mu in rates):
        X, R = recursion(merged.D[0], float(merged.Z[0]), N)
    else:
        stations = [
            Station(
                str(k),
                service_time=float(merged.D[0, at]),
                rates=None if rates[at] is None else _all_rates(rates[at], N),
            )
            for at, k in enumerate(merged.stations)
        ]
        work = Constants.of(Network(stations, think_time=float(merged.Z[0])), N)
        X, R = work.X, work.residence_times()
        for at, k in enumerate(merged.stations):
            if network.stations[k].rates is not None:
                busy[k] = work.busy()[-1, at]
    return expand(
        chains,
        merged,
        X[-1:],
        X[-1] * R[-1:],
        busy if np.isfinite(busy).any() else None,
        "exact MVA",
        "all customers are alike: solved as a single class",
    )


def _all_rates(mu: np.ndarray | None, N: int) -> tuple[float, ...]:
    assert mu is not None
    return tuple(np.concatenate([mu, np.full(max(0, N - len(mu)), mu[-1])])[:N].tolist())


def _lattice(merged: Merged) -> tuple[np.ndarray, np.ndarray]:
    from .kernels import multiclass

    X, R = np.zeros(len(merged.N)), np.zeros(merged.D.shape)
    multiclass.lattice(merged.D, merged.Z, merged.N, X, R)
    return X, X[:, None] * R


def _by_customer(merged: Merged, rates: list[np.ndarray | None]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Customers one by one on stations of any rates (the transpose of Conway and Georganas's RECAL, 1986)."""
    from .kernels import multiclass

    total = int(merged.N.sum())
    K = len(merged.stations)
    n = np.arange(1.0, total + 1)
    steps = np.array([n / (1.0 if mu is None else _all_rates(mu, total)) for mu in rates])
    scale = np.exp(np.maximum(np.log(steps).mean(axis=1).max(), np.log(steps[:, 0]).max()))
    weights = np.ones((K, total + 1))
    weights[:, 1:] = np.cumprod(steps / scale, axis=1)
    X, Q, empty = np.zeros(len(merged.N)), np.zeros(merged.D.shape), np.zeros(K)
    unit = float((merged.D.sum() + merged.Z.sum()) / merged.D.size)
    least = multiclass.by_customer(merged.D * scale / unit, merged.Z / unit, merged.N, weights, X, Q, empty)
    if not least > 1e-200:
        raise ModelError("exact recursion by customer: demands differ too much for its range; use Linearizer()")
    return X / unit, Q, empty
