"""Closed forms: throughputs and queue lengths of small networks in symbols."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.checks import extra
from ..base.errors import ModelError
from .chains import lowered_product_form
from .network import Network

#: Closed forms with more terms than this help nobody.
MOST_TERMS = 20_000


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SymbolicSolution:
    """Sympy expressions at one population; all symbols are positive.

    Residence times are queue lengths over throughputs (Little's law), slopes ``throughput.diff(symbol)``.

    Attributes
    ----------
    throughput : Expr or tuple of Expr
        Cycles per second, one per class where there are classes.
    queue_length : tuple
        Per station, or per station and class.
    demands, think_times : tuple
        The symbols that they are written in.
    """

    throughput: Any
    queue_length: Any
    demands: Any
    think_times: Any
    population: Any

    def __repr__(self) -> str:
        return f"X({self.population}) = {self.throughput}"

    def _repr_latex_(self) -> str:
        import sympy

        return f"$X({sympy.latex(self.population)}) = {sympy.latex(self.throughput)}$"


def solve_symbolic(network: Network, *, population: Any = None) -> SymbolicSolution:
    """Exact closed forms of a product-form network by its normalizing constant (Gordon and Newell, 1967).

    Service demands are ``D_1, D_2, ...`` (with classes ``D_1_1, ...``), think times ``Z`` (``Z_1, ...``); 0 stays 0.

    Parameters
    ----------
    network : Network
    population : int, or one per class
        Small: the number of terms grows fast.

    Raises
    ------
    MissingDependencyError
        When sympy is not installed.
    ModelError
        When the network has no product form, or the closed form would be too long.

    Examples
    --------
    >>> from queuemodel import Station
    >>> network = Network([Station("server", service_time=0.5)], think_time=1.0)
    >>> solve_symbolic(network, population=2)  # doctest: +SKIP
    X(2) = 2*(D_1 + Z)/(2*D_1**2 + 2*D_1*Z + Z**2)
    """
    sympy = extra("sympy", "symbolic", what="a symbolic solution")
    low = lowered_product_form(network, population, "symbolic")
    counts = tuple(low.N.tolist())
    if any(len(chain) > 1 for chain in network.chains):
        raise ModelError("symbolic: classes that customers switch between are not supported")
    K, points = len(network.stations), list(np.ndindex(*low.N + 1))
    if len(points) * K * sum(counts) > MOST_TERMS:
        raise ModelError(
            f"symbolic: {len(points):,} populations at {K} stations are too many for a closed form; use solve"
        )

    def symbol(value: float, *label: object) -> Any:
        named = "_".join(map(str, label if network.classes else label[:-1]))
        return sympy.Symbol(named, positive=True) if value else sympy.Integer(0)

    def less(n: tuple[int, ...], i: Iterable[int]) -> tuple[int, ...]:
        return tuple(a - int(b) for a, b in zip(n, i, strict=True))

    def weight(times: Sequence[Any], n: tuple[int, ...]) -> Any:
        return sympy.prod([t**i / sympy.factorial(i) for t, i in zip(times, n, strict=True)])

    D = tuple(tuple(symbol(d, "D", k + 1, c + 1) for c, d in enumerate(row)) for k, row in enumerate(low.D))
    Z = tuple(symbol(z, "Z", c + 1) for c, z in enumerate(low.Z))
    G = {n: weight(Z, n) for n in points}
    for station, d in zip(network.stations, D, strict=True):
        speeds = [sympy.nsimplify(mu) for mu in station.speeds(sum(counts)).tolist()]
        factor = {n: weight(d, n) * sympy.prod([(i + 1) / speeds[i] for i in range(sum(n))]) for n in points}
        G = {n: sympy.expand(sum(factor[i] * G[less(n, i)] for i in np.ndindex(*[m + 1 for m in n]))) for n in points}
    top, ones = G[counts], np.eye(len(counts), dtype=int)
    X = tuple(sympy.cancel(G[less(counts, ones[c])] / top) if n else sympy.Integer(0) for c, n in enumerate(counts))
    Q = tuple(tuple(sympy.cancel(d * sympy.diff(top, d) / top) if d else d for d in row) for row in D)
    if network.classes:
        return SymbolicSolution(X, Q, D, Z, counts)
    return SymbolicSolution(X[0], tuple(q[0] for q in Q), tuple(d[0] for d in D), Z, counts[0])
