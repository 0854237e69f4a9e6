"""``queuemodel schedule`` and ``queuemodel schedule-study``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ..base.checks import JSON, require_writable
from ..base.drawing import FORMATS, save_figure
from . import options as ask

POLICY_HELP = "A policy with its parameters, like fifo or greedy:floor=0.7; may be repeated."
#: Options without effect unless another is set.
NEEDS = {
    "checkpoint_seconds": "mean_time_to_failure",
    "nodes_per_machine": "spread_speed",
    "spread_speed": "nodes_per_machine",
}
#: Published formats of workloads, and whether the speeds of their jobs are in files of their own.
PUBLISHED = {"philly": False, "helios": False, "alibaba": False, "gavel": True, "elasticflow": True}
_SHOWN = ("mean_response_time", "median_response_time", "p95_response_time", "utilization", "mean_restarts")


def run_options(*, restart_seconds: str, warmup: float) -> ask.Decorator:
    """Options of both commands: policies, the cluster, and how a run is made and printed."""
    return ask.together(
        ask.option("--policy policies", multiple=True, required=True, help=POLICY_HELP),
        ask.option("--restart-seconds", ask.DURATION_OR_NONE, default=restart_seconds, show_default=True,
                   help="Pause after each change of an allocation, like 30s."),
        ask.option("--start-seconds", ask.DURATION_OR_NONE, "Pause at a job's first start.", default="0",
                   show_default=True),
        ask.option("--mean-time-to-failure", ask.DURATION, "Of one node, like 30d; by default none fails."),
        ask.option("--checkpoint-seconds", ask.DURATION,
                   "Between checkpoints: a failed job goes back to its last, or to its start."),
        ask.option("--nodes-per-machine", ask.COUNT, "Nodes per machine."),
        ask.option("--spread-speed", ask.FRACTION, "Relative speed of a job on more machines than it needs, 0 to 1."),
        ask.option("--warmup", ask.FRACTION, default=warmup, show_default=True,
                   help="Share of the jobs left out of the means."),
        ask.option("--seed", ask.SEED, "Of random numbers.", default=0, show_default=True),
        ask.format_option,
    )  # fmt: skip


@ask.command()
@ask.option("--workload", ask.FILE, required=True, help="Jobs, one per row (docs/reference/workload-csv).")
@ask.one_of("--workload-format", ["csv", *PUBLISHED], "A published format.", default="csv", show_default=True)
@ask.option("--speeds", click.Path(), "Measured speeds: gavel's JSON file, the folder of elasticflow.")
@ask.option("--drop-empty", is_flag=True, help="Leave out jobs without GPUs, duration or measured speed.")
@ask.option("--nodes count", ask.COUNT, required=True, help="In the cluster.")
@run_options(restart_seconds="0", warmup=0.0)
@ask.option("--records", is_flag=True, help="Also one record per job (json), or only those (csv).")
@ask.option("--plot", ask.FILE, help="Draw nodes over time (one policy) or response times (.png, .svg, .pdf).")
def schedule_command(output_format: str, records: bool, plot: str | None, **options: Any) -> None:
    """Run a stream of jobs under one or more policies, and compare them.

    \b
    Examples:
      queuemodel schedule --workload jobs.csv --nodes 64 --policy fifo
      queuemodel schedule --workload jobs.csv --nodes 64 --policy rank-priced \\
        --mean-time-to-failure 30d --checkpoint-seconds 10min --plot nodes.png
      queuemodel schedule --workload log.csv --workload-format philly \\
        --nodes 64 --policy tiresias
    """
    require_writable(plot, suffixes=FORMATS)
    from tqdm import tqdm

    from ..scheduling import Nodes, Schedule, plot_nodes, plot_response_times, policy_named, schedule

    count, settings = options.pop("count"), {name: options.pop(name) for name in ("seed", "warmup")}
    named = {text: policy_named(text) for text in options.pop("policies")}
    jobs = _jobs(*(options.pop(name) for name in ("workload", "workload_format", "speeds", "drop_empty")), nodes=count)
    nodes = Nodes(count, **_effective(options))
    settings["history"] = plot is not None and len(named) == 1  # for `plot_nodes`
    schedules: dict[str, Schedule] = {}
    with tqdm(total=len(named) * len(jobs), unit="job", disable=not ask.watched(), leave=False) as bar:
        for text, policy in named.items():
            before = len(schedules) * len(jobs)

            def ended(number: int, before: int = before) -> None:
                bar.update(before + number - bar.n)

            schedules[text] = schedule(jobs, policy, nodes=nodes, progress=ended, **settings)
    if plot is not None:
        results = list(schedules.values())
        axes = plot_nodes(*results) if len(named) == 1 else plot_response_times(results, labels=list(schedules))
        save_figure(axes, plot)
    print_schedules(schedules, nodes=count, output_format=output_format, records=records)


def _jobs(path: str, layout: str, speeds: str | None, drop_empty: bool, *, nodes: int) -> Any:
    """The workload in a file of some format."""
    from .. import scheduling
    from ..models.predict import curve_of

    if PUBLISHED.get(layout, False) != (speeds is not None):
        needed = "needs the measured speeds of its jobs; give them" if speeds is None else "has none; leave it out"
        raise click.UsageError(f"--speeds: a workload of format {layout} {needed}")
    if drop_empty and layout in ("csv", "elasticflow"):
        raise click.UsageError(f"--drop-empty: a workload of format {layout} has no such jobs; leave it out")
    if layout == "csv":
        return scheduling.read_workload(path, nodes=nodes, predicted=curve_of)
    if speeds is None:
        return scheduling.read_jobs(path, layout, drop_empty=drop_empty)
    return scheduling.read_job_trace(path, layout, speeds, drop_empty=drop_empty)


def print_schedules(schedules: Mapping[str, Any], *, nodes: int, output_format: str, records: bool) -> None:
    """Print a summary by policy, or the jobs' records."""
    if records and output_format == "table":
        raise click.UsageError("--records goes with --format json or csv")
    rows = {name: schedule.to_rows() for name, schedule in schedules.items()}
    entries = {name: {"jobs": len(rows[name]), **schedule.summary()} for name, schedule in schedules.items()}
    table = [{"policy": name, **{key: entry[key] for key in _SHOWN}} for name, entry in entries.items()]
    whole = {name: entry | ({"records": rows[name]} if records else {}) for name, entry in entries.items()}
    every = [{"policy": name, **row} for name in rows for row in (rows[name] if records else [entries[name]])]
    ask.show(ask.Table(every, {"nodes": nodes, "policies": whole}, table, _digits=6), output_format)


