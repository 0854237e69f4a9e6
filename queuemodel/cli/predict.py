"""From a profile: its fit, a curve, a number of workers, what to measure next, a page to mail."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from ..base.checks import require_writable
from ..base.drawing import FORMATS, save_figure
from ..base.errors import ModelError
from ..curves.curve import MOST_CURVE_WORKERS
from ..curves.goals import GOALS, WORK
from ..curves.plan import plan
from ..curves.prediction import next_measurement
from ..models.instances import plan_instances, read_instances
from ..models.predict import fit, further_measurements, load_data, predict
from ..profile.measurements import Measurement
from ..profile.profile import Profile
from ..profile.scenario import FIELDS, Scenario
from ..profile.throughputs import as_throughputs
from ..report import SUFFIXES
from . import options as ask

#: Nodes that are predicted by default: at least so many, and up to so many times the measured ones.
FEWEST_NODES, EXTRAPOLATED = 8, 4


def measured_of(options: dict[str, Any]) -> tuple[Any, list[Measurement | Profile]]:
    """The data, and what was measured besides; their options are removed."""
    data = load_data(options.pop("profile"))
    return data, further_measurements(data, options.pop("throughputs"), options.pop("measured"))


def question_of(options: dict[str, Any], *, every: bool = True) -> dict[str, Any]:
    """The options of `PREDICTION` as arguments of `predict`; by default on ``every`` number of whole nodes, or few."""
    data, besides = measured_of(options)
    options["workers"] = workers_of(data, options.pop("workers"), options.pop("nodes"), options["gpus_per_node"], every)
    known = ask.specified(options, max(options["workers"]))
    return {"data": data, "throughputs": besides, "progress": ask.watched(), **known}


def workers_of(data: Any, workers: Any, nodes: Any, per_node: int | None, every: bool) -> Sequence[int]:
    """The specified numbers of workers, or those of nodes; by default 1 to 32, or whole nodes of several GPUs.

    These go up to a multiple of the measured ones: every number of nodes, or powers of two and those measured.
    """
    if workers and nodes:
        raise click.UsageError("--nodes and --workers exclude each other; give one")
    table = not isinstance(data, Profile)
    each = per_node or (max(point.fullest_node for point in data) if table else 1)
    if nodes and each == 1 and not (table and any(point.nodes for point in data)):
        raise click.UsageError("--nodes: the number of GPUs per node is unknown; give --gpus-per-node, or --workers")
    if workers or (not nodes and each == 1):
        return workers or range(1, 33)
    measured = {-(-n // each) for n in ([m.workers for m in data] if table else [one.ranks for one in data.rounds])}
    most = min(max(FEWEST_NODES, EXTRAPOLATED * max(measured, default=1)), MOST_CURVE_WORKERS // each)
    powers = {2**k for k in range(most.bit_length())}
    return [each * n for n in nodes or (range(1, most + 1) if every else sorted(powers | measured))]


def goals_of(options: dict[str, Any]) -> dict[str, Any]:
    """The goals and the work that have a value; all are removed."""
    names = (*WORK, "dataset_size", "currency", *GOALS)
    found = {name: options.pop(name) for name in names if name in options}
    return {name: value for name, value in found.items() if value is not None}


def require_batch_size(question: dict[str, Any], goal: dict[str, Any]) -> None:
    """Refuse to count examples if a step's number of them is unknown."""
    data = question["data"]
    known = "batch_size" in question or isinstance(data, Profile) or data[0].batch_size is not None
    if goal.keys() & {"epochs", "dataset_size", "examples", "tokens", "throughput"} and not known:
        raise click.UsageError("--batch-size: throughputs alone do not determine it; give it")


@ask.command()
@ask.PROFILE
@ask.STRATEGY
@ask.THROUGHPUTS
@ask.GPUS_PER_NODE
@ask.FORM
@ask.MEASUREMENTS
@ask.option("--seed", ask.SEED, "Of random numbers.", default=0, show_default=True)
@ask.OUTPUT
def fit_command(output_format: str, explain: bool, **options: Any) -> None:
    """Fit a profile: each parameter with its standard error, its origin, and whether it is identified.

    PROFILE is what predict takes.

    \b
    Examples:
      queuemodel fit profile.json
      queuemodel fit profile.json --measured 4=1.74 --format json
      queuemodel fit throughputs.csv --strategy all-reduce
    """
    data, besides = measured_of(options)
    ask.show(fit(data, throughputs=as_throughputs(besides), **options), output_format, explain=explain)


@ask.command()
@ask.PREDICTION
@ask.OUTPUT
@ask.option("--plot", ask.FILE, "Draw the curve (.png, .svg, .pdf).")
def predict_command(output_format: str, explain: bool, plot: str | None, **options: Any) -> None:
    """Predict throughput against the number of workers.

    PROFILE is a profile's JSON, or a CSV with the columns workers and steps_per_second (of all workers),
    iterations_per_second (of the whole group) or step_time, or with nodes,gpus,batch_size,step_time[,gpus_per_node]; a
    worker is a GPU then.

    \b
    Examples:
      queuemodel predict profile.json --workers 1:32 --plot curve.png
      queuemodel predict profile.json --parameter-servers 2 --bandwidth 10Gbit/s
      queuemodel predict profile.json --measured 4=1.74 --format json
      queuemodel predict throughputs.csv --strategy all-reduce --workers 1:16
      queuemodel predict placements.csv --batch-size 40 --gpus-per-node 4
    """
    require_writable(plot, suffixes=FORMATS)
    curve = predict(**question_of(options, every=False))
    if plot is not None:
        save_figure(curve.plot(), plot)
    ask.show(curve, output_format, explain=explain)


