"""The verbs `solve`, of a network at a population by a solver, and `solve_batch`, of thousands of networks at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from ..base.checks import LARGEST_NUMBER, by_keyword
from ..base.errors import ModelError
from ..base.results import Result, rows_of
from .approximate import MEASURED, solved_approximately
from .exact import MEMORY, solved_exactly
from .kernels.product_form import recursions
from .lowered import Lowered, lower, require_populations, require_product_form
from .markov import MarkovChain
from .network import Network
from .solution import Solution
from .stations import LARGEST_POPULATION, number_array

#: Most customers, and states times populations kept, of a Markov chain that `solve` chooses by itself: 0.3 s.
MOST_CUSTOMERS, MOST_STATES = 500, 6_000
#: Rows that print shows.
SHOWN_SOLVERS = 20


class Solver(Protocol):
    """Interface of a method for `solve`: it treats the network as promised, or raises `ModelError`."""

    def solve(self, network: Network, population: Any) -> Solution:
        """Measures at ``population``: an int without classes, else a tuple with one number per class."""


@by_keyword
def solve(network: Network, *, population: Any = None, solver: Solver | None = None) -> Solution:
    """Solve a network: closed, open or mixed.

    Without a solver, one is chosen: `ExactMVA` when the network has product form (docs/explanation/model), else
    `MarkovChain` while it is small enough for a part of a second, else `ApproximateMVA`. The solution's `exact` and
    `reason` give which and why, and how far off approximations were. A product-form network that no exact recursion
    fits is refused with the numbers.

    Parameters
    ----------
    network : Network
    population : int, or one per class (sequence or mapping), optional
        Customers in the network, at least 1 in all. May be left out with classes, which have their own populations.
        Open classes have none (0, where every class is listed).
    solver : Solver, optional
        A method of one's choice.

    Returns
    -------
    Solution
        Measures at ``population``; without classes also throughputs and residence times for every smaller one.

    Raises
    ------
    ModelError
        When the population is not a whole number of at least 1, open classes leave no steady state, or the solver
        cannot treat the network as promised: open classes need product form, `Simulation` or `MarkovChain`.

    Examples
    --------
    >>> from queuemodel.queueing import Station
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
    if network.open_classes:
        require_product_form(low, "solve")  # no reduction to closed chains without it
    elif why := low.why_not_product_form():
        why = f"{why}: no product form"
        try:
            return _by_chain(low, why)
        except ModelError as error:
            no_chain = str(error).partition(" at population")[0].partition(" (")[0]
        return solved_approximately(low, "recursion", f"{why}; {no_chain}; so approximate, {MEASURED}")
    return solved_exactly(low)


