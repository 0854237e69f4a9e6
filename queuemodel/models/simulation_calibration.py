"""The networks that a simulated cluster may be on, weighed by measured throughputs, and the simulation's own errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..base.estimates import Parameter
from ..base.files import constants
from ..base.results import Result, counted, percent
from ..profile.bandwidth import transports_of
from ..profile.job import Throughput
from ..profile.profile import Profile
from ..profile.synchronization import Synchronization
from ..profile.throughputs import on_profiled_links
from ..simulator.result import SimulatedRun
from ..simulator.runs import trace_runs
from ..transport.sharing import NETWORK, Transport
from .calibration import untraced_throughput
from .ensemble import (
    OTHER_MACHINES,
    Discrepancy,
    Ensemble,
    doubling,
    model_error,
    profiled_error,
    waiting_error,
    workers_correlation,
)

#: How far a network's parameters may lie from what is assumed: factors on unfairness and on the loaded trip, the latter
#: where the buffer is not specified (3 to 50 ms are usual) and where it is; the weight that each gets.
UNFAIR, UNKNOWN_FACTORS, KNOWN_FACTORS = (0.5, 2.0), (0.25, 4.0), (0.7, 1.4)
#: Measured and assumed numbers, with their sources: constants.toml.
_NUMBERS = constants(__package__)["simulation_calibration"]
FACTOR_SHARE = _NUMBERS["factor_share"]

LEAST_NOISE = _NUMBERS["least_noise"]

WINDOW = _NUMBERS["window"]
WINDOW_STEPS = _NUMBERS["window_steps"]

#: Steps simulated per number of workers and network, all replications together.
STEPS = 800
#: Numbers of workers at which every network is simulated; between them the likeliest one's curve is bent.
KNOTS = 7
#: Arguments that say how to simulate, whatever the machines.
MANNER = ("transfer_order", "sharding", "links", "seed", "steps", "replications", "progress")


@dataclass(frozen=True)
class Variant:
    """One network that may be: which of `transports_of`, its parameters' factors, and how likely it is beforehand."""

    kind: int
    weight: float
    trip: float = 1.0
    unfairness: float = 1.0

    def of(self, kinds: Sequence[Transport]) -> Transport:
        """The network among the kinds of some cluster."""
        kind = kinds[self.kind]
        return replace(kind, loaded_trip=self.trip * kind.loaded_trip, unfairness=self.unfairness * kind.unfairness)


@dataclass(frozen=True)
class Site:
    """Machines on which to simulate: numbers of workers on them, and arguments of `trace_runs` and `simulate`."""

    workers: tuple[int, ...]
    settings: dict[str, Any]


def variants(kinds: Sequence[Transport], *, fixed: bool, buffer_known: bool) -> list[Variant]:
    """Networks that may be, the likeliest kind first.

    Where numbers are given instead of kinds (``fixed``) they are taken as they are.
    """
    trips = KNOWN_FACTORS if buffer_known else UNKNOWN_FACTORS
    found = []
    for number, kind in enumerate(kinds):
        others = [{"unfairness": factor} for factor in UNFAIR if kind.unfairness and not fixed]
        others += [{"trip": factor} for factor in trips if kind.loaded_trip and not fixed]
        found.append(Variant(number, kind.share * (1 - FACTOR_SHARE * len(others))))
        found += [Variant(number, kind.share * FACTOR_SHARE, **factor) for factor in others]
    return found


def ensemble(
    profile: Profile,
    sites: Sequence[Site],
    kinds: Sequence[Transport],
    candidates: Sequence[Variant],
    *,
    network: dict[str, Any],
    seed: int = 0,
    replications: int = 2,
    **settings: Any,
) -> Ensemble:
    """
    Throughput by simulations of every variant at every site's numbers of workers, one after the other.

    The noise of one measurement is that of windows of the likeliest kind's runs that share links alike. Simulations err
    by that, by `simulation_error`, and by what other parameters of the same kind of network do. One worker has none
    to share a link with: there they err by what few recorded steps, and tracing, leave open, and with more workers as
    far as the step still decides. What one worker's predictions were seen to err by has the noise of measuring in it.
    """
    logs, noise, sampled, errors = [], [], [], []
    for site in sites:
        there = transports_of(profile, bandwidth=site.settings.get("bandwidth"), **network)
        own = [
            trace_runs(
                profile,
                workers=site.workers,
                replications=replications,
                seed=seed,
                **{"steps": STEPS} | settings | site.settings | candidate.of(there).settings,
            )
            for candidate in candidates
        ]
        logs.append([[float(np.log(throughput(runs))) for runs in variant] for variant in own])
        ways = min(
            len(kinds[0].mechanisms(barrier=Synchronization.read(settings.get("synchronization")).together)),
            replications,
        )
        alike = [runs for variant, runs in zip(candidates, own, strict=True) if variant.kind == candidates[0].kind]
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
    every, weights = np.concatenate(logs, axis=1), np.array([variant.weight for variant in candidates])
    spread = within_kinds(every, weights, np.array([variant.kind for variant in candidates]))
    error = np.concatenate(errors)
    own = np.sqrt(np.maximum(error**2 - spread**2 - tracing**2, (error / 2) ** 2))
    alone = workers == 1  # none to share a link with
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


