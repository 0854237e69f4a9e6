"""The event-driven simulation: progress is computed only for the jobs that an event changes, when it changes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..checks import LARGEST
from ..errors import ModelError
from . import state as s
from .cluster import Cluster, Placement
from .jobs import Job, Workload
from .phases import Phase, StagedCurve
from .policies.base import Policy
from .schedule import Schedule
from .speed_tables import SpeedTables, speed_at, speed_between
from .state import Failures
from .view import ActiveJobs


class Progress:
    """The phases of all jobs under a policy: several of a staged curve, or where it chooses batch sizes; else one.

    Attributes
    ----------
    steps : ndarray, shape (jobs,)
        Declared work, in the steps of the job's curves.
    least, most : ndarray, shape (jobs,)
        Nodes that a job can use in this cluster.
    row, true_row : ndarray, shape (jobs,)
        Rows in ``tables`` of the curve that a policy sees, and of that which runs, in the present phase.
    """

    def __init__(self, jobs: Sequence[Job], policy: Policy, cluster: Cluster) -> None:
        self.jobs, self.nodes, self.divisible = jobs, cluster.nodes, policy.divisible
        self.seen = "curve" in policy.knows
        self.sizes = [job.batch_sizes if "batch_sizes" in policy.knows else None for job in jobs]
        self.least = np.array([job.least_nodes for job in jobs])
        self.most = np.array([self._most(j) for j in range(len(jobs))])
        self.steps = np.array([self._steps(j) for j in range(len(jobs))], dtype=float)
        self.tables = SpeedTables(cluster.nodes)
        self.row = np.zeros(len(jobs), dtype=int)
        self.true_row = np.zeros(len(jobs), dtype=int)
        self._made: dict[tuple[int, int, int], tuple[Phase, ...]] = {}
        self._at = np.zeros(len(jobs), dtype=int)

    def _most(self, j: int) -> int:
        sizes = self.sizes[j]
        return min(self.jobs[j].most_nodes or self.nodes, self.nodes) if sizes is None else sizes.limit(self.nodes)

    def _steps(self, j: int) -> float:
        sizes = self.sizes[j]
        return self.jobs[j].steps if sizes is None else sizes.steps(sizes.first)

    def changes(self) -> bool:
        """Whether any job's speed may change as it trains."""
        return any(len(self.phases(j)) > 1 for j in range(len(self.jobs)))

    def phases(self, j: int) -> tuple[Phase, ...]:
        """All of one job."""
        job, sizes = self.jobs[j], self.sizes[j]
        staged = isinstance(job.curve, StagedCurve) and not self.divisible
        if sizes is None and not staged:
            return (Phase(job.steps, job.curve, job.predicted or job.curve),)
        least, most, what = int(self.least[j]), int(self.most[j]), f"job {job.name!r}"
        key = (j, 0, 0) if sizes is None else (id(sizes), least, most)
        if key not in self._made:
            if sizes is not None:
                self._made[key] = sizes.phases(least, most, what)
            elif isinstance(job.curve, StagedCurve):
                self._made[key] = job.curve.phases(job.steps, least, most, what, job.predicted)
        return self._made[key]

    def enter(self, j: int) -> tuple[float, float]:
        """A job is at the start of its phase: steps at its end, and its speed per node on the least nodes."""
        phase, least, most = self.phases(j)[self._at[j]], int(self.least[j]), int(self.most[j])
        what = f"job {self.jobs[j].name!r}"
        if self.divisible:
            alone = speed_at(phase.curve, 1.0, what)
        else:
            self.true_row[j] = row = self.tables.acquire(phase.curve, least, most, what)
            alone = float(self.tables.speeds[row, least]) / least
        if self.seen:
            self.row[j] = self.tables.acquire(phase.seen, least, most, what)
        return phase.until, alone

    def leave(self, j: int) -> None:
        """A job is at the end of its phase."""
        if not self.divisible:
            self.tables.release(int(self.true_row[j]))
        if self.seen:
            self.tables.release(int(self.row[j]))
        self._at[j] += 1

    def fastest(self, j: int, steps: float) -> float:
        """Largest speed of a job that is in its first phase; the mean over its first ``steps``."""
        if self.divisible:
            return speed_at(self.jobs[j].curve, float(self.nodes), f"job {self.jobs[j].name!r}")
        if len(self.phases(j)) == 1:
            return float(self.tables.speeds[self.true_row[j]].max())
        return self.mean_speed(j, steps, lambda curve: max(speed for _, speed in curve.points))  # type: ignore[attr-defined]

    def mean_speed(self, j: int, steps: float, speed: Callable[[Callable[[float], float]], float]) -> float:
        """Steps per second of a job's first ``steps``, when each phase has the ``speed`` of its curve."""
        phases = self.phases(j)
        if len(phases) == 1:
            return speed(phases[0].curve)
        starts = [0.0, *(phase.until for phase in phases[:-1])]
        lengths = np.diff(np.minimum([*starts, np.inf], steps))
        return steps / sum(
            length / speed(phase.curve) for length, phase in zip(lengths.tolist(), phases, strict=True) if length
        )


