"""The event loop of a replication.

Departures from delays and first-come-first-served stations are known at arrival and wait in one heap; stations whose
speed changes with every arrival (sharing, preemption, rates) keep their next departure. The earliest is the next event.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.math cimport INFINITY, frexp
from numpy.random cimport bitgen_t
from numpy.random.c_distributions cimport random_standard_exponential, random_standard_gamma
from numpy.random.c_distributions cimport random_standard_uniform as uniform

cpdef enum:
    DELAY, FCFS, SHARING, LIFO, ORDERED
cpdef enum:  # gamma of shape 1 is exponential
    CONSTANT, GAMMA, PHASES
cpdef enum:  # `Run.counters`: customers that have begun, customers in the heap, the current batch, departures in it
    BEGUN, HEAP, BATCH, DONE
cpdef enum:  # `Run.clocks`: the time, and when the batch began
    NOW, BATCH_BEGAN
cpdef enum:  # bins of response times: in each of so many octaves, the first of 2**FIRST_OCTAVE seconds
    IN_OCTAVE = 128, OCTAVES = 50, FIRST_OCTAVE = -30


cdef double draw(
    bitgen_t* rng, long kind, double mean, double shape, const double[::1] first, const double[:, ::1] T
) noexcept nogil:
    """A service time: kind, mean (s), shape parameter; T (n, n + 1) cumulative moves of phase types, last: the end."""
    if kind == CONSTANT:
        return mean
    if kind == GAMMA:
        return mean / shape * random_standard_gamma(rng, shape)  # scv = 1 / shape
    cdef double u = uniform(rng), time = 0.0
    phase = 0
    while phase < len(first) - 1 and u > first[phase]:
        phase += 1
    while True:
        time += random_standard_exponential(rng) / T[phase, 0]  # sojourn in a phase: rate -T_ii
        u, j = uniform(rng), 1
        while j < T.shape[1] - 1 and u > T[phase, j]:
            j += 1
        if j == T.shape[1] - 1:
            return time
        phase = j - 1


cdef void count(long[::1] bins, double[::1] ends, double time) noexcept nogil:
    """Count a response time (s) in its bin, and keep the shortest and the longest."""
    cdef int octave
    share = frexp(time, &octave)  # time = share 2**octave, share in [1/2, 1)
    at = (octave - FIRST_OCTAVE) * IN_OCTAVE + <long>((2.0 * share - 1.0) * IN_OCTAVE)
    bins[min(max(at, 0), len(bins) - 1) if time > 0.0 else 0] += 1
    ends[0], ends[1] = min(ends[0], time), max(ends[1], time)


def advance(rng, model, run, long size, long most, long warm_up):
    """Simulate ``most`` departures, or until every batch has ``size``; count response times after ``warm_up`` batches.

    At the last place, thinking, the response time is that of the whole cycle.
    """
    cdef const long[::1] kind, servers, source
    cdef const long[:, ::1] dist
    cdef const double[:, ::1] speed, mean, shape
    cdef const double[:, :, ::1] first, go
    cdef const double[:, :, :, ::1] T
    cdef long[::1] place, klass, counters, n, heap_who
    cdef long[:, ::1] q, order, visits
    cdef long[:, :, ::1] responses
    cdef double[::1] clocks, heap_time, clock, last, coming, occupied, durations, arrived, left
    cdef double[:, ::1] free, tag, since, departures, busy
    cdef double[:, :, ::1] areas, ends
    cdef double now, when, leaves, work, u
    cdef long at, customer, k, c, j
    kind, servers, speed, dist, mean, shape, first, T, go, source = model
    place, klass, counters, clocks, n, q, heap_time, heap_who, free, tag, order, clock, last, coming, since, occupied, \
        durations, areas, departures, busy, visits, arrived, left, responses, ends = run  # fmt: skip
    K, C = q.shape[0], q.shape[1]
    begun, waiting, batch, done = counters[BEGUN], counters[HEAP], counters[BATCH], counters[DONE]
    bits = <bitgen_t*> PyCapsule_GetPointer(rng.bit_generator.capsule, "BitGenerator")
    now = clocks[NOW]
    for _ in range(most + len(place)):
        if batch == len(durations):
            break
        if begun < len(place):  # the start: an arrival without a departure
            customer = begun
            begun += 1
        else:
            at, when = -1, INFINITY
            if waiting > 0:
                when = heap_time[0]
            for s in range(K):
                if coming[s] < when:
                    at, when = s, coming[s]
            now = when
            if at < 0:
                customer = heap_who[0]
                pop(&heap_time[0], &heap_who[0], waiting)
                waiting -= 1
                k = place[customer]
            else:
                k = at
                clock[k] += (now - last[k]) * pace(kind[k], speed[k, n[k]], n[k])  # service of each customer in service
                last[k] = now
                if kind[k] == SHARING:
                    customer = order[k, 0]
                    pop(&tag[k, 0], &order[k, 0], n[k])
                elif kind[k] == LIFO:
                    customer = order[k, n[k] - 1]
                else:
                    customer = order[k, 0]
                    for j in range(n[k] - 1):
                        order[k, j], tag[k, j] = order[k, j + 1], tag[k, j + 1]
            c = klass[customer]
            areas[batch, k, c] += q[k, c] * (now - since[k, c])  # integral of the queue length
            since[k, c] = now
            q[k, c] -= 1
            n[k] -= 1
            if n[k] == 0:
                busy[batch, k] += now - occupied[k]
                coming[k] = INFINITY
            elif at >= 0:
                if kind[k] != SHARING:
                    clock[k] = 0.0
                coming[k] = now + first_out(kind[k], &tag[k, 0], clock[k], n[k]) / pace(kind[k], speed[k, n[k]], n[k])
            if k == K - 1:
                left[customer] = now
            elif batch >= warm_up:
                count(responses[k, c], ends[k, c], now - arrived[customer])
            departures[batch, c] += 1
            visits[k, c] += 1
            done += 1
            if done == size:  # the batch is full: close its integrals
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
            u, j = uniform(bits), 0  # inverse of the cumulative routing probabilities
            while j < C * K - 1 and u > go[c, k, j]:
                j += 1
            klass[customer], place[customer] = j // K, j % K
        k, c = place[customer], klass[customer]
        arrived[customer] = now
        if k == K - 1 and batch >= warm_up and left[customer] >= 0:
            count(responses[k, c], ends[k, c], now - left[customer])
        areas[batch, k, c] += q[k, c] * (now - since[k, c])
        since[k, c] = now
        if n[k] == 0:
            occupied[k] = now
        work = draw(bits, dist[k, c], mean[k, c], shape[k, c], first[k, c], T[k, c])
        leaves = now + work
        if kind[k] == FCFS:
            best = 0
            for m in range(1, servers[k]):
                if free[k, m] < free[k, best]:
                    best = m
            free[k, best] = max(now, free[k, best]) + work  # the server that is free first (Kiefer and Wolfowitz, 1955)
            leaves = free[k, best]
        elif k == K - 1 and source[c]:  # a source: arrivals one after the other
            free[k, c] = max(now, free[k, c]) + work
            leaves = free[k, c]
        if kind[k] in (FCFS, DELAY):
            push(&heap_time[0], &heap_who[0], waiting, leaves, customer)
            waiting += 1
        else:
            if n[k] > 0:
                clock[k] += (now - last[k]) * pace(kind[k], speed[k, n[k]], n[k])
            else:
                clock[k] = 0.0
            last[k] = now
            if kind[k] == SHARING:
                push(&tag[k, 0], &order[k, 0], n[k], clock[k] + work, customer)  # leaves at this virtual time
            else:  # a single customer in service; clock is the service since its (re)start
                if n[k] > 0:
                    served = n[k] - 1 if kind[k] == LIFO else 0
                    tag[k, served] = max(tag[k, served] - clock[k], 0.0)
                clock[k] = 0.0
                order[k, n[k]], tag[k, n[k]] = customer, work
            more = n[k] + 1
            coming[k] = now + first_out(kind[k], &tag[k, 0], clock[k], more) / pace(kind[k], speed[k, more], more)
        q[k, c] += 1
        n[k] += 1
    counters[BEGUN], counters[HEAP], counters[BATCH], counters[DONE] = begun, waiting, batch, done
    clocks[NOW] = now


cdef double pace(long kind, double speed, long n) noexcept nogil:
    """Seconds of service per second of each customer in service: mu(n) / n when shared."""
    return speed / n if kind == SHARING else speed


cdef double first_out(long kind, double* tag, double clock, long n) noexcept nogil:
    """Remaining service of the next departure without another arrival."""
    if kind == SHARING:
        return max(tag[0] - clock, 0.0)
    return tag[n - 1] if kind == LIFO else tag[0]


cdef void push(double* times, long* who, long size, double time, long customer) noexcept nogil:
    i = size
    while i > 0:
        up = (i - 1) // 2
        if times[up] <= time:
            break
        times[i], who[i] = times[up], who[up]
        i = up
    times[i], who[i] = time, customer


cdef void pop(double* times, long* who, long size) noexcept nogil:
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
