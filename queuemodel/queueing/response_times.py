"""Percentiles of response times in closed form; `Simulation` estimates the others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..base.checks import by_keyword, require_share
from ..base.errors import ModelError
from .exact import MOST_CUSTOMERS, marginal_distribution
from .lowered import require_populations
from .network import Network


@by_keyword
def response_percentile(network: Network, station: str, share: float, *, population: Any = None) -> float:
    """Seconds within which ``share`` of visits to a first-come-first-served station, or a delay, are over; exact.

    Service is exponential. Of an open network M/M/m (Kleinrock, 1975): with P(wait) = C, service rate mu per server and
    mu m - lambda = a, P(T > t) = exp(-mu t) + C mu / (mu - a) (exp(-a t) - exp(-mu t)). Customers of a closed network
    find the station as it is with one customer less (Sevcik and Mitrani, 1981), and wait for as many services as it
    takes until a server is free. `SimulationResult.response_percentile` estimates others.

    Parameters
    ----------
    network : Network
        With product form.
    station : str
    share : float
        In (0, 1).
    population : int, or one per class
        As of `solve`.

    Raises
    ------
    ModelError
        For another discipline, rates, several closed classes, open beside closed ones, or more than 1,000 customers.

    Examples
    --------
    >>> from queuemodel.queueing import JobClass, Station
    >>> queue = Station("q", service_time=0.5, discipline="fcfs")
    >>> round(response_percentile(Network([queue], classes=[JobClass("all", arrival_rate=1.0)]), "q", 0.9), 4)
    2.3026
    >>> round(response_percentile(Network([queue], think_time=1.0), "q", 0.9, population=2), 4)
    1.4974
    """
    from scipy.optimize import brentq

    require_share(share, "response percentile: share", open_ended=True)
    p = marginal_distribution(network, station, population=population)
    k = network.names.index(station)
    s, opened = network.stations[k], network.arrival_rates > 0
    N = np.atleast_1d(require_populations(network, population))
    visitors = [label for label, v in zip(network.labels, network.class_visit_ratios[k], strict=True) if v > 0]
    closed = not opened.any() and (N > 0).sum() == 1 and N.max() <= MOST_CUSTOMERS
    if not (s.is_delay or s.discipline == "fcfs") or s.rates is not None or not (closed or opened.all()):
        raise ModelError(
            f"response percentile: station {station!r} must be first come first served without rates, and the network "
            f"open, or closed with one class of at most {MOST_CUSTOMERS:,}; else take "
            "Simulation().run(network, population).response_percentile(station, share)"
        )
    laws = {(s.time_of(label), s.scv_of(label), s.distribution_of(label)) for label in visitors}
    if len(laws) != 1 or (s.is_delay and not laws <= {(s.time_of(visitors[0]), 1.0, None)}):
        raise ModelError(
            f"response percentile: service at station {station!r} must be exponential, alike for all classes"
        )
    mu, m = 1.0 / s.time_of(visitors[0]), s.servers
    if s.is_delay:
        longer = _closed_response(mu, m, np.ones(1))
    elif closed:
        less = tuple((N - (N > 0)).tolist())  # arrival theorem: one customer less
        if any(less):
            p = marginal_distribution(network, station, population=less if network.classes else less[0])
        longer = _closed_response(mu, m, p if any(less) else np.ones(1))
    else:
        longer = _open_response(mu, int(m), mu * m - float(network.class_visit_ratios[k] @ network.arrival_rates), p)
    longest = 1.0 / mu
    while longer(longest) > 1.0 - share:
        longest *= 2.0
    return float(brentq(lambda t: longer(t) - (1.0 - share), 1e-99 / mu, longest, xtol=1e-14 / mu))


def _open_response(mu: float, m: int, a: float, p: np.ndarray) -> Callable[[float], float]:
    """P(T > t) of M/M/m with the spare rate ``a`` and the distribution p of customers."""
    wait = 1.0 - p[:m].sum()  # P(wait) = P(n >= m): Poisson arrivals see time averages
    a *= 1.0 + 1e-9 * (abs(a - mu) < 1e-9 * mu)  # the limit of a double rate, to nine digits
    return lambda t: math.exp(-mu * t) + wait * mu / (mu - a) * (math.exp(-a * t) - math.exp(-mu * t))


def _closed_response(mu: float, m: float, p: np.ndarray) -> Callable[[float], float]:
    """P(T > t) of a customer that finds n others with the probability p[n] at m exponential servers."""
    from scipy.special import gammainc, gammaincc

    j = np.maximum(np.arange(len(p)) - m + 1, 0.0)  # services until a server is free, at the rate m mu
    if m == 1:
        return lambda t: float(p @ gammaincc(j + 1, mu * t))  # Erlang(n + 1)
    if math.isinf(m):
        return lambda t: math.exp(-mu * t)
    ratio = (m / (m - 1.0)) ** j  # Erlang(j, m mu), then an exponential service
    return lambda t: float(p @ (gammaincc(j, m * mu * t) + math.exp(-mu * t) * ratio * gammainc(j, (m - 1.0) * mu * t)))
