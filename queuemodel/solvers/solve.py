"""The one verb: a network, a population and a solver give a solution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..checks import require_count
from ..errors import ModelError
from ..network import LARGEST_POPULATION, Network, Solution
from ..network.lowered import lower
from .approximate import solved_approximately
from .exact import solved_exactly


class Solver(Protocol):
    """What `solve` needs of a method: it treats the network as promised, or raises `ModelError`."""

    def solve(self, network: Network, population: Any) -> Solution:
        """Measures at ``population``: an int without classes, else a tuple with one number per class."""


def solve(network: Network, *, population: Any = None, solver: Solver | None = None) -> Solution:
    """Solve a closed network.

    Without a solver, one is chosen: `ExactMVA` when the network has product form (docs/explanation/solvers), else
    `ApproximateMVA`; the solution's `reason` says which and why. A request that an exact solver cannot fit is refused
    with the numbers, never answered approximately in silence.

    Parameters
    ----------
    network : Network
    population : int, or one per class (sequence or mapping), optional
        Customers in the network, at least 1 in all. May be left out with classes, which have their own populations.
    solver : Solver, optional
        A method of one's choice.

    Returns
    -------
    Solution
        Measures at ``population``; without classes also throughputs and residence times for every smaller one.

    Raises
    ------
    ModelError
        When the population is not a whole number of at least 1, or the solver cannot treat the network as promised.

    Examples
    --------
    >>> from queuemodel import Station
    >>> network = Network([Station("server", service_time=0.5)], think_time=1.0)
    >>> round(solve(network, population=2).throughput, 6)
    1.2
    """
    if not isinstance(network, Network):
        raise ModelError(f"solve: network must be a Network, got {type(network).__name__}")
    N = require_populations(network, population)
    if solver is not None:
        if isinstance(solver, type) or not hasattr(solver, "solve"):
            raise ModelError(f"solve: solver must be a solver value such as ExactMVA(), got {solver!r}")
        return solver.solve(network, N)
    low = lower(network, N)
    why = low.why_not_product_form()
    if why is None:
        return solved_exactly(low)
    return solved_approximately(low, "recursion", f"{why}: no product form, so approximate")


def require_populations(network: Network, population: Any) -> int | tuple[int, ...]:
    """The population asked for: an int without classes, else one per class; a `ModelError` when it makes no sense."""
    if not network.classes:
        if not isinstance(population, int | str) and isinstance(population, Sequence | Mapping):
            raise ModelError(f"population must be a whole number for a network without classes, got {population!r}")
        if population is None:
            raise ModelError("population is needed for a network without classes: solve(network, population=...)")
        return require_count(population, "population", most=LARGEST_POPULATION)
    names = network.class_names
    if population is None:
        counts = [c.population for c in network.classes]
    elif isinstance(population, Mapping):
        if unknown := [c for c in population if c not in names]:
            raise ModelError(f"population names class {unknown[0]!r}, but the classes are: {', '.join(names)}")
        if missing := [c for c in names if c not in population]:
            raise ModelError(f"population must name every class, {missing[0]!r} is missing")
        counts = [population[c] for c in names]
    else:
        several = isinstance(population, np.ndarray | Sequence) and not isinstance(population, str | bytes)
        counts = list(population) if several else [population]
        if len(counts) != len(names):
            raise ModelError(f"population must be {len(names)} numbers, one per class, got {population!r}")
    most = LARGEST_POPULATION
    counts = [
        require_count(n, f"population of class {c!r}", least=0, most=most) for c, n in zip(names, counts, strict=True)
    ]
    require_count(sum(counts), "population of all classes together", most=most)
    return tuple(counts)
