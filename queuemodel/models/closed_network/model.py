"""Training on parameter servers as a closed network: fitted demands, what-ifs, throughput and its errors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

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
THROUGHPUT_ERROR = _NUMBERS["calibration"]["throughput_error"]  # Relative standard error of a minute's measurement
TWO_WORKERS_ERROR = _NUMBERS["model"]["two_workers_error"]  # Of two asynchronous workers, whose phases drift slowly


@dataclass(frozen=True, eq=False, repr=False)
class ClosedNetworkModel(Model):
    """SGD on parameter servers as a closed network with one customer per worker.

    Made by `fit`; changed by `what_if`; solved by `throughput`. Another bandwidth replaces the part of the recorded
    transfer time that the profiled link explains, 95 % of the nominal one carrying tensors, and keeps the rest
    (serialization). Tensors are dealt to other numbers of servers round robin, as TensorFlow does; where their sizes
    are not known, the largest share of P servers is taken as P**-0.8. Computation is proportional to the batch size.
    """

    fitted: Fitted
    compute_scv: float | None = None  # Synchronous training: squared coefficient of variation of a worker's own time
    steps_per_round: int = 0  # Gradients that the server applies together, whoever sends them; 0: each on its own
    synchronized: tuple[Measurement, ...] = ()  # Of several workers who train in rounds
    solver: Solver | None = None  # Solves `network`; draws and bounds remain those of the rule, in proportion
    changes = (
        "parameter_servers", "shards", "bandwidth", "other_traffic", "accelerator_speed", "worker_speeds", "batch_size",
    )  # fmt: skip
    kind = "of the closed network"

    @cached_property
    def demands(self) -> Demands:
        """Service demands (s), each of shape ()."""
        return self.apply_scenario(self.fitted.demands)

    @cached_property
    def draws(self) -> Demands:
        """Resampled service demands (s), each of shape (B,)."""
        return self.apply_scenario(self.fitted.draws)

    @property
    def _parameters(self) -> tuple[Parameter, ...]:
        origin: Origin = "derived" if self._other_machines else "measured"
        rows = step_parameters(self.demands, self.draws, self.fitted.recorded, origin=origin)
        return (*rows, *self.fitted.others)

    @property
    def remarks(self) -> tuple[Note, ...]:
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
    def service_demand(self) -> np.ndarray:
        """Service demand D (s) at each station, shape (K,)."""
        return self.servers.service_demand(self.demands)

    @property
    def measured(self) -> tuple[tuple[int, float], ...]:
        """Workers and steps per second, as measured on these machines."""
        here, points = (self.servers.count, None), () if self._other_machines else self._measurements
        return tuple((p.workers, p.steps_per_second) for p in points if (p.parameter_servers, p.bandwidth) == here)

    @property
    def _measurements(self) -> tuple[Measurement, ...]:
        """Throughputs of workers who wait for each other as these do."""
        return self.synchronized if self._in_rounds else self.fitted.measured

    @property
    def conditions(self) -> list[Measurement]:
        """See `Model`; one worker on the profiled machines has set the length of a step."""
        used = 1, self.fitted.servers.count, None
        return [p for p in self._measurements if (p.workers, p.parameter_servers, p.bandwidth) != used]

    def machines_of(self, point: Measurement) -> Scenario:
        return replace(Model.machines_of(self, point), parameter_servers=point.parameter_servers)

    def is_here(self, point: Measurement) -> bool:
        same_machines = not {*self._other_machines} - {"bandwidth"} and self._bandwidth == point.bandwidth
        return same_machines and point.parameter_servers == self.servers.count

    @property
    def profiled_workers(self) -> int:
        """The most workers measured on these machines; 0 for none."""
        as_profiled = not self._other_machines and self.servers == self.fitted.servers
        traced = self.fitted.recorded.workers if as_profiled else 0
        if self._in_rounds and traced > 1:  # profiled workers are asynchronous; only one alone is a round, too
            traced = 0
        return max([traced, *(workers for workers, _ in self.measured)])

    @property
    def _other_machines(self) -> list[str]:
        """Fields of the scenario, but the number of servers, that differ from the profile."""
        scenario, fitted = self.scenario, self.fitted
        different = {
            "bandwidth": self._bandwidth is not None,
            "batch_size": scenario.batch_size not in (None, fitted.job.batch_size),
            "accelerator_speed": scenario.accelerator_speed not in (None, 1.0),
            "worker_speeds": any(speed != 1.0 for speed in scenario.worker_speeds or ()),
            "shards": scenario.shards not in (None, fitted.servers.shards),
        }
        return [name for name, differs in different.items() if differs]

    @property
    def _unequal(self) -> bool:
        """Whether workers differ in speed."""
        return len(set(self.scenario.worker_speeds or ())) > 1

    @property
    def _first_speed(self) -> float:
        """Relative speed of the first worker, and so of all equal ones."""
        return (*(self.scenario.worker_speeds or ()), 1.0)[0]

    @property
    def _compute_factor(self) -> float:
        """Computation time over the profiled one: in proportion to batch size, inverse to accelerator speed."""
        return self.job.batch_size / self.fitted.job.batch_size / (self.scenario.accelerator_speed or 1.0)

    @property
    def _bandwidth(self) -> float | None:
        """Bytes per second of each host's link, None where it is the profile's."""
        return self.scenario.link_bandwidth(self.fitted.recorded.bandwidth)  # what other traffic leaves

    def apply_scenario(self, demands: Demands, *, concurrent_fetches: int = 1) -> Demands:
        """Demands of the fit, or draws of them, on the machines of the scenario."""
        recorded = self.fitted.recorded
        if self._bandwidth is not None:
            demands = with_bandwidth(demands, self._bandwidth, recorded, concurrent_fetches=concurrent_fetches)
        worker = demands.worker[..., None] if self._unequal else demands.worker
        speed = np.array(self.scenario.worker_speeds) if self._unequal else self._first_speed
        # Z' = Z + C (factor / speed - 1): computation C changes, the part of it that transfers hide (C - Z) does not
        return demands.with_worker(worker + recorded.compute * (self._compute_factor / speed - 1.0))

    @property
    def _in_rounds(self) -> bool:
        """Whether the server applies several steps at once."""
        return self.compute_scv is not None or self.steps_per_round > 0

    @property
    def rule(self) -> Rule:
        """The rule of contention of these workers and servers."""
        fitted, unequal, servers = self.fitted, self._unequal, self.servers.count
        if unequal and self.compute_scv is not None:
            raise ModelError(
                "worker_speeds: no rule covers unequal workers with strategy 'sync-ps'; simulate recorded operations"
            )
        rule = rule_for(
            servers=servers, unequal=unequal, desynchronization=fitted.desynchronization,
            bbr_sharing=fitted.bbr_sharing, slow_connections=fitted.slow_connections,
        )  # fmt: skip
        return rule if self.compute_scv is None else Barrier(rule, servers, self.compute_scv)

    def network(self) -> Network:
        """The closed network; its population is the number of workers, of a class for each speed where they differ.

        In it workers coincide by chance, and servers are visited one after the other: `throughput` is its throughput
        where the method is exact.
        """
        demands = zip(self.servers.stations, self.service_demand.tolist(), strict=True)
        queues = [Station(name, service_time=D) for name, D in demands]
        if not self._unequal:
            worker = Station("worker", service_time=float(self.demands.worker), servers=math.inf)
            return Network((*queues, worker), name=self.job.name)
        speeds = self.scenario.worker_speeds or ()
        think_time = dict(zip(speeds, self.demands.worker.tolist(), strict=True)).items()
        classes = [JobClass(f"speed {speed}", population=speeds.count(speed), think_time=Z) for speed, Z in think_time]
        return Network(queues, classes=classes, name=self.job.name)

    def _pace(self, populations: np.ndarray) -> Pace:
        """Throughput, residence times and worker times of the fitted demands, at increasing populations."""
        pace = self._by_solver(populations) if self.solver else self._solved(self.fitted.demands, populations)
        X = np.minimum(pace.X, self._compute_bound(populations))
        # Z = n / X - R: Little's law over the whole cycle
        return Pace(X, pace.R, np.where(X < pace.X, populations / X - pace.R.sum(axis=-1), pace.Z))

    def _by_solver(self, populations: np.ndarray) -> Pace:
        """The same of the closed network, by a solver in place of the rule."""
        if self._in_rounds or self._unequal:
            raise ModelError("predict: a solver as method is for equal asynchronous workers; use method 'mva'")
        solutions = [solve(self.network(), population=int(n), solver=self.solver) for n in populations]
        X = np.array([solution.throughput for solution in solutions])
        R = np.array([solution.residence_time[: len(self.service_demand)] for solution in solutions])
        return Pace(X, R, populations / X - R.sum(axis=-1))  # Little's law

    def _solved(self, demands: Demands, populations: np.ndarray) -> Pace:
        """The same of demands of the fit or draws of them, by the rule."""
        return Pace(*map(np.concatenate, zip(*self._by_block(self.rule.solve, demands, populations), strict=True)))

    def _by_block(self, law: Callable[..., Any], demands: Demands, populations: np.ndarray) -> list[Any]:
        """A method of the rule, as ``law(D, Z, populations)``, for each block of populations."""
        blocks = self._demands(demands, populations)
        return [law(self.servers.service_demand(here), here.worker, block) for block, here in blocks]

    def _demands(self, demands: Demands, populations: np.ndarray) -> Iterator[tuple[np.ndarray, Demands]]:
        """Blocks of populations (n,) with equal demands, and these demands on the machines of the scenario.

        At a barrier all transfer together; how much computation transfers over other links hide depends on how many
        share a link.
        """
        if self.compute_scv is None or self._bandwidth is None:
            yield populations, self.apply_scenario(demands)
            return
        by_population = [self.apply_scenario(demands, concurrent_fetches=int(n)) for n in populations]
        Z = [here.worker for here in by_population]
        starts = [i for i in range(len(Z)) if not i or not np.array_equal(Z[i], Z[i - 1])]
        for first, last in itertools.pairwise([*starts, len(by_population)]):
            yield populations[first:last], by_population[first]

    def _compute_bound(self, populations: np.ndarray) -> np.ndarray:
        """Upper bound of throughput (n,) at a barrier, where workers only compute; inf without a barrier.

        Worker times Z are shorter than computation by what transfers hide, and short transfers hide less.
        """
        rule = self.rule
        if not isinstance(rule, Barrier):
            return np.full(len(populations), math.inf)
        compute = self.fitted.recorded.compute * self._compute_factor / self._first_speed
        return rule.bounds(0 * self.service_demand, np.array(compute), populations)[1]  # D = 0: n / E[slowest of n]

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
            faster = x / X  # conditioned over fitted throughput: all times shrink, all bounds rise in proportion
            lower, upper, knee = self._asymptotes(workers)
            return Breakdown(
                stations=self.servers.stations,
                utilization=np.minimum(x[:, None] * D, 1.0),  # utilization law
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
        models, weights = [self], [1.0]
        if self.fitted.bbr_sharing_if_bbr:
            fitted = replace(self.fitted, bbr_sharing=self.fitted.bbr_sharing_if_bbr, bbr_sharing_if_bbr=None)
            models, weights = [self, replace(self, fitted=fitted)], [1 - BBR_SHARE, BBR_SHARE]
        total_error = self._total_error(workers, self._asymptotes(workers)[2])
        error, noise = own_error(total_error, self._noise(workers))
        ceiling = {}
        if self.compute_scv is not None:
            upper = np.log(self._limits(self.fitted.draws, workers)[1])  # as uncertain as one worker's step
            ceiling = {"ceiling": upper.mean(axis=1), "ceiling_error": np.hypot(upper.std(axis=1), total_error[0])}
        return Prediction.drawn(
            workers,
            *(np.log(model.drawn(workers)) for model in models),
            weights=weights,
            error=error,
            noise=noise,
            correlation=correlation_per_doubling("mva"),
            **ceiling,
        )

    def _asymptotes(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Bounds on throughput at numbers of workers (n,) (Muntz and Wong, 1974), and the saturation population N*."""
        D, Z = self.service_demand, self.demands.worker
        single = 1.0 / (D.sum() + (Z[: counts[-1]] if self._unequal else np.full(counts[-1], Z)))  # X_i(1)
        saturation = float(1.0 / (D.max() * single.mean())) if D.any() else math.inf  # N* = (Z + D) / D_max
        if self.compute_scv is not None:
            lower, upper = np.minimum(self._limits(self.fitted.demands, counts), self._compute_bound(counts))
            return lower, upper, saturation
        # sum_i 1 / (Z_i + n D): each waits for all others at each station
        lower = np.array([(1.0 / (1.0 / single[:n] + (n - 1) * D.sum())).sum() for n in counts])
        # min(sum_i X_i(1), 1 / D_max)
        upper = np.minimum(np.cumsum(single)[counts - 1], 1.0 / D.max() if D.any() else math.inf)
        return lower, upper, saturation

    def _limits(self, demands: Demands, populations: np.ndarray) -> np.ndarray:
        """Bounds on throughput at a barrier, (2, n, ...), for demands of the fit or draws of them."""
        return np.concatenate(self._by_block(cast(Barrier, self.rule).bounds, demands, populations), axis=1)

    def check(self) -> None:
        if not any(self.fitted.recorded.transferred) and "bandwidth" in self._other_machines:
            raise ModelError("bandwidth needs the bytes per step, which the profile's steps do not have")
        _ = self.rule  # refuses what it does not cover

    def drawn(self, populations: np.ndarray) -> np.ndarray:
        """Throughput (n, B) of the draws."""
        X = np.minimum(self._solved(self.fitted.draws, populations).X, self._compute_bound(populations)[:, None])
        if self.solver:  # draws are those of the rule, in proportion
            X *= (self._by_solver(populations).X / self._solved(self.fitted.demands, populations).X)[:, None]
        return X

    def _total_error(self, populations: np.ndarray, saturation: float) -> np.ndarray:
        """Relative standard error (n,) of predictions of a measurement, the model's own and the noise together."""
        if not self.profiled_workers or self.solver:  # other machines, other methods: the regions were not judged there
            return np.full(len(populations), worst_error("mva"))
        traced = self.fitted.recorded.workers
        profiled = 0.0 if traced in dict(self.measured) else profiled_error("mva")  # the draws have it
        return np.where(populations == traced, profiled, model_error("mva", populations / saturation))

    @property
    def bandwidth(self) -> float | None:
        return self.scenario.bandwidth or self.fitted.recorded.bandwidth

    def caption(self) -> str:
        """Job, number of servers, and unidentified parameters."""
        servers = f"{counted(self.servers.count, 'parameter server')}, form {self.servers.form!r}"
        return "; ".join(filter(None, [f"{self.job.name or 'job'} with {servers}", self.note]))


