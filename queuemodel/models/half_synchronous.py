"""The strategies on parameter servers in which results or workers wait for others, by name and number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.checks import require_choice, require_count
from ..base.errors import ModelError
from ..profile.profile import Profile
from ..profile.scenario import MOST_RESULTS, NUMBERS, Scenario
from ..queueing.network import Network
from ..queueing.solve import solve

#: How the simulation of operations calls each, and its number.
SIMULATED = {
    "sync-ps": ("sync", "backup_workers"),
    "bounded-staleness": ("bounded", "staleness_bound"),
    "k-sync": ("first", "results"),
    "k-batch-sync": ("batches", "results"),
    "k-async": ("groups", "results"),
    "k-batch-async": ("async", None),
}

#: Squared coefficient of variation of a worker's own time where one step alone was recorded (5 %).
ASSUMED_SCV = 0.0025


@dataclass(frozen=True, slots=True)
class HalfSynchronous:
    """A strategy on parameter servers in which results or workers wait for others.

    Raises
    ------
    ModelError
        When the number is not there or none.
    """

    name: str  # One of `NUMBERS`
    number: int | None = None  # Its backup workers (0: none), staleness bound (steps) or k

    def __post_init__(self) -> None:
        what = NUMBERS[require_choice(self.name, "strategy", tuple(NUMBERS))]
        if self.number is None and what != "backup_workers":
            raise ModelError(f"strategy {self.name!r} needs {what}; give it")
        least = 1 if what == "k" else 0
        given = 0 if self.number is None else self.number
        object.__setattr__(self, "number", require_count(given, f"{self.name}: {what}", least=least, most=MOST_RESULTS))

    @classmethod
    def of(cls, question: Scenario, strategy: str) -> HalfSynchronous | None:
        """The one asked for; None where nobody waits for others, or all do without servers."""
        return cls(strategy, getattr(question, NUMBERS[strategy])) if strategy in NUMBERS else None

    @property
    def solvable(self) -> bool:
        """Whether the closed network of the same job says how fast it is: a barrier of all, or one for nobody."""
        return in_closed_network(self.name, self.number)

    @property
    def simulated(self) -> dict[str, Any]:
        """Arguments of `queuemodel.simulator.simulate`."""
        synchronization, number = SIMULATED[self.name]
        return {"synchronization": synchronization} | ({number: self.number} if number else {})

    def require_workers(self, workers: list[int]) -> None:
        """Refuse numbers of workers that make no round."""
        number = self.number or 0
        least = {"sync-ps": number + 1, "k-sync": number, "k-async": number}.get(self.name, 1)
        if workers[0] < least:
            raise ModelError(
                f"strategy {self.name!r} with {NUMBERS[self.name]} {number}: workers must be at least {least}, "
                f"got {workers[0]}"
            )

    def counted(self, workers: np.ndarray) -> dict[str, Any]:
        """Fields of an `Outcome`: whether all make their steps together, or else how many steps count in a round."""
        number = self.number or 0
        together = self.name in ("sync-ps", "bounded-staleness") and number == 0
        if together or self.name == "bounded-staleness":
            return {"synchronous": together}
        return {"steps_per_round": workers - number if self.name == "sync-ps" else np.full(len(workers), number)}


def in_closed_network(strategy: str | None, backup_workers: int | None = None) -> bool:
    """Whether the closed network knows a strategy of recorded steps (None: as recorded); others are simulated."""
    return strategy in (None, "async-ps", "k-batch-async") or (strategy == "sync-ps" and not backup_workers)


def own_scv(profile: Profile) -> float:
    """Squared coefficient of variation of the recorded computations; 5 % squared where one step tells nothing."""
    computed = profile.values("compute")
    if len(computed) < 2 or not computed.mean() > 0:
        return ASSUMED_SCV
    return float(computed.var(ddof=1) / computed.mean() ** 2)


def staleness(network: Network, *, population: int | None = None) -> np.ndarray:
    """Mean staleness of an asynchronous worker of each class: X_total / X_i - 1.

    Others make X_total - X_i steps per second, and a step of worker i takes 1 / X_i. Exact where the solution is:
    for the closed networks of `TrainingModel.network`, workers of any speeds included.

    Parameters
    ----------
    network : Network
        Each customer a worker; without classes, or with one for each kind of worker.
    population : int, optional
        Number of workers, for a network without classes.

    Returns
    -------
    ndarray, shape (C,)
        Steps of others, for a worker of each class; one class where there are none.

    Examples
    --------
    >>> import math
    >>> from queuemodel import Station
    >>> network = Network([Station("ps", service_time=0.1), Station("worker", service_time=1.0, servers=math.inf)])
    >>> staleness(network, population=4).tolist()
    [3.0]
    """
    solution = solve(network, population=population)
    workers = np.array([c.population for c in network.classes] or [solution.population])
    every = np.atleast_1d(solution.class_throughput) if network.classes else np.array([solution.throughput])
    with np.errstate(invalid="ignore", divide="ignore"):  # NaN for a class without workers
        return every.sum() * workers / every - 1
