"""Exact mean-value analysis: recursions over populations, and which of the multi-class ones is cheapest."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..errors import ModelError
from ..network import Network, Solution
from .chains import MEMORY, Chains, Merged, chains_of, expand, merge, refuse_without_product_form
from .convolution import Constants, Convolution, extended, lattice_cost, recursion, solve_lattice

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
    go through normalizing constants, whose digits do not get lost as those of the textbook's recursion do.

    Without classes, time is proportional to the population times the number of stations and all populations up to the
    one asked for are kept. With classes, the cheapest of several exact recursions is taken; its memory is at most the
    product of the populations (each plus one) of all classes but the largest, and classes that are alike count as one.

    Parameters
    ----------
    memory : int, default 4 GiB
        Bytes that a solution may need; more is refused before starting, with the numbers.
    """

    memory: int = MEMORY

    def solve(self, network: Network, population: int | tuple[int, ...]) -> Solution:
        """Measures for populations 1 to ``population``, or at the classes' populations."""
        if isinstance(population, int) == bool(network.classes):
            wanted = "one number per class" if network.classes else "a whole number"
            raise ModelError(f"exact MVA: population must be {wanted}, got {population!r}")
        chains = chains_of(network, population)
        refuse_without_product_form(chains, "exact MVA")
        return self.solved(chains)

    def solved(self, chains: Chains) -> Solution:
        """The same of a network that is lowered already and has product form."""
        if chains.network.classes:
            return solve_classes(chains, self.memory)
        return Convolution().solve(chains.network, int(chains.N[0])) if chains.why_not_plain() else self._single(chains)

    def _single(self, chains: Chains) -> Solution:
        K, N = len(chains.D), int(chains.N[0])
        if self.memory < 8 * N * (K + 1):
            raise ModelError(
                f"exact MVA: populations 1 to {N:,} of {K} stations take {8 * N * (K + 1):,} bytes, "
                f"more than {self.memory:,}; take a smaller population, or bounds"
            )
        D = chains.D[:, 0]
        delays = D * chains.delay
        X, R = recursion(D - delays, float(chains.Z[0] + delays.sum()), N)
        R[:, chains.delay] = D[chains.delay]
        return Solution(
            chains.network,
            N,
            X,
            R,
            solver="exact MVA",
            exact=True,
            reason="single class with product form: the recursion is exact and cheap",
        )


def solve_classes(chains: Chains, memory: int) -> Solution:
    """Solve by the cheapest exact recursion, or refuse with the numbers."""
    merged = merge(chains)
    if len(merged.N) == 1:
        return _single(chains, merged)
    total, points = int(merged.N.sum()), math.prod(int(n) + 1 for n in merged.N)
    C, K = merged.D.shape
    plane = points // (int(merged.N[0]) + 1)
    boxes = (total + 1) ** K
    options = []
    if all(mu is None for mu in merged.speeds):
        options.append(("exact MVA", points * K * C * 1.0, plane * K * 8))
    else:
        options.append(("multi-class convolution", *lattice_cost(merged)))
    if total <= MOST_CUSTOMERS and K > 0:
        options.append(("exact recursion by customer", 2.5 * total * boxes * (K + 1), (C + 3) * boxes * 8))
    fitting = [o for o in options if o[1] <= MOST_WORK and o[2] <= memory]
    if not fitting:
        _refuse(options, memory, C, total)
    name = min(fitting, key=lambda o: o[1])[0]
    empty = None
    if name == "exact MVA":
        X, Q = _over_lattice(merged)
    elif name == "exact recursion by customer":
        X, Q, empty = _by_customer(merged)
    else:
        X, Q, empty = solve_lattice(merged)
    alike = "" if (chains.N > 0).sum() == C else f", merged into {C} that differ"
    reason = f"{len(chains.N)} classes with product form{alike}: {name} is the cheapest exact recursion"
    return expand(chains, merged, X, Q, empty, name, reason)


def _refuse(options: list[tuple[str, float, float]], memory: int, C: int, total: int) -> None:
    name, work, size = min(options, key=lambda o: max(o[1] / MOST_WORK, o[2] / memory))
    raise ModelError(
        f"{name}: {C} different classes with {total:,} customers need {size:.3g} bytes (limit {memory:.3g}) and "
        f"{work:.3g} station steps (limit {MOST_WORK:.3g}); take an approximate solver: ApproximateMVA('linearizer')"
    )


def _single(chains: Chains, merged: Merged) -> Solution:
    """One kind of customer: the single-class solvers, and each chain its part."""
    N, D, Z = int(merged.N[0]), merged.D[0], float(merged.Z[0])
    empty = None
    if all(mu is None for mu in merged.speeds):
        X, R = recursion(D, Z, N)
    else:
        work = Constants(D, merged.speeds, np.zeros(len(D), dtype=bool), Z, N)
        X, R = work.X, work.residence_times()
        empty = 1.0 - work.busy(range(len(D)))[-1]
    why = "all customers are alike: solved as a single class"
    return expand(chains, merged, X[-1:], X[-1] * R[-1:], empty, "exact MVA", why)


def _over_lattice(merged: Merged) -> tuple[np.ndarray, np.ndarray]:
    """X (C,) and Q (C, K) of single-server queues, by the recursion over all populations."""
    from .kernels import multiclass

    X, R = np.zeros(len(merged.N)), np.zeros(merged.D.shape)
    multiclass.lattice(merged.D, merged.Z, merged.N, X, R)
    return X, X[:, None] * R


def _by_customer(merged: Merged) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Customers one by one on stations of any rates (the transpose of Conway and Georganas's RECAL, 1986)."""
    from .kernels import multiclass

    total = int(merged.N.sum())
    K = len(merged.stations)
    n = np.arange(1.0, total + 1)
    steps = np.array([n / (1.0 if mu is None else extended(mu, total)) for mu in merged.speeds])
    scale = np.exp(np.maximum(np.log(steps).mean(axis=1).max(), np.log(steps[:, 0]).max()))
    weights = np.ones((K, total + 1))
    weights[:, 1:] = np.cumprod(steps / scale, axis=1)
    X, Q, empty = np.zeros(len(merged.N)), np.zeros(merged.D.shape), np.zeros(K)
    unit = float((merged.D.sum() + merged.Z.sum()) / merged.D.size)
    least = multiclass.by_customer(merged.D * scale / unit, merged.Z / unit, merged.N, weights, X, Q, empty)
    if not least > 1e-200:
        raise ModelError(
            "exact recursion by customer: demands differ too much for its range; use ApproximateMVA('linearizer')"
        )
    return X / unit, Q, empty
