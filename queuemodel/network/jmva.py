"""Reading and writing .jmva, the model files of JMT's MVA tool (Bertoli, Casale and Serazzi, 2009)."""

from __future__ import annotations

import math
import os
from typing import Any
from xml.etree import ElementTree

from ..errors import DataError, ModelError
from ..files import read_bytes, write_atomically
from .jobclass import JobClass
from .network import Network
from .place import Place
from .station import Station
from .values import number_of

#: Load-dependent stations are tables with a row per customer; longer ones are a mistake.
LARGEST_TABLE = 100_000


def read_jmva(path: str | os.PathLike[str]) -> Network:
    """A network from a .jmva file; its classes carry their populations.

    Stations are processor sharing (JMT's product-form queues do not say a discipline); load-independent, multi-server,
    delay and load-dependent stations are read. Open classes are refused.

    Raises
    ------
    DataError
        When the file cannot be read, is not such a model, or has open classes; names the file and the element.
    """
    text = read_bytes(path)
    try:
        if b"<!DOCTYPE" in text or b"<!ENTITY" in text:
            raise DataError("document types and entities are not allowed")
        return _network(ElementTree.fromstring(text))
    except (ElementTree.ParseError, ModelError, DataError, UnicodeError, LookupError, ValueError) as error:
        raise DataError(f"{path}: {' '.join(str(error).split())}") from None


def write_jmva(network: Network, path: str | os.PathLike[str], *, population: int | None = None) -> None:
    """Write a network as a .jmva file; think time becomes a delay station named "think time".

    Parameters
    ----------
    network : Network
        With product-form stations (a .jmva file cannot say variability, FCFS by class, or fork-joins).
    path : path
    population : int, optional
        Customers, of a network without classes.

    Raises
    ------
    ModelError
        When the network has what such a file cannot say.
    """
    write_atomically(path, to_jmva(network, population=population))


def to_jmva(network: Network, *, population: int | None = None) -> str:
    """The text of a .jmva file."""
    if not network.classes and population is None:
        raise ModelError("jmva: a network without classes needs population=..., which such a file must say")
    if any(len(chain) > 1 for chain in network.chains):
        raise ModelError("jmva: classes that customers switch between cannot be written; such files have visits only")
    counts: list[Any] = network.populations.tolist() if network.classes else [population]
    names = network.class_names or ["customers"]
    model = ElementTree.Element("model", {"jaba": "false", "solutionMethod": "analytical"})
    if network.name:
        ElementTree.SubElement(model, "description").text = network.name
    parameters = ElementTree.SubElement(model, "parameters")
    classes = ElementTree.SubElement(parameters, "classes", number=str(len(names)))
    for name, n in zip(names, counts, strict=True):
        ElementTree.SubElement(classes, "closedclass", name=name, population=str(n))
    think = network.think_times.any()
    stations = ElementTree.SubElement(parameters, "stations", number=str(len(network.stations) + think))
    V = network.visit_ratios.reshape(len(network.stations), -1)
    for k, station in enumerate(network.stations):
        _write_station(stations, station, names, network.class_names, V[k].tolist(), sum(counts))
    if think:
        element = ElementTree.SubElement(stations, "delaystation", name=_free_name(network), servers="1")
        _write_numbers(element, names, network.think_times.tolist(), [1.0] * len(names))
    references = ElementTree.SubElement(parameters, "ReferenceStation", number=str(len(names)))
    reference = _free_name(network) if think else network.names[network._reference_index]
    for name in names:
        ElementTree.SubElement(references, "Class", name=name, refStation=reference)
    ElementTree.indent(model)
    head = '<?xml version="1.0" encoding="UTF-8" standalone="no"?>\n'
    return head + ElementTree.tostring(model, encoding="unicode") + "\n"


def _free_name(network: Network) -> str:
    name = "think time"
    while name in network.names:
        name += "'"
    return name


