"""Bounds on throughput without a solution, the saturation population, and the round time at a barrier."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base import drawing
from ..base.checks import by_keyword, require_choice, require_count
from ..base.errors import ModelError
from ..base.results import Result, rows_of
from .lowered import lower, require_populations
from .network import Network
from .solution import Solution
from .stations import LARGEST_POPULATION, number_array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Largest number of states of a barrier's chain (customers at each stage).
MOST_STATES = 500_000


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Bounds(Result):
    """Lower and upper bounds on throughput (1/s), arrays shaped like `population`; bounds on response time follow.

    Attributes
    ----------
    population, lower, upper : ndarray
    think_time : float
        Seconds per cycle at delays and outside all stations, which the response times leave out.
    method : str
    """

    population: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    think_time: float = 0.0
    method: str = ""

    @property
    def response_lower(self) -> np.ndarray:
        """Lower bound on the seconds per cycle at queueing stations, N / X_upper - Z."""
        return np.maximum(self.population / self.upper - self.think_time, 0.0)

    @property
    def response_upper(self) -> np.ndarray:
        """Upper bound on the seconds per cycle at queueing stations, N / X_lower - Z."""
        return np.maximum(self.population / self.lower - self.think_time, 0.0)

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per population."""
        return rows_of({
            "population": self.population.astype(int),
            "throughput_lower": self.lower,
            "throughput_upper": self.upper,
            "response_lower": self.response_lower,
            "response_upper": self.response_upper,
        })  # fmt: skip

    def caption(self) -> str:
        """Method, measures and think time."""
        return f"{self.method} bounds on throughput (1/s) and response time (s), think time {self.think_time:g} s"


@by_keyword
def bounds(network: Network, population: int | np.ndarray, *, kind: str = "asymptotic") -> Bounds:
    """Bounds on the throughput of a network of one class, that need no solution.

    With D the queueing stations' total demand, D_avg and D_max their mean and largest, Z the delays and think time:

    asymptotic (Muntz and Wong, 1974; Denning and Buzen, 1978)
        N / (N D + Z) <= X(N) <= min(N / (D + Z), 1 / max D_k/m_k), for any service distribution and any discipline that
        keeps servers busy while customers wait. A load-dependent station's D is over the best rate per customer above
        and over the lowest rate below, its m the highest rate, up to the largest population.
    balanced-job (Zahorjan et al., 1982), like the following for product form with single servers; tighter
        N / (D + Z + (N-1) D_max / (1 + Z/(N D))) <= X(N)
        X(N) <= min(1/D_max, N / (D + Z + (N-1) D_avg / (1 + Z/D))).
    proportional (Hsieh and Lam, 1987)
        N / (D + Z + (N-1) sum D_k**N / sum D_k**(N-1)) <= X(N)
        X(N) <= min(1/D_max, N / (D + Z + max(N-1 - Z/D_max, 0) sum D_k**2 / sum D_k)).
    geometric (Casale, Muntz and Serazzi, 2008), the tightest without think time
        Queue lengths with one customer fewer lie between geometric sums (y - y**N) / (1 - y), y_k = D_k N / (Z + D +
        D_max N) below and D_k times the proportional upper bound above; the bottlenecks have the rest.

    The last two are as published, but never wider than the asymptotic ones. Beside open classes D_k is that over the
    share of the station which they leave (Lazowska et al., 1984), for product form.

    Parameters
    ----------
    network : Network
    population : int or array of int
        At least 1.
    kind : {"asymptotic", "balanced-job", "proportional", "geometric"}

    Raises
    ------
    ModelError
        When the population is not whole and at least 1, not one class is closed, or the bounds do not hold.

    Examples
    --------
    >>> from queuemodel.queueing import Network, Station
    >>> network = Network([Station("server", service_time=0.5)], think_time=1.0)
    >>> float(bounds(network, 2).upper)
    1.3333333333333333
    """
    require_choice(kind, "bounds: kind", BOUND_KINDS)
    _require_one_closed(network, "bounds")
    N = number_array(population, "bounds: population", "whole numbers of at least 1")
    if N.size == 0 or not ((N >= 1) & np.isfinite(N) & (np.floor(N) == N)).all():
        raise ModelError(f"bounds: population must be whole numbers of at least 1, got {population!r}")
    return _bounds(network, N, kind)