@ask.command("schedule-study")
@ask.option("--load loads", ask.LOAD, "Share of the nodes that jobs keep busy; may be repeated.", multiple=True,
            default=(0.5, 0.7, 0.9), show_default=True)  # fmt: skip
@ask.one_of("--kinds", ["example", "measured"], "Kinds of job.", default="example", show_default=True)
@ask.option("--nodes count", ask.COUNT, "In the cluster.", default=64, show_default=True)
@ask.option("--jobs", ask.COUNT, default=500, show_default=True, help="Per replication.")
@ask.option("--replications", ask.COUNT, "Random streams per load.", default=5, show_default=True)
@ask.one_of("--arrivals", ["poisson", "bursty", "regular"], "Of jobs.", default="poisson", show_default=True)
@run_options(restart_seconds="30s", warmup=0.1)
@ask.option("--n-jobs", ask.WHOLE, default=1, show_default=True, help="Processes; -1: all cores.")
@ask.option("--backend", help="joblib's: loky, threading, dask, ray, ...")
@ask.option("--output", ask.FILE, help="Write every run as JSON.")
@ask.option("--plot", ask.FILE, help="Draw response time against load (.png, .svg, .pdf).")
def schedule_study_command(output: str | None, plot: str | None, output_format: str, **options: Any) -> None:
    """Compare policies over load, on random streams of example kinds of job, or of the package's measured ones.

    \b
    Example:
      queuemodel schedule-study --policy equi --policy rank-priced --load 0.8
    """
    require_writable(plot, suffixes=FORMATS)
    require_writable(output, suffixes=JSON)
    from ..scheduling import Nodes, Stream, example_kinds, measured_kinds, plot_sweep, policy_named, sweep

    policies = [policy_named(text) for text in dict.fromkeys(options.pop("policies"))]
    count, loads = options.pop("count"), tuple(dict.fromkeys(options.pop("loads")))
    kinds = (measured_kinds if options.pop("kinds") == "measured" else example_kinds)(most=count)
    stream = Stream(kinds, nodes=count, jobs=options.pop("jobs"), arrivals=options.pop("arrivals"))
    runs = {name: options.pop(name) for name in ("replications", "seed", "warmup", "n_jobs", "backend")}
    nodes = Nodes(count, **_effective(options))
    study = sweep(stream, policies, loads=loads, nodes=nodes, progress=ask.watched(), **runs)
    if not study.runs:
        raise click.Abort
    if output:
        study.to_json(output)
    if plot:
        save_figure(plot_sweep(study), plot)
    shown = study.table("mean_response_time", "efficiency", "mean_restarts")
    ask.show(ask.Table(study.to_rows(), study.to_dict(), shown, says=study.caption()), output_format)
    if not study.complete:
        click.echo(f"queuemodel: interrupted; {len(study.runs)} runs had ended", err=True)
        raise click.exceptions.Exit(130)


def _effective(options: dict[str, Any]) -> dict[str, Any]:
    """The specified options of the nodes (refuses one without effect)."""
    for name, needed in NEEDS.items():
        if options[name] is not None and options[needed] is None:
            option, other = (f"--{text.replace('_', '-')}" for text in (name, needed))
            raise click.UsageError(f"{option} is without effect unless {other} is given too")
    return {name: value for name, value in options.items() if value is not None}
