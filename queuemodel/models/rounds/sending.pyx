"""What a network sends when, event by event, for many rounds: gradients that fuse in cycles, slices by priority."""

import numpy as np

from libc.math cimport floor


def in_cycles(
    const double[:, :] ready, const double[:] phase, const double[:] sizes, double cap, double cycle,
    const double[:] volumes, const double[:] seconds
):
    """Begin and end (S, g) of each gradient's message; ``seconds`` (v,) are those of messages of ``volumes`` bytes.

    All gradients that are ready when a cycle begins go in messages of at most ``cap`` bytes, one after the other; the
    next cycle begins a ``cycle`` later, or when they are through.
    """
    S, g = ready.shape[0], ready.shape[1]
    cdef double[:, ::1] begin = np.empty((S, g)), end = np.empty((S, g))
    cdef double tick
    for s in range(S):
        tick, j = phase[s], 0
        while j < g:
            if ready[s, j] > tick:
                if cycle > 0:
                    tick += floor((ready[s, j] - tick) / cycle) * cycle
                    while tick < ready[s, j]:
                        tick += max(cycle, 1e-15 * tick)
                else:
                    tick = ready[s, j]
            now, known = tick, j
            while known < g and ready[s, known] <= tick:
                known += 1
            while j < known:
                last, volume = j + 1, sizes[j]
                while last < known and volume + sizes[last] <= cap:
                    volume += sizes[last]
                    last += 1
                begin[s, j:last] = now
                now += interpolated(volume, volumes, seconds)
                end[s, j:last] = now
                j = last
            # the next cycle: one period later, or when all messages are through
            tick = max(tick + cycle, now)
    return begin.base, end.base


cdef double interpolated(double x, const double[:] xs, const double[:] ys) noexcept nogil:
    """As `numpy.interp`; ``x`` is not below the first of ``xs``."""
    below, above = 0, len(xs)
    while above - below > 1:
        middle = (below + above) // 2
        if xs[middle] <= x:
            below = middle
        else:
            above = middle
    if above == len(xs) or xs[below] == x:
        return ys[below]
    return (ys[above] - ys[below]) / (xs[above] - xs[below]) * (x - xs[below]) + ys[below]


def by_priority(
    const double[:, :] ready, const long[:] first, const double[:] work, const double[:] wait, const double[:] sizes,
    double credit
):
    """Begin and end (S, g) of each gradient, cut into slices ``first[j]`` to ``first[j + 1]`` of sizes (u,).

    Whenever less than ``credit`` bytes are under way, the next slice of the gradient that was ready last is handed
    over; what was handed over is sent in that order, each slice ``wait`` seconds after it or later.
    """
    S, g = ready.shape[0], ready.shape[1]
    cdef double[:, ::1] begin = np.empty((S, g)), end = np.empty((S, g))
    cdef double[::1] under_way_until = np.empty(len(sizes)), under_way_bytes = np.empty(len(sizes))
    cdef long[::1] left = np.empty(g, np.int64), stack = np.empty(g, np.int64)
    cdef double now, free, outstanding
    for s in range(S):
        left[:] = first[:-1]
        released, height, head, tail = 0, 0, 0, 0
        now, free, outstanding = 0.0, 0.0, 0.0
        while released < g or height > 0:
            if height == 0:
                now = max(now, ready[s, released])
            # the gradient that was ready last is on top: it belongs to the first layers
            while released < g and ready[s, released] <= now:
                stack[height] = released
                released, height = released + 1, height + 1
            # give back the credit of what is through
            while head < tail and under_way_until[head] <= now:
                outstanding -= under_way_bytes[head]
                head += 1
            j = stack[height - 1]
            u = left[j]
            if head < tail and outstanding + sizes[u] > credit * (1 + 1e-12):
                now = under_way_until[head]
                if released < g:  # what comes before that may be small enough, or more urgent
                    now = min(now, ready[s, released])
                continue
            # u is on the wire when it was handed over a latency ago and the wire is free
            starts = max(free, now + wait[u])
            free = starts + work[u]
            if u == first[j]:
                begin[s, j] = now
            left[j] += 1
            if left[j] == first[j + 1]:
                end[s, j] = free
                height -= 1
            under_way_until[tail], under_way_bytes[tail] = free, sizes[u]
            outstanding, tail = outstanding + sizes[u], tail + 1
    return begin.base, end.base
