"""``queuemodel report``: a prediction as one HTML file that one can mail."""

from __future__ import annotations

from typing import Any

import click

from ..checks import require_writable
from ..prediction import predict as predict_curve
from ..reporting import SUFFIXES
from ..strategies.half_synchronous import in_closed_network
from ..training import Profile
from .options import COUNT, DATASET_SIZE, DURATION, FILE, POSITIVE, SHARE, format_option
from .output import show
from .predict import question_of, require_batch_size, write_page
from .questions import PREDICTION


@click.command()
@PREDICTION
@click.option("-o", "--output", type=FILE, required=True, help="The page to write (.html).")
@click.option("--show", "shown", type=COUNT, help="Number of workers that the page begins with.")
@click.option("--epochs", type=POSITIVE, help="Passes over the data set.  [default: 1]")
@click.option("--dataset-size", type=DATASET_SIZE, help="Examples per epoch, unless the profile has it.")
@click.option("--deadline", type=DURATION, help="Like 12h or 90min.")
@click.option("--price", "price_per_node_hour", type=POSITIVE, help="Per node and hour.")
@click.option("--min-efficiency", type=SHARE, help="Least X(N) / (N X(1)).  [default: 0.5]")
@format_option
def report(
    output: str,
    shown: int | None,
    epochs: float | None,
    dataset_size: int | None,
    deadline: float | None,
    price_per_node_hour: float | None,
    min_efficiency: float | None,
    output_format: str,
    **options: Any,
) -> None:
    """Write a report that one can mail: one HTML file that computes what-ifs itself.

    It needs no network. Sliders change workers, servers, bandwidth, accelerators, batch size, price and deadline where
    the profile has steps of asynchronous training: the page then solves the closed network, so that this is the
    prediction here unless --method trace adds the simulation's curve. With --format json or csv it is printed too.

    \b
    Example:
      queuemodel report profile.json -o report.html --epochs 90 --deadline 12h
    """
    require_writable(output, suffixes=SUFFIXES)
    question = question_of(**options)
    data = question["data"]
    if dataset_size is not None:
        require_batch_size(data, options["batch_size"])
    stepped = isinstance(data, Profile) and bool(data.steps)
    closed = in_closed_network(options["strategy"], options["backup_workers"])
    if stepped and options["method"] == "auto" and closed:
        question["method"] = options["method"] = "mva"
    curve = predict_curve(**question)
    write_page(
        output,
        curve,
        data,
        options,
        workers=shown,
        epochs=epochs,
        dataset_size=dataset_size,
        deadline=deadline,
        price_per_node_hour=price_per_node_hour,
        min_efficiency=min_efficiency,
    )
    if output_format != "table":
        show(curve, output_format)
    said = "; ".join(filter(None, [curve.assumption, f"{output}: open it in a browser"]))
    click.echo(said, err=output_format != "table")
