"""Stations: places of service in a closed queueing network."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from ..checks import require_name, require_number
from ..errors import ModelError
from .phasetype import PhaseType
from .values import PerClass, number_of, require_numbers, require_servers

#: Service longer than this is taken for a mistake of units: nobody trains with steps of a week.
LONGEST_SERVICE = 7 * 24 * 3600.0

#: Processor sharing; first come first served; last come first served, preempting and resuming.
DISCIPLINES = ("ps", "fcfs", "lifo-pr")


@dataclass(frozen=True, slots=True)
class Station:
    """A place where customers queue for service (times in seconds).

    Parameters
    ----------
    name : str
        Unique within its network.
    service_time : float or mapping from class names
        Mean seconds of service per visit; finite and >= 0. May be left out where ``distribution`` or ``rates`` say it.
    visit_ratio : float or mapping from class names, default 1
        Mean visits per cycle; finite and >= 0. A class that a mapping leaves out does not come here.
    servers : int or math.inf, default 1
        ``math.inf`` makes a delay station, where nobody ever queues.
    discipline : {"ps", "fcfs", "lifo-pr"}, default "ps"
        Processor sharing, first come first served, or last come first served with preemption.
    scv : float or mapping from class names, default 1
        Squared coefficient of variation of the service time; matters only under "fcfs".
    distribution : PhaseType or mapping from class names, optional
        The whole distribution of the service time; sets ``service_time`` and ``scv``.
    rates : sequence or callable, optional
        Makes the station load-dependent: with n customers it completes ``rates[n-1]`` (or ``rates(n)``) divided by
        ``service_time`` visits per second. Leave ``service_time`` out (it is then 1 s) to give completions per second.

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
    rates: Sequence[float] | Callable[[int], float] | None = None

    def __post_init__(self) -> None:
        require_name(self.name, "station")
        where = f"station {self.name!r}"
        put = object.__setattr__
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
        put(self, "visit_ratio", require_numbers(self.visit_ratio, f"{where}: visit_ratio", unit="visits per cycle"))
        if self.scv != 1.0:
            put(self, "scv", require_numbers(self.scv, f"{where}: scv", unit="(squared)", largest=1e6))
        if self.servers.__class__ is not int or self.servers != 1:
            put(self, "servers", require_servers(self.servers, where))
        if not isinstance(self.discipline, str) or self.discipline not in DISCIPLINES:
            raise ModelError(f"{where}: discipline must be one of {', '.join(DISCIPLINES)}, got {self.discipline!r}")
        if self.rates is not None:
            if self.servers != 1:
                raise ModelError(f"{where}: rates say how speed grows, so servers must be 1, got {self.servers!r}")
            if not callable(self.rates):
                put(self, "rates", _rate_values(self.rates, where))

    @property
    def is_delay(self) -> bool:
        """Whether nobody ever queues here."""
        return self.servers == math.inf

    @property
    def service_demand(self) -> float:
        """Seconds of service per cycle, visit ratio times service time (of a station without classes)."""
        if isinstance(self.visit_ratio, Mapping) or isinstance(self.service_time, Mapping):
            raise ModelError(f"station {self.name!r}: service demands differ by class; ask the network for them")
        return self.visit_ratio * self.service_time

    def distribution_of(self, job_class: str | None) -> PhaseType | None:
        """The phase-type distribution given for a class, or None."""
        if isinstance(self.distribution, Mapping):
            return None if job_class is None else self.distribution.get(job_class)
        return self.distribution

    def scv_of(self, job_class: str | None) -> float:
        """Squared coefficient of variation of a class's service time."""
        return number_of(self.scv, job_class, 1.0)

    def rate(self, customers: int) -> float:
        """How many times faster than with ``rates`` 1 the station works with so many customers, >= 1.

        Raises
        ------
        ModelError
            When `rates` is too short, or gives zero, a negative number or no number.
        """
        if self.rates is None:
            return float(min(customers, self.servers))
        if not callable(self.rates):
            if customers > len(self.rates):
                raise ModelError(
                    f"station {self.name!r}: rates has {len(self.rates)} values, but {customers} customers can be "
                    "here; give one rate for each, or a function"
                )
            return self.rates[customers - 1]
        what = f"station {self.name!r}: rates({customers})"
        try:
            value = self.rates(customers)
        except Exception as error:
            raise ModelError(f"{what} raised {type(error).__name__}: {error}") from error
        return require_number(value, what, unit="(a rate)", positive=True, largest=1e15)


