"""Approximate mean-value analysis: large populations, many classes, and networks without product form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..network import Network, Solution
from .amva import Model, model_of, rejoin_seidmann, split_seidmann
from .fixed_points import aggregate, linearizer, schweitzer
from .held import hold_classes, hold_curve


@dataclass(frozen=True, slots=True)
class BardSchweitzer:
    """The fixed point of Bard (1979) and Schweitzer (1979): a customer meets (N-1)/N of its own class's queue.

    Approximate. Time does not depend on the population. Measured error: docs/explanation/solver-measurements.

    Parameters
    ----------
    multi_server : {"suri", "seidmann"}
        How stations with several servers are approximated.
    tolerance : float
        Largest relative change of a queue length at which the iteration stops.
    """

    multi_server: str = "suri"
    tolerance: float = 1e-12

    def solve(self, network: Network, population: int | tuple[int, ...]) -> Solution:
        """Measures at ``population``."""
        return _solve("Bard-Schweitzer", schweitzer, network, population, self.multi_server, self.tolerance)


@dataclass(frozen=True, slots=True)
class Linearizer:
    """Chandy and Neuse (1982): the shares of queues are corrected from the populations with one customer fewer.

    Approximate, several times closer than `BardSchweitzer` and as many times slower as there are classes, times three.
    Measured error: docs/explanation/solver-measurements.

    Parameters
    ----------
    multi_server, tolerance
        As of `BardSchweitzer`.
    """

    multi_server: str = "suri"
    tolerance: float = 1e-10

    def solve(self, network: Network, population: int | tuple[int, ...]) -> Solution:
        """Measures at ``population``."""
        return _solve("Linearizer", linearizer, network, population, self.multi_server, self.tolerance)


@dataclass(frozen=True, slots=True)
class AQL:
    """Aggregate queue lengths (Zahorjan, Eager and Sweillam, 1988): `Linearizer` with one correction per station.

    Approximate, about as close as `Linearizer` with less memory. Measured error: docs/explanation/solver-measurements.

    Parameters
    ----------
    multi_server, tolerance
        As of `BardSchweitzer`.
    """

    multi_server: str = "suri"
    tolerance: float = 1e-10

    def solve(self, network: Network, population: int | tuple[int, ...]) -> Solution:
        """Measures at ``population``."""
        return _solve("AQL", aggregate, network, population, self.multi_server, self.tolerance)


@dataclass(frozen=True, slots=True)
class ApproximateMVA:
    """Mean-value analysis with corrections for networks without product form.

    First-come-first-served queues with any variability or class-dependent service (Reiser, 1979; Eager, Sorin and
    Vernon, 2000), fork-joins (Nelson and Tantawi, 1988), several servers (Suri, Sahu and Vernon, 2007). Without
    classes it is the recursion over populations, all of which are kept; with classes `Linearizer` around the same
    corrections.
    Approximate; what it costs is measured in docs/explanation/solver-measurements.
    """

    reason: str = ""

    def solve(self, network: Network, population: int | tuple[int, ...]) -> Solution:
        """Measures for populations 1 to ``population``, or at the classes' populations."""
        if not isinstance(population, int):
            return _solve("approximate MVA (Linearizer)", linearizer, network, population, reason=self.reason)
        model = model_of(network, population)
        K, Z = len(network.stations), network.think_time
        X, R = np.empty(population), np.empty((population, K))
        Q, U = np.zeros((K, 1, 1)), np.zeros((K, 1, 1))
        for n in range(1, population + 1):
            r = model.with_servers(model.residence(Q, U, rarer=False)[:, 0], n)
            x = n / (Z + r.sum())
            X[n - 1], R[n - 1] = x, r
            Q[:, 0, 0], U[:, 0, 0] = x * r, x * model.D[:, 0]
        X, R, held = hold_curve(model.chains, X, R)
        busy = model.busy(X[:, None], X[:, None] * R)
        reason = self.reason + held if self.reason else held[2:]
        return Solution(network, population, X, R, solver="approximate MVA", exact=False, reason=reason, busy=busy)


def _solve(
    name: str,
    method: Callable[[Model, float], tuple[np.ndarray, np.ndarray]],
    network: Network,
    population: int | tuple[int, ...],
    multi_server: str = "suri",
    tolerance: float = 1e-10,
    *,
    reason: str = "",
) -> Solution:
    model = model_of(network, population, multi_server)
    split = model.multi_server == "seidmann"
    work = split_seidmann(model) if split else model
    with np.errstate(divide="ignore", invalid="ignore"):
        X, R = method(work, tolerance)
    if split:
        R = rejoin_seidmann(model, R)
    X, R, held = hold_classes(model.chains, X, R)
    Q = X * R
    busy = model.busy(X[None, :], Q.sum(axis=1)[None, :])
    why = reason or f"{name} was asked for: approximate at any population"
    return model.chains.solution(
        X, Q, busy=None if busy is None else busy[0], solver=name, exact=False, reason=why + held
    )