def _require_one_closed(network: Network, what: str) -> None:
    closed = len(network.classes) - len(network.open_classes)
    if network.classes and closed != 1:
        raise ModelError(f"{what}: the network has {closed} closed classes; one is needed, beside any open ones")


def _bounds(network: Network, N: np.ndarray, kind: str) -> Bounds:
    """Bounds at populations from 1, whole or not."""
    every = lower(network, math.ceil(N.max()))
    low, why = every.closed, every.why_not_product_form()
    if why and network.open_classes:
        raise ModelError(f"bounds: {why}; beside open classes all bounds are for product form")
    Z = float(low.think[0])
    lower_X = N / (N * low.max_residence.sum() + Z)  # the others are always ahead at every station
    upper_X = np.minimum(N / (float(low.Z[0]) + low.min_residence.sum()), 1.0 / max(float(low.load.max()), 1e-300))
    if kind == "asymptotic":
        return Bounds(N, np.asarray(lower_X), np.asarray(upper_X), Z, kind)
    if why := low.why_not_single_servers() or why:
        raise ModelError(
            f"bounds: {why}; {kind} bounds are for product form with single servers, use kind='asymptotic'"
        )
    demand = low.closed_demand[low.queues, 0]
    low_X, high_X = BOUND_KINDS[kind](N, demand, Z) if len(demand) else (lower_X, upper_X)
    return Bounds(N, np.maximum(low_X, lower_X), np.minimum(high_X, upper_X), Z, kind)


def _balanced_job(N: np.ndarray, demand: np.ndarray, Z: float) -> tuple[np.ndarray, np.ndarray]:
    D, D_max = demand.sum(), demand.max()
    upper = N / (D + Z + (N - 1) * demand.mean() / (1 + Z / D))  # as if all K stations had the mean demand
    lower = N / (D + Z + (N - 1) * D_max / (1 + Z / (N * D)))  # as if D / D_max stations had the largest
    return lower, np.minimum(upper, 1.0 / D_max)


def _proportional(N: np.ndarray, demand: np.ndarray, Z: float) -> tuple[np.ndarray, np.ndarray]:
    D, D_max, n = demand.sum(), demand.max(), N[..., None]
    share = demand / D_max  # at most 1, so that no power overflows
    longest = D_max * (share**n).sum(axis=-1) / (share ** (n - 1)).sum(axis=-1)  # sum D_k**N / sum D_k**(N-1)
    shortest = D_max * (share**2).sum() / share.sum()  # sum D_k**2 / sum D_k: queues in proportion to demands
    upper = np.minimum(N / (D + Z + np.maximum(N - 1 - Z / D_max, 0) * shortest), 1.0 / D_max)
    return N / (D + Z + (N - 1) * longest), upper


def _geometric(N: np.ndarray, demand: np.ndarray, Z: float) -> tuple[np.ndarray, np.ndarray]:
    D, D_max, n = demand.sum(), demand.max(), N[..., None]
    below = demand[demand < D_max * (1 - 1e-15)]  # demands of stations that are no bottleneck
    spread = (demand**2).sum() / demand.sum()
    thinking = Z * np.minimum(1.0 / D_max, np.maximum(n - 2, 0) / (D + Z))  # upper bound on X Z at N - 2
    X_before = np.minimum(1.0 / D_max, (n - 1) / (D + Z + spread * np.maximum(n - 2 - thinking, 0)))  # at N - 1
    X = []
    for y, others in ((below * (n - 1) / (Z + D + D_max * (n - 1)), N - 1), (below * X_before, N)):
        Q = (y - y**n) / (1 - y)  # y + ... + y**(N-1)
        # X (b - Z D_max X n/N) = N, bottlenecks holding what Q and thinking leave; the bounds differ in n: N - 1 and N
        b = Z + D + D_max * (N - 1) - ((D_max - below) * Q).sum(axis=-1)
        X.append(2 * N / (b + np.sqrt(np.maximum(b * b - 4 * Z * D_max * others, 0.0))))
    return X[0], X[1]


