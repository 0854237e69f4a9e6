"""``queuemodel schedule`` and ``queuemodel schedule-study``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ..base.checks import JSON, require_writable
from ..base.drawing import save_figure
from .options import (
    COUNT,
    DURATION,
    DURATION_OR_NONE,
    FILE,
    PICTURES,
    POSITIVE,
    SEED,
    SHARE,
    Decorator,
    Table,
    format_option,
    one_of,
    show,
    together,
    watched,
)

POLICY_HELP = "A policy, with its knobs: fifo, greedy:floor=0.7, ... Repeat for several."
#: What says nothing without another.
NEEDS = {
    "checkpoint_seconds": "mean_time_to_failure",
    "nodes_per_machine": "spread_speed",
    "spread_speed": "nodes_per_machine",
}
_SHOWN = ("mean_response_time", "median_response_time", "p95_response_time", "utilization", "mean_restarts")


def cluster_options(restart_seconds: str) -> Decorator:
    """What the cluster does to its jobs, with the time that a restart takes unless it is told."""
    return together(
        click.option("--restart-seconds", type=DURATION_OR_NONE, default=restart_seconds, show_default=True,
                     help="Like 30s: without progress after each change of an allocation."),
        click.option("--start-seconds", type=DURATION_OR_NONE, default="0", show_default=True,
                     help="The same at a job's first start."),
        click.option("--mean-time-to-failure", type=DURATION, help="Of one node, like 30d; none fails unless given."),
        click.option("--checkpoint-seconds", type=DURATION,
                     help="Between checkpoints: a failed job goes back to its last, or to its start."),
        click.option("--nodes-per-machine", type=COUNT, help="Nodes stand in machines of so many."),
        click.option("--spread-speed", type=POSITIVE,
                     help="Relative speed of a job on more machines than it needs, 0 to 1."),
    )  # fmt: skip


@click.command()
@click.option("--workload", type=FILE, required=True, help="Jobs, one per row (docs/reference/workload-csv).")
@click.option("--nodes", type=COUNT, required=True, help="Of the cluster.")
@click.option("--policy", "policies", multiple=True, required=True, help=POLICY_HELP)
@cluster_options(restart_seconds="0")
@click.option("--warmup", type=SHARE, default=0.0, show_default=True, help="Share of the jobs left out of the means.")
@click.option("--seed", type=SEED, default=0, show_default=True)
@format_option
@click.option("--records", is_flag=True, help="Also one record per job (json), or only those (csv).")
@click.option("--plot", type=FILE, help="Draw nodes over time (one policy) or response times (several).")
def schedule_command(
    workload: str,
    nodes: int,
    policies: tuple[str, ...],
    warmup: float,
    seed: int,
    output_format: str,
    records: bool,
    plot: str | None,
    **machines: Any,
) -> None:
    """Run a stream of jobs under one or more policies, and compare them.

    \b
    Examples:
      queuemodel schedule --workload jobs.csv --nodes 64 --policy fifo
      queuemodel schedule --workload jobs.csv --nodes 64 --policy rank-priced \\
        --mean-time-to-failure 30d --checkpoint-seconds 10min --plot nodes.png
    """
    require_writable(plot, suffixes=PICTURES)
    from tqdm import tqdm

    from ..models.instances import curve_of
    from ..scheduling.cluster import Cluster
    from ..scheduling.engine import simulate
    from ..scheduling.policies import policy_named
    from ..scheduling.schedule import Schedule
    from ..scheduling.workloads.workload_csv import read_workload

    named = {text: policy_named(text) for text in policies}
    cluster = Cluster(nodes, **_given(machines))
    jobs = read_workload(workload, nodes=nodes, predicted=curve_of)
    history = plot is not None and len(named) == 1
    schedules: dict[str, Schedule] = {}
    with tqdm(total=len(named) * len(jobs), unit="job", disable=not watched(), leave=False) as bar:
        for text, policy in named.items():
            before = len(schedules) * len(jobs)

            def ended(count: int, before: int = before) -> None:
                bar.update(before + count - bar.n)

            schedules[text] = simulate(
                jobs, policy, cluster=cluster, seed=seed, warmup=warmup, history=history, progress=ended
            )
    if plot is not None:
        from ..scheduling.study import plot_nodes, plot_response_times

        results = list(schedules.values())
        save_figure(plot_nodes(*results) if history else plot_response_times(results, labels=list(schedules)), plot)
    print_schedules(schedules, nodes=nodes, output_format=output_format, records=records)


def print_schedules(schedules: Mapping[str, Any], *, nodes: int, output_format: str, records: bool) -> None:
    """Print the figures of runs by the name of their policy, or the records of their jobs."""
    if records and output_format == "table":
        raise click.UsageError("--records goes with --format json or csv")
    rows = {name: schedule.to_rows() for name, schedule in schedules.items()}
    entries = {name: {"jobs": len(rows[name]), **schedule.summary()} for name, schedule in schedules.items()}
    table = [{"policy": name, **{key: entry[key] for key in _SHOWN}} for name, entry in entries.items()]
    whole = {name: entry | ({"records": rows[name]} if records else {}) for name, entry in entries.items()}
    every = [{"policy": name, **row} for name in rows for row in (rows[name] if records else [entries[name]])]
    show(Table(every, {"nodes": nodes, "policies": whole}, table, digits=6), output_format)


@click.command("schedule-study")
@click.option("--policy", "policies", multiple=True, required=True, help=POLICY_HELP)
@click.option("--load", "loads", type=POSITIVE, multiple=True, default=(0.5, 0.7, 0.9), show_default=True)
@one_of("--kinds", ["example", "measured"], "Of job.", default="example", show_default=True)
@click.option("--nodes", type=COUNT, default=64, show_default=True)
@click.option("--jobs", "length", type=COUNT, default=500, show_default=True, help="Per replication.")
@click.option("--replications", type=COUNT, default=5, show_default=True)
@one_of("--arrivals", ["poisson", "bursty", "regular"], default="poisson", show_default=True)
@cluster_options(restart_seconds="30s")
@click.option("--warmup", type=SHARE, default=0.1, show_default=True, help="Share of the jobs left out of the means.")
@click.option("--seed", type=SEED, default=0, show_default=True)
@click.option("--workers", type=int, default=1, show_default=True, help="Processes; -1: all cores.")
@click.option("--backend", help="joblib's: loky, threading, dask, ray, ...")
@click.option("--output", type=FILE, help="Write every run as JSON.")
@click.option("--plot", type=FILE, help="Draw response time against load.")
@format_option
def schedule_study_command(
    policies: tuple[str, ...],
    loads: tuple[float, ...],
    kinds: str,
    nodes: int,
    length: int,
    replications: int,
    arrivals: str,
    warmup: float,
    seed: int,
    workers: int,
    backend: str | None,
    output: str | None,
    plot: str | None,
    output_format: str,
    **machines: Any,
) -> None:
    """Compare policies over load, on random streams of example kinds of job, or of the package's measured ones.

    \b
    Example:
      queuemodel schedule-study --policy equi --policy rank-priced --load 0.8
    """
    require_writable(plot, suffixes=PICTURES)
    require_writable(output, suffixes=JSON)
    from ..scheduling.cluster import Cluster
    from ..scheduling.policies import policy_named
    from ..scheduling.streams import Stream, example_kinds, measured_kinds
    from ..scheduling.study import sweep

    named = [policy_named(text) for text in dict.fromkeys(policies)]
    found = (measured_kinds if kinds == "measured" else example_kinds)(most=nodes)
    study = sweep(
        Stream(found, jobs=length, nodes=nodes, arrivals=arrivals),
        named,
        loads=tuple(dict.fromkeys(loads)),
        cluster=Cluster(nodes, **_given(machines)),
        replications=replications,
        seed=seed,
        warmup=warmup,
        n_jobs=workers,
        backend=backend,
        progress=watched(),
    )
    if not study.runs:
        raise click.Abort
    if output:
        study.to_json(output)
    if plot:
        from ..scheduling.study import plot_sweep

        save_figure(plot_sweep(study), plot)
    shown = study.table("mean_response_time", "efficiency", "mean_restarts")
    show(Table(study.to_rows(), study.to_dict(), shown, says=study.caption()), output_format)
    if not study.complete:
        click.echo(f"queuemodel: interrupted; {len(study.runs)} runs had ended", err=True)
        raise click.exceptions.Exit(130)


def _given(machines: dict[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in machines.items() if value is not None}
    for name, needed in NEEDS.items():
        if name in given and needed not in given:
            option, other = (f"--{text.replace('_', '-')}" for text in (name, needed))
            raise click.UsageError(f"{option} is without effect unless {other} is given too")
    return given
