"""Writing the JSON form of a network: version 1 for single-class networks of plain stations, else version 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import ModelError
from .phasetype import PhaseType
from .place import Place

if TYPE_CHECKING:
    from .network import Network

FORMAT, FORMAT_VERSION = "queuemodel-network", 2


def to_document(network: Network) -> dict[str, Any]:
    """Plain values of a network; version 1 where it can say everything, so that older readers still do."""
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


def _station_document(s: Place) -> dict[str, Any]:
    document: dict[str, Any] = {"name": s.name}
    if s.branches:
        document["branches"] = list(s.branches)
    elif s.distribution is None:
        document["service_time"] = _number(s.service_time)
    else:
        shapes = s.distribution
        document["distribution"] = (
            {c: _phase_type(d) for c, d in shapes.items()} if isinstance(shapes, Mapping) else _phase_type(shapes)
        )
    document["visit_ratio"] = _number(s.visit_ratio)
    document["servers"] = "inf" if s.is_delay else int(s.servers)
    if s.discipline != "ps" and not s.branches:
        document["discipline"] = s.discipline
    if s.scv != 1.0 and s.distribution is None:
        document["scv"] = _number(s.scv)
    if callable(s.rates):
        raise ModelError(
            f"station {s.name!r}: rates is a function, which no file can hold; "
            "make it a list: [rates(n) for n in range(1, population + 1)]"
        )
    if s.rates is not None:
        document["rates"] = list(s.rates)
    return document


def _number(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else float(value)


def _phase_type(shape: PhaseType) -> dict[str, Any]:
    return {"alpha": list(shape.alpha), "T": [list(row) for row in shape.T]}
