"""Simulated throughput against node count, in the same value as every other prediction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from ..training import Profile, ThroughputCurve, fit
from ..training.model import MODEL_ERROR, normal_quantile, require_workers
from . import simulate
from .result import SimulatedRun

#: Simulated steps of all workers together, and at least this many of each.
STEPS, STEPS_PER_WORKER = 2000, 100


def trace_curve(
    profile: Profile,
    *,
    workers: int | Iterable[int] = range(1, 33),
    confidence: float = 0.9,
    seed: int = 0,
    bandwidth: float | None = None,
    parameter_servers: int | None = None,
    accelerator_speed: float = 1.0,
    worker_speeds: Sequence[float] | None = None,
    progress: bool = False,
) -> ThroughputCurve:
    """Simulate each number of workers, operation by operation (`simulate`).

    Bounds, bottleneck and saturation are those of the fitted network (`fit`). The interval covers the simulation's own
    error, the sampling of profiled steps and, beyond the profiled workers, the model's error as measured in
    docs/validation. The time scale is that of the profile: where a simulated step of one worker takes longer or shorter
    than a recorded one, the whole curve is corrected by that factor.

    Parameters
    ----------
    profile : Profile
        With operations in its steps.
    workers : iterable of int
        Increasing.
    confidence : float
    seed : int
        Every number of workers has its own stream.
    bandwidth, parameter_servers, accelerator_speed, worker_speeds
        What-ifs, as in `TrainingModel.what_if`.
    progress : bool
        Show a progress bar on standard error.

    Raises
    ------
    DataError
        When the profile's steps have no operations.
    ModelError
        When an argument makes no sense.
    """
    from tqdm import tqdm

    counts = require_workers(workers)
    model = fit(profile, seed=seed).what_if(
        bandwidth=bandwidth,
        parameter_servers=parameter_servers,
        accelerator_speed=accelerator_speed,
        worker_speeds=worker_speeds,
    )
    fitted = model.throughput(counts, confidence=confidence)
    speeds = np.ones(int(counts[-1])) if worker_speeds is None else np.array(worker_speeds, dtype=float)
    slowdown = 1.0 / (accelerator_speed * speeds)
    runs = {
        n: simulate(
            profile,
            workers=n,
            parameter_servers=parameter_servers,
            bandwidth=bandwidth,
            steps=max(STEPS_PER_WORKER, STEPS // n),
            seed=seed + n,
            slowdown=slowdown[:n].tolist(),
            confidence=confidence,
        )
        for n in tqdm(sorted({1, *counts.tolist()}), desc="simulating", unit="run", disable=not progress)
    }
    X = np.array([runs[n].throughput for n in counts])
    own = np.array([np.log(runs[n].upper / runs[n].lower) / 2 for n in counts])
    sampled = np.log(fitted.upper[0] / fitted.lower[0]) / 2 if counts[0] == 1 else 0.0
    model_error = np.where(counts > model.profiled_workers, normal_quantile(confidence) * MODEL_ERROR, 0.0)
    error = np.sqrt(own**2 + sampled**2 + model_error**2)
    servers = range(model.parameter_servers)
    phases = np.array([[runs[n].breakdown["fetch"], runs[n].breakdown["push"], 0.0] for n in counts])
    residence_time = np.tile(phases / len(servers), len(servers))
    simulated = replace(
        fitted,
        steps_per_second=X,
        lower=X * np.exp(-error),
        upper=X * np.exp(error),
        single=runs[1].throughput,
        utilization=np.array([_utilization(runs[n]) for n in counts]),
        residence_time=residence_time,
        think_time=np.maximum(counts / X - residence_time.sum(axis=1), 0.0),
        method="trace (simulation of recorded operations)",
    )
    if bandwidth is not None or worker_speeds is not None or accelerator_speed != 1.0 or parameter_servers is not None:
        alone = simulate(profile, workers=1, steps=STEPS, seed=seed + 1).throughput
    else:
        alone = runs[1].throughput
    return simulated.faster(1.0 / (alone * float(profile.values("step_time").mean())))


def _utilization(run: SimulatedRun) -> list[float]:
    """In the order of the fitted network's stations: transmit link, receive link and update of each server."""
    return [
        min(run.utilization[f"{place}[{server}]"], 1.0)
        for server in range(run.parameter_servers)
        for place in ("transmit", "receive", "update")
    ]
