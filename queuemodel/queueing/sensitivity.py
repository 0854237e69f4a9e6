"""Exact derivatives of throughputs by demands and think times, and closed forms in symbols."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..base.checks import by_keyword, extra
from ..base.errors import ModelError
from ..base.results import Result
from .exact import solved_exactly
from .lowered import lowered_product_form
from .network import Network

#: Demand of a station that takes no time, relative to the cycle: the derivative there is a limit.
TINY = 1e-10
#: Longest denominator of a closed form, in terms: longer forms are of no use, and take more than seconds.
MOST_TERMS = 500


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sensitivity(Result):
    """Derivatives of throughput at one population of K stations; with C classes, of each class's throughput.

    Attributes
    ----------
    populations : tuple of int
        Customers of each class, or of the whole network.
    throughput : float, or ndarray of shape (C,)
        Cycles per second.
    dX_dD : ndarray, shape (K,) or (C, K, C)
        By each service demand (at a station of a class), 1/s per second.
    dX_dZ : float, or ndarray of shape (C, C)
        By the think time (of a class).
    """

    network: Network
    populations: tuple[int, ...]
    throughput: Any
    dX_dD: np.ndarray
    dX_dZ: Any

    @property
    def elasticity(self) -> np.ndarray:
        """Percent of throughput won by one percent less demand, shaped like `dX_dD`: -d log X / d log D."""
        X = np.reshape(self.throughput, (-1, 1, 1) if self.network.classes else ())
        return np.asarray(-self.dX_dD * self.network.service_demand / np.where(X > 0, X, 1.0))

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per station, and class where there are several: demand, derivative and elasticity."""
        network, D = self.network, self.network.class_service_demand
        if not network.classes:
            slopes = {"dX_dD": self.dX_dD[:, None], "elasticity": self.elasticity[:, None]}
        else:
            slopes = {f"dX[{name}]_dD": dX for name, dX in zip(network.class_names, self.dX_dD, strict=True)}
        return network.rows_of(service_demand=D, **slopes)

    def caption(self) -> str:
        """Throughputs and populations, and the slope by the think time of a network without classes."""
        if not self.network.classes:
            at = f"at population {self.populations[0]}"
            return f"throughput {self.throughput:.6g} /s {at}, dX/dZ {self.dX_dZ:.4g}"
        pairs = zip(self.network.class_names, self.throughput, self.populations, strict=True)
        return "throughput " + ", ".join(f"{name} {x:.6g} /s at population {n}" for name, x, n in pairs)


@by_keyword
def sensitivity(network: Network, *, population: Any = None) -> Sensitivity:
    """Derivatives of closed classes' throughput by every demand and think time at a population, as of `solve`; exact.

    By d log G / d log D_k = Q_k (de Souza e Silva and Muntz, 1988), d X_c(N) / d D_kd = X_c(N) (Q_kd(N - 1_c) -
    Q_kd(N)) / D_kd, for closed and open classes d; think time is the demand of a delay.

    Raises
    ------
    ModelError
        When the network has no product form or no closed class, customers switch classes, or an exact solution would
        not fit.

    Examples
    --------
    >>> from queuemodel.queueing import Station
    >>> network = Network([Station("server", service_time=0.05)], think_time=1.0)
    >>> sensitivity(network, population=50).dX_dD.round(3)
    array([-400.])
    """
    low = lowered_product_form(network, population, "sensitivity")
    if any(len(chain) > 1 for chain in network.chains):
        raise ModelError("sensitivity: customers switch classes; derivatives require fixed classes")
    if not low.N.any():
        raise ModelError("sensitivity: no class is closed; the throughput of open classes is their arrival rate")
    low = replace(low, D=np.where(low.D > 0, low.D, TINY * (low.Z + low.D.sum(axis=0))))
    solution, C = solved_exactly(low), len(low.N)
    X, Q = solution.class_throughput, solution.class_queue_length
    dX_dD, dX_dZ = np.zeros((C, *Q.shape)), np.zeros((C, C))
    for c in np.flatnonzero(low.N):
        N_less, X_less, Q_less = low.N - (np.arange(C) == c), np.zeros(C), np.zeros(Q.shape)  # N - e_c
        if N_less.any() or network.open_classes:
            before = solved_exactly(replace(low, N=N_less))
            X_less, Q_less = before.class_throughput, before.class_queue_length
        # X_c = G(N - e_c) / G(N) and d log G / d log D_k = Q_k; of a delay Q / D is X
        dX_dD[c], dX_dZ[c] = X[c] * (Q_less - Q) / low.D, X[c] * (X_less - X)
    if network.classes:
        return Sensitivity(network, low.populations, X, dX_dD, dX_dZ)
    return Sensitivity(network, (int(low.N[0]),), float(X[0]), dX_dD[0, :, 0], float(dX_dZ[0, 0]))


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
        Symbols in the expressions.
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


