"""``queuemodel next-measurement``: which cheap run would narrow a prediction most."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import click

from ..measuring import Run, options_of
from ..measuring import next_measurement as which_next
from ..prediction import load, measured_besides
from ..training import Profile, Throughput
from .options import BANDWIDTH, COUNT, COUNTS, POSITIVE, Runs, format_option
from .output import show, watched
from .questions import INTERVALS, MEASUREMENTS, METHOD, NETWORK, PROFILE, asked


def same_again(data: Any, profile: str, *, measured: Any, workers: Any, **options: Any) -> str:
    """The file, and the options by which `predict` answers the same question."""
    points = measured_besides(data, (), measured)
    return " ".join(filter(None, [profile, options_of(asked(options, max(workers)) | {"measured": points})]))


@click.command()
@PROFILE
@click.option("--workers", type=COUNTS, default="16", show_default=True, help="Where the interval is to be narrow.")
@click.option(
    "--run",
    "runs",
    type=Runs(measured=False),
    multiple=True,
    help="To choose from: 4, or 4@5Gbit/s on other links; may be repeated.",
    show_default="a few cheap ones",
)
@METHOD
@MEASUREMENTS
@click.option("--parameter-servers", type=COUNT, help="Of the machines asked about; runs are on the profiled ones.")
@click.option("--bandwidth", type=BANDWIDTH, help="Likewise, like 10Gbit/s.")
@click.option("--accelerator-speed", type=POSITIVE, help="Likewise.")
@NETWORK
@INTERVALS
@format_option
def next_measurement(
    profile: str,
    runs: tuple[tuple[int, float | None, None], ...],
    throughputs: tuple[str, ...],
    measured: tuple[tuple[int, float | None, float], ...],
    output_format: str,
    **options: Any,
) -> None:
    """Say which minute of training would narrow a prediction most.

    PROFILE is a profile's JSON, or a CSV of throughputs, of an asynchronous job on parameter servers. Each run is
    weighed by how wide the interval is expected to be once its throughput is known. Of a profile of data-parallel
    rounds, by how wide it is once more ranks are recorded.

    \b
    Examples:
      queuemodel next-measurement profile.json --workers 16
      queuemodel next-measurement profile.json --measured 2=1.63 --run 1 --run 4
    """
    data = load(profile)
    found = which_next(
        cast("Profile | list[Throughput]", data),
        throughputs=measured_besides(data, throughputs, measured),
        runs=[Run(n, bandwidth) for n, bandwidth, _ in runs] or None,
        source=profile,
        progress=watched(),
        **options,
    )
    source = same_again(data, profile, throughputs=throughputs, measured=measured, **options)
    show(replace(found, source=source), output_format)