#: Lower and upper bounds from populations, the demands > 0 of queues, and think time.
BOUND_KINDS: dict[str, Any] = {
    "asymptotic": None,
    "balanced-job": _balanced_job,
    "proportional": _proportional,
    "geometric": _geometric,
}


def saturation_population(network: Network) -> float:
    """Saturation population N* without waiting; infinite without queueing stations.

    (D + Z) / max D_k/m_k, D being what a single customer needs of the queueing stations: where the asymptotes of the
    asymptotic `bounds` cross. With several closed classes it is the number of customers of all of them, in the shares
    b_c of the network's populations: 1 / max_k sum_c b_c D_kc / (m_k (D_c + Z_c)). With load-dependent rates D_k is
    over the best rate per customer and m_k the highest of the list.

    Raises
    ------
    ModelError
        When no class is closed, or several are and none has customers.
    """
    if network.classes and len(network.open_classes) == len(network.classes):
        raise ModelError("saturation population: the network has no closed class; at least one is needed")
    low, share = lower(network).closed, np.ones(1)
    if len(low.N) > 1:
        low = lower(network, require_populations(network, None)).closed
        share = low.N / max(low.N.sum(), 1)
    low = replace(low, N=np.array([max([1, *[len(s.rates) for s in network.stations if s.rates]])]))
    cycle = low.Z + low.min_residence.sum(axis=0)  # nobody waits: X_c = N_c / (D_c + Z_c)
    with np.errstate(invalid="ignore"):
        largest = float(np.nan_to_num(low.load / cycle).dot(share).max())
    return 1.0 / largest if largest > 0 else float("inf")


