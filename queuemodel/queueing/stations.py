"""Stations, classes of customers, and phase-type service times: absorption times of small Markov chains."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from ..base.checks import by_keyword, require_choice, require_count, require_name, require_number
from ..base.errors import ModelError

#: Most phases of a service time; every exact chain is hopeless with more.
MOST_PHASES = 100
#: Longest service (seconds): no step takes a week, a longer time is a mistake of units.
LONGEST_SERVICE = 7 * 24 * 3600.0
#: Largest squared coefficient of variation; larger ones are taken for a mistake.
LARGEST_SCV = 1e6
#: Processor sharing; first come, first served; last come, first served with preemption.
DISCIPLINES = ("ps", "fcfs", "lifo-pr")
STATION_SYNONYMS = {"fifo": "fcfs", "lcfs": "lifo-pr", "lcfs-pr": "lifo-pr", "lifo": "lifo-pr", "round-robin": "ps"}
#: Largest population; the recursion takes about a second per million customers and station.
LARGEST_POPULATION = 10_000_000


@by_keyword
@dataclass(frozen=True, slots=True)
class PhaseType:
    """A phase-type distribution: start in phase i with probability alpha[i], move by the subgenerator T, end.

    Parameters
    ----------
    alpha : sequence of float, shape (n,)
        Probabilities of the first phase; they sum to one.
    T : sequence of sequences, shape (n, n)
        Rates (1/s) between phases; rows sum to zero or less, and every phase leads to the end.

    Raises
    ------
    ModelError
        When these are no probabilities or no rates.

    Examples
    --------
    >>> PhaseType.from_moments(mean=0.05, scv=0.25).scv
    0.25
    """

    alpha: tuple[float, ...]
    T: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        a, T = number_array(self.alpha, "phase-type: alpha"), number_array(self.T, "phase-type: T")
        n = a.size
        if a.ndim != 1 or not 1 <= n <= MOST_PHASES or T.shape != (n, n):
            raise ModelError(
                f"phase-type: alpha needs 1 to {MOST_PHASES} phases and T that many rows and columns, "
                f"got shapes {a.shape} and {T.shape}"
            )
        if (a < 0).any() or not abs(a.sum() - 1) <= 1e-9:
            raise ModelError(f"phase-type: alpha must be probabilities that sum to 1, got sum {a.sum():.10g}")
        out = -T.diagonal()
        if not ((out > 0).all() and (T + np.diag(out) >= 0).all() and (T.sum(axis=1) <= 1e-9 * out).all()):
            raise ModelError("phase-type: T needs a negative diagonal, rates >= 0 elsewhere and rows that sum to <= 0")
        if (out > 1e15).any() or (out < 1e-9).any():
            raise ModelError("phase-type: rates in T must be 1e-9 to 1e15 per second")
        object.__setattr__(self, "alpha", tuple(float(x) for x in a / a.sum()))
        object.__setattr__(self, "T", tuple(tuple(float(x) for x in row) for row in T))
        with np.errstate(all="ignore"):
            ends = np.linalg.matrix_rank(T) == n
        if not ends or not 0 < self.mean < 1e9:
            raise ModelError("phase-type: T must lead to the end from every phase (it is singular)")

    @property
    def mean(self) -> float:
        """Mean, seconds."""
        return float(np.array(self.alpha) @ np.linalg.solve(-np.array(self.T), np.ones(len(self.alpha))))  # -a T^-1 1

    @property
    def scv(self) -> float:
        """Squared coefficient of variation."""
        T = -np.array(self.T)
        second = float(2 * np.array(self.alpha) @ np.linalg.solve(T, np.linalg.solve(T, np.ones(len(T)))))
        return max(0.0, round(second / self.mean**2 - 1, 14))  # E(S^2) = 2 alpha T^-2 1

    @property
    def exit_rates(self) -> np.ndarray:
        """Rates (1/s) at which each phase ends the service, shape (n,)."""
        return np.maximum(-np.array(self.T).sum(axis=1), 0.0)

    @classmethod
    def exponential(cls, mean: float) -> PhaseType:
        """One phase."""
        return cls((1.0,), ((-1.0 / require_number(mean, "phase-type: mean", unit="seconds", positive=True),),))

    @classmethod
    def from_moments(cls, *, mean: float, scv: float) -> PhaseType:
        """Two moments: a mixture of Erlang(k-1) and Erlang(k) below 1, balanced-means hyperexponential above.

        Both are the usual fits (Tijms, 1994). An scv below 0.01 would need more than 100 phases and is refused.
        """
        mean = require_number(mean, "phase-type: mean", unit="seconds", positive=True)
        scv = require_number(scv, "phase-type: scv", unit="(squared coefficient of variation)")
        if scv < 1 / MOST_PHASES:
            raise ModelError(f"phase-type: scv must be at least {1 / MOST_PHASES:g} to have phases, got {scv!r}")
        if abs(scv - 1) < 1e-12:
            return cls.exponential(mean)
        if scv > 1:
            p = 0.5 * (1 + math.sqrt((scv - 1) / (scv + 1)))  # p / rate_1 = (1 - p) / rate_2
            return cls((p, 1 - p), ((-2 * p / mean, 0.0), (0.0, -2 * (1 - p) / mean)))
        k = max(2, math.ceil(1 / scv - 1e-9))
        p = (k * scv - math.sqrt(max(k * (1 + scv) - k * k * scv, 0.0))) / (1 + scv)  # 1/k <= scv <= 1/(k-1)
        p = min(max(p, 0.0), 1.0)
        rate = (k - p) / mean
        T = np.diag([-rate] * k) + np.diag([rate] * (k - 1), 1)
        return cls((1 - p, p, *[0.0] * (k - 2)), tuple(map(tuple, T)))  # with probability p one phase less


def number_array(value: Any, what: str, kind: str = "an array of numbers") -> np.ndarray:
    """A float array, NaN and infinity included, or a `ModelError`."""
    try:
        array = np.array(value)
        if array.dtype.kind in "iuf":
            return array.astype(float)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ModelError(f"{what}: must be {kind}, got {value!r}")


@by_keyword
@dataclass(frozen=True, slots=True)
class Station:
    """A place where customers queue for service (times in seconds).

    Parameters
    ----------
    name : str
        Unique within its network.
    service_time : float or mapping from class names
        Mean seconds of service per visit; finite and >= 0. Optional beside ``distribution`` or ``rates``.
    visit_ratio : float or mapping from class names, default 1
        Mean visits per cycle; finite and >= 0. A class that a mapping leaves out does not come here.
    servers : int or math.inf, default 1
        ``math.inf`` makes a delay station, without queueing.
    discipline : {"ps", "fcfs", "lifo-pr"}, default "ps"
        Processor sharing, first come first served, or last come first served with preemption.
    scv : float or mapping from class names, default 1
        Squared coefficient of variation of the service time; matters only under "fcfs".
    distribution : PhaseType or mapping from class names, optional
        The whole distribution of the service time; sets ``service_time`` and ``scv``.
    rates : sequence of float, optional
        Makes the station load-dependent: with n customers it completes ``rates[n-1]`` divided by ``service_time``
        visits per second. Leave ``service_time`` out (it is then 1 s) to give completions per second. A last element
        ``...`` repeats the one before it for any number of customers.

    Raises
    ------
    ModelError
        When a value is negative, NaN, infinite where it must not be, or absurd.

    Examples
    --------
    >>> Station("disk", service_time=0.02, visit_ratio=5).service_demand
    0.1
    """

    name: str
    _: KW_ONLY
    service_time: float | Mapping[str, float] = None  # type: ignore[assignment]  # checked to be there
    visit_ratio: float | Mapping[str, float] = 1.0
    servers: float = 1
    discipline: str = "ps"
    scv: float | Mapping[str, float] = 1.0
    distribution: PhaseType | Mapping[str, PhaseType] | None = None
    rates: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        where, put = f"station {require_name(self.name, 'station')!r}", object.__setattr__
        if self.distribution is not None:
            _take_distribution(self, where)
        elif self.service_time is None and self.rates is not None:
            put(self, "service_time", 1.0)
        time = require_numbers(self.service_time, f"{where}: service_time", unit="seconds")
        longest = max(time.values()) if isinstance(time, PerClass) else time
        if longest > LONGEST_SERVICE:
            raise ModelError(
                f"{where}: service_time must be below a week, got {longest!r} seconds; "
                "traces are often in microseconds, so convert when reading them"
            )
        put(self, "service_time", time)
        if type(self.visit_ratio) is not float or self.visit_ratio != 1.0:
            put(self, "visit_ratio", require_numbers(self.visit_ratio, f"{where}: visit_ratio", unit="visits/cycle"))
        if self.scv != 1.0:
            put(self, "scv", require_numbers(self.scv, f"{where}: scv", unit="(squared)", largest=LARGEST_SCV))
        if self.servers.__class__ is not int or self.servers != 1:
            put(self, "servers", require_servers(self.servers, where))
        if self.discipline not in DISCIPLINES:
            require_choice(self.discipline, f"{where}: discipline", DISCIPLINES, called=STATION_SYNONYMS)
        if self.rates is not None:
            if self.servers != 1:
                raise ModelError(f"{where}: rates replace servers, so servers must be 1, got {self.servers!r}")
            put(self, "rates", _rate_values(self.rates, where))

    @property
    def is_delay(self) -> bool:
        """Whether this is a station without queueing."""
        return self.servers == math.inf

    @property
    def service_demand(self) -> float:
        """Seconds of service per cycle, visit ratio times service time (of a station without classes)."""
        if isinstance(self.visit_ratio, Mapping) or isinstance(self.service_time, Mapping):
            raise ModelError(f"station {self.name!r}: service demands differ by class; use the network's")
        return self.visit_ratio * self.service_time  # D = V S

    def distribution_of(self, job_class: str | None) -> PhaseType | None:
        """The phase-type distribution of a class, or None."""
        shapes = self.distribution
        return shapes.get(job_class) if isinstance(shapes, Mapping) else shapes  # type: ignore[arg-type]

    def shape_of(self, job_class: str | None) -> PhaseType | None:
        """The distribution of a class, or a fit of its two moments; None where service takes no time."""
        shape, mean = self.distribution_of(job_class), self.time_of(job_class)
        return PhaseType.from_moments(mean=mean, scv=self.scv_of(job_class)) if not shape and mean > 0 else shape

    def scv_of(self, job_class: str | None) -> float:
        """Squared coefficient of variation of a class's service time."""
        return number_of(self.scv, job_class, 1.0)

    def time_of(self, job_class: str | None) -> float:
        """Mean seconds of a class's service per visit."""
        return number_of(self.service_time, job_class, 0.0)

    @property
    def kind(self) -> str:
        """Discipline, rates and servers in a few words."""
        if self.is_delay:
            return "delay"
        if self.rates is not None:
            return f"{self.discipline}, load-dependent"
        return self.discipline + (f", {self.servers:g} servers" if self.servers > 1 else "")

    def speeds(self, customers: int) -> np.ndarray:
        """Speeds with 1, 2, ... ``customers``, over rate 1, shape (customers,); the last of the rates repeats."""
        if self.rates is None:
            return np.minimum(np.arange(1.0, customers + 1), self.servers)  # mu(n) = min(n, m)
        listed = [rate for rate in self.rates if rate is not ...]
        return np.array([*listed, *[listed[-1]] * (customers - len(listed))][:customers])

    @property
    def listed_speeds(self) -> np.ndarray:
        """Speeds up to the last one, which repeats: one for each of the rates or servers."""
        return self.speeds(int(self.servers) if self.rates is None else len(self.rates))

    def why_not_product_form(self, visiting: Sequence[str | None]) -> str | None:
        """The condition of product form (Baskett, Chandy, Muntz and Palacios, 1975; Kelly, 1979) that fails, or None.

        Where customers wait in order (first come first served, several preempted servers), service must be exponential
        and the same for all; elsewhere it may be any.
        """
        ordered = self.discipline == "fcfs" or (self.discipline == "lifo-pr" and self.servers > 1)
        if self.is_delay or not ordered:
            return None
        how = "first come first served" if self.discipline == "fcfs" else "last come first served by several servers"
        where = f"station {self.name!r} is {how}"
        for label in visiting:
            shape = self.distribution_of(label)
            if abs(self.scv_of(label) - 1.0) > 1e-9 or (shape is not None and len(shape.alpha) > 1):
                return f"{where} with a service time that is not exponential"
        times = [self.time_of(label) for label in visiting]
        if times and max(times) - min(times) > 1e-12 * max(times):
            return f"{where} with service times that differ by class"
        return None


