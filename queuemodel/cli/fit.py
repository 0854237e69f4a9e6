"""``queuemodel fit``: what a profile tells about a job, parameter by parameter."""

from __future__ import annotations

from typing import Any, cast

import click

from ..errors import ModelError
from ..placements import PlacedStep, fit_placements
from ..prediction import load, measured_besides
from ..results import Result
from ..strategies import fit as fit_job
from ..training import Profile, Throughput
from ..training.throughputs import as_throughputs
from .options import SEED, format_option
from .output import show
from .questions import FORM, MEASUREMENTS, PROFILE, RANKS_PER_NODE, STRATEGY, TOLD


@click.command()
@PROFILE
@STRATEGY
@TOLD
@RANKS_PER_NODE
@FORM
@MEASUREMENTS
@click.option("--seed", type=SEED, default=0, show_default=True)
@format_option
def fit(
    profile: str,
    strategy: str | None,
    form: str | None,
    throughputs: tuple[str, ...],
    measured: tuple[tuple[int, float | None, float], ...],
    output_format: str,
    **options: Any,
) -> None:
    """Say what a profile tells about a job: each parameter with its error and origin, and whether it is identified.

    PROFILE is what predict takes.

    \b
    Examples:
      queuemodel fit profile.json
      queuemodel fit profile.json --measured 4=1.74 --format json
      queuemodel fit throughputs.csv --strategy all-reduce
    """
    data = load(profile)
    besides = measured_besides(data, throughputs, measured)
    model: Result
    if not isinstance(data, Profile) and any(isinstance(point, PlacedStep) for point in data):
        told = any(value for name, value in options.items() if name != "seed")
        if besides or strategy not in (None, "all-reduce") or told:
            raise ModelError(f"{profile}: holds steps by placement, which are fitted alone; leave the options out")
        model = fit_placements(cast("list[PlacedStep]", data))
    else:
        model = fit_job(
            cast("Profile | list[Throughput]", data),
            strategy=strategy,
            throughputs=as_throughputs(besides),
            form=form,
            **options,
        )
    show(model, output_format)
