"""How fast the scheduling simulation is: python benchmarks/scheduling.py [--jobs 100000] [--pollux FOLDER].

One core (set OMP_NUM_THREADS=1). Prints processor seconds, jobs and events per second, and what grows with the number
of jobs finished. The peers' figures beside them are published ones: the Pollux artifact's simulator takes 17 s
for Tiresias and 63 s for Optimus on one of its workloads; the fastest peer that publishes a figure handles 180 to 390
jobs/s.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from queuemodel.scheduling import (
    FIFO,
    Backfill,
    ClusterJob,
    EqualShare,
    GreedyGain,
    LeastAttainedService,
    PowerLawCurve,
    RankPriced,
    Workload,
    schedule,
)

PEER = {"tiresias": 17.0, "optimus": 63.0}
PEER_JOBS_PER_SECOND = 390.0


def stream(jobs: int, *, nodes: int, load: float, seed: int = 0) -> Workload:
    """Six kinds of power-law jobs that ask for 1 to 32 nodes, Poisson arrivals."""
    rng = np.random.default_rng(seed)
    curves = [PowerLawCurve(float(p)) for p in np.linspace(0.5, 0.9, 6)]
    kind, asked = rng.integers(0, 6, jobs), rng.choice([1, 2, 4, 8, 16, 32], jobs)
    service = rng.exponential(1000.0, jobs)
    times = np.cumsum(rng.exponential(1000.0 * asked.mean() / (load * nodes), jobs))
    return Workload(
        ClusterJob(
            f"job-{j}",
            arrival_time=float(times[j]),
            steps=float(service[j] * curves[kind[j]](int(asked[j]))) + 1e-6,
            curve=curves[kind[j]],
            requested_nodes=int(asked[j]),
        )
        for j in range(jobs)
    )


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds, and the result."""
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def main() -> None:
    """Run the benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--load", type=float, default=0.8)
    parser.add_argument("--pollux", type=Path, help="the Pollux artifact's folder (workloads and traces)")
    arguments = parser.parse_args()
    print(f"{'policy':28s} {'jobs':>8s} {'cpu s':>8s} {'jobs/s':>8s} {'us/event':>9s} {'x peer':>7s}")
    workload = stream(arguments.jobs, nodes=arguments.nodes, load=arguments.load)
    tenth = Workload(workload.jobs[: max(arguments.jobs // 10, 1)])
    schedule(Workload(tenth.jobs[:10]), FIFO(), nodes=arguments.nodes)  # the compiled loops are loaded once
    for policy in (FIFO(), GreedyGain(), RankPriced(floor=0.5), EqualShare(), Backfill(), LeastAttainedService()):
        for jobs in (tenth, workload) if isinstance(policy, (FIFO, GreedyGain)) else (tenth,):
            seconds, run = timed(lambda jobs=jobs, policy=policy: schedule(jobs, policy, nodes=arguments.nodes))
            rate = len(jobs) / seconds
            print(
                f"{policy.name:28s} {len(jobs):8d} {seconds:8.2f} {rate:8.0f} {1e6 * seconds / run.events:9.1f} "
                f"{rate / PEER_JOBS_PER_SECOND:7.1f}",
                flush=True,
            )
    tracemalloc.start()
    schedule(tenth, FIFO(), nodes=arguments.nodes)
    peak = tracemalloc.get_traced_memory()[1] / len(tenth)
    print(f"memory of FIFO with {len(tenth)} jobs: peak {peak:.0f} bytes per job")
    tracemalloc.stop()
    if arguments.pollux is not None:
        pollux(arguments.pollux)


def pollux(folder: Path) -> None:
    """One workload of 160 jobs beside the artifact's simulator."""
    from validation.pollux import read_jobs, replay

    path = folder / "workloads" / "workload-6.csv"
    seconds, _ = timed(lambda: read_jobs(path, folder / "traces"))
    print(f"reading the measurements and workload-6: {seconds:.2f} s, once")
    for policy in ("tiresias", "optimus", "rank-priced", "greedy"):
        for turn in ("first", "again"):
            jobs = read_jobs(path, folder / "traces")
            seconds, outcome = timed(lambda jobs=jobs, policy=policy: replay(jobs, policy, gpus=64))
            peer = f", {PEER[policy] / seconds:.0f} times the artifact's" if policy in PEER else ""
            print(f"160 jobs, {policy:12s} {turn}: {seconds:.3f} s{peer} (mean {outcome.mean_response_time:.2f} s)")


if __name__ == "__main__":
    main()
