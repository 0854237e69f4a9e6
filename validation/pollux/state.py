"""One job of the compatibility mode: progress in epochs, advanced by the artifact's rule of 60 seconds at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache

from queuemodel.base.errors import DataError

from .artifact import Application

#: Seconds of a step of the artifact's simulator, and of a restart (also charged for the first start).
STEP = 60
RESTART = 30


@dataclass(slots=True, eq=False)
class RunningJob:
    """A job and how far it is (mutable: the simulation's own)."""

    name: str
    application: Application
    batch_size: int
    requested: int
    submitted: int
    epoch: int = 0
    progress: float = 0.0
    machines: tuple[int, ...] = ()  # one entry per GPU
    restart_left: int = 0
    rates: list[float] = field(default_factory=list)  # progress per second in each epoch
    attained: int = 0  # GPU-seconds
    started: int | None = None
    completed: int | None = None
    restarts: int = -1  # the first start is none
    targets: list[float] = field(default_factory=list)
    chosen: tuple[tuple[int, ...], ...] = ()  # batch size in each epoch on so many GPUs; none: the user's

    def __post_init__(self) -> None:
        self.targets = self.application.progress.tolist()

    def move(self, machines: tuple[int, ...], now: int) -> None:
        """Take the GPUs on these machines (none: preempted), from a checkpoint."""
        self.machines = machines
        if not machines:
            return
        placement = tuple(machines.count(machine) for machine in dict.fromkeys(machines))
        sizes = tuple(row[len(machines)] for row in self.chosen) or (self.batch_size,)
        self.rates = epoch_rates(self.application, sizes, placement)
        self.restart_left = RESTART
        self.restarts += 1
        if self.started is None:
            self.started = now

    def advance(self, now: int) -> None:
        """Live through the step that starts at ``now``."""
        if not self.machines:
            return
        gpus = len(self.machines)
        delay = min(self.restart_left, STEP)
        self.restart_left -= delay
        left: int = STEP - delay
        elapsed = delay
        while left > 0:
            rate, target = self.rates[self.epoch], self.targets[self.epoch]
            if self.progress + rate * left < target:
                self.progress += rate * left
                elapsed += left
                break
            # The end of an epoch is rounded to a second, a half to the even one.
            delta = round((target - self.progress) / rate)
            self.epoch += 1
            self.progress = target
            elapsed += delta
            left -= delta
            if self.epoch == len(self.targets):
                self.completed = now + elapsed
                break
        self.attained += elapsed * gpus

    def updates_left(self) -> float:
        """Updates left at the end of the epoch under way (one at the last), as the artifact's Optimus counts them."""
        iterations = iterations_of(self.application, self.batch_size)
        last = len(iterations) - 1
        return 1.0 if last <= self.epoch else iterations[last] - iterations[self.epoch]


@cache
def epoch_rates(application: Application, sizes: tuple[int, ...], placement: tuple[int, ...]) -> list[float]:
    """Progress per second in each epoch with a placement; ``sizes``: batch sizes, one per epoch or one for all."""
    if len(sizes) == 1:
        return rates_at(application, sizes[0], placement)
    return [rates_at(application, size, placement)[e] for e, size in enumerate(sizes)]


@cache
def rates_at(application: Application, batch_size: int, placement: tuple[int, ...]) -> list[float]:
    """Progress per second in each epoch with a placement, at one batch size."""
    batch = application.cut(batch_size, sum(placement))
    seconds = application.step_seconds(placement, batch)
    if not math.isfinite(seconds):
        raise DataError(
            f"application {application.name!r}: no step time is measured for a batch of {batch.local} on each of "
            f"{batch.gpus} GPUs"
        )
    rates: list[float] = (application.gains(batch.total) / seconds).tolist()
    return rates


@cache
def iterations_of(application: Application, batch_size: int) -> list[float]:
    """Updates made at the end of each epoch at this total batch size."""
    iterations: list[float] = application.at_batch(batch_size)[:, 1].tolist()
    return iterations
