"""The JSON form of a network: version 1 for single-class networks of plain stations, else version 2."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import msgspec

from ..base.checks import nearest, require_distinct_keys
from ..base.errors import DataError, ModelError
from ..base.files import duration_in, number_in
from ..base.recognition import mistaken
from .stations import JobClass, PhaseType, Station

FORMAT, FORMAT_VERSION = "queuemodel-network", 2
#: Stations or classes beyond this are taken for a mistake.
MOST_MEMBERS = 10_000
#: Other names of a class's keys, and advice instead of keys that there are not.
CLASS_SYNONYMS = {
    "rate": "arrival_rate", "lambda": "arrival_rate",
    "priority": "classes of different priority have no product form, and are not solved",
    "scv": "think times have no scv; where it matters, use a station with servers 'inf' and scv",
}  # fmt: skip
Member = TypeVar("Member", Station, JobClass)


class _RouteDocument(msgspec.Struct, rename={"start": "from", "end": "to"}):
    matrix: list[list[float]]
    start: str | None = None
    end: str | None = None


class _NetworkDocument(msgspec.Struct):
    format: str
    version: int
    stations: list[dict[str, Any]]
    think_time: float | str = 0.0
    name: str = ""
    classes: list[dict[str, Any]] = []
    routing: list[_RouteDocument] | None = None
    reference: str | None = None


def require_format(format: str, version: int, expected: str, known: int) -> None:
    """Refuse another format, and one newer than this package supports (raises DataError, which the decoder places)."""
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
    """Arguments of a `Network` from its JSON form, or one of `DAMAGE`."""
    if what := mistaken(text, [FORMAT]):
        raise DataError(what)
    if (start := text.lstrip()[:9])[:1] not in (b"{", "{", b"", ""):
        raise DataError(f"a network is a JSON object (read_jmva reads .jmva), got {start!r}...")
    msgspec.json.decode(text, type=_Header)
    plain = msgspec.json.decode(text)
    _require_known(plain, _NetworkDocument.__struct_encode_fields__, "")
    document = msgspec.convert(plain, _NetworkDocument)
    for i, route in enumerate(plain.get("routing") or []):
        _require_known(route, _RouteDocument.__struct_encode_fields__, f"routing[{i}]: ")
    require_distinct_keys(text)
    if max(len(document.stations), len(document.classes)) > MOST_MEMBERS:
        raise DataError(f"stations and classes must be at most {MOST_MEMBERS:,}")
    return {
        "stations": [_made(Station, s, f"stations[{i}]") for i, s in enumerate(document.stations)],
        "classes": [_made(JobClass, c, f"classes[{i}]") for i, c in enumerate(document.classes)],
        "think_time": _in_seconds(document.think_time, "think_time"),
        "routing": _routing(document.routing),
        "reference": document.reference,
        "name": document.name,
    }


def _require_known(keys: Iterable[str], known: Sequence[str], where: str) -> None:
    for key in keys:
        if key not in known:
            called = {"visits": "visit_ratio"} if "visit_ratio" in known else CLASS_SYNONYMS
            meant = nearest(key, known, called=called if "stations" not in known else None)
            raise DataError(f"{where}a key must be one of {', '.join(known)}, got {key!r}{meant}")


def rate_in(text: str, where: str) -> float:
    """Arrivals per second of a text like ``"30/min"`` (raises `DataError`)."""
    number, per, time = text.partition("/")
    if not per or isinstance(rate := number_in(number), str):
        raise DataError(f"{where} must be a number per second, or like 30/min, got {text!r}")
    return float(rate / duration_in(f"1{time.strip()}", where))


def _made(kind: type[Member], values: dict[str, Any], where: str) -> Member:
    _require_known(values, [field.name for field in fields(kind)], f"{where}: ")
    if "name" not in values:
        raise DataError(f"{where}: name is missing")
    if values.get("servers") == "inf":
        values["servers"] = math.inf
    where = f"{'station' if kind is Station else 'class'} {values['name']!r}"
    for key in ("service_time", "think_time", "arrival_rate"):
        if isinstance(value := values.get(key), dict):
            values[key] = {c: _in_seconds(v, f"{where}: {key}[class {c!r}]") for c, v in value.items()}
        elif key == "arrival_rate" and isinstance(value, str):
            values[key] = rate_in(value, f"{where}: {key}")
        elif key in values:
            values[key] = _in_seconds(value, f"{where}: {key}")
    shapes = values.get("distribution")
    if isinstance(shapes, dict):
        try:
            values["distribution"] = _shapes(shapes)
        except ModelError as error:
            raise ModelError(f"station {values['name']!r}: distribution: {error}") from None
    return kind(**values)


def _in_seconds(value: Any, where: str) -> Any:
    """Seconds of a text like ``"5ms"``; other values, for a check to refuse or pass."""
    return duration_in(value, where) if isinstance(value, str) else value


def _shapes(shapes: dict[str, Any]) -> PhaseType | dict[str, PhaseType]:
    if shapes.keys() == {"alpha", "T"}:
        return PhaseType(shapes["alpha"], shapes["T"])
    for name, shape in shapes.items():
        if not isinstance(shape, dict) or shape.keys() != {"alpha", "T"}:
            raise ModelError(f"class {name!r}: alpha and T are needed, got {shape!r}")
    return {name: PhaseType(shape["alpha"], shape["T"]) for name, shape in shapes.items()}


def _routing(routes: list[_RouteDocument] | None) -> Any:
    if routes is None:
        return None
    if [(r.start, r.end) for r in routes] == [(None, None)]:
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
    """Plain values of a `Network`, in version 1 where that suffices, for older readers."""
    stations, routing = [_station_document(s) for s in network.stations], network.routing
    simple = all(
        set(s) == {"name", "service_time", "visit_ratio", "servers"}
        and not isinstance(s["visit_ratio"], dict)
        and s["servers"] in (1, "inf")
        for s in stations
    )
    more: dict[str, Any] = {}
    if network.classes:
        more["classes"] = [
            {"name": c.name}
            | ({"arrival_rate": c.arrival_rate} if c.is_open else {"population": c.population})
            | ({} if c.think_time is None else {"think_time": c.think_time})
            for c in network.classes
        ]
    if isinstance(routing, Mapping):
        more["routing"] = [{"from": start, "to": end, "matrix": _lists(P)} for (start, end), P in routing.items()]
    elif routing is not None:
        more["routing"] = [{"matrix": _lists(routing)}]
    if network.reference is not None:
        more["reference"] = network.reference
    return {
        "format": FORMAT,
        "version": 1 if simple and not more else FORMAT_VERSION,
        "name": network.name,
        "think_time": network.think_time,
        "stations": stations,
    } | more


def _station_document(s: Station) -> dict[str, Any]:
    document: dict[str, Any] = {"name": s.name}
    shapes = s.distribution
    if shapes is None:
        document["service_time"] = s.service_time
    elif isinstance(shapes, Mapping):
        document["distribution"] = {c: _shape_document(d) for c, d in shapes.items()}
    else:
        document["distribution"] = _shape_document(shapes)
    document |= {"visit_ratio": s.visit_ratio, "servers": "inf" if s.is_delay else s.servers}
    if s.discipline != "ps":
        document["discipline"] = s.discipline
    if s.scv != 1.0 and shapes is None:
        document["scv"] = s.scv
    if s.rates is not None:
        document["rates"] = ["..." if rate is ... else rate for rate in s.rates]
    return document


def _shape_document(shape: PhaseType) -> dict[str, Any]:
    return {"alpha": list(shape.alpha), "T": _lists(shape.T)}


def _lists(matrix: Sequence[Sequence[float]]) -> list[list[float]]:
    return [list(row) for row in matrix]
