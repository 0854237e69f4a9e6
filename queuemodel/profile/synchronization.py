"""Ways of training on parameter servers: what a result, or a worker, waits for.

Models, event loop and command line read the rows of `SYNCHRONIZATIONS`, so that another way is one more row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..base.checks import require_choice, require_count
from ..base.errors import ModelError

#: More results of a round or group are a typing mistake.
MOST_RESULTS = 10_000


class Waiting(NamedTuple):
    number: str = ""  # Field of a scenario that it has: k results, backup workers, or a staleness bound in steps
    gathers: bool = False  # Results are applied together, when enough are there; else each on its own
    drops: bool = False  # A round goes on without the slowest, whose results are dropped when they come
    cuts: bool = False  # The end of a round cuts unfinished steps short, and all begin anew
    repeats: bool = False  # Who has delivered uses the same parameters again until the round ends
    bounded: bool = False  # Who is too many steps ahead of the slowest waits
    rounds: bool = True  # The simulated network itself has the groups; else they are groups of whatever results


SYNCHRONIZATIONS = {
    "async-ps": Waiting(),
    "sync-ps": Waiting("backup_workers", gathers=True, drops=True),
    "bounded-staleness": Waiting("staleness_bound", bounded=True),
    "k-sync": Waiting("k", gathers=True, cuts=True),
    "k-batch-sync": Waiting("k", gathers=True, cuts=True, repeats=True),
    "k-async": Waiting("k", gathers=True),
    "k-batch-async": Waiting("k", rounds=False),
}


@dataclass(frozen=True, slots=True)
class Synchronization:
    """How a job trains on parameter servers (Dutta et al., 2018, name the ways with k results).

    A `ModelError` for another name, or a number that it cannot have.
    """

    name: str = "async-ps"
    number: int = 0

    def __post_init__(self) -> None:
        row = SYNCHRONIZATIONS[require_choice(self.name, "strategy", tuple(SYNCHRONIZATIONS))]
        least, most = (1 if row.number == "k" else 0), (MOST_RESULTS if row.number else 0)
        require_count(self.number, f"{self.name}: {row.number or 'number'}", least=least, most=most)

    @classmethod
    def read(cls, value: Synchronization | str | None) -> Synchronization:
        """A value, or the one of a name that needs no number; None: every worker on its own."""
        return value if isinstance(value, cls) else cls(str(value or "async-ps"))

    @property
    def row(self) -> Waiting:
        """The events that it waits for."""
        return SYNCHRONIZATIONS[self.name]

    @property
    def solvable(self) -> bool:
        """Whether the job's closed network has a solution: a barrier of all workers, or none."""
        row = self.row
        return not (row.bounded or row.cuts or (row.gathers and not row.drops) or (row.drops and self.number))

    @property
    def together(self) -> bool:
        """Whether workers begin their steps together."""
        return self.row.drops or self.row.cuts

    def awaited(self, workers: int) -> int:
        """Results that are applied together."""
        if not self.row.gathers:
            return 1
        return workers - self.number if self.row.number == "backup_workers" else self.number

    @property
    def least_workers(self) -> int:
        """Fewest workers that make a round."""
        if not self.row.gathers or self.row.repeats:
            return 1
        return self.number + 1 if self.row.number == "backup_workers" else self.number

    def require_workers(self, workers: int) -> None:
        """Refuse numbers of workers that make no round."""
        if workers < self.least_workers:
            raise ModelError(
                f"strategy {self.name!r} with {self.row.number} {self.number}: workers must be at least "
                f"{self.least_workers}, got {workers}"
            )

    def of(self, workers: int) -> Synchronization:
        """The same of so few workers as there are: one waits for none."""
        if self.row.number == "backup_workers":
            return Synchronization(self.name, min(self.number, workers - 1))
        if self.row.gathers and not self.row.repeats:
            return Synchronization(self.name, min(self.number, workers))
        return self

    def partial(self, workers: np.ndarray) -> np.ndarray:
        """Whether n workers (n,) wait for some of each other's steps, but not for all of every step."""
        row, k = self.row, self.number
        if row.number != "k":
            waiting = np.full(workers.shape, k > 0)
        elif row.repeats or not row.gathers:
            waiting = np.full(workers.shape, row.repeats)
        else:
            waiting = (k < workers) & (row.cuts or k > 1)
        return (workers > 1) & waiting

    def steps_per_round(self, workers: np.ndarray) -> np.ndarray:
        """Steps that count in a round (n,), where these are not one of each worker; else empty."""
        if self.row.number == "backup_workers" and self.number:
            return workers - self.number
        return np.full(len(workers), self.number) if self.row.number == "k" else np.empty(0)

    @property
    def synchronous(self) -> bool:
        """Whether all make their steps together."""
        return (self.row.drops or self.row.bounded) and not self.number