@dataclass(frozen=True, slots=True)
class ForkJoin(Station):
    """A station that splits a customer into parallel tasks, each with its own queue, and waits for the slowest.

    A step that needs every shard of the parameters is one: it goes on when its slowest shard has answered. Its
    utilization is that of the busiest branch. No exact solution is known but the Markov chain; see `solve`.

    Parameters
    ----------
    name : str
    service_times : sequence of float
        Mean seconds of service of each branch, >= 0, at least one.
    visit_ratio, scv
        As of `Station`; ``scv`` is of each branch. Branches serve first come first served.

    Examples
    --------
    >>> ForkJoin("shards", service_times=[0.02, 0.03]).service_time
    0.03
    """

    service_times: Sequence[float] = ()

    def __post_init__(self) -> None:
        where = f"station {self.name!r}"
        times = self.service_times
        if isinstance(times, str | bytes | Mapping) or not isinstance(times, Sequence | np.ndarray) or not len(times):
            raise ModelError(f"{where}: service_times must be a list with a time for each branch, got {times!r}")
        if len(times) > 1000:
            raise ModelError(f"{where}: service_times must be at most 1000 branches, got {len(times)}")
        if self.servers != 1 or self.rates is not None or self.distribution is not None:
            raise ModelError(f"{where}: a fork-join takes service_times, not servers, rates or a distribution")
        checked = tuple(
            require_number(t, f"{where}: service_times[{b}]", unit="seconds", largest=LONGEST_SERVICE)
            for b, t in enumerate(times)
        )
        if isinstance(self.visit_ratio, Mapping) or isinstance(self.scv, Mapping):
            raise ModelError(f"{where}: a fork-join has the same visit_ratio and scv for every class")
        if self.service_time is not None and self.service_time != max(checked):
            raise ModelError(f"{where}: service_time follows from service_times, got {self.service_time!r}")
        object.__setattr__(self, "service_times", checked)
        object.__setattr__(self, "service_time", max(checked))
        object.__setattr__(self, "discipline", "fcfs")
        Station.__post_init__(self)


def _take_distribution(station: Station, where: str) -> None:
    given = station.distribution
    named = given if isinstance(given, Mapping) else {"": given}
    for value in named.values():
        if not isinstance(value, PhaseType):
            raise ModelError(f"{where}: distribution must be a PhaseType or a mapping to them, got {value!r}")
    if station.service_time is not None or station.scv != 1.0:
        raise ModelError(f"{where}: distribution says service_time and scv already; give only one of them")
    if not isinstance(given, Mapping):
        object.__setattr__(station, "service_time", named[""].mean)
        object.__setattr__(station, "scv", named[""].scv)
        return
    object.__setattr__(station, "service_time", {c: d.mean for c, d in given.items()})
    object.__setattr__(station, "scv", {c: d.scv for c, d in given.items()})
    object.__setattr__(station, "distribution", PerClass(given))


def _rate_values(rates: Any, where: str) -> tuple[float, ...]:
    if isinstance(rates, str | bytes | Mapping) or not isinstance(rates, Sequence | np.ndarray) or not len(rates):
        raise ModelError(f"{where}: rates must be a list of numbers or a function of the customers, got {rates!r}")
    return tuple(
        require_number(r, f"{where}: rates[{n}]", unit="(a rate)", positive=True, largest=1e15)
        for n, r in enumerate(rates)
    )
