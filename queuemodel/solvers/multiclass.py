"""Exact multi-class networks: which of the exact recursions is cheapest, and what to do when none can fit."""

from __future__ import annotations

import math

import numpy as np

from ..errors import ModelError
from ..network import Solution
from .constants import Constants, extended
from .lattice import cost, solve_lattice
from .lowering import Chains
from .merging import Merged, expand, merge
from .recursions import lattice_recursion, recursion

#: Station steps (about 2 ns each) beyond which a recursion is refused: minutes.
MOST_WORK = 1e11

#: Above this population the recursion by customer could underflow.
MOST_CUSTOMERS = 1000


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
        options.append(("multi-class convolution", *cost(merged)))
    if total <= MOST_CUSTOMERS and K > 0:
        options.append(("exact recursion by customer", 2.5 * total * boxes * (K + 1), (C + 3) * boxes * 8))
    fitting = [o for o in options if o[1] <= MOST_WORK and o[2] <= memory]
    if not fitting:
        _refuse(options, memory, C, total)
    name = min(fitting, key=lambda o: o[1])[0]
    empty = None
    if name == "exact MVA":
        X, R, *_ = lattice_recursion(merged.D, merged.Z, merged.N)
        Q = X[:, None] * R
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
        f"{work:.3g} station steps (limit {MOST_WORK:.3g}); take an approximate solver: Linearizer(), BardSchweitzer()"
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
        raise ModelError("exact recursion by customer: demands differ too much for its range; use Linearizer()")
    return X / unit, Q, empty
