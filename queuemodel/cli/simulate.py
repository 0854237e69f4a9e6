"""``queuemodel simulate``: one cluster, step by step, with its timeline."""

from __future__ import annotations

from typing import Any

import click

from ..checks import JSON, require_writable
from ..drawing import save_figure
from ..errors import DataError
from ..prediction import load
from ..strategies import SimulatedRounds
from ..strategies import simulate as simulate_training
from ..strategies.fit import strategy_of
from ..training import Profile
from ..training.scenario import Scenario
from .options import COUNT, FILE, PICTURES, format_option, option
from .output import show, watched
from .questions import INTERVALS, MACHINES, NETWORK, PROFILE, ROUNDS, SIMULATION, STRATEGY, asked

#: Steps of each worker, or rounds, that a timeline shows.
SHOWN = 3


@click.command()
@PROFILE
@option("--workers", COUNT, "Workers, or ranks.", required=True)
@STRATEGY
@option("--steps", COUNT, "Of each worker on average, or rounds.", default=200, show_default=True)
@MACHINES
@ROUNDS
@SIMULATION
@NETWORK
@INTERVALS
@format_option
@option("--chrome-trace trace", FILE, "Write the timeline, for ui.perfetto.dev (.json).")
@option("--plot", FILE, "All-reduce: draw one rank's round (.png, .svg, .pdf).")
def simulate(profile: str, output_format: str, trace: str | None, plot: str | None, **options: Any) -> None:
    """Simulate one cluster: recorded operations event by event, or rounds of data-parallel ranks.

    \b
    Examples:
      queuemodel simulate profile.json --workers 8 --chrome-trace timeline.json
      queuemodel simulate profile.json --workers 8 --strategy sync-ps
      queuemodel simulate ddp.json --workers 8 --scheme horovod --plot round.png
    """
    require_writable(plot, suffixes=PICTURES)
    require_writable(trace, suffixes=JSON)
    given = asked(options, options["workers"])
    recorded = load(profile)
    if not isinstance(recorded, Profile):
        raise DataError(f"{profile}: throughputs alone cannot be simulated; give a profile with operations or rounds")
    if strategy_of(recorded, Scenario(strategy=options["strategy"])) != "all-reduce":
        if plot:
            raise DataError(
                "--plot: draws a round of data-parallel ranks; use --chrome-trace for a timeline of operations"
            )
        if trace:
            given["trace_steps"] = min(SHOWN, options["steps"])
    run = simulate_training(recorded, progress=watched(), **given)
    if trace:
        run.chrome_trace(trace)
    if plot and isinstance(run, SimulatedRounds):
        save_figure(run.plot(), plot)
    show(run, output_format)
