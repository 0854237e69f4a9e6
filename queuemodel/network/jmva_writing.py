"""Writing .jmva, the model files of JMT's MVA tool (Bertoli, Casale and Serazzi, 2009)."""

from __future__ import annotations

import os
from typing import Any
from xml.etree import ElementTree

from ..errors import ModelError
from ..files import write_atomically
from .lowered import lower
from .network import Network
from .place import Place


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
    if why := lower(network).why_not_product_form():
        raise ModelError(f"jmva: {why}, which such a file cannot say")
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
    for station, visits in zip(network.stations, network.class_visit_ratios.tolist(), strict=True):
        _write_station(stations, station, names, network.labels, visits, sum(counts))
    if think:
        element = ElementTree.SubElement(stations, "delaystation", name=_free_name(network), servers="1")
        _write_numbers(element, names, network.think_times.tolist(), [1.0] * len(names))
    references = ElementTree.SubElement(parameters, "ReferenceStation", number=str(len(names)))
    reference = _free_name(network) if think else network.names[network.reference_index]
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
    stations: ElementTree.Element, s: Place, names: list[str], labels: list[str | None], visits: list[float], total: int
) -> None:
    if s.branches:
        raise ModelError(f"jmva: station {s.name!r} is a fork-join, which such a file cannot say")
    times = [s.time_of(c) for c in labels]
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
            table = isinstance(value, str)  # JMT names the inner element of a table like the outer one
            tag = group if table else one
            ElementTree.SubElement(parent, tag, customerclass=name).text = value if table else repr(value)
