"""Gradients applied as they complete, on the parameters that their worker had: their order, and the strategy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..checks import require_choice, require_count
from ..errors import ModelError
from .strategy import WORD, Moment, Sent, State, Strategy, per_worker, sent

#: Seconds of so many gradients' computation: (generator, shape) to an array of that shape.
Durations = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


class Order(NamedTuple):
    """Completed gradients of one run, by time.

    Attributes
    ----------
    times : ndarray, shape (E,)
        Seconds.
    workers : ndarray of int, shape (E,)
    """

    times: np.ndarray
    workers: np.ndarray


def free(workers: int, events: int, durations: Durations, rng: np.random.Generator) -> Order:
    """Nobody waits: the merged renewal processes of all workers."""
    each = events // workers + 4 * int(np.sqrt(events)) + 8
    while True:
        ends = durations(rng, (workers, each)).cumsum(axis=1)
        order = ends.ravel().argsort(kind="stable")[:events]
        if ends.ravel()[order[-1]] <= ends[:, -1].min():  # nobody could have completed one more by then
            return Order(ends.ravel()[order], order // each)
        each *= 2


def first_k(workers: int, k: int, rounds: int, durations: Durations, rng: np.random.Generator) -> Order:
    """K-sync: the first k of n of each round, whose others are given up; n - k backup workers."""
    ends = durations(rng, (rounds, workers))
    chosen = ends.argsort(axis=1, kind="stable")[:, :k]
    return _in_rounds(np.take_along_axis(ends, chosen, axis=1), chosen)


def first_k_batches(workers: int, k: int, rounds: int, durations: Durations, rng: np.random.Generator) -> Order:
    """K-batch-sync: the first k gradients of each round, several of one worker perhaps; the others are given up."""
    ends = durations(rng, (rounds, workers, k)).cumsum(axis=2).reshape(rounds, -1)
    chosen = ends.argsort(axis=1, kind="stable")[:, :k]
    return _in_rounds(np.take_along_axis(ends, chosen, axis=1), chosen // k)


def k_wait(workers: int, k: int, rounds: int, durations: Durations, rng: np.random.Generator) -> Order:
    """K-async: k who have completed wait for each other, the rest go on."""
    ends = durations(rng, (workers,))
    times, who = np.empty((rounds, k)), np.empty((rounds, k), int)
    for r in range(rounds):
        who[r] = ends.argsort(kind="stable")[:k]
        times[r] = ends[who[r]]
        ends[who[r]] = times[r, -1] + durations(rng, (k,))
    return Order(times.ravel(), who.ravel())


def bounded(workers: int, bound: int, events: int, durations: Durations, rng: np.random.Generator) -> Order:
    """Nobody begins a step while more than ``bound`` completed ones ahead of the slowest (Ho et al., NeurIPS 2013)."""
    ends, done, waits = durations(rng, (workers,)), np.zeros(workers, int), np.zeros(workers, bool)
    times, who = np.empty(events), np.empty(events, int)
    for e in range(events):
        w = int(np.where(waits, np.inf, ends).argmin())
        times[e], who[e] = ends[w], w
        done[w] += 1
        waits[w] = True
        go = np.flatnonzero(waits & (done - done.min() <= bound))
        ends[go] = times[e] + durations(rng, (len(go),))
        waits[go] = False
    return Order(times, who)


def _in_rounds(ends: np.ndarray, workers: np.ndarray) -> Order:
    """Rounds behind one another, each ending with its last gradient; both of shape (rounds, k)."""
    begins = np.concatenate([[0.0], ends[:-1, -1].cumsum()])
    return Order((begins[:, None] + ends).ravel(), workers.ravel())


NAMES = ("async", "k-async", "k-batch-async", "k-sync", "k-batch-sync", "bounded-staleness")


@dataclass(frozen=True)
class ServerSGD(Strategy):
    """SGD on a server that applies the mean of every k gradients as they complete, each taken where its worker began.

    Names, and who then gets new parameters, as in Dutta et al. (AISTATS 2018): "async" (k = 1) and "k-batch-async":
    whoever completes one; "bounded-staleness" (Ho et al., NeurIPS 2013): the same, once it may begin its next step;
    "k-async": the k who completed; "k-sync", "k-batch-sync": all, others' work being given up. K-sync with k = n is
    synchronous SGD, with less that with n - k backup workers (Chen et al. 2016).

    A step of the loop is one gradient. Times follow from the clock's durations alone, or from an ``order`` that was
    recorded: then staleness is that of the cluster.

    Attributes
    ----------
    name : str
    k : int
        Gradients of an update.
    staleness_bound : int
        Steps that a worker may be ahead of the slowest.
    order : callable, optional
        (workers, gradients, generator) to an `Order`, instead of durations.
    """

    name: str = "async"
    k: int = 1
    staleness_bound: int = 0
    order: Callable[[int, int, np.random.Generator], Order] | None = None

    def __post_init__(self) -> None:
        require_choice(self.name, "ServerSGD: name", NAMES)
        require_count(self.k, "ServerSGD: k", least=1)
        require_count(self.staleness_bound, "ServerSGD: staleness_bound", least=0)
        if self.k > 1 and self.name in ("async", "bounded-staleness"):
            raise ModelError(f"ServerSGD: {self.name!r} applies every gradient by itself, so k must be 1, got {self.k}")

    def begin(self, start: np.ndarray, workers: int) -> State:
        if self.k > workers and self.name in ("k-sync", "k-async"):
            raise ModelError(f"ServerSGD: {self.name!r} needs at least k = {self.k} workers, got {workers}")
        x = start[:, None].copy()
        shape = (len(start), workers)
        return {
            "x": x,
            "copies": per_worker(start, workers),
            "sum": np.zeros_like(x),
            "gave": np.zeros(shape, bool),
            "version": np.zeros(shape, int),
            "done": np.zeros(shape, int),
            "updates": np.zeros(1, int),
            "staleness": np.zeros(len(start)),
        }

    def make_order(self, workers: int, gradients: int, durations: Durations, rng: np.random.Generator) -> Order:
        """When which worker completes its gradients."""
        if self.order is not None:
            return self.order(workers, gradients, rng)
        rounds = -(-gradients // self.k)
        match self.name:
            case "k-sync":
                return first_k(workers, self.k, rounds, durations, rng)
            case "k-batch-sync":
                return first_k_batches(workers, self.k, rounds, durations, rng)
            case "k-async":
                return k_wait(workers, self.k, rounds, durations, rng)
            case "bounded-staleness":
                return bounded(workers, self.staleness_bound, gradients, durations, rng)
            case _:
                return free(workers, gradients, durations, rng)

    def complete(self, state: State, gradients: np.ndarray, workers: np.ndarray, moment: Moment) -> Sent:
        """One gradient of shape (S, 1, d) of each run's worker, shape (S,)."""
        runs = np.arange(len(workers))
        state["staleness"] += state["updates"][0] - state["version"][runs, workers]
        state["sum"] += gradients
        state["gave"][runs, workers] = True
        state["done"][runs, workers] += 1
        due = (moment.number + 1) % self.k == 0
        if due:
            state["x"] -= moment.rate / self.k * state["sum"]
            state["sum"][:] = 0.0
            state["updates"] += 1
        if self.name in ("k-sync", "k-batch-sync"):
            renewed = np.full(state["gave"].shape, due)
        elif self.name == "k-async":
            renewed = state["gave"] & due
        elif self.name == "bounded-staleness":
            ahead = state["done"] - state["done"].min(axis=1, keepdims=True)
            renewed = state["gave"] & (ahead <= self.staleness_bound)
        else:
            renewed = state["gave"].copy()
        run, worker = np.nonzero(renewed)
        state["copies"][run, worker] = state["x"][run, 0]
        state["version"][renewed] = state["updates"][0]
        state["gave"] &= ~renewed
        d = gradients.shape[-1]
        return sent(len(workers), WORD * d, WORD * d, met=False)

    def update(self, state: State, gradients: np.ndarray, moment: Moment) -> Sent:
        raise ModelError("ServerSGD takes gradients one by one; run it by `descend`")
