"""The simulation as a throughput curve: some numbers of workers, several runs each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..errors import ModelError
from ..training.curve import ThroughputCurve
from ..training.model import require_workers
from ..training.profile import Profile
from .result import SimulatedRun
from .simulate import simulate

#: Relative error of the simulation itself, as found on the testbed (docs/explanation/trace-simulation).
MODEL_ERROR = 0.05
#: Operations simulated per number of workers; and steps of all workers, at least and at most.
OPERATIONS, LEAST_STEPS, MOST_STEPS = 600_000, 600, 6000


def trace_runs(
    profile: Profile,
    *,
    workers: int | Iterable[int] = range(1, 33),
    replications: int = 4,
    steps: int | None = None,
    seed: int = 0,
    jobs: int = 1,
    progress: bool = False,
    worker_speeds: Iterable[float] | None = None,
    accelerator_speed: float = 1.0,
    **settings: Any,
) -> list[list[SimulatedRun]]:
    """
    Simulate every number of workers several times, each time with other phases and steps.

    Parameters
    ----------
    profile : Profile
    workers : int or iterable of int
        Increasing.
    replications : int
    steps : int, optional
        Of all workers together, per number of workers; without, as many as keep a curve to seconds.
    seed : int
    jobs : int
        Processes (joblib); -1: one per core.
    progress : bool
        Show a progress bar on standard error.
    worker_speeds : iterable of float, optional
        Relative to the profiled worker, the first of them used for few workers.
    accelerator_speed : float
        Of all workers.
    **settings
        Further arguments of `simulate`.

    Returns
    -------
    list of list of SimulatedRun
        Per number of workers, its replications.
    """
    import joblib
    from tqdm import tqdm

    counts = require_workers(workers).tolist()
    speeds = [accelerator_speed * speed for speed in (worker_speeds or [1.0] * counts[-1])]
    if len(speeds) < counts[-1] or not all(speed > 0 for speed in speeds):
        raise ModelError(f"trace_runs: worker_speeds must be {counts[-1]} or more numbers > 0, got {speeds!r}")
    operations = np.mean([len(step.operations) for step in profile.steps])
    total = steps or int(np.clip(OPERATIONS / max(operations, 1), LEAST_STEPS, MOST_STEPS))
    seeds = np.random.SeedSequence(seed).generate_state(len(counts) * replications).reshape(len(counts), replications)
    tasks = [
        joblib.delayed(simulate)(
            profile,
            workers=n,
            steps=max(20, -(-total // (n * replications))),
            seed=int(s),
            slowdown=[1 / speed for speed in speeds[:n]],
            **settings,
        )
        for n, row in zip(counts, seeds, strict=True)
        for s in row
    ]
    runs = joblib.Parallel(n_jobs=jobs, return_as="generator")(tasks)
    flat = list(tqdm(runs, total=len(tasks), desc="simulating", unit="run", disable=not progress))
    return [flat[i : i + replications] for i in range(0, len(flat), replications)]


def trace_throughput(
    profile: Profile, *, workers: int | Iterable[int] = range(1, 33), confidence: float = 0.9, **settings: Any
) -> np.ndarray:
    """
    Steps per second against the number of workers: throughput, lower and upper, shape (n, 3).

    The interval joins the spread of the replications, the sampling of the recorded steps and `MODEL_ERROR`.
    Arguments are those of `trace_runs`.
    """
    return _intervals(profile, trace_runs(profile, workers=workers, **settings), confidence)


def _intervals(profile: Profile, runs: Sequence[Sequence[SimulatedRun]], confidence: float) -> np.ndarray:
    from scipy import stats

    if not 0 < confidence < 1:
        raise ModelError(f"trace_curve: confidence must be between 0 and 1, got {confidence!r}")
    times = profile.values("step_time")
    sampling = times.std(ddof=1) / times.mean() / len(times) ** 0.5 if len(times) > 1 else 0.0
    rows = []
    for replications in runs:
        X = np.array([run.throughput for run in replications])
        own = X.std(ddof=1) / X.mean() / len(X) ** 0.5 if len(X) > 1 else 0.0
        share = sampling * min(1.0, X.mean() * times.mean() / replications[0].workers)  # none once the link limits
        width = stats.norm.ppf((1 + confidence) / 2) * np.sqrt(own**2 + share**2 + MODEL_ERROR**2)
        rows.append((X.mean(), X.mean() * np.exp(-width), X.mean() * np.exp(width)))
    return np.array(rows)


def trace_curve(
    profile: Profile,
    *,
    workers: int | Iterable[int] = range(1, 33),
    confidence: float = 0.9,
    **settings: Any,
) -> ThroughputCurve:
    """
    Predict throughput against the number of workers by simulating the recorded operations.

    Arguments are those of `trace_runs` and, through it, of `simulate`.
    """
    counts = require_workers(workers)
    runs = trace_runs(profile, workers=np.union1d(counts, 1).tolist(), **settings)
    rows = _intervals(profile, runs, confidence)
    at = np.searchsorted(np.union1d(counts, 1), counts)
    last = runs[-1][0]
    stations = tuple(name for name in last.utilization if name != "compute")
    utilization = np.array([[np.mean([run.utilization[name] for run in row]) for name in stations] for row in runs])
    servers = last.parameter_servers
    return ThroughputCurve(
        workers=counts,
        steps_per_second=rows[at, 0],
        lower=rows[at, 1],
        upper=rows[at, 2],
        single=float(rows[0, 0]),
        batch_size=profile.job.batch_size,
        parameter_servers=servers,
        dataset_size=profile.job.dataset_size,
        confidence=confidence,
        stations=stations,
        utilization=utilization[at],
        bottleneck=last.bottleneck,
        profiled_workers=max([profile.cluster.workers, *(t.workers for t in profile.throughputs)]),
        measured=tuple((t.workers, t.steps_per_second) for t in profile.throughputs if t.parameter_servers == servers),
        method=f"trace-driven simulation ({last.settings['policy']}, {last.settings['synchronization']})",
    )
