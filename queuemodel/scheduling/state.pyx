"""The state of each job in the simulation, and the compiled loops over the jobs that an event changes."""

import numpy as np

from libc.math cimport INFINITY, floor, isnan

#: Rows of the state. SINCE: when progress was last counted; RESUME: when it (re)starts; STUCK: failures since progress
#: was last kept; USEFUL: node-seconds of the work done at full efficiency; LEAST_SPEED: per node on the least nodes;
#: CROWD_THEN, CROWD: integral of the jobs in the cluster, at arrival and end; GOAL: work done at the end of the phase,
#: at most TRUE; FINISH: when that will be.
cpdef enum:
    DONE, SINCE, RESUME, SPEED, NODES, FINISH, START, END, ATTAINED, USEFUL
    TRUE, LEAST_SPEED, RESTARTS, FAILURES, STUCK, CROWD_THEN, CROWD, GOAL


def fresh(steps):
    """The state of jobs with so many steps of work before they arrive, shape (fields, jobs)."""
    state = np.zeros((GOAL + 1, len(steps)))
    state[FINISH] = np.inf
    state[[START, END]] = np.nan
    state[TRUE] = steps
    return state


cpdef void accrue(double[:, ::1] state, const long[:] jobs, double now):
    """Count progress and service of these jobs up to ``now``."""
    for k in range(len(jobs)):
        j = jobs[k]
        nodes, since = state[NODES, j], state[SINCE, j]
        if nodes > 0:
            steps = state[SPEED, j] * max(now - max(state[RESUME, j], since), 0.0)
            state[DONE, j] += steps
            state[ATTAINED, j] += nodes * (now - since)
            state[USEFUL, j] += steps / state[LEAST_SPEED, j]
        state[SINCE, j] = now


def change(
    double[:, ::1] state, const long[:] jobs, const double[:] nodes, const double[:] speeds, double now,
    double start_seconds, double restart_seconds
):
    """Give these jobs so many nodes, on which they run so fast; what was done until ``now`` is kept."""
    accrue(state, jobs, now)
    for k in range(len(jobs)):
        j = jobs[k]
        state[NODES, j] = nodes[k]
        state[SPEED, j] = speeds[k]
        state[STUCK, j] = 0
        if nodes[k] == 0:
            state[FINISH, j] = INFINITY
            continue
        if isnan(state[START, j]):
            state[START, j] = now
            state[RESUME, j] = now + start_seconds
        else:
            state[RESTARTS, j] += 1
            state[RESUME, j] = now + restart_seconds
        state[FINISH, j] = state[RESUME, j] + max(state[GOAL, j] - state[DONE, j], 0.0) / speeds[k]


def end(double[:, ::1] state, const long[:] jobs, double now, double crowding):
    """These jobs have ended."""
    accrue(state, jobs, now)
    for k in range(len(jobs)):
        j = jobs[k]
        state[DONE, j] = state[TRUE, j]
        state[END, j] = now
        state[NODES, j] = state[SPEED, j] = 0.0
        state[FINISH, j] = INFINITY
        state[CROWD, j] = crowding


def left(const double[:, ::1] state, const double[:] steps, const long[:] jobs, double now):
    """Steps left of each job at ``now``, of so many in all; more than 0, shape (jobs,)."""
    cdef double[::1] rest = np.empty(len(jobs))
    cdef double running
    for k in range(len(jobs)):
        j = jobs[k]
        running = max(now - max(state[RESUME, j], state[SINCE, j]), 0.0)
        rest[k] = max(steps[j] - state[DONE, j] - state[SPEED, j] * running, steps[j] * 1e-12)
    return rest.base


def hand_out(
    const double[:, :] values, const long[:, :] following, const long[:] row, const double[:] weight, long nodes
):
    """Node after node, up to the ``following`` corner, to the job whose next one is worth most and which that fits."""
    cdef long[::1] granted = np.zeros(len(row), np.int64)
    cdef double[::1] worth = np.empty(len(row))
    for j in range(len(row)):
        worth[j] = values[row[j], 0] * weight[j]
    cdef long left = nodes
    while left > 0:
        j = 0
        for i in range(1, len(worth)):
            if worth[i] > worth[j]:
                j = i
        if worth[j] <= 0:
            break
        n = following[row[j], granted[j]]
        if n - granted[j] > left:
            worth[j] = 0.0
            continue
        left -= n - granted[j]
        granted[j] = n
        worth[j] = values[row[j], n] * weight[j] if n < values.shape[1] else 0.0
    return granted.base


def misfit(const long[:] jobs, const double[:] nodes, const long[:] least, const long[:] most):
    """Place of the first job whose number of nodes is neither 0 nor a whole one within its limits; -1: none."""
    for k in range(len(jobs)):
        j = jobs[k]
        if nodes[k] != 0 and not (least[j] <= nodes[k] <= most[j] and nodes[k] == floor(nodes[k])):
            return k
    return -1
