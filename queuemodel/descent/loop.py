"""The one loop that runs every strategy on every problem, in simulated time, and what it yields."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import require_count, require_number, require_seed, require_share
from ..errors import ModelError
from ..results import Result, rows_of
from .problems import Problem, require_problem
from .servers import ServerSGD
from .strategy import Moment, Sent, State, Strategy


@dataclass(frozen=True, eq=False, repr=False)
class Descent(Result):
    """Losses of S runs of a strategy, looked at T times.

    Attributes
    ----------
    strategy : object
    seeds : tuple of int
    workers : int
    steps : ndarray of int, shape (T,)
    times : ndarray, shape (S, T)
        Seconds of the clock.
    losses : ndarray, shape (S, T)
        Of the parameters that training has reached; infinite once a run has diverged.
    up_bits, down_bits : ndarray, shape (S, T)
        Sent and received so far, mean over the workers (`ServerSGD`: by the one that completed).
    model : ndarray, shape (S, d)
        The last parameters.
    staleness : ndarray, shape (S,)
        Mean number of updates between the beginning of a gradient and its completion (`ServerSGD`).
    """

    strategy: Any
    seeds: tuple[int, ...]
    workers: int
    steps: np.ndarray
    times: np.ndarray
    losses: np.ndarray
    up_bits: np.ndarray
    down_bits: np.ndarray
    model: np.ndarray
    staleness: np.ndarray

    def first(self, loss: float) -> np.ndarray:
        """Where in `steps` each run first has at most this loss, shape (S,); -1 where it never has."""
        reached = self.losses <= loss
        return np.where(reached.any(axis=1), reached.argmax(axis=1), -1)

    def steps_to(self, loss: float) -> np.ndarray:
        """Steps until each run was first seen with at most this loss, shape (S,); infinite where it never was."""
        return self._to(loss, np.broadcast_to(self.steps, self.losses.shape))

    def time_to(self, loss: float) -> np.ndarray:
        """Seconds until each run was first seen with at most this loss, shape (S,); infinite where it never was."""
        return self._to(loss, self.times)

    def _to(self, loss: float, what: np.ndarray) -> np.ndarray:
        first = self.first(loss)
        return np.where(first >= 0, what[np.arange(len(first)), first], np.inf)

    def to_rows(self) -> list[dict[str, Any]]:
        """A row for each look at the loss: means over the runs, and their least and largest loss."""
        return rows_of({
            "step": self.steps.astype(float),
            "seconds": self.times.mean(axis=0),
            "loss": self.losses.mean(axis=0),
            "least": self.losses.min(axis=0),
            "largest": self.losses.max(axis=0),
            "megabytes_up": self.up_bits.mean(axis=0) / 8e6,
            "megabytes_down": self.down_bits.mean(axis=0) / 8e6,
        })  # fmt: skip

    def shown_rows(self) -> list[dict[str, Any]]:
        rows = self.to_rows()
        return [rows[i] for i in np.unique(np.linspace(0, len(rows) - 1, 8).round().astype(int))]

    def caption(self) -> str:
        return f"{self.strategy}, {self.workers} workers, {len(self.seeds)} seeds"


#: Seconds of a transfer of so many bits up and down for each worker, arrays of shape (S,).
Transfer = Callable[[np.ndarray, np.ndarray], np.ndarray]


def no_time(up: np.ndarray, down: np.ndarray) -> np.ndarray:
    """A network that takes no time."""
    return np.zeros_like(up)


@dataclass(frozen=True)
class Clock:
    """What a step costs in seconds.

    Attributes
    ----------
    step : float
        Mean seconds of a worker's gradient of a mini-batch.
    cv : float
        Its coefficient of variation (gamma distributed); 1 is exponential.
    transfer : callable
        Bits up and down for each worker, arrays of shape (S,), to the seconds of a meeting.
    paces : tuple of float
        How many times as long the first workers take, of those that step together; the others take once as long.
    straggler_probability, straggler_slowdown : float
        A gradient takes `straggler_slowdown` times as long with this probability.
    """

    step: float = 1.0
    cv: float = 0.0
    transfer: Transfer = no_time
    paces: tuple[float, ...] = ()
    straggler_probability: float = 0.0
    straggler_slowdown: float = 1.0

    def __post_init__(self) -> None:
        require_number(self.step, "Clock: step", unit="seconds")
        require_number(self.cv, "Clock: cv")
        for pace in self.paces:
            require_number(pace, "Clock: paces", positive=True)
        require_share(self.straggler_probability, "Clock: straggler_probability")
        require_number(self.straggler_slowdown, "Clock: straggler_slowdown", positive=True)

    def durations(
        self, rng: np.random.Generator, shape: tuple[int, ...], batches: float | np.ndarray = 1.0
    ) -> np.ndarray:
        """Seconds of so many gradients, each of so many mini-batches."""
        seconds = np.full(shape, self.step * batches)
        if self.cv:
            seconds = self.step * self.cv**2 * rng.gamma(batches / self.cv**2, size=shape)
        if self.straggler_probability:
            seconds[rng.random(shape) < self.straggler_probability] *= self.straggler_slowdown
        return seconds

    def steps(self, rng: np.random.Generator, shape: tuple[int, ...], batches: float | np.ndarray = 1.0) -> np.ndarray:
        """Seconds of steps; workers along the last axis."""
        seconds = self.durations(rng, shape, batches)
        seconds[..., : len(self.paces)] *= self.paces[: shape[-1]]
        return seconds


def descend(
    problem: Problem,
    strategy: Strategy,
    *,
    workers: int,
    steps: int,
    learning_rate: float | Callable[[int], float],
    seeds: int | Sequence[int] = 8,
    record: int = 100,
    clock: Clock | None = None,
    until: float | None = None,
) -> Descent:
    """
    Train: run a strategy on a problem, for several seeds side by side.

    Parameters
    ----------
    problem : Problem
    strategy : Strategy
        `ServerSGD` counts single gradients as steps, all others steps of all workers.
    workers : int
    steps : int
    learning_rate : float or callable
        Or a function of the step.
    seeds : int or sequence of int
        That many, or these; a seed's run is the same whichever others run beside it, but for rounding.
    record : int
        At how many steps the loss is looked at, the first and the last included.
    clock : Clock, optional
        What computation and transfers take; a second each, and nothing.
    until : float, optional
        Stop when every run has been seen with at most this loss.

    Returns
    -------
    Descent
        Losses by step, time and bits sent. A run that diverges has infinite losses from then on.

    Raises
    ------
    ModelError
        For a senseless argument, or shares of another number of workers.

    Examples
    --------
    >>> from queuemodel.descent import LocalSGD, descend, make_problem
    >>> run = descend(make_problem("least-squares"), LocalSGD(8), workers=4, steps=400, learning_rate=0.02, seeds=4)
    >>> bool(run.losses[:, -1].mean() < 0.1 * run.losses[:, 0].mean())
    True
    """
    n = require_count(workers, "descend: workers", least=1)
    require_count(steps, "descend: steps", least=1)
    record = min(require_count(record, "descend: record", least=2), steps + 1)
    if not isinstance(strategy, Strategy):
        raise ModelError(f"descend: strategy must be a Strategy such as LocalSGD(8), got {type(strategy).__name__}")
    if (shares := len(require_problem(problem).shares)) not in (0, n):
        raise ModelError(f"descend: the problem is split among {shares} workers, got {n}; split it again")
    rate = learning_rate if callable(learning_rate) else _constant(learning_rate)
    seeds = range(require_count(seeds, "descend: seeds", least=1)) if isinstance(seeds, int) else seeds
    chosen = [require_seed(seed, "descend: seed") for seed in seeds]
    rngs, timers, starts = ([np.random.default_rng([seed, use]) for seed in chosen] for use in range(3))
    state = strategy.begin(np.stack([problem.start(rng) for rng in starts]), n)
    clock = clock or Clock()
    run = _Run(problem, strategy, clock, n, rate, rngs, timers, state)
    marks = np.unique(np.linspace(0, steps, record).round().astype(int))
    with np.errstate(over="ignore", invalid="ignore"):
        return run.all(steps, marks, chosen, -np.inf if until is None else until)


def _constant(rate: float) -> Callable[[int], float]:
    require_number(rate, "descend: learning_rate", positive=True)
    return lambda _: rate


@dataclass
class _Run:
    """What the loop carries along."""

    problem: Problem
    strategy: Strategy
    clock: Clock
    workers: int
    rate: Callable[[int], float]
    rngs: list[np.random.Generator]
    timers: list[np.random.Generator]
    state: State

    def all(self, steps: int, marks: np.ndarray, seeds: list[int], until: float) -> Descent:
        runs = len(seeds)
        step = self._one_by_one(self.strategy, steps) if isinstance(self.strategy, ServerSGD) else self._together()
        time, up, down = np.zeros((runs, len(marks))), np.zeros((runs, len(marks))), np.zeros((runs, len(marks)))
        losses = np.zeros((runs, len(marks)))
        losses[:, 0] = self._loss()
        row, now, total_up, total_down = 1, np.zeros(runs), np.zeros(runs), np.zeros(runs)
        for k in range(steps):
            now, sent = step(Moment(k, self.rate(k), self.rngs, now, self.problem.loss))
            total_up, total_down = total_up + sent.up, total_down + sent.down
            if k + 1 == marks[row]:
                time[:, row], up[:, row], down[:, row], losses[:, row] = now, total_up, total_down, self._loss()
                row += 1
                if (losses[:, :row] <= until).any(axis=1).all():
                    break
        staleness = self.state["staleness"] / marks[row - 1] if "staleness" in self.state else np.zeros(runs)
        return Descent(
            self.strategy,
            tuple(seeds),
            self.workers,
            marks[:row],
            time[:, :row],
            losses[:, :row],
            up[:, :row],
            down[:, :row],
            self.strategy.model(self.state),
            staleness,
        )

    def _loss(self) -> np.ndarray:
        losses = self.problem.loss(self.strategy.model(self.state))
        return np.where(np.isfinite(losses), losses, np.inf)

    def _together(self) -> Callable[[Moment], tuple[np.ndarray, Sent]]:
        """A step of all workers; who meets waits for its partners and for the transfer."""
        every, exact = np.arange(self.workers), self.strategy.exact
        batches = self.problem.sizes / self.problem.batch_size if exact else 1.0
        clocks = np.zeros((len(self.rngs), self.workers))
        arrival = np.zeros((len(self.rngs), 1))  # of what was sent ahead

        def step(moment: Moment) -> tuple[np.ndarray, Sent]:
            nonlocal clocks, arrival
            x = self.state["x"]
            if exact:
                own = self.problem.worker_gradients(x[:, 0])
                gradients = own.repeat(self.workers // own.shape[1], axis=1)
            else:
                gradients = self.problem.sampled_gradients(x, every, self.rngs)
            sent = self.strategy.update(self.state, gradients, moment)
            clocks = clocks + np.stack([self.clock.steps(timer, (self.workers,), batches) for timer in self.timers])
            if sent.met.any():
                met, takes = sent.met[:, None], self.clock.transfer(sent.up, sent.down)[:, None]
                if sent.ahead:  # this one's all-reduce begins when the last worker is there
                    go = np.maximum(clocks, arrival)
                    arrival = np.where(met, go.max(axis=1, keepdims=True) + takes, arrival)
                else:
                    go = np.where(sent.partners, clocks[:, None], -np.inf).max(axis=2) + takes
                clocks = np.where(met, go, clocks)
            return clocks.max(axis=1), sent

        return step

    def _one_by_one(self, strategy: ServerSGD, steps: int) -> Callable[[Moment], tuple[np.ndarray, Sent]]:
        """A gradient of one worker, in the order in which they complete."""
        orders = [strategy.make_order(self.workers, steps, self.clock.durations, timer) for timer in self.timers]
        times = np.stack([order.times[:steps] for order in orders])
        workers = np.stack([order.workers[:steps] for order in orders])
        if workers.shape[1] < steps or workers.max() >= self.workers:
            raise ModelError(
                f"descend: the order has {workers.shape[1]} gradients of workers up to {workers.max()}, "
                f"but {steps} of {self.workers} workers are asked for"
            )
        runs = np.arange(len(orders))

        def step(moment: Moment) -> tuple[np.ndarray, Sent]:
            chosen = workers[:, moment.number]
            x = self.state["copies"][runs, chosen][:, None]
            gradients = self.problem.sampled_gradients(x, chosen[:, None], self.rngs)
            return times[:, moment.number], strategy.complete(self.state, gradients, chosen, moment)

        return step
