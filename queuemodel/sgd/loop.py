"""The loop that runs every strategy on every problem in simulated time, and its result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.checks import require_count, require_number, require_seed
from ..base.errors import ModelError
from ..base.results import Result, counted, rows_of
from .problems import Checked, Problem
from .strategy import Moment, Sent, State, Strategy


@dataclass(frozen=True, eq=False, repr=False)
class Descent(Result):
    """Losses of S runs of a strategy, looked at T times."""

    strategy: Strategy
    seeds: tuple[int, ...]
    workers: int
    steps: np.ndarray  #: shape (T,)
    times: np.ndarray  #: seconds of the clock, shape (S, T)
    losses: np.ndarray  #: of the parameters that training has reached, shape (S, T); infinite once a run has diverged
    up_bits: np.ndarray  #: sent so far, shape (S, T), mean over the workers; `ServerSGD`: by those that completed
    down_bits: np.ndarray  #: received, likewise
    model: np.ndarray  #: the last parameters, shape (S, d)
    staleness: np.ndarray  #: mean updates between beginning and completion of a gradient (`ServerSGD`), shape (S,)

    def steps_to(self, loss: float) -> np.ndarray:
        """Steps until each run was first observed with at most this loss, shape (S,); inf where it never was."""
        return np.where(self.losses <= loss, self.steps, np.inf).min(axis=1)  # neither steps nor seconds ever fall

    def time_to(self, loss: float) -> np.ndarray:
        """Seconds until each run was first observed with at most this loss, shape (S,); inf where it never was."""
        return np.where(self.losses <= loss, self.times, np.inf).min(axis=1)

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

    def _shown_rows(self) -> list[dict[str, Any]]:
        rows = self.to_rows()
        return [rows[i] for i in np.unique(np.linspace(0, len(rows) - 1, 8).round().astype(int))]

    def caption(self) -> str:
        return f"{self.strategy}, {counted(self.workers, 'worker')}, {counted(len(self.seeds), 'seed')}"


Batches = float | np.ndarray

#: Seconds of a transfer of so many bits up and down for each worker, arrays of shape (S,).
Transfer = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Clock(Checked):
    """Seconds of a step: a gradient of a mini-batch takes ``step`` on average, gamma distributed."""

    step: float = 1.0
    cv: float = 0.0  #: coefficient of variation; 1 is exponential
    transfer: Transfer = lambda up, down: np.zeros_like(up)  #: bits, for each worker, to seconds
    slowness: tuple[float, ...] = ()  #: how many times as long the first workers take, of those that step together
    straggler_probability: float = 0.0  #: with which a gradient takes `straggler_slowdown` times as long
    straggler_slowdown: float = 1.0
    running: Callable[..., Running] = lambda *about: Running(*about)  #: workers before their first step

    def durations(self, rng: np.random.Generator, shape: tuple[int, ...], batches: Batches = 1.0) -> np.ndarray:
        """Seconds of gradients, each of ``batches`` mini-batches."""
        seconds = np.full(shape, self.step * batches)
        if self.cv:
            seconds = self.step * self.cv**2 * rng.gamma(batches / self.cv**2, size=shape)
        if self.straggler_probability:
            seconds[rng.random(shape) < self.straggler_probability] *= self.straggler_slowdown
        return seconds

    def steps(self, rng: np.random.Generator, shape: tuple[int, ...], batches: Batches = 1.0) -> np.ndarray:
        """Seconds of steps; workers along the last axis."""
        seconds = self.durations(rng, shape, batches)
        seconds[..., : len(self.slowness)] *= self.slowness[: shape[-1]]
        return seconds


@dataclass
class Running:
    """Workers that step together, with waiting for partners and for transfers, in S runs."""

    clock: Clock
    rngs: Sequence[np.random.Generator]
    at: np.ndarray  #: when each worker may go on (s), shape (S, n)
    arrival: float | np.ndarray = 0.0  #: of what was sent ahead, shape (S, 1)

    def step(self, sent: Sent, batches: float | np.ndarray) -> np.ndarray:
        """Seconds of each run's clock, (S,), after a step of so many mini-batches."""
        self.compute(batches)
        if np.any(sent.synchronized):
            waits = np.broadcast_to(sent.synchronized, len(self.at))[:, None]
            if sent.ahead:  # this one's all-reduce begins when the last worker is there
                go = np.maximum(self.at, self.arrival)
                self.arrival = np.where(waits, go.max(axis=1, keepdims=True) + self.transfer(sent), self.arrival)
            else:
                go = self.meet(sent)
            self.at = np.where(waits, go, self.at)
        return np.asarray(self.at.max(axis=1))

    def compute(self, batches: float | np.ndarray) -> None:
        """Each worker computes a gradient."""
        self.at = self.at + np.stack([self.clock.steps(rng, self.at.shape[1:], batches) for rng in self.rngs])

    def transfer(self, sent: Sent) -> np.ndarray:
        """Seconds of a transfer, (S, 1)."""
        up, down = (np.broadcast_to(value, len(self.at)) for value in (sent.up, sent.down))
        return self.clock.transfer(up, down)[:, None]

    def meet(self, sent: Sent) -> np.ndarray:
        """When each worker may go on, (S, n), that waits for its partners and for the transfer."""
        return np.where(sent.partners, self.at[:, None], -np.inf).max(axis=2) + self.transfer(sent)


def looks(steps: int, count: int) -> Sequence[int]:
    """Steps at which the loss is looked at ``count`` times, as evenly as can be, the first and the last included."""
    return np.unique(np.linspace(0, steps, min(count, steps + 1)).round().astype(int)).tolist()


