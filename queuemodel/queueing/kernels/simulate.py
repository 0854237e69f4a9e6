"""The event loop of the network simulation.

Customers at delays and first-come-first-served stations know when they will leave as soon as they come, so
they wait in one heap; stations whose speed changes with every arrival (processor sharing, preemption, load-dependent
rates) tell their next departure, and the earliest of all is next. What the loop works on is `Model`, what it changes is
`Run` (both made by `solvers.replication`), so that it can stop after any departure and go on later.
"""

from collections import namedtuple

import numpy as np

from ...base.compiled import compiled

DELAY, FCFS, SHARING, LIFO, ORDERED = range(5)
CONSTANT, EXPONENTIAL, GAMMA, PHASES = range(4)

#: Per place (K; the last is for thinking) and class (C): kind, servers, speed with n customers; of service the kind of
#: distribution, mean, shape parameter, and of phase types cumulative first phases and moves; go (C, K, C*K), cumulative
#: probabilities of the next class and place.
Model = namedtuple("Model", "kind servers speed dist mean shape first T go")

#: Customers' place and klass; counters and clocks; per place customers there (q: by class), when its servers are free,
#: what remains of whose service and since when; and, for each batch, time, areas under queues, departures, time in use.
Run = namedtuple(
    "Run",
    "place klass counters clocks n q heap_time heap_who free tag order clock last coming since occupied "
    "durations areas departures busy visits",
)
#: `Run.counters`: customers that have begun, customers in the heap, the current batch, departures in it.
BEGUN, HEAP, BATCH, DONE = range(4)
#: `Run.clocks`: the time, and when the batch began.
NOW, BATCH_BEGAN = range(2)


@compiled()
def draw(rng, kind, mean, shape, first, T):
    """A service time: kind, mean (s), shape parameter; T (n, n + 1) cumulative moves of phase types, last: the end."""
    if kind == EXPONENTIAL:
        return mean * rng.standard_exponential()
    if kind == CONSTANT:
        return mean
    if kind == GAMMA:
        return mean / shape * rng.standard_gamma(shape)
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
def advance(rng, model, run, size, most):
    """Go on for ``most`` departures, or until every batch has its ``size`` departures."""
    # taken apart once: reaching into the tuples in the loop would count references, ten times slower
    kind, servers, speed, dist, mean, shape, first, T, go = model
    place, klass, counters, clocks, n, q, heap_time, heap_who, free, tag, order, clock, last, coming, since, occupied, \
        durations, areas, departures, busy, visits = run  # fmt: skip
    K, C = q.shape
    begun, waiting, batch, done = counters
    now = clocks[NOW]
    for _ in range(most + len(place)):
        if batch == len(durations):
            break
        if begun < len(place):
            customer = begun
            begun += 1
        else:
            at, when = -1, np.inf
            if waiting > 0:
                when = heap_time[0]
            for s in range(K):
                if coming[s] < when:
                    at, when = s, coming[s]
            now = when
            if at < 0:
                customer = heap_who[0]
                pop(heap_time, heap_who, waiting)
                waiting -= 1
                k = place[customer]
            else:
                k = at
                clock[k] += (now - last[k]) * pace(kind[k], speed[k, n[k]], n[k])
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
            c = klass[customer]
            areas[batch, k, c] += q[k, c] * (now - since[k, c])
            since[k, c] = now
            q[k, c] -= 1
            n[k] -= 1
            if n[k] == 0:
                busy[batch, k] += now - occupied[k]
                coming[k] = np.inf
            elif at >= 0:
                if kind[k] != SHARING:
                    clock[k] = 0.0
                coming[k] = now + first_out(kind[k], tag[k], clock[k], n[k]) / pace(kind[k], speed[k, n[k]], n[k])
            departures[batch, c] += 1
            visits[k, c] += 1
            done += 1
            if done == size:
                for s in range(K):
                    for d in range(C):
                        areas[batch, s, d] += q[s, d] * (now - since[s, d])
                        since[s, d] = now
                    if n[s] > 0:
                        busy[batch, s] += now - occupied[s]
                        occupied[s] = now
                durations[batch] = now - clocks[BATCH_BEGAN]
                clocks[BATCH_BEGAN] = now
                batch += 1
                done = 0
            u, j = rng.random(), 0
            while j < C * K - 1 and u > go[c, k, j]:
                j += 1
            klass[customer], place[customer] = j // K, j % K
        k, c = place[customer], klass[customer]
        areas[batch, k, c] += q[k, c] * (now - since[k, c])
        since[k, c] = now
        if n[k] == 0:
            occupied[k] = now
        work = draw(rng, dist[k, c], mean[k, c], shape[k, c], first[k, c], T[k, c])
        leaves = now + work
        if kind[k] == FCFS:
            best = 0
            for m in range(1, servers[k]):
                if free[k, m] < free[k, best]:
                    best = m
            free[k, best] = max(now, free[k, best]) + work
            leaves = free[k, best]
        if kind[k] in (FCFS, DELAY):
            push(heap_time, heap_who, waiting, leaves, customer)
            waiting += 1
        else:
            if n[k] > 0:
                clock[k] += (now - last[k]) * pace(kind[k], speed[k, n[k]], n[k])
            else:
                clock[k] = 0.0
            last[k] = now
            if kind[k] == SHARING:
                push(tag[k], order[k], n[k], clock[k] + work, customer)
            else:  # one is served at a time, clock is what he has been given since he (re)started
                if n[k] > 0:
                    served = n[k] - 1 if kind[k] == LIFO else 0
                    tag[k, served] = max(tag[k, served] - clock[k], 0.0)
                clock[k] = 0.0
                order[k, n[k]], tag[k, n[k]] = customer, work
            more = n[k] + 1
            coming[k] = now + first_out(kind[k], tag[k], clock[k], more) / pace(kind[k], speed[k, more], more)
        q[k, c] += 1
        n[k] += 1
    counters[BEGUN], counters[HEAP], counters[BATCH], counters[DONE] = begun, waiting, batch, done
    clocks[NOW] = now


@compiled()
def pace(kind, speed, n):
    """Seconds of service per second that each of those in service gets."""
    return speed / n if kind == SHARING else speed


@compiled()
def first_out(kind, tag, clock, n):
    """What the next one to leave has still to be given, when nobody comes."""
    if kind == SHARING:
        return max(tag[0] - clock, 0.0)
    return tag[n - 1] if kind == LIFO else tag[0]


@compiled()
def push(times, who, size, time, customer):
    """Into a heap of ``size``."""
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
    """The first leaves a heap of ``size``."""
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
