"""Training on parameter servers, simulated from the recorded operations of one worker."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias, cast

import msgspec
import numpy as np

from ...base.checks import require_share
from ...base.errors import ModelError
from ...base.estimates import Parameter
from ...base.files import constants
from ...base.results import Note, counted
from ...curves.curve import ThroughputCurve, require_workers
from ...curves.prediction import Prediction
from ...profile.bandwidth import best_rates, nominal_bandwidth, transfers, transports_of
from ...profile.job import Job
from ...profile.measurements import Measurement
from ...profile.profile import Profile
from ...profile.scenario import Scenario, of_group
from ...profile.synchronization import Synchronization
from ...profile.throughputs import on_profiled_links
from ...simulator.links import LinkRate, LinkRates
from ...simulator.result import SimulatedRun
from ...simulator.simulate import trace_runs
from ...transport.sharing import NETWORK, Transport
from ..closed_network.calibration import contradicted, fit_network, untraced_throughput
from ..closed_network.demands import Servers
from ..closed_network.fit import fit_steps, servers_of, step_remarks, tensor_bytes_of
from ..closed_network.model import ClosedNetworkModel
from ..errors import correlation_per_doubling, model_error, own_error, profiled_error, waiting_error
from ..model import OTHER_DATA, Breakdown, Data, Model, Outcome, strategy_of

METHOD, NEEDS = "trace", "a profile with recorded operations; import one from traces"
#: Measured and assumed numbers, with their sources: constants.toml.
_NUMBERS = constants(__package__)["model"]
#: Where one worker does not fill its link: probability that its cause is another than the simulated one (assumed).
UNFILLED_SHARE = _NUMBERS["unfilled_share"]
MIN_NOISE, WINDOW, WINDOW_STEPS = _NUMBERS["least_noise"], _NUMBERS["window"], _NUMBERS["window_steps"]
Runs: TypeAlias = Sequence[Sequence[SimulatedRun]]  # Replications of each number of workers
#: What-ifs that the closed network covers too.
WHAT_IFS = ("bandwidth", "other_traffic", "parameter_servers", "accelerator_speed")


@dataclass(frozen=True, eq=False, repr=False)
class SimulationModel(Model):
    """Training on parameter servers, simulated operation by operation from recorded steps of one worker alone.

    ``measured`` are throughputs of the same synchronization, ``settings`` those of `trace_runs` that are no fields of
    `Scenario`.
    """

    profile: Profile
    measured: tuple[Measurement, ...] = ()
    synchronization: Synchronization = field(default_factory=Synchronization)
    settings: dict[str, Any] = field(default_factory=dict)
    changes = (
        *of_group("simulation"), *of_group("network"), "bandwidth", "other_traffic", "parameter_servers",
        "worker_speeds", "accelerator_speed",
    )  # fmt: skip
    kind = "of the simulation"
    quick = False

    @property
    def job(self) -> Job:
        return self.profile.job

    @property
    def bandwidth(self) -> float | None:
        return self.scenario.bandwidth or nominal_bandwidth(self.profile)

    @property
    def run_settings(self) -> dict[str, Any]:
        """Arguments of `trace_runs`."""
        waiting = {} if self.synchronization == Synchronization() else {"synchronization": self.synchronization}
        return self.settings | waiting | on_links(self.scenario, self.profile).specified

    @property
    def servers(self) -> Servers:
        """The servers' stations."""
        return servers_of(self.profile, "links").changed(self.scenario, tensor_bytes_of(self.profile))

    @cached_property
    def closed_network(self) -> ClosedNetworkModel:
        """The closed network of the same job, as far as it knows the changes, for the parameters."""
        one_worker = [point for point in self.measured if point.workers == 1]
        model = fit_network(msgspec.structs.replace(self.profile, throughputs=one_worker))
        return model.what_if(**self.scenario.of(WHAT_IFS))

    @property
    def _parameters(self) -> tuple[Parameter, ...]:
        return self.closed_network._parameters

    def check(self) -> None:
        if not transfers(self.profile)[0].any() and on_links(self.scenario, self.profile).bandwidth:
            raise ModelError("bandwidth needs the bytes per step, which the profile's steps do not have")
        _ = self.servers  # refuses more than there are tensors

    def sampled(self, workers: np.ndarray, *, seed: int = 0) -> tuple[list[Transport], Runs, Prediction]:
        """Possible kinds of network, runs of the likeliest, and the prediction over all kinds.

        Errors are those of a measurement of about a minute: the spread of windows of this length, the error of the mean
        of replications, the sampling of the recorded steps and `simulation_error`.
        """
        settings = self.run_settings | {"seed": seed, "workers": workers.tolist()}
        network = {name: settings.pop(name, None) for name in NETWORK}
        kinds = [*transports_of(self.profile, bandwidth=settings.get("bandwidth"), **network)]
        most = settings.pop("replications", 4)
        counts = [most, *[min(most, max(2, most // 2))] * (len(kinds) - 1)]  # fewer of the less likely
        runs = [
            trace_runs(self.profile, replications=count, **kind.settings, **settings)
            for kind, count in zip(kinds, counts, strict=True)
        ]
        simulated = [_simulated(self.profile, replications, settings) for replications in runs]
        weights = [kind.share for kind in kinds]
        if settings.get("links") is None and (best := best_rates(self.profile)):
            simulated += _bottleneck_alternatives(self.profile, best, kinds[0].settings | settings)
            weights = [(1.0 - UNFILLED_SHARE) * share for share in weights] + [UNFILLED_SHARE / 2] * 2
        X, total_error = (np.array(values).T for values in zip(*simulated, strict=True))
        share = np.array([sampled_share(self.profile, replications) for replications in runs[0]])
        traced = profiled_error("trace")  # of which a minute's noise is a part
        tracing = np.sqrt(max(traced**2 - MIN_NOISE**2, (traced / 2) ** 2)) * share
        # total^2 = error^2 + tracing^2 + noise^2; one worker shares its links with nobody, and has no error there
        error, _ = own_error(total_error, _window_noise(runs[0])[:, None])
        error = np.sqrt(np.maximum(error**2 - tracing[:, None] ** 2, (error / 2) ** 2))
        error = np.where((workers == 1)[:, None], 0.0, error)
        noise = np.sqrt(np.maximum(total_error[:, 0] ** 2 - error[:, 0] ** 2 - tracing**2, 0.0))
        bound = _link_bound(self.profile, settings.get("bandwidth"), self.servers.count)
        prediction = Prediction(
            workers=workers,
            mean=np.log(X),
            weights=np.array(weights) / sum(weights),
            kind=np.arange(len(weights)),
            error=error,
            noise=noise,
            spread=np.column_stack([sampling_error(self.profile) * share, tracing]),  # common to all numbers of workers
            correlation=correlation_per_doubling("trace"),
            ceiling=np.full(len(workers), np.log(bound)),
        )
        return kinds, runs[0], prediction

    @property
    def conditions(self) -> list[Measurement]:
        return on_profiled_links(self.measured, self.profile)

    def machines_of(self, point: Measurement) -> Scenario:
        profiled = self.profile.cluster.parameter_servers
        servers = None if point.parameter_servers == profiled else point.parameter_servers
        return replace(Model.machines_of(self, point), parameter_servers=servers)

    def is_here(self, point: Measurement) -> bool:
        here = self.profile.cluster
        own = {"bandwidth": here.bandwidth, "parameter_servers": here.parameter_servers, "accelerator_speed": 1.0}
        return self.machines_of(point) == self.scenario.relative_to(own)

    def outcome(self, workers: np.ndarray, *, seed: int = 0) -> Outcome:
        """The simulation of the likeliest network, without the cost of tracing that one worker's throughput shows."""
        servers, waiting, changes = self.servers, self.synchronization, on_links(self.scenario, self.profile)
        kinds, runs, prediction = self.sampled(workers, seed=seed)
        overhead, untraced = 1.0, untraced_throughput(self.conditions, self.profile.cluster.parameter_servers)
        if untraced is not None:
            changed = (*WHAT_IFS, "worker_speeds")
            as_profiled = {name: value for name, value in self.run_settings.items() if name not in changed}
            single = trace_runs(self.profile, workers=1, seed=seed, **as_profiled)[0]
            overhead, X = throughput(single) / untraced, prediction.mean[:, :1]  # X_traced(1) / X(1), log X(n)
            # tracing slows machines, not links, X(n) / (n X(1)) of the step; on loopback, without links, everything
            share = 1.0 if kinds[0].name == "loopback" else np.minimum(1.0, np.exp(X - X[0]) / workers[:, None])
            prediction = replace(prediction, mean=prediction.mean - np.log(overhead) * share)
        same_machines = changes.bandwidth is None and changes.accelerator_speed in (None, 1.0)
        here = servers.count, None
        measured = [p for p in self.conditions if same_machines and (p.parameter_servers, p.bandwidth) == here]
        traced = self.profile.cluster.workers if same_machines and servers == servers_of(self.profile, "links") else 0
        how = filter(None, (runs[-1][0].settings["transfer_order"], waiting.name, kinds[0].name))
        return Outcome(
            workers=workers,
            throughput=np.exp(prediction.mean[:, 0]),
            prediction=prediction,
            kinds=tuple(kind.name for kind in kinds) if len(kinds) == prediction.mean.shape[1] > 1 else (),
            noise=_window_noise(runs),
            breakdown=self._breakdown(workers, runs, overhead if kinds[0].name == "loopback" else 1.0),
            method=f"trace-driven simulation ({', '.join(how)})",
            remarks=(Note(self.doubts, "doubt"), *step_remarks(self.profile), kinds[0].note),
            parameter_servers=servers.count,
            profiled_workers=max([traced, *(p.workers for p in measured)]),
            measured=tuple((p.workers, p.steps_per_second) for p in measured),
            synchronous=waiting.synchronous,
            steps_per_round=waiting.steps_per_round(workers),
        )

    def _breakdown(self, workers: np.ndarray, runs: Runs, overhead: float) -> Callable[[np.ndarray], Breakdown]:
        """Breakdown at a throughput, by simulated demands; ``overhead`` is that of tracing where it slows stations.

        It slows those of loopback: links carry as much without tracing.
        """
        stations, row = self.servers.stations, self.synchronization.row
        X, means = np.array(list(map(throughput, runs))), list(map(_mean, runs))
        places = [f"{place}[{k}]" for k in range(self.servers.count) for place in ("transmit", "receive", "update")]
        D = np.array([[mean[place] for place in places] for mean in means]) / X[:, None] * overhead  # utilization law
        phases = np.array([[mean["fetch"], mean["push"], 0.0] for mean in means]) * X[:, None]
        speeds = np.array(self.scenario.worker_speeds or (1.0,))
        relative, busiest = speeds[: workers[-1]] / speeds[0], float(D[-1].max())

        def breakdown(x: np.ndarray) -> Breakdown:
            # a phase's time at all servers, in proportion to 1 / X, shared equally
            residence_time = np.tile(phases / x[:, None] / self.servers.count, self.servers.count)
            if self.scenario.worker_bandwidth is None:
                free = not (row.gathers or row.bounded)
                lower, upper = busy_bounds(workers, x, D, float(x[0]), relative, free)
            else:  # the first worker's link does not determine the others'
                lower, upper = np.full(len(x), np.nan), np.maximum(x, 1 / D.max(axis=1))
            return Breakdown(
                stations=stations,
                utilization=np.minimum(x[:, None] * D, 1.0),  # utilization law
                residence_time=residence_time,
                think_time=np.maximum(workers / x - residence_time.sum(axis=1), 0.0),  # Little's law
                bound_lower=lower,
                bound_upper=upper,
                saturation_workers=1.0 / (float(x[0]) * busiest) if busiest else np.inf,  # N* = 1 / (X(1) D_max)
                bottleneck=stations[int(D[-1].argmax())],
            )

        return breakdown

    @property
    def doubts(self) -> str:
        """Note where measured throughputs contradict the profile; empty for none."""
        if not self.conditions or self.synchronization != Synchronization():
            return ""
        steps = fit_steps(self.profile, form="links", seed=0)
        return contradicted(self.conditions, steps, link_not_filled=best_rates(self.profile) is not None)

    def caption(self) -> str:
        """Which job, on how many servers."""
        return f"{self.job.name or 'job'} with {counted(self.servers.count, 'parameter server')}, simulated"


def refuses(data: Data, question: Scenario) -> str:
    """See `ModelKind`."""
    if not isinstance(data, Profile) or not data.steps or strategy_of(data, question) == "all-reduce":
        return OTHER_DATA
    if not any(step.operations for step in data.steps):
        return f"needs {NEEDS}"
    only_solved = {*ClosedNetworkModel.changes} - {*SimulationModel.changes}
    if unknown := sorted(only_solved.intersection(question.on(data)[1].specified)):
        return f"cannot change {', '.join(unknown)}"
    if question.form not in (None, "links"):
        return f"has no form {question.form!r}"
    return "" if data.cluster.workers == 1 else "requires a profile of one worker, without contention"


def of(data: Data, question: Scenario, measured: Sequence[Measurement], *, seed: int) -> SimulationModel:
    """See `ModelKind`."""
    data, waiting = cast(Profile, data), question.synchronization
    profile, question = question.on(data)
    # a profile's throughputs are asynchronous; one worker waits for nobody
    recorded = [point for point in data.throughputs if point.workers == 1 or waiting == Synchronization()]
    model = SimulationModel(profile, (*recorded, *measured), waiting)
    return model.what_if(**question.of(model.changes))


def on_links(scenario: Scenario, profile: Profile) -> Scenario:
    """The scenario with the bandwidth that other traffic leaves, None where it is the profile's."""
    return replace(scenario, bandwidth=scenario.link_bandwidth(nominal_bandwidth(profile)), other_traffic=None)


def trace_curve(
    profile: Profile, *, workers: int | Iterable[int] = range(1, 33), confidence: float = 0.9,
    measured: Sequence[Measurement] = (), seed: int = 0, **settings: Any,
) -> ThroughputCurve:  # fmt: skip
    """Predict throughput by simulating the recorded operations; settings are those of `trace_runs`."""
    return _model(profile, measured, settings).throughput(workers, confidence=confidence, seed=seed)


def trace_throughput(
    profile: Profile, *, workers: int | Iterable[int] = range(1, 33), confidence: float = 0.9, seed: int = 0,
    **settings: Any,
) -> np.ndarray:  # fmt: skip
    """Throughput, lower and upper, shape (n, 3), without measurements; settings are those of `trace_runs`."""
    require_share(confidence, "confidence", open_ended=True)
    _, _, prediction = _model(profile, (), settings).sampled(require_workers(workers), seed=seed)
    _, lower, upper = prediction.interval(confidence)
    return np.array([np.exp(prediction.mean[:, 0]), lower, upper]).T


def _model(profile: Profile, measured: Sequence[Measurement], settings: dict[str, Any]) -> SimulationModel:
    changes = {name: settings.pop(name) for name in SimulationModel.changes if settings.get(name) is not None}
    waiting = Synchronization.read(settings.pop("synchronization", None))
    return SimulationModel(profile, tuple(measured), waiting, settings).what_if(**changes)


def _simulated(profile: Profile, runs: Runs, settings: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Throughput (n,) of runs, and the relative error of one measurement, but for the sampling of recorded steps."""
    X, variances = np.array([throughput(replications) for replications in runs]), []
    for x, replications in zip(X, runs, strict=True):
        rates = np.array([run.throughput for run in replications])
        mean_error = rates.std(ddof=1) / x / len(rates) ** 0.5 if len(rates) > 1 else 0.0
        variances.append(mean_error**2 + window_spread(replications) ** 2)
    return X, np.sqrt(np.array(variances) + simulation_error(profile, runs, settings) ** 2)


def _window_noise(runs: Runs) -> np.ndarray:
    """Relative standard error (n,) of a measurement of a minute."""
    return np.asarray(np.hypot(MIN_NOISE, [window_spread(replications) for replications in runs]))


def _bottleneck_alternatives(
    profile: Profile, best: tuple[float, float], settings: dict[str, Any]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Throughput and errors, as of `_simulated`, for other causes where one worker does not fill its link.

    At worst all workers share the observed rate; at best each has the rate of the best step, until the nominal
    bandwidth, if it is known, is used up.
    """
    mean_rates = [float(size.sum() / seconds.sum()) for size, seconds in zip(*transfers(profile), strict=True)]
    slowest, fastest = LinkRates(*map(LinkRate, mean_rates)), LinkRates(*map(LinkRate, best))
    runs = trace_runs(profile, replications=2, links=slowest, **settings)
    single = trace_runs(profile, replications=2, links=fastest, **settings | {"workers": 1})
    (rate,), (error,) = _simulated(profile, single, settings)
    bound = _link_bound(profile, settings.get("bandwidth"), profile.cluster.parameter_servers)
    X = np.minimum(rate * np.array([replications[0].workers for replications in runs]), bound)  # n X(1)
    return [_simulated(profile, runs, settings), (X, np.full(len(X), error))]


def _link_bound(profile: Profile, bandwidth: float | None, servers: int) -> float:
    """Steps per second that the servers' links carry at most: B over the bytes of a step; inf where unknown."""
    bandwidth = bandwidth or nominal_bandwidth(profile)
    size = transfers(profile)[0].mean(axis=1).max()
    return math.inf if bandwidth is None or not size > 0 else float(servers * bandwidth / size)


def _mean(runs: Sequence[SimulatedRun]) -> dict[str, float]:
    """Utilizations and phases, averaged over replications."""
    rows = [run.utilization | run.breakdown for run in runs]
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def busy_bounds(
    workers: np.ndarray, X: np.ndarray, D: np.ndarray, single: float, speeds: np.ndarray, free: bool
) -> tuple[np.ndarray, np.ndarray]:
    """
    Asymptotic bounds on throughput (Muntz and Wong, 1974) from simulated demands.

    At best none waits, or the busiest station always works; at worst every worker waits for all others at every
    station. Where sampling takes the simulated throughput itself across a bound, the bound is moved there.
    ``D`` (n, K) are demands per step, ``single`` the first worker's rate, ``speeds`` (1,) or (N,). Unless workers are
    ``free`` of waiting for each other, there is no lower bound: it is NaN.
    """
    lower, upper = np.full(len(workers), np.nan), np.empty(len(workers))
    for i, n in enumerate(workers.tolist()):
        s = np.broadcast_to(speeds, n) if len(speeds) == 1 else speeds[:n]
        # min(sum_i X_i(1), 1 / D_max), X_i(1) between X(1) and s_i X(1)
        upper[i] = min(single * np.maximum(s, 1.0).sum(), 1.0 / max(D[i].max(), 1e-300))
        if free:  # sum_i 1 / (1 / X_i(1) + (n - 1) D)
            lower[i] = (1.0 / (np.maximum(1 / s, 1.0) / single + (n - 1) * D[i].sum())).sum()
    return np.minimum(lower, X), np.maximum(upper, X)


def simulation_error(profile: Profile, runs: Runs, settings: Mapping[str, Any]) -> np.ndarray:
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
