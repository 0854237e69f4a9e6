"""Errors of simulated throughputs: the simulation's own, the sampling of recorded steps, a window's length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...base.files import constants
from ...profile.profile import Profile
from ...profile.synchronization import Synchronization
from ...simulator.result import SimulatedRun
from ...transport.sharing import Transport
from ..errors import model_error, profiled_error, waiting_error

#: Measured and assumed numbers, with their sources: constants.toml.
_NUMBERS = constants(__package__)["errors"]
MIN_NOISE, WINDOW, WINDOW_STEPS = _NUMBERS["least_noise"], _NUMBERS["window"], _NUMBERS["window_steps"]


def simulation_error(
    profile: Profile, runs: Sequence[Sequence[SimulatedRun]], settings: Mapping[str, Any]
) -> np.ndarray:
    """Relative standard error of the simulation itself, with such settings, at the runs' numbers of workers (n,)."""
    workers = np.array([replications[0].workers for replications in runs])
    X = np.array([throughput(replications) for replications in runs])
    links = [[[u for name, u in run.utilization.items() if name != "compute"] for run in group] for group in runs]
    D_max = np.array([max(np.mean(group, axis=0)) for group in links]) / X  # utilization law
    single = X[0] if workers[0] == 1 else 1.0 / float(profile.values("step_time").mean())
    # n / N* = n X(1) D_max
    error = np.where(workers == 1, profiled_error("trace"), model_error("trace", workers * single * D_max))
    return np.hypot(error, waiting_error() * Synchronization.read(settings.get("synchronization")).partial(workers))


def throughput(runs: Sequence[SimulatedRun]) -> float:
    """Steps per second, the mean of replications."""
    return float(np.mean([run.throughput for run in runs]))


def sampling_error(profile: Profile) -> float:
    """Relative standard error of the mean of the recorded steps; 0 of one, which shows none."""
    times = profile.values("step_time")
    return float(times.std(ddof=1) / times.mean() / len(times) ** 0.5) if len(times) > 1 else 0.0


def sampled_share(profile: Profile, runs: Sequence[SimulatedRun]) -> float:
    """Share of the steps' sampling error that the throughput has: 1 of one worker, little once a link limits it."""
    return min(1.0, throughput(runs) * float(profile.values("step_time").mean()) / runs[0].workers)  # X / (n X(1))


def window_spread(runs: Sequence[SimulatedRun]) -> float:
    """Relative standard deviation of the throughput of one measurement's window, in the steady state.

    Windows of a run differ as its phases wander, runs as they begin, where phases hardly wander, and as links are
    shared: an analysis of variance adds what both show (Searle, Casella and McCulloch, 1992).
    """
    mean, workers = throughput(runs), runs[0].workers
    measured = max(WINDOW, WINDOW_STEPS * workers / mean)
    seconds = min(measured, min(run.duration - run.warmup for run in runs) / 2)
    squares, windows = 0.0, 0
    for run in runs:
        steps = np.cumsum(run.throughputs * np.diff(run.times, prepend=0.0))
        edges = np.arange(run.warmup, run.duration + 1e-9, seconds)
        counts = np.diff(np.interp(edges, run.times, steps))
        squares += float(((counts / counts.mean() - 1.0) ** 2).sum())
        windows += len(counts)
    within = squares / (windows - len(runs)) * seconds / measured  # a longer window's variance is as much smaller
    between = float(np.var([run.throughput for run in runs], ddof=1)) / mean**2 if len(runs) > 1 else 0.0
    # var(between) holds within / m of m windows a run: between + (1 - 1 / m) within
    return float(np.sqrt(max(between + (1.0 - len(runs) / windows) * within, within)))


def untraced_share(logs: np.ndarray, workers: np.ndarray, kind: Transport) -> np.ndarray:
    """
    Share (n,) of one worker's cost of tracing that throughput of several has, from its logarithms (n,).

    Tracing costs time on the machines, not on the links: its share is the efficiency X(n) / (n X(1)). On loopback,
    without links, it slows everything.
    """
    return np.ones(len(logs)) if kind.name == "loopback" else np.minimum(1.0, np.exp(logs - logs[0]) / workers)
