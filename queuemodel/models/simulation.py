"""Networks that a simulated cluster may be on, and what each of them would show where throughput can be measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from ..base.checks import require_share
from ..base.errors import ModelError
from ..base.estimates import Parameter
from ..base.files import constants
from ..base.results import Result
from ..curves.curve import ThroughputCurve, require_workers
from ..profile.bandwidth import best_rates, nominal_bandwidth, transports_of
from ..profile.job import Job, Throughput
from ..profile.profile import Profile
from ..profile.scenario import of_group
from ..profile.synchronization import Synchronization
from ..profile.throughputs import on_profiled_links
from ..simulator.links import LinkRate, LinkRates
from ..simulator.result import SimulatedRun
from ..simulator.runs import trace_runs
from ..transport.sharing import NETWORK, Transport
from .calibration import contradicted, fit_network, goes_further, untraced_throughput
from .closed_network import TrainingModel
from .demands import Servers
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
from .outcome import Breakdown, Model, Outcome
from .step_fit import fit_steps, servers_of, step_note, tensor_bytes_of

#: How far a network's parameters may lie from what is assumed: factors on unfairness and on the loaded trip, the latter
#: where nobody tells the buffer (3 to 50 ms are usual) and where somebody does; the weight that each gets.
UNFAIR, UNTOLD, TOLD_FACTORS = (0.5, 2.0), (0.25, 4.0), (0.7, 1.4)
#: Measured and assumed numbers, with their sources: constants.toml.
_NUMBERS = constants(__package__)["simulation"]
FACTOR_SHARE = _NUMBERS["factor_share"]

LEAST_NOISE = _NUMBERS["least_noise"]

WINDOW = _NUMBERS["window"]
WINDOW_STEPS = _NUMBERS["window_steps"]

#: Steps simulated per number of workers and network, all replications together.
STEPS = 800


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


def variants(kinds: Sequence[Transport], *, fixed: bool, buffer_told: bool) -> list[Variant]:
    """Networks that may be, the likeliest kind first.

    Where numbers are given instead of kinds (``fixed``) they are taken as they are.
    """
    found = []
    for number, kind in enumerate(kinds):
        others = [] if fixed else [{"unfairness": factor} for factor in UNFAIR if kind.unfairness]
        others += (
            []
            if fixed
            else [{"trip": factor} for factor in (TOLD_FACTORS if buffer_told else UNTOLD) if kind.loaded_trip]
        )
        found.append(Variant(number, kind.share * (1 - FACTOR_SHARE * len(others))))
        found += [Variant(number, kind.share * FACTOR_SHARE, **factor) for factor in others]
    return found


def ensemble(
    profile: Profile,
    sites: Sequence[Site],
    kinds: Sequence[Transport],
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
        there = transports_of(profile, bandwidth=site.settings.get("bandwidth"), **told)
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
        ways = min(
            len(kinds[0].mechanisms(barrier=Synchronization.read(settings.get("synchronization")).together)),
            replications,
        )
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


#: Numbers of workers at which every network is simulated; between them the likeliest one's curve is bent.
KNOTS = 7

#: Arguments that say how to simulate, whatever the machines.
MANNER = ("policy", "sharding", "links", "seed", "steps", "replications", "progress")


@dataclass(frozen=True, eq=False, repr=False)
class Calibration(Result):
    """What measured throughputs say of the network that a job was profiled on, and of the simulation there."""

    kinds: tuple[Transport, ...]  # Kinds of network that the machines may be on
    among: tuple[Variant, ...]  # All networks that were simulated
    sites: tuple[Site, ...]  # Machines and numbers of workers at which they were; the first are the profiled ones
    asked: int  # Which of them are those asked for
    parameter_servers: int  # Of the profile
    networks: np.ndarray  # (M, P): Logarithms of throughput there by all networks, the likeliest beforehand first
    before: Ensemble  # before, after: What was thought of it, and what is thought now
    after: Ensemble
    measured: tuple[Throughput, ...] = ()
    doubted: tuple[Throughput, ...] = ()  # Those that neither the simulation nor the others make likely

    def given(self, measured: Sequence[Throughput]) -> Calibration:
        """What is thought when these are measured, instead of others, at numbers of workers that were simulated."""
        untraced = untraced_throughput(measured, self.parameter_servers)
        simulated = replace(self.before, logs=np.broadcast_to(self.networks, self.before.logs.shape))
        before = _untraced(simulated, self.sites, untraced, self.kinds[0])
        at = [self.at_run(p.workers, p.bandwidth, p.parameter_servers) for p in measured]
        logs = np.log([point.steps_per_second for point in measured])
        noise = np.array([p.relative_error(before.noise[place]) for p, place in zip(measured, at, strict=True)])
        wrong = before.doubtful(at, logs, noise)
        return replace(
            self,
            before=before,
            after=before.given(at, logs, noise),
            measured=tuple(measured),
            doubted=tuple(point for point, off in zip(measured, wrong, strict=True) if off),
        )

    def at_run(self, workers: int, bandwidth: float | None = None, parameter_servers: int | None = None) -> int:
        """Where the ensembles have a run on the profiled machines, or on other links or another number of servers."""
        machines = _machines(self.parameter_servers, bandwidth, parameter_servers or self.parameter_servers)
        return _place(self.sites, next(i for i, site in enumerate(self.sites) if site.settings == machines), workers)

    def at_asked(self, workers: int) -> int:
        """Where they have so many workers on the machines asked for."""
        return _place(self.sites, self.asked, workers)

    @property
    def discrepancy(self) -> Discrepancy:
        """How far what is thought now is off the first network's simulation, as asked for."""
        at = self.sites[self.asked].workers
        places = [self.at_asked(n) for n in at]
        return Discrepancy(np.array(at), self.networks[0, places], self.after, places)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """How likely each kind is, each kind's parameters, and how much larger errors are than was thought."""
        w, found = self.after.models, []
        for number, kind in enumerate(self.kinds):
            own = np.array([variant.kind == number for variant in self.among])
            if len(self.kinds) > 1:
                before = float(self.before.models[own].sum())
                found.append(
                    Parameter(f"probability of {kind.name}", float(w[own].sum()), "", note=f"{before:.2g} before")
                )
            for name, unit in (("loaded_trip", "s"), ("unfairness", "")):
                values = np.array([getattr(variant.of(self.kinds), name) for variant in self.among])[own]
                (_, before), (mean, error) = (_mean_and_deviation(values, p[own]) for p in (self.before.models, w))
                if before:
                    found.append(
                        Parameter(
                            f"{name.replace('_', ' ')} ({kind.name})", mean, unit, standard_error=error,
                            origin="derived", identified=error < 0.7 * before, note=f"+- {before:.2g} before",
                        )
                    )  # fmt: skip
        size = self.after.size / self.before.size
        return (*found, Parameter("size of errors", size, "", origin="derived", note="against what was thought before"))

    @property
    def likeliest(self) -> Transport:
        """The network that has most of the weight now."""
        return self.kinds[self.among[int(self.after.models.argmax())].kind]

    @property
    def note(self) -> str:
        """What came of it, in a line."""
        told = [f"calibrated by {len(self.measured)} measurement(s)"]
        if len(self.kinds) > 1:
            shares = [
                (float(self.after.models[[variant.kind == number for variant in self.among]].sum()), kind.name)
                for number, kind in enumerate(self.kinds)
            ]
            told.append(", ".join(f"{name} {share:.0%}" for share, name in sorted(shares, reverse=True)))
        if self.doubted:
            named = ", ".join(f"{p.steps_per_second:.4g} steps/s with {p.workers} worker(s)" for p in self.doubted)
            told.append(f"{named}: unlikely by all simulations and other measurements; measure it again")
        return ": ".join(told[:2]) + "".join(f"; {more}" for more in told[2:])

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
    """
    Weigh the networks that the profiled machines may be on by measured throughputs, and see how far simulations err.

    Every kind of network of `transports_of`, as likely as is assumed, and each with other parameters
    (`variants`), is simulated where something was measured and at ``workers``; throughputs weigh them by likelihood,
    and move what is left by the correlation of errors (`queuemodel.models.ensemble`). The throughput of one worker
    sets the length of its step first: tracing made the recorded ones longer.

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
    told = {name: settings.pop(name, None) for name in NETWORK}
    manner = {name: settings.pop(name) for name in MANNER if name in settings}
    servers = profile.cluster.parameter_servers
    kinds = transports_of(profile, **told)
    buffer = profile.cluster.buffer if told["buffer"] is None else told["buffer"]
    among = variants(kinds, fixed=told["loaded_trip"] is not None, buffer_told=buffer is not None)
    sites = [Site((1,), {})]
    for point in measured:
        _join(sites, _machines(servers, point.bandwidth, point.parameter_servers), (point.workers,))
    asked = _join(sites, {name: value for name, value in settings.items() if value is not None}, tuple(workers))
    thought = ensemble(profile, sites, kinds, among, told=told, **manner)
    found = Calibration(
        kinds, tuple(among), tuple(sites), asked, servers, networks=thought.logs[0], before=thought, after=thought
    )
    return found.given(measured)


def _machines(profiled: int, bandwidth: float | None, parameter_servers: int) -> dict[str, Any]:
    """Settings of a site that differs from the profiled one by its links or its number of servers."""
    other = {"bandwidth": bandwidth, "parameter_servers": None if parameter_servers == profiled else parameter_servers}
    return {name: value for name, value in other.items() if value is not None}


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


def _untraced(before: Ensemble, sites: Sequence[Site], alone: float | None, kind: Transport) -> Ensemble:
    """Have one worker alone make its steps as it does when nobody traces."""
    if alone is None:
        return before
    ends = np.cumsum([len(site.workers) for site in sites])
    share = [
        untraced_share(logs, np.array(site.workers), kind)
        for site, logs in zip(sites, np.split(before.logs[0, 0], ends[:-1]), strict=True)
    ]
    return replace(before, logs=before.logs + np.concatenate(share) * (np.log(alone) - before.logs[..., :1]))


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


#: Settings that say how to simulate, and nothing of the job.
HOW = ("seed", "progress", "congestion_control", "buffer")


@dataclass(frozen=True, eq=False, repr=False)
class SimulationModel(Model):
    """Training on parameter servers, simulated operation by operation from recorded steps of one worker alone.

    Throughputs measured on the profiled machines, or on other servers or links, calibrate it (`calibrate`).
    ``settings`` are those of `trace_runs` that are no fields of `Scenario`.
    """

    profile: Profile
    measured: tuple[Throughput, ...] = ()
    synchronization: Synchronization = field(default_factory=Synchronization)
    settings: dict[str, Any] = field(default_factory=dict)
    changes = (
        *of_group("simulation"), *of_group("network"), "bandwidth", "parameter_servers", "worker_speeds",
        "accelerator_speed",
    )  # fmt: skip
    kind = "of the simulation"

    @property
    def job(self) -> Job:
        """See `Model`."""
        return self.profile.job

    @property
    def bandwidth(self) -> float | None:
        """See `Model`."""
        return self.scenario.bandwidth or nominal_bandwidth(self.profile)

    @property
    def asked(self) -> dict[str, Any]:
        """Arguments of `trace_runs`."""
        waiting = {} if self.synchronization == Synchronization() else {"synchronization": self.synchronization}
        return self.settings | waiting | self.scenario.asked

    @property
    def servers(self) -> Servers:
        """The servers' stations."""
        return servers_of(self.profile, "links").asked(self.scenario, tensor_bytes_of(self.profile))

    @cached_property
    def closed_network(self) -> TrainingModel:
        """The closed network of the same job, as far as it knows the changes: what a page computes with."""
        model = fit_network(msgspec.structs.replace(self.profile, throughputs=list(self.measured)))
        return model.what_if(**self.scenario.of(WHAT_IFS))

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Those of the closed network."""
        return self.closed_network.parameters

    def check(self) -> None:
        """See `Model`."""
        sizes = sum(step.fetched_bytes + step.pushed_bytes for step in self.profile.steps)
        if not sizes and self.scenario.bandwidth not in (None, nominal_bandwidth(self.profile)):
            raise ModelError("bandwidth needs the bytes per step, which the profile's steps do not have")
        _ = self.servers  # refuses more than there are tensors

    def sampled(self, workers: np.ndarray, *, seed: int = 0) -> tuple[Transport, list[list[SimulatedRun]], Outcome]:
        """The likeliest kind of network, its runs, and the outcome over all kinds, apart from what was measured.

        Errors are those of a measurement of about a minute: the spread of such windows, of the mean of the
        replications, the sampling of the recorded steps and `simulation_error`. Where the network's kind is not known,
        the throughput is that of the likeliest, and the others are alternatives.
        """
        asked = self.asked | {"seed": seed, "workers": workers.tolist()}
        told, replications = {name: asked.pop(name, None) for name in NETWORK}, asked.pop("replications", 4)
        kinds = transports_of(self.profile, bandwidth=asked.get("bandwidth"), **told)
        runs = [
            trace_runs(
                self.profile,
                replications=replications if kind is kinds[0] else min(replications, max(2, replications // 2)),
                **kind.settings,
                **asked,
            )
            for kind in kinds
        ]
        first, *others = (_outcome(self.profile, own, asked, kind.name) for own, kind in zip(runs, kinds, strict=True))
        if asked.get("links") is None and (best := best_rates(self.profile)):
            others += _unfilled(self.profile, best, kinds[0].settings | asked)
        return kinds[0], runs[0], replace(first, alternatives=others)

    def outcome(self, workers: np.ndarray, *, seed: int = 0) -> Outcome:
        """Bottleneck, saturation and bounds follow from what stations are busy with per simulated step."""
        profiled, servers = self.profile.cluster.parameter_servers, self.servers
        measured = on_profiled_links(self.measured, self.profile)
        kind, runs, found = self.sampled(workers, seed=seed)
        X, last = found.throughput, runs[-1][0].settings
        waiting = Synchronization.read(self.asked.get("synchronization"))
        free = not (waiting.row.gathers or waiting.row.bounded)
        means = [_mean(own) for own in runs]
        places = [f"{place}[{k}]" for k in range(servers.count) for place in ("transmit", "receive", "update")]
        D = np.array([[mean[place] for place in places] for mean in means]) / X[:, None]  # utilization law
        phases = np.array([[mean["fetch"], mean["push"], 0.0] for mean in means]) * X[:, None]
        name, notes = kind.name, [self.doubts, step_note(self.profile), kind.note]
        untraced = untraced_throughput(measured, profiled)
        if untraced is not None:
            longer = throughput(trace_runs(self.profile, workers=1, seed=seed, **self._as_profiled)[0]) / untraced
            if kind.name == "loopback":  # no links, that carry as much while nobody traces
                D = D * longer
        if goes_further(measured, profiled):
            calibration = calibrate(self.profile, measured, workers=knots(workers), **self.asked | {"seed": seed})
            found = replace(found, discrepancy=calibration.discrepancy)
            name, notes = calibration.likeliest.name, [self.doubts, calibration.note]
        elif untraced is not None:
            found = found.scaled(longer ** -untraced_share(np.log(X), workers, kind))
        speeds = self.scenario.worker_speeds
        relative = np.array((speeds or (1.0,))[: workers[-1]]) / (speeds or (1.0,))[0]

        def breakdown(x: np.ndarray) -> Breakdown:
            residence_time = np.tile(phases / x[:, None] / servers.count, servers.count)
            busiest = float(D[-1].max())
            if self.scenario.worker_bandwidth is None:
                lower, upper = busy_bounds(workers, x, D, float(x[0]), relative, free)
            else:  # the first worker's link tells nothing of the others'
                lower, upper = np.full(len(x), np.nan), np.maximum(x, 1 / D.max(axis=1))
            return Breakdown(
                stations=servers.stations,
                utilization=np.minimum(x[:, None] * D, 1.0),
                residence_time=residence_time,
                think_time=np.maximum(workers / x - residence_time.sum(axis=1), 0.0),
                bound_lower=lower,
                bound_upper=upper,
                saturation_workers=1.0 / (float(x[0]) * busiest) if busiest else np.inf,
                bottleneck=servers.stations[int(D[-1].argmax())],
            )

        other = self.scenario.bandwidth not in (None, nominal_bandwidth(self.profile))
        other = other or self.scenario.accelerator_speed not in (None, 1.0)
        own = [p for p in measured if p.parameter_servers == servers.count and p.bandwidth is None and not other]
        alike = not other and servers == servers_of(self.profile, "links")
        how = filter(None, (last["policy"], waiting.name, name))
        return replace(
            found,
            breakdown=breakdown,
            method=f"trace-driven simulation ({', '.join(how)})",
            note="; ".join(filter(None, notes)),
            parameter_servers=servers.count,
            profiled_workers=max([self.profile.cluster.workers if alike else 0, *(p.workers for p in own)]),
            measured=tuple((p.workers, p.steps_per_second) for p in own),
            synchronous=waiting.synchronous,
            asynchronous=waiting == Synchronization(),
            steps_per_round=waiting.steps_per_round(workers),
        )

    @property
    def doubts(self) -> str:
        """Which measured throughputs contradict the profile; empty for none."""
        measured = on_profiled_links(self.measured, self.profile)
        if not measured:
            return ""
        steps = fit_steps(self.profile, form="links", seed=0)
        return contradicted(measured, steps, held_up=best_rates(self.profile) is not None)

    @property
    def _as_profiled(self) -> dict[str, Any]:
        """Arguments of `trace_runs` for the profiled machines."""
        return {name: value for name, value in self.asked.items() if name not in (*WHAT_IFS, "worker_speeds")}

    def obstacle(self) -> str:
        """Why a page cannot recompute the model's curve; empty when the closed network can."""
        unknown = [name for name in self.asked if name not in (*WHAT_IFS, *HOW)]
        if unknown:
            return f"the closed network does not know: {', '.join(name.replace('_', ' ') for name in unknown)}"
        return self.closed_network.obstacle()

    def recipe(self, *, workers: int, confidence: float) -> dict[str, Any]:
        """What a page needs: the closed network's."""
        return self.closed_network.recipe(workers=workers, confidence=confidence)

    def caption(self) -> str:
        """Which job, on how many servers."""
        return f"{self.job.name or 'job'} with {self.servers.count} parameter server(s), simulated"