_EPSILON = 1e-9
#: Seconds that a job may take alone: shorter ones would drown in the rounding of the clock.
SHORTEST = 1e-9
#: Decisions on a grid that may leave all nodes idle, although jobs wait and nobody else will come.
_PATIENCE = 10_000


class Engine:
    """One run; `run` fills ``state``. Memory grows with the jobs, not with the events."""

    def __init__(self, workload: Workload, policy: Policy, cluster: Cluster, *, seed: int, history: bool) -> None:
        self.jobs = jobs = workload.jobs
        self.policy, self.cluster = policy, cluster
        n = len(jobs)
        self.arrival_time = np.array([job.arrival_time for job in jobs], dtype=float)
        self.work = Progress(jobs, policy, cluster)
        self.least, self.most = self.work.least, self.work.most
        self._require_room()
        self.share = workload.shares(seed)
        self.state = s.fresh(self.work.steps * self.share)
        self.nodes = self.state[s.NODES]
        self.requested = np.minimum([job.requested for job in jobs], self.most)
        self.packing = np.ones(n)  # speed of a job where it stands, relative to its curve
        self.active = np.zeros(n, dtype=int)
        self.count = 0
        self.running = np.zeros(0, dtype=int)
        self.arrived = 0
        self.now = 0.0
        self.costs = float(cluster.start_seconds), float(cluster.restart_seconds)
        self.events = 0
        self.decisions = 0
        self.review = math.inf
        self.decided_at = -1.0
        self.idle = 0  # decisions in a row that left all nodes idle, with nobody to come
        self.crowding = 0.0
        self.placement = Placement(cluster) if cluster.placed else None
        self.history: list[tuple[float, int, float]] | None = [] if history else None
        self.failures = Failures(cluster, jobs, seed) if cluster.mean_time_to_failure < math.inf else None

    def _require_room(self) -> None:
        for job in self.jobs:
            job.require_room(self.cluster.nodes, where=f"job {job.name!r}")
        if self.cluster.mean_time_to_failure < math.inf and self.work.changes():
            raise ModelError(
                f"policy {self.policy.name}: nodes cannot fail yet where jobs' speeds change as they train; leave out "
                "the cluster's mean_time_to_failure or the jobs' batch_sizes and staged curves"
            )

    def run(self, progress: Callable[[int], Any] | None = None) -> None:
        """Simulate until every job has ended."""
        arrival, finish, total = self.arrival_time, self.state[s.FINISH], len(self.jobs)
        interval = self.cluster.decision_interval
        ended = 0
        while ended < total:
            coming = arrival[self.arrived] if self.arrived < total else math.inf
            running = self.running
            first = finish[running].min() if running.size else math.inf
            due = self.review if interval is None else self._next_slot(interval)
            time = min(coming, first, due)
            failing = math.inf if self.failures is None else self.failures.next_time(self.now, self._nodes_in_use())
            if self.failures is not None and failing < time:
                self._advance(failing)
                self.failures.strike(self.state, self.running, failing)
                changed = True
            elif time == math.inf:
                self._starved()
            else:
                self._advance(time)
                changed = time >= due
                if first <= time:
                    ending = self._go_on(running[finish[running] <= time])
                    if ending.size:
                        ended += self._end(ending)
                        changed = True
                if coming <= time:
                    self._arrive()
                    changed = True
            self.events += 1
            if not self.count:
                self.review = math.inf
            elif changed and (interval is None or self.now >= due):
                self._decide()
            if progress is not None and not self.events % 4096:
                progress(ended)

    def _next_slot(self, interval: float) -> float:
        """The next decision; while the cluster is empty, the first one after the next arrival."""
        if not self.count:
            return math.inf if self.arrived == len(self.jobs) else self._slot(self.arrival_time[self.arrived], interval)
        return self._slot(self.now, interval, strictly=self.decided_at == self.now)

    @staticmethod
    def _slot(time: float, interval: float, strictly: bool = False) -> float:
        slot = math.ceil(time / interval - _EPSILON) * interval
        return slot + interval if strictly and slot <= time * (1 + _EPSILON) else max(slot, time)

    def _nodes_in_use(self) -> float:
        return float(self.nodes[self.running].sum())

    def _advance(self, time: float) -> None:
        if self.failures is not None:
            self.failures.pass_time(time - self.now, self._nodes_in_use())
        self.crowding += self.count * (time - self.now)
        self.now = float(time)

    def _arrive(self) -> None:
        last = self.arrived
        while last < len(self.jobs) and self.arrival_time[last] <= self.now:
            self._enter(last)
            last += 1
        self.arrived = last

    def _enter(self, j: int) -> None:
        least, what = int(self.least[j]), f"job {self.jobs[j].name!r}"
        until, alone = self.work.enter(j)
        declared, true = self.work.steps[j], self.state[s.TRUE, j]
        fastest = self.work.fastest(j, true)
        shortest, longest = declared / fastest, declared / (alone * least)
        if not (shortest >= SHORTEST and longest <= LARGEST):
            raise ModelError(
                f"{what}: takes {shortest:.3g} to {longest:.3g} s alone, must be {SHORTEST:g} to {LARGEST:g} s; "
                "check the units of its steps and speeds"
            )
        s.enter(self.state, j, self.now, self.crowding, alone, fastest, min(until, true))
        self.active[self.count] = j
        self.count += 1

    def _go_on(self, jobs: np.ndarray) -> np.ndarray:
        """Jobs at the end of a phase take up the next one on the nodes that they hold; gives those that have none."""
        over = self.state[s.GOAL, jobs] >= self.state[s.TRUE, jobs]
        for j in jobs[~over].tolist():
            self.work.leave(j)
            until, alone = self.work.enter(j)
            speed = self.work.tables.speeds[self.work.true_row[j], int(self.nodes[j])] * self.packing[j]
            s.go_on(self.state, np.array([j]), self.now, alone, speed, min(until, self.state[s.TRUE, j]))
        return jobs[over]

    def _end(self, ending: np.ndarray) -> int:
        self.running = s.end(self.state, self.running, ending, self.now, self.crowding)
        for j in ending.tolist():
            place = int(np.searchsorted(self.active[: self.count], j))
            self.active[place : self.count - 1] = self.active[place + 1 : self.count]
            self.count -= 1
            self.work.leave(j)
            if self.placement is not None:
                self.placement.leave(j)
            if self.history is not None:
                self.history.append((self.now, j, 0.0))
        return len(ending)

    def _decide(self) -> None:
        self.decisions += 1
        self.decided_at = self.now
        gather = partial(self._column, self.active[: self.count])
        shown = ActiveJobs(gather, self.count, self.work.tables, knows=self.policy.knows, who=self.policy.name)
        granted = self.policy.grants(shown, self.cluster.nodes, self.now)
        where = (granted != shown.nodes).nonzero()[0]
        if where.size:
            jobs, given = self.active[: self.count][where], granted[where].astype(float)
            self._check(granted, given, jobs)
            self._change(jobs, given)
        self.idle = 0 if self.running.size or self.arrived < len(self.jobs) else self.idle + 1
        if self.idle > _PATIENCE:
            self._starved()
        self.review = self.policy.review(shown, granted, self.now)
        if self.review <= self.now:
            self.review = math.nextafter(self.now, math.inf)

    def _column(self, active: np.ndarray, name: str) -> Any:
        """What a policy looks at, of these jobs."""
        state = self.state
        if name == "names":
            return [self.jobs[j].name for j in active]
        if name == "nodes":
            return self.nodes[active]
        if name == "attained_service":
            return state[s.ATTAINED, active] + state[s.NODES, active] * (self.now - state[s.SINCE, active])
        if name == "remaining":
            return s.left(state, self.work.steps, active, self.now)
        if name == "true_remaining":
            return s.left(state, state[s.TRUE], active, self.now)
        return getattr(self.work if name in ("least", "most", "row") else self, name)[active]

    def _check(self, granted: np.ndarray, given: np.ndarray, jobs: np.ndarray) -> None:
        if not (granted.sum() <= self.cluster.nodes * (1 + _EPSILON) and given.min() >= 0):
            raise ModelError(
                f"policy {self.policy.name}: grants must be >= 0 and at most {self.cluster.nodes} nodes together, got "
                f"{float(granted.sum()):g} together, least {float(granted.min()):g}"
            )
        k = -1 if self.policy.divisible else s.misfit(jobs, given, self.least, self.most)
        if k >= 0:
            j = int(jobs[k])
            raise ModelError(
                f"policy {self.policy.name}: job {self.jobs[j].name!r} takes {self.least[j]} to {self.most[j]} whole "
                f"nodes, got {given[k]:g}"
            )

    def _change(self, jobs: np.ndarray, nodes: np.ndarray) -> None:
        if self.policy.divisible:
            speeds = np.array([self._speed_of(j, n) for j, n in zip(jobs.tolist(), nodes.tolist(), strict=True)])
        else:
            speeds = self.work.tables.speeds[self.work.true_row[jobs], nodes.astype(int)]
        if self.placement is not None:
            self.packing[jobs] = packing = self.placement.move(jobs, nodes)
            speeds = speeds * packing
        self.running = s.change(self.state, self.running, jobs, nodes, speeds, self.now, *self.costs)
        if self.history is not None:
            self.history += [(self.now, j, n) for j, n in zip(jobs.tolist(), nodes.tolist(), strict=True)]

    def _speed_of(self, j: int, nodes: float) -> float:
        return speed_at(self.jobs[j].curve, nodes, f"job {self.jobs[j].name!r}") if nodes > 0 else 0.0

    def schedule(self, *, warmup: float, seed: int) -> Schedule:
        """The records of the finished run."""
        state, jobs = self.state, self.jobs
        stay = np.maximum(state[s.END] - self.arrival_time, 1e-300)
        met = np.maximum((state[s.CROWD] - state[s.CROWD_THEN]) / stay, 1.0)
        share = np.clip(self.cluster.nodes / met, self.least, self.most)
        equal = [
            self.work.mean_speed(j, steps, partial(speed_between, nodes=n, most=int(self.most[j])))
            for j, (steps, n) in enumerate(zip(state[s.TRUE].tolist(), share.tolist(), strict=True))
        ]
        return Schedule(
            policy=self.policy,
            cluster=self.cluster,
            names=tuple(job.name for job in jobs),
            kinds=tuple(job.kind for job in jobs),
            arrival=self.arrival_time,
            start=state[s.START],
            end=state[s.END],
            attained_service=state[s.ATTAINED],
            useful_service=state[s.USEFUL],
            best_time=state[s.TRUE] / state[s.FASTEST],
            shared_time=state[s.TRUE] / equal,
            restarts=state[s.RESTARTS].astype(int),
            failures=state[s.FAILURES].astype(int),
            early=self.share < 1,
            warmup=min(math.floor(warmup * len(jobs)), len(jobs) - 1),
            seed=seed,
            history=None if self.history is None else np.array(self.history, dtype=float).reshape(-1, 3),
            events=self.events,
            decisions=self.decisions,
        )

    def _starved(self) -> None:
        raise ModelError(
            f"policy {self.policy.name}: grants no node to any of {self.count} waiting jobs (first: "
            f"{self.jobs[int(self.active[0])].name!r}) and nothing else will happen; a policy must run somebody"
        )
