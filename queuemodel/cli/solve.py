"""``queuemodel solve``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ..base.checks import JSON, require_writable
from ..base.drawing import FORMATS, save_figure
from ..base.errors import DataError, ModelError
from ..base.files import read_bytes
from ..models import SimulatedRounds
from ..models.predict import load, simulate
from ..profile.profile import Profile
from ..queueing.bounds import bounds as bounds_on
from ..queueing.bounds import saturation_population
from ..queueing.jmva import read_jmva_sweep
from ..queueing.network import Network
from ..queueing.solution import Solution
from ..queueing.solve import solve
from . import options as ask


@ask.command()
@click.argument("network", type=ask.FILE)
@ask.option("--population", ask.COUNTS, "Customers: 8, 1:100 or 1,2,4,8. Classes have theirs in the file.")
@ask.format_option
def solve_command(network: str, population: Sequence[int] | None, output_format: str) -> None:
    """Solve the closed network of a JSON file, or of a .jmva file of JMT, exactly where that is possible.

    \b
    Example:
      queuemodel solve network.json --population 1:100 --format csv
    where network.json holds
      {"format": "queuemodel-network", "version": 1, "think_time": 1.0,
       "stations": [{"name": "server", "service_time": 0.2}]}
    """
    xml = read_bytes(network).lstrip().startswith(b"<")
    model, sweep = read_jmva_sweep(network) if xml else (Network.load(network), [])
    alone, asked = len(model.classes) < 2, population or sweep
    if not alone and population:
        raise ModelError(f"{network}: its classes have populations of their own; leave --population out")
    if not asked and not model.classes:
        raise ModelError(f"{network}: --population is needed, like 8 or 1:100")
    whole = solve(model, population=asked[-1] if asked else None)
    if not asked:
        rows = [row | _solver(whole) for row in whole.class_rows()]
        ask.show(whole if output_format != "csv" else ask.Table(rows), output_format)
        return
    rows, solvers, document = [], [], {"name": model.name, **_solver(whole), "bottleneck": whole.bottleneck}
    for n in asked:
        at = solve(model, population=n) if model.classes else whole.at(n)  # type: ignore[arg-type]
        row: dict[str, Any] = {"population": at.population, "throughput": at.throughput}
        if alone:
            bounds = bounds_on(model, at.population)
            row |= {"bound_lower": float(bounds.lower), "bound_upper": float(bounds.upper)}
        row["cycle_time"] = at.cycle_time
        if not alone:
            row |= {f"{name}[{one['class']}]": one[name] for one in at.class_rows() for name in row}
        for station, *measures in zip(model.names, at.utilization, at.queue_length, at.residence_time, strict=True):
            names = ("utilization", "queue_length", "residence_time")
            row |= {f"{name}[{station}]": float(x) for name, x in zip(names, measures, strict=True)}
        rows.append(row)
        solvers.append(_solver(at))
    if alone:
        saturation = saturation_population(model)
        document["saturation_population"] = saturation if saturation < float("inf") else None
    document |= {name: [row[name] for row in rows] for name in rows[0]}
    says = f"{model.name or 'network'} {whole.method()}"
    marked = [row | solver for row, solver in zip(rows, solvers, strict=True)]
    ask.show(ask.Table(marked, document, rows, says=says), output_format)


def _solver(solution: Solution) -> dict[str, Any]:
    return {"solver": solution.solver, "exact": solution.exact}


#: Steps of each worker, or rounds, that a timeline shows.
SHOWN_STEPS = 3


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
      queuemodel simulate ddp.json --workers 8 --plot round.png
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
            known["trace_steps"] = min(SHOWN_STEPS, options["steps"])
    run = simulate(recorded, progress=ask.watched(), **known)
    if trace:
        run.chrome_trace(trace)
    if plot and isinstance(run, SimulatedRounds):
        save_figure(run.plot(), plot)
    ask.show(run, output_format)
