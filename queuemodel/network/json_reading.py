"""Reading the JSON form of a network, of either version."""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

from ..checks import nearest, require_distinct_keys
from ..errors import DataError, ModelError
from .forkjoin import ForkJoin
from .jobclass import JobClass
from .json_writing import FORMAT, FORMAT_VERSION
from .phasetype import PhaseType
from .place import Place
from .station import Station

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
    branches: list[float] | None = None


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
    if document.version == 1:
        _require_version_1(document)
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


def _require_version_1(document: _NetworkDocument) -> None:
    newer = [f for f in ("classes", "routing", "reference") if getattr(document, f)]
    for s in document.stations:
        if s.service_time is None:
            raise DataError(f"Object missing required field `service_time` - at `$.stations[...]`, station {s.name!r}")
        if s.servers not in (1, "inf") or isinstance(s.visit_ratio, dict) or isinstance(s.service_time, dict):
            newer.append(f"servers or numbers per class (station {s.name!r})")
        newer += [f for f in ("rates", "distribution", "branches") if getattr(s, f) is not None]
        newer += [f for f, plain in (("discipline", "ps"), ("scv", 1.0)) if getattr(s, f) != plain]
    if newer:
        raise DataError(f"version 1 does not have {newer[0]}; say version 2")


def _station(s: _StationDocument) -> Place:
    servers: Any = math.inf if s.servers == "inf" else s.servers
    if s.branches is not None:
        others = (s.service_time, s.distribution, s.rates, None if s.discipline == "ps" else s.discipline)
        if servers != 1 or any(value is not None for value in others):
            raise ModelError(f"station {s.name!r}: branches say the service already; leave the others out")
        return ForkJoin(s.name, service_times=s.branches, visit_ratio=s.visit_ratio, scv=s.scv)  # type: ignore[arg-type]
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
