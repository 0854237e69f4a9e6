"""Stations: queues with one server or several, and delays, which have infinitely many."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from ..checks import require_choice, require_name, require_number
from ..errors import ModelError
from .phasetype import PhaseType
from .place import LARGEST_SCV, LONGEST_SERVICE, Place
from .values import PerClass, require_numbers, require_servers

#: Processor sharing; first come first served; last come first served, preempting and resuming.
DISCIPLINES = ("ps", "fcfs", "lifo-pr")


@dataclass(frozen=True, slots=True)
class Station(Place):
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
            put(self, "scv", require_numbers(self.scv, f"{where}: scv", unit="(squared)", largest=LARGEST_SCV))
        if self.servers.__class__ is not int or self.servers != 1:
            put(self, "servers", require_servers(self.servers, where))
        require_choice(self.discipline, f"{where}: discipline", DISCIPLINES)
        if self.rates is not None:
            if self.servers != 1:
                raise ModelError(f"{where}: rates say how speed grows, so servers must be 1, got {self.servers!r}")
            if not callable(self.rates):
                put(self, "rates", _rate_values(self.rates, where))

    @property
    def kind(self) -> str:
        """What it is, in a few words."""
        if self.is_delay:
            return "delay"
        if self.rates is not None:
            return f"{self.discipline}, load-dependent"
        return self.discipline + (f", {self.servers:g} servers" if self.servers > 1 else "")

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

    def fastest(self, customers: int) -> float:
        """The highest speed with up to so many customers; infinite where nobody queues."""
        return self.servers if self.rates is None else max(self.rate(n) for n in range(1, customers + 1))

    def why_not_product_form(self, visiting: Sequence[str | None]) -> str | None:
        """What product form (Baskett, Chandy, Muntz and Palacios, 1975; Kelly, 1979) lacks here, or None.

        Processor sharing, delays and one server that is preempted have it whatever the service; where the order says
        who waits, service must be exponential and the same for all. Several preempted servers are of that kind: who
        comes takes a server from one of several.
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