#: What-ifs that the closed network knows too.
WHAT_IFS = ("bandwidth", "parameter_servers", "accelerator_speed")


def trace_curve(
    profile: Profile,
    *,
    workers: int | Iterable[int] = range(1, 33),
    confidence: float = 0.9,
    measured: Sequence[Throughput] = (),
    seed: int = 0,
    **settings: Any,
) -> ThroughputCurve:
    """Predict throughput by simulating the recorded operations; settings are those of `trace_runs`."""
    return _model(profile, measured, settings).throughput(workers, confidence=confidence, seed=seed)


def trace_throughput(
    profile: Profile,
    *,
    workers: int | Iterable[int] = range(1, 33),
    confidence: float = 0.9,
    seed: int = 0,
    **settings: Any,
) -> np.ndarray:
    """Throughput, lower and upper, shape (n, 3), apart from what was measured; settings are those of `trace_runs`."""
    require_share(confidence, "confidence", open_ended=True)
    _, _, outcome = _model(profile, (), settings).sampled(require_workers(workers), seed=seed)
    return outcome.interval(confidence)[0].T


def _model(profile: Profile, measured: Sequence[Throughput], settings: dict[str, Any]) -> SimulationModel:
    asked = {name: settings.pop(name) for name in SimulationModel.changes if settings.get(name) is not None}
    model = SimulationModel(profile, tuple(measured), settings=settings)
    return model.what_if(**asked)


