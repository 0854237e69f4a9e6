"""``queuemodel solve``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import numpy as np

from ..base.checks import JSON, require_writable
from ..base.drawing import FORMATS, save_figure
from ..base.errors import DataError, ModelError
from ..models.predict import load, simulate
from ..models.simulated_rounds import SimulatedRounds
from ..profile.profile import Profile
from ..queueing.bounds import bounds as bounds_on
from ..queueing.bounds import saturation_population
from ..queueing.network import Network
from ..queueing.solve import solve
from . import options as ask


@ask.command()
@click.argument("network", type=ask.FILE)
@ask.option("--population", ask.COUNTS, "Customers: 8, 1:100 or 1,2,4,8. Classes have their own in the file.")
@ask.format_option
def solve_command(network: str, population: Sequence[int] | None, output_format: str) -> None:
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
        solved = solve(model)
        ask.show(solved if output_format != "csv" else ask.Table(solved.class_rows()), output_format)
        return
    if population is None:
        raise ModelError(f"{network}: --population is needed, like 8 or 1:100")
    solution = solve(model, population=population[-1])
    bounds = bounds_on(model, np.array(population))
    rows = []
    for n, low, high in zip(population, bounds.lower, bounds.upper, strict=True):
        at = solution.at(n)
        row = {"population": n, "throughput": at.throughput, "bound_lower": float(low), "bound_upper": float(high)}
        row["cycle_time"] = at.cycle_time
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
    ask.show(ask.Table(rows, document), output_format)


#: Steps of each worker, or rounds, that a timeline shows.
SHOWN = 3


@ask.command()
@ask.PROFILE
@ask.option("--workers", ask.WORKER_COUNT, "Workers, or ranks.", required=True)
@ask.STRATEGY
@ask.option("--steps", ask.COUNT, "Per worker on average, or rounds.", default=200, show_default=True)
@ask.MACHINES
@ask.ROUNDS
@ask.SIMULATION
@ask.NETWORK
@ask.INTERVALS
@ask.format_option
@ask.option("--chrome-trace trace", ask.FILE, "Write the timeline, for ui.perfetto.dev (.json).")
@ask.option("--plot", ask.FILE, "All-reduce: draw one rank's round (.png, .svg, .pdf).")
def simulate_command(profile: str, output_format: str, trace: str | None, plot: str | None, **options: Any) -> None:
    """Simulate one cluster: recorded operations event by event, or rounds of data-parallel ranks.

    \b
    Examples:
      queuemodel simulate profile.json --workers 8 --chrome-trace timeline.json
      queuemodel simulate profile.json --workers 8 --strategy sync-ps
      queuemodel simulate ddp.json --workers 8 --scheme horovod --plot round.png
    """
    require_writable(plot, suffixes=FORMATS)
    require_writable(trace, suffixes=JSON)
    known = ask.specified(options, options["workers"])
    recorded = load(profile)
    if not isinstance(recorded, Profile):
        raise DataError(f"{profile}: throughputs alone cannot be simulated; give a profile with operations or rounds")
    if options["strategy"] != "all-reduce" and recorded.steps:
        if plot:
            raise DataError(
                "--plot: draws a round of data-parallel ranks; use --chrome-trace for a timeline of operations"
            )
        if trace:
            known["trace_steps"] = min(SHOWN, options["steps"])
    run = simulate(recorded, progress=ask.watched(), **known)
    if trace:
        run.chrome_trace(trace)
    if plot and isinstance(run, SimulatedRounds):
        save_figure(run.plot(), plot)
    ask.show(run, output_format)