@by_keyword
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
    >>> from queuemodel.queueing import Station
    >>> network = Network([Station("server", service_time=0.5)], think_time=1.0)
    >>> solve_symbolic(network, population=2)  # doctest: +SKIP
    X(2) = 2*(D_1 + Z)/(2*D_1**2 + 2*D_1*Z + Z**2)
    """
    sympy = extra("sympy", "symbolic", what="a symbolic solution")
    low = lowered_product_form(network, population, "symbolic")
    counts = tuple(low.N.tolist())
    if any(len(chain) > 1 for chain in network.chains):
        raise ModelError("symbolic: classes that customers switch between are not supported")
    if network.open_classes:
        raise ModelError("symbolic: open classes are not supported; their measures have closed forms without it")
    K, points = len(network.stations), list(np.ndindex(*low.N + 1))
    terms = math.prod(math.comb(n + K + bool(z), n) for n, z in zip(counts, low.Z.tolist(), strict=True))
    if terms > MOST_TERMS:
        raise ModelError(
            f"symbolic: a closed form at this population has about {terms:,} terms, more than {MOST_TERMS}; use solve"
        )

    def symbol(value: float, *label: object) -> Any:
        named = "_".join(map(str, label if network.classes else label[:-1]))
        return sympy.Symbol(named, positive=True) if value else sympy.Integer(0)

    def less(n: tuple[int, ...], i: Iterable[int]) -> tuple[int, ...]:
        return tuple(a - int(b) for a, b in zip(n, i, strict=True))

    def weight(times: Sequence[Any], n: tuple[int, ...]) -> Any:
        return sympy.prod([t**i / sympy.factorial(i) for t, i in zip(times, n, strict=True)])  # prod D_c**n_c / n_c!

    D = tuple(tuple(symbol(d, "D", k + 1, c + 1) for c, d in enumerate(row)) for k, row in enumerate(low.D))
    Z = tuple(symbol(z, "Z", c + 1) for c, z in enumerate(low.Z))
    G = {n: weight(Z, n) for n in points}  # thinking: a delay
    for station, d in zip(network.stations, D, strict=True):
        speeds = [sympy.nsimplify(mu) for mu in station.speeds(sum(counts)).tolist()]
        # f(n) = |n|! prod D_c**n_c / n_c! / (mu(1) ... mu(|n|)), G'(n) = sum over i <= n of f(i) G(n - i)
        factor = {n: weight(d, n) * sympy.prod([(i + 1) / speeds[i] for i in range(sum(n))]) for n in points}
        G = {n: sympy.expand(sum(factor[i] * G[less(n, i)] for i in np.ndindex(*[m + 1 for m in n]))) for n in points}
    top, ones = G[counts], np.eye(len(counts), dtype=int)
    # X_c = G(N - e_c) / G(N), Q_k = D_k dG/dD_k / G
    X = tuple(sympy.cancel(G[less(counts, ones[c])] / top) if n else sympy.Integer(0) for c, n in enumerate(counts))
    Q = tuple(tuple(sympy.cancel(d * sympy.diff(top, d) / top) if d else d for d in row) for row in D)
    if network.classes:
        return SymbolicSolution(X, Q, D, Z, counts)
    return SymbolicSolution(X[0], tuple(q[0] for q in Q), tuple(d[0] for d in D), Z, counts[0])
