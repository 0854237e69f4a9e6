"""The simulation as a throughput curve: its intervals, bounds and bottleneck from the simulated runs themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..checks import require_share
from ..training.curve import ThroughputCurve, require_workers
from ..training.fit import fit
from ..training.profile import Profile
from .contention import Contention, contentions
from .result import SimulatedRun
from .runs import trace_runs

#: Relative error of the simulation itself: 5.0 % root mean square beyond one worker over the testbed series of
#: docs/validation.
MODEL_ERROR = 0.05


def trace_throughput(
    profile: Profile, *, workers: int | Iterable[int] = range(1, 33), confidence: float = 0.9, **settings: Any
) -> np.ndarray:
    """
    Steps per second against the number of workers: throughput, lower and upper, shape (n, 3).

    The interval joins the spread of the replications, the sampling of the recorded steps and `MODEL_ERROR`. Where the
    network's kind is not known, the throughput is that of the likeliest, and the interval spans the intervals of all.
    Arguments are those of `trace_runs`.
    """
    return _ensemble(profile, workers=workers, confidence=confidence, **settings)[2]


def _ensemble(
    profile: Profile, *, confidence: float, replications: int = 4, **settings: Any
) -> tuple[Contention, list[list[SimulatedRun]], np.ndarray]:
    """The likeliest kind of network with its runs, and throughputs with intervals over all plausible kinds."""
    told = {name: settings.pop(name, None) for name in ("congestion_control", "buffer", "loaded_trip", "unfairness")}
    kinds = contentions(profile, bandwidth=settings.get("bandwidth"), **told)
    runs = [
        trace_runs(
            profile,
            replications=replications if kind is kinds[0] else min(replications, max(2, replications // 2)),
            **kind.settings,
            **settings,
        )
        for kind in kinds
    ]
    rows = np.array([_intervals(profile, own, confidence) for own in runs])
    return kinds[0], runs[0], np.stack([rows[0, :, 0], rows[:, :, 1].min(axis=0), rows[:, :, 2].max(axis=0)], axis=1)


def _intervals(profile: Profile, runs: Sequence[Sequence[SimulatedRun]], confidence: float) -> np.ndarray:
    from scipy import stats

    require_share(confidence, "trace_curve: confidence", open_ended=True)
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

    Bottleneck, saturation and bounds follow from what each station is busy with per simulated step (`busy_bounds`).
    With ``untraced``, the measured steps per second of one worker that was not traced, the whole curve is scaled to
    start there. Other arguments are those of `TrainingModel.what_if`, of `trace_runs` and, through it, of `simulate`.
    """
    require_share(confidence, "trace_curve: confidence", open_ended=True)
    counts = require_workers(workers)
    speeds = None if worker_speeds is None else list(worker_speeds)
    model = fit(profile).what_if(
        bandwidth=bandwidth,
        parameter_servers=parameter_servers,
        accelerator_speed=accelerator_speed,
    )
    fitted = model.throughput(counts, confidence=confidence)  # names and sizes; every number is replaced
    every = np.union1d(counts, 1)
    kind, runs, rows = _ensemble(
        profile,
        confidence=confidence,
        workers=every.tolist(),
        bandwidth=bandwidth,
        parameter_servers=parameter_servers,
        accelerator_speed=accelerator_speed,
        worker_speeds=speeds,
        **settings,
    )
    scale = 1.0
    if untraced is not None:
        scale = untraced / _intervals(profile, trace_runs(profile, workers=1, **settings), confidence)[0, 0]
    at = np.searchsorted(every, counts)
    X, single = rows[at, 0], float(rows[0, 0])
    servers = range(model.parameter_servers)
    means = [_mean(runs[i]) for i in at]
    phases = np.array([[mean["fetch"], mean["push"], 0.0] for mean in means])
    residence_time = np.tile(phases / len(servers), len(servers))
    places = [f"{place}[{server}]" for server in servers for place in ("transmit", "receive", "update")]
    busy = np.array([[mean[place] for place in places] for mean in means])
    D = busy / X[:, None]  # utilization law
    busiest, last = float(D[-1].max()), runs[-1][0].settings
    how = (last["policy"], last["synchronization"], kind.name)
    relative = np.array((speeds or [1.0])[: counts[-1]]) / (speeds or [1.0])[0]
    lower, upper = busy_bounds(counts, X, D, single, relative, last["synchronization"])
    return replace(
        fitted,
        steps_per_second=X,
        lower=rows[at, 1],
        upper=rows[at, 2],
        single=single,
        utilization=np.minimum(busy, 1.0),
        bound_lower=lower,
        bound_upper=upper,
        saturation_workers=1.0 / (single * busiest) if busiest else np.inf,
        bottleneck=fitted.stations[int(D[-1].argmax())],
        residence_time=residence_time,
        think_time=np.maximum(counts / X - residence_time.sum(axis=1), 0.0),
        method=f"trace-driven simulation ({', '.join(filter(None, how))})",
        note="; ".join(filter(None, (fitted.note, kind.note))),
    ).faster(scale)


def _mean(runs: Sequence[SimulatedRun]) -> dict[str, float]:
    """Utilizations and phases, averaged over replications."""
    every = [run.utilization | run.breakdown for run in runs]
    return {name: float(np.mean([one[name] for one in every])) for name in every[0]}


def busy_bounds(
    workers: np.ndarray, X: np.ndarray, D: np.ndarray, single: float, speeds: np.ndarray, synchronization: str
) -> tuple[np.ndarray, np.ndarray]:
    """
    Asymptotic bounds on throughput (Muntz and Wong, 1974) from what simulated steps used.

    At best nobody waits, or the busiest station always works; at worst every worker waits for all others at every
    station. Where sampling takes the simulated throughput itself across a bound, the bound is moved there.

    Parameters
    ----------
    workers, X : ndarray, shape (n,)
        Numbers of workers, and simulated steps per second.
    D : ndarray, shape (n, K)
        Seconds that a step keeps each of the servers' stations busy.
    single : float
        Steps per second of the first worker alone.
    speeds : ndarray, shape (1,) or (N,)
        Of the workers' computations, relative to the first's; one for all, or one each.
    synchronization : str
        Those who wait for others by rule have no lower bound: it is NaN.

    Returns
    -------
    lower, upper : ndarray, shape (n,)
    """
    lower, upper = np.full(len(workers), np.nan), np.empty(len(workers))
    for i, n in enumerate(workers.tolist()):
        each = np.broadcast_to(speeds, n) if len(speeds) == 1 else speeds[:n]
        upper[i] = min(single * np.maximum(each, 1.0).sum(), 1.0 / max(D[i].max(), 1e-300))
        if synchronization == "async":
            lower[i] = (1.0 / (np.maximum(1 / each, 1.0) / single + (n - 1) * D[i].sum())).sum()
    return np.minimum(lower, X), np.maximum(upper, X)
