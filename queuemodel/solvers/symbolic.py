"""Closed forms: throughput, response times and queue lengths of small networks in symbols."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ModelError
from ..extras import extra
from ..network import Network
from ..network.lowered import speeds_of
from .chains import chains_of, refuse_without_product_form
from .solve import require_populations

#: Closed forms with more terms than this help nobody.
MOST_TERMS = 20_000


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SymbolicSolution:
    """Sympy expressions at one population; all symbols are positive.

    Attributes
    ----------
    throughput : Expr or tuple of Expr
        Cycles per second, one per class where there are classes.
    queue_length : tuple
        Per station, or per station and class.
    demands, think_times : tuple
        The symbols (or numbers) that they are written in.
    """

    throughput: Any
    queue_length: Any
    demands: Any
    think_times: Any
    population: Any

    @property
    def residence_time(self) -> Any:
        """R_k = Q_k / X, per station or per station and class."""
        import sympy

        if isinstance(self.throughput, tuple):
            return tuple(
                tuple(sympy.cancel(q / x) for q, x in zip(row, self.throughput, strict=True))
                for row in self.queue_length
            )
        return tuple(sympy.cancel(q / self.throughput) for q in self.queue_length)

    @property
    def response_time(self) -> Any:
        """Sum of the residence times."""
        import sympy

        R = self.residence_time
        if isinstance(self.throughput, tuple):
            return tuple(sympy.cancel(sum(column)) for column in zip(*R, strict=True))
        return sympy.cancel(sum(R))

    def derivative(self, symbol: Any) -> Any:
        """The throughput's derivative by a symbol."""
        import sympy

        if isinstance(self.throughput, tuple):
            return tuple(sympy.cancel(sympy.diff(x, symbol)) for x in self.throughput)
        return sympy.cancel(sympy.diff(self.throughput, symbol))

    def __repr__(self) -> str:
        return f"X({self.population}) = {self.throughput}"

    def _repr_latex_(self) -> str:
        import sympy

        return f"$X({sympy.latex(self.population)}) = {sympy.latex(self.throughput)}$"


