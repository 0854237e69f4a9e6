"""How far simulated throughputs are from a measurement: the simulation itself, sampled steps, a window's length."""

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
    links = [[[busy for name, busy in run.utilization.items() if name != "compute"] for run in one] for one in runs]
    busiest = np.array([max(np.mean(one, axis=0)) for one in links]) / X  # seconds per step
    alone = X[0] if workers[0] == 1 else 1.0 / float(profile.values("step_time").mean())
    own = np.where(workers == 1, profiled_error("trace"), model_error("trace", workers * alone * busiest))
    return np.hypot(own, waiting_error() * Synchronization.read(settings.get("synchronization")).partial(workers))


def throughput(runs: Sequence[SimulatedRun]) -> float:
    """Steps per second, the mean of replications."""
    return float(np.mean([run.throughput for run in runs]))


def sampling_error(profile: Profile) -> float:
    """Relative standard error of the mean of the recorded steps; 0 of one, which shows none."""
    times = profile.values("step_time")
    return float(times.std(ddof=1) / times.mean() / len(times) ** 0.5) if len(times) > 1 else 0.0


def sampled_share(profile: Profile, runs: Sequence[SimulatedRun]) -> float:
    """How much of the steps' sampling error the throughput has: all alone, none once a link limits it."""
    return min(1.0, throughput(runs) * float(profile.values("step_time").mean()) / runs[0].workers)


def window_spread(runs: Sequence[SimulatedRun]) -> float:
    """Relative standard deviation of the throughput of one measurement's window, in the steady state.

    Windows of a run differ as its phases wander, runs as they begin, where phases hardly wander, and as links are
    shared: an analysis of variance adds what both show (Searle, Casella and McCulloch, 1992).
    """
    mean, workers = throughput(runs), runs[0].workers
    wanted = max(WINDOW, WINDOW_STEPS * workers / mean)
    seconds = min(wanted, min(run.duration - run.warmup for run in runs) / 2)
    squares, windows = 0.0, 0
    for run in runs:
        steps = np.cumsum(run.throughputs * np.diff(run.times, prepend=0.0))
        edges = np.arange(run.warmup, run.duration + 1e-9, seconds)
        counts = np.diff(np.interp(edges, run.times, steps))
        squares += float(((counts / counts.mean() - 1.0) ** 2).sum())
        windows += len(counts)
    within = squares / (windows - len(runs)) * seconds / wanted
    between = float(np.var([run.throughput for run in runs], ddof=1)) / mean**2 if len(runs) > 1 else 0.0
    return float(np.sqrt(max(between + (1.0 - len(runs) / windows) * within, within)))


def untraced_share(logs: np.ndarray, workers: np.ndarray, kind: Transport) -> np.ndarray:
    """
    How much of what tracing cost one worker alone it costs throughput of several, from its logarithms (n,).

    Tracing costs time on the machines, not on the links: as much as the workers' time is not lost to each other.
    Without links, on one machine, everything is so much slower.
    """
    return np.ones(len(logs)) if kind.name == "loopback" else np.minimum(1.0, np.exp(logs - logs[0]) / workers)
