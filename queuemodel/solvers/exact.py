"""Exact mean-value analysis: recursions over populations, and which of them is cheapest."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NoReturn

import numpy as np

from ..compiled import ready
from ..errors import ModelError
from ..network import Network, Solution
from ..network.lowered import Lowered
from .chains import MEMORY, Merged, expand, lowered_product_form, merge
from .convolution import constants_of_one_class, extended, lattice_cost, solve_lattice

#: Station steps (about 2 ns each) beyond which a recursion is refused: minutes.
MOST_WORK = 1e11

#: Above this population the recursion by customer could underflow.
MOST_CUSTOMERS = 1000


@dataclass(frozen=True, slots=True)
class ExactMVA:
    """Exact mean-value analysis of closed product-form networks (Reiser and Lavenberg, 1980).

    Exact (up to rounding) when the network has product form: processor sharing or last-come-first-served-preemptive
    queues with any service distribution, first-come-first-served queues with exponential service that is the same for
    all classes, and delays with any. Anything else is refused. Stations with several servers or load-dependent rates
    go through normalizing constants (Buzen, 1973), whose digits do not get lost as those of the textbook's recursion
    do: a station with m servers costs N m operations, one whose rates never settle N**2.

    Without classes, time is proportional to the population times the number of stations and all populations up to the
    one asked for are kept. With classes, the cheapest of several exact recursions is taken; its memory is at most the
    product of the populations (each plus one) of all classes but the largest, and classes that are alike count as one.
    """

    def solve(self, network: Network, population: int | tuple[int, ...]) -> Solution:
        """Measures for populations 1 to ``population``, or at the classes' populations."""
        return solved_exactly(lowered_product_form(network, population, "exact MVA"))


def solved_exactly(low: Lowered) -> Solution:
    """The solution of a network with product form by the cheapest exact recursion, or a refusal with the numbers."""
    if not low.network.classes and not low.why_not_plain():
        return _plain(low)
    merged = merge(low)
    name = _cheapest(merged)
    if not low.network.classes:
        return _by_constants(low, merged)
    busy = None
    if name == "exact MVA":
        X, Q = _over_lattice(merged)
    elif name == "exact recursion by customer":
        X, Q, busy = _by_customer(merged)
    else:
        X, Q, busy = solve_lattice(merged)
    C = len(merged.N)
    alike = "" if (low.N > 0).sum() == C else f", merged into {C} that differ"
    reason = f"{len(low.N)} classes with product form{alike}: {name} is the cheapest exact recursion"
    return expand(low, merged, X, Q, busy, solver=name, reason=reason)


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


@cache
def _recursion() -> Callable[[np.ndarray, float, int], tuple[np.ndarray, np.ndarray]]:
    return ready("queuemodel.solvers.kernels.recursion", "recursion")


def _plain(low: Lowered) -> Solution:
    """Single servers of constant speed and one kind of customer: nothing to merge, the usual what-if, kept fast."""
    N, D, delay, Z = int(low.N[0]), low.D[:, 0], low.delay, float(low.Z[0])
    size = 8 * N * (len(D) + 1)
    if size > MEMORY:
        _refuse([("exact MVA", float(N * len(D)), size)], 1, N)
    if True in delay.tolist():
        X, R = _recursion()(np.where(delay, 0.0, D), Z + float(D[delay].sum()), N)
        R[:, delay] = D[delay]
    else:
        X, R = _recursion()(D, Z, N)
    why = "single class with product form: the recursion is exact and cheap"
    return Solution(low.network, N, X, R, solver="exact MVA", exact=True, reason=why)


def _by_constants(low: Lowered, merged: Merged) -> Solution:
    """One kind of customer at all populations, with several servers or rates."""
    (X, R, busy), shape = constants_of_one_class(merged), (int(low.N[0]), len(low.D))
    times, there = np.zeros(shape), np.full(shape, np.nan)
    times[:, merged.stations], times[:, low.delay], there[:, merged.stations] = R, low.D[low.delay, 0], busy
    why = "single class with product form: exact for load-dependent and multi-server stations"
    return Solution(low.network, shape[0], X, times, solver="convolution", exact=True, reason=why, busy=there)


def _over_lattice(merged: Merged) -> tuple[np.ndarray, np.ndarray]:
    """X (C,) and Q (C, K) of single-server queues, by the recursion over all populations."""
    from .kernels import multiclass

    X, R = np.zeros(len(merged.N)), np.zeros(merged.D.shape)
    multiclass.lattice(merged.D, merged.Z, merged.N, X, R)
    return X, X[:, None] * R


def _by_customer(merged: Merged) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X (C,), Q (C, K) and how often somebody is there (K,): customers are placed one by one on stations of any rates.

    The transpose of Conway and Georganas's RECAL (1986). P holds the weights of all numbers of customers at stations,
    with those placed so far, B what those to come and the stations' rates make of each; both only up to a factor.
    """
    (C, K), total = merged.D.shape, int(merged.N.sum())
    n = np.arange(1.0, total + 1)
    steps = np.array([n / (1.0 if mu is None else extended(mu, total)) for mu in merged.speeds])
    scale = np.exp(np.maximum(np.log(steps).mean(axis=1).max(), np.log(steps[:, 0]).max()))
    weights = np.hstack([np.ones((K, 1)), np.cumprod(steps / scale, axis=1)])
    unit = float((merged.D.sum() + merged.Z.sum()) / merged.D.size)
    D, Z = merged.D * scale / unit, merged.Z / unit
    one = [np.s_[(slice(None),) * k + (slice(1, None),)] for k in range(K)]  # somebody at station k
    less = [np.s_[(slice(None),) * k + (slice(None, -1),)] for k in range(K)]

    def with_another(A: np.ndarray, c: int, to: list, source: list) -> np.ndarray:
        after = Z[c] * A
        for k in range(K):
            after[to[k]] += D[c, k] * A[source[k]]
        return after / after.max()

    P, before = np.zeros((total + 1,) * K), []
    P[(0,) * K] = 1.0
    for c in range(C):
        for _ in range(merged.N[c]):
            last, P = P, with_another(P, c, one, less)
        before.append(last)
    B = np.where(np.indices(P.shape).sum(axis=0) <= total, 1.0, 0.0)
    for k in range(K):
        B *= weights[k].reshape(-1, *[1] * (K - 1 - k))
    weight = P * B
    busy = np.array([1.0 - weight.take(0, axis=k).sum() / weight.sum() for k in range(K)])
    X, Q, least = np.zeros(C), np.zeros((C, K)), 1.0
    for c in reversed(range(C)):
        out = (before[c] * B).sum()
        there = np.array([D[c, k] * (before[c][less[k]] * B[one[k]]).sum() for k in range(K)])
        whole = Z[c] * out + there.sum()
        least = min(least, whole)
        X[c], Q[c] = merged.N[c] * out / whole, merged.N[c] * there / whole
        for _ in range(merged.N[c]):
            B = with_another(B, c, less, one)
    if not least > 1e-200:
        raise ModelError(
            "exact recursion by customer: demands differ too much for its range; use ApproximateMVA('linearizer')"
        )
    return X / unit, Q, busy
