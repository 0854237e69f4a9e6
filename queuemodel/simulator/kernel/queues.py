"""What waits: timers, and tensors on each connection, in heaps of three arrays by (key, sequence): ties in order."""

from __future__ import annotations

import numpy as np

from .compiler import fast
from .state import BEGIN, FLOWS, PER_SERVER, SEQUENCE, TIMERS
from .windows import restart


@fast
def _precedes(key, sequence, i, j):
    return key[i] < key[j] or (key[i] == key[j] and sequence[i] < sequence[j])


@fast
def _swap(key, sequence, value, i, j):
    key[i], key[j] = key[j], key[i]
    sequence[i], sequence[j] = sequence[j], sequence[i]
    value[i], value[j] = value[j], value[i]


@fast
def heap_push(key, sequence, value, base, n, new_key, new_sequence, new_value):
    i = n
    key[base + i], sequence[base + i], value[base + i] = new_key, new_sequence, new_value
    while i and _precedes(key, sequence, base + i, base + (i - 1) // 2):
        _swap(key, sequence, value, base + i, base + (i - 1) // 2)
        i = (i - 1) // 2


@fast
def heap_pop(key, sequence, value, base, n):
    n -= 1
    _swap(key, sequence, value, base, base + n)
    i = 0
    while True:
        child = 2 * i + 1
        if child >= n:
            return value[base + n]
        if child + 1 < n and _precedes(key, sequence, base + child + 1, base + child):
            child += 1
        if not _precedes(key, sequence, base + child, base + i):
            return value[base + n]
        _swap(key, sequence, value, base + i, base + child)
        i = child


@fast
def set_timer(s, when, kind, w, i):
    value = (kind * len(s.step) + w) * s.missing.shape[1] + i
    n = s.count[TIMERS]
    heap_push(s.timer_time, s.timer_sequence, s.timer_value, 0, n, when, s.count[SEQUENCE], value)
    s.count[TIMERS] += 1
    s.count[SEQUENCE] += 1


@fast
def next_timer(s):
    """Take the earliest timer away; returns its kind, worker and operation."""
    value = heap_pop(s.timer_time, s.timer_sequence, s.timer_value, 0, s.count[TIMERS])
    s.count[TIMERS] -= 1
    W, limit = s.missing.shape
    return value // limit // W, value // limit % W, value % limit


@fast
def queue_base(s, d, w, k):
    """Where a flow's queue begins in the arrays of all queues."""
    _, W, K = s.queued.shape
    return ((d * W + w) * K + k) * s.missing.shape[1]


@fast
def enqueue(s, d, w, k, i):
    n, rank, base = s.queued[d, w, k], s.rank[w, i], queue_base(s, d, w, k)
    heap_push(s.queue_rank, s.queue_sequence, s.queue_op, base, n, rank, s.count[SEQUENCE], i)
    s.count[SEQUENCE] += 1
    s.queued[d, w, k] = n + 1


@fast
def serve_next(steps, s, rules, now, d, w, k):
    """Begin the next chunk of a flow that has just fallen idle, if anything waits."""
    n = s.queued[d, w, k]
    if n == 0:
        s.serving[d, w, k] = -1
        s.idle_since[d, w, k] = now
        s.finish[d, w, k] = np.inf
        s.dirty[d] = FLOWS
        return
    i = heap_pop(s.queue_rank, s.queue_sequence, s.queue_op, queue_base(s, d, w, k), n)
    s.queued[d, w, k] = n - 1
    if s.serving[d, w, k] < 0:
        s.dirty[d] = FLOWS
        if rules.kept > 0.0:
            restart(s, rules, now, d, w, k)
    s.serving[d, w, k] = i
    size = min(s.left[w, i], rules.chunk)
    if s.left[w, i] == steps.size[steps.first[s.record[w]] + i]:
        s.ready[w, i, BEGIN] = now
    s.left[w, i] -= size
    s.backlog[d, w, k] -= size
    s.chunk_left[d, w, k] = size
    s.since[d, w, k] = now
    if not s.dirty[d]:
        s.finish[d, w, k] = now + size / s.rate[d, w, k]


@fast
def give_up(steps, s, rules, now, d, w, k):
    """Empty a flow; what it has carried of tensors that never arrive counts as sent."""
    base, queue, sent = steps.first[s.record[w]], queue_base(s, d, w, k), 0.0
    for n in range(s.queued[d, w, k]):
        i = s.queue_op[queue + n]
        sent += steps.size[base + i] - s.left[w, i]
    s.queued[d, w, k] = 0
    s.backlog[d, w, k] = 0.0
    i = s.serving[d, w, k]
    if i >= 0:
        rest = s.chunk_left[d, w, k] - s.rate[d, w, k] * (now - s.since[d, w, k])
        sent += steps.size[base + i] - s.left[w, i] - max(0.0, rest)
        serve_next(steps, s, rules, now, d, w, k)
    s.totals[PER_SERVER + 3 * k + d] += sent