def descend(
    problem: Problem,
    strategy: Strategy,
    *,
    workers: int,
    steps: int | Sequence[int],
    learning_rate: float | Callable[[int], float],
    seeds: int | Sequence[int] = 8,
    clock: Clock | None = None,
    until: float | None = None,
) -> Descent:
    """
    Train: run a strategy on a problem, for several seeds side by side.

    Steps are those of all workers, of `ServerSGD` single gradients: a number, with 100 looks at the loss, or those
    after which to look (and at the start). The learning rate may be a function of the step; ``seeds`` is a number or
    the seeds: a run does not depend on the others, but for rounding. Training stops when every run has been observed
    with at most the loss ``until``. Without a clock, a step takes a second and a transfer nothing.

    Raises
    ------
    ModelError
        For a senseless argument, or shares of another number of workers.

    Examples
    --------
    >>> from queuemodel.sgd import LocalSGD, descend, make_problem
    >>> run = descend(make_problem("least-squares"), LocalSGD(8), workers=4, steps=400, learning_rate=0.02, seeds=4)
    >>> bool(run.losses[:, -1].mean() < 0.1 * run.losses[:, 0].mean())
    True
    """
    n = require_count(workers, "descend: workers")
    marks = sorted({0, *steps}) if isinstance(steps, Sequence) else looks(require_count(steps, "descend: steps"), 100)
    last = require_count(marks[-1], "descend: steps")
    if not isinstance(problem, Problem):
        raise ModelError(f"problem must be a Problem such as LeastSquares, got {type(problem).__name__}")
    if not isinstance(strategy, Strategy):
        raise ModelError(f"descend: strategy must be a Strategy such as LocalSGD(8), got {type(strategy).__name__}")
    if len(problem.shares) not in (0, n):
        raise ModelError(f"descend: the problem is split among {len(problem.shares)} workers, got {n}; split it again")
    if not callable(learning_rate):
        require_number(learning_rate, "descend: learning_rate", positive=True)
    seeds = range(require_count(seeds, "descend: seeds")) if isinstance(seeds, int) else seeds
    chosen = [require_seed(seed, "descend: seed") for seed in seeds]
    rngs, timers, starts = ([np.random.default_rng([seed, use]) for seed in chosen] for use in range(3))
    state = strategy.begin(np.stack([problem.start(rng) for rng in starts]), n)
    parts = strategy, state, clock or Clock(), timers, n
    step = _one_by_one(*parts, last) if strategy.one_by_one else _together(*parts)
    seen = np.zeros((4, len(chosen), len(marks)))  # seconds, bits up and down, losses
    row, (now, up, down) = 0, np.zeros((3, len(chosen)))
    with np.errstate(over="ignore", invalid="ignore"):
        for k in range(last + 1):
            if k == marks[row]:
                losses = problem.loss(strategy.model(state))
                seen[:, :, row] = now, up, down, np.where(np.isfinite(losses), losses, np.inf)
                row += 1
                if k == last or (k and until is not None and (seen[3, :, :row] <= until).any(axis=1).all()):
                    break
            rate = learning_rate(k) if callable(learning_rate) else learning_rate
            now, sent = step(Moment(k, rate, rngs, now, problem))
            up, down = up + sent.up, down + sent.down
    times, up, down, losses = seen[..., :row]
    staleness = state.get("staleness", np.zeros(len(chosen))) / marks[row - 1]
    model = strategy.model(state)
    return Descent(strategy, tuple(chosen), n, np.array(marks[:row]), times, losses, up, down, model, staleness)


#: A step at a moment: when it ends in each run, and what is sent.
Step = Callable[[Moment], tuple[np.ndarray, Sent]]


def _together(strategy: Strategy, state: State, clock: Clock, timers: list[np.random.Generator], workers: int) -> Step:
    """A step of all workers."""
    every = np.arange(workers)
    running = clock.running(clock, timers, np.zeros((len(timers), workers)))

    def step(moment: Moment) -> tuple[np.ndarray, Sent]:
        problem, x = moment.problem, state["x"]
        if strategy.exact:
            own = problem.worker_gradients(x[:, 0])
            gradients = own.repeat(workers // own.shape[1], axis=1)
        else:
            gradients = problem.sampled_gradients(x, every, moment.rngs)
        sent = strategy.update(state, gradients, moment)
        return running.step(sent, problem.sizes / problem.batch_size if strategy.exact else 1.0), sent

    return step


def _one_by_one(
    strategy: Strategy, state: State, clock: Clock, timers: list[np.random.Generator], workers: int, steps: int
) -> Step:
    """The next gradient to complete in each run; the strategy chooses who then begins another."""
    runs, size = np.arange(len(timers)), steps // workers + 4 * math.isqrt(steps) + 8

    def draw() -> np.ndarray:
        return np.stack([clock.durations(timer, (workers, size)) for timer in timers])

    drawn = draw()  # of successive gradients, shape (S, n, size)
    ends, begun = drawn[..., 0].copy(), np.ones((len(runs), workers), int)

    def step(moment: Moment) -> tuple[np.ndarray, Sent]:
        nonlocal drawn
        chosen = ends.argmin(axis=1)
        now, x = ends[runs, chosen], state["copies"][runs, chosen][:, None]
        gradients = moment.problem.sampled_gradients(x, chosen[:, None], moment.rngs)
        sent = strategy.update(state, gradients, moment._replace(time=now, workers=chosen))
        ends[runs, chosen] = np.inf
        if begun.max() == drawn.shape[2]:
            drawn = np.concatenate([drawn, draw()], axis=2)
        run, worker = np.nonzero(sent.begin)
        ends[run, worker] = now[run] + drawn[run, worker, begun[run, worker]]
        begun[sent.begin] += 1
        return now, sent

    return step