def _outcome(profile: Profile, runs: Sequence[Sequence[SimulatedRun]], asked: dict[str, Any], method: str) -> Outcome:
    """Throughput of runs, and how far a measurement may be from it."""
    X, errors = np.array([throughput(replications) for replications in runs]), []
    for x, replications in zip(X, runs, strict=True):
        own = np.array([run.throughput for run in replications])
        mean = own.std(ddof=1) / x / len(own) ** 0.5 if len(own) > 1 else 0.0
        steps = sampling_error(profile) * sampled_share(profile, replications)
        errors.append(mean**2 + window_spread(replications) ** 2 + steps**2)
    error = np.sqrt(np.array(errors) + simulation_error(profile, runs, asked) ** 2)
    workers = np.array([replications[0].workers for replications in runs])
    return Outcome(workers=workers, throughput=X, error=error, method=method)


def _unfilled(profile: Profile, best: tuple[float, float], asked: dict[str, Any]) -> list[Outcome]:
    """
    What else it may be where one worker does not fill its link: nobody knows what held it up, and for how many.

    At worst all workers together get what one does; at best each gets as much as in the best step, until the nominal
    bandwidth, if it is known, is used up.
    """
    ways = (("fetched_bytes", "fetch"), ("pushed_bytes", "push"))
    usual = [float(profile.values(size).sum() / profile.values(seconds).sum()) for size, seconds in ways]
    slowest, fastest = LinkRates(*map(LinkRate, usual)), LinkRates(*map(LinkRate, best))
    shared = _outcome(profile, trace_runs(profile, replications=2, links=slowest, **asked), asked, "shared")
    alone = trace_runs(profile, replications=2, links=fastest, **asked | {"workers": 1})
    each = _outcome(profile, alone, asked, "apart")
    apart = replace(shared, throughput=shared.workers * each.throughput, error=each.error)
    if (bandwidth := asked.get("bandwidth") or nominal_bandwidth(profile)) is not None:
        size = max(profile.values("fetched_bytes").mean(), profile.values("pushed_bytes").mean())
        most = profile.cluster.parameter_servers * bandwidth / size
        ceiling = np.full((len(shared.workers), 1), np.log(most))
        apart = replace(apart, throughput=np.minimum(apart.throughput, most), ceiling=ceiling)
    return [shared, apart]


