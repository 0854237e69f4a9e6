"""Closed forms that the simulation is held to; times in the unit of the given means."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from scipy.integrate import cumulative_trapezoid

from queuemodel.checks import require_number
from queuemodel.errors import ModelError
from queuemodel.scheduling.policies.model_based import rank_prices


def mmk_response_time(rate: float, service_time: float, servers: int) -> float:
    """Mean response time of M/M/k, first come first served (Erlang, 1917); exact.

    Parameters
    ----------
    rate : float
        Arrivals per second.
    service_time : float
        Mean seconds of service.
    servers : int
    """
    a = _stable(rate, service_time, servers)
    blocking = 1.0
    for k in range(1, servers + 1):
        blocking = a * blocking / (k + a * blocking)
    waits = blocking / (1 - (a / servers) * (1 - blocking))
    return waits * service_time / (servers - a) + service_time


def mg1_fifo_response_time(rate: float, service_time: float, variation: float) -> float:
    """Mean response time of M/G/1, first come first served (Pollaczek and Khinchine, 1930); exact.

    ``variation``: coefficient of variation of the service time.
    """
    load = _stable(rate, service_time, 1)
    return service_time + load * service_time * (1 + variation**2) / (2 * (1 - load))


def mg1_ps_response_time(rate: float, service_time: float) -> float:
    """Mean response time of M/G/1 with processor sharing: insensitive to the law of the sizes; exact."""
    return service_time / (1 - _stable(rate, service_time, 1))


def mg1_srpt_response_time(
    rate: float, density: Callable[[float], float], *, largest: float = math.inf, mean: float = 1.0
) -> float:
    """Mean response time of M/G/1 with shortest remaining processing time first (Schrage and Miller, 1966); exact.

    Parameters
    ----------
    rate : float
    density : callable
        Of the sizes, continuous on (0, largest).
    largest : float, default inf
    mean : float, default 1
        Mean size; sets the grid when ``largest`` is infinite (integrated up to 40 means).
    """
    top = 40 * mean if largest == math.inf else largest
    x = np.linspace(0.0, top, 200_001)
    f = np.array([density(float(v)) for v in x])
    integral = partial(cumulative_trapezoid, x=x, initial=0)
    load = rate * integral(x * f)
    _stable(rate, float(load[-1] / rate), 1)
    tail = 1 - integral(f)
    waiting = rate * (integral(x * x * f) + x * x * tail) / (2 * (1 - load) ** 2)
    response = waiting + integral(1 / (1 - load))
    return float(integral(response * f)[-1])


def hesrpt_mean_response_time(sizes: Sequence[float], exponent: float, *, nodes: float = 1.0) -> float:
    """Least mean response time of jobs present at time 0 with speed nodes ** exponent; exact for divisible nodes.

    Berg, Vesilo and Harchol-Balter (2020): with sizes falling, sum_k x_k (k^q - (k - 1)^q)^(1/q) over nodes^p, where
    q = 1 / (1 - p), is the total.
    """
    falling = np.sort(np.asarray(sizes, dtype=float))[::-1]
    return float(falling @ rank_prices(len(falling), exponent) / nodes**exponent / len(falling))


def equi_response_time(rate: float, mean_size: float, speed: Callable[[float], float], nodes: float) -> float:
    """Mean response time of EQUI with divisible nodes and exponential sizes of one speedup; exact.

    A birth and death chain whose rate of ends with n jobs is n ``speed(nodes / n)`` / mean size (Berg, Dorsman and
    Harchol-Balter, 2018, who prove that no policy is better when the speedup is concave).
    """
    weight, total, jobs, n = 1.0, 1.0, 0.0, 0
    while True:
        n += 1
        step = rate * mean_size / (n * speed(nodes / n))
        weight *= step
        total += weight
        jobs += n * weight
        if step < 1 and weight < 1e-14 * total * (1 - step):
            return jobs / total / rate
        if n > 1_000_000:
            raise ModelError("EQUI: the chain is not stable at this rate; lower the rate or the mean size")


def _stable(rate: float, service_time: float, servers: int) -> float:
    require_number(rate, "rate", unit="per second", positive=True)
    require_number(service_time, "service_time", unit="seconds", positive=True)
    if rate * service_time >= servers:
        raise ModelError(f"load must be below {servers}, got {rate * service_time:g}; the queue would grow for ever")
    return rate * service_time
