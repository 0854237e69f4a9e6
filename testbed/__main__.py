"""The testbed's command line; see README.md in this folder."""

from __future__ import annotations

import argparse
import json
import signal
import sys

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from .convergence_to_fair_share import describe, measure_shares
from .measure import measure
from .network import only_one, remove_leftovers, why_not
from .rings import rings
from .rounds.measure import measure as measure_rounds
from .timeouts import count, together
from .workload import RANKS, TestbedError, read_workload


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m testbed", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("measure", help="measure a workload; needs root")
    run.add_argument("workload", help="a workload file (JSON), or a recorded series (.tar.xz)")
    run.add_argument("out", help="the series: a folder, packed into OUT.tar.xz at the end")
    run.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    run.add_argument(
        "--seconds", type=float, default=36.0, help="length of the one-worker run, of each run of ranks (default 36)"
    )
    run.add_argument("--trace-steps", type=int, default=12, help="steps to trace after each run (default 12)")
    run.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 3, 4, 6, 8], help="of a data-parallel workload")
    run.add_argument("--again", type=int, nargs="*", default=[], help="ranks to measure once more, with another seed")
    run.add_argument("--traced", type=int, nargs="*", default=[1, 2, 3], help="nodes whose ranks trace (default 1 2 3)")
    run.add_argument("--nice", type=int, default=0, help="niceness of the processes, -20 to 19")
    run.add_argument("--seed", type=int, default=1)
    flows = verbs.add_parser("fair-share", help="how fast TCP flows converge to their fair share; needs root")
    flows.add_argument("--mbit", type=float, nargs="+", default=[60.0], help="rate of every link (default 60)")
    flows.add_argument("--buffer-ms", type=float, nargs="+", default=[12.0], help="a packet's wait (default 12)")
    flows.add_argument("--out", help="append a line of JSON for each row")
    flows.add_argument("--tcp", help="congestion control, such as reno (default: the machine's own)")
    rounds = verbs.add_parser("timeouts", help="how often TCP flows wait for a timeout or detect a policer; needs root")
    rounds.add_argument("--mbit", type=float, default=60.0, help="rate of every link (default 60)")
    rounds.add_argument("--buffer-ms", type=float, nargs="+", default=[12.0], help="a packet's wait (default 12)")
    rounds.add_argument("--workers", type=int, nargs="+", default=[2, 4, 8], help="flows at once (default 2 4 8)")
    rounds.add_argument("--tcp", default="bbr", help="congestion control (default bbr)")
    ring = verbs.add_parser("rings", help="what all-reduces of one message at a time take on TCP; needs root")
    ring.add_argument("--mbit", type=float, default=60.0, help="rate of every link (default 60)")
    ring.add_argument("--buffer-ms", type=float, default=12.0, help="a packet's wait (default 12)")
    ring.add_argument("--tcp", default="bbr", help="congestion control (default bbr)")
    ring.add_argument("--ranks", type=int, nargs="+", default=[2, 3, 4, 6, 8])
    ring.add_argument("--pack-bytes", type=int, default=540_000, help="of each message (default 540000)")
    ring.add_argument("--packs", type=int, default=6, help="one after the other between two pauses (default 6)")
    verbs.add_parser("clean", help="remove what a killed run left behind")
    verbs.add_parser("check", help="say whether this machine can run the testbed")
    options = parser.parse_args(argv)
    console = Console()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a kill cleans up like Ctrl-C
    try:
        if options.verb == "measure":
            _measure(options, console)
        elif options.verb == "fair-share":
            _fair_share(options, console)
        elif options.verb == "timeouts":
            _timeouts(options)
        elif options.verb == "rings":
            _rings(options)
        else:
            if problem := why_not():
                raise TestbedError(problem)
            if options.verb == "clean":
                with only_one():
                    remove_leftovers()
            console.print("this machine can run the testbed; nothing is left behind")
    except TestbedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; everything is taken down", file=sys.stderr)
        return 130
    return 0