def solve_symbolic(
    network: Network, *, population: Any = None, demands: Any = None, think_times: Any = None
) -> SymbolicSolution:
    """Exact closed forms of a product-form network by its normalizing constant (Gordon and Newell, 1967).

    Parameters
    ----------
    network : Network
    population : int, or one per class
        Small: the number of terms grows fast.
    demands : nested sequence, optional
        Symbols or exact numbers for the service demands, (K,) or (K, C); ``D_1, D_2, ...`` unless given. Demands of 0
        stay 0.
    think_times : sequence, optional
        For the think times; ``Z``, or ``Z_1, ...`` with classes.

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
    N = require_populations(network, population)
    refuse_without_product_form(chains_of(network, N), "symbolic")
    counts = (N,) if isinstance(N, int) else N
    if any(len(chain) > 1 for chain in network.chains):
        raise ModelError("symbolic: classes that customers switch between are not supported")
    K, C = len(network.stations), len(counts)
    D = _symbols(sympy, "D", network.class_service_demand, demands, bool(network.classes))
    given = None if think_times is None else [list(np.ravel(np.array(think_times, dtype=object)))]
    Z = _symbols(sympy, "Z", network.think_times[None, :], given, bool(network.classes), single_row=True)[0]
    points = int(np.prod([n + 1 for n in counts]))
    if points * K * sum(counts) > MOST_TERMS:
        raise ModelError(f"symbolic: {points:,} populations at {K} stations are too many for a closed form; use solve")
    G, parts = _constants(sympy, network, D, Z, counts)
    top = G[counts]
    X, columns = [], []
    for c in range(C):
        before = tuple(n - (i == c) for i, n in enumerate(counts))
        X.append(sympy.cancel(G[before] / top) if counts[c] else sympy.Integer(0))
    for k in range(K):
        columns.append(tuple(sympy.cancel(value / top) for value in parts[k]))
    if network.classes:
        return SymbolicSolution(tuple(X), tuple(columns), D, Z, counts)
    return SymbolicSolution(X[0], tuple(q[0] for q in columns), tuple(d[0] for d in D), Z, counts[0])


def _symbols(
    sympy: Any, letter: str, values: np.ndarray, given: Any, classes: bool, *, single_row: bool = False
) -> tuple[tuple[Any, ...], ...]:
    if given is not None:
        _require_shape(given, values.shape, "think_times" if single_row else "demands")
    rows = []
    for k, row in enumerate(values):
        names = []
        for c, value in enumerate(row):
            if given is not None:
                entry = given[k] if np.ndim(given[k]) == 0 else given[k][c]
                names.append(_expression(sympy, entry))
            elif value == 0:
                names.append(sympy.Integer(0))
            else:
                index = [] if single_row else [str(k + 1)]
                label = "_".join([letter, *index, *([str(c + 1)] if classes else [])])
                names.append(sympy.Symbol(label, positive=True))
        rows.append(tuple(names))
    return tuple(rows)


def _expression(sympy: Any, entry: Any) -> Any:
    try:
        value = sympy.sympify(entry)
    except (sympy.SympifyError, TypeError, AttributeError):
        value = None
    if not isinstance(value, sympy.Expr):
        raise ModelError(f"symbolic: {entry!r} is no symbol, number or expression")
    return value


def _require_shape(given: Any, shape: tuple[int, ...], what: str) -> None:
    rows, columns = shape
    wanted = f"{rows} rows of {columns}" if what == "demands" else str(columns)
    lengths = [len(row) if np.ndim(row) else 1 for row in given] if isinstance(given, list | tuple | np.ndarray) else []
    if lengths != [columns] * rows:
        raise ModelError(f"symbolic: {what} must be {wanted}, one for each of the network's, got {given!r}")


def _constants(sympy: Any, network: Network, D: Any, Z: Any, counts: tuple[int, ...]) -> tuple[dict[Any, Any], Any]:
    """G on all populations, and per station and class the sum that its queue length is a ratio of."""
    points = list(np.ndindex(*[n + 1 for n in counts]))
    think = {n: sympy.prod([z**i / sympy.factorial(i) for z, i in zip(Z, n, strict=True)]) for n in points}
    factors = [_factor(sympy, station, D[k], points, sum(counts)) for k, station in enumerate(network.stations)]
    parts = []
    for k, own in enumerate(factors):
        rest = think
        for j, other in enumerate(factors):
            if j != k:
                rest = _convolve(sympy, rest, other, points)
        weighted = [{n: n[c] * f for n, f in own.items()} for c in range(len(counts))]
        parts.append([_at(sympy, rest, w, counts) for w in weighted])
        if k == len(factors) - 1:
            G = _convolve(sympy, rest, own, points)
    return G, parts


def _factor(sympy: Any, station: Any, D: Any, points: list[Any], total: int) -> dict[Any, Any]:
    mu = speeds_of(station, total)
    values = {}
    for n in points:
        m = sum(n)
        f = sympy.prod([d**i / sympy.factorial(i) for d, i in zip(D, n, strict=True)])
        if not station.is_delay:
            f *= sympy.factorial(m)
            for i in range(1, m + 1):
                rate = 1.0 if mu is None else float(mu[min(i, len(mu)) - 1])
                f /= sympy.nsimplify(rate)
        values[n] = f
    return values


def _convolve(sympy: Any, a: dict[Any, Any], b: dict[Any, Any], points: list[Any]) -> dict[Any, Any]:
    return {n: _at(sympy, a, b, n) for n in points}


def _at(sympy: Any, a: dict[Any, Any], b: dict[Any, Any], n: tuple[int, ...]) -> Any:
    inner = np.ndindex(*[i + 1 for i in n])
    return sympy.expand(sympy.Add(*[b[i] * a[tuple(x - y for x, y in zip(n, i, strict=True))] for i in inner]))
