"""``queuemodel predict`` and ``queuemodel plan``: from a profile to numbers of workers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from ..checks import require_writable
from ..prediction import STRATEGIES, load, measured_besides
from ..prediction import predict as predict_curve
from ..strategies import SCHEMES
from ..strategies.round_changes import COLLECTIVES
from ..training import ThroughputCurve
from ..training import plan as plan_workers
from .options import (
    BANDWIDTH,
    BUFFER,
    CONGESTION_CONTROL,
    COUNT,
    COUNT_OR_NONE,
    COUNTS,
    DATASET_SIZE,
    DURATION,
    INNER_SHARE,
    MEASURED,
    PICTURES,
    POSITIVE,
    SEED,
    SIZE,
    THROUGHPUTS,
    csv_text,
    format_option,
)


def _prediction_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say what to predict from, and for which machines."""
    for option in reversed(
        [
            click.argument("profile", type=click.Path(dir_okay=False)),
            click.option("--workers", type=COUNTS, default="1:32", show_default=True, help="8, 1:32 or 1,2,4,8."),
            click.option("--strategy", type=click.Choice(STRATEGIES), help="[default: as the profile was recorded]"),
            click.option("--k", type=COUNT, help="Results that a server waits for: k-sync and its relatives."),
            click.option("--backup-workers", type=COUNT_OR_NONE, help="Sync-ps: results of a round not waited for."),
            click.option("--staleness-bound", type=COUNT_OR_NONE, help="Bounded staleness: steps ahead of the last."),
            click.option(
                "--method",
                type=click.Choice(["auto", "mva", "trace"]),
                default="auto",
                show_default=True,
                help="Mean-value analysis, simulation of recorded operations, or what the profile allows.",
            ),
            click.option("--form", type=click.Choice(["links", "single"]), default="links", show_default=True,
                         help="Of the network: separate links and update, or one server station."),
            THROUGHPUTS,
            MEASURED,
            click.option("--parameter-servers", type=COUNT, help="Another number of servers."),
            click.option("--gpus-per-node", type=COUNT, help="Step times by placement: GPUs of a node."),
            click.option("--bandwidth", type=BANDWIDTH, help="Another link, like 10Gbit/s."),
            click.option("--latency", type=DURATION, help="All-reduce: another time per message, like 50us."),
            click.option("--bucket-bytes", type=SIZE, help="All-reduce: another cap of buckets, like 25MB."),
            click.option("--scheme", type=click.Choice(list(SCHEMES)), help="All-reduce: how gradients are sent."),
            click.option("--collective", type=click.Choice(list(COLLECTIVES)), help="All-reduce: another algorithm."),
            click.option("--accumulation", type=COUNT, help="All-reduce: steps of a rank between two reductions."),
            click.option("--ranks-per-node", type=COUNT, help="All-reduce: ranks that share a node's link."),
            click.option("--inside-bandwidth", type=BANDWIDTH, help="All-reduce: between ranks of a node."),
            click.option("--nodes-per-rack", type=COUNT, help="All-reduce: with --oversubscription."),
            click.option("--oversubscription", type=POSITIVE, help="All-reduce: a rack's nodes over its link up."),
            CONGESTION_CONTROL,
            BUFFER,
            click.option("--accelerator-speed", type=POSITIVE, help="2: computation takes half as long."),
            click.option("--confidence", type=INNER_SHARE, default=0.9, show_default=True, help="Of the intervals."),
            click.option("--seed", type=SEED, default=0, show_default=True),
        ]
    ):  # fmt: skip
        command = option(command)
    return command


def _curve(
    profile: str,
    throughputs: tuple[str, ...],
    measured: tuple[tuple[int, float | None, float], ...],
    batch_size: int | None,
    **options: Any,
) -> ThroughputCurve:
    data = load(profile)
    return predict_curve(
        data,
        throughputs=measured_besides(data, throughputs, measured),
        batch_size=batch_size,
        progress=sys.stderr.isatty(),
        **options,
    )


@click.command()
@_prediction_options
@click.option("--batch-size", type=COUNT, help="Another mini-batch size per worker.")
@format_option
@click.option("--plot", type=click.Path(dir_okay=False), help="Write the curve as a picture (.png, .svg, .pdf).")
def predict(output_format: str, plot: str | None, **options: Any) -> None:
    """Predict throughput against the number of workers.

    PROFILE is a profile's JSON, or a CSV with the columns workers,steps_per_second[,parameter_servers], or with
    nodes,gpus,batch_size,step_time[,gpus_per_node]; a worker is a GPU then.

    \b
    Examples:
      queuemodel predict profile.json --workers 1:32 --plot curve.png
      queuemodel predict profile.json --parameter-servers 2 --bandwidth 10Gbit/s --format json
      queuemodel predict profile.json --measured 4=1.74
      queuemodel predict throughputs.csv --workers 1:16
      queuemodel predict throughputs.csv --strategy all-reduce
      queuemodel predict placements.csv --batch-size 40 --gpus-per-node 4 --workers 1:64
    """
    require_writable(plot, suffixes=PICTURES)
    curve = _curve(**options)
    if plot is not None:
        from ..drawing import save_figure

        save_figure(curve.plot(), plot)
    if output_format == "json":
        click.echo(curve.to_json())
    else:
        click.echo(csv_text(curve.to_rows()) if output_format == "csv" else repr(curve))


@click.command()
@_prediction_options
@click.option("--batch-size", type=COUNT, help="Another mini-batch size per worker.")
@click.option("--epochs", type=float, help="Passes over the data set.")
@click.option("--dataset-size", type=DATASET_SIZE, help="Examples per epoch, unless the profile has it.")
@click.option("--deadline", type=DURATION, help="Like 12h or 90min: the smallest number of workers that meets it.")
@click.option("--price", "price_per_node_hour", type=float, help="Per node and hour: the cheapest number of workers.")
@click.option("--min-efficiency", type=float, help="The most workers with at least this X(N) / (N X(1)).")
@click.option("--min-marginal-speedup", type=float, help="The most workers of which each still adds this speedup.")
@format_option
def plan(
    output_format: str,
    epochs: float | None,
    dataset_size: int | None,
    deadline: float | None,
    price_per_node_hour: float | None,
    min_efficiency: float | None,
    min_marginal_speedup: float | None,
    **options: Any,
) -> None:
    """Choose the number of workers for a deadline, a price or an efficiency.

    \b
    Example:
      queuemodel plan profile.json --epochs 90 --dataset-size 1281167 --deadline 12h --price 2.50
    """
    chosen = plan_workers(
        _curve(**options),
        epochs=epochs,
        dataset_size=dataset_size,
        deadline=deadline,
        price_per_node_hour=price_per_node_hour,
        min_efficiency=min_efficiency,
        min_marginal_speedup=min_marginal_speedup,
    )
    if output_format == "json":
        click.echo(chosen.to_json())
    else:
        click.echo(csv_text(chosen.to_rows()) if output_format == "csv" else repr(chosen))
