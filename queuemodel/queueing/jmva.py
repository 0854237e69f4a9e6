"""Files .jmva, the models of JMT's MVA tool (Bertoli, Casale and Serazzi, 2009); unknown elements are refused."""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Iterable
from typing import Any
from xml.etree import ElementTree

import numpy as np

from ..base.checks import one_line
from ..base.errors import DataError, ModelError, QueueModelWarning
from ..base.files import read_bytes, write_atomically
from .lowered import lower
from .network import Network
from .stations import JobClass, Station

#: Most rows of a load-dependent station's table, one per customer.
LARGEST_TABLE = 100_000
STATIONS = ("listation", "delaystation", "ldstation")


def read_jmva(path: str | os.PathLike[str]) -> Network:
    """A network from a .jmva file; its classes carry their populations.

    Stations are processor sharing (JMT's product-form queues have no discipline); load-independent, multi-server,
    delay and load-dependent stations are read, stored results and the choice of an algorithm are not. A cycle has the
    visits of the file, whichever the reference station. Classes of different priority and anything that is not known
    are refused. A what-if of populations is left to `read_jmva_sweep`, with a `QueueModelWarning`.

    Raises
    ------
    DataError
        When the file cannot be read or is no such model; names the file and the element.
    """
    network, sweep = read_jmva_sweep(path)
    if sweep:
        said = f"{path}: its what-if asks for populations {one_line(sweep)}; read_jmva_sweep gives them"
        warnings.warn(said, QueueModelWarning, stacklevel=2)
    return network


def read_jmva_sweep(path: str | os.PathLike[str]) -> tuple[Network, list[tuple[int, ...]]]:
    """As `read_jmva`, with the populations (one per class) of the file's what-if; none without one.

    Each has its solution, ``solve(network, population=N)``. Other what-ifs are refused.
    """
    return sweep_in(read_bytes(path), path)


def sweep_in(text: bytes, path: str | os.PathLike[str]) -> tuple[Network, list[tuple[int, ...]]]:
    """The same of the contents of a file."""
    try:
        if b"<!DOCTYPE" in text or b"<!ENTITY" in text:
            raise DataError("document types and entities are not allowed")
        return _network(ElementTree.fromstring(text))
    except (ElementTree.ParseError, ModelError, DataError, UnicodeError, LookupError, ValueError) as error:
        raise DataError(f"{path}: {one_line(error)}") from None


def _network(model: ElementTree.Element) -> tuple[Network, list[tuple[int, ...]]]:
    parameters = model.find("parameters")
    if model.tag != "model" or parameters is None:
        got = f"<{model.tag}>; JMT exports a simulation model (.jsimg) to JMVA"
        raise DataError(f"not a .jmva model: <model> with <parameters> expected, got {got}")
    _require_known(model, ("description", "parameters", "algParams", "solutions", "whatIf"), "the model")
    _require_known(parameters, ("classes", "stations", "ReferenceStation"), "<parameters>")
    classes = [_class(element) for element in parameters.iterfind("classes/*")]
    if not classes:
        raise DataError("no class: <closedclass name=... population=...> or <openclass name=... rate=...> expected")
    if len({element.get("priority", "0") for element in parameters.iterfind("classes/*")}) > 1:
        raise DataError("classes of different priority cannot be read: they have no product form")
    sweep, names = _sweep(model, classes), [c.name for c in classes]
    stations = [_station(element, names) for element in parameters.iterfind("stations/*")]
    opened = [c.name for c in classes if c.is_open]
    for element in parameters.iterfind("ReferenceStation/*"):
        _require_attributes(element, ("name", "refStation"))
        for what, known in (("name", names), ("refStation", [s.name for s in stations])):
            if what == "refStation" and element.get("name") in opened:
                continue  # where it arrives from is no station
            if (there := element.get(what)) not in known:
                also = f"; its <whatIf> asks for {one_line(sweep)}" if sweep else ""
                raise DataError(f"<ReferenceStation>: {what} must be one of {', '.join(known)}, got {there!r}{also}")
    title = " ".join((model.findtext("description") or "").split())
    return Network(stations, classes=classes, name=title[:200] if title.isprintable() else ""), sweep


