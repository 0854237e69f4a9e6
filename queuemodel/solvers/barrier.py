"""Synchronous rounds: all customers start together, and the next round starts when the last has come through."""

from __future__ import annotations

import math

import numpy as np

from ..checks import require_count
from ..errors import ModelError
from ..network import LARGEST_POPULATION, Network

#: States (numbers of customers at each stage) beyond which a request is refused.
MOST_STATES = 500_000


def barrier_time(network: Network, *, population: int) -> float:
    """Mean time of a round in which each of N customers thinks, then goes through all stations in order, and waits.

    The barrier of synchronous SGD: a round ends with its slowest worker. Exact when think times and each station's
    demand in a round are exponential (first-step analysis of an absorbing Markov chain; Kemeny and Snell, 1960), with
    any of processor sharing, first come first served or preemption, several servers and load-dependent rates; service
    that varies less makes rounds shorter. The throughput is ``population / barrier_time(...)``, at most that of the
    network without barrier.

    Parameters
    ----------
    network : Network
        Without classes, routing and fork-joins.
    population : int

    Returns
    -------
    float
        Seconds.

    Examples
    --------
    >>> from queuemodel import Station
    >>> network = Network([Station("worker", service_time=1.0, servers=math.inf)])
    >>> round(barrier_time(network, population=4), 6)  # 1 + 1/2 + 1/3 + 1/4
    2.083333
    """
    N = require_count(population, "population", most=LARGEST_POPULATION)
    if network.classes or network.routing is not None or any(s.branches for s in network.stations):
        raise ModelError(
            "barrier: rounds go through stations in order; classes, routing and fork-joins are not supported"
        )
    rates = []
    if network.think_time > 0:
        rates.append([n / network.think_time for n in range(N + 1)])
    for station, d in zip(network.stations, network.service_demand.tolist(), strict=True):
        if d > 0:
            speed = [0.0, *[float(n) if station.is_delay else station.rate(n) for n in range(1, N + 1)]]
            rates.append([s / d for s in speed])
    stages = len(rates)
    states = math.comb(N + stages, stages)
    if states > MOST_STATES:
        raise ModelError(
            f"barrier: {states:,} states for {N} customers at {stages} stages, more than {MOST_STATES:,}; "
            "take fewer customers or stations"
        )
    return _mean_absorption(np.array(rates), N)


def _mean_absorption(rates: np.ndarray, N: int) -> float:
    """T(state) = (1 + sum of rate_k T(after k)) / sum of rates, from the end of the round backwards.

    A state is how many customers have finished stage 1, 2, ...: not increasing, and each step adds one somewhere.
    """
    stages = len(rates)
    times: dict[tuple[int, ...], float] = {(N,) * stages: 0.0}
    layer = [(N,) * stages]
    for _ in range(N * stages):
        before = set()
        for done in layer:
            for k in range(stages):
                if done[k] > 0 and (k == stages - 1 or done[k] > done[k + 1]):
                    before.add((*done[:k], done[k] - 1, *done[k + 1 :]))
        for done in before:
            total, gain = 0.0, 1.0
            for k in range(stages):
                here = (N if k == 0 else done[k - 1]) - done[k]
                if here > 0:
                    rate = float(rates[k, here])
                    total += rate
                    gain += rate * times[(*done[:k], done[k] + 1, *done[k + 1 :])]
            times[done] = gain / total
        layer = list(before)
    return times[(0,) * stages]
