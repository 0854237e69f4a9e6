"""Simulation of a network, customer by customer: an estimate with an interval, for any size and service."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.checks import require_choice, require_count, require_seed, require_share
from ..base.errors import ModelError, QueueModelWarning
from ..base.estimates import Estimate
from ..base.results import Result, finite, percent
from .kernels.replication import BATCHES, Replication, model_of
from .lowered import Lowered, Routes, lower, require_populations, routes_of
from .network import Network
from .solution import Solution, solution_of

#: Most departures in one replication; more are a mistake.
MOST_DEPARTURES = 10**12
#: Groups of batches in each replication that are compared.
GROUPS = 20
#: Largest correlation of successive groups. A queue that forgets with time constant r correlates by 0.2 when a group
#: lasts 3.3 r: the run is then 80 r long, and the warm-up leaves exp(-16) of the start.
CORRELATED = 0.2
#: Largest ratio of the first group's variance after the warm-up to that of all groups.
UNSETTLED = 4.0
#: Fewest visits of a class to each station in each replication; times the scv where service varies much.
VISITS = 100
#: Fewest responses of a replication beyond a percentile that has an interval.
TAIL = 10


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SimulationResult(Result):
    """Estimates with their intervals; `solution` holds the means in the form of every other solver.

    Attributes
    ----------
    solution : Solution
    confidence : float
    throughput_interval : tuple of float
        Lower and upper end for the throughput of all customers; NaN when the run was too short.
    queue_length_interval : ndarray, shape (2, K)
        The same for the queue lengths.
    events : int
        Departures simulated in all.
    too_short : str
        The measure that still depends on the start, and therefore has no interval; else empty.
    replications : tuple of Replication
        The runs themselves, with their response times.
    """

    solution: Solution
    confidence: float
    throughput_interval: tuple[float, float]
    queue_length_interval: np.ndarray
    events: int
    too_short: str = ""
    replications: tuple[Replication, ...] = ()

    @property
    def throughput(self) -> float:
        """Cycles per second, the mean over replications."""
        return self.solution.throughput

    def response_percentile(self, station: str | None, share: float, *, job_class: str | None = None) -> Estimate:
        """Seconds within which ``share`` of the visits to a station are over, with its interval; approximate.

        Response times after the warm-up, in bins at most 0.8 % wide. The interval is Student's over replications.

        Parameters
        ----------
        station : str or None
            None: the whole cycle, from the end of thinking, or an arrival from outside, to the next return. With visit
            ratios that are not all 1 and no routing, stations are visited in random order.
        share : float
            In (0, 1).
        job_class : str, optional
            The class; all together unless specified.

        Returns
        -------
        Estimate
            Ends are NaN where a replication has fewer than 10 visits that take longer, or was too short.

        Raises
        ------
        ModelError
            For an unknown station or class, no visits, or the cycle of customers that do not think.
        """
        network = self.solution.network
        require_share(share, "response percentile: share", open_ended=True)
        place, classes = len(network.stations), list(range(len(network.labels)))
        if station is not None:
            require_choice(station, "response percentile: station", network.names, error=ModelError)
            place = network.names.index(station)
        if job_class is not None:
            require_choice(job_class, "response percentile: class", network.class_names, error=ModelError)
            classes = [network.class_names.index(job_class)]
        seconds, counts = zip(*[r.response_quantile(share, place, classes) for r in self.replications], strict=True)
        if not min(counts):
            what = f"visits to {station!r}" if station else "cycles, which begin with a think time"
            whose = f" of class {job_class!r}" if job_class else ""
            raise ModelError(f"response percentile: no {what}{whose}; name a station that is visited")
        few = min(counts) * (1.0 - share) < TAIL
        low, high = student_interval(np.array(seconds), self.confidence)
        ends = (math.nan, math.nan) if few or self.too_short else (float(low), float(high))
        return Estimate(float(np.mean(seconds)), *ends, "s", self.confidence)

    def caption(self) -> str:
        """The estimate of the throughput, its interval and the solver."""
        low, high = self.throughput_interval
        interval = "no interval: " + self.too_short if self.too_short else f"{low:.6g} to {high:.6g}"
        return (
            f"{self.solution.network.name or 'network'}: population {self.solution.population}, throughput "
            f"{self.throughput:.6g} /s ({interval}), {percent(self.confidence)} confidence, {self.solution.solver}"
        )

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per station: utilization, and queue length with its interval."""
        s = self.solution
        names = ("utilization", "queue_length", "lower", "upper")
        measures = np.array([s.utilization, s.queue_length, *self.queue_length_interval]).T.tolist()
        return [
            {"station": station.name} | dict(zip(names, map(finite, values), strict=True))
            for station, values in zip(s.network.stations, measures, strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `to_json` writes them."""
        return {
            "solution": self.solution.to_dict(),
            "confidence": self.confidence,
            "throughput_interval": list(map(finite, self.throughput_interval)),
            "stations": self.to_rows(),
            "too_short": self.too_short,
        }


@dataclass(frozen=True, slots=True)
class Simulation:
    """Discrete-event simulation, compiled and replicated (Law, 2015).

    Service: phase-type by a distribution; else by mean and scv: constant (0), gamma (below 1), exponential
    (1), hyperexponential with balanced means (above 1). Think times are exponential. Each replication begins with all
    customers at another place (without those of open classes), and leaves its first fifth out. Approximate by nature;
    Student's interval over replications shows how much.

    While batches correlate, or a class came to one of its stations too rarely, replications are made twice as long.
    What is still too short at `most_departures` has no interval (NaN), and a `QueueModelWarning` is issued.

    Parameters
    ----------
    seed : int or numpy Generator
        The same seed gives the same numbers.
    departures : int, default 200,000
        Departures from stations in each replication before any doubling.
    replications : int, default 8
        At least 2.
    confidence : float, default 0.95
    most_departures : int, default 5,000,000
        Departures up to which a replication is doubled.
    """

    seed: Any = 0
    departures: int = 200_000
    replications: int = 8
    confidence: float = 0.95
    most_departures: int = 5_000_000

    def __post_init__(self) -> None:
        if not isinstance(self.seed, np.random.Generator):
            require_seed(self.seed, "simulation: seed")
        require_count(self.departures, "simulation: departures", least=1000, most=MOST_DEPARTURES)
        require_count(self.most_departures, "simulation: most_departures", most=MOST_DEPARTURES)
        require_count(self.replications, "simulation: replications", least=2, most=10_000)
        require_share(self.confidence, "simulation: confidence", open_ended=True)

    def solve(self, network: Network, population: int | tuple[int, ...]) -> Solution:
        """Means at ``population``; `run` gives the intervals too."""
        return self.run(network, population).solution

    def run(self, network: Network, population: int | tuple[int, ...]) -> SimulationResult:
        """Simulate and give estimates with intervals."""
        population = require_populations(network, population)
        low, routes = lower(network, population), routes_of(network)
        counts = low.counts_with(_most_open(low))
        model, size = model_of(routes, sum(counts)), self.departures // BATCHES
        rng = self.seed if isinstance(self.seed, np.random.Generator) else np.random.default_rng(self.seed)
        runs = [
            Replication(routes, model, counts, child, r, size) for r, child in enumerate(rng.spawn(self.replications))
        ]
        required = _required_visits(routes, counts)
        while True:
            for run in runs:
                run.fill()
            visits = np.min([run.run.visits for run in runs], axis=0)
            why = _too_short(network, np.array([run.series() for run in runs]), visits < required)
            if not why or 2 * runs[0].departures > self.most_departures:
                break
            for run in runs:
                run.double()
        X, Q, busy = (np.array(values) for values in zip(*[run.measures() for run in runs], strict=True))
        if why:
            warnings.warn(
                f"simulation: {runs[0].departures:,} departures in each replication are not enough: {why}; no interval "
                "is given; allow more most_departures, or take an exact or approximate solver",
                QueueModelWarning,
                stacklevel=3,
            )
        reason = f" from a run too short: {why}" if why else ": Simulation(...).run gives its interval"
        solver = f"simulation, {self.replications} replications of {runs[0].departures:,} departures"
        means = (measure.mean(axis=0) for measure in (X, Q, busy))
        total = X[:, [chain[0] for chain in network.chains]].sum(axis=1)
        doubt = math.nan if why else 1.0
        interval = (*(doubt * student_interval(total, self.confidence)).tolist(),)
        about = {"reason": f"an estimate{reason}", "expected_error": (interval[1] - interval[0]) / 2 / total.mean()}
        solution = solution_of(low, *means, solver=solver, exact=False, **about)
        lengths = doubt * student_interval(Q.sum(axis=2), self.confidence)
        events = self.replications * runs[0].departures
        return SimulationResult(solution, self.confidence, interval, lengths, events, why, tuple(runs))


def student_interval(values: np.ndarray, confidence: float) -> np.ndarray:
    """Student's interval for the mean over independent replications (the first axis): lower and upper end."""
    from scipy.special import stdtrit

    t = float(stdtrit(len(values) - 1, 0.5 + confidence / 2)) / math.sqrt(len(values))
    half = t * values.std(axis=0, ddof=1)  # t s / sqrt(n)
    return np.array([values.mean(axis=0) - half, values.mean(axis=0) + half])


def _most_open(low: Lowered) -> int:
    """Customers of an open class, exceeded with a probability of about 1e-9."""
    stations, work = low.network.stations, low.D @ low.arrivals
    rho = max([1e-3, *[load / s.listed_speeds[-1] for s, load in zip(stations, low.open_load, strict=True) if load]])
    scv = max([1.0, *[s.scv_of(c) for s in stations for c in low.network.labels]])
    return 100 + int(10 * work[low.delay].sum() + scv * math.log(1e-9) / math.log(rho))  # P(n) ~ rho**(n / scv)


def _required_visits(routes: Routes, counts: tuple[int, ...]) -> np.ndarray:
    """Fewest visits of each class to each place, shape (K+1, C)."""
    network, required = routes.network, np.zeros(routes.visits.shape)
    for chain in network.chains:
        for c in chain if sum(counts[c] for c in chain) else ():
            scv = [max(1.0, s.scv_of(network.labels[c])) for s in network.stations]
            required[:, c] = VISITS * routes.stay[:, c] * [*scv, 1.0]
    return required


def _too_short(network: Network, series: np.ndarray, rare: np.ndarray) -> str:
    """The measure that still depends on the start, or an empty text."""
    K, C = rare.shape
    places = [f"station {name!r}" for name in network.names] + ["thinking"]
    if rare.any():
        return f"too few visits to {places[int(np.argwhere(rare)[0, 0])]}"
    correlated = np.flatnonzero(_correlated(series)).tolist()
    if not correlated:
        return ""
    measure = f"the queue at {places[correlated[0] // C]}" if correlated[0] < K * C else "the throughput"
    return f"{measure} still depends on the start"


def _correlated(series: np.ndarray) -> np.ndarray:
    """Whether measures (M,) of ``series`` (R, B, M) depend on the start: groups correlate (von Neumann, 1941)."""
    R, B, M = series.shape
    groups = series.reshape(R, GROUPS, B // GROUPS, M).mean(axis=2)
    deviation = groups - groups.mean(axis=(0, 1))
    variance = (deviation**2).mean(axis=(0, 1))
    constant = variance <= 1e-24 * groups.mean(axis=(0, 1)) ** 2  # but for rounding
    variance = np.where(constant, 1.0, variance)
    correlation = (deviation[:, :-1] * deviation[:, 1:]).mean(axis=(0, 1)) / variance  # at lag 1
    first = (deviation[:, 0] ** 2).mean(axis=0) / variance
    return ~constant & ((correlation > CORRELATED) | (first > UNSETTLED))
