"""The simulation as a throughput curve: its intervals, bounds and bottleneck from the simulated runs themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from ..checks import require_share
from ..training.bandwidth import best_rates, nominal_bandwidth
from ..training.calibration import fit_network, goes_further, untraced_throughput
from ..training.curve import ThroughputCurve, require_workers
from ..training.job import TOLD, Throughput
from ..training.parameters import normal_quantile
from ..training.profile import Profile
from ..training.throughputs import on_profiled_links
from .calibration import calibrate, knots, untraced_share
from .contention import NETWORK, Contention, contentions
from .links import Link, Links
from .result import SimulatedRun
from .runs import trace_runs
from .variants import sampled_share, sampling_error, simulation_error, throughput, window_spread

#: What-ifs that the fitted network knows too.
WHAT_IFS = ("bandwidth", "parameter_servers", "accelerator_speed")


def trace_throughput(
    profile: Profile, *, workers: int | Iterable[int] = range(1, 33), confidence: float = 0.9, **settings: Any
) -> np.ndarray:
    """
    Steps per second against the number of workers: throughput, lower and upper, shape (n, 3).

    The interval is that of a measurement of about a minute: it joins the spread of such windows, that of the mean of
    the replications, the sampling of the recorded steps and `simulation_error`. Where the network's kind is not known,
    the throughput is that of the likeliest, and the interval spans the intervals of all. Arguments are those of
    `trace_runs`.
    """
    return _ensemble(profile, workers=workers, confidence=confidence, **settings)[2]


def _ensemble(
    profile: Profile, *, confidence: float, replications: int = 4, **settings: Any
) -> tuple[Contention, list[list[SimulatedRun]], np.ndarray]:
    """The likeliest kind of network with its runs, and throughputs with intervals over all plausible kinds."""
    require_share(confidence, "confidence", open_ended=True)
    told = {name: settings.pop(name, None) for name in NETWORK}
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
    rows = np.array([_intervals(profile, own, settings, confidence) for own in runs])
    X, lower, upper = rows[0, :, 0], rows[:, :, 1].min(axis=0), rows[:, :, 2].max(axis=0)
    if settings.get("links") is None and (best := best_rates(profile)):
        lower, upper = _unfilled(profile, best, lower, upper, kinds[0].settings | settings, confidence)
    return kinds[0], runs[0], np.stack([X, lower, upper], axis=1)


def _unfilled(
    profile: Profile,
    best: tuple[float, float],
    lower: np.ndarray,
    upper: np.ndarray,
    settings: dict[str, Any],
    confidence: float,
) -> tuple[np.ndarray, np.ndarray]:
    """
    Intervals where one worker does not fill its link: nobody knows what held it up, and how many that goes for.

    At worst all workers together get what one does; at best each gets as much as in the best step, until the nominal
    bandwidth, if it is known, is used up.
    """
    ways = (("fetched_bytes", "fetch"), ("pushed_bytes", "push"))
    usual = [float(profile.values(size).sum() / profile.values(seconds).sum()) for size, seconds in ways]
    slowest, fastest = Links(*map(Link, usual)), Links(*map(Link, best))
    shared = _intervals(profile, trace_runs(profile, replications=2, links=slowest, **settings), settings, confidence)
    alone = trace_runs(profile, replications=2, links=fastest, **settings | {"workers": 1})
    counts = require_workers(settings["workers"])
    at_best = counts * _intervals(profile, alone, settings, confidence)[0, 2]
    if (bandwidth := settings.get("bandwidth") or nominal_bandwidth(profile)) is not None:
        size = max(profile.values("fetched_bytes").mean(), profile.values("pushed_bytes").mean())
        at_best = np.minimum(at_best, profile.cluster.parameter_servers * bandwidth / size)
    return np.minimum(lower, shared[:, 1]), np.maximum(upper, at_best)


def _intervals(
    profile: Profile, runs: Sequence[Sequence[SimulatedRun]], settings: Mapping[str, Any], confidence: float
) -> np.ndarray:
    rows = []
    for replications, error in zip(runs, simulation_error(profile, runs, settings), strict=True):
        X = np.array([run.throughput for run in replications])
        own = X.std(ddof=1) / X.mean() / len(X) ** 0.5 if len(X) > 1 else 0.0
        window = window_spread(replications)
        share = sampling_error(profile) * sampled_share(profile, replications)
        width = normal_quantile(confidence) * np.sqrt(own**2 + window**2 + share**2 + error**2)
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
    measured: Sequence[Throughput] = (),
    **settings: Any,
) -> ThroughputCurve:
    """
    Predict throughput against the number of workers by simulating the recorded operations.

    Bottleneck, saturation and bounds follow from what each station is busy with per simulated step (`busy_bounds`).
    Throughputs measured on the profiled machines, or on other servers or links, calibrate it (`calibrate`). Other
    arguments are those of `TrainingModel.what_if`, of `trace_runs` and, through it, of `simulate`.
    """
    counts = require_workers(workers)
    speeds = None if worker_speeds is None else list(worker_speeds)
    model = fit_network(msgspec.structs.replace(profile, throughputs=list(measured))).what_if(
        bandwidth=bandwidth,
        parameter_servers=parameter_servers,
        accelerator_speed=accelerator_speed,
    )
    measured = on_profiled_links(measured, profile)
    fitted = model.throughput(counts, confidence=confidence)  # names and sizes; every number is replaced
    every = np.union1d(counts, 1)
    machines = {
        "bandwidth": bandwidth,
        "parameter_servers": parameter_servers,
        "accelerator_speed": None if accelerator_speed == 1.0 else accelerator_speed,
        "worker_speeds": speeds,
    }
    asked = settings | {name: value for name, value in machines.items() if value is not None}
    kind, runs, rows = _ensemble(profile, confidence=confidence, workers=every.tolist(), **asked)
    at = np.searchsorted(every, counts)
    means = [_mean(runs[i]) for i in at]
    servers = range(model.parameter_servers)
    places = [f"{place}[{server}]" for server in servers for place in ("transmit", "receive", "update")]
    D = np.array([[mean[place] for place in places] for mean in means]) / rows[at, :1]  # utilization law
    phases = np.array([[mean["fetch"], mean["push"], 0.0] for mean in means]) * rows[at, :1]
    name, note = kind.name, "; ".join(filter(None, (model.note, kind.note)))
    alone = untraced_throughput(measured, profile.cluster.parameter_servers)
    if alone is not None:
        longer = throughput(trace_runs(profile, workers=1, **settings)[0]) / alone
        if kind.name == "loopback":  # no links, that carry as much while nobody traces
            D = D * longer
    if goes_further(measured, profile.cluster.parameter_servers):
        found = calibrate(profile, measured, workers=knots(every), **asked)
        rows = (rows[:, 0] * found.bend(every, confidence)).T
        name, note = found.likeliest.name, "; ".join(filter(None, (model.fitted.contradiction, found.note)))
    elif alone is not None:
        rows = rows * longer ** -untraced_share(np.log(rows[:, 0]), every, kind)[:, None]
    X, single = rows[at, 0], float(rows[0, 0])
    residence_time = np.tile(phases / X[:, None] / len(servers), len(servers))
    busiest, last = float(D[-1].max()), runs[-1][0].settings
    how = (last["policy"], last["synchronization"], name)
    relative = np.array((speeds or [1.0])[: counts[-1]]) / (speeds or [1.0])[0]
    if settings.get("worker_bandwidth") is None:
        lower, upper = busy_bounds(counts, X, D, single, relative, last["synchronization"])
    else:  # the first worker's link tells nothing of the others'
        lower, upper = np.full(len(X), np.nan), np.maximum(X, 1 / D.max(axis=1))
    return replace(
        fitted,
        steps_per_second=X,
        lower=rows[at, 1],
        upper=rows[at, 2],
        single=single,
        utilization=np.minimum(X[:, None] * D, 1.0),
        bound_lower=lower,
        bound_upper=upper,
        saturation_workers=1.0 / (single * busiest) if busiest else np.inf,
        bottleneck=fitted.stations[int(D[-1].argmax())],
        residence_time=residence_time,
        think_time=np.maximum(counts / X - residence_time.sum(axis=1), 0.0),
        method=f"trace-driven simulation ({', '.join(filter(None, how))})",
        note=note,
        beyond_model=", ".join(
            name.replace("_", " ") for name in asked if name not in {"seed", "progress", *TOLD, *WHAT_IFS}
        ),
    )


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
    ``D`` (n, K) are seconds that a step keeps each station busy, ``single`` the first worker's rate, ``speeds`` (1,)
    or (N,). Those who wait for others by rule have no lower bound: it is NaN.
    """
    lower, upper = np.full(len(workers), np.nan), np.empty(len(workers))
    for i, n in enumerate(workers.tolist()):
        each = np.broadcast_to(speeds, n) if len(speeds) == 1 else speeds[:n]
        upper[i] = min(single * np.maximum(each, 1.0).sum(), 1.0 / max(D[i].max(), 1e-300))
        if synchronization == "async":
            lower[i] = (1.0 / (np.maximum(1 / each, 1.0) / single + (n - 1) * D[i].sum())).sum()
    return np.minimum(lower, X), np.maximum(upper, X)
