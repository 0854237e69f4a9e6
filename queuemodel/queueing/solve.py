"""The one verb: a network, a population and a solver give a solution."""

from __future__ import annotations

from typing import Any, Protocol

from ..base.errors import ModelError
from .approximate import solved_approximately
from .chains import require_populations
from .exact import solved_exactly
from .lowered import lower
from .network import Network
from .solution import Solution


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
