"""What the simulation keeps of each job, and the loops over the jobs that an event changes, compiled by numba.

Import it only inside functions: numba takes half a second to load.
"""

from __future__ import annotations

import math

import numpy as np

from ..compiled import compiled

#: Rows of the state. SINCE: when progress was last counted; RESUME: when it (re)starts; STUCK: failures since progress
#: was last kept; USEFUL: node-seconds that the work done would have needed at full efficiency; ALONE: steps per second
#: and node on the least nodes. CROWD_THEN and CROWD: integral of the jobs in the cluster, at the arrival and the end.
#: GOAL: work done at the end of the phase, at most TRUE; FINISH: when that will be.
DONE, SINCE, RESUME, SPEED, NODES, FINISH, START, END, ATTAINED, USEFUL = range(10)
TRUE, ALONE, FASTEST, RESTARTS, FAILURES, STUCK, CROWD_THEN, CROWD, GOAL = range(10, 19)
FIELDS = 19


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
def with_nodes(state, jobs):
    """Those of the jobs that hold nodes."""
    count = 0
    kept = np.empty(len(jobs), dtype=np.int64)
    for j in jobs:
        if state[NODES, j] > 0:
            kept[count] = j
            count += 1
    return kept[:count]


@compiled()
def change(state, running, jobs, nodes, speeds, now, start_seconds, restart_seconds):
    """Give these jobs so many nodes, on which they run so fast; gives the jobs that run then, in order of their start.

    What was done until ``now`` is kept.
    """
    settle(state, jobs, now)
    runs = np.empty(len(running) + len(jobs), dtype=np.int64)
    count = len(running)
    runs[:count] = running
    for k, j in enumerate(jobs):
        if state[NODES, j] == 0 and nodes[k] > 0:
            runs[count] = j
            count += 1
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
    return with_nodes(state, runs[:count])


@compiled()
def enter(state, j, now, crowding, alone, fastest, goal):
    """A job has arrived, that runs at such speeds and is in its first phase until ``goal``."""
    state[SINCE, j], state[CROWD_THEN, j] = now, crowding
    state[ALONE, j], state[FASTEST, j], state[GOAL, j] = alone, fastest, goal


@compiled()
def go_on(state, job, now, alone, speed, goal):
    """A running job, alone in an array, is at the end of its phase; the next one goes until ``goal``."""
    settle(state, job, now)
    for j in job:
        state[DONE, j] = state[GOAL, j]
        state[ALONE, j], state[SPEED, j], state[GOAL, j] = alone, speed, goal
        state[FINISH, j] = now + (goal - state[DONE, j]) / speed


@compiled()
def end(state, running, jobs, now, crowding):
    """These jobs have ended; gives the jobs that run on."""
    settle(state, jobs, now)
    for j in jobs:
        state[DONE, j] = state[TRUE, j]
        state[END, j] = now
        state[NODES, j] = state[SPEED, j] = 0.0
        state[FINISH, j] = math.inf
        state[CROWD, j] = crowding
    return with_nodes(state, running)


@compiled()
def left(state, steps, jobs, now):
    """Steps left of each job at ``now``, of so many in all; more than 0, shape (jobs,)."""
    rest = np.empty(len(jobs))
    for k, j in enumerate(jobs):
        running = max(now - max(state[RESUME, j], state[SINCE, j]), 0.0)
        rest[k] = max(steps[j] - state[DONE, j] - state[SPEED, j] * running, steps[j] * 1e-12)
    return rest


@compiled()
def misfit(jobs, nodes, least, most):
    """Place of the first job whose number of nodes is neither 0 nor a whole one within its limits; -1: none."""
    for k, j in enumerate(jobs):
        if nodes[k] != 0 and not (least[j] <= nodes[k] <= most[j] and nodes[k] == math.floor(nodes[k])):
            return k
    return -1
