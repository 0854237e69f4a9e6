"""``queuemodel schedule`` and ``queuemodel schedule-study``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

import click

from ..checks import require_writable
from ..results import text_table
from .options import COUNT, NUMBER, PICTURES, POSITIVE, SEED, SHARE, csv_text, format_option

POLICY_HELP = "A policy, with its knobs: fifo, greedy:floor=0.7, ... Repeat for several."
_SHOWN = ("mean_response_time", "median_response_time", "p95_response_time", "utilization", "mean_restarts")


class Scheduled(Protocol):
    """What a run of jobs yields."""

    def summary(self) -> dict[str, Any]:
        """Its figures."""

    def to_rows(self) -> list[dict[str, Any]]:
        """One record per job."""


@click.command()
@click.option("--workload", type=click.Path(), required=True, help="Jobs, one per row (docs/reference/workload-csv).")
@click.option("--nodes", type=COUNT, required=True, help="Of the cluster.")
@click.option("--policy", "policies", multiple=True, required=True, help=POLICY_HELP)
@click.option("--restart-seconds", type=NUMBER, default=0.0, show_default=True, help="Per change of an allocation.")
@click.option("--interval", type=POSITIVE, help="Seconds between decisions; at every arrival and end unless given.")
@click.option("--warmup", type=SHARE, default=0.0, show_default=True, help="Share of the jobs left out of the means.")
@click.option("--seed", type=SEED, default=0, show_default=True)
@format_option
@click.option("--records", is_flag=True, help="Also one record per job (json), or only those (csv).")
@click.option("--plot", type=click.Path(), help="Draw nodes over time (one policy) or response times (several).")
def schedule(
    workload: str,
    nodes: int,
    policies: tuple[str, ...],
    restart_seconds: float,
    interval: float | None,
    warmup: float,
    seed: int,
    output_format: str,
    records: bool,
    plot: str | None,
) -> None:
    """Run a stream of jobs under one or more policies, and compare them.

    \b
    Example:
      queuemodel schedule --workload jobs.csv --nodes 64 --policy fifo --policy rank-priced --plot nodes.png
    """
    require_writable(plot, suffixes=PICTURES)
    from ..scheduling import Cluster, policy_named, simulate
    from ..scheduling.workloads import read_workload
    from ..speeds import curve_of

    named = {text: policy_named(text) for text in policies}
    cluster = Cluster(nodes, restart_seconds=restart_seconds, decision_interval=interval)
    jobs = read_workload(workload, nodes=nodes, predicted=curve_of)
    history = plot is not None and len(named) == 1
    schedules = {
        text: simulate(jobs, policy, cluster=cluster, seed=seed, warmup=warmup, history=history)
        for text, policy in named.items()
    }
    if plot is not None:
        from ..drawing import save_figure
        from ..scheduling.figures import plot_nodes, plot_response_times

        results = list(schedules.values())
        save_figure(plot_nodes(*results) if history else plot_response_times(results, labels=list(schedules)), plot)
    print_schedules(schedules, nodes=nodes, output_format=output_format, records=records)


def print_schedules(schedules: Mapping[str, Scheduled], *, nodes: int, output_format: str, records: bool) -> None:
    """Print the figures of runs by the name of their policy, or the records of their jobs."""
    if records and output_format == "table":
        raise click.UsageError("--records goes with --format json or csv")
    rows = {name: schedule.to_rows() for name, schedule in schedules.items()}
    entries = {name: {"jobs": len(rows[name]), **schedule.summary()} for name, schedule in schedules.items()}
    if output_format == "json":
        if records:
            entries = {name: {**entry, "records": rows[name]} for name, entry in entries.items()}
        click.echo(json.dumps({"nodes": nodes, "policies": entries}, indent=1))
    elif records:
        click.echo(csv_text([{"policy": name, **row} for name in rows for row in rows[name]]))
    elif output_format == "csv":
        click.echo(csv_text([{"policy": name, **entry} for name, entry in entries.items()]))
    else:
        table = [{"policy": name, **{key: entry[key] for key in _SHOWN}} for name, entry in entries.items()]
        click.echo(text_table(table, digits=6))


@click.command("schedule-study")
@click.option("--policy", "policies", multiple=True, required=True, help=POLICY_HELP)
@click.option("--load", "loads", type=POSITIVE, multiple=True, default=(0.5, 0.7, 0.9), show_default=True)
@click.option(
    "--kinds", type=click.Choice(["example", "measured"]), default="example", show_default=True, help="Of job."
)
@click.option("--nodes", type=COUNT, default=64, show_default=True)
@click.option("--jobs", "length", type=COUNT, default=500, show_default=True, help="Per replication.")
@click.option("--replications", type=COUNT, default=5, show_default=True)
@click.option("--arrivals", type=click.Choice(["poisson", "bursty", "regular"]), default="poisson", show_default=True)
@click.option("--restart-seconds", type=NUMBER, default=30.0, show_default=True)
@click.option("--seed", type=SEED, default=0, show_default=True)
@click.option("--workers", type=int, default=1, show_default=True, help="Processes; -1: all cores.")
@click.option("--backend", help="joblib's: loky, threading, dask, ray, ...")
@click.option("--output", type=click.Path(), help="Write every run as JSON.")
@click.option("--plot", type=click.Path(), help="Draw response time against load.")
@format_option
def schedule_study(policies: tuple[str, ...], **options: Any) -> None:
    """Compare policies over load, on random streams of example kinds of job, or of the package's measured ones.

    \b
    Example:
      queuemodel schedule-study --policy equi --policy rank-priced --load 0.5 --load 0.9 --workers -1
    """
    require_writable(options["plot"], suffixes=PICTURES)
    require_writable(options["output"])
    from ..scheduling import Cluster, policy_named
    from ..scheduling.streams import Stream, example_kinds, measured_kinds
    from ..scheduling.study import sweep

    named = [policy_named(text) for text in dict.fromkeys(policies)]
    nodes = options["nodes"]
    kinds = measured_kinds if options["kinds"] == "measured" else example_kinds
    study = sweep(
        Stream(kinds(most=nodes), jobs=options["length"], nodes=nodes, arrivals=options["arrivals"]),
        named,
        loads=tuple(dict.fromkeys(options["loads"])),
        cluster=Cluster(nodes, restart_seconds=options["restart_seconds"]),
        replications=options["replications"],
        seed=options["seed"],
        n_jobs=options["workers"],
        backend=options["backend"],
        progress=True,
    )
    if not study.runs:
        raise click.Abort
    if options["output"]:
        study.to_json(options["output"])
    if options["plot"]:
        from ..drawing import save_figure
        from ..scheduling.figures import plot_sweep

        save_figure(plot_sweep(study), options["plot"])
    if options["output_format"] == "json":
        click.echo(study.to_json())
    elif options["output_format"] == "csv":
        click.echo(csv_text(study.to_rows()))
    else:
        click.echo(text_table(study.table("mean_response_time", "efficiency", "mean_restarts")))
    if not study.complete:
        click.echo(f"queuemodel: interrupted; {len(study.runs)} runs had ended", err=True)
        raise click.exceptions.Exit(130)
