"""Small simulations of closed networks, to hold approximations against (validation/notes/model.md, tests).

Every customer thinks, then visits the stations in order, again and again. Times are gamma distributed with coefficient
of variation ``cv`` (1: exponential). Customers start out of phase, and the first quarter is not counted.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import numpy as np

BATCHES = 20


def simulate_fcfs(
    population: int, *, demands: Sequence[float], think_time: float, cv: float, cycles: int = 100_000, seed: int = 0
) -> tuple[float, float]:
    """Throughput and its standard error (batch means) with first-come-first-served stations."""
    rng = np.random.default_rng(seed)
    service = [_gamma(rng, demand, cv) for demand in demands]
    think = _gamma(rng, think_time, cv)
    free = [0.0] * len(demands)
    cycle = think_time + sum(demands)
    events = [(cycle * rng.random(), customer, 0) for customer in range(population)]
    heapq.heapify(events)
    ends = []
    while len(ends) < cycles:
        now, customer, station = heapq.heappop(events)
        if station < len(demands):
            free[station] = max(now, free[station]) + next(service[station])
            heapq.heappush(events, (free[station], customer, station + 1))
        else:
            ends.append(now)
            heapq.heappush(events, (now + next(think), customer, 0))
    return _rate(ends)


def _gamma(rng: np.random.Generator, mean: float, cv: float) -> Iterator[float]:
    shape = 1 / cv**2
    while True:
        yield from rng.gamma(shape, mean / shape, 10_000).tolist()


def _rate(ends: Sequence[float]) -> tuple[float, float]:
    """Completions per second after the first quarter."""
    counted = np.array(ends[len(ends) // 4 :])
    per_batch = (len(counted) - 1) // BATCHES
    marks = counted[: BATCHES * per_batch + 1 : per_batch]
    rates = per_batch / np.diff(marks)
    return float((BATCHES * per_batch) / (marks[-1] - marks[0])), float(rates.std(ddof=1) / BATCHES**0.5)
