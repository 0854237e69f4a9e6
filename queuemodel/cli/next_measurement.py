"""``queuemodel next-measurement``: which number of workers to measure next."""

from __future__ import annotations

from typing import Any

import click

from ..prediction import load, measured_besides, predict
from ..training import next_measurement as which_next
from .options import COUNTS, format_option
from .output import show, watched
from .questions import MEASUREMENTS, PROFILE


@click.command()
@PROFILE
@click.option("--workers", type=COUNTS, default="16", show_default=True, help="Where the interval is to be narrow.")
@MEASUREMENTS
@format_option
def next_measurement(
    profile: str, workers: Any, throughputs: tuple[str, ...], measured: Any, output_format: str
) -> None:
    """Say which number of workers to measure next for a minute.

    PROFILE is a profile's JSON, or a CSV of throughputs, of an asynchronous job on parameter servers. What comes out
    of the run goes into `queuemodel predict --measured WORKERS=STEPS/S`.

    \b
    Examples:
      queuemodel next-measurement profile.json --workers 16
      queuemodel next-measurement profile.json --measured 3=1.63
    """
    data = load(profile)
    besides = measured_besides(data, throughputs, measured)
    show(which_next(predict(data, workers=workers, throughputs=besides, progress=watched())), output_format)
