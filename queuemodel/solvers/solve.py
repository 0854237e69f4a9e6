"""The one verb: a network, a population and a solver give a solution."""

import numbers
from typing import Protocol

from ..errors import ModelError
from ..network import Network, Solution
from .mva import ExactMVA

#: Above this a request is taken for a mistake; the recursion takes about a second per million customers and station.
LARGEST_POPULATION = 10_000_000


class Solver(Protocol):
    """What `solve` needs of a method: it treats the network as promised, or raises `ModelError`."""

    def solve(self, network: Network, population: int) -> Solution:
        """Measures for populations 1 to ``population``."""


def solve(network: Network, *, population: int, solver: Solver | None = None) -> Solution:
    """Solve a closed network.

    Parameters
    ----------
    network : Network
    population : int
        Customers in the network, at least 1.
    solver : Solver, optional
        `ExactMVA` unless given.

    Returns
    -------
    Solution
        Measures at ``population``, and throughputs and residence times for every smaller one.

    Raises
    ------
    ModelError
        When the population is not a whole number of at least 1, or the solver cannot treat the network as promised.

    Examples
    --------
    >>> network = Network([Station("server", service_time=0.5)], think_time=1.0)
    >>> round(solve(network, population=2).throughput, 6)
    1.2
    """
    if not isinstance(network, Network):
        raise ModelError(f"solve: network must be a Network, got {type(network).__name__}")
    return (solver or ExactMVA()).solve(network, require_population(population))


def require_population(population: object) -> int:
    """A population as an int, or a `ModelError` that says what is wrong with it."""
    if isinstance(population, bool) or not isinstance(population, numbers.Integral):
        raise ModelError(f"population must be a whole number of customers, got {population!r}")
    N = int(population)
    if not 1 <= N <= LARGEST_POPULATION:
        raise ModelError(f"population must be 1 to {LARGEST_POPULATION:,}, got {population!r}")
    return N