def _take_distribution(station: Any, where: str) -> None:
    shapes, put = station.distribution, object.__setattr__
    several = isinstance(shapes, Mapping)
    for value in shapes.values() if several else [shapes]:
        if not isinstance(value, PhaseType):
            raise ModelError(f"{where}: distribution must be a PhaseType or a mapping to them, got {value!r}")
    put(station, "distribution", PerClass(shapes) if several else shapes)
    for name, moment, unset in (("service_time", "mean", None), ("scv", "scv", 1.0)):
        own = {c: getattr(d, moment) for c, d in shapes.items()} if several else getattr(shapes, moment)
        if getattr(station, name) not in (unset, own):  # its own: `replace` of another field
            raise ModelError(f"{where}: distribution specifies service_time and scv already; give only one of them")
        put(station, name, own)


def _rate_values(rates: Any, where: str) -> tuple[Any, ...]:
    if isinstance(rates, str | bytes | Mapping) or not isinstance(rates, Sequence | np.ndarray) or not len(rates):
        raise ModelError(f"{where}: rates must be a list of numbers, got {rates!r}")
    repeats = len(rates) > 1 and (rates[-1] is ... or (isinstance(rates[-1], str) and rates[-1] == "..."))
    listed = [
        require_number(r, f"{where}: rates[{n}]", unit="(a rate)", positive=True, largest=1e15)
        for n, r in enumerate(rates[:-1] if repeats else rates)
    ]
    return (*listed, ...) if repeats else tuple(listed)


