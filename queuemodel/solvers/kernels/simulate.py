"""The event loop of the network simulation.

Customers at delays, first-come-first-served stations and fork-joins know when they will leave as soon as they come, so
they wait in one heap; stations whose speed changes with every arrival (processor sharing, preemption, load-dependent
rates) tell their next departure, and the earliest of all is next.
"""

import numpy as np

from ...compiled import compiled

DELAY, FCFS, SHARING, LIFO, FORK, ORDERED = 0, 1, 2, 3, 4, 5
CONSTANT, EXPONENTIAL, GAMMA, HYPER, PHASES = 0, 1, 2, 3, 4


@compiled()
def draw(rng, kind, mean, shape, first, T):
    """A service time: kind, mean (s), shape parameter; T (n, n + 1) cumulative moves of phase types, last: the end."""
    if kind == EXPONENTIAL:
        return mean * rng.standard_exponential()
    if kind == CONSTANT:
        return mean
    if kind == GAMMA:
        return mean / shape * rng.standard_gamma(shape)
    if kind == HYPER:  # balanced means
        p = shape if rng.random() < shape else 1.0 - shape
        return mean / (2.0 * p) * rng.standard_exponential()
    u, phase, time = rng.random(), 0, 0.0
    while phase < len(first) - 1 and u > first[phase]:
        phase += 1
    while True:
        time += rng.standard_exponential() / T[phase, 0]
        u, j = rng.random(), 1
        while j < T.shape[1] - 1 and u > T[phase, j]:
            j += 1
        if j == T.shape[1] - 1:
            return time
        phase = j - 1


@compiled()
def push(times, who, size, time, customer):
    """Into a binary heap."""
    i = size
    while i > 0:
        up = (i - 1) // 2
        if times[up] <= time:
            break
        times[i], who[i] = times[up], who[up]
        i = up
    times[i], who[i] = time, customer


@compiled()
def pop(times, who, size):
    """The first leaves a binary heap of ``size``."""
    time, customer = times[size - 1], who[size - 1]
    last, i = size - 1, 0
    while True:
        child = 2 * i + 1
        if child >= last:
            break
        if child + 1 < last and times[child + 1] < times[child]:
            child += 1
        if times[child] >= time:
            break
        times[i], who[i] = times[child], who[child]
        i = child
    times[i], who[i] = time, customer


