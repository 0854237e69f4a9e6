"""In which order workers complete their gradients, and when: renewal processes, with a strategy's waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

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
