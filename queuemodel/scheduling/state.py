"""What the simulation keeps of each job, the compiled loops over the jobs that an event changes, and failures of nodes.

Import it only inside functions: numba takes half a second to load.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..base.compiled import compiled
from ..base.errors import ModelError
from .cluster import Cluster
from .jobs import Job

#: Rows of the state. SINCE: when progress was last counted; RESUME: when it (re)starts; STUCK: failures since progress
#: was last kept; USEFUL: node-seconds that the work done would have needed at full efficiency; ALONE: steps per second
#: and node on the least nodes. CROWD_THEN and CROWD: integral of the jobs in the cluster, at the arrival and the end.
#: GOAL: work done at the end of the phase, at most TRUE; FINISH: when that will be.
DONE, SINCE, RESUME, SPEED, NODES, FINISH, START, END, ATTAINED, USEFUL = range(10)
TRUE, ALONE, RESTARTS, FAILURES, STUCK, CROWD_THEN, CROWD, GOAL = range(10, 18)
FIELDS = 18


def fresh(steps: np.ndarray) -> np.ndarray:
    """The state of jobs with so many steps of work before they arrive, shape (FIELDS, jobs)."""
    state = np.zeros((FIELDS, len(steps)))
    state[FINISH] = math.inf
    state[[START, END]] = math.nan
    state[TRUE] = steps
    return state


@compiled()
def settle(state, jobs, now):
    """Count progress and service of these jobs up to ``now``."""
    for j in jobs:
        nodes, since = state[NODES, j], state[SINCE, j]
        if nodes > 0:
            steps = state[SPEED, j] * max(now - max(state[RESUME, j], since), 0.0)
            state[DONE, j] += steps
            state[ATTAINED, j] += nodes * (now - since)
            state[USEFUL, j] += steps / state[ALONE, j]
        state[SINCE, j] = now


@compiled()
def change(state, jobs, nodes, speeds, now, start_seconds, restart_seconds):
    """Give these jobs so many nodes, on which they run so fast; what was done until ``now`` is kept."""
    settle(state, jobs, now)
    for k, j in enumerate(jobs):
        state[NODES, j] = nodes[k]
        state[SPEED, j] = speeds[k]
        state[STUCK, j] = 0
        if nodes[k] == 0:
            state[FINISH, j] = math.inf
            continue
        if math.isnan(state[START, j]):
            state[START, j] = now
            state[RESUME, j] = now + start_seconds
        else:
            state[RESTARTS, j] += 1
            state[RESUME, j] = now + restart_seconds
        state[FINISH, j] = state[RESUME, j] + max(state[GOAL, j] - state[DONE, j], 0.0) / speeds[k]


@compiled()
def end(state, jobs, now, crowding):
    """These jobs have ended."""
    settle(state, jobs, now)
    for j in jobs:
        state[DONE, j] = state[TRUE, j]
        state[END, j] = now
        state[NODES, j] = state[SPEED, j] = 0.0
        state[FINISH, j] = math.inf
        state[CROWD, j] = crowding


@compiled()
def left(state, steps, jobs, now):
    """Steps left of each job at ``now``, of so many in all; more than 0, shape (jobs,)."""
    rest = np.empty(len(jobs))
    for k, j in enumerate(jobs):
        running = max(now - max(state[RESUME, j], state[SINCE, j]), 0.0)
        rest[k] = max(steps[j] - state[DONE, j] - state[SPEED, j] * running, steps[j] * 1e-12)
    return rest


@compiled()
def hand_out(values, following, row, weight, nodes):
    """Node after node, up to the ``following`` corner, to the job whose next one is worth most and which that fits."""
    granted = np.zeros(len(row), dtype=np.int64)
    worth = np.empty(len(row))
    for j in range(len(row)):
        worth[j] = values[row[j], 0] * weight[j]
    left = nodes
    while left > 0:
        j = int(np.argmax(worth))
        if worth[j] <= 0:
            break
        n = following[row[j], granted[j]]
        if n - granted[j] > left:
            worth[j] = 0.0
            continue
        left -= n - granted[j]
        granted[j] = n
        worth[j] = values[row[j], n] * weight[j] if n < values.shape[1] else 0.0
    return granted


@compiled()
def misfit(jobs, nodes, least, most):
    """Place of the first job whose number of nodes is neither 0 nor a whole one within its limits; -1: none."""
    for k, j in enumerate(jobs):
        if nodes[k] != 0 and not (least[j] <= nodes[k] <= most[j] and nodes[k] == math.floor(nodes[k])):
            return k
    return -1


#: A job that has failed so often without keeping progress is given up where it would have to fail so often on average.
_STUCK, _HOPELESS = 100, 10_000.0


class Failures:
    """The next failure, as the exposure in nodes and mean times to failure that is left until it strikes."""

    def __init__(self, cluster: Cluster, jobs: Sequence[Job], seed: int) -> None:
        self.jobs = jobs
        self.mean_time = cluster.mean_time_to_failure
        self.checkpoint, self.restart = float(cluster.checkpoint_seconds), float(cluster.restart_seconds)
        self.rng = np.random.default_rng([seed, 0x6661696C])
        self.left = self.rng.exponential() if self.mean_time < math.inf else math.inf

    def next_time(self, now: float, nodes: float) -> float:
        """When the next node fails, if so many stay in use."""
        return now + self.left * self.mean_time / nodes if nodes else math.inf

    def pass_time(self, seconds: float, nodes: float) -> None:
        """So many nodes have been in use for so long."""
        self.left = max(self.left - seconds * nodes / self.mean_time, 0.0)

    def strike(self, state: np.ndarray, running: np.ndarray, now: float) -> None:
        """One node fails: its job goes back to the last checkpoint and restarts on as many nodes.

        Raises
        ------
        ModelError
            When the job needs so long from a restart to a checkpoint that it would practically never end.
        """
        self.left = self.rng.exponential()
        held = np.cumsum(state[NODES, running])
        place = int(np.searchsorted(held, self.rng.random() * held[-1], side="right"))
        j = int(running[place])
        settle(state, running[place : place + 1], now)
        job = state[:, j]
        ran = max(now - job[RESUME], 0.0)
        lost = ran if self.checkpoint == math.inf else math.fmod(ran, self.checkpoint)
        job[DONE] = max(job[DONE] - lost * job[SPEED], 0.0)
        job[USEFUL] -= lost * job[SPEED] / job[ALONE]
        rest = (job[TRUE] - job[DONE]) / job[SPEED]
        job[RESUME] = now + self.restart
        job[FINISH] = job[RESUME] + rest
        job[RESTARTS] += 1
        job[FAILURES] += 1
        job[STUCK] = job[STUCK] + 1 if ran < self.checkpoint else 0
        need, rate = self.restart + min(self.checkpoint, rest), job[NODES] / self.mean_time
        if job[STUCK] > _STUCK and rate * need > math.log(_HOPELESS):
            raise ModelError(
                f"job {self.jobs[j].name!r}: fails every {1 / rate:.3g} s on {job[NODES]:g} nodes, but needs "
                f"{need:.3g} s until progress is kept, so it would practically never end; lower checkpoint_seconds or "
                "restart_seconds"
            )
