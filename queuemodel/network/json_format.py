"""The JSON form of a network: version 1 for single-class networks of plain stations, else version 2."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ..checks import nearest, require_distinct_keys
from ..errors import DataError, ModelError
from .phasetype import PhaseType
from .stations import JobClass, Station

FORMAT, FORMAT_VERSION = "queuemodel-network", 2

#: Stations or classes beyond this are taken for a mistake.
MOST_MEMBERS = 10_000


class _PhaseTypeDocument(msgspec.Struct, forbid_unknown_fields=True):
    alpha: list[float]
    T: list[list[float]]


class _StationDocument(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    service_time: float | dict[str, float] | None = None
    visit_ratio: float | dict[str, float] = 1.0
    servers: float | str = 1
    discipline: str = "ps"
    scv: float | dict[str, float] = 1.0
    rates: list[float] | None = None
    distribution: dict[str, Any] | None = None


class _ClassDocument(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    population: int = 1
    think_time: float | None = None


class _RouteDocument(msgspec.Struct, forbid_unknown_fields=True, rename={"start": "from", "end": "to"}):
    matrix: list[list[float]]
    start: str | None = None
    end: str | None = None


class _NetworkDocument(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    version: int
    stations: list[_StationDocument]
    think_time: float = 0.0
    name: str = ""
    classes: list[_ClassDocument] = []
    routing: list[_RouteDocument] | None = None
    reference: str | None = None


def require_format(format: str, version: int, expected: str, known: int) -> None:
    """Refuse another format, and one newer than this package knows (raises DataError, which the decoder places)."""
    if format != expected:
        raise DataError(f"format must be {expected!r}, got {format!r}")
    if not 1 <= version <= known:
        raise DataError(f"version must be 1 to {known}, got {version}; a newer queuemodel may read it")


class _Header(msgspec.Struct):
    format: str
    version: int

    def __post_init__(self) -> None:
        require_format(self.format, self.version, FORMAT, FORMAT_VERSION)


#: What reading a damaged document raises.
DAMAGE = (msgspec.DecodeError, UnicodeError, RecursionError, ModelError, DataError)


def from_document(text: str | bytes) -> dict[str, Any]:
    """What a `Network` is made of, from its JSON form; one of `DAMAGE` says what is wrong with it."""
    msgspec.json.decode(text, type=_Header)
    try:
        document = msgspec.json.decode(text, type=_NetworkDocument)
    except msgspec.ValidationError as error:
        raise DataError(_explained(str(error))) from None
    require_distinct_keys(text)
    if max(len(document.stations), len(document.classes)) > MOST_MEMBERS:
        raise DataError(f"stations and classes must be at most {MOST_MEMBERS:,}")
    return {
        "stations": [_station(s) for s in document.stations],
        "classes": [JobClass(c.name, population=c.population, think_time=c.think_time) for c in document.classes],
        "think_time": document.think_time,
        "routing": _routing(document.routing),
        "reference": document.reference,
        "name": document.name,
    }


def _explained(message: str) -> str:
    """What the decoder says; of a key that is not known, which ones are, and which was meant."""
    unknown = re.fullmatch(r"Object contains unknown field `(.*?)`(?: - at `\$\.((\w+)\[.*\])`)?", message, re.DOTALL)
    if unknown is None:
        return message
    key, member, kind = unknown.groups()
    kinds = {"stations": _StationDocument, "classes": _ClassDocument, "routing": _RouteDocument}
    known = kinds.get(kind, _NetworkDocument).__struct_encode_fields__
    meant = nearest(key, known, called={"visits": "visit_ratio"} if kind == "stations" else None)
    return f"{member + ': ' if member else ''}a key must be one of {', '.join(known)}, got {key!r}{meant}"


def _station(s: _StationDocument) -> Station:
    servers: Any = math.inf if s.servers == "inf" else s.servers
    return Station(
        s.name,
        service_time=s.service_time,  # type: ignore[arg-type]
        visit_ratio=s.visit_ratio,
        servers=servers,
        discipline=s.discipline,
        scv=s.scv,
        distribution=_distribution(s),
        rates=s.rates,
    )


def _distribution(s: _StationDocument) -> PhaseType | dict[str, PhaseType] | None:
    if s.distribution is None:
        return None
    try:
        if set(s.distribution) == {"alpha", "T"}:
            return _shape(msgspec.convert(s.distribution, _PhaseTypeDocument))
        shapes = msgspec.convert(s.distribution, dict[str, _PhaseTypeDocument])
    except msgspec.ValidationError as error:
        raise ModelError(f"station {s.name!r}: distribution: {error}") from None
    return {c: _shape(d) for c, d in shapes.items()}


def _shape(document: _PhaseTypeDocument) -> PhaseType:
    return PhaseType(tuple(document.alpha), tuple(map(tuple, document.T)))


def _routing(routes: list[_RouteDocument] | None) -> Any:
    if routes is None:
        return None
    if len(routes) == 1 and routes[0].start is None and routes[0].end is None:
        return routes[0].matrix
    routing = {}
    for r in routes:
        if r.start is None or r.end is None:
            raise ModelError("routing: each matrix needs both its classes, 'from' and 'to'")
        if (r.start, r.end) in routing:
            raise ModelError(f"routing: class pair {(r.start, r.end)!r} is given twice")
        routing[r.start, r.end] = r.matrix
    return routing


def to_document(network: Any) -> dict[str, Any]:
    """Plain values of a `Network`; version 1 where it can say everything, so that older readers still do."""
    stations, routing = [_station_document(s) for s in network.stations], network.routing
    plain = {"name", "service_time", "visit_ratio", "servers"}
    document: dict[str, Any] = {
        "format": FORMAT,
        "version": 1,
        "name": network.name,
        "think_time": network.think_time,
        "stations": stations,
    }
    if network.classes:
        document["classes"] = [
            {"name": c.name, "population": c.population}
            | ({} if c.think_time is None else {"think_time": c.think_time})
            for c in network.classes
        ]
    if isinstance(routing, Mapping):
        document["routing"] = [
            {"from": start, "to": end, "matrix": [list(row) for row in P]} for (start, end), P in routing.items()
        ]
    elif routing is not None:
        document["routing"] = [{"matrix": [list(row) for row in routing]}]
    if network.reference is not None:
        document["reference"] = network.reference
    simple = all(
        set(s) == plain and not isinstance(s["visit_ratio"], dict) and s["servers"] in (1, "inf") for s in stations
    )
    if len(document) > 5 or not simple:
        document["version"] = FORMAT_VERSION
    return document


def _station_document(s: Station) -> dict[str, Any]:
    document: dict[str, Any] = {"name": s.name}
    if s.distribution is None:
        document["service_time"] = _number(s.service_time)
    else:
        shapes = s.distribution
        document["distribution"] = (
            {c: _phase_type(d) for c, d in shapes.items()} if isinstance(shapes, Mapping) else _phase_type(shapes)
        )
    document["visit_ratio"] = _number(s.visit_ratio)
    document["servers"] = "inf" if s.is_delay else int(s.servers)
    if s.discipline != "ps":
        document["discipline"] = s.discipline
    if s.scv != 1.0 and s.distribution is None:
        document["scv"] = _number(s.scv)
    if s.rates is not None:
        document["rates"] = list(s.rates)
    return document


def _number(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else float(value)


def _phase_type(shape: PhaseType) -> dict[str, Any]:
    return {"alpha": list(shape.alpha), "T": [list(row) for row in shape.T]}