@ask.command()
@ask.PREDICTION
@ask.GOAL_OPTIONS
@ask.option("--min-marginal-speedup", ask.FRACTION, "Least speedup that each worker adds, 0 to 1.",
            common=False)  # fmt: skip
@ask.option("--throughput", ask.ABOVE_ZERO, "Least number of examples, or tokens, per second.", common=False)
@ask.option("--instances", ask.FILE, "CSV of machine types and prices, to choose from.", common=False)
@ask.OUTPUT
def plan_command(output_format: str, explain: bool, instances: str | None, **options: Any) -> None:
    """Choose the number of workers for a deadline, a price or an efficiency, or a type of machine and how many.

    The exit status is 3 where a goal is not met.

    \b
    Examples:
      queuemodel plan profile.json --epochs 90 --deadline 12h --price 2.50
      queuemodel plan profile.json --epochs 90 --price 2.50 --budget 300
      queuemodel plan nodes.csv --tokens 30B --price 25 --currency EUR
    """
    goal = goals_of(options)
    question = question_of(options)
    require_batch_size(question, goal)
    if instances is not None:
        if goal.keys() & {"price_per_node_hour", "budget", "min_efficiency", "min_marginal_speedup"}:
            raise click.UsageError("--instances: goes with --deadline, --throughput or --epochs alone")
        offers = plan_instances(instances=read_instances(instances), **question, **goal)
        ask.show(offers, output_format, explain=explain)
        unmet = offers.cheapest is None
    else:
        if not goal.keys() & GOALS.keys():
            raise click.UsageError("give a goal, like --deadline, --price, --throughput or --min-efficiency")
        planned = plan(predict(**question), **goal)
        ask.show(planned, output_format, explain=explain)
        unmet = any(choice.workers is None for choice in planned.choices)
    if unmet:
        raise click.exceptions.Exit(3)


@ask.command()
@ask.PREDICTION
@ask.format_option
def next_measurement_command(output_format: str, **options: Any) -> None:
    """Recommend the run that narrows the interval of the largest of --workers most: workers, or nodes of GPUs.

    PROFILE is a profile's JSON, or a CSV of measurements, to which the result is a further row. Beside a profile, give
    the result to `queuemodel predict --measured WORKERS=STEPS/S`.

    \b
    Examples:
      queuemodel next-measurement profile.json --workers 16
      queuemodel next-measurement profile.json --measured 3=1.63
      queuemodel next-measurement table.csv --workers 128
    """
    ask.show(next_measurement(predict(**question_of(options))), output_format)


@ask.command()
@ask.PREDICTION
@ask.GOAL_OPTIONS
@ask.option("-o --output", ask.FILE, "The page to write (.html).", required=True)
@ask.option("--name", help="Of the job, in the title.  [default: the profile's, or the file's]", common=False)
@ask.option("--show shown", ask.WORKER_COUNT, "Number of workers that the page shows first.", common=False)
@ask.format_option
def report_command(output: str, name: str | None, shown: int | None, output_format: str, **options: Any) -> None:
    """Write a report: one HTML file with what-ifs, which needs no network.

    It begins with the answers of predict and plan. Sliders change workers, and what the model answers of servers,
    bandwidth, latency and accelerators; fields change the work, prices and goals. A simulated prediction changes as
    that of the closed network (--method mva) does. --format json or csv also prints the prediction.

    \b
    Example:
      queuemodel report profile.json -o report.html --epochs 90 --deadline 12h
    """
    require_writable(output, suffixes=SUFFIXES)
    goal, file = goals_of(options), options["profile"]
    question = question_of(options)
    require_batch_size(question, goal)
    data, profile, curve, solved = question["data"], None, predict(**question), None
    if isinstance(data, Profile):
        requested = Scenario(**{name: value for name, value in question.items() if name in FIELDS})
        profile, _ = requested.on(data)
    if goal.keys() & GOALS.keys():
        plan(curve, **goal)  # refuses what it cannot answer
    if not curve.model.quick:
        with suppress(ModelError):  # without a closed network there are no what-ifs
            solved = predict(**question | {"method": "mva"})
    name = name or (profile.job.name if profile else "") or Path(file).stem
    curve.report(output, what_ifs=solved, profile=profile, name=name, workers=shown, progress=ask.watched(), **goal)
    if output_format != "table":
        ask.show(curve, output_format)
    remarks = [*filter(None, [curve.assumption]), f"{output}: open it in a browser"]
    click.echo("; ".join(remarks), err=output_format != "table")
