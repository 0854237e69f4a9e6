"""``queuemodel solve``."""

from __future__ import annotations

from collections.abc import Sequence

import click
import numpy as np

from ..errors import ModelError
from ..network import Network
from ..solvers import bounds as bounds_on
from ..solvers import saturation_population
from ..solvers import solve as solve_network
from .options import COUNTS, FILE, format_option, option
from .output import Table, show


@click.command()
@click.argument("network", type=FILE)
@option("--population", COUNTS, "Customers: 8, 1:100 or 1,2,4,8. Classes have their own in the file.")
@format_option
def solve(network: str, population: Sequence[int] | None, output_format: str) -> None:
    """Solve the closed network written down in a JSON file, exactly where that is possible.

    \b
    Example:
      queuemodel solve network.json --population 1:100 --format csv
    where network.json holds
      {"format": "queuemodel-network", "version": 1, "think_time": 1.0,
       "stations": [{"name": "server", "service_time": 0.2}]}
    """
    model = Network.load(network)
    if model.classes:
        if population is not None:
            raise ModelError(f"{network}: its classes have populations of their own; leave --population out")
        solved = solve_network(model)
        show(solved if output_format != "csv" else Table(solved.class_rows()), output_format)
        return
    if population is None:
        raise ModelError(f"{network}: --population is needed, like 8 or 1:100")
    solution = solve_network(model, population=population[-1])
    bounds = bounds_on(model, np.array(population))
    rows = []
    for n, low, high in zip(population, bounds.lower, bounds.upper, strict=True):
        at = solution.at(n)
        row = {
            "population": n,
            "throughput": at.throughput,
            "bound_lower": float(low),
            "bound_upper": float(high),
            "cycle_time": at.cycle_time,
        }
        measures = ("utilization", "queue_length", "residence_time")
        rows.append(row | {f"{name}[{one['station']}]": one[name] for one in at.to_rows() for name in measures})
    saturation = saturation_population(model)
    document = {
        "name": model.name,
        "solver": solution.solver,
        "exact": solution.exact,
        "bottleneck": solution.bottleneck,
        "saturation_population": saturation if saturation < float("inf") else None,
        **{name: [row[name] for row in rows] for name in rows[0]},
    }
    show(Table(rows, document), output_format)
