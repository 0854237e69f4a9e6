"""Measure a data-parallel workload: for each number of ranks, rounds per second; then traces."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import network
from ..hosts import Host, begin_series, expect, write
from ..probe import process_seconds, processor_seconds
from ..recordings import pack
from ..workload import RANKS, TestbedError, Workload, read_workload
from .training_task import STRATEGIES, TrainingTask, task_of

START_LIMIT = 180.0  # seconds for all processes to start and to meet
FIRST, LEAST = 5, 24  # rounds that tell how long one is, and that are measured at least
UNCOUNTED = 8  # one in so many measured rounds comes first and is not counted
CHANGED = (2, 4)  # ranks that are measured with each of a workload's changes


def measure(
    workload_file: str | Path,
    out: str | Path,
    *,
    ranks: Sequence[int] = (1, 2, 3, 4, 6, 8),
    again: Sequence[int] = (),
    traced: Sequence[int] = (1, 2, 3),
    seconds: float = 25.0,
    trace_rounds: int = 12,
    priority: int = 0,
    seed: int = 1,
    progress: Callable[[str, float, float], None] = lambda *_: None,
) -> list[dict[str, Any]]:
    """
    Measure a workload for each number of ranks, and write the series `out`: a folder until all is measured.

    Parameters
    ----------
    workload_file, out : path
    ranks : sequence of int
        How many ranks, run by run; each run has processes of its own.
    again : sequence of int
        Numbers of ranks measured once more at the end, with another seed.
    traced : sequence of int
        Nodes whose ranks trace after their run.
    seconds : float
        Length of each run, 24 rounds at least. The first eighth is not counted.
    trace_rounds : int
        Rounds that all ranks trace.
    priority : int
        Niceness of the processes.
    seed : int
        Of the computation times.
    progress : callable
        Called with what is going on, the runs done and all.

    Returns
    -------
    list of dict
        The rows of `measured.json`.

    Raises
    ------
    TestbedError
        The machine does not allow it, or a process ended or hung.
    """
    workload, out = read_workload(workload_file), Path(out)
    if workload.mode not in RANKS:
        raise TestbedError(f"{workload_file}: mode {workload.mode!r} has servers; measure it without --ranks")
    if problem := network.why_not():
        raise TestbedError(problem)
    if not ranks or not all(1 <= n <= 16 for n in ranks):
        raise TestbedError(f"ranks must be 1 to 16, got {list(ranks)}")
    if workload.learn and max(ranks) not in (1, 2, 4, 8):
        raise TestbedError(f"{workload_file}: 2, 4 or 8 ranks can learn (8 blocks of signs), got {max(ranks)} at most")
    if workload.shards and any(n % workload.shards for n in ranks if n > 1):
        raise TestbedError(f"{workload_file}: ranks must be 1 or multiples of {workload.shards} shards")
    begin_series(workload_file, out, workload, "trace_n*", "learned.json", "again.json", "changed.json")
    runs = [("measured", n, {}, seed) for n in ranks] + [("again", n, {}, seed + 1) for n in again]
    runs += [("changed", n, change, seed) for change in workload.changes for n in CHANGED]
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for done, (kind, n, change, own_seed) in enumerate(runs):
        progress(f"{n} rank(s)" + (f", {json.dumps(change)}" if change else ""), done, len(runs))
        with _cluster(workload, Path(workload_file), change, n, out, priority, own_seed) as hosts:
            row = ({"change": change} if change else {}) | _run(hosts, seconds)
            rows[kind].append(row)
            if kind == "measured" and n in [workload.ranks_per_node * nodes for nodes in traced]:
                trace = out / f"trace_n{n}"
                trace.mkdir()
                limit = 60 + 20 * trace_rounds / row["group_steps_per_s"]
                _train(hosts, trace_rounds, limit, trace=str(trace.resolve()))
            if kind == "measured" and workload.learn and n == max(ranks) > 1:
                learned = []
                for name in STRATEGIES:
                    progress(f"{n} ranks, {name}", done, len(runs))
                    learned.append(_learn(hosts, name, task_of(workload, n), out))
                (out / "learned.json").write_text("[\n" + ",\n".join(map(json.dumps, learned)) + "\n]\n")
        write(out / f"{kind}.json", rows[kind])
    pack(out)
    return rows["measured"]


@contextlib.contextmanager
def _cluster(
    workload: Workload, workload_file: Path, change: dict[str, Any], n: int, out: Path, priority: int, seed: int
) -> Iterator[dict[str, Host]]:
    workload = replace(workload, **change)
    places = {f"rank{i}": f"worker{i // workload.ranks_per_node}" for i in range(n)}
    logs = out / "logs"
    logs.mkdir(exist_ok=True)
    shared = {
        "workload_file": str(workload_file.resolve()),
        "change": change,
        "addresses": [network.address(place) for place in places.values()],
        "seed": seed,
    }
    with network.cluster_network(workload, list(dict.fromkeys(places.values()))):
        hosts: dict[str, Host] = {}
        try:
            for rank, (name, place) in enumerate(places.items()):
                log = logs / f"{name}.log"
                hosts[name] = Host(name, f"{__package__}.rank", {"rank": rank, **shared}, log, priority, place)
            expect(hosts, set(places), START_LIMIT)
            yield hosts
        finally:
            for host in hosts.values():
                host.process.kill()
            for host in hosts.values():
                with contextlib.suppress(BrokenPipeError), host.process:  # closes its pipes, and waits
                    pass
    shutil.rmtree(logs)  # kept after an error


def _train(hosts: dict[str, Host], rounds: int, limit: float, **asked: Any) -> list[dict[str, Any]]:
    """Let every rank train so many rounds; what each answers."""
    for host in hosts.values():
        host.send({"rounds": rounds, "trace": ""} | asked)
    answers = expect(hosts, set(hosts), limit)
    return [answers[name] for name in hosts]


def _learn(hosts: dict[str, Host], strategy: str, task: TrainingTask, out: Path) -> dict[str, Any]:
    """Let every rank learn by a strategy; the loss of the ranks' mean model, and when steps and meetings were."""
    with tempfile.TemporaryDirectory(dir=out) as folder:
        told = {"strategy": strategy, "models": str(Path(folder).resolve())}
        answers = _train(hosts, task.steps, 60 + 10 * task.steps, **told)
        models = np.mean([np.load(file) for file in Path(folder).glob("*.npy")], axis=0)
    times = np.array([answer["times"] for answer in answers])
    begin = times[:, 0].min()
    met = np.array([answer["meetings"] for answer in answers])  # ranks, meetings, and `met`'s
    return {
        "strategy": strategy,
        "looks": task.looks.tolist(),
        "losses": [round(float(task.problem.loss(model)), 6) for model in models],
        "step_s": [round(float(t), 4) for t in np.diff(times.max(axis=0) - begin, prepend=0.0)[1:]],
        "met": met[0, :, 0].astype(int).tolist() if met.size else [],
        "meeting_s": (met[:, :, 2].max(axis=0) - met[:, :, 1].max(axis=0)).round(4).tolist() if met.size else [],
        "clock_s": met[0, :, 3].round(4).tolist() if met.size else [],
        "computed_s": round(float(met[:, :, 4].mean()), 6) if met.size else 0.0,
        "late_mean_s": round(max(answer["late_mean_s"] for answer in answers), 6),
    }


def _run(hosts: dict[str, Host], seconds: float) -> dict[str, Any]:
    first = _train(hosts, FIRST, START_LIMIT)[0]["times"]
    each = (first[-1] - first[1]) / (FIRST - 1)  # the very first makes graphs and buckets
    rounds = max(LEAST, round(seconds / each))
    pids = [host.process.pid for host in hosts.values()]
    busy, every = processor_seconds()
    own, begin = process_seconds(pids), time.time()
    answers = _train(hosts, rounds, 60 + 10 * rounds * each)
    busy, every = (b - a for a, b in zip((busy, every), processor_seconds(), strict=True))
    own = (process_seconds(pids) - own) / (time.time() - begin) / (os.cpu_count() or 1)
    took = np.diff(answers[0]["times"])[rounds // UNCOUNTED :]
    return {
        "workers": len(hosts),
        "group_steps_per_s": float(1 / took.mean()),
        "steps": len(took),
        "standard_error": float(took.std(ddof=1) / took.mean() / len(took) ** 0.5),
        "cpu_busy": round(busy / every, 3),
        "cpu_busy_own": round(own, 3),
        "late_mean_s": round(max(answer["late_mean_s"] for answer in answers), 6),
        "round_s": [round(float(t), 4) for t in took],
    }
