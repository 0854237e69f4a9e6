"""Series on networks that nobody had measured: as predicted before they were measured, and as predicted now."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from queuemodel import ThroughputCurve
from queuemodel.prediction import Method

from .series import Comparison, compare_testbed, read_testbed
from .testbed.workload import read_workload

#: These series, from which nothing was learnt; what was predicted from one worker, or two ranks, before more were
#: measured, by series and method.
BLIND = Path(__file__).parent / "testbed" / "blind"
PREDICTED = BLIND / "predicted.json"

METHODS: tuple[Method, ...] = ("trace", "mva")

SECTION = """## Networks that nobody had measured

As predicted before they were measured (`validation/testbed/blind/predicted.json`). Simulation and closed network had
one worker's trace, or those of one rank and two, TCP's congestion control, the buffers where a queue drops what comes
last, and knew of a barrier.

"""

USUAL = """### Other jobs, bandwidths, buffers and servers

Queues drop what comes last, as in the series that the models learnt from; nothing was learnt from these.

"""
OTHERS = """### Other queues

Links with `fq_codel`, and with a policer, which holds nothing back; nobody could tell them.

"""

NOW = """
With queues of their own connections share equally, which could be told by no option, and behind a policer one worker
gets a fifth of its link, and eight get most of it: neither was known, nor said. Now `--buffer 0` tells the one, and
[the trace itself the other](explanation/shared-links.md#links-that-one-worker-does-not-fill). The same series,
told that, and the policed links' bandwidth (no blind predictions any more):

"""


def predicted_then() -> list[Comparison]:
    """Every such series, by every method that predicted it before it was measured."""
    return [
        _comparison(name, method, curve)
        for name, methods in json.loads(PREDICTED.read_text()).items()
        for method, curve in methods.items()
    ]


def _comparison(name: str, method: str, predicted: dict[str, Any]) -> Comparison:
    """A prediction as it was, and what was measured then, where that counts."""
    rows = [row for row in json.loads((BLIND / name / "measured.json").read_text()) if row.get("counts", True)]
    measured = {n: row.get("steps_per_s") or n * row["group_steps_per_s"] for row in rows for n in [row["workers"]]}
    at = [i for i, n in enumerate(predicted["workers"]) if n in measured]
    workers, X, lower, upper = (
        np.array(predicted[key])[at] for key in ("workers", "steps_per_second", "lower", "upper")
    )
    curve = ThroughputCurve(workers, X, lower, upper, single=float(X[0]), method=method)
    return Comparison(name, method, workers, np.array([measured[n] for n in workers.tolist()]), curve)


def queue_of(name: str) -> str:
    """Discipline of a series' queues; "" for one that drops what comes last."""
    return read_workload(BLIND / name / "workload.json").queue


def predicted_now() -> list[Comparison]:
    """Those of other queues, told what they are, by both methods."""
    others = [folder for folder in sorted(BLIND.iterdir()) if folder.is_dir() and queue_of(folder.name)]
    return [compare_testbed(folder, read_testbed(folder), method) for folder in others for method in METHODS]


def blind_section(table: Callable[[Sequence[Comparison]], str]) -> str:
    """Markdown: tables of what was predicted then, by queue and method, and one of what is predicted now."""
    then = predicted_then()
    usual, others = ([c for c in then if bool(queue_of(c.name)) is other] for other in (False, True))
    return (
        SECTION + USUAL + _tables(usual, table) + "\n" + OTHERS + _tables(others, table) + NOW + table(predicted_now())
    )


def _tables(comparisons: Sequence[Comparison], table: Callable[[Sequence[Comparison]], str]) -> str:
    """A table for each method, and how right it was beyond what one worker, or two ranks, had shown."""
    by_method = [
        [c for c in comparisons if c.method == method] for method in dict.fromkeys(c.method for c in comparisons)
    ]
    return "\n".join(f"{table(one)}\n{_beyond(one)}" for one in by_method)


def _beyond(comparisons: Sequence[Comparison]) -> str:
    """Mean error and coverage on several workers, in words."""
    several = [(c, c.workers > 1) for c in comparisons]
    errors = [np.abs(c.errors[more]).mean() for c, more in several]
    inside = [((c.curve.lower <= c.measured) & (c.measured <= c.curve.upper))[more] for c, more in several]
    covered = np.concatenate(inside)
    return (
        f"On several workers: {np.mean(errors):.1%} off, no series by more than {max(errors):.1%}; "
        f"{covered.sum()} of {covered.size} measurements inside.\n"
    )
