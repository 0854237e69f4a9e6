"""Which of the strategies between a barrier and none, with its number: checked once, asked by predict."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..checks import require_choice, require_count, require_number
from ..errors import ModelError
from ..traces.rules import MOST_RESULTS, in_between
from ..training import Profile, TrainingModel
from ..training.curve import ThroughputCurve
from ..training.rules import Rule, UnequalWorkers
from .half_asynchronous import BoundedStaleness, KAsync, KBatchAsync
from .half_bounds import free
from .half_synchronous import BackupWorkers, KBatchSync, KSync

#: Each strategy, and the number that it needs or may have.
NUMBERS = {
    "sync-ps": "backup_workers",
    "bounded-staleness": "staleness_bound",
    "k-sync": "k",
    "k-batch-sync": "k",
    "k-async": "k",
    "k-batch-async": "k",
}

#: How the simulation of operations calls each, and its number.
SIMULATED = {
    "sync-ps": ("sync", "backup_workers"),
    "bounded-staleness": ("bounded", "staleness_bound"),
    "k-sync": ("first", "results"),
    "k-batch-sync": ("batches", "results"),
    "k-async": ("groups", "results"),
    "k-batch-async": ("async", None),
}

#: Standard deviation of the logarithm of transfers' shares of a link, where they begin together: that of plain sockets'
#: fetches is 0.15 under cubic with 12 ms of buffer, 0.3 with few packets of it each, and more under BBR
#: (validation/testbed: together).
SPREAD = 0.2

#: What is said beside the network's curve where as many workers are backups as count, or more.
LATE = (
    "late workers may follow close behind the others or keep out of their way: the interval reaches to where these do "
    "(recorded operations can be simulated)"
)

#: Squared coefficient of variation of a worker's own time where one step alone was recorded (5 %).
ASSUMED_SCV = 0.0025


@dataclass(frozen=True, slots=True)
class HalfSynchronous:
    """A strategy on parameter servers in which results or workers wait for others; takes its place in `TrainingModel`.

    Attributes
    ----------
    name : str
        One of `NUMBERS`.
    number : int
        Its backup workers (0: none), staleness bound (steps) or k.
    scv : float
        Squared coefficient of variation of a worker's own time.
    spread : float
        Standard deviation of the logarithm of connections' shares of a link, where transfers begin together.

    Raises
    ------
    ModelError
        When the number is not there or none.
    """

    name: str
    number: int | None = None
    scv: float = 1.0
    spread: float = SPREAD

    def __post_init__(self) -> None:
        what = NUMBERS[require_choice(self.name, "strategy", tuple(NUMBERS))]
        if self.number is None and what != "backup_workers":
            raise ModelError(f"strategy {self.name!r} needs {what}; give it")
        least = 1 if what == "k" else 0
        given = 0 if self.number is None else self.number
        object.__setattr__(self, "number", require_count(given, f"{self.name}: {what}", least=least, most=MOST_RESULTS))
        require_number(self.scv, f"{self.name}: scv")
        require_number(self.spread, f"{self.name}: spread")

    def __call__(self, base: Rule, servers: int) -> Rule:
        """The rule around that of the same cluster without waiting."""
        if isinstance(base, UnequalWorkers) and self.name != "k-batch-async":
            raise ModelError(
                f"worker_speeds: no rule covers unequal workers with strategy {self.name!r}; ask for 'k-batch-async', "
                "or simulate recorded operations"
            )
        about: dict[str, Any] = {"base": base, "servers": servers, "scv": self.scv, "spread": self.spread}
        number = self.number or 0
        match self.name:
            case "sync-ps":
                return BackupWorkers(**about, backup_workers=number) if number else KSync(**about)
            case "bounded-staleness":
                return BoundedStaleness(**about, staleness_bound=number)
            case "k-sync":
                return KSync(**about, k=number)
            case "k-batch-sync":
                return KBatchSync(**about, k=number)
            case "k-async":
                return KAsync(**about, k=number)
            case _:
                return KBatchAsync(base, number)

    @property
    def together(self) -> bool:
        """Whether all workers transfer at once, as those do who begin together and push at most once."""
        return self.name in ("sync-ps", "k-sync")

    @property
    def simulated(self) -> dict[str, Any]:
        """Arguments of `queuemodel.traces.simulate`."""
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

    def bounds(self, rule: Rule, D: np.ndarray, Z: np.ndarray, workers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Least and most steps per second that count, of equal workers, each (n,); ``rule`` is one of `__call__`."""
        if not isinstance(rule, KSync | BackupWorkers | KBatchSync | KAsync | BoundedStaleness):
            lower, upper = zip(*(free(D, Z, n) for n in workers.tolist()), strict=True)
        else:
            lower, upper = zip(*(rule.bounds(D, Z, n) for n in workers.tolist()), strict=True)
        return np.array(lower), np.array(upper)

    def in_between(self, workers: np.ndarray) -> np.ndarray:
        """Where so many workers (n,) wait for each other, but not for everybody in every step."""
        return in_between(workers, **self.simulated)

    def told(self, curve: ThroughputCurve) -> ThroughputCurve:
        """The curve, with what a round of it is."""
        number = self.number or 0
        if self.name == "bounded-staleness":
            return replace(curve, synchronous=number == 0)
        counted = curve.workers - number if self.name == "sync-ps" else np.full(len(curve.workers), number)
        together = self.name == "sync-ps" and number == 0
        unsure = (self.name == "sync-ps") & (counted > 1) & (2 * counted <= curve.workers)
        if unsure.any() and curve.method == BackupWorkers.method and isinstance(curve.model, TrainingModel):
            curve = _spanning(curve, curve.model, np.where(unsure, counted, 0))
        return replace(curve, synchronous=together, steps_per_round=np.empty(0) if together else counted)


def _spanning(curve: ThroughputCurve, model: TrainingModel, counted: np.ndarray) -> ThroughputCurve:
    """The network's curve with an interval up to where so many of n asynchronous steps count."""
    apart = counted / curve.workers * replace(model, waiting=None).pace(curve.workers).X
    upper = curve.upper * np.maximum(apart / curve.steps_per_second, 1.0)
    return replace(curve, upper=upper, note="; ".join(filter(None, (curve.note, LATE))))


def own_scv(profile: Profile) -> float:
    """Squared coefficient of variation of the recorded computations; 5 % squared where one step tells nothing."""
    computed = profile.values("compute")
    if len(computed) < 2 or not computed.mean() > 0:
        return ASSUMED_SCV
    return float(computed.var(ddof=1) / computed.mean() ** 2)