def _mean(runs: Sequence[SimulatedRun]) -> dict[str, float]:
    """Utilizations and phases, averaged over replications."""
    every = [run.utilization | run.breakdown for run in runs]
    return {name: float(np.mean([one[name] for one in every])) for name in every[0]}


def busy_bounds(
    workers: np.ndarray, X: np.ndarray, D: np.ndarray, single: float, speeds: np.ndarray, free: bool
) -> tuple[np.ndarray, np.ndarray]:
    """
    Asymptotic bounds on throughput (Muntz and Wong, 1974) from what simulated steps used.

    At best nobody waits, or the busiest station always works; at worst every worker waits for all others at every
    station. Where sampling takes the simulated throughput itself across a bound, the bound is moved there.
    ``D`` (n, K) are seconds that a step keeps each station busy, ``single`` the first worker's rate, ``speeds`` (1,)
    or (N,). Unless workers are free to go on, there is no lower bound: it is NaN.
    """
    lower, upper = np.full(len(workers), np.nan), np.empty(len(workers))
    for i, n in enumerate(workers.tolist()):
        each = np.broadcast_to(speeds, n) if len(speeds) == 1 else speeds[:n]
        upper[i] = min(single * np.maximum(each, 1.0).sum(), 1.0 / max(D[i].max(), 1e-300))
        if free:
            lower[i] = (1.0 / (np.maximum(1 / each, 1.0) / single + (n - 1) * D[i].sum())).sum()
    return np.minimum(lower, X), np.maximum(upper, X)
