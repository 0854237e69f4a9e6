"""Series on networks that nobody had measured: as predicted before they were measured, and as predicted now."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from queuemodel import ThroughputCurve
from testbed.recordings import unpacked
from testbed.workload import BOUNDED, OF_RESULTS, read_workload

from .series import Comparison, compare_testbed, read_testbed, read_windows

#: These series, from which nothing was learnt before they were measured, and since then only what waiting adds to the
#: errors of half-synchronous strategies; what was predicted from one worker, or two ranks, before more were
#: measured, by series and method.
HELD_OUT = Path(__file__).parent / "data" / "testbed" / "held_out"
PREDICTED = HELD_OUT / "predicted.json"

METHODS: tuple[str, ...] = ("trace", "mva")

SECTION = """## Networks that nobody had measured

As predicted before they were measured (`validation/data/testbed/held_out/predicted.json`). Simulation and closed
network had one worker's trace, or those of one rank and two, TCP's congestion control, the buffers where a queue drops
what comes last, and knew of a barrier.

"""

USUAL = """### Other jobs, bandwidths, buffers and servers

Queues drop what comes last, as in the series that the models learnt from; nothing was learnt from these. Eight workers
of `alexnet-100-bbr-25ms-sync`, predicted at 2.05 and 2.10 steps/s, came to 1.87 first, as six of 22 rounds took 4.8 s
or more, and to 1.96 to 2.07 in four more minutes (seven of 88); measured again as they were furthest off, so that
errors fall by the choice, too: on several workers they had been 4.1 and 6.0 % at first, and 20 and 19 of 21
measurements inside. What is left is known of other series: [the simulation](../docs/explanation/limits.md) is 7 to
9 % too fast at eight workers under control by losses, who bunched more than simulated ones, and the closed network
was 6 to 12 % too slow at two and four workers in three of the four series under such control. Part of that were
[phases](../docs/explanation/model.md#throughput), which were taken for too weak; now it is 5 to 10 %.

"""
WAITING = """### Between a barrier and none

[Half-synchronous strategies](../docs/explanation/strategies.md) on two networks that none of them had been measured on,
from the trace of one worker there: sync-ps with one backup worker of four and two of eight, k-async with k half of the
workers, and a staleness bound of 1. Since then these series teach, too, what waiting adds to the intervals. k-async,
which was furthest off, was measured again: it had been -15.1 % and +6.2 % off.

"""
OTHERS = """### Other queues

Links with `fq_codel`, and with a policer, which holds nothing back; nobody could tell them.

"""

NOW = """
Connections with queues of their own share equally, which no option could tell then. Behind a policer one worker gets a
fifth of its link and eight get most of it, which nothing said. Now `--buffer 0` tells the one, and
[the trace itself the other](../docs/explanation/time.md#network-sharing). The same series,
told that, and the policed links' bandwidth (no blind predictions any more):

"""


def predicted_then() -> tuple[list[Comparison], list[Comparison], list[Comparison]]:
    """Series by every method that predicted them before they were measured: as usual, of other queues, in between."""
    told = json.loads(PREDICTED.read_text())
    waiting = [folder.name for folder in in_between_folders()]
    others = [name for name in told if queue_of(name)]
    usual = [name for name in told if name not in (*waiting, *others)]

    def compared(names: Sequence[str]) -> list[Comparison]:
        return [_comparison(name, method, curve) for name in names for method, curve in told[name].items()]

    simulated = [c for c in compared(waiting) if c.method == "trace"]  # closed networks of them gained nothing
    return compared(usual), compared(others), simulated


def _folders() -> list[Path]:
    return sorted(unpacked(HELD_OUT).iterdir())


def in_between_folders() -> list[Path]:
    """Folders of the series of half-synchronous strategies."""
    return [one for one in _folders() if read_workload(one / "workload.json").mode in (*OF_RESULTS, BOUNDED)]


def _comparison(name: str, method: str, predicted: dict[str, Any]) -> Comparison:
    """A prediction as it was, and what was measured then."""
    rows = [row for row in read_windows(unpacked(HELD_OUT) / name) if row["workers"] in predicted["workers"]]
    workers = np.array([row["workers"] for row in rows])
    measured = np.array([row.get("steps_per_s") or row["workers"] * row["group_steps_per_s"] for row in rows])
    at = np.isin(predicted["workers"], workers)
    counts, X, lower, upper = (np.array(row)[at] for row in predicted.values())
    curve = ThroughputCurve(counts, X, lower, upper, single=float(X[0]), method=method)
    return Comparison(name, method, workers, measured, curve)


def queue_of(name: str) -> str:
    """Discipline of a series' queues; "" for one that drops what comes last."""
    return read_workload(unpacked(HELD_OUT) / name / "workload.json").queue


def predicted_now() -> list[Comparison]:
    """Those of other queues, told what they are, by both methods."""
    others = [folder for folder in _folders() if queue_of(folder.name)]
    return [compare_testbed(folder, read_testbed(folder), method) for folder in others for method in METHODS]


def held_out_section(table: Callable[[Sequence[Comparison]], str]) -> str:
    """Markdown: tables of what was predicted then, by queue and method, and one of what is predicted now."""
    usual, others, waiting = predicted_then()
    then = USUAL + _tables(usual, table) + "\n" + WAITING + _tables(waiting, table) + "\n" + OTHERS
    return SECTION + then + _tables(others, table) + NOW + table(predicted_now())


def _tables(comparisons: Sequence[Comparison], table: Callable[[Sequence[Comparison]], str]) -> str:
    """A table for each method, and how right it was beyond what one worker, or two ranks, had shown."""
    by_method = [
        [c for c in comparisons if c.method == method] for method in dict.fromkeys(c.method for c in comparisons)
    ]
    return "\n".join(f"{table(one)}\n{_beyond(one)}" for one in by_method)


def _beyond(comparisons: Sequence[Comparison]) -> str:
    """Mean error and coverage on several workers, in words."""
    errors = [np.abs(c.errors[c.counts > 1]).mean() for c in comparisons]
    inside = np.concatenate([c.inside[c.counts > 1] for c in comparisons])
    return (
        f"On several workers: {np.mean(errors):.1%} off, no series by more than {max(errors):.1%}; "
        f"{inside.sum():.3g} of {inside.size} measurements inside.\n"
    )
