"""A closed queueing network: stations, classes, think times and routing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np

from ..checks import require_name, require_number
from ..errors import DataError, ModelError
from ..files import read_bytes, write_atomically
from .jobclass import JobClass
from .place import Place
from .routing import require_routing, visits_and_chains
from .values import SHORTEST_CYCLE, number_of


@dataclass(frozen=True, slots=True)
class Network:
    """A closed network of stations, with one kind of customer or several classes.

    Parameters
    ----------
    stations : iterable of Station and ForkJoin
        At least one; names are unique.
    classes : iterable of JobClass, default none
        Without classes all customers are alike, and their number is given when solving.
    think_time : float, default 0
        Seconds per cycle that a customer spends outside all stations (of classes that do not say their own).
    routing : matrix or mapping, optional
        Probabilities of going from one station (row) to another (column), instead of visit ratios: one matrix for
        everybody, ``{class: matrix}``, or ``{(from class, to class): matrix}`` where customers switch classes. A cycle
        then goes from one visit to the reference station to the next.
    reference : str, optional
        The reference station's name; the first station unless given.
    name : str, default ""

    Raises
    ------
    ModelError
        When there is no station, two share a name, a cycle would take no time at all, a class visits nothing, or the
        visit ratios given do not match the routing.

    Examples
    --------
    >>> network = Network([Station("cpu", service_time=0.2), Station("disk", service_time=0.1)], think_time=1.0)
    >>> network.service_demand
    array([0.2, 0.1])
    """

    stations: Sequence[Place]
    _: KW_ONLY
    classes: Sequence[JobClass] = ()
    think_time: float = 0.0
    routing: Any = None
    reference: str | None = None
    name: str = ""
    _visits: np.ndarray = field(init=False, repr=False, compare=False, hash=False)
    _chains: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "stations", _members(self.stations, Place, "stations", "station", "Station or ForkJoin"))
        if not self.stations:
            raise ModelError("network: at least one station is needed, got none")
        put(self, "classes", _members(self.classes, JobClass, "classes", "class", "JobClass"))
        put(self, "think_time", require_number(self.think_time, "network: think_time", unit="seconds"))
        if self.name != "":
            require_name(self.name, "network")
        names, classes = self.names, self.class_names
        if self.reference is not None and self.reference not in names:
            raise ModelError(f"network: reference must be one of its stations, got {self.reference!r}")
        _require_known_classes(self.stations, classes)
        put(self, "routing", require_routing(self.routing, names, classes))
        put(self, "_chains", tuple((c,) for c in range(max(1, len(classes)))))
        if not classes and self.routing is None:
            put(self, "_visits", np.array([[s.visit_ratio] for s in self.stations]))
        else:
            put(self, "_visits", self._given_visits())
            if self.routing is not None:
                given = self._visits
                V, chains = visits_and_chains(self.routing, names, classes, self._reference_index)
                _require_match(given, V, chains, names, classes)
                put(self, "_visits", V)
                put(self, "_chains", chains)
        self._visits.flags.writeable = False
        self._require_demands()

    def _given_visits(self) -> np.ndarray:
        return np.array([[number_of(s.visit_ratio, c, 0.0) for c in self._labels] for s in self.stations])

    def _require_demands(self) -> None:
        if not self.classes:
            D = sum([s.service_time * v for s, (v,) in zip(self.stations, self._visits.tolist(), strict=True)])
            if not D > 0:
                raise ModelError("network: all service demands are zero; give at least one station a service_time > 0")
            if D + self.think_time < SHORTEST_CYCLE:
                raise ModelError(f"network: a cycle takes {D:g} s, which must be at least {SHORTEST_CYCLE:g} seconds")
            return
        for k, station in enumerate(self.stations):
            for c, name in enumerate(self.class_names):
                times = station.service_time
                if self._visits[k, c] > 0 and isinstance(times, Mapping) and name not in times:
                    raise ModelError(
                        f"station {station.name!r}: class {name!r} visits it but has no service_time; "
                        "give it one, or leave it out of visit_ratio"
                    )
        if not self.service_demand.sum() > 0:
            raise ModelError("network: all service demands are zero; give at least one station a service_time > 0")
        for chain in self._chains:
            names = ", ".join(repr(self.class_names[c]) for c in chain)
            if not self._visits[:, chain].any():
                raise ModelError(f"network: class {names} visits no station; give it a visit_ratio > 0 somewhere")
            if self.service_demand[:, chain].sum() + self.think_times[list(chain)].sum() < SHORTEST_CYCLE:
                raise ModelError(f"network: a cycle of class {names} takes no time; give it service or think time > 0")

    @classmethod
    def from_demands(
        cls,
        demands: Any,
        *,
        think_time: Any = 0.0,
        servers: Any = 1,
        population: Any = None,
        discipline: str = "ps",
        name: str = "",
    ) -> Network:
        """A network of bare service demands: shape (K,), or (K, C) with the classes' populations and think times.

        Examples
        --------
        >>> Network.from_demands([[0.1, 0.2], [0.3, 0.0]], population=[2, 3], think_time=[1, 0]).class_names
        ['class 1', 'class 2']
        """
        from .arrays import network_from_demands

        return network_from_demands(
            demands, think_time=think_time, servers=servers, population=population, discipline=discipline, name=name
        )

    @property
    def names(self) -> list[str]:
        """The stations' names, in order."""
        return [station.name for station in self.stations]

    @property
    def class_names(self) -> list[str]:
        """The classes' names, in order; none when all customers are alike."""
        return [c.name for c in self.classes]

    @property
    def _labels(self) -> list[str | None]:
        return [c.name for c in self.classes] if self.classes else [None]

    @property
    def _reference_index(self) -> int:
        return 0 if self.reference is None else self.names.index(self.reference)

    @property
    def chains(self) -> tuple[tuple[int, ...], ...]:
        """Which classes (by index) customers switch between; a class that nobody leaves is a chain of its own."""
        return self._chains

    @property
    def visit_ratios(self) -> np.ndarray:
        """Visits per cycle, shape (K,), or (K, C) with classes; solved from the routing where one is given."""
        return self._visits if self.classes else self._visits[:, 0]

    @property
    def service_times(self) -> np.ndarray:
        """Seconds per visit, shape (K,), or (K, C) with classes."""
        if not self.classes:
            return np.array([s.service_time for s in self.stations], dtype=float)
        return np.array([[number_of(s.service_time, c, 0.0) for c in self._labels] for s in self.stations])

    @property
    def service_demand(self) -> np.ndarray:
        """Service demands in seconds per cycle, shape (K,), or (K, C) with classes."""
        return self.visit_ratios * self.service_times

    @property
    def think_times(self) -> np.ndarray:
        """Seconds per cycle outside all stations, shape (1,), or (C,) with classes."""
        if not self.classes:
            return np.array([self.think_time])
        return np.array([self.think_time if c.think_time is None else c.think_time for c in self.classes])

    @property
    def populations(self) -> np.ndarray:
        """The classes' populations, shape (C,); empty without classes."""
        return np.array([c.population for c in self.classes], dtype=int)

    @property
    def is_delay(self) -> np.ndarray:
        """Which stations are delays, shape (K,)."""
        return np.array([station.is_delay for station in self.stations])

    def to_dict(self) -> dict[str, Any]:
        """The documented JSON form (docs/reference/network-json)."""
        from .document import to_document

        return to_document(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON form to ``path``, all of it or nothing."""
        write_atomically(path, json.dumps(self.to_dict(), indent=1) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Network:
        """Read the JSON form.

        Raises
        ------
        DataError
            When the file cannot be read, or is not such a network; names the file and the field.
        """
        return cls.from_json(read_bytes(path), where=str(path))

    @classmethod
    def from_json(cls, text: str | bytes, *, where: str = "network JSON") -> Network:
        """Parse the JSON form; ``where`` names the source in error messages."""
        from .document import from_document

        return from_document(text, where)

    def __repr__(self) -> str:
        from .diagram import describe

        return describe(self)

    def _repr_html_(self) -> str:
        from .diagram import html

        return html(self)

    def _repr_svg_(self) -> str:
        from .diagram import svg

        return svg(self)


def _members(values: Any, kind: type, what: str, one: str, shown: str) -> tuple[Any, ...]:
    if isinstance(values, (kind, str, bytes)) or not isinstance(values, Iterable):
        raise ModelError(f"network: {what} must be a list of {shown}, got {values!r}")
    members = tuple(values)
    seen = set()
    for member in members:
        if not isinstance(member, kind):
            raise ModelError(f"network: {what} must be {shown} values, got {member!r}")
        if member.name in seen:  # type: ignore[attr-defined]
            raise ModelError(f"network: {one} names must be unique, got {member.name!r} more than once")  # type: ignore[attr-defined]
        seen.add(member.name)  # type: ignore[attr-defined]
    return members


def _require_known_classes(stations: Sequence[Place], classes: Sequence[str]) -> None:
    known = set(classes)
    for station in stations:
        for what in ("service_time", "visit_ratio", "scv", "distribution"):
            value = getattr(station, what)
            if isinstance(value, Mapping):
                for name in value:
                    if name not in known:
                        have = ", ".join(map(repr, classes)) or "none"
                        raise ModelError(
                            f"station {station.name!r}: {what} names class {name!r}, but the classes are: {have}"
                        )


def _require_match(
    given: np.ndarray, V: np.ndarray, chains: Sequence[Sequence[int]], stations: Sequence[str], classes: Sequence[str]
) -> None:
    """Visit ratios given beside a routing must be proportional to it in each chain; all 1 is the default."""
    if np.all(given == 1.0):
        return
    for chain in chains:
        part, routed = given[:, chain], V[:, chain]
        with np.errstate(all="ignore"):
            factor = part.sum() / routed.sum()
        for k, c in zip(*np.nonzero(np.abs(part - factor * routed) > 1e-6 * max(part.max(), 1e-300)), strict=True):
            who = f", class {classes[chain[c]]!r}" if classes else ""
            raise ModelError(
                f"station {stations[k]!r}{who}: visit_ratio {part[k, c]:.6g} does not match the routing, which gives "
                f"{factor * routed[k, c]:.6g}; leave one of them out"
            )


def require_format(format: str, version: int, expected: str, known: int) -> None:
    """Refuse another format, and one newer than this package knows (raises DataError, which the decoder places)."""
    if format != expected:
        raise DataError(f"format must be {expected!r}, got {format!r}")
    if not 1 <= version <= known:
        raise DataError(f"version must be 1 to {known}, got {version}; a newer queuemodel may read it")
