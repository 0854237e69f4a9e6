"""``queuemodel solve``."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from .. import queueing as qn
from ..base.checks import JSON, require_choice, require_count, require_writable
from ..base.drawing import FORMATS, dots, finish_axes, new_axes, save_figure
from ..base.errors import DataError, ModelError
from ..base.files import count_in, number_in, or_zero, parse_duration, read_bytes
from ..base.results import Result, finite, percent, tabulate
from ..models import SimulatedRounds
from ..models.predict import load_data, simulate
from ..profile.profile import Profile
from ..queueing.bounds import BOUND_KINDS
from ..queueing.jmva import sweep_in
from ..queueing.json_format import rate_in
from . import options as ask

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Solvers by the names of --solver.
SOLVERS: dict[str, qn.Solver | None] = {
    "auto": None, "exact": qn.ExactMVA(), "markov": qn.MarkovChain(), "recursion": qn.ApproximateMVA(),
    "bard-schweitzer": qn.ApproximateMVA("bard-schweitzer"), "linearizer": qn.ApproximateMVA("linearizer"),
    "simulation": qn.Simulation(),
}  # fmt: skip
EXACTNESS = (
    "auto: exact where that is possible; exact: product form, else refused; markov: exact for small networks, cut off "
    "with open classes; recursion, linearizer, bard-schweitzer: approximate; simulation: an estimate with its interval."
)
#: Shares of response times that --percentiles shows.
SHARES = (0.5, 0.9, 0.95, 0.99)
#: More solutions than this are a mistake.
MOST_ROWS = 10_000


def _populations(text: str) -> Any:
    """Counts, or by class as in ``a=1:20,b=3``."""
    if "=" not in text:
        return ask.COUNTS.parse(text)
    parts = [part.partition("=") for part in re.split(r",(?=[^,=]+=)", text)]
    found = {name.strip(): _counts_from_0(counts) for name, _, counts in parts}
    if len(found) < len(parts):
        raise DataError(f"{text!r} names a class twice")
    return found


def _counts_from_0(text: str) -> Sequence[int]:
    """Counts that may begin with 0: ``0``, ``0,2,4`` or ``0:4``."""
    zero, mark, others = re.fullmatch(r"\s*(0*)\s*([:,]?)(.*)", text).groups()  # type: ignore[union-attr]
    if not zero or (mark == "" and others):
        return ask.COUNTS.parse(text)
    return [0, *(ask.COUNTS.parse("1:" * (mark == ":") + others) if mark else [])]


def _values(text: str) -> list[float]:
    """Numbers or durations: ``0.01:0.1:10`` (first, last, how many), or ``0.01,0.02``."""
    first, *others = text.split(":")
    if len(others) == 2:
        count = require_count(count_in(others[1]), "count", most=MOST_ROWS)
        return np.linspace(_value(first), _value(others[0]), count).tolist()
    if others:
        raise DataError(f"{text!r} is not like 0.01:0.1:10 (first, last, how many) or 0.01,0.02")
    return [_value(part) for part in text.split(",")]


def _value(text: str) -> float:
    value = number_in(text)
    if isinstance(value, str):
        value = rate_in(text, "value") if "/" in text else or_zero(parse_duration)(text)
    return value


def _sweep(text: str) -> tuple[str, list[float]]:
    name, equals, values = text.rpartition("=")
    if not equals:
        raise DataError(f"{text!r} is not like cpu.service_time=0.01:0.1:10")
    return name.strip(), _values(values)


def _changed(network: qn.Network, name: str, value: float) -> qn.Network:
    """The network with a parameter ``STATION.FIELD``, ``STATION.FIELD[CLASS]``, ``CLASS.FIELD`` or ``think_time``."""
    whose, _, field = name.rpartition(".")
    field, _, job_class = field.rstrip("]").partition("[")
    given: Any = int(value) if field in ("servers", "population") and float(value).is_integer() else value
    fields = {"stations": ("service_time", "visit_ratio", "servers", "scv"),
              "classes": ("population", "think_time", "arrival_rate")}  # fmt: skip
    if not whose:
        require_choice(field, "--sweep", ["think_time"], error=DataError)
        return replace(network, think_time=given)
    group = "stations" if whose in network.names else "classes"
    members = {member.name: member for member in getattr(network, group)}
    require_choice(whose, "--sweep: station or class", [*network.names, *network.class_names], error=DataError)
    require_choice(field, f"--sweep: field of {whose}", fields[group], error=DataError)
    if job_class:
        require_choice(job_class, f"--sweep: class of {whose}.{field}", network.class_names, error=DataError)
        before = getattr(members[whose], field)
        each = before if isinstance(before, dict) else dict.fromkeys(network.class_names, before)
        given = each | {job_class: given}
    members[whose] = replace(members[whose], **{field: given})
    changed: dict[str, Any] = {group: list(members.values())}
    return replace(network, **changed)


def _asked(
    network: qn.Network, populations: Any, sweep: list[tuple[int, ...]], where: str, swept: str = ""
) -> list[Any]:
    """The populations to solve at, each as `solve` takes it, beside those of a class that are ``swept``."""
    closed = {c.name: [c.population] for c in network.classes if not c.is_open}
    if swept and (sweep or (swept in populations if isinstance(populations, dict) else populations)):
        raise ModelError(f"--sweep: customers of {swept} are specified by --population or by a what-if of {where}, too")
    if not populations:
        if not network.classes:
            raise ModelError(f"{where}: --population is needed, like 8 or 1:100")
        return [dict(zip(network.class_names, counts, strict=True)) for counts in sweep] or [None]
    if isinstance(populations, dict):
        for name in populations:
            require_choice(name, f"{where}: --population: class", list(closed), error=ModelError)
        closed |= populations
        if math.prod(map(len, closed.values())) > MOST_ROWS:
            raise ModelError(f"--population: more than {MOST_ROWS:,} combinations")
        return [dict(zip(closed, counts, strict=True)) for counts in itertools.product(*closed.values())]
    if network.classes and len(closed) != 1:
        how = f"have populations of their own; write {next(iter(closed))}=1:20" if closed else "are open"
        raise ModelError(f"{where}: its classes {how}, or leave --population out")
    return [dict.fromkeys(closed, n) if network.classes else n for n in populations]


@ask.command()
@click.argument("network", type=ask.FILE)
@ask.option(
    "--population",
    ask.Parsed("counts", _populations),
    "Customers: 8, 1:100 or 1,2,4,8; by class a=1:20,b=3. Classes have theirs in the file.",
)
@ask.option("--solver", ask.OneOf(list(SOLVERS)), EXACTNESS, metavar="NAME", default="auto", show_default=True)
@ask.option("--compare", str, "Several solvers side by side, like exact,linearizer.", metavar="NAMES")
@ask.option(
    "--sweep",
    ask.Parsed("PARAMETER=VALUES", _sweep),
    "Values of one parameter, like cpu.service_time=0.01:0.1:10 or b.arrival_rate=1,2,3.",
)
@ask.option("--bounds", None, "Bounds of every kind instead of a solution.", is_flag=True)
@ask.option("--sensitivity", None, "Derivatives of throughput by demands instead of measures.", is_flag=True)
@ask.option("--symbolic", None, "Throughput as a formula, for a small population.", is_flag=True)
@ask.option("--marginals", str, "Distribution of the number of customers at a station.", metavar="STATION")
@ask.option(
    "--percentiles", str, "Percentiles of the response time at a station, or of the 'cycle'.", metavar="STATION"
)
@ask.option("--plot", ask.FILE, "Draw throughput with its bounds, or over a sweep (.png, .svg, .pdf).")
@ask.one_of(
    "--format output_format", ["table", "json", "csv", "markdown"], "Format.", default="table", show_default=True
)
def solve_command(network: str, output_format: str, plot: str | None, **options: Any) -> None:
    """Solve the network of a JSON file, or of a .jmva file of JMT, exactly where that is possible.

    Classes may be closed (population) or open (arrival_rate).

    \b
    Example:
      queuemodel solve network.json --population 1:100 --format csv
      queuemodel solve network.json --population 8 --compare exact,linearizer
      queuemodel solve network.json --population 8 --sweep think_time=1:2:5
    where network.json holds
      {"format": "queuemodel-network", "version": 1, "think_time": 1.0,
       "stations": [{"name": "server", "service_time": 0.2}]}
    """  # fmt: skip
    require_writable(plot, suffixes=FORMATS)
    text = read_bytes(network)  # once: it may be a pipe
    xml = text.lstrip().startswith(b"<")
    model, sweep = sweep_in(text, network) if xml else (qn.Network.from_json(text, where=network), [])
    populations = partial(_asked, populations=options["population"], sweep=sweep, where=network)
    chosen = [name for name in (*ANSWERS, "compare", "sweep") if options[name] not in (None, False)]
    if options["solver"] != "auto" and chosen not in ([], ["sweep"]):
        chosen.append("solver")
    if len(chosen) > 1:
        raise ModelError(f"--{chosen[0]} and --{chosen[1]} are different questions; leave one of them out")
    if chosen and chosen[0] in ANSWERS:
        asked = populations(model)
        if len(asked) > 1 and chosen != ["bounds"]:
            raise ModelError(f"--{chosen[0]} is at one population, got {len(asked)}; give one (--population)")
        result = ANSWERS[chosen[0]](model, asked, options[chosen[0]])
        if plot:
            raise ModelError(f"--plot: draws solutions and sweeps, not --{chosen[0]}; leave one of them out")
    else:
        result, whole = _solutions(model, populations, options | {"format": output_format})
        if plot:
            swept = options["sweep"] and _plot_sweep(options["sweep"][0], result)
            save_figure(swept or qn.plot_network_solution(whole), plot)
    if output_format == "markdown":
        said, rows = result.caption(), "\n\n".join(tabulate(t, digits=4, form="pipe") for t in result._tables())
        click.echo(f"{said}\n\n{rows}")
    else:
        ask.show(result, output_format)


def _solutions(
    model: qn.Network, populations: Callable[..., list[Any]], options: dict[str, Any]
) -> tuple[Result, qn.Solution]:
    """The table of all solutions, and the last of them."""
    names = (options["solver"] if options["compare"] is None else options["compare"]).split(",")
    for name in names:
        require_choice(name, "--compare", list(SOLVERS), error=DataError)
    parameter, values = options["sweep"] or ("", [None])
    swept = parameter.removesuffix(".population") if parameter.endswith(".population") else ""
    rows, solutions = [], []
    for value, name in itertools.product(values, names):
        network = model if value is None else _changed(model, parameter, value)
        asked = populations(network, swept=swept)
        curve = None if model.classes else qn.solve(network, population=asked[-1], solver=SOLVERS[name])
        for n in asked:
            kept = curve and n >= curve.populations[0]
            s = curve.at(n) if kept else qn.solve(network, population=n, solver=SOLVERS[name])  # type: ignore[union-attr]
            rows.append(({} if value is None else {parameter: value}) | _row(s))
            solutions.append(s)
    whole = solutions[-1]
    own, closed = asked == [None], [c.population for c in model.classes if not c.is_open]
    saturation: dict[str, Any] = {}
    if not options["sweep"] and (len(closed) == bool(model.classes) or (own and any(closed))):
        N = qn.saturation_population(model)
        saturation["saturation_population"] = N if math.isfinite(N) else None
    if own and len(rows) == 1:
        rows = [row | _solver(whole) for row in whole.class_rows()]
        data = options["format"] in ("json", "csv")
        return ask.Table(rows, whole.to_dict() | saturation) if data else whole, whole
    document = {"name": model.name, **_solver(whole), "bottleneck": whole.bottleneck, **saturation}
    marked = [row | _solver(solution) for row, solution in zip(rows, solutions, strict=True)]
    document |= {name: [row[name] for row in rows] for name in rows[0]}
    says = f"{model.name or 'network'} {whole.method()}"
    if options["compare"]:
        document |= {name: [row[name] for row in marked] for name in ("expected_error", "solver", "exact")}
        short = [name for name in rows[0] if not name.startswith(("bound", "residence_time", "queue_length"))]
        rows = [{"solver": row["solver"], "expected_error": row["expected_error"]}
                | {name: row[name] for name in short} for row in marked]  # fmt: skip
        says = f"{model.name or 'network'}; expected error is 0 where the solver is exact, - where it is not known"
    return ask.Table(marked, document, rows, says=says), whole


def _row(s: qn.Solution) -> dict[str, Any]:
    """Population, throughput and cycle time, of classes too, then each station's measures; bounds of one kind."""
    network = s.network
    alone = len(network.classes) < 2 and not network.open_classes
    row: dict[str, Any] = {"population": s.population, "throughput": s.throughput}
    if alone:
        bounds = qn.bounds(network, s.population)
        row |= {"bound_lower": float(bounds.lower), "bound_upper": float(bounds.upper)}
    row["cycle_time"] = s.cycle_time
    if not alone:
        row |= {f"{name}[{one['class']}]": one[name] for one in s.class_rows() for name in row}
    for station, *measures in zip(network.names, s.utilization, s.queue_length, s.residence_time, strict=True):
        names = ("utilization", "queue_length", "residence_time")
        row |= {f"{name}[{station}]": float(x) for name, x in zip(names, measures, strict=True)}
    return row


