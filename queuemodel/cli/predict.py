"""``queuemodel predict`` and ``queuemodel plan``: from a profile to numbers of workers."""

from __future__ import annotations

from typing import Any

import click

from ..checks import require_writable
from ..drawing import save_figure
from ..instances import plan_instances, read_instances
from ..prediction import load, measured_besides
from ..prediction import predict as predict_curve
from ..reporting import SUFFIXES
from ..training import Profile, Throughput, ThroughputCurve
from ..training import plan as plan_workers
from .options import DATASET_SIZE, DURATION, FILE, PICTURES, POSITIVE, REPORT, format_option
from .output import show, watched
from .questions import PREDICTION, asked


def question_of(
    profile: str,
    throughputs: tuple[str, ...],
    measured: tuple[tuple[int, float | None, float], ...],
    **options: Any,
) -> dict[str, Any]:
    """The options of `PREDICTION` as arguments of `predict`."""
    data = load(profile)
    besides = measured_besides(data, throughputs, measured)
    return {"data": data, "throughputs": besides, "progress": watched(), **asked(options, max(options["workers"]))}


def write_page(
    path: str, curve: ThroughputCurve, data: object, options: dict[str, Any], **questions: float | None
) -> None:
    """Write the page of a curve."""
    profile = data.told(options["congestion_control"], options["buffer"]) if isinstance(data, Profile) else None
    curve.report(path, profile=profile, **questions)


def require_batch_size(data: object, batch_size: int | None) -> None:
    """Refuse to count examples where nobody told how many a step has."""
    if batch_size is None and isinstance(data, list) and isinstance(data[0], Throughput):
        raise click.UsageError("--batch-size: throughputs alone do not tell how many examples a step has; give it")


@click.command()
@PREDICTION
@format_option
@click.option("--plot", type=FILE, help="Write the curve as a picture (.png, .svg, .pdf).")
@REPORT
def predict(output_format: str, plot: str | None, report: str | None, **options: Any) -> None:
    """Predict throughput against the number of workers.

    PROFILE is a profile's JSON, or a CSV with the columns workers and steps_per_second (of all workers),
    iterations_per_second (of the whole group) or step_time, or with nodes,gpus,batch_size,step_time[,gpus_per_node]; a
    worker is a GPU then.

    \b
    Examples:
      queuemodel predict profile.json --workers 1:32 --plot curve.png
      queuemodel predict profile.json --parameter-servers 2 --bandwidth 10Gbit/s
      queuemodel predict profile.json --policy tic --worker-speeds 1*3,0.5
      queuemodel predict profile.json --measured 4=1.74 --format json
      queuemodel predict throughputs.csv --strategy all-reduce --workers 1:16
      queuemodel predict placements.csv --batch-size 40 --gpus-per-node 4
    """
    require_writable(plot, suffixes=PICTURES)
    require_writable(report, suffixes=SUFFIXES)
    question = question_of(**options)
    curve = predict_curve(**question)
    if plot is not None:
        save_figure(curve.plot(), plot)
    if report is not None:
        write_page(report, curve, question["data"], options)
    show(curve, output_format)


@click.command()
@PREDICTION
@click.option("--epochs", type=POSITIVE, help="Passes over the data set.")
@click.option("--dataset-size", type=DATASET_SIZE, help="Examples per epoch, unless the profile has it.")
@click.option("--deadline", type=DURATION, help="Like 12h or 90min: the smallest number of workers that meets it.")
@click.option(
    "--price", "price_per_node_hour", type=POSITIVE, help="Per node and hour: the cheapest number of workers."
)
@click.option("--min-efficiency", type=POSITIVE, help="The most workers with at least this X(N) / (N X(1)).")
@click.option("--min-marginal-speedup", type=POSITIVE, help="The most workers of which each still adds this speedup.")
@click.option("--throughput", type=POSITIVE, help="Examples per second: the fewest workers that reach it.")
@click.option(
    "--instances",
    type=FILE,
    help="Types of machine with their prices, a CSV: the cheapest for the deadline or the throughput.",
)
@format_option
@REPORT
def plan(
    output_format: str,
    instances: str | None,
    report: str | None,
    epochs: float | None,
    dataset_size: int | None,
    deadline: float | None,
    price_per_node_hour: float | None,
    min_efficiency: float | None,
    min_marginal_speedup: float | None,
    throughput: float | None,
    **options: Any,
) -> None:
    """Choose the number of workers for a deadline, a price or an efficiency, or a type of machine and how many.

    \b
    Examples:
      queuemodel plan profile.json --epochs 90 --deadline 12h --price 2.50
      queuemodel plan profile.json --epochs 90 --deadline 12h --instances a.csv
    """
    goal: dict[str, Any] = {"epochs": epochs, "dataset_size": dataset_size}
    goal |= {"deadline": deadline, "throughput": throughput}
    others: dict[str, Any] = {
        "price_per_node_hour": price_per_node_hour,
        "min_efficiency": min_efficiency,
        "min_marginal_speedup": min_marginal_speedup,
    }
    if instances is not None and any(value is not None for value in others.values()):
        raise click.UsageError("--instances: goes with --deadline, --throughput or --epochs alone")
    require_writable(report, suffixes=SUFFIXES)
    elsewhere = {"instances": instances, "throughput": throughput, "min_marginal_speedup": min_marginal_speedup}
    for name, value in elsewhere.items():
        if report is not None and value is not None:
            raise click.UsageError(f"--report: the page does not plan by --{name.replace('_', '-')}; leave one out")
    question = question_of(**options)
    if epochs is not None or throughput is not None:
        require_batch_size(question["data"], options["batch_size"])
    if instances is not None:
        show(plan_instances(instances=read_instances(instances), **question, **goal), output_format)
        return
    curve = predict_curve(**question)
    chosen = plan_workers(curve, **goal, **others)
    if report is not None:
        asked_of_page = {name: value for name, value in (goal | others).items() if name not in elsewhere}
        write_page(report, curve, question["data"], options, **asked_of_page)
    show(chosen, output_format)
