"""Rounds that end with their last customer, and the knee of customers that meet in step: service that varies little."""

from __future__ import annotations

import itertools
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
        Without classes and routing.
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
    if network.classes or network.routing is not None:
        raise ModelError("barrier: rounds go through stations in order; classes and routing are not supported")
    rates = []
    if network.think_time > 0:
        rates.append([n / network.think_time for n in range(N + 1)])
    for station, d in zip(network.stations, network.service_demand.tolist(), strict=True):
        if d > 0:
            rates.append([0.0, *(station.speeds(N) / d).tolist()])
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
    states = itertools.combinations_with_replacement(range(N, -1, -1), stages)
    times = {next(states): 0.0}
    for done in states:  # what may follow a state comes before it here
        total, gain = 0.0, 1.0
        for k in range(stages):
            here = (N if k == 0 else done[k - 1]) - done[k]
            if here > 0:
                rate = float(rates[k, here])
                total += rate
                gain += rate * times[(*done[:k], done[k] + 1, *done[k + 1 :])]
        times[done] = gain / total
    return times[(0,) * stages]


def knee_throughput(
    population: np.ndarray | float, *, cycle: np.ndarray | float, demand: np.ndarray | float, width: np.ndarray | float
) -> np.ndarray:
    """Approximate throughput of a closed first-come-first-served network with low variability (arguments broadcast).

    With constant times, N customers whose undisturbed cycle takes R and who need D of the busiest station end a round
    in max(R, N D). With varying ones the round is the mean of that maximum; for a normal cycle time whose coefficient
    of variation grows with the others that one meets, s_N = s sqrt(1 - 1/N) (Clark, 1961, for the mean):

    C(N) = R (Phi(-z) + u Phi(z) + s_N phi(z)),  u = N D / R,  z = (u - 1) / s_N,  X(N) = N / C(N).

    Exact for N = 1, for N to infinity and, with width 0, for constant times; approximate between: compared with
    simulation in docs/explanation/model. ``cycle`` is undisturbed, ``demand`` what the busiest station serves of it
    (seconds); ``width`` is s, from `knee_width`.
    """
    from scipy.special import ndtr

    N = np.asarray(population, dtype=float)
    u = N * demand / cycle
    s = np.maximum(width * np.sqrt(1.0 - 1.0 / N), 1e-9)
    z = (u - 1.0) / s
    C = cycle * (ndtr(-z) + u * ndtr(z) + s * np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi))
    return np.asarray(N / C)


def knee_width(cv: np.ndarray | float) -> np.ndarray:
    """The knee's width s for service and think times of coefficient of variation ``cv``, 0 to 1.

    A line through simulations of closed first-come-first-served networks: 0.15, 0.25 and 0.40 at 0.1, 0.3 and 0.5, and
    0.65 for exponential times.
    """
    return np.asarray(np.interp(cv, [0.0, 0.1, 0.3, 0.5, 1.0], [0.05, 0.15, 0.25, 0.40, 0.65]))