def _solver(solution: qn.Solution) -> dict[str, Any]:
    return {"expected_error": solution.known_error, "solver": solution.solver, "exact": solution.exact}


def _plot_sweep(parameter: str, table: Result) -> Axes:
    ax, rows = new_axes(), table.to_rows()
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:  # a line for each population, of closed classes
        counts = {name: n for name, n in row.items() if name.startswith("population") and isinstance(n, int)}
        label = ", ".join(f"{name} {n}" for name, n in counts.items() if len(counts) == 1 or name != "population")
        lines.setdefault(label, []).append((row[parameter], row["throughput"]))
    for label, line in lines.items():
        ax.plot(*zip(*line, strict=True), label=label, **dots(len(line)))
    ax.set(xlabel=parameter.replace("_", " "), ylabel="throughput (cycles/s)", ylim=(0, None))
    finish_axes(ax)
    return ax


def _bounds(model: qn.Network, asked: list[Any], _: bool) -> Result:
    counts = np.array([n if isinstance(n, int) else sum((n or {"": model.populations.sum()}).values()) for n in asked])
    plain = all(s.rates is None and (s.is_delay or s.servers == 1) for s in model.stations)
    found = [qn.bounds(model, counts, kind=kind) for kind in (BOUND_KINDS if plain else ["asymptotic"])]
    rows = [{"bounds": each.method} | row for each in found for row in each.to_rows()]
    return ask.Table(rows, says=f"{model.name or 'network'}: bounds that hold, whatever the solver")