@dataclass(frozen=True, eq=False, repr=False)
class Calibration(Result):
    """The networks that the profiled machines may be on, and the simulation's errors, after throughputs were measured.

    Attributes
    ----------
    kinds : tuple of Transport
        Kinds of network, the likeliest beforehand first.
    variants : tuple of Variant
        The M networks that were simulated.
    sites : tuple of Site
        Machines and numbers of workers, in the order of the ensembles' places; the first are the profiled machines.
    workers, networks, places : ndarray, shape (P,)
        Increasing numbers of workers on the machines of the scenario, logarithms of throughput there by the first
        network, and their places in the ensembles.
    prior, posterior : Ensemble
    measured, doubtful : tuple of Throughput
        Those measured, and those of them that neither the simulations nor the other measurements make likely.
    """

    kinds: tuple[Transport, ...]
    variants: tuple[Variant, ...]
    sites: tuple[Site, ...]
    workers: np.ndarray
    networks: np.ndarray
    places: np.ndarray
    prior: Ensemble
    posterior: Ensemble
    measured: tuple[Throughput, ...]
    doubtful: tuple[Throughput, ...]

    @property
    def discrepancy(self) -> Discrepancy:
        """How far the posterior is off the first network's simulation of the scenario."""
        return Discrepancy(self.workers, self.networks, self.posterior, self.places.tolist())

    def _shares(self, ensemble: Ensemble) -> list[float]:
        """Probability of each kind of network."""
        number = np.array([variant.kind for variant in self.variants])
        return [float(ensemble.models[number == kind].sum()) for kind in range(len(self.kinds))]

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Probability of each kind, each kind's parameters, and the size of errors over that of the prior."""
        found = []
        for number, kind in enumerate(self.kinds):
            own = [i for i, variant in enumerate(self.variants) if variant.kind == number]
            before, now = (self._shares(one)[number] for one in (self.prior, self.posterior))
            if len(self.kinds) > 1:
                found.append(Parameter(f"probability of {kind.name}", now, "", note=f"prior {before:.2g}"))
            for name, unit in (("loaded_trip", "s"), ("unfairness", "")):
                values = np.array([getattr(self.variants[i].of(self.kinds), name) for i in own])
                (_, before), (mean, error) = (
                    _mean_and_deviation(values, one.models[own]) for one in (self.prior, self.posterior)
                )
                if before:
                    found.append(
                        Parameter(
                            f"{name.replace('_', ' ')} ({kind.name})", mean, unit, standard_error=error,
                            origin="derived", identified=error < 0.7 * before, note=f"prior +- {before:.2g}",
                        )
                    )  # fmt: skip
        size = self.posterior.size / self.prior.size
        return (*found, Parameter("size of errors", size, "", origin="derived", note="relative to the prior"))

    @property
    def likeliest(self) -> Transport:
        """The kind of the network that has the highest probability."""
        return self.kinds[self.variants[int(self.posterior.models.argmax())].kind]

    @property
    def note(self) -> str:
        """What came of it, in a line."""
        parts = [f"calibrated by {counted(len(self.measured), 'measurement')}"]
        if len(self.kinds) > 1:
            shares = zip(self._shares(self.posterior), (kind.name for kind in self.kinds), strict=True)
            parts.append(", ".join(f"{name} {percent(share)}" for share, name in sorted(shares, reverse=True)))
        if self.doubtful:
            named = ", ".join(
                f"{p.steps_per_second:.4g} steps/s with {counted(p.workers, 'worker')}" for p in self.doubtful
            )
            parts.append(f"{named}: unlikely by all simulations and other measurements; measure it again")
        return ": ".join(parts[:2]) + "".join(f"; {more}" for more in parts[2:])

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per parameter."""
        return [parameter.to_row() for parameter in self.parameters]

    def caption(self) -> str:
        """What it was calibrated by."""
        return self.note


def calibrate(
    profile: Profile,
    measured: Sequence[Throughput],
    *,
    workers: Sequence[int] = (),
    **settings: Any,
) -> Calibration:
    """Weigh the networks that the profiled machines may be on by measured throughputs.

    Every kind of network of `transports_of`, with its assumed probability and with other parameters, is simulated where
    something was measured and at ``workers``. Throughputs weigh these by likelihood, and move what is left by the
    correlation of errors (`queuemodel.models.ensemble`). The throughput of one worker sets the length of its step
    first: tracing made the recorded ones longer. ``settings`` are those of `queuemodel.simulator.trace_runs`.

    Examples
    --------
    >>> import queuemodel as qm
    >>> from queuemodel import example_profile
    >>> found = calibrate(example_profile("alexnet-60"), [qm.Throughput(workers=4, steps_per_second=1.74)],
    ...                   congestion_control="unknown")
    >>> chances = {p.name: p.value for p in found.parameters if p.name.startswith("probability")}
    >>> max(chances, key=chances.get)  # as it was
    'probability of bbr'
    """
    measured = on_profiled_links(measured, profile)
    network = {name: settings.pop(name, None) for name in NETWORK}
    manner = {name: settings.pop(name) for name in MANNER if name in settings}
    servers = profile.cluster.parameter_servers
    kinds = transports_of(profile, **network)
    buffer = profile.cluster.buffer if network["buffer"] is None else network["buffer"]
    every = variants(kinds, fixed=network["loaded_trip"] is not None, buffer_known=buffer is not None)
    sites = [Site((1,), {})]
    for point in measured:
        _join(sites, _machines(servers, point), (point.workers,))
    target = _join(sites, {name: value for name, value in settings.items() if value is not None}, tuple(workers))
    simulated = ensemble(profile, sites, kinds, every, network=network, **manner)
    untraced = untraced_throughput(measured, servers)
    prior = simulated if untraced is None else _untraced(simulated, sites, untraced, kinds[0])
    machines = [site.settings for site in sites]
    at = [_place(sites, machines.index(_machines(servers, p)), p.workers) for p in measured]
    posterior, doubtful = prior.conditioned(measured, at)
    places = np.array([_place(sites, target, n) for n in sites[target].workers])
    return Calibration(
        kinds,
        tuple(every),
        tuple(sites),
        np.array(sites[target].workers),
        simulated.logs[0, 0, places],
        places,
        prior,
        posterior,
        tuple(measured),
        tuple(doubtful),
    )


def _machines(profiled: int, point: Throughput) -> dict[str, Any]:
    """Settings of the machines of a measurement: those that differ from the profiled ones."""
    other = {} if point.parameter_servers == profiled else {"parameter_servers": point.parameter_servers}
    return other if point.bandwidth is None else {"bandwidth": point.bandwidth, **other}


def _join(sites: list[Site], machines: dict[str, Any], workers: tuple[int, ...]) -> int:
    """Have those numbers of workers simulated on such machines, and one; which site it is."""
    for number, site in enumerate(sites):
        if site.settings == machines:
            sites[number] = Site(tuple(sorted({1, *site.workers, *workers})), machines)
            return number
    sites.append(Site(tuple(sorted({1, *workers})), machines))
    return len(sites) - 1


def _place(sites: Sequence[Site], site: int, workers: int) -> int:
    return sum(len(other.workers) for other in sites[:site]) + sites[site].workers.index(workers)


def _untraced(simulated: Ensemble, sites: Sequence[Site], single: float, kind: Transport) -> Ensemble:
    """The ensemble with a single worker's throughput as it is without tracing."""
    ends = np.cumsum([len(site.workers) for site in sites])
    share = [
        untraced_share(logs, np.array(site.workers), kind)
        for site, logs in zip(sites, np.split(simulated.logs[0, 0], ends[:-1]), strict=True)
    ]
    logs = simulated.logs + np.concatenate(share) * (np.log(single) - simulated.logs[..., :1])
    return replace(simulated, logs=logs)


def untraced_share(logs: np.ndarray, workers: np.ndarray, kind: Transport) -> np.ndarray:
    """
    How much of what tracing cost one worker alone it costs throughput of several, from its logarithms (n,).

    Tracing costs time on the machines, not on the links: as much as the workers' time is not lost to each other.
    Without links, on one machine, everything is so much slower.
    """
    return np.ones(len(logs)) if kind.name == "loopback" else np.minimum(1.0, np.exp(logs - logs[0]) / workers)


def knots(counts: np.ndarray) -> list[int]:
    """A few of many numbers of workers, about evenly spread on a logarithmic scale, the first and the last included."""
    wanted = np.geomspace(counts[0], counts[-1], KNOTS)
    return sorted({int(counts[np.abs(counts - n).argmin()]) for n in wanted})


def _mean_and_deviation(values: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    share = weights / weights.sum()
    mean = float(share @ values)
    return mean, float(np.sqrt(share @ (values - mean) ** 2))