@by_keyword
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
    >>> from queuemodel.queueing import Station
    >>> network = Network([Station("worker", service_time=1.0, servers=math.inf)])
    >>> round(barrier_time(network, population=4), 6)  # 1 + 1/2 + 1/3 + 1/4
    2.083333
    """
    N = require_count(population, "population", most=LARGEST_POPULATION)
    if network.classes or network.routing is not None:
        raise ModelError("barrier: rounds go through stations in order; classes and routing are not supported")
    lower(network, N)  # refuses too few rates
    rates = []
    if network.think_time > 0:
        rates.append([n / network.think_time for n in range(N + 1)])
    for station, d in zip(network.stations, network.service_demand.tolist(), strict=True):
        if d > 0:
            rates.append([0.0, *(station.speeds(N) / d).tolist()])  # completions per second: mu(n) / D
    stages = len(rates)
    if (count := math.comb(N + stages, stages)) > MOST_STATES:
        raise ModelError(
            f"barrier: {count:,} states for {N} customers at {stages} stages, more than {MOST_STATES:,}; "
            "take fewer customers or stations"
        )
    # a state: customers past stage 1, 2, ..., not increasing; a transition adds one, so that successors come first here
    states = itertools.combinations_with_replacement(range(N, -1, -1), stages)
    times = {next(states): 0.0}
    for state in states:
        total, weighted = 0.0, 1.0
        for k, n in enumerate(map(int.__sub__, (N, *state), state)):  # n customers in stage k
            if n > 0:
                total += rates[k][n]
                weighted += rates[k][n] * times[(*state[:k], state[k] + 1, *state[k + 1 :])]
        times[state] = weighted / total  # T = (1 + sum of rate_k T(after k)) / sum of rate_k
    return times[(0,) * stages]


def knee_throughput(
    population: np.ndarray | float, *, cycle: np.ndarray | float, demand: np.ndarray | float, width: np.ndarray | float
) -> np.ndarray:
    """Approximate throughput of a closed first-come-first-served network with low variability (arguments broadcast).

    With constant times, N customers whose undisturbed ``cycle`` takes R and who need ``demand`` D of the busiest
    station (seconds) end a round in max(R, N D). With varying ones the round is the mean of that maximum (Clark, 1961)
    for a normal cycle time whose coefficient of variation grows with the others, s_N = s sqrt(1 - 1/N), s = ``width``:

    C(N) = R (Phi(-z) + u Phi(z) + s_N phi(z)),  u = N D / R,  z = (u - 1) / s_N,  X(N) = N / C(N).

    Exact for N = 1, for N to infinity and, with width 0, for constant times; validation/notes/model compares it with
    simulation between.
    """
    from scipy.special import ndtr

    N = np.asarray(population, dtype=float)
    u = N * demand / cycle
    s = np.maximum(width * np.sqrt(1.0 - 1.0 / N), 1e-9)
    z = (u - 1.0) / s
    C = cycle * (ndtr(-z) + u * ndtr(z) + s * np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi))  # mean of max(1 + s Y, u)
    return np.asarray(N / C)


def knee_width(cv: np.ndarray | float) -> np.ndarray:
    """Saturation width s for service and think times of coefficient of variation ``cv``, 0 to 1.

    A line through simulations of closed first-come-first-served networks: 0.15, 0.25 and 0.40 at 0.1, 0.3 and 0.5, and
    0.65 for exponential times.
    """
    return np.asarray(np.interp(cv, [0.0, 0.1, 0.3, 0.5, 1.0], [0.05, 0.15, 0.25, 0.40, 0.65]))


def plot_network_solution(solution: Solution, *, ax: Axes | None = None) -> Axes:
    """Draw throughput against population between its bounds; one point where the solver keeps no curve.

    Of several closed classes, or of open ones alone, draw each station's utilization by class.
    """
    ax = ax or drawing.new_axes()
    network, X = solution.network, solution.throughputs
    if network.classes and len(network.classes) - len(network.open_classes) != 1:
        return _plot_utilization(solution, ax)
    knee = saturation_population(network)
    N = np.union1d(np.linspace(1, solution.population, 200), min(max(knee, 1), solution.population))
    loose = _bounds(network, N, "asymptotic")
    if network.classes:  # of the closed class
        X = solution.class_throughput[[not c.is_open for c in network.classes]]
    ax.plot(solution.populations, X, color=drawing.MODEL, zorder=3, label="predicted", **drawing.dots(len(X)))
    drawing.bound_lines(ax, N, loose.upper, loose.lower)
    low = lower(network)
    if not (low.why_not_single_servers() or low.why_not_product_form()):
        tight = _bounds(network, N, "balanced-job")
        style: dict[str, Any] = {"color": drawing.BOUND, "alpha": 0.25, "linewidth": 0, "label": "balanced-job bounds"}
        ax.fill_between(N, tight.lower, tight.upper, **style)
    ax.set(xlabel="population (customers)", ylabel="throughput (cycles/s)")
    ax.set(ylim=(0, 1.15 * float(max(X.max(), loose.upper.max()))), xlim=(0, 1.02 * solution.population + 0.5))
    drawing.mark_saturation(ax, knee, solution.bottleneck)
    drawing.whole_numbers(ax)
    drawing.finish_axes(ax)
    return ax


def _plot_utilization(solution: Solution, ax: Axes) -> Axes:
    network, queues = solution.network, ~solution.network.is_delay
    names, U = np.array(network.names)[queues], solution.class_utilization[queues].T
    for (name, look), height, top in zip(drawing.styles(network.class_names).items(), U, U.cumsum(axis=0), strict=True):
        ax.bar(names, height, bottom=top - height, color=look["color"], label=name)
    ax.set(ylabel="utilization of each server", ylim=(0, 1.05))
    drawing.finish_axes(ax)
    return ax