def _sensitivity(model: qn.Network, asked: list[Any], _: bool) -> Result:
    slopes = qn.sensitivity(model, population=asked[-1])
    return ask.Table(slopes.to_rows(), says=f"{model.name or 'network'}: {slopes.caption()} (derivatives, exact)")


def _symbolic(model: qn.Network, asked: list[Any], _: bool) -> Result:
    said = qn.solve_symbolic(model, population=asked[-1])
    each = said.throughput if model.classes else [said.throughput]
    rows = [{"class": name, "throughput": str(x)} for name, x in zip(model.class_names or ["all"], each, strict=True)]
    symbols = ", ".join(f"D_{k + 1}: {name}" for k, name in enumerate(model.names))
    return ask.Table(rows, says=f"{model.name or 'network'}, population {said.population} (exact); {symbols}")


def _marginals(model: qn.Network, asked: list[Any], station: str) -> Result:
    p = qn.marginal_distribution(model, station, population=asked[-1])
    rows = [{"customers": n, "probability": float(x), "at_least": float(p[n:].sum())} for n, x in enumerate(p)]
    return ask.Table(rows, says=f"{model.name or 'network'}: customers at {station} (normalizing constants, exact)")


def _percentiles(model: qn.Network, asked: list[Any], station: str) -> Result:
    place = None if station == "cycle" and station not in model.names else station
    if place:
        require_choice(place, "--percentiles: station", [*model.names, "cycle"], error=DataError)
    where = f"{model.name or 'network'}: seconds " + (f"of a visit to {place}" if place else "of a cycle")
    with contextlib.suppress(ModelError):  # no closed form
        if place:
            seconds = [qn.response_percentile(model, place, share, population=asked[-1]) for share in SHARES]
            rows = [{"share": share, "seconds": t} for share, t in zip(SHARES, seconds, strict=True)]
            return ask.Table(rows, says=f"{where} (closed form, exact)")
    run = qn.Simulation().run(model, asked[-1])
    rows = []
    for share in SHARES:
        t = run.response_percentile(place, share)
        rows.append({"share": share, "seconds": t.value, "lower": finite(t.lower), "upper": finite(t.upper)})
    return ask.Table(rows, says=f"{where} ({run.solution.solver}, {percent(run.confidence)} intervals)")


ANSWERS: dict[str, Callable[[qn.Network, list[Any], Any], Result]] = {
    "bounds": _bounds,
    "sensitivity": _sensitivity,
    "symbolic": _symbolic,
    "marginals": _marginals,
    "percentiles": _percentiles,
}


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
    recorded = load_data(profile)
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
