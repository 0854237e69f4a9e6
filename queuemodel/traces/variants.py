"""Networks that a simulated cluster may be on, and what each of them would show where throughput can be measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..training.ensemble import OTHER_MACHINES, Ensemble, workers_correlation
from ..training.model_error import doubling, model_error, profiled_error, waiting_error
from ..training.profile import Profile
from .contention import Contention, contentions
from .result import SimulatedRun
from .rules import BARRIERS, in_between
from .runs import trace_runs

#: How far a network's parameters may lie from what is assumed: factors on unfairness and on the loaded trip, the latter
#: where nobody tells the buffer (3 to 50 ms are usual) and where somebody does; the weight that each gets.
UNFAIR, UNTOLD, TOLD = (0.5, 2.0), (0.25, 4.0), (0.7, 1.4)
FACTOR_SHARE = 0.15

#: Relative error of measuring that no simulated window shows (other users of the machines, clocks).
LEAST_NOISE = 0.02

#: A measurement lasts so many seconds, or so many steps of each worker where that is longer.
WINDOW, WINDOW_STEPS = 60.0, 20

#: Steps simulated per number of workers and network, all replications together.
STEPS = 800


@dataclass(frozen=True)
class Variant:
    """One network that may be: which of `contentions`, its parameters' factors, and how likely it is beforehand."""

    kind: int
    weight: float
    trip: float = 1.0
    unfairness: float = 1.0

    def of(self, kinds: Sequence[Contention]) -> Contention:
        """The network among the kinds of some cluster."""
        kind = kinds[self.kind]
        return replace(kind, loaded_trip=self.trip * kind.loaded_trip, unfairness=self.unfairness * kind.unfairness)


@dataclass(frozen=True)
class Site:
    """Machines on which to simulate: numbers of workers on them, and arguments of `trace_runs` and `simulate`."""

    workers: tuple[int, ...]
    settings: dict[str, Any]


def variants(kinds: Sequence[Contention], *, fixed: bool, buffer_told: bool) -> list[Variant]:
    """Networks that may be, the likeliest kind first.

    Where numbers are given instead of kinds (``fixed``) they are taken as they are.
    """
    found = []
    for number, kind in enumerate(kinds):
        others = [] if fixed else [{"unfairness": factor} for factor in UNFAIR if kind.unfairness]
        others += (
            [] if fixed else [{"trip": factor} for factor in (TOLD if buffer_told else UNTOLD) if kind.loaded_trip]
        )
        found.append(Variant(number, kind.share * (1 - FACTOR_SHARE * len(others))))
        found += [Variant(number, kind.share * FACTOR_SHARE, **factor) for factor in others]
    return found


def ensemble(
    profile: Profile,
    sites: Sequence[Site],
    kinds: Sequence[Contention],
    among: Sequence[Variant],
    *,
    told: dict[str, Any],
    seed: int = 0,
    replications: int = 2,
    **settings: Any,
) -> Ensemble:
    """
    What simulations of every variant think of throughput at every site's numbers of workers, one after the other.

    The noise of one measurement is that of windows of the likeliest kind's runs that share links alike. Simulations err
    by that, by `simulation_error`, and by what other parameters of the same kind of network do. One worker has nobody
    to share a link with: there they err by what few recorded steps, and tracing, leave open, and with more workers as
    far as the step still decides. What one worker's predictions were seen to err by has the noise of measuring in it.
    """
    logs, noise, sampled, errors = [], [], [], []
    for site in sites:
        there = contentions(profile, bandwidth=site.settings.get("bandwidth"), **told)
        own = [
            trace_runs(
                profile,
                workers=site.workers,
                replications=replications,
                seed=seed,
                **{"steps": STEPS} | settings | site.settings | network.settings,
            )
            for network in (variant.of(there) for variant in among)
        ]
        logs.append([[float(np.log(throughput(runs))) for runs in variant] for variant in own])
        ways = min(len(kinds[0].mechanisms(barrier=settings.get("synchronization") in BARRIERS)), replications)
        alike = [runs for variant, runs in zip(among, own, strict=True) if variant.kind == among[0].kind]
        squares = [[window_spread(runs[way::ways]) ** 2 for runs in one] for one in alike for way in range(ways)]
        spreads = np.sqrt(np.mean(squares, axis=0))
        noise.append(np.hypot(LEAST_NOISE, spreads))
        sampled += [sampled_share(profile, runs) for runs in own[0]]
        errors.append(np.hypot(simulation_error(profile, own[0], settings | site.settings), spreads))
    workers = np.concatenate([site.workers for site in sites])
    at_site = np.repeat(np.arange(len(sites)), [len(site.workers) for site in sites])
    machines = np.where(at_site[:, None] == at_site, 1.0, OTHER_MACHINES)
    traced = profiled_error("trace")
    tracing = np.sqrt(max(traced**2 - LEAST_NOISE**2, (traced / 2) ** 2)) * np.array(sampled)
    steps = sampling_error(profile) * np.array(sampled)
    every, weights = np.concatenate(logs, axis=1), np.array([variant.weight for variant in among])
    spread = within_kinds(every, weights, np.array([variant.kind for variant in among]))
    error = np.concatenate(errors)
    own = np.sqrt(np.maximum(error**2 - spread**2 - tracing**2, (error / 2) ** 2))
    alone = workers == 1  # nobody to share a link with
    before = Ensemble.before(
        every,
        weights,
        error=np.where(alone, 0.0, own),
        noise=np.concatenate(noise),
        correlation=machines * workers_correlation(workers, doubling("trace")),
        own=np.outer(steps, steps) + np.outer(tracing, tracing),
    )
    return replace(before, rest=np.where(alone, np.sqrt(error**2 - tracing**2), before.rest))


def within_kinds(logs: np.ndarray, weights: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """Standard deviation of logs (M, P) of the same kind of network, shape (P,)."""
    share = weights / weights.sum()
    own = [kinds == kind for kind in np.unique(kinds)]
    means = np.array([np.average(logs[same], axis=0, weights=share[same]) for same in own])
    off = logs - means[np.searchsorted(np.unique(kinds), kinds)]
    return np.asarray(np.sqrt(share @ off**2))


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
    return np.hypot(own, waiting_error() * in_between(workers, **settings))


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
