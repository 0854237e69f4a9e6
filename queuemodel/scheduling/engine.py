"""The event-driven simulation: state of the jobs as arrays, progress computed only when something changes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import ModelError
from .cluster import Cluster, Placement
from .jobs import Workload
from .policies.base import Policy
from .view import ActiveJobs, SpeedTables

_EPSILON = 1e-9
_COLUMNS = {
    "arrival_time": "arrival",
    "nodes": "nodes",
    "least": "least",
    "most": "most",
    "requested": "requested",
    "row": "seen",
}
#: Up to so many jobs are changed one by one, which is faster than as arrays.
_FEW = 8
#: Decisions on a grid that may leave all nodes idle, although jobs wait and nobody else will come.
_PATIENCE = 10_000


class _Shown:
    """Columns of the jobs in the cluster, gathered when a policy looks at them."""

    __slots__ = ("active", "engine")

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.active = engine.active[: engine.count]

    def __len__(self) -> int:
        return len(self.active)

    def names(self) -> list[str]:
        names = self.engine.names
        return [names[j] for j in self.active]

    def column(self, name: str) -> np.ndarray:
        engine, active = self.engine, self.active
        if name == "attained_service":
            return engine.attained[active] + engine.nodes[active] * (engine.now - engine.since[active])
        if name in ("remaining", "true_remaining"):
            total = (engine.declared if name == "remaining" else engine.true)[active]
            running = np.maximum(engine.now - np.maximum(engine.resume[active], engine.since[active]), 0.0)
            return np.maximum(total - engine.done[active] - engine.speed[active] * running, total * 1e-12)
        return getattr(engine, _COLUMNS[name])[active]


class Engine:
    """One run; `run` fills the per-job arrays. Memory grows with the jobs, not with the events."""

    def __init__(self, workload: Workload, policy: Policy, cluster: Cluster, *, seed: int, history: bool) -> None:
        self.jobs = jobs = workload.jobs
        self.policy, self.cluster = policy, cluster
        n = len(jobs)
        self.names = [job.name for job in jobs]
        self.arrival = np.array([job.arrival_time for job in jobs], dtype=float)
        self.declared = np.array([job.steps for job in jobs], dtype=float)
        self.share = workload.shares(seed)
        self.true = self.declared * self.share
        self.least = np.array([job.least_nodes for job in jobs])
        self.most = np.array([min(job.most_nodes or cluster.nodes, cluster.nodes) for job in jobs])
        self.requested = np.minimum([job.requested for job in jobs], self.most)
        self._require_room()
        self.done = np.zeros(n)  # steps done at `since`
        self.since = np.zeros(n)  # when `nodes` was last changed or progress last counted
        self.resume = np.zeros(n)  # when progress (re)starts
        self.speed = np.zeros(n)
        self.nodes = np.zeros(n)
        self.finish = np.full(n, math.inf)
        self.alone = np.zeros(n)  # steps per second and node on the least nodes
        self.start = np.full(n, math.nan)
        self.end = np.full(n, math.nan)
        self.attained = np.zeros(n)
        self.useful = np.zeros(n)  # node-seconds that would have been needed at full efficiency
        self.fastest = np.zeros(n)
        self.restarts = np.zeros(n, dtype=int)
        self.failures = np.zeros(n, dtype=int)
        self.crowd = np.zeros((2, n))  # integral of the number of jobs in the cluster, at arrival and end
        self.row = np.zeros(n, dtype=int)
        self.seen = np.zeros(n, dtype=int)
        self.tables = SpeedTables(cluster.nodes)
        self.active = np.zeros(n, dtype=int)
        self.count = 0
        self.running = np.zeros(0, dtype=int)
        self.arrived = 0
        self.now = 0.0
        self.events = 0
        self.decisions = 0
        self.review = math.inf
        self.decided_at = -1.0
        self.idle = 0  # decisions in a row that left all nodes idle, with nobody to come
        self.crowding = 0.0
        self.placement = Placement(cluster) if cluster.placed else None
        self.history: list[tuple[float, int, float]] | None = [] if history else None
        self.rng = np.random.default_rng([seed, 0x6661696C])
        self.hazard = self._draw_hazard()

    def _require_room(self) -> None:
        tight = np.flatnonzero(self.least > self.cluster.nodes)
        if tight.size:
            job = self.jobs[int(tight[0])]
            raise ModelError(
                f"job {job.name!r}: least_nodes must be at most the cluster's {self.cluster.nodes} nodes, got "
                f"{job.least_nodes}; it could never run"
            )

    def _draw_hazard(self) -> float:
        return self.rng.exponential() if self.cluster.mean_time_to_failure < math.inf else math.inf

    def run(self, progress: Callable[[int], Any] | None = None) -> None:
        """Simulate until every job has ended."""
        arrival, finish, total = self.arrival, self.finish, len(self.jobs)
        interval = self.cluster.decision_interval
        ended = 0
        while ended < total:
            coming = arrival[self.arrived] if self.arrived < total else math.inf
            running = self.running
            first = finish[running].min() if running.size else math.inf
            due = self.review if interval is None else self._next_slot(interval)
            time = min(coming, first, due)
            failing = self._failure_time()
            if failing < time:
                self._advance(failing)
                self._fail()
                changed = True
            elif time == math.inf:
                self._starved()
            else:
                self._advance(time)
                changed = time >= due
                if first <= time:
                    ended += self._end(running[finish[running] <= time])
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
            return math.inf if self.arrived == len(self.jobs) else self._slot(self.arrival[self.arrived], interval)
        return self._slot(self.now, interval, strictly=self.decided_at == self.now)

    @staticmethod
    def _slot(time: float, interval: float, strictly: bool = False) -> float:
        slot = math.ceil(time / interval - _EPSILON) * interval
        return slot + interval if strictly and slot <= time * (1 + _EPSILON) else max(slot, time)

    def _failure_time(self) -> float:
        if self.hazard == math.inf or not self.running.size:
            return math.inf
        return self.now + self.hazard * self.cluster.mean_time_to_failure / float(self.nodes[self.running].sum())

    def _advance(self, time: float) -> None:
        if self.hazard < math.inf and self.running.size:
            used = float(self.nodes[self.running].sum())
            self.hazard = max(self.hazard - (time - self.now) * used / self.cluster.mean_time_to_failure, 0.0)
        self.crowding += self.count * (time - self.now)
        self.now = float(time)

    def _arrive(self) -> None:
        last = self.arrived
        while last < len(self.jobs) and self.arrival[last] <= self.now:
            self._enter(last)
            last += 1
        self.arrived = last

    def _enter(self, j: int) -> None:
        job, least, most = self.jobs[j], int(self.least[j]), int(self.most[j])
        what = f"job {job.name!r}"
        if not self.policy.divisible:
            self.row[j] = row = self.tables.acquire(job.curve, least, most, what)
            speeds = self.tables.speeds[row]
            self.alone[j] = speeds[least] / least
            self.fastest[j] = speeds.max()
        else:
            self.alone[j] = self._speed_of(j, 1.0)
            self.fastest[j] = self._speed_of(j, float(self.cluster.nodes))
        if "curve" in self.policy.knows:
            self.seen[j] = self.tables.acquire(job.predicted or job.curve, least, most, what)
        self.since[j] = self.now
        self.crowd[0, j] = self.crowding
        self.active[self.count] = j
        self.count += 1

    def _end(self, ending: np.ndarray) -> int:
        for j in ending.tolist():
            self._settle_one(j)
            self.done[j] = self.true[j]
            self.end[j] = self.now
            self.nodes[j] = self.speed[j] = 0.0
            self.finish[j] = math.inf
            self.crowd[1, j] = self.crowding
            place = int(np.searchsorted(self.active[: self.count], j))
            self.active[place : self.count - 1] = self.active[place + 1 : self.count]
            self.count -= 1
            if not self.policy.divisible:
                self.tables.release(int(self.row[j]))
            if "curve" in self.policy.knows:
                self.tables.release(int(self.seen[j]))
            if self.placement is not None:
                self.placement.leave(j)
            if self.history is not None:
                self.history.append((self.now, j, 0.0))
        self.running = self.running[self.nodes[self.running] > 0]
        return len(ending)

    def _settle(self, jobs: np.ndarray) -> None:
        """Count progress and service of these jobs up to now."""
        span = self.now - self.since[jobs]
        steps = self.speed[jobs] * np.maximum(self.now - np.maximum(self.resume[jobs], self.since[jobs]), 0.0)
        self.done[jobs] += steps
        self.attained[jobs] += self.nodes[jobs] * span
        self.useful[jobs] += steps / self.alone[jobs]
        self.since[jobs] = self.now

    def _settle_one(self, j: int) -> None:
        """The same for one job."""
        now, since = self.now, self.since[j]
        nodes = self.nodes[j]
        if nodes:
            resume = self.resume[j]
            steps = self.speed[j] * max(now - (resume if resume > since else since), 0.0)
            self.done[j] += steps
            self.attained[j] += nodes * (now - since)
            self.useful[j] += steps / self.alone[j]
        self.since[j] = now

    def _shown(self) -> ActiveJobs:
        return ActiveJobs(_Shown(self), self.tables, knows=self.policy.knows, who=self.policy.name)

    def _decide(self) -> None:
        self.decisions += 1
        self.decided_at = self.now
        shown = self._shown()
        granted = self.policy.grants(shown, self.cluster.nodes, self.now)
        active = self.active[: self.count]
        where = (granted != shown.nodes).nonzero()[0]
        if where.size:
            jobs, given = active[where], granted[where].astype(float)
            self._check(granted, given, jobs)
            self._change(jobs, given)
        self.idle = 0 if self.running.size or self.arrived < len(self.jobs) else self.idle + 1
        if self.idle > _PATIENCE:
            self._starved()
        self.review = self.policy.review(shown, granted, self.now)
        if self.review <= self.now:
            self.review = math.nextafter(self.now, math.inf)

    def _check(self, granted: np.ndarray, given: np.ndarray, jobs: np.ndarray) -> None:
        if granted.sum() > self.cluster.nodes * (1 + _EPSILON) or given.min() < 0 or not np.isfinite(given).all():
            raise ModelError(
                f"policy {self.policy.name}: grants must be >= 0 and at most {self.cluster.nodes} nodes together, got "
                f"{float(granted.sum()):g} together, least {float(granted.min()):g}"
            )
        if self.policy.divisible:
            return
        limits = zip(jobs.tolist(), given.tolist(), self.least[jobs].tolist(), self.most[jobs].tolist(), strict=True)
        for j, n, least, most in limits:
            if n and not (least <= n <= most and n == int(n)):
                raise ModelError(
                    f"policy {self.policy.name}: job {self.names[j]!r} takes {least} to {most} whole nodes, got {n:g}"
                )

    def _change(self, jobs: np.ndarray, nodes: np.ndarray) -> None:
        if len(jobs) <= _FEW and self.placement is None:
            pairs = list(zip(jobs.tolist(), nodes.tolist(), strict=True))
            started = [j for j, n in pairs if self._change_one(j, n)]
            stopped = any(n == 0 for _, n in pairs)
        else:
            before = self.nodes[jobs]
            self._change_all(jobs, nodes)
            started = jobs[(before == 0) & (nodes > 0)].tolist()
            stopped = bool((nodes == 0).any())
        if stopped:
            self.running = self.running[self.nodes[self.running] > 0]
        if started:
            self.running = np.concatenate([self.running, started])
        if self.history is not None:
            self.history += [(self.now, j, n) for j, n in zip(jobs.tolist(), nodes.tolist(), strict=True)]

    def _change_one(self, j: int, nodes: float) -> bool:
        """Give one job so many nodes; True when it had none."""
        self._settle_one(j)
        idle = self.nodes[j] == 0
        self.nodes[j] = nodes
        if not nodes:
            self.speed[j], self.finish[j] = 0.0, math.inf
            return False
        if math.isnan(self.start[j]):
            self.start[j] = self.now
            resume = self.now + self.cluster.start_seconds
        else:
            self.restarts[j] += 1
            resume = self.now + self.cluster.restart_seconds
        speed = self._speed_of(j, nodes) if self.policy.divisible else self.tables.speeds[self.row[j], int(nodes)]
        self.resume[j] = resume
        self.speed[j] = speed
        self.finish[j] = resume + max(self.true[j] - self.done[j], 0.0) / speed
        return bool(idle)

    def _change_all(self, jobs: np.ndarray, nodes: np.ndarray) -> None:
        """The same for many jobs at once."""
        self._settle(jobs)
        fresh = np.isnan(self.start[jobs])
        begins, resumes = (nodes > 0) & fresh, (nodes > 0) & ~fresh
        self.start[jobs[begins]] = self.now
        self.restarts[jobs[resumes]] += 1
        delay = np.where(begins, self.cluster.start_seconds, np.where(resumes, self.cluster.restart_seconds, 0.0))
        self.resume[jobs] = self.now + delay
        self.nodes[jobs] = nodes
        if self.policy.divisible:
            speed = np.array([self._speed_of(j, n) for j, n in zip(jobs.tolist(), nodes.tolist(), strict=True)])
        else:
            speed = self.tables.speeds[self.row[jobs], nodes.astype(int)]
        if self.placement is not None:
            speed = speed * self._place(jobs, nodes)
        self.speed[jobs] = speed
        left = np.maximum(self.true[jobs] - self.done[jobs], 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            self.finish[jobs] = np.where(nodes > 0, self.resume[jobs] + left / speed, math.inf)

    def _place(self, jobs: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        assert self.placement is not None
        for j in jobs.tolist():
            self.placement.leave(j)
        factor = np.ones(len(jobs))
        for k in np.argsort(-nodes, kind="stable").tolist():  # the largest first
            if nodes[k] > 0 and not self.placement.enter(int(jobs[k]), int(nodes[k])):
                factor[k] = self.cluster.spread_speed
        return factor

    def _speed_of(self, j: int, nodes: float) -> float:
        if nodes <= 0:
            return 0.0
        speed = float(self.jobs[j].curve(nodes))
        if not (math.isfinite(speed) and speed > 0):
            raise ModelError(f"job {self.names[j]!r}: curve must be finite and > 0 on {nodes:g} nodes, got {speed!r}")
        return speed

    def _fail(self) -> None:
        """One node fails: its job goes back to the last checkpoint and restarts on as many nodes."""
        self.hazard = self._draw_hazard()
        held = np.cumsum(self.nodes[self.running])
        j = int(self.running[int(np.searchsorted(held, self.rng.random() * held[-1], side="right"))])
        running = max(self.now - self.resume[j], 0.0)
        self._settle_one(j)
        every = self.cluster.checkpoint_seconds
        lost = running if every == math.inf else math.fmod(running, every)
        self.done[j] = max(self.done[j] - lost * self.speed[j], 0.0)
        self.useful[j] -= lost * self.speed[j] / self.alone[j]
        self.resume[j] = self.now + self.cluster.restart_seconds
        self.finish[j] = self.resume[j] + (self.true[j] - self.done[j]) / self.speed[j]
        self.restarts[j] += 1
        self.failures[j] += 1

    def _starved(self) -> None:
        j = int(self.active[0])
        raise ModelError(
            f"policy {self.policy.name}: grants no node to any of {self.count} waiting jobs (first: {self.names[j]!r}) "
            "and nothing else will happen; a policy must run somebody"
        )
