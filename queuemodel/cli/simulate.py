"""``queuemodel simulate``: one cluster, step by step, with its timeline."""

from __future__ import annotations

from typing import Any

import click

from ..checks import require_writable
from ..errors import DataError
from ..prediction import load
from ..strategies import SCHEMES, SimulatedRounds
from ..strategies import simulate as simulate_training
from ..strategies.fit import STRATEGIES
from ..strategies.round_changes import COLLECTIVES
from ..training import Profile
from .options import (
    BANDWIDTH,
    BUFFER,
    CONGESTION_CONTROL,
    COUNT,
    COUNT_OR_NONE,
    DURATION,
    INNER_SHARE,
    PICTURES,
    SEED,
    SIZE,
    csv_text,
    format_option,
)

#: Steps of each worker, or rounds, that a timeline shows.
SHOWN = 3


@click.command()
@click.argument("profile", type=click.Path(dir_okay=False))
@click.option("--workers", type=COUNT, required=True, help="Workers, or ranks.")
@click.option("--strategy", type=click.Choice(STRATEGIES), help="[default: as the profile was recorded]")
@click.option("--k", type=COUNT, help="Results that a server waits for.")
@click.option("--backup-workers", type=COUNT_OR_NONE, help="Sync-ps: results of a round not waited for.")
@click.option("--staleness-bound", type=COUNT_OR_NONE, help="Bounded staleness: steps ahead of the last.")
@click.option("--steps", type=COUNT, default=200, show_default=True, help="Of each worker on average, or rounds.")
@click.option("--parameter-servers", type=COUNT, help="Another number of servers.")
@click.option("--bandwidth", type=BANDWIDTH, help="Another link, like 10Gbit/s.")
@CONGESTION_CONTROL
@BUFFER
@click.option("--latency", type=DURATION, help="All-reduce: another time per message, like 50us.")
@click.option("--bucket-bytes", type=SIZE, help="All-reduce: another cap of buckets, like 25MB.")
@click.option("--scheme", type=click.Choice(list(SCHEMES)), help="All-reduce: how gradients are sent.")
@click.option("--collective", type=click.Choice(list(COLLECTIVES)), help="All-reduce: another algorithm.")
@click.option("--accumulation", type=COUNT, help="All-reduce: steps of a rank between two reductions.")
@click.option("--confidence", type=INNER_SHARE, default=0.9, show_default=True, help="Of the interval.")
@click.option("--seed", type=SEED, default=0, show_default=True)
@format_option
@click.option("--trace", type=click.Path(dir_okay=False), help="Write the timeline, for ui.perfetto.dev (.json).")
@click.option("--plot", type=click.Path(dir_okay=False), help="All-reduce: draw one rank's round (.png, .svg, .pdf).")
def simulate(profile: str, output_format: str, trace: str | None, plot: str | None, **options: Any) -> None:
    """Simulate one cluster: recorded operations event by event, or rounds of data-parallel ranks.

    \b
    Examples:
      queuemodel simulate profile.json --workers 8 --strategy sync-ps --trace timeline.json
      queuemodel simulate ddp.json --workers 8 --scheme horovod --plot round.png
    """
    require_writable(plot, suffixes=PICTURES)
    require_writable(trace)
    given = {name: value for name, value in options.items() if value is not None}
    recorded = load(profile)
    if not isinstance(recorded, Profile):
        raise DataError(f"{profile}: throughputs alone cannot be simulated; give a profile with operations or rounds")
    in_rounds = options["strategy"] == "all-reduce" or (recorded.rounds and not recorded.steps)
    if plot is not None and not in_rounds:
        raise DataError("--plot: draws a round of data-parallel ranks; use --trace for a timeline of operations")
    if trace is not None and not in_rounds:
        given["trace_steps"] = min(SHOWN, options["steps"])
    run = simulate_training(recorded, **given)
    if trace is not None:
        run.chrome_trace(trace)
    if plot is not None and isinstance(run, SimulatedRounds):
        from ..drawing import save_figure

        save_figure(run.plot(), plot)
    if output_format == "json":
        click.echo(run.to_json())
    else:
        click.echo(csv_text(run.to_rows()) if output_format == "csv" else repr(run))
