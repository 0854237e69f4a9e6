"""The event-driven simulation: progress is computed only for the jobs that an event changes, when it changes them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..base.checks import LARGEST_NUMBER
from ..base.errors import ModelError
from . import state as s
from .curves import BatchSizes, SpeedTables, StagedCurve, speed_at
from .jobs import ClusterJob, Workload
from .nodes import Nodes, Placement
from .policy import ActiveJobs, Policy
from .result import Schedule


class Phases:
    """All phases of all jobs, checked before the run: limits, steps and first phase per job; the rest per phase."""

    def __init__(self, jobs: Sequence[ClusterJob], policy: Policy, nodes: int) -> None:
        self.tables, self.policy = SpeedTables(nodes), policy
        self._of_sizes: dict[tuple[BatchSizes, int], list[tuple[float, int, int]]] = {}
        limits, phases = zip(*(self._rows(job, nodes) for job in jobs), strict=True)
        self.least, self.most = np.array(limits).T
        until, true, seen = zip(*itertools.chain.from_iterable(phases), strict=True)
        self.until, self.true_row, self.row = np.array(until, float), np.array(true), np.array(seen)
        counts = np.array([len(own) for own in phases])
        self.job = np.repeat(np.arange(len(jobs)), counts)
        self.first: np.ndarray = np.cumsum(counts) - counts
        self.steps = np.maximum.reduceat(self.until, self.first)
        least = self.least[self.job]
        self.least_speed = self.tables.speeds[self.true_row, least] / least

    def _rows(self, job: ClusterJob, nodes: int) -> tuple[tuple[int, int], list[tuple[float, int, int]]]:
        """Limits of a job; per phase its end (steps), the rows of its true speeds and of those that the policy sees."""
        what, tables, divisible = f"job {job.name!r}", self.tables, self.policy.divisible
        if (sizes := job.batch_sizes) is not None and "batch_sizes" in self.policy.knows:
            limits = job.least_nodes, sizes.limit(nodes)
            if (key := (sizes, job.least_nodes)) not in self._of_sizes:
                self._of_sizes[key] = [
                    (phase.until, tables.add(phase.speeds), tables.add(phase.seen))
                    for phase in sizes.phases(*limits, what)
                ]
            return limits, self._of_sizes[key]
        limits = (1, nodes) if divisible else (job.least_nodes, min(job.most_nodes or nodes, nodes))
        seen = job.predicted if "curve" in self.policy.knows else None
        staged = job.curve.stages(job.steps) if isinstance(job.curve, StagedCurve) and not divisible else None
        return limits, [
            (end, tables.acquire(curve, *limits, what), tables.acquire(seen or curve, *limits, what))
            for end, curve in staged or [(job.steps, job.curve)]
        ]

    def seconds(self, steps: np.ndarray, speeds: np.ndarray) -> np.ndarray:
        """Seconds of each job's first ``steps`` when its phases run at these ``speeds``."""
        begins = np.append(0.0, self.until[:-1])
        begins[self.first] = 0.0
        done = steps[self.job]
        return np.add.reduceat((np.minimum(self.until, done) - np.minimum(begins, done)) / speeds, self.first)


SHORTEST = 1e-9  # seconds of a job: less would drown in the rounding of the clock
#: Decisions in a row that may leave all nodes idle, although jobs wait and no others will arrive.
_PATIENCE = 10_000
#: Limits of a job that is abandoned: failures in a row without progress, expected failures until progress is kept.
_STUCK, _HOPELESS = 100, 10_000.0


