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

As predicted before they were measured (`validation/testbed/blind/predicted.json`): jobs at other bandwidths, links with
`fq_codel`, and links with a policer, which holds nothing back. Simulation and closed network had one worker's trace and
TCP's congestion control, and, where a queue drops what comes last, its length; of other queues nobody could tell them.

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
    """A prediction as it was, and what was measured then."""
    rows = {row["workers"]: row for row in json.loads((BLIND / name / "measured.json").read_text())}
    workers, X, lower, upper = (np.array(predicted[key]) for key in ("workers", "steps_per_second", "lower", "upper"))
    measured = np.array([rows[n].get("steps_per_s") or n * rows[n]["group_steps_per_s"] for n in workers.tolist()])
    curve = ThroughputCurve(workers, X, lower, upper, single=float(X[0]), method=method)
    return Comparison(name, method, workers, measured, curve)


def predicted_now() -> list[Comparison]:
    """Those of other queues, told what they are, by both methods."""
    folders = sorted(path.parent for path in BLIND.glob("*/links.json"))
    others = [folder for folder in folders if read_workload(folder / "workload.json").queue]
    return [compare_testbed(folder, read_testbed(folder), method) for folder in others for method in METHODS]


def blind_section(table: Callable[[Sequence[Comparison]], str]) -> str:
    """Markdown: a table for each method, and one of what is predicted now."""
    then = predicted_then()
    tables = [table([one for one in then if one.method == method]) for method in dict.fromkeys(c.method for c in then)]
    return SECTION + "\n".join(tables) + NOW + table(predicted_now())
