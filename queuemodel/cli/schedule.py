"""``queuemodel schedule`` and ``queuemodel schedule-study``."""

from __future__ import annotations

import json
from typing import Any

import click

from ..checks import require_writable
from ..errors import ModelError
from ..files import write_atomically
from ..tables import text_table
from .options import PICTURES, csv_text, format_option

_POLICY_HELP = "A policy, with its knobs: fifo, greedy:floor=0.7, ... Repeat for several."


@click.command()
@click.option("--workload", type=click.Path(), help="Jobs, one per row (docs/reference/workload-csv).")
@click.option("--pollux", type=click.Path(), help="A workload of the Pollux artifact, in its simulator's conventions.")
@click.option("--pollux-traces", type=click.Path(), help="The artifact's folder of measurements.")
@click.option(
    "--curves",
    type=click.Choice(["true", "predicted"]),
    default="true",
    show_default=True,
    help="With --pollux: what policies know, the measured curves or those predicted from one and two GPUs.",
)
@click.option("--nodes", type=int, required=True, help="Of the cluster (GPUs with --pollux).")
@click.option("--policy", "policies", multiple=True, required=True, help=_POLICY_HELP)
@click.option("--restart-seconds", type=float, default=0.0, show_default=True, help="Per change of an allocation.")
@click.option("--interval", type=float, help="Seconds between decisions; at every arrival and end unless given.")
@click.option("--warmup", type=float, default=0.0, show_default=True, help="Share of the jobs left out of the means.")
@click.option("--seed", type=int, default=0, show_default=True)
@format_option
@click.option("--records", is_flag=True, help="Also one record per job (json), or only those (csv).")
@click.option("--plot", type=click.Path(), help="Draw nodes over time (one policy) or response times (several).")
def schedule(
    workload: str | None, pollux: str | None, pollux_traces: str | None, policies: tuple[str, ...], **options: Any
) -> None:
    """Run a stream of jobs under one or more policies, and compare them.

    \b
    Example:
      queuemodel schedule --workload jobs.csv --nodes 64 --policy fifo --policy rank-priced --plot nodes.png
    """
    require_writable(options["plot"], suffixes=PICTURES)
    if (workload is None) == (pollux is None):
        raise ModelError("schedule: give either --workload or --pollux")
    if pollux is not None:
        if pollux_traces is None:
            raise ModelError("schedule: --pollux needs --pollux-traces, the artifact's folder of measurements")
        if options["plot"]:
            raise ModelError("schedule: --plot draws exact simulations; it does not go with --pollux")
        _require_defaults(options)
        entries, records = _pollux(pollux, pollux_traces, policies, options)
    else:
        assert workload is not None
        entries, records = _exact(workload, policies, options)
    _print(entries, records, options)


def _require_defaults(options: dict[str, Any]) -> None:
    for name, default in (("restart_seconds", 0.0), ("interval", None), ("warmup", 0.0)):
        if options[name] != default:
            raise ModelError(
                f"schedule: --{name.replace('_', '-')} does not go with --pollux (conventions are fixed); leave it out"
            )


def _pollux(
    path: str, traces: str, policies: tuple[str, ...], options: dict[str, Any]
) -> tuple[dict[str, dict[str, Any]], dict[str, list[dict[str, Any]]]]:
    from ..scheduling.pollux import read_jobs, run_named

    entries: dict[str, dict[str, Any]] = {}
    records: dict[str, list[dict[str, Any]]] = {}
    for policy in policies:
        result = run_named(read_jobs(path, traces), policy, gpus=options["nodes"], curves=options["curves"])
        entries[policy] = result.summary()
        records[policy] = result.to_rows()
    return entries, records


def _exact(
    path: str, policies: tuple[str, ...], options: dict[str, Any]
) -> tuple[dict[str, dict[str, Any]], dict[str, list[dict[str, Any]]]]:
    from ..scheduling import Cluster, policy_named, simulate
    from ..scheduling.workload_csv import read_workload

    cluster = Cluster(
        options["nodes"], restart_seconds=options["restart_seconds"], decision_interval=options["interval"]
    )
    jobs = read_workload(path, nodes=cluster.nodes)
    schedules = {
        text: simulate(
            jobs,
            policy_named(text),
            cluster=cluster,
            seed=options["seed"],
            warmup=options["warmup"],
            history=bool(options["plot"]) and len(policies) == 1,
        )
        for text in dict.fromkeys(policies)
    }
    if options["plot"]:
        _draw(schedules, options["plot"])
    return (
        {text: {"jobs": len(jobs), **result.summary()} for text, result in schedules.items()},
        {text: result.to_rows() for text, result in schedules.items()},
    )


def _draw(schedules: dict[str, Any], path: str) -> None:
    from ..drawing import save_figure
    from ..scheduling.figures import plot_nodes, plot_response_times

    if len(schedules) == 1:
        save_figure(plot_nodes(next(iter(schedules.values()))), path)
    else:
        save_figure(plot_response_times(list(schedules.values()), labels=list(schedules)), path)


def _print(
    entries: dict[str, dict[str, Any]], records: dict[str, list[dict[str, Any]]], options: dict[str, Any]
) -> None:
    if options["output_format"] == "json":
        document: dict[str, Any] = {"nodes": options["nodes"], "policies": entries}
        if options["records"]:
            document["policies"] = {name: {**entry, "records": records[name]} for name, entry in entries.items()}
        click.echo(json.dumps(document, indent=1))
    elif options["output_format"] == "csv":
        rows = (
            [{"policy": name, **row} for name in entries for row in records[name]]
            if options["records"]
            else [{"policy": name, **entry} for name, entry in entries.items()]
        )
        click.echo(csv_text(rows))
    else:
        shown = ("mean_response_time", "median_response_time", "p95_response_time", "utilization", "mean_restarts")
        rows = [{"policy": name, **{key: entry[key] for key in shown}} for name, entry in entries.items()]
        click.echo(text_table(rows, digits=6))


@click.command("schedule-study")
@click.option("--policy", "policies", multiple=True, required=True, help=_POLICY_HELP)
@click.option("--load", "loads", type=float, multiple=True, default=(0.5, 0.7, 0.9), show_default=True)
@click.option(
    "--kinds", type=click.Choice(["example", "measured"]), default="example", show_default=True, help="Of job."
)
@click.option("--nodes", type=int, default=64, show_default=True)
@click.option("--jobs", "length", type=int, default=500, show_default=True, help="Per replication.")
@click.option("--replications", type=int, default=5, show_default=True)
@click.option("--arrivals", type=click.Choice(["poisson", "bursty", "regular"]), default="poisson", show_default=True)
@click.option("--restart-seconds", type=float, default=30.0, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
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

    nodes = options["nodes"]
    cluster = Cluster(nodes, restart_seconds=options["restart_seconds"])
    if options["replications"] < 1:
        raise ModelError(f"schedule-study: replications must be at least 1, got {options['replications']}")
    kinds = measured_kinds if options["kinds"] == "measured" else example_kinds
    stream = Stream(kinds(most=nodes), jobs=options["length"], nodes=nodes, arrivals=options["arrivals"])
    study = sweep(
        stream,
        [policy_named(text) for text in policies],
        loads=options["loads"],
        cluster=cluster,
        replications=options["replications"],
        seed=options["seed"],
        n_jobs=options["workers"],
        backend=options["backend"],
        progress=True,
    )
    if not study.runs:
        raise click.Abort
    if options["output"]:
        write_atomically(options["output"], study.to_json() + "\n")
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