class Failures:
    """The next failure; ``left``: exposure until it strikes, in nodes times mean times to failure."""

    def __init__(self, nodes: Nodes, jobs: Sequence[ClusterJob], seed: int) -> None:
        self.jobs = jobs
        self.mean_time = nodes.mean_time_to_failure
        self.checkpoint, self.restart = float(nodes.checkpoint_seconds), float(nodes.restart_seconds)
        self.rng = np.random.default_rng([seed, 0x6661696C])
        self.left = self.rng.exponential()

    def next_time(self, now: float, nodes: float) -> float:
        """When the next node fails if so many stay in use."""
        return now + self.left * self.mean_time / nodes if nodes else math.inf

    def pass_time(self, seconds: float, nodes: float) -> None:
        self.left = max(self.left - seconds * nodes / self.mean_time, 0.0)

    def strike(self, state: np.ndarray, running: np.ndarray, now: float) -> None:
        """One node fails: its job restarts from its last checkpoint on as many nodes."""
        self.left = self.rng.exponential()
        ends = np.cumsum(state[s.NODES, running])
        place = int(np.searchsorted(ends, self.rng.random() * ends[-1], side="right"))
        j = int(running[place])
        s.accrue(state, running[place : place + 1], now)
        job = state[:, j]
        ran = max(now - job[s.RESUME], 0.0)
        lost = ran if self.checkpoint == math.inf else math.fmod(ran, self.checkpoint)
        job[s.DONE] = max(job[s.DONE] - lost * job[s.SPEED], 0.0)
        job[s.USEFUL] -= lost * job[s.SPEED] / job[s.LEAST_SPEED]
        rest = (job[s.TRUE] - job[s.DONE]) / job[s.SPEED]
        job[s.RESUME] = now + self.restart
        job[s.FINISH] = job[s.RESUME] + rest
        job[s.RESTARTS] += 1
        job[s.FAILURES] += 1
        job[s.STUCK] = job[s.STUCK] + 1 if ran < self.checkpoint else 0
        need, rate = self.restart + min(self.checkpoint, rest), job[s.NODES] / self.mean_time
        if job[s.STUCK] > _STUCK and rate * need > math.log(_HOPELESS):
            raise ModelError(
                f"job {self.jobs[j].name!r}: fails every {1 / rate:.3g} s on {job[s.NODES]:g} nodes, but needs "
                f"{need:.3g} s until progress is kept, so it would practically never end; lower checkpoint_seconds or "
                "restart_seconds"
            )