def _sweep(model: ElementTree.Element, classes: list[JobClass]) -> list[tuple[int, ...]]:
    """The populations that a what-if asks for."""
    sweep = []
    for element in model.iterfind("whatIf"):
        _require_attributes(element, ("type", "className", "stationName", "values"))
        kind, name = element.get("type"), element.get("className")
        if kind not in ("Customer Numbers", "Number of Customers") or name not in [c.name for c in classes]:
            raise DataError(
                f"<whatIf> must change the 'Customer Numbers' of one class, got {kind!r} of {name!r}; take it out, "
                "and solve a changed network for each value"
            )
        for text in re.split("[;,]", element.get("values", "").strip(";, ")):
            asked = JobClass(name, population=_number(text, "values of <whatIf>"))
            sweep.append(tuple(asked.population if c.name == name else c.population for c in classes))
    return sweep


def _class(element: ElementTree.Element) -> JobClass:
    if element.tag == "openclass":
        _require_attributes(element, ("name", "rate", "priority"))
        return JobClass(element.get("name", ""), arrival_rate=_number(element.get("rate"), "rate of an openclass"))
    if element.tag != "closedclass":
        raise DataError(f"<{element.tag}> is not known among the classes; expected closedclass or openclass")
    _require_attributes(element, ("name", "population", "priority", "thinktime"))
    n = _number(element.get("population"), "population of a closedclass")
    think = element.get("thinktime")
    Z = None if think is None else _number(think, "thinktime of a closedclass")
    return JobClass(element.get("name", ""), population=n, think_time=Z)


def _station(element: ElementTree.Element, names: list[str]) -> Station:
    where = f"station {element.get('name', '')!r}"
    if element.tag not in STATIONS:
        raise DataError(f"station kind <{element.tag}> is not known; expected {', '.join(STATIONS)}")
    _require_attributes(element, ("name", "servers"))
    _require_known(element, ("servicetimes", "visits"), where)
    servers = _number(element.get("servers", "1"), f"{where}: servers")
    tables = _by_class(element, "servicetimes", ("servicetime", "servicetimes"), names, where)
    visits = {c: _one(v, where, "visit") for c, v in _by_class(element, "visits", ("visit",), names, where).items()}
    times, rates = {}, np.zeros(0)
    for name, table in tables.items():
        if len(table) > 1 and not any(table):
            table = [0.0]
        elif len(table) > 1 and table[0] == 0.0:
            table = table[1:]  # some writers begin with no customer there
        if element.tag == "ldstation" and (len(table) > 1 or servers == 1) and table[0] > 0:
            times[name], rates = table[0], _rates(rates, table, where)
        else:
            times[name] = _one(table, where, "servicetime")
    for name in names:
        if (name in times) != (name in visits) and (visits.get(name) or times.get(name)):
            missing = "servicetime" if name in visits else "visit"
            raise DataError(f"{where}: class {name!r} has no {missing} here, but the other one of the two")
    return Station(
        element.get("name", ""),
        service_time={c: times.get(c, 0.0) for c in names},
        visit_ratio={c: visits.get(c, 0.0) for c in names},
        servers=math.inf if element.tag == "delaystation" else 1 if rates.size else servers,
        rates=[*rates.tolist(), ...] if rates.size else None,
    )


def _by_class(
    station: ElementTree.Element, group: str, tags: tuple[str, ...], names: list[str], where: str
) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {}
    for entry in station.iterfind(f"{group}/*"):
        name = entry.get("customerclass", "")
        if entry.tag not in tags or len(entry):
            raise DataError(f"{where}: <{entry.tag}> is not understood in <{group}>; expected <{tags[0]}>")
        _require_attributes(entry, ("customerclass",))
        if name not in names:
            raise DataError(f"{where}: class {name!r} is not among the model's classes")
        if name in values:
            raise DataError(f"{where}: class {name!r} has two entries in <{group}>")
        texts = [t for t in re.split("[;,]", entry.text or "") if t.strip()]
        values[name] = [_number(t, f"{where}: {tags[0]}") for t in texts]
        if not values[name]:
            raise DataError(f"{where}: {tags[0]} must be a number, got {entry.text!r}")
    return values


def _one(values: list[float], where: str, what: str) -> float:
    if len(values) != 1:
        raise DataError(f"{where}: {what} must be one number, got {len(values)}")
    return values[0]


def _rates(before: np.ndarray, values: list[float], where: str) -> np.ndarray:
    """Rates relative to one customer; classes must agree on them, and the last one holds from there on."""
    if len(values) > LARGEST_TABLE or min(values) <= 0:
        raise DataError(f"{where}: service times with 1, 2, ... customers must be > 0")
    rates = values[0] / np.array(values)  # mu(n) = S(1) / S(n)
    rates = np.append(rates, np.full(max(0, len(before) - len(rates)), rates[-1]))
    if before.size and not np.allclose(
        np.append(before, np.full(len(rates) - len(before), before[-1])), rates, 1e-9, 0
    ):
        raise DataError(f"{where}: classes slow down differently, which has no product form")
    return rates


