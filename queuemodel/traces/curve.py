"""The simulation as a throughput curve: some numbers of workers, several runs each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import ModelError
from ..training.curve import ThroughputCurve
from ..training.fit import fit
from ..training.model import require_workers
from ..training.profile import Profile
from .policies import Policy
from .result import SimulatedRun
from .sharding import Sharding
from .simulate import prepare, simulate

#: Relative error of the simulation itself: 5.2 % root mean square beyond one worker over the testbed series of
#: docs/validation (5.8 % with the Reno control), rounded.
MODEL_ERROR = 0.05
#: Operations simulated per number of workers; and steps of all workers, at least and at most.
OPERATIONS, LEAST_STEPS, MOST_STEPS = 300_000, 600, 6000


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
    parameter_servers: int | None = None,
    policy: Policy = "tensorflow",
    sharding: Sharding = "round-robin",
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
    parameter_servers, policy, sharding, **settings
        Arguments of `simulate`.

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
    operations = float(np.mean([len(step.operations) for step in profile.steps]))
    total = steps or int(np.clip(OPERATIONS / max(operations, 1.0), LEAST_STEPS, MOST_STEPS))
    seeds = np.random.SeedSequence(seed).generate_state(len(counts) * replications).reshape(len(counts), replications)
    graphs = prepare(profile, parameter_servers, policy, sharding, settings.pop("links", None))
    tasks = [
        joblib.delayed(simulate)(
            graphs,
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
    bandwidth: float | None = None,
    parameter_servers: int | None = None,
    accelerator_speed: float = 1.0,
    worker_speeds: Iterable[float] | None = None,
    untraced: float | None = None,
    **settings: Any,
) -> ThroughputCurve:
    """
    Predict throughput against the number of workers by simulating the recorded operations.

    Bottleneck, saturation and the upper bound follow from what each station is busy with per simulated step; the lower
    bound is that of the fitted network (`fit`). With ``untraced``, the measured steps per
    second of one worker that was not traced, the whole curve is scaled to start there. Other arguments are those of
    `TrainingModel.what_if`, of `trace_runs` and, through it, of `simulate`.
    """
    counts = require_workers(workers)
    speeds = None if worker_speeds is None else list(worker_speeds)
    model = fit(profile).what_if(
        bandwidth=bandwidth,
        parameter_servers=parameter_servers,
        accelerator_speed=accelerator_speed,
    )
    if model.parameter_servers == 1:  # the network has no rule for unequal workers with several servers
        model = model.what_if(worker_speeds=speeds)
    fitted = model.throughput(counts, confidence=confidence)
    every = np.union1d(counts, 1)
    runs = trace_runs(
        profile,
        workers=every.tolist(),
        bandwidth=bandwidth,
        parameter_servers=parameter_servers,
        accelerator_speed=accelerator_speed,
        worker_speeds=speeds,
        **settings,
    )
    rows = _intervals(profile, runs, confidence)
    scale = 1.0
    if untraced is not None:
        scale = untraced / _intervals(profile, trace_runs(profile, workers=1, **settings), confidence)[0, 0]
    at = np.searchsorted(every, counts)
    servers = range(model.parameter_servers)
    means = [_mean(runs[i]) for i in at]
    phases = np.array([[mean["fetch"], mean["push"], 0.0] for mean in means])
    residence_time = np.tile(phases / len(servers), len(servers))
    places = [f"{place}[{server}]" for server in servers for place in ("transmit", "receive", "update")]
    busy = np.array([[mean[place] for place in places] for mean in means])
    D, single = busy[-1] / rows[at[-1], 0], float(rows[0, 0])  # utilization law
    last = runs[-1][0].settings
    return replace(
        fitted,
        steps_per_second=rows[at, 0],
        lower=rows[at, 1],
        upper=rows[at, 2],
        single=single,
        utilization=np.minimum(busy, 1.0),
        bound_upper=np.minimum(counts * single, 1.0 / D.max()),
        saturation_workers=1.0 / (single * float(D.max())),
        bottleneck=fitted.stations[int(D.argmax())],
        residence_time=residence_time,
        think_time=np.maximum(counts / rows[at, 0] - residence_time.sum(axis=1), 0.0),
        method=f"trace-driven simulation ({last['policy']}, {last['synchronization']})",
    ).faster(scale)


def _mean(runs: Sequence[SimulatedRun]) -> dict[str, float]:
    """Utilizations and phases, averaged over replications."""
    every = [run.utilization | run.breakdown for run in runs]
    return {name: float(np.mean([one[name] for one in every])) for name in every[0]}