@by_keyword
@dataclass(frozen=True, slots=True)
class JobClass:
    """A class of customers: closed, with a population, or open, with an arrival rate.

    Parameters
    ----------
    name : str
        Unique within its network; stations name it in their mappings.
    population : int, default 1
        Customers of a closed class, >= 0.
    think_time : float, optional
        Seconds per cycle outside all stations; the network's think time unless given.
    arrival_rate : float, optional
        Makes the class open: its customers arrive by a Poisson process of this rate (1/s), and leave after one cycle.

    Raises
    ------
    ModelError
        When the population is not a whole number >= 0, the think time is negative or not finite, the arrival rate is
        not > 0, or there is a population or a think time beside an arrival rate.

    Examples
    --------
    >>> JobClass("fast worker", population=4, think_time=0.2).population
    4
    >>> JobClass("requests", arrival_rate=3.0).is_open
    True
    """

    name: str
    _: KW_ONLY
    population: int = None  # type: ignore[assignment]  # 1 of a closed class, 0 of an open one
    think_time: float | None = None
    arrival_rate: float | None = None

    def __post_init__(self) -> None:
        where, put = f"class {require_name(self.name, 'class')!r}", object.__setattr__
        if self.population is None:
            put(self, "population", 0 if self.is_open else 1)
        N = require_count(self.population, f"{where}: population", least=0, most=LARGEST_POPULATION)
        put(self, "population", N)
        if self.think_time is not None:
            put(self, "think_time", require_number(self.think_time, f"{where}: think_time", unit="seconds"))
        if self.is_open:
            rate = require_number(self.arrival_rate, f"{where}: arrival_rate", unit="(1/s)", positive=True)
            put(self, "arrival_rate", rate)
            if N or self.think_time is not None:
                raise ModelError(f"{where}: has an arrival_rate, so it is open: leave out population and think_time")

    @property
    def is_open(self) -> bool:
        """Whether its customers arrive and leave."""
        return self.arrival_rate is not None