def with_bandwidth(demands: Demands, bandwidth: float, recorded: Recorded, *, concurrent_fetches: int = 1) -> Demands:
    """Demands when each host's link has another nominal bandwidth, in bytes per second.

    Transfers change as in `transfer_time`. A second of transfer hides as much computation as before, so that a faster
    link hides less. Where ``concurrent_fetches`` share it, each transfer is as many times longer, and hides at most as
    much as before.
    """
    fetch, push = (
        transfer_time(seconds, size, nominal=recorded.bandwidth, bandwidth=bandwidth)
        for seconds, size in zip((demands.fetch, demands.push), recorded.transferred, strict=True)
    )
    profiled, changed = demands.fetch + demands.push, fetch + push
    ratio = np.where(profiled > 0, changed / np.where(profiled > 0, profiled, 1.0), 1.0)
    ratio = np.maximum(ratio, np.minimum(concurrent_fetches * ratio, 1.0))  # max(r, min(n r, 1))
    hidden = np.maximum(recorded.compute - demands.worker, 0.0)  # C - Z
    # Z' = Z + (C - Z) (1 - r)
    return replace(demands, fetch=fetch, push=push).with_worker(demands.worker + hidden * (1.0 - ratio))


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
    X = np.atleast_1d(solution.class_throughput) if network.classes else np.array([solution.throughput])
    with np.errstate(invalid="ignore", divide="ignore"):  # NaN for a class without workers
        return X.sum() * workers / X - 1  # X_i = X_c / N_c of a worker of class c