@compiled()
def run(rng, kind, servers, speed, dist, mean, shape, first, T, branch, branch_dist, branch_shape, go, place_of,
        class_of, batches, cycles, durations, areas, counts, busy):  # fmt: skip
    """One replication: ``batches`` batches of ``cycles`` departures each.

    go (C, K, C*K) holds cumulative probabilities of the next (class, place). Fills durations (B,), areas (B, K, C) of
    time-integrated queue lengths, counts (B, C) of departures and busy (B, K), the time somebody is there.
    """
    K, C = mean.shape
    N = len(place_of)
    n = np.zeros(K, dtype=np.int64)
    q = np.zeros((K, C), dtype=np.int64)
    heap_t, heap_i, heap_n = np.empty(N + 1), np.empty(N + 1, dtype=np.int64), 0
    most = 1
    for k in range(K):
        if kind[k] == FCFS:
            most = max(most, servers[k])
    free = np.zeros((K, max(most, branch.shape[1])))
    tag, order = np.empty((K, N + 1)), np.empty((K, N + 1), dtype=np.int64)
    clock, last = np.zeros(K), np.zeros(K)
    coming = np.full(K, np.inf)
    since = np.zeros((K, C))
    occupied = np.zeros(K)
    now, batch_start = 0.0, 0.0
    started, batch, done = 0, 0, 0
    while batch < batches:
        if started < N:
            customer, k = started, place_of[started]
            c = class_of[customer]
            started += 1
        else:
            at, when = -1, np.inf
            if heap_n > 0:
                when = heap_t[0]
            for s in range(K):
                if coming[s] < when:
                    at, when = s, coming[s]
            now = when
            if at < 0:
                customer = heap_i[0]
                pop(heap_t, heap_i, heap_n)
                heap_n -= 1
                k = place_of[customer]
            else:
                k = at
                clock[k] += (now - last[k]) * (speed[k, n[k]] / n[k] if kind[k] == SHARING else speed[k, n[k]])
                last[k] = now
                if kind[k] == SHARING:
                    customer = order[k, 0]
                    pop(tag[k], order[k], n[k])
                elif kind[k] == LIFO:
                    customer = order[k, n[k] - 1]
                else:
                    customer = order[k, 0]
                    for j in range(n[k] - 1):
                        order[k, j], tag[k, j] = order[k, j + 1], tag[k, j + 1]
            c = class_of[customer]
            areas[batch, k, c] += q[k, c] * (now - since[k, c])
            since[k, c] = now
            q[k, c] -= 1
            n[k] -= 1
            if n[k] == 0:
                busy[batch, k] += now - occupied[k]
            if at >= 0:
                if n[k] == 0:
                    coming[k] = np.inf
                elif kind[k] == SHARING:
                    coming[k] = now + max(tag[k, 0] - clock[k], 0.0) * n[k] / speed[k, n[k]]
                else:
                    clock[k] = 0.0
                    coming[k] = now + tag[k, n[k] - 1 if kind[k] == LIFO else 0] / speed[k, n[k]]
            counts[batch, c] += 1
            done += 1
            if done == cycles:
                for s in range(K):
                    for d in range(C):
                        areas[batch, s, d] += q[s, d] * (now - since[s, d])
                        since[s, d] = now
                    if n[s] > 0:
                        busy[batch, s] += now - occupied[s]
                        occupied[s] = now
                durations[batch] = now - batch_start
                batch_start = now
                batch += 1
                done = 0
                if batch == batches:
                    break
            u, j = rng.random(), 0
            while j < C * K - 1 and u > go[c, k, j]:
                j += 1
            c, k = j // K, j % K
            class_of[customer], place_of[customer] = c, k
        # the customer arrives at k as class c
        areas[batch, k, c] += q[k, c] * (now - since[k, c])
        since[k, c] = now
        if n[k] == 0:
            occupied[k] = now
        q[k, c] += 1
        if kind[k] == FORK:
            leave = now
            for b in range(branch.shape[1]):
                if branch[k, b] > 0.0:
                    task = draw(rng, branch_dist[k], branch[k, b], branch_shape[k], first[k, c], T[k, c])
                    end = max(now, free[k, b]) + task
                    free[k, b] = end
                    leave = max(leave, end)
            n[k] += 1
            push(heap_t, heap_i, heap_n, leave, customer)
            heap_n += 1
            continue
        work = draw(rng, dist[k, c], mean[k, c], shape[k, c], first[k, c], T[k, c])
        if kind[k] == DELAY:
            n[k] += 1
            push(heap_t, heap_i, heap_n, now + work, customer)
            heap_n += 1
        elif kind[k] == FCFS:
            n[k] += 1
            best = 0
            for m in range(1, servers[k]):
                if free[k, m] < free[k, best]:
                    best = m
            free[k, best] = max(now, free[k, best]) + work
            push(heap_t, heap_i, heap_n, free[k, best], customer)
            heap_n += 1
        elif kind[k] == SHARING:
            if n[k] > 0:
                clock[k] += (now - last[k]) * speed[k, n[k]] / n[k]
            else:
                clock[k] = 0.0
            last[k] = now
            push(tag[k], order[k], n[k], clock[k] + work, customer)
            n[k] += 1
            coming[k] = now + max(tag[k, 0] - clock[k], 0.0) * n[k] / speed[k, n[k]]
        else:  # one is served at a time, clock is what it has been given since it (re)started
            if n[k] > 0:
                served = n[k] - 1 if kind[k] == LIFO else 0
                clock[k] += (now - last[k]) * speed[k, n[k]]
                tag[k, served] = max(tag[k, served] - clock[k], 0.0)
            clock[k], last[k] = 0.0, now
            order[k, n[k]], tag[k, n[k]] = customer, work
            n[k] += 1
            coming[k] = now + tag[k, n[k] - 1 if kind[k] == LIFO else 0] / speed[k, n[k]]
    return now
