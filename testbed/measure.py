"""Measure a workload on the testbed: for each number of workers, steps per second; then traces."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import network
from .hosts import Host, begin_series, expect, write
from .probe import Probe, process_seconds, processor_seconds
from .recordings import pack
from .workload import DROPPING, TestbedError, Workload, read_workload

START_LIMIT = 180.0  # seconds for all TensorFlow processes to start
LATE = 0.05  # a run whose computations took this share longer than they should does not count
CONTENDED_TRACES = 4  # traced steps of runs with several workers: they take long
STALL = 2.0  # seconds; a run in which the whole machine stood still for longer does not count
BUSY = 0.5  # share of the machine's processors; a run above it does not count


def run_seconds(workers: int, one_worker_s: float) -> float:
    """How long to run `workers` workers: longer for more, as each then takes fewer steps."""
    return one_worker_s * workers**0.6


def measure(
    workload_file: str | Path,
    out: str | Path,
    *,
    workers: Sequence[int] = (1, 2, 4, 8),
    one_worker_s: float = 36.0,
    trace_steps: int = 12,
    priority: int = 0,
    seed: int = 1,
    progress: Callable[[str, float, float], None] = lambda *_: None,
) -> list[dict[str, Any]]:
    """
    Measure a workload for each number of workers, and write the series `out`: a folder until all is measured.

    Parameters
    ----------
    workload_file, out : path
    workers : sequence of int
        How many workers, run by run; every run uses the first of the same processes.
    one_worker_s : float
        Length of the one-worker run (seconds); `n` workers run ``n ** 0.6`` times as long. The first
        quarter of each run is not counted.
    trace_steps : int
        Steps that worker 0 traces after the one-worker run's window (after the others' at most 4).
    priority : int
        Niceness of the TensorFlow processes (-15: before everything else on the machine).
    seed : int
        Of the computation times and the workers' phases.
    progress : callable
        Called with what is going on, the seconds done and the seconds to do.

    Returns
    -------
    list of dict
        The rows of `measured.json`.

    Raises
    ------
    TestbedError
        The machine does not allow it, or a process of the cluster ended or hung.
    """
    if problem := network.why_not():
        raise TestbedError(problem)
    workload, out = read_workload(workload_file), Path(out)
    if not workers or not all(1 <= n <= 16 for n in workers):
        raise TestbedError(f"workers must be 1 to 16, got {list(workers)}")
    begin_series(workload_file, out, workload, "steps_n*", "trace*")
    rows, links = [], {}
    with _cluster(workload, Path(workload_file), max(workers), out, priority, seed, progress) as (hosts, queues):
        for n in workers:
            row, links[n] = _run(workload, hosts, queues, n, run_seconds(n, one_worker_s), out, trace_steps, progress)
            rows.append(row)
            write(out / "measured.json", rows)
            write(out / "links.json", links)
    pack(out)
    return rows


@contextlib.contextmanager
def _cluster(
    workload: Workload,
    workload_file: Path,
    workers: int,
    out: Path,
    priority: int,
    seed: int,
    progress: Callable[[str, float, float], None],
) -> Iterator[tuple[dict[str, Host], network.Queues]]:
    names = {"ps": workload.parameter_servers, "worker": workers}
    hosts = [f"{kind}{i}" for kind, count in names.items() for i in range(count)]
    cluster = {kind: [f"{network.address(f'{kind}{i}')}:2222" for i in range(names[kind])] for kind in names}
    arguments = {"workload_file": str(workload_file.resolve()), "cluster": cluster, "seed": seed}
    logs = out / "logs"
    logs.mkdir(exist_ok=True)
    with network.cluster_network(workload, hosts) as queues:
        processes: dict[str, Host] = {}
        try:
            for done, name in enumerate(hosts):  # one after the other: each start is several processor seconds
                progress(f"starting {name}", done, len(hosts))
                own = {"job": name.rstrip("0123456789"), "task": int(name.lstrip("pworkes")), **arguments}
                processes[name] = Host(name, f"{__package__}.host", own, logs / f"{name}.log", priority)
                expect(processes, {name}, START_LIMIT)
            yield processes, queues
        finally:
            for host in processes.values():
                host.process.kill()
            for host in processes.values():
                with contextlib.suppress(BrokenPipeError), host.process:  # closes its pipes, and waits
                    pass
    shutil.rmtree(logs)  # kept after an error


def _run(
    workload: Workload,
    hosts: dict[str, Host],
    queues: network.Queues,
    n: int,
    seconds: float,
    out: Path,
    trace_steps: int,
    progress: Callable[[str, float, float], None],
) -> tuple[dict[str, Any], dict[str, Any]]:
    workers = [f"worker{i}" for i in range(n)]
    servers = [f"ps{i}" for i in range(workload.parameter_servers)]
    pids = {name: hosts[name].process.pid for name in (*servers, *workers)}
    trace = out / ("trace" if n == 1 else f"trace_n{n}")
    shutil.rmtree(trace, ignore_errors=True)
    trace.mkdir()
    slowest = min(workload.link_mbit(host) for host in (*servers, *workers)) * 125_000
    cycle = workload.compute_s * max(1, workload.slow_worker) + 2 * workload.model_bytes / slowest
    steps_files = {w: out / f"steps_n{n}_w{w[6:]}.txt" for w in workers}
    probe = Probe(pids, queues)
    probe.start()
    start = time.time()
    for w in workers:
        hosts[w].send(
            {
                "workers": n,
                "seconds": seconds,
                "delay": 0.0 if n == 1 or workload.mode in (*DROPPING, "sync") else 2 * cycle,
                "steps_file": str(steps_files[w].resolve()),
                "trace_folder": str(trace.resolve()),
                "trace_steps": trace_steps if n == 1 else min(trace_steps, CONTENDED_TRACES),
            }
        )
    _wait_until(start + seconds / 4, hosts, f"{n} workers, settling", start, seconds, progress)
    busy, every = processor_seconds()
    own, begin = process_seconds(list(pids.values())), time.time()
    _wait_until(start + seconds, hosts, f"{n} workers, measuring", start, seconds, progress)
    end = time.time()
    busy, every = (b - a for a, b in zip((busy, every), processor_seconds(), strict=True))
    own = (process_seconds(list(pids.values())) - own) / (end - begin) / os.cpu_count()
    probe.stop()
    patience = 60 + 10 * trace_steps * cycle * n
    progress(f"{n} workers, tracing", seconds, seconds)
    expect(hosts, {"worker0"}, patience)
    for w in workers:
        hosts[w].send("stop")
    answers = expect(hosts, set(workers), patience)
    times = {w: [float(t) for t in file.read_text().split()] for w, file in steps_files.items()}
    for w, file in steps_files.items():
        file.unlink()
        write(out / f"steps_n{n}_w{w[6:]}.json", times[w])
    counted = {w: [t for t in ts if begin <= t <= end] for w, ts in times.items()}
    if workload.mode in DROPPING and sum(map(len, counted.values())) <= 2 * n:
        raise TestbedError(f"fewer than two rounds ended in {end - begin:.0f} s; measure for longer")
    if starved := [w for w, ts in counted.items() if len(ts) < 2 and workload.mode not in DROPPING]:
        raise TestbedError(f"{starved[0]} finished fewer than two steps in {end - begin:.0f} s; measure for longer")
    late = max(a["late_mean_s"] for a in answers.values())
    late_share = late * 2 * len(workload.layers) / workload.compute_s if workload.compute_s else math.inf
    stall = probe.stall(begin, end)
    row = {
        "workers": n,
        "ps": workload.parameter_servers,
        "steps_per_s": (
            _rate_of_rounds(sorted(t for ts in counted.values() for t in ts), workload.results(n))
            if workload.mode in DROPPING
            else sum(_progress(ts, end) - _progress(ts, begin) for ts in times.values()) / (end - begin)
        ),
        "window_s": end - begin,
        "steps": sum(map(len, counted.values())),
        "cpu_busy": round(busy / every, 3),
        "cpu_busy_own": round(own, 3),
        "late_mean_s": round(late, 6),
        "late_p99_s": round(max(a["late_p99_s"] for a in answers.values()), 6),
        "stall_s": round(stall, 3),
        "counts": bool(own <= BUSY and late_share <= LATE and stall <= STALL),
    }
    return row, probe.summary(workload, begin, end)


def _progress(times: list[float], when: float) -> float:
    """Steps done by then, the part of the one under way included: it counts in proportion to the time in it."""
    return float(np.interp(when, times, range(len(times))))


def _rate_of_rounds(times: list[float], results: int) -> float:
    """Steps per second of rounds of so many each, between the first and the last round: whose turn it is, is chance."""
    return (len(times) - results) / (times[-1] - times[0])


def _wait_until(
    when: float,
    hosts: dict[str, Host],
    what: str,
    start: float,
    seconds: float,
    progress: Callable[[str, float, float], None],
) -> None:
    while (now := time.time()) < when:
        for host in hosts.values():
            if host.process.poll() is not None:
                raise TestbedError(host.epitaph())
        progress(what, now - start, seconds)
        time.sleep(min(0.25, when - now))