class PerClass(dict[str, float]):
    """Numbers by class name, hashable because immutable."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def require_numbers(value: Any, what: str, **limits: Any) -> float | PerClass:
    """A number, or a mapping from class names to numbers, each checked by `require_number`."""
    if type(value) is float or not isinstance(value, Mapping):  # the usual case, kept fast
        return require_number(value, what, **limits)
    if not value:
        raise ModelError(f"{what} must name at least one class, got {value!r}")
    for name in value:
        if not isinstance(name, str) or not name:
            raise ModelError(f"{what}: class names must be texts that are not empty, got {name!r}")
    return PerClass({name: require_number(v, f"{what}[class {name!r}]", **limits) for name, v in value.items()})


def require_servers(servers: Any, what: str) -> float:
    number = isinstance(servers, numbers.Real) and not isinstance(servers, bool)
    if number and (servers == math.inf or (1 <= servers <= 1_000_000 and servers == int(servers))):
        return math.inf if servers == math.inf else int(servers)
    raise ModelError(
        f"{what}: servers must be a whole number, 1 to 1,000,000, or math.inf for a delay station, got {servers!r}"
    )


def number_of(value: float | Mapping[str, float] | None, name: str | None, missing: float) -> float:
    """The number of class ``name``: common to all classes, by class, or ``missing``."""
    if type(value) is float:  # the usual case, kept fast
        return value
    if isinstance(value, PerClass):
        return missing if name is None else value.get(name, missing)
    return missing if value is None else float(value)  # type: ignore[arg-type]