def _write_station(
    stations: ElementTree.Element, s: Place, names: list[str], labels: list[str], visits: list[float], total: int
) -> None:
    if s.branches:
        raise ModelError(f"jmva: station {s.name!r} is a fork-join, which such a file cannot say")
    if s.discipline == "fcfs" and not s.is_delay and any(abs(s.scv_of(c) - 1) > 1e-9 for c in labels or [None]):  # type: ignore[list-item]
        raise ModelError(f"jmva: station {s.name!r} is FCFS with scv other than 1, which such a file cannot say")
    times = [number_of(s.service_time, c, 0.0) for c in labels] if labels else [float(s.service_time)]  # type: ignore[arg-type]
    if s.rates is not None:
        element = ElementTree.SubElement(stations, "ldstation", name=s.name, servers="1")
        rates = [s.rate(n) for n in range(1, total + 1)]
        values: list[Any] = [";".join(repr(t / r) for r in rates) for t in times]
    else:
        kind = "delaystation" if s.is_delay else "listation"
        extra = {"servers": "1" if s.is_delay else str(int(s.servers))}
        element = ElementTree.SubElement(stations, kind, {"name": s.name, **extra})
        values = times
    _write_numbers(element, names, values, visits)


def _write_numbers(element: ElementTree.Element, names: list[str], times: list[Any], visits: list[float]) -> None:
    for group, one, values in (("servicetimes", "servicetime", times), ("visits", "visit", visits)):
        parent = ElementTree.SubElement(element, group)
        for name, value in zip(names, values, strict=True):
            text = value if isinstance(value, str) else repr(value)
            ElementTree.SubElement(parent, one, customerclass=name).text = text


def _network(model: ElementTree.Element) -> Network:
    parameters = model.find("parameters")
    if model.tag != "model" or parameters is None:
        raise DataError("not a .jmva model: <model> with <parameters> expected")
    if parameters.find("classes/openclass") is not None:
        raise DataError("open classes cannot be read: this package solves closed networks")
    classes = []
    for element in parameters.findall("classes/closedclass"):
        n = _number(element.get("population"), "population of a closedclass")
        classes.append(JobClass(element.get("name", ""), population=int(n) if n == int(n) else n))  # type: ignore[arg-type]
    if not classes:
        raise DataError("no closed class: <closedclass name=... population=...> expected")
    total = sum(c.population for c in classes)
    known = {"listation", "delaystation", "ldstation"}
    group = parameters.find("stations")
    names = [c.name for c in classes]
    members = [] if group is None else [element for element in group if _known(element.tag, known)]
    stations = [_station(element, names, total) for element in members]
    return Network(stations, classes=classes, name=_title(model))


def _title(model: ElementTree.Element) -> str:
    text = " ".join((model.findtext("description") or "").split())
    return text[:200] if text.isprintable() else ""


def _known(tag: str, known: set[str]) -> bool:
    if tag not in known:
        raise DataError(f"station kind <{tag}> is not known; expected {', '.join(sorted(known))}")
    return True


def _station(element: ElementTree.Element, names: list[str], total: int) -> Station:
    name = element.get("name", "")
    servers = _number(element.get("servers", "1"), f"station {name!r}: servers")
    times, visits, rates = {}, {}, None
    for entry in element.findall("servicetimes/servicetime"):
        values = [_number(t, f"station {name!r}: servicetime") for t in (entry.text or "").split(";") if t.strip()]
        label = entry.get("customerclass", "")
        times[label] = values[0] if values else 0.0
        if element.tag == "ldstation" and values and values[0] > 0:
            rates = _rates(rates, values, name, total)
    for entry in element.findall("visits/visit"):
        visits[entry.get("customerclass", "")] = _number(entry.text, f"station {name!r}: visit")
    if unknown := [c for c in (*times, *visits) if c not in names]:
        raise DataError(f"station {name!r}: class {unknown[0]!r} is not among the model's classes")
    return Station(
        name,
        service_time={c: times.get(c, 0.0) for c in names},
        visit_ratio={c: visits.get(c, 0.0) for c in names},
        servers=math.inf if element.tag == "delaystation" else servers,
        rates=rates if element.tag == "ldstation" else None,
    )


def _rates(before: list[float] | None, values: list[float], name: str, total: int) -> list[float]:
    """Rates relative to one customer; classes must agree on them, and the last one holds from there on."""
    if len(values) > LARGEST_TABLE or min(values) <= 0:
        raise DataError(f"station {name!r}: service times with 1, 2, ... customers must be > 0")
    rates = [values[0] / v for v in values]
    rates += [rates[-1]] * (total - len(rates))
    if before is not None and any(abs(a - b) > 1e-9 * abs(b) for a, b in zip(rates, before, strict=True)):
        raise DataError(f"station {name!r}: classes slow down differently, which has no product form")
    return rates


def _number(text: str | None, what: str) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise DataError(f"{what} must be a number, got {text!r}")
    return value