def _by_chain(low: Lowered, why: str) -> Solution:
    """The solution of a small Markov chain, without classes at all populations, or a `ModelError`."""
    network, N = low.network, int(low.N.sum())
    if N > MOST_CUSTOMERS:
        raise ModelError(f"Markov chain: more than {MOST_CUSTOMERS} customers")
    chain = MarkovChain(most_states=MOST_STATES if network.classes else MOST_STATES // N)
    curve = [chain.solve(network, n) for n in ([low.populations] if network.classes else range(N, 0, -1))][::-1]
    names = ("throughputs", "residence_times", "busy")
    X, R, busy = (np.concatenate([getattr(solution, name) for solution in curve]) for name in names)
    reason = f"{why}, but a small Markov chain: exact, with phase-type service of these moments"
    return replace(curve[-1], throughputs=X, residence_times=R, busy=busy, reason=reason)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BatchSolution(Result):
    """Measures of many networks; ``...`` is the shape that demands, think times and populations broadcast to.

    Attributes
    ----------
    population : ndarray of int, shape (...)
    throughputs : ndarray, shape (largest population, ...)
        Cycles per second at populations 1, 2, ...; NaN above the network's population; one row, at it, without curves.
    residence_time : ndarray, shape (..., K)
        Seconds per cycle at each station, at each network's population.
    throughput : ndarray, shape (...)
        Cycles per second at each network's population.
    """

    demands: np.ndarray
    think_time: np.ndarray
    population: np.ndarray
    throughputs: np.ndarray
    residence_time: np.ndarray
    throughput: np.ndarray

    @property
    def queue_length(self) -> np.ndarray:
        """Mean customers at each station, shape (..., K)."""
        return self.throughput[..., None] * self.residence_time  # Little's law

    @property
    def utilization(self) -> np.ndarray:
        """Busy share of each station, shape (..., K)."""
        return self.throughput[..., None] * self.demands  # utilization law

    @property
    def cycle_time(self) -> np.ndarray:
        """Seconds per cycle, shape (...)."""
        return np.asarray(self.residence_time.sum(axis=-1) + self.think_time)

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per network, at its population."""
        index: dict[str, Any] = {f"index {axis}": at for axis, at in enumerate(np.indices(self.population.shape))}
        measures = {"population": self.population, "throughput": self.throughput, "cycle_time": self.cycle_time}
        return rows_of(index | measures)

    def _shown_rows(self) -> list[dict[str, Any]]:
        """The first few."""
        return self.to_rows()[:SHOWN_SOLVERS]

    def caption(self) -> str:
        """Numbers of networks and of stations."""
        count = self.population.size
        first = f", the first {SHOWN_SOLVERS}" if count > SHOWN_SOLVERS else ""
        return f"{count:,} networks of up to {self.demands.shape[-1]} queues{first}"


@by_keyword
def solve_batch(demands: Any, *, think_time: Any = 0.0, population: Any, curves: bool = True) -> BatchSolution:
    """Exact mean-value analysis of many single-class networks of single-server queues (Reiser and Lavenberg, 1980).

    Parameters
    ----------
    demands : array, shape (..., K)
        Seconds per cycle at each of K queueing stations; a demand of 0 is a station that is not there.
    think_time : array, shape (...)
        Seconds per cycle elsewhere, delay stations included.
    population : array of int, shape (...)
        Customers; demands (without their last axis), think times and populations broadcast.
    curves : bool, default True
        Keep throughputs at all populations up to the largest.

    Raises
    ------
    ModelError
        When a value is negative or not finite, shapes do not broadcast, a population is not whole and at least 1, or
        the curves would not fit into 4 GiB.

    Examples
    --------
    >>> solve_batch([[0.5], [0.25]], think_time=1.0, population=2).throughput.round(6)
    array([1.2     , 1.538462])
    """
    D, Z, N = _checked(demands, think_time, population)
    M, K, top, shape = N.size, D.shape[-1], int(N.max()), N.shape
    size = 8 * M * ((top if curves else 1) + 3 * K)
    if size > MEMORY:
        raise ModelError(
            f"batch: {M:,} networks up to population {top:,} take {size:,} bytes, more than {MEMORY:,}; "
            "set curves=False, or solve fewer at a time"
        )
    counts = N.reshape(M)
    X = np.empty((top if curves else 0, M))
    last, R = np.empty(M), np.empty((K, M))
    recursions(np.ascontiguousarray(D.reshape(M, K).T), np.ascontiguousarray(Z.reshape(M)), counts, X, last, R)
    if curves and counts.min() < top:
        X[np.arange(1, top + 1)[:, None] > counts] = np.nan
    throughputs = X.reshape(top, *shape) if curves else last.reshape(1, *shape).copy()
    return BatchSolution(D, Z, N, throughputs, np.moveaxis(R.reshape(K, *shape), 0, -1), last.reshape(shape))


def mva_recursion(D: np.ndarray, Z: np.ndarray, populations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """X (n, ...) and R (n, ..., K) at increasing populations (n,), for demands D (..., K) and think times Z (...).

    Reiser and Lavenberg (1980); rounding is kept from breaking the laws that X grows and stays below 1 / max D.
    """
    capacity = 1.0 / np.maximum(D.max(axis=-1, initial=0.0), 1e-300)
    X = np.empty((len(populations), *D.shape[:-1]))
    R = np.empty((len(populations), *D.shape))
    Q, x = np.zeros(D.shape), np.zeros(D.shape[:-1])
    row = 0
    for n in range(1, int(populations[-1]) + 1):
        r = D * (1.0 + Q)  # arrival theorem
        x = np.maximum(x, np.minimum(n / (Z + r.sum(axis=-1)), capacity))  # X(n) = n / (Z + R(n))
        Q = x[..., None] * r  # Little's law
        if n == populations[row]:
            X[row], R[row], row = x, r, row + 1
    return X, R


def _checked(demands: Any, think_time: Any, population: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    D, Z = number_array(demands, "demands"), number_array(think_time, "think_time")
    N = number_array(population, "population")
    if D.ndim < 1 or not D.size or not N.size:
        raise ModelError(
            "batch: demands must have shape (..., K) with at least one station, and populations are needed, "
            f"got shapes {D.shape} and {N.shape}"
        )
    whole = (N >= 1) & (N <= LARGEST_POPULATION) & (np.floor(N) == N)
    for what, values, valid, must in (
        ("demands", D, (D >= 0) & (D <= LARGEST_NUMBER), "0 to 1e9 seconds"),
        ("think_time", Z, (Z >= 0) & (Z <= LARGEST_NUMBER), "0 to 1e9 seconds"),
        ("population", N, whole, f"whole numbers, 1 to {LARGEST_POPULATION:,}"),
    ):
        if not valid.all():
            at = np.argwhere(~valid)[0].tolist()
            raise ModelError(f"batch: {what}{at or ''} must be {must}, got {values[tuple(at)]:g}")
    try:
        shape = np.broadcast_shapes(D.shape[:-1], Z.shape, N.shape)
    except ValueError:
        shapes = f"demands {D.shape[:-1]} (without stations), think_time {Z.shape} and population {N.shape}"
        raise ModelError(f"batch: {shapes} do not broadcast") from None
    D, Z = np.broadcast_to(D, (*shape, D.shape[-1])), np.broadcast_to(Z, shape)
    if (D.sum(axis=-1) + Z < 1e-15).any() or not (D.sum(axis=-1) > 0).all():
        raise ModelError("batch: all service demands of a network are zero; give at least one station a demand > 0")
    return D, Z, np.broadcast_to(N, shape).astype(np.int64)
