"""Networks of stations and classes; visit ratios and chains from routing matrices."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np

from ..base.checks import by_keyword, one_line, require_name, require_number
from ..base.errors import DataError, ModelError
from ..base.files import read_bytes
from ..base.results import Result
from .json_format import DAMAGE, from_document, to_document
from .stations import JobClass, PerClass, Station, number_array, number_of

#: Shortest cycle (seconds): a shorter one is a mistake, and would overflow throughputs.
SHORTEST_CYCLE = 1e-15


def _routing(routing: Any, K: int, classes: Sequence[str]) -> Any:
    """Check a routing among K stations, and make its matrices immutable."""
    if routing is None:
        return None
    if not isinstance(routing, Mapping):
        return _matrix(routing, "routing", K)
    if not classes:
        raise ModelError("routing: a mapping names classes, but the network has none; give one matrix")
    if not routing:
        raise ModelError("routing: the mapping is empty; give a matrix for each class")
    checked = {}
    for key, value in routing.items():
        pair = key if isinstance(key, tuple) else (key, key)
        if len(pair) != 2 or not all(isinstance(name, str) and name in classes for name in pair):
            raise ModelError(f"routing: keys must be classes or pairs of classes of the network, got {key!r}")
        if pair in checked:
            raise ModelError(f"routing: class pair {pair!r} is given twice")
        checked[pair] = _matrix(value, f"routing[{key!r}]", K)
    return checked


def _matrix(value: Any, where: str, K: int) -> tuple[tuple[float, ...], ...]:
    P = number_array(value, where, f"a matrix of probabilities, {K} rows of {K} numbers")
    if P.shape != (K, K):
        raise ModelError(f"{where}: must have {K} rows and columns, one per station, got shape {P.shape}")
    if not ((P >= 0) & (P <= 1 + 1e-9)).all():
        raise ModelError(f"{where}: must be probabilities, 0 to 1")
    return tuple(map(tuple, P.tolist()))


def _reachable(edges: np.ndarray, start: int) -> list[int]:
    """Indices that lead from ``start`` along edges (n, n) of row to column, breadth first."""
    reached = wave = np.arange(len(edges)) == start
    while wave.any():
        wave = edges[wave].any(axis=0) & ~reached
        reached = reached | wave
    return np.flatnonzero(reached).tolist()


def _visits_and_chains(network: Network) -> tuple[np.ndarray, tuple[tuple[int, ...], ...]]:
    """Visit ratios (K, C), in all 1 per chain at the reference, and chains (classes that customers switch between)."""
    for station in network.stations:
        if any(number_of(station.visit_ratio, c, 0.0) != 1.0 for c in network.labels):
            raise ModelError(f"station {station.name!r}: visit_ratio follows from the routing; leave one of them out")
    full = network.transitions
    C, K = full.shape[:2]
    switches, V = np.asarray(full.any(axis=(1, 3))), np.zeros((K, C))
    chains = tuple(dict.fromkeys(tuple(_reachable(switches | switches.T, start)) for start in range(C)))
    is_open = network.arrival_rates > 0
    for chain in chains:
        if is_open[list(chain)].any():
            if len(chain) > 1:
                names = ", ".join(repr(network.class_names[c]) for c in chain)
                raise ModelError(f"routing: customers switch between classes {names}, so all of them must be closed")
            V[:, chain[0]] = _open_visits(network, full[chain[0], :, chain[0], :], chain[0])
        else:
            V[:, chain] = _chain_visits(network, full[np.ix_(chain, range(K), chain, range(K))], chain)
    return V, chains


def _open_visits(network: Network, P: np.ndarray, c: int) -> np.ndarray:
    """Solve the traffic equations v = e + v P of an open class that arrives at the reference station, shape (K,)."""
    v, at = np.zeros(len(P)), network.reference_index
    reached = _reachable(P > 0, at)
    part = P[np.ix_(reached, reached)]
    if np.abs(np.linalg.eigvals(part)).max() > 1 - 1e-9:  # I - P is singular: a closed subset of stations
        raise ModelError(
            f"routing of class {network.class_names[c]!r}: its customers never leave; a row must sum to < 1"
        )
    v[reached] = np.linalg.solve(np.eye(len(part)) - part.T, np.equal(reached, at).astype(float))
    return v


def _chain_visits(network: Network, P: np.ndarray, chain: tuple[int, ...]) -> np.ndarray:
    """Solve v = v P on the states (class, station) of one chain that can be reached from the reference station."""
    C, K = P.shape[:2]
    flat, names = P.reshape(C * K, C * K), network.names
    start = [c * K + network.reference_index for c in range(C)]
    routing = f"routing of class {network.class_names[chain[0]]!r}" if network.classes else "routing"
    at = [s for s in start if flat[s].any() or flat[:, s].any()]
    if not at:
        raise ModelError(f"{routing}: no customer visits the reference station {names[start[0]]!r}; name another one")
    states = _reachable(flat > 0, at[0])
    part = flat[np.ix_(states, states)]
    for s, total in zip(states, part.sum(axis=1), strict=True):
        if abs(total - 1) > 1e-9:
            raise ModelError(f"{routing}: customers come to station {names[s % K]!r} and never leave (its row is 0)")
    A = np.vstack([part.T - np.eye(len(states)), np.isin(states, start)])  # v P = v, sum of v at the reference = 1
    b = np.append(np.zeros(len(states)), 1.0)
    v, _, rank, _ = np.linalg.lstsq(A, b, rcond=None)
    if rank < len(states) or np.abs(A @ v - b).max() > 1e-8 or v.min() < -1e-9:
        raise ModelError(
            f"{routing}: has no unique visit ratios; every station visited must lead back to the reference"
        )
    V = np.zeros(C * K)
    V[states] = np.where(v < 1e-13, 0.0, v)
    return V.reshape(C, K).T


@by_keyword
@dataclass(frozen=True, slots=True, repr=False)
class Network(Result):
    """A network of stations, with one class of customers or several, closed, open or both (mixed).

    Parameters
    ----------
    stations : iterable of Station
        At least one; names are unique.
    classes : iterable of JobClass, default none
        Without them there is one class, and `solve` takes its population.
    think_time : float, default 0
        Seconds per cycle that a customer spends outside all stations, where its class has no think time.
    routing : matrix or mapping, optional
        Probabilities of going from one station (row) to another (column), instead of visit ratios: one matrix for
        all classes, ``{class: matrix}``, or ``{(from class, to class): matrix}`` where customers switch classes. A
        cycle then goes from one visit to the reference station to the next. Open classes arrive at the reference
        station, and leave with the probability that a row lacks to 1.
    reference : str, optional
        The reference station's name; the first station unless given.
    name : str, default ""

    Attributes
    ----------
    class_visit_ratios : ndarray, shape (K, C)
        Visits per cycle; solved from a routing. C is 1 without classes, as for all *class_*.
    chains : tuple of tuple of int
        Indices of the classes that customers switch between; a class without exits is a chain by itself.

    Raises
    ------
    ModelError
        When there is no station, two share a name, a cycle would take no time at all, a class visits nothing, or
        there are visit ratios beside a routing.

    Examples
    --------
    >>> network = Network([Station("cpu", service_time=0.2), Station("disk", service_time=0.1)], think_time=1.0)
    >>> network.service_demand
    array([0.2, 0.1])
    """

    stations: Sequence[Station]
    _: KW_ONLY
    classes: Sequence[JobClass] = ()
    think_time: float = 0.0
    routing: Any = None
    reference: str | None = None
    name: str = ""
    class_visit_ratios: np.ndarray = field(init=False, repr=False, compare=False, hash=False)
    chains: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "stations", _members(self.stations, Station, "stations", "station"))
        if not self.stations:
            raise ModelError("network: at least one station is needed, got none")
        put(self, "classes", _members(self.classes, JobClass, "classes", "class"))
        put(self, "think_time", require_number(self.think_time, "network: think_time", unit="seconds"))
        if self.name != "":
            require_name(self.name, "network")
        classes, labels = self.class_names, self.labels
        if self.reference is not None and self.reference not in self.names:
            raise ModelError(f"network: reference must be one of its stations, got {self.reference!r}")
        _require_known_classes(self.stations, classes)
        put(self, "routing", _routing(self.routing, len(self.stations), classes))
        chains: tuple[tuple[int, ...], ...] = tuple([(c,) for c in range(len(labels))])
        if self.routing is None:
            V = np.array([[number_of(s.visit_ratio, c, 0.0) for c in labels] for s in self.stations])
        else:
            V, chains = _visits_and_chains(self)
        V.setflags(write=False)
        put(self, "class_visit_ratios", V)
        put(self, "chains", chains)
        _require_times(self)

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
        D = number_array(demands, "demands")
        if D.ndim not in (1, 2):
            raise ModelError(f"demands: must have shape (K,) or (K, C), stations first, got shape {D.shape}")
        arguments: dict[str, Any] = {"think_time": think_time, "name": name}
        times: list[Any] = D.tolist()
        visits: list[Any] = [1.0] * len(D)
        if D.ndim == 2:
            C, N = D.shape[1], list(population) if np.ndim(population) else [population]
            if len(N) != C or None in N:
                raise ModelError(
                    f"population: must be {C} whole numbers, the populations of {C} classes, got {population!r}"
                )
            think = _for_each(think_time, C, "think_time", "class")
            classes = [JobClass(f"class {c + 1}", population=N[c], think_time=think[c]) for c in range(C)]
            names = [c.name for c in classes]
            arguments = {"classes": classes, "name": name}
            visits = [{c: float(d != 0) for c, d in zip(names, row, strict=True)} for row in times]
            times = [dict(zip(names, row, strict=True)) for row in times]
        counts = _for_each(servers, len(D), "servers", "station")
        stations = [
            Station(f"station {k + 1}", service_time=d, visit_ratio=v, servers=m, discipline=discipline)
            for k, (d, v, m) in enumerate(zip(times, visits, counts, strict=True))
        ]
        return cls(stations, **arguments)

    @property
    def names(self) -> list[str]:
        """The stations' names, in order."""
        return [station.name for station in self.stations]

    @property
    def class_names(self) -> list[str]:
        """The classes' names, in order; empty without classes."""
        return [c.name for c in self.classes]

    @property
    def open_classes(self) -> list[str]:
        """The names of the open classes."""
        return [c.name for c in self.classes if c.is_open]

    @property
    def labels(self) -> list[str | None]:
        """The classes' names, C of them; None for the only class without classes."""
        return [c.name for c in self.classes] if self.classes else [None]

    @property
    def reference_index(self) -> int:
        """Index of the reference station."""
        return 0 if self.reference is None else self.names.index(self.reference)

    @property
    def transitions(self) -> np.ndarray:
        """Probabilities of going from (class, station) to (class, station), shape (C, K, C, K), of a routing."""
        K, C = len(self.stations), max(1, len(self.classes))
        full = np.zeros((C, K, C, K))
        for c, start in enumerate(self.labels):
            for d, end in enumerate(self.labels):
                if isinstance(self.routing, Mapping):
                    full[c, :, d, :] = self.routing.get((start, end), 0.0)
                elif c == d:
                    full[c, :, d, :] = self.routing
            if self.classes and not (full[c].any() or self.arrival_rates[c]):
                raise ModelError(f"routing: class {start!r} has no matrix")
            for name, total in zip(self.names, full[c].sum(axis=(1, 2)), strict=True):
                if abs(total - 1) > 1e-9 and total != 0 and not (self.arrival_rates[c] and total < 1):
                    who = f" of class {start!r}" if self.classes else ""
                    raise ModelError(
                        f"routing{who}: the row of station {name!r} must sum to 1 (or to 0 if not visited), "
                        f"got {total:.10g}"
                    )
        return full

    @property
    def class_service_times(self) -> np.ndarray:
        """Seconds per visit, shape (K, C)."""
        if not self.classes:
            return np.array([[s.service_time] for s in self.stations])
        return np.array([[s.time_of(c) for c in self.class_names] for s in self.stations])

    @property
    def class_service_demand(self) -> np.ndarray:
        """Service demands in seconds per cycle, shape (K, C)."""
        return self.class_visit_ratios * self.class_service_times  # D = V S

    @property
    def visit_ratios(self) -> np.ndarray:
        """Visits per cycle, shape (K,), or (K, C) with classes; solved from a routing."""
        return self.class_visit_ratios if self.classes else self.class_visit_ratios[:, 0]

    @property
    def service_demand(self) -> np.ndarray:
        """Service demands in seconds per cycle, shape (K,), or (K, C) with classes."""
        return self.class_service_demand if self.classes else self.class_service_demand[:, 0]

    @property
    def think_times(self) -> np.ndarray:
        """Seconds per cycle outside all stations, shape (1,), or (C,) with classes."""
        if not self.classes:
            return np.array([self.think_time])
        Z = [0.0 if c.is_open else c.think_time for c in self.classes]
        return np.array([self.think_time if z is None else z for z in Z])

    @property
    def populations(self) -> np.ndarray:
        """The classes' populations, shape (C,), 0 of open ones; empty without classes."""
        return np.array([c.population for c in self.classes], dtype=int)

    @property
    def arrival_rates(self) -> np.ndarray:
        """The classes' arrival rates (1/s), shape (C,), 0 of closed ones; C is 1 without classes."""
        return np.array([c.arrival_rate or 0.0 for c in self.classes] or [0.0])

    @property
    def is_delay(self) -> np.ndarray:
        """Whether each station is a delay, shape (K,)."""
        return np.array([station.servers == math.inf for station in self.stations])

    def to_dict(self) -> dict[str, Any]:
        """The documented JSON form (docs/reference/network-json)."""
        return to_document(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON form to ``path``, all of it or nothing."""
        self.to_json(path)

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
        try:
            return cls(**from_document(text))
        except DAMAGE as error:
            raise DataError(f"{where}: {one_line(error)}") from None

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per station, and class where there are several."""
        rows = self.rows_of(
            visit_ratio=self.class_visit_ratios,
            service_time=self.class_service_times,
            service_demand=self.class_service_demand,
        )
        kinds = {s.name: s.kind for s in self.stations}
        return [{"station": row["station"], "kind": kinds[row["station"]]} | row for row in rows]

    def rows_of(self, **columns: np.ndarray) -> list[dict[str, Any]]:
        """Rows of stations, and classes where there are several, from arrays of shape (K, C)."""
        return [
            {"station": s.name}
            | ({"class": label} if label is not None else {})
            | {what: float(values[k, c]) for what, values in columns.items()}
            for k, s in enumerate(self.stations)
            for c, label in enumerate(self.labels)
        ]

    def caption(self) -> str:
        """Name, classes and think time."""
        classes = f", {len(self.classes)} classes" if self.classes else ""
        classes += f" ({len(self.open_classes)} open)" if self.open_classes else ""
        think = ", ".join(f"{z:g}" for z in self.think_times)
        return f"{self.name or 'network'}: {len(self.stations)} stations{classes}, think time {think} s"


def _members(values: Any, kind: type[Station | JobClass], what: str, noun: str) -> tuple[Any, ...]:
    """The values as a tuple with unique names."""
    if isinstance(values, (kind, str, bytes)) or not isinstance(values, Iterable):
        raise ModelError(f"network: {what} must be a list of {kind.__name__}, got {values!r}")
    members, names = tuple(values), set()
    for member in members:
        if not isinstance(member, kind):
            raise ModelError(f"network: {what} must be {kind.__name__} values, got {member!r}")
        if member.name in names:
            raise ModelError(f"network: {noun} names must be unique, got {member.name!r} more than once")
        names.add(member.name)
    return members


def _require_known_classes(stations: Sequence[Station], classes: Sequence[str]) -> None:
    for s in stations:
        if type(s.service_time) is type(s.visit_ratio) is type(s.scv) is float and s.distribution is None:
            continue  # the usual case, kept fast
        for what in ("service_time", "visit_ratio", "scv", "distribution"):
            value = getattr(s, what)
            if isinstance(value, PerClass) and (unknown := [name for name in value if name not in classes]):
                have = ", ".join(map(repr, classes)) or "none"
                raise ModelError(f"station {s.name!r}: {what} names class {unknown[0]!r}, but the classes are: {have}")


def _require_times(network: Network) -> None:
    """Refuse classes without a service time at a station that they visit, without visits, or with cycles of no time."""
    visits, labels, think = network.class_visit_ratios.tolist(), network.labels, network.think_times.tolist()
    for s, v in zip(network.stations, visits, strict=True):
        times = s.service_time
        if not isinstance(times, PerClass):
            continue
        if missing := [c for c, ratio in zip(labels, v, strict=True) if ratio > 0 and c not in times]:
            raise ModelError(
                f"station {s.name!r}: class {missing[0]!r} visits it but has no service_time; "
                "give it one, or leave it out of visit_ratio"
            )
    D = [
        sum([v[c] * number_of(s.service_time, label, 0.0) for s, v in zip(network.stations, visits, strict=True)])
        for c, label in enumerate(labels)
    ]
    if not any(D):
        raise ModelError("network: all service demands are zero; give at least one station a service_time > 0")
    for chain in network.chains:
        who = f"class {', '.join([repr(labels[c]) for c in chain])}" if network.classes else ""
        if network.classes and not any(v[c] for v in visits for c in chain):
            raise ModelError(f"network: {who} visits no station; give it a visit_ratio > 0 somewhere")
        if (time := sum([D[c] + think[c] for c in chain])) < SHORTEST_CYCLE:
            cycle = f"a cycle of {who}" if who else "a cycle"
            raise ModelError(f"network: {cycle} takes no time ({time:g} s); give it service or think time > 0")


def _for_each(value: Any, count: int, what: str, noun: str) -> list[Any]:
    array = number_array(value, what)
    if array.ndim > 1 or (array.ndim == 1 and len(array) != count):
        raise ModelError(f"{what}: must be one number or {count}, one for each {noun}, got shape {array.shape}")
    return np.broadcast_to(array, (count,)).tolist()
