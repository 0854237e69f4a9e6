"""Strategies between a barrier and none, held against clusters that train by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from queuemodel import Profile, Scenario, ThroughputCurve, predict
from testbed.workload import OF_RESULTS, read_workload

from .series import Comparison, every_window, folder_of_trace, read_measured, read_testbed

SECTION = """## Half-synchronous strategies

TensorFlow jobs that train on the testbed by the strategies of
[half-synchronous training](../docs/explanation/strategies.md), simulated from the trace of one worker of the same job;
k is half of the workers, the staleness bound 1, and `backup-workers` is sync-ps with half of them as backups. The
simulation is as it was when it predicted them blind. What waiting adds to the errors of asynchronous training was
learnt from these series and those that [came later](#between-a-barrier-and-none); [intervals](#intervals) are judged
with each left out.

"""


def asked(folder: Path, workers: int) -> dict[str, Any]:
    """Arguments of `predict` for the strategy of a series, on so many workers."""
    workload = read_workload(folder / "workload.json")
    results = workload.results(workers)
    if workload.mode == "backup-workers":
        return {"strategy": "sync-ps", "backup_workers": workers - results}
    if workload.mode in OF_RESULTS:
        return {"strategy": workload.mode, "k": results}
    return {"strategy": workload.mode, "staleness_bound": workload.staleness_bound}


def in_between(folder: Path, workers: np.ndarray) -> np.ndarray:
    """Where so many workers (n,) of a series wait for each other, but not for everybody in every step."""
    ways = [Scenario(**asked(folder, n)).synchronization for n in workers.tolist()]
    return np.array([way.partial(np.array([n]))[0] for way, n in zip(ways, workers, strict=True)])


def compare_half_synchronous(folder: Path, profile: Profile) -> Comparison:
    """Predict a series' steps that count."""
    workers, measured = every_window(folder)
    counts = np.unique(workers)
    curves = [predict(profile, workers=[n], method="trace", **asked(folder, n)) for n in counts.tolist()]
    X, lower, upper = np.array([(c.steps_per_second[0], c.lower[0], c.upper[0]) for c in curves]).T
    curve = ThroughputCurve(counts, X, lower, upper, single=float(X[0]), method="trace")
    return Comparison(folder.name, "trace", workers, measured, curve, read_measured(folder)[1])


def half_synchronous(folders: Sequence[Path]) -> list[Comparison]:
    """Such series."""
    told = [(folder, read_testbed(folder_of_trace(folder))) for folder in tqdm(folders, desc="half-synchronous")]
    return [compare_half_synchronous(*one) for one in told]


def half_synchronous_section(comparisons: Sequence[Comparison], table: Callable[[Sequence[Comparison]], str]) -> str:
    """Markdown: their table."""
    return SECTION + table(comparisons)