def _measure(options: argparse.Namespace, console: Console) -> None:
    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=1.0)
        shared = {
            "priority": options.nice,
            "seed": options.seed,
            "progress": lambda what, done, total: bar.update(task, description=what, completed=done, total=total),
        }
        if read_workload(options.workload).mode in RANKS:
            rounds = measure_rounds(
                options.workload,
                options.out,
                ranks=options.ranks,
                again=options.again,
                traced=options.traced,
                seconds=options.seconds,
                trace_rounds=options.trace_steps,
                **shared,
            )
            console.print(_rounds_table(options.out, rounds))
            return
        rows = measure(
            options.workload,
            options.out,
            workers=options.workers,
            one_worker_s=options.seconds,
            trace_steps=options.trace_steps,
            **shared,
        )
    table = Table("workers", "steps/s", "steps", "cores busy", "late (ms)", "counts", title=options.out)
    for row in rows:
        table.add_row(
            str(row["workers"]),
            f"{row['steps_per_s']:.3f}",
            str(row["steps"]),
            f"{row['cpu_busy']:.0%} (own {row['cpu_busy_own']:.0%})",
            f"{1000 * row['late_mean_s']:.2f}",
            "yes" if row["counts"] else "no",
        )
    console.print(table)


def _rounds_table(title: str, rows: list[dict]) -> Table:
    table = Table("ranks", "rounds/s", "rounds", "cores busy", "late (ms)", title=title)
    for row in rows:
        table.add_row(
            str(row["workers"]),
            f"{row['group_steps_per_s']:.3f} ± {row['standard_error']:.1%}",
            str(row["steps"]),
            f"{row['cpu_busy']:.0%} (own {row['cpu_busy_own']:.0%})",
            f"{1000 * row['late_mean_s']:.2f}",
        )
    return table


def _fair_share(options: argparse.Namespace, console: Console) -> None:
    if problem := why_not():
        raise TestbedError(problem)
    for mbit in options.mbit:
        for buffer_ms in options.buffer_ms:
            with console.status(f"{mbit:g} Mbit/s, {buffer_ms:g} ms"):
                rounds = measure_shares(mbit, congestion_control=options.tcp, buffer_ms=buffer_ms)
            rows = describe(rounds, mbit=mbit, congestion_control=options.tcp, buffer_ms=buffer_ms)
            if options.out:
                with open(options.out, "a") as file:
                    file.writelines(json.dumps(row) + "\n" for row in rows)
            title = f"{options.tcp or 'usual'}, {mbit:g} Mbit/s, {buffer_ms:g} ms"
            table = Table(
                "way", "against", "link used by 1, 2, 3", "spread of 2, 3", "by 50 ms since alone", title=title
            )
            for row in rows:
                used, spread, alone = ("  ".join(f"{x:.2f}" for x in row[name]) for name in ("used", "spread", "alone"))
                table.add_row(row["way"], str(row["against"]), used, spread, alone)
            console.print(table)


def _timeouts(options: argparse.Namespace) -> None:
    if problem := why_not():
        raise TestbedError(problem)
    for buffer_ms in options.buffer_ms:
        for workers in options.workers:
            network = {"congestion_control": options.tcp, "buffer_ms": buffer_ms}
            rounds = together(options.mbit, workers=workers, **network)
            for way in ("fetch", "push"):
                row = {"mbit": options.mbit, "workers": workers, "way": way}
                print(json.dumps(network | row | count([one for one in rounds if one.way == way])), flush=True)


def _rings(options: argparse.Namespace) -> None:
    if problem := why_not():
        raise TestbedError(problem)
    network = {"congestion_control": options.tcp, "buffer_ms": options.buffer_ms}
    packs = {"pack_bytes": options.pack_bytes, "packs": options.packs}
    for ranks in options.ranks:
        row = rings(options.mbit, ranks=ranks, **network, **packs)
        print(json.dumps({"mbit": options.mbit, **network, **packs, "ranks": ranks} | row), flush=True)


if __name__ == "__main__":
    sys.exit(main())
