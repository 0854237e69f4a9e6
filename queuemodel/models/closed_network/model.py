"""The fitted model of a training job: what was found out on the profiled machines, what changed, and what follows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import msgspec
import numpy as np

from ...base.errors import ModelError
from ...base.estimates import Origin, Parameter
from ...base.files import constants
from ...base.results import Note, counted
from ...curves.prediction import Prediction
from ...profile.bandwidth import transfer_time
from ...profile.job import Job
from ...profile.measurements import Measurement
from ...profile.scenario import Scenario
from ...queueing.network import Network
from ...queueing.solve import Solver, solve
from ...queueing.stations import JobClass, Station
from ...transport.sharing import BBR_SHARE
from ..errors import correlation_per_doubling, model_error, own_error, profiled_error, worst_error
from ..model import Breakdown, Model, Outcome
from .demands import Demands, Servers
from .fit import Fitted, Recorded, step_parameters
from .rules import Barrier, Pace, Rule, rule_for

#: The note where the congestion control is unknown.
UNSPECIFIED = Note(
    "TCP congestion control is unknown, so intervals reach down to BBR with few connections: specify it "
    "(--congestion-control) to narrow them",
    "narrow",
)
_NUMBERS = constants(__package__)
#: Relative standard error of one measurement: of a minute's run, and of two asynchronous workers.
THROUGHPUT_ERROR = _NUMBERS["calibration"]["throughput_error"]
TWO_WORKERS_ERROR = _NUMBERS["model"]["two_workers_error"]


@dataclass(frozen=True, eq=False, repr=False)
class ClosedNetworkModel(Model):
    """SGD on parameter servers as a closed network with one customer per worker.

    Made by `fit`; changed by `what_if`; solved by `throughput`. Another bandwidth replaces the part of the recorded
    transfer time that the profiled link explains, 95 % of the nominal one carrying tensors, and keeps the rest
    (serialization). Tensors are dealt to other numbers of servers round robin, as TensorFlow does; where their sizes
    are not known, the largest share of P servers is taken as P**-0.8. Computation is proportional to the batch size.

    Attributes
    ----------
    fitted : Fitted
    scenario : Scenario
        What differs from the machines of the profile.
    compute_scv : float, optional
        Synchronous training: the squared coefficient of variation of a worker's own time.
    steps_per_round : int
        Results of whatever workers that the server applies at once, 0: each on its own.
    synchronized : tuple of Measurement
        Measured of several workers who train in rounds.
    solver : Solver, optional
        Solves `network` in place of the rule; draws and bounds remain those of the rule, in proportion.
    """

    fitted: Fitted
    compute_scv: float | None = None
    steps_per_round: int = 0
    synchronized: tuple[Measurement, ...] = ()
    solver: Solver | None = None
    changes = (
        "parameter_servers", "shards", "bandwidth", "other_traffic", "accelerator_speed", "worker_speeds", "batch_size",
    )  # fmt: skip
    kind = "of the closed network"

    @cached_property
    def demands(self) -> Demands:
        """Seconds per step, each of shape ()."""
        return self.apply_scenario(self.fitted.demands)

    @cached_property
    def draws(self) -> Demands:
        """The same, resampled, each of shape (B,)."""
        return self.apply_scenario(self.fitted.draws)

    @property
    def _parameters(self) -> tuple[Parameter, ...]:
        """What was fitted, with its uncertainty."""
        origin: Origin = "derived" if self._other_machines else "measured"
        rows = step_parameters(self.demands, self.draws, self.fitted.recorded, origin=origin)
        return (*rows, *self.fitted.others)

    @property
    def remarks(self) -> tuple[Note, ...]:
        """What this fit does not determine, and what contradicts it."""
        return Note(self.fitted.contradiction, "doubt"), *self.fitted.remarks

    @property
    def job(self) -> Job:
        """The job, with the batch size that it has here."""
        job = self.fitted.job
        return msgspec.structs.replace(job, batch_size=self.scenario.batch_size or job.batch_size)

    @cached_property
    def servers(self) -> Servers:
        """The servers' stations."""
        return self.fitted.servers.changed(self.scenario, self.fitted.recorded.tensor_bytes)

    @property
    def parameter_servers(self) -> int:
        """How many servers share the parameters."""
        return self.servers.count

    @property
    def shards(self) -> tuple[float, ...]:
        """Share of the parameters on each server."""
        return self.servers.shards

    @property
    def service_demand(self) -> np.ndarray:
        """Seconds per step at each station, shape (K,)."""
        return self.servers.service_demand(self.demands)

    @property
    def measured(self) -> tuple[tuple[int, float], ...]:
        """Workers and steps per second, as measured on such machines."""
        if self._other_machines:
            return ()
        points = self.synchronized if self._in_rounds else self.fitted.measured
        return tuple(
            (p.workers, p.steps_per_second)
            for p in points
            if p.parameter_servers == self.servers.count and p.bandwidth is None
        )

    @property
    def conditions(self) -> list[Measurement]:
        """See `Model`; one worker on the profiled machines has set the length of a step."""
        servers = self.fitted.servers.count
        points = self.synchronized if self._in_rounds else self.fitted.measured
        return [p for p in points if (p.workers, p.parameter_servers, p.bandwidth) != (1, servers, None)]

    def machines_of(self, point: Measurement) -> Scenario:
        """See `Model`."""
        return replace(Model.machines_of(self, point), parameter_servers=point.parameter_servers)

    def is_here(self, point: Measurement) -> bool:
        """See `Model`."""
        alike = not {*self._other_machines} - {"bandwidth"} and self._bandwidth == point.bandwidth
        return alike and point.parameter_servers == self.servers.count

    @property
    def profiled_workers(self) -> int:
        """The most workers measured on such machines; 0 for none."""
        as_profiled = not self._other_machines and self.servers == self.fitted.servers
        traced = self.fitted.recorded.workers if as_profiled else 0
        if self._in_rounds and traced > 1:  # who did not wait for each other
            traced = 0
        return max([traced, *(workers for workers, _ in self.measured)])

    @property
    def _other_machines(self) -> list[str]:
        """What differs from the profile but the number of servers; empty for nothing."""
        scenario, own = self.scenario, self.fitted
        different = {
            "bandwidth": self._bandwidth is not None,
            "batch_size": scenario.batch_size not in (None, own.job.batch_size),
            "accelerator_speed": scenario.accelerator_speed not in (None, 1.0),
            "worker_speeds": any(speed != 1.0 for speed in scenario.worker_speeds or ()),
            "shards": scenario.shards not in (None, own.servers.shards),
        }
        return [name for name, differs in different.items() if differs]

    @property
    def _unequal(self) -> bool:
        """Whether workers differ."""
        return len(set(self.scenario.worker_speeds or ())) > 1

    @property
    def _compute_factor(self) -> float:
        """How much longer computation takes than with the profile's batch size and accelerator."""
        return self.job.batch_size / self.fitted.job.batch_size / (self.scenario.accelerator_speed or 1.0)

    @property
    def _bandwidth(self) -> float | None:
        """Bytes per second of each host's link, where they are not the profile's."""
        recorded = self.fitted.recorded.bandwidth
        link = self.scenario.link_bandwidth(recorded)
        return None if link == recorded else link

    def apply_scenario(self, demands: Demands, *, concurrent_fetches: int = 1) -> Demands:
        """What demands of the fit, or draws of them, become on these machines, on which so many fetch at once."""
        recorded, speeds = self.fitted.recorded, self.scenario.worker_speeds
        if self._bandwidth is not None:
            demands = with_bandwidth(demands, self._bandwidth, recorded, concurrent_fetches=concurrent_fetches)
        worker = demands.worker[..., None] if self._unequal else demands.worker
        speed = np.array(speeds) if self._unequal else (*(speeds or ()), 1.0)[0]
        return demands.with_worker(worker + recorded.compute * (self._compute_factor / speed - 1.0))

    @property
    def _in_rounds(self) -> bool:
        """Whether the server applies several steps at once."""
        return self.compute_scv is not None or self.steps_per_round > 0

    @property
    def rule(self) -> Rule:
        """How these workers and servers wait for each other."""
        unequal, servers = self._unequal, self.servers.count
        if unequal and self.compute_scv is not None:
            raise ModelError(
                "worker_speeds: no rule covers unequal workers with strategy 'sync-ps'; simulate recorded operations"
            )
        rule = rule_for(
            servers=servers, unequal=unequal, desynchronization=self.fitted.desynchronization,
            bbr_sharing=self.fitted.bbr_sharing, slow_connections=self.fitted.slow_connections,
        )  # fmt: skip
        return rule if self.compute_scv is None else Barrier(rule, servers, self.compute_scv)

    def network(self) -> Network:
        """The closed network; its population is the number of workers, of a class for each speed where they differ.

        In it workers coincide by chance, and servers are visited one after the other: `throughput` is its throughput
        where the method is exact.
        """
        named = zip(self.servers.stations, self.service_demand.tolist(), strict=True)
        queues = [Station(name, service_time=demand) for name, demand in named]
        if not self._unequal:
            worker = Station("worker", service_time=float(self.demands.worker), servers=math.inf)
            return Network((*queues, worker), name=self.job.name)
        speeds = self.scenario.worker_speeds or ()
        think_time = dict(zip(speeds, self.demands.worker.tolist(), strict=True))
        classes = [
            JobClass(f"speed {speed}", population=speeds.count(speed), think_time=Z) for speed, Z in think_time.items()
        ]
        return Network(queues, classes=classes, name=self.job.name)

    def _pace(self, populations: np.ndarray) -> Pace:
        """Throughput, residence times and workers' own times at increasing populations, of the demands as they are."""
        pace = (
            self._by_solver(populations) if self.solver else self._solved(self.rule, self.fitted.demands, populations)
        )
        X = np.minimum(pace.X, self._compute_bound(populations))
        return Pace(X, pace.R, np.where(X < pace.X, populations / X - pace.R.sum(axis=-1), pace.Z))

    def _by_solver(self, populations: np.ndarray) -> Pace:
        """Paces of the closed network that a method of one's choice finds."""
        if self._in_rounds or self._unequal:
            raise ModelError("predict: a solver as method is for equal asynchronous workers; use method 'mva'")
        found = [solve(self.network(), population=int(n), solver=self.solver) for n in populations]
        X = np.array([one.throughput for one in found])
        R = np.array([one.residence_time[: len(self.service_demand)] for one in found])
        return Pace(X, R, populations / X - R.sum(axis=-1))

    def _solved(self, rule: Rule, demands: Demands, populations: np.ndarray) -> Pace:
        """Paces of demands of the fit, or of draws of them."""
        found = [
            rule.solve(self.servers.service_demand(changed), changed.worker, block)
            for block, changed in self._demands(demands, populations)
        ]
        return Pace(*map(np.concatenate, zip(*found, strict=True)))

    def _demands(self, demands: Demands, populations: np.ndarray) -> Iterator[tuple[np.ndarray, Demands]]:
        """Populations (n,) in blocks, with the demands of the fit as their workers have them.

        At a barrier all transfer at once; what transfers over other links hide depends on how many share one.
        """
        if self.compute_scv is None or self._bandwidth is None:
            yield populations, self.apply_scenario(demands)
            return
        each = [self.apply_scenario(demands, concurrent_fetches=int(n)) for n in populations]
        new = [i for i, one in enumerate(each) if not i or not np.array_equal(one.worker, each[i - 1].worker)]
        for first, last in itertools.pairwise([*new, len(each)]):
            yield populations[first:last], each[first]

    def _compute_bound(self, populations: np.ndarray) -> np.ndarray:
        """Most steps per second (n,) at a barrier: as many as if workers only computed.

        The network's own time of a worker is shorter by what transfers hide, which few transfers do not.
        """
        rule = self.rule
        if not isinstance(rule, Barrier):
            return np.full(len(populations), math.inf)
        compute = self.fitted.recorded.compute * self._compute_factor
        compute /= (*(self.scenario.worker_speeds or ()), 1.0)[0]
        return rule.bounds(0 * self.service_demand, np.array(compute), populations)[1]

    def outcome(self, workers: np.ndarray, *, seed: int = 0) -> Outcome:
        """By the rule of such a cluster (`queuemodel.models.closed_network.rules`).

        Mean-value analysis, exact for one server whose stations share their time, also with unequal workers;
        approximate where computation overlaps transfers, so that workers settle in phases, for several servers, and for
        links shared under BBR (`ParallelServers`). Where TCP's congestion control is unknown, BBR is an alternative.
        """
        speeds = self.scenario.worker_speeds
        if speeds and workers[-1] > len(speeds):
            raise ModelError(
                f"throughput: workers must be at most {len(speeds)}, the number of worker_speeds, got {workers[-1]}"
            )
        X, R, Z = self._pace(workers)
        D = self.service_demand

        def breakdown(x: np.ndarray) -> Breakdown:
            faster = x / X
            lower, upper, knee = self._asymptotes(workers)
            return Breakdown(
                stations=self.servers.stations,
                utilization=np.minimum(x[:, None] * D, 1.0),
                residence_time=R / faster[:, None],
                think_time=Z / faster,
                bound_lower=lower * faster,
                bound_upper=upper * faster,
                saturation_workers=knee,
                bottleneck=self.servers.stations[int(D.argmax())] if D.any() else "",
            )

        return Outcome(
            workers=workers,
            throughput=X,
            prediction=self.prediction(workers),
            kinds=("loss-based", "bbr") if self.fitted.bbr_sharing_if_bbr else (),
            noise=self._noise(workers),
            breakdown=breakdown,
            method=f"closed network by {self.solver!r}" if self.solver else self.rule.method,
            remarks=(*self.remarks, *((UNSPECIFIED,) if self.fitted.bbr_sharing_if_bbr else ())),
            parameter_servers=self.servers.count,
            profiled_workers=self.profiled_workers,
            measured=self.measured,
            synchronous=self.compute_scv is not None,
            steps_per_round=np.full(len(workers) if self.steps_per_round else 0, self.steps_per_round),
        )

    def _noise(self, workers: np.ndarray) -> np.ndarray:
        return np.where((workers == 2) & (not self._in_rounds), TWO_WORKERS_ERROR, THROUGHPUT_ERROR)

    def prediction(self, workers: np.ndarray) -> Prediction:
        """The fit's draws of log throughput, and the model's error; BBR may be the congestion control."""
        models = [self]
        if self.fitted.bbr_sharing_if_bbr:
            fitted = replace(self.fitted, bbr_sharing=self.fitted.bbr_sharing_if_bbr, bbr_sharing_if_bbr=None)
            models.append(replace(self, fitted=fitted))
        error = self._own_error(workers, self._asymptotes(workers)[2])
        own, rest = own_error(error, self._noise(workers))
        limits = {}
        if self.compute_scv is not None:
            most = np.log(self._limits(self.fitted.draws, workers)[1])
            # as far as one worker's step is known
            limits = {"ceiling": most.mean(axis=1), "ceiling_error": np.hypot(most.std(axis=1), error[0])}
        return Prediction.drawn(
            workers,
            *(np.log(model.drawn(workers)) for model in models),
            weights=(1 - BBR_SHARE, BBR_SHARE)[: len(models)] if len(models) > 1 else (1.0,),
            error=own,
            noise=rest,
            correlation=correlation_per_doubling("mva"),
            **limits,
        )

    def _asymptotes(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Bounds on throughput at numbers of workers (n,), and how many workers saturate the busiest station."""
        D, Z = self.service_demand, self.demands.worker
        alone = 1.0 / (D.sum() + (Z[: counts[-1]] if self._unequal else np.full(counts[-1], Z)))
        saturation = float(1.0 / (D.max() * alone.mean())) if D.any() else math.inf
        if self.compute_scv is not None:
            lower, upper = np.minimum(self._limits(self.fitted.demands, counts), self._compute_bound(counts))
            return lower, upper, saturation
        lower = np.array([(1.0 / (1.0 / alone[:n] + (n - 1) * D.sum())).sum() for n in counts])
        upper = np.minimum(np.cumsum(alone)[counts - 1], 1.0 / D.max() if D.any() else math.inf)
        return lower, upper, saturation

    def _limits(self, demands: Demands, populations: np.ndarray) -> np.ndarray:
        """Bounds on throughput at a barrier, (2, n, ...), for demands of the fit or draws of them."""
        rule = cast(Barrier, self.rule)
        each = [
            rule.bounds(self.servers.service_demand(changed), changed.worker, block)
            for block, changed in self._demands(demands, populations)
        ]
        return np.concatenate(each, axis=1)

    def check(self) -> None:
        """See `Model`."""
        if not any(self.fitted.recorded.transferred) and "bandwidth" in self._other_machines:
            raise ModelError("bandwidth needs the bytes per step, which the profile's steps do not have")
        _ = self.rule  # refuses what it does not cover

    def drawn(self, populations: np.ndarray) -> np.ndarray:
        """Throughput (n, B) of the draws."""
        X = np.minimum(
            self._solved(self.rule, self.fitted.draws, populations).X, self._compute_bound(populations)[:, None]
        )
        if self.solver:
            X *= (self._by_solver(populations).X / self._solved(self.rule, self.fitted.demands, populations).X)[:, None]
        return X

    def _own_error(self, populations: np.ndarray, saturation: float) -> np.ndarray:
        """Relative standard error of the model itself at the populations (n,)."""
        if not self.profiled_workers or self.solver:  # other machines, other methods: the regions were not judged there
            return np.full(len(populations), worst_error("mva"))
        traced = self.fitted.recorded.workers
        profiled = 0.0 if traced in dict(self.measured) else profiled_error("mva")  # the draws have it
        return np.where(populations == traced, profiled, model_error("mva", populations / saturation))

    @property
    def bandwidth(self) -> float | None:
        """See `Model`."""
        return self.scenario.bandwidth or self.fitted.recorded.bandwidth

    def caption(self) -> str:
        """Which job, on how many servers, and what the fit does not determine."""
        servers = counted(self.servers.count, "parameter server")
        what = f"{self.job.name or 'job'} with {servers}, form {self.servers.form!r}"
        return "; ".join(filter(None, [what, self.note]))


def with_bandwidth(demands: Demands, bandwidth: float, recorded: Recorded, *, concurrent_fetches: int = 1) -> Demands:
    """Demands when each host's link has another nominal bandwidth, in bytes per second.

    Transfers change as in `transfer_time`. Each second of transfer hides as much computation as before: a faster link
    hides less, unless several workers who transfer ``concurrent_fetches`` share it: then at most as much as before.
    """
    fetch, push = (
        transfer_time(seconds, size, nominal=recorded.bandwidth, bandwidth=bandwidth)
        for seconds, size in zip((demands.fetch, demands.push), recorded.transferred, strict=True)
    )
    before, after = demands.fetch + demands.push, fetch + push
    longer = np.where(before > 0, after / np.where(before > 0, before, 1.0), 1.0)
    longer = np.maximum(longer, np.minimum(concurrent_fetches * longer, 1.0))
    hidden = np.maximum(recorded.compute - demands.worker, 0.0)
    return replace(demands, fetch=fetch, push=push).with_worker(demands.worker + hidden * (1.0 - longer))


def staleness(network: Network, *, population: int | None = None) -> np.ndarray:
    """Mean staleness of an asynchronous worker of each class: X_total / X_i - 1.

    Others make X_total - X_i steps per second, and a step of worker i takes 1 / X_i. Exact where the solution is:
    for the closed networks of `ClosedNetworkModel.network`, workers of any speeds included.

    Parameters
    ----------
    network : Network
        Each customer a worker; without classes, or with one for each kind of worker.
    population : int, optional
        Number of workers, for a network without classes.

    Returns
    -------
    ndarray, shape (C,)
        Steps of others, for a worker of each class; one class where there are none.

    Examples
    --------
    >>> import math
    >>> from queuemodel.queueing import Station
    >>> network = Network([Station("ps", service_time=0.1), Station("worker", service_time=1.0, servers=math.inf)])
    >>> staleness(network, population=4).tolist()
    [3.0]
    """
    solution = solve(network, population=population)
    workers = np.array([c.population for c in network.classes] or [solution.population])
    every = np.atleast_1d(solution.class_throughput) if network.classes else np.array([solution.throughput])
    with np.errstate(invalid="ignore", divide="ignore"):  # NaN for a class without workers
        return every.sum() * workers / every - 1