class Engine:
    """One run; `run` fills ``state``. Memory grows with the jobs, not with the events."""

    def __init__(self, workload: Workload, policy: Policy, pool: Nodes, *, seed: int, history: bool) -> None:
        self.jobs = jobs = workload.jobs
        self.policy, self.pool = policy, pool
        for job in jobs:
            job.require_room(pool.count)
        self.arrival_time = np.array([job.arrival_time for job in jobs], dtype=float)
        self.phases = phases = Phases(jobs, policy, pool.count)
        self.least, self.most = phases.least, phases.most
        self.share = workload.shares(seed)
        self.state = s.fresh(phases.steps * self.share)
        self.best_time = phases.seconds(self.state[s.TRUE], phases.tables.speeds.max(axis=1)[phases.true_row])
        self._require_sense()
        self.nodes = self.state[s.NODES]
        self.requested = np.minimum([job.requested for job in jobs], self.most)
        self.packing = np.ones(len(jobs))  # speed of a job where it stands, relative to its curve
        self.phase = phases.first.copy()
        self.active = np.zeros(0, dtype=int)
        self.running = np.zeros(0, dtype=int)
        self.arrived = 0
        self.now = self.crowding = 0.0
        self.costs = float(pool.start_seconds), float(pool.restart_seconds)
        self.events = self.decisions = 0
        self.review = math.inf
        self.idle = 0  # decisions in a row that left all nodes idle, after the last arrival
        self.placement = Placement(pool) if pool.placed else None
        self.history: list[tuple[float, int, float]] | None = [] if history else None
        self.failures = Failures(pool, jobs, seed) if pool.mean_time_to_failure < math.inf else None

    def _require_sense(self) -> None:
        phases = self.phases
        if self.pool.mean_time_to_failure < math.inf and len(phases.until) > len(self.jobs):
            raise ModelError(
                f"policy {self.policy.name}: nodes cannot fail yet where jobs' speeds change as they train; leave out "
                "the cluster's mean_time_to_failure or the jobs' batch_sizes and staged curves"
            )
        shortest = phases.steps * self.best_time / self.state[s.TRUE]
        longest = phases.steps / (phases.least_speed[phases.first] * self.least)
        for j in np.flatnonzero(~((shortest >= SHORTEST) & (longest <= LARGEST_NUMBER)))[:1]:
            raise ModelError(
                f"job {self.jobs[j].name!r}: takes {shortest[j]:.3g} to {longest[j]:.3g} s alone, must be "
                f"{SHORTEST:g} to {LARGEST_NUMBER:g} s; check the units of its steps and speeds"
            )

    def run(self, progress: Callable[[int], Any] | None = None) -> None:
        """Simulate until every job has ended."""
        arrival, finish, total = self.arrival_time, self.state[s.FINISH], len(self.jobs)
        ended = 0
        while ended < total:
            coming = arrival[self.arrived] if self.arrived < total else math.inf
            running = self.running
            first = finish[running].min() if running.size else math.inf
            time = min(coming, first, self.review)
            failing = math.inf if self.failures is None else self.failures.next_time(self.now, self._nodes_in_use())
            if self.failures is not None and failing < time:
                self._advance(failing)
                self.failures.strike(self.state, self.running, failing)
                changed = True
            elif time == math.inf:
                self._starved()
            else:
                self._advance(time)
                changed = time >= self.review
                if first <= time and (ending := self._next_phase(running[finish[running] <= time])).size:
                    ended += self._end(ending)
                    changed = True
                while self.arrived < total and arrival[self.arrived] <= time:
                    self._arrive(self.arrived)
                    changed = True
            self.events += 1
            if not self.active.size:
                self.review = math.inf
            elif changed:
                self._decide()
            if progress is not None and not self.events % 4096:
                progress(ended)

    def _nodes_in_use(self) -> float:
        return float(self.nodes[self.running].sum())

    def _advance(self, time: float) -> None:
        if self.failures is not None:
            self.failures.pass_time(time - self.now, self._nodes_in_use())
        self.crowding += self.active.size * (time - self.now)
        self.now = float(time)

    def _arrive(self, j: int) -> None:
        self.state[s.SINCE, j], self.state[s.CROWD_THEN, j] = self.now, self.crowding
        self._take_up(j)
        self.active = np.append(self.active, j)
        self.arrived += 1

    def _take_up(self, j: int) -> None:
        phase = self.phase[j]
        self.state[s.LEAST_SPEED, j] = self.phases.least_speed[phase]
        self.state[s.GOAL, j] = min(self.phases.until[phase], self.state[s.TRUE, j])

    def _next_phase(self, jobs: np.ndarray) -> np.ndarray:
        """Start the next phase of these jobs on the nodes that they hold; returns those that have ended."""
        state = self.state
        over = state[s.GOAL, jobs] >= state[s.TRUE, jobs]
        s.accrue(state, jobs[~over], self.now)
        for j in jobs[~over].tolist():
            state[s.DONE, j] = state[s.GOAL, j]
            self.phase[j] += 1
            self._take_up(j)
            row = self.phases.true_row[self.phase[j]]
            state[s.SPEED, j] = self.phases.tables.speeds[row, int(self.nodes[j])] * self.packing[j]
            state[s.FINISH, j] = self.now + (state[s.GOAL, j] - state[s.DONE, j]) / state[s.SPEED, j]
        return jobs[over]

    def _end(self, ending: np.ndarray) -> int:
        s.end(self.state, ending, self.now, self.crowding)
        self.running = self.running[self.nodes[self.running] > 0]
        self.active = self.active[np.isnan(self.state[s.END, self.active])]
        for j in ending.tolist():
            if self.placement is not None:
                self.placement.leave(j)
            if self.history is not None:
                self.history.append((self.now, j, 0.0))
        return len(ending)

    def _decide(self) -> None:
        self.decisions += 1
        active = self.active
        shown = ActiveJobs(partial(self._column, active), active.size, self.phases.tables, self.policy)
        granted = self.policy.grants(shown, self.pool.count, self.now)
        where = (granted != shown.nodes).nonzero()[0]
        if where.size:
            jobs, changed = active[where], granted[where].astype(float)
            self._check(granted, changed, jobs)
            self._change(jobs, changed)
        self.idle = 0 if self.running.size or self.arrived < len(self.jobs) else self.idle + 1
        if self.idle > _PATIENCE:
            self._starved()
        self.review = self.policy.review(shown, granted, self.now)
        if self.review <= self.now:
            self.review = math.nextafter(self.now, math.inf)

    def _column(self, active: np.ndarray, name: str) -> Any:
        """A column of `ActiveJobs`."""
        state = self.state
        if name == "row":
            return self.phases.row[self.phase[active]]
        if name == "attained_service":
            return state[s.ATTAINED, active] + state[s.NODES, active] * (self.now - state[s.SINCE, active])
        if name == "remaining":
            return s.left(state, self.phases.steps, active, self.now)
        if name == "pause":
            start = np.where(np.isnan(state[s.START, active]), *self.costs)
            return np.where(self.nodes[active] > 0, np.maximum(state[s.RESUME, active] - self.now, 0.0), start)
        return getattr(self, name)[active]

    def _check(self, granted: np.ndarray, changed: np.ndarray, jobs: np.ndarray) -> None:
        if not (granted.sum() <= self.pool.count * (1 + 1e-9) and changed.min() >= 0):
            raise ModelError(
                f"policy {self.policy.name}: grants must be >= 0 and at most {self.pool.count} nodes together, got "
                f"{float(granted.sum()):g} together, least {float(granted.min()):g}"
            )
        k = -1 if self.policy.divisible else s.misfit(jobs, changed, self.least, self.most)
        if k >= 0:
            j = int(jobs[k])
            raise ModelError(
                f"policy {self.policy.name}: job {self.jobs[j].name!r} takes {self.least[j]} to {self.most[j]} whole "
                f"nodes, got {changed[k]:g}"
            )

    def _change(self, jobs: np.ndarray, nodes: np.ndarray) -> None:
        if self.policy.divisible:
            speeds = np.zeros(len(jobs))
            for k in np.flatnonzero(nodes):
                job = self.jobs[jobs[k]]
                speeds[k] = speed_at(job.curve, float(nodes[k]), f"job {job.name!r}")
        else:
            speeds = self.phases.tables.speeds[self.phases.true_row[self.phase[jobs]], nodes.astype(int)]
        if self.placement is not None:
            self.packing[jobs] = packing = self.placement.move(jobs, nodes)
            speeds = speeds * packing
        runs = np.append(self.running, jobs[(self.nodes[jobs] == 0) & (nodes > 0)])
        s.change(self.state, jobs, nodes, speeds, self.now, *self.costs)
        self.running = runs[self.nodes[runs] > 0]  # in order of their start
        if self.history is not None:
            self.history += [(self.now, j, n) for j, n in zip(jobs.tolist(), nodes.tolist(), strict=True)]

    def result(self, *, warmup: float, seed: int) -> Schedule:
        """The records of the finished run."""
        state, jobs, phases = self.state, self.jobs, self.phases
        stay = np.maximum(state[s.END] - self.arrival_time, 1e-300)
        met = np.maximum((state[s.CROWD] - state[s.CROWD_THEN]) / stay, 1.0)
        share = np.clip(self.pool.count / met, self.least, self.most)[phases.job]
        below = np.minimum(share.astype(int), self.pool.count - 1)  # speeds are linear between whole nodes
        low, high = (phases.tables.speeds[phases.true_row, nodes] for nodes in (below, below + 1))
        return Schedule(
            policy=self.policy,
            nodes=self.pool,
            names=tuple(job.name for job in jobs),
            kinds=tuple(job.kind for job in jobs),
            arrival=self.arrival_time,
            start=state[s.START],
            end=state[s.END],
            attained_service=state[s.ATTAINED],
            useful_service=state[s.USEFUL],
            best_time=self.best_time,
            shared_time=phases.seconds(state[s.TRUE], low + (share - below) * (high - low)),
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
            f"policy {self.policy.name}: grants no node to any of {self.active.size} waiting jobs (first: "
            f"{self.jobs[int(self.active[0])].name!r}) and no event is left; a policy must run a job"
        )
