"""Tensors that wait on a connection, and the one that it carries."""

from __future__ import annotations

import numpy as np

from .compiler import fast
from .heap import heap_pop, heap_push
from .memory import forget
from .state import BEGIN, FLOWS, PER_SERVER, SEQUENCE
from .windows import restart


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
        else:
            forget(s, d, w, k)
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