def _require_known(parent: ElementTree.Element, tags: Iterable[str], where: str) -> None:
    seen: set[str] = set()
    for element in parent:
        if element.tag not in tags:
            raise DataError(f"{where}: <{element.tag}> is not known; expected {', '.join(tags)}")
        if element.tag in seen and element.tag != "solutions":
            raise DataError(f"{where}: <{element.tag}> is there twice")
        seen.add(element.tag)


def _require_attributes(element: ElementTree.Element, known: Iterable[str]) -> None:
    for name in element.attrib:
        if name not in known:
            raise DataError(f"<{element.tag}>: attribute {name!r} is not known; expected {', '.join(known)}")


def _number(text: str | None, what: str) -> Any:
    """An int where it is whole."""
    try:
        value = float(text or "") if text and text.isascii() and "_" not in text else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise DataError(f"{what} must be a number, got {text!r}")
    return int(value) if value == int(value) else value


def write_jmva(network: Network, path: str | os.PathLike[str], *, population: int | None = None) -> None:
    """Write a network as a .jmva file; think time becomes a delay station named "think time".

    Parameters
    ----------
    network : Network
        With product-form stations (a .jmva file has no variability, or FCFS by class).
    path : path
    population : int, optional
        Customers, of a network without classes.

    Raises
    ------
    ModelError
        When such a file cannot represent the network.
    """
    if not network.classes and population is None:
        raise ModelError("jmva: a network without classes needs population=..., which a .jmva file requires")
    if any(len(chain) > 1 for chain in network.chains):
        raise ModelError("jmva: classes that customers switch between cannot be written; such files have visits only")
    counts: list[Any] = network.populations.tolist() if network.classes else [population]
    if why := lower(network, tuple(counts)).why_not_product_form():
        raise ModelError(f"jmva: {why}, which a .jmva file cannot represent")
    names, add = network.class_names or ["customers"], ElementTree.SubElement
    model = ElementTree.Element("model", {"jaba": "false", "solutionMethod": "analytical"})
    if network.name:
        add(model, "description").text = network.name
    parameters = add(model, "parameters")
    classes = add(parameters, "classes", number=str(len(names)))
    for name, n, rate in zip(names, counts, network.arrival_rates.tolist(), strict=True):
        settings = ("openclass", {"rate": repr(rate)}) if rate else ("closedclass", {"population": str(n)})
        add(classes, settings[0], {"name": name} | settings[1])
    rows: list[tuple[str, str, str, list[str], list[float]]] = []
    for s, visits in zip(network.stations, network.class_visit_ratios.tolist(), strict=True):
        times = [s.time_of(c) for c in network.labels]
        if s.rates is None:
            kind, servers = ("delaystation", "1") if s.is_delay else ("listation", str(int(s.servers)))
            rows.append((kind, s.name, servers, [repr(t) for t in times], visits))
        else:
            speeds = s.listed_speeds if network.open_classes else s.speeds(sum(counts))
            tables = [";".join(repr(t / r) for r in speeds.tolist()) for t in times]
            rows.append(("ldstation", s.name, "1", tables, visits))
    reference = network.names[network.reference_index]
    if network.think_times.any():
        reference = "think time"
        while reference in network.names:
            reference += "'"
        think = [repr(z) for z in network.think_times.tolist()]
        rows.append(("delaystation", reference, "1", think, (network.arrival_rates == 0).astype(float).tolist()))
    stations = add(parameters, "stations", number=str(len(rows)))
    for kind, station, servers, texts, visits in rows:
        element = add(stations, kind, name=station, servers=servers)
        inner = "servicetimes" if kind == "ldstation" else "servicetime"  # JMT's tables have the name of their group
        for group, one, values in (("servicetimes", inner, texts), ("visits", "visit", [repr(v) for v in visits])):
            parent = add(element, group)
            for name, text in zip(names, values, strict=True):
                add(parent, one, customerclass=name).text = text
    references = add(parameters, "ReferenceStation", number=str(len(names)))
    for name, rate in zip(names, network.arrival_rates.tolist(), strict=True):
        add(references, "Class", name=name, refStation="Arrival Process" if rate else reference)
    ElementTree.indent(model)
    head = '<?xml version="1.0" encoding="UTF-8" standalone="no"?>\n'
    write_atomically(path, head + ElementTree.tostring(model, encoding="unicode") + "\n")
