"""The simulator's inner loop, compiled by numba when `simulate` first needs it (import it only there).

Workers, servers, recorded steps and their operations are numbered. A *flow* is one connection in one direction: flow
``[0, w, k]`` carries server ``k``'s parameters to worker ``w``, flow ``[1, w, k]`` the worker's gradients back.
Everything that changes lives in the arrays of a `State` (state.py), which the functions share.
"""

from __future__ import annotations

import numpy as np

from ..compiled import compiled
from .state import (
    ASYNC,
    BEGIN,
    BUSY,
    COMPUTE,
    DELIVERED,
    DONE,
    DROPPED,
    END,
    FETCH,
    FETCH_SPAN,
    LAG,
    LOGGED,
    PER_SERVER,
    PUSH,
    PUSH_SPAN,
    READY,
    ROUND,
    SEQUENCE,
    SNAPSHOTS,
    STEP_TIME,
    STEPS,
    STRIDE,
    SYNC,
    TIME,
    TIMERS,
)

#: Nothing here creates arrays, so nothing needs counted references, whose upkeep would double the time.
fast = compiled(error_model="numpy", _nrt=False)

# BBR (Cardwell et al., ACM Queue 2016): probes a quarter above its estimate once in eight round trips, and takes the
# largest rate of the last ten for its estimate
GAIN, CYCLE = 1.25, 8
FULL = 0.98  # a link's load from which on a queue stands before it
SHORT_TRIP = 5e-4  # seconds: a round trip when nothing queues
TICK = 0.02  # seconds between two looks at growing rates


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
    """Put an entry on the heap of ``n`` entries from index ``base`` on, ordered by (key, sequence)."""
    i = n
    key[base + i], sequence[base + i], value[base + i] = new_key, new_sequence, new_value
    while i and _precedes(key, sequence, base + i, base + (i - 1) // 2):
        _swap(key, sequence, value, base + i, base + (i - 1) // 2)
        i = (i - 1) // 2


@fast
def heap_pop(key, sequence, value, base, n):
    """Take the first of the heap's ``n`` entries away and return its value."""
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
def share(s, d, capped):
    """
    Weighted max-min fair rates of direction ``d`` by progressive filling (Bertsekas and Gallager 1992, 6.5.2).

    A flow's weight is its estimate of the bandwidth times its luck; when `capped`, it gets no more than its estimate.
    Notes each link's number of flows and its load: their estimates together, over its capacity.
    """
    _, W, K = s.serving.shape
    for link in range(K + W):
        s.left_over[link], s.wanted[link], s.load[d, link] = s.links[d, link], 0.0, 0.0
        s.flows[d, link] = s.unsettled[link] = 0
    for w in range(W):
        for k in range(K):
            s.rate[d, w, k] = 0.0
            if s.serving[d, w, k] >= 0:
                for link in (k, K + w):
                    s.wanted[link] += s.estimate[d, w, k] * s.luck[d, w, k]
                    s.load[d, link] += s.estimate[d, w, k] / s.links[d, link]
                    s.flows[d, link] += 1
                    s.unsettled[link] += 1
    while True:
        tightest, level = -1, np.inf
        for link in range(K + W):
            if s.unsettled[link] and s.left_over[link] < level * s.wanted[link] * (1 - 1e-12):
                tightest, level = link, s.left_over[link] / s.wanted[link]
        if tightest < 0:
            return
        below = False
        for w in range(W if capped else 0):
            for k in range(K):
                if s.serving[d, w, k] >= 0 and s.rate[d, w, k] == 0.0 and level * s.luck[d, w, k] >= 1.0:
                    below = True
                    settle(s, d, w, k, s.estimate[d, w, k])
        for w in range(0 if below else W):
            for k in range(K):
                if s.serving[d, w, k] >= 0 and s.rate[d, w, k] == 0.0 and tightest in (k, K + w):
                    settle(s, d, w, k, level * s.estimate[d, w, k] * s.luck[d, w, k])


@fast
def settle(s, d, w, k, rate):
    """Give a flow its rate, and take it off what its links have left."""
    s.rate[d, w, k] = max(rate, 1e-9 * s.links[d, k])  # rounding may leave a link less than nothing
    for link in (k, s.serving.shape[2] + w):
        s.left_over[link] -= rate
        weight = s.estimate[d, w, k] * s.luck[d, w, k]
        s.wanted[link] = max(1e-9 * weight, s.wanted[link] - weight)
        s.unsettled[link] -= 1


@fast
def queues(s, d, w, k):
    """
    Whether a queue stands at a full link on the way from sender to receiver in direction ``d``.

    At the sender's own link one flow is enough, at the receiver's it takes two: one alone has been slowed down before.
    """
    K = s.serving.shape[2]
    own, far = (k, K + w) if d == 0 else (K + w, k)
    return s.load[d, own] > FULL or (s.load[d, far] > FULL and s.flows[d, far] > 1)


@fast
def remember(s, rules, seconds, d):
    """
    Move each flow's estimate of its bandwidth, after `seconds` at its present rate, as BBR does.

    Once in eight round trips a flow sends a quarter more than its estimate, and what then arrives is its new estimate.
    Round trips are long while packets wait at a full link, and while their acknowledgements wait behind the data that
    goes the other way: a flow that has shared a link goes on at that rate for a while when it has it to itself.
    """
    _, W, K = s.serving.shape
    for w in range(W):
        for k in range(K):
            if s.rate[d, w, k] > 0.0:
                trip = SHORT_TRIP + rules.loaded_trip * (queues(s, d, w, k) + queues(s, 1 - d, w, k))
                estimate, link = s.estimate[d, w, k], min(s.links[d, k], s.links[d, K + w])
                probed = max(s.load[d, k], s.load[d, K + w]) + (GAIN - 1) * estimate / link
                s.estimate[d, w, k] = estimate * (GAIN / max(1.0, probed)) ** min(1.0, seconds / (CYCLE * trip))


@fast
def reshare(s, rules, now, d):
    """Bring the flows of direction ``d`` up to date and set their rates anew."""
    _, W, K = s.serving.shape
    remembers = rules.loaded_trip > 0.0
    if remembers:
        remember(s, rules, now - s.shared[d], d)
    s.shared[d] = now
    for w in range(W):
        for k in range(K):
            if s.serving[d, w, k] >= 0:
                s.chunk_left[d, w, k] -= s.rate[d, w, k] * (now - s.since[d, w, k])
            s.since[d, w, k] = now
    share(s, d, remembers)
    s.tick[d] = np.inf
    for w in range(W):
        for k in range(K):
            if s.serving[d, w, k] >= 0:
                s.finish[d, w, k] = now + max(0.0, s.chunk_left[d, w, k]) / s.rate[d, w, k]
                if remembers and s.estimate[d, w, k] < 0.999 * min(s.links[d, k], s.links[d, K + w]):
                    s.tick[d] = now + TICK
    s.dirty[d] = 0


@fast
def set_timer(s, when, value):
    n = s.count[TIMERS]
    heap_push(s.timer_time, s.timer_sequence, s.timer_value, 0, n, when, s.count[SEQUENCE], value)
    s.count[TIMERS] += 1
    s.count[SEQUENCE] += 1


@fast
def queue_base(s, d, w, k):
    """Where a flow's queue begins in the arrays of all queues."""
    _, W, K = s.queued.shape
    return ((d * W + w) * K + k) * s.missing.shape[1]


@fast
def serve_next(steps, s, rules, now, d, w, k):
    """Begin the next chunk of a flow that has just fallen idle, if anything waits."""
    n = s.queued[d, w, k]
    if n == 0:
        s.serving[d, w, k] = -1
        s.finish[d, w, k] = np.inf
        s.dirty[d] = 1
        return
    i = heap_pop(s.queue_rank, s.queue_sequence, s.queue_op, queue_base(s, d, w, k), n)
    s.queued[d, w, k] = n - 1
    if s.serving[d, w, k] < 0:
        s.dirty[d] = 1
    s.serving[d, w, k] = i
    size = min(s.left[w, i], rules.chunk)
    if s.left[w, i] == steps.size[steps.first[s.record[w]] + i]:
        s.ready[w, i, BEGIN] = now
    s.left[w, i] -= size
    s.chunk_left[d, w, k] = size
    s.since[d, w, k] = now
    if not s.dirty[d]:
        s.finish[d, w, k] = now + size / s.rate[d, w, k]


@fast
def enqueue(s, d, w, k, i):
    n, rank, base = s.queued[d, w, k], s.rank[w, i], queue_base(s, d, w, k)
    heap_push(s.queue_rank, s.queue_sequence, s.queue_op, base, n, rank, s.count[SEQUENCE], i)
    s.count[SEQUENCE] += 1
    s.queued[d, w, k] = n + 1


@fast
def begin(steps, s, rules, now, w, i):
    """Begin operation ``i`` of worker ``w``, all that it waits for being there."""
    at = steps.first[s.record[w]] + i
    kind, k = steps.kind[at], steps.server[at]
    s.ready[w, i, READY] = now
    if kind in (FETCH, PUSH):
        d = 0 if kind == FETCH else 1
        s.left[w, i] = steps.size[at]
        if kind == PUSH and s.pushed[w] < 0:
            s.pushed[w] = now
        enqueue(s, d, w, k, i)
        if s.serving[d, w, k] < 0:
            serve_next(steps, s, rules, now, d, w, k)
        return
    start, seconds = now + steps.delay[at], steps.duration[at]
    if kind == COMPUTE:
        seconds *= s.slow[w]
        s.totals[BUSY] += seconds
    else:
        start = max(start, s.server_free[k])
        s.server_free[k] = start + seconds
        s.totals[PER_SERVER + 3 * k + 2] += seconds
    s.ready[w, i, BEGIN] = start
    set_timer(s, start + seconds, 2 * (w * s.missing.shape[1] + i))


@fast
def count_step(s, now, w):
    """Add a step to the totals, and every so many steps keep the totals; fewer of them when there are too many."""
    lag = s.count[DONE] - s.seen[w]
    s.count[DONE] += 1
    s.totals[TIME], s.totals[STEPS] = now, s.count[DONE]
    s.totals[STEP_TIME] += now - s.begun[w]
    s.totals[FETCH_SPAN] += s.fetched[w] - s.begun[w]
    s.totals[PUSH_SPAN] += now - s.pushed[w] if s.pushed[w] >= 0 else 0.0
    s.totals[LAG] += lag
    s.lags[min(lag, len(s.lags) - 1)] += 1
    if s.count[DONE] % s.count[STRIDE]:
        return
    for column in range(len(s.totals)):
        s.snapshots[s.count[SNAPSHOTS], column] = s.totals[column]
    s.count[SNAPSHOTS] += 1
    if s.count[SNAPSHOTS] == len(s.snapshots):
        half = len(s.snapshots) // 2
        for row in range(half):
            for column in range(len(s.totals)):
                s.snapshots[row, column] = s.snapshots[2 * row + 1, column]
        s.count[SNAPSHOTS] = half
        s.count[STRIDE] *= 2


@fast
def end_step(steps, s, rules, now, w):
    """Account for a step of worker ``w`` that is over, and let go whoever may go on."""
    pause = steps.pause[s.record[w]]
    W = len(s.step)
    first = 2 * s.missing.size  # timer values from here on begin steps
    s.taken[w] += 1
    if rules.mode == SYNC and s.step[w] < s.count[ROUND]:  # too late: its gradients are dropped
        s.totals[DROPPED] += 1
        s.step[w] = s.count[ROUND]
        set_timer(s, now + pause, first + w)
        return
    count_step(s, now, w)
    s.waiting[w] = True
    if rules.mode == SYNC:
        s.count[DELIVERED] += 1
        if s.count[DELIVERED] < W - rules.backup:
            return
        s.count[DELIVERED] = 0
        s.count[ROUND] += 1
        allowed, pause = s.count[ROUND], pause + rules.apply
    else:
        s.step[w] += 1
        if rules.mode == ASYNC:
            s.waiting[w] = False
            set_timer(s, now + pause, first + w)
            return
        slowest = s.step[0]
        for v in range(W):
            slowest = min(slowest, s.step[v])
        allowed = slowest + rules.bound
    for v in range(W):
        if s.waiting[v] and (rules.mode == SYNC or s.step[v] <= allowed):
            s.waiting[v] = False
            if rules.mode == SYNC:
                s.step[v] = allowed
            set_timer(s, now + pause, first + v)


@fast
def finish(steps, s, rules, now, w, i):
    """End operation ``i`` of worker ``w`` and begin what waited for it."""
    base = steps.first[s.record[w]]
    at = base + i
    if steps.kind[at] == FETCH:
        s.fetched[w] = now
        s.totals[PER_SERVER + 3 * steps.server[at]] += steps.size[at]
    elif steps.kind[at] == PUSH:
        s.totals[PER_SERVER + 3 * steps.server[at] + 1] += steps.size[at]
    if rules.log_from <= s.taken[w] < rules.log_to and s.count[LOGGED] < len(s.log):
        row = s.count[LOGGED]
        s.log[row, 0], s.log[row, 1], s.log[row, 2], s.log[row, 3] = w, s.taken[w], s.record[w], i
        s.log_times[row, READY], s.log_times[row, BEGIN] = s.ready[w, i, READY], s.ready[w, i, BEGIN]
        s.log_times[row, END] = now
        s.count[LOGGED] += 1
    for e in range(steps.next_first[at], steps.next_first[at + 1]):
        j = steps.next[e]
        s.missing[w, j] -= 1
        if s.missing[w, j] == 0:
            if steps.delay[base + j] > 0.0 and steps.kind[base + j] in (FETCH, PUSH):
                set_timer(s, now + steps.delay[base + j], 2 * (w * s.missing.shape[1] + j) + 1)
            else:
                begin(steps, s, rules, now, w, j)
    s.unfinished[w] -= 1
    if s.unfinished[w] == 0:
        end_step(steps, s, rules, now, w)


@fast
def begin_step(steps, s, rules, now, w, rng):
    """Draw a recorded step for worker ``w`` and begin it."""
    r = int(rng.random() * len(steps.pause))
    base, n = steps.first[r], steps.first[r + 1] - steps.first[r]
    if rules.unfairness > 0.0:
        for d in range(2):
            for k in range(s.luck.shape[2]):
                s.luck[d, w, k] = np.exp(rules.unfairness * rng.standard_normal())
    s.record[w] = r
    s.begun[w], s.seen[w], s.unfinished[w] = now, s.count[DONE], n
    s.fetched[w], s.pushed[w] = now, -1.0
    s.slow[w] = rules.slowdown[w]
    if rules.straggler_probability > 0.0 and rng.random() < rules.straggler_probability:
        s.slow[w] *= rules.straggler_slowdown
    for i in range(n):
        s.missing[w, i] = steps.degree[base + i]
        s.rank[w, i] = rng.random() if rules.shuffle and steps.kind[base + i] == FETCH else steps.rank[base + i]
    asked = -1.0
    for i in range(n):
        if steps.degree[base + i] == 0:
            if steps.kind[base + i] == FETCH:
                asked = now + steps.delay[base + i]
            elif steps.kind[base + i] == PUSH:
                set_timer(s, now + steps.delay[base + i], 2 * (w * s.missing.shape[1] + i) + 1)
            else:
                begin(steps, s, rules, now, w, i)
    if asked >= 0.0:
        set_timer(s, asked, 2 * s.missing.size + len(s.step) + w)


@fast
def ask(steps, s, rules, now, w):
    """Queue the parameters that a step of worker ``w`` asks for at once; only then is their order chosen."""
    base = steps.first[s.record[w]]
    for i in range(steps.first[s.record[w] + 1] - base):
        if steps.degree[base + i] == 0 and steps.kind[base + i] == FETCH:
            s.ready[w, i, READY] = now
            s.left[w, i] = steps.size[base + i]
            enqueue(s, 0, w, steps.server[base + i], i)
    for k in range(s.serving.shape[2]):
        if s.serving[0, w, k] < 0 and s.queued[0, w, k]:
            serve_next(steps, s, rules, now, 0, w, k)


@fast
def end_chunk(steps, s, rules, now, d, w, k):
    """A flow has carried its chunk: the tensor is there, or queues again behind the others."""
    i = s.serving[d, w, k]
    if s.left[w, i] > 0.0:
        enqueue(s, d, w, k, i)
    else:
        finish(steps, s, rules, now, w, i)
    serve_next(steps, s, rules, now, d, w, k)


@fast
def earliest(times):
    first = 0
    for i in range(1, len(times)):
        if times[i] < times[first]:
            first = i
    return first


@fast
def run(steps, s, rules, rng, target):
    """Go on until ``target`` steps are done (counted from the state's start)."""
    limit, W, K = s.missing.shape[1], s.serving.shape[1], s.serving.shape[2]
    now = 0.0
    while s.count[DONE] < target:
        flow = earliest(s.due)
        tick = 0 if s.tick[0] <= s.tick[1] else 1
        if s.tick[tick] < s.due[flow] and (s.count[TIMERS] == 0 or s.tick[tick] < s.timer_time[0]):
            now = s.tick[tick]
            s.dirty[tick] = 1
        elif s.count[TIMERS] and s.timer_time[0] <= s.due[flow]:
            now = s.timer_time[0]
            value = heap_pop(s.timer_time, s.timer_sequence, s.timer_value, 0, s.count[TIMERS])
            s.count[TIMERS] -= 1
            if value >= 2 * W * limit + W:
                ask(steps, s, rules, now, value - 2 * W * limit - W)
            elif value >= 2 * W * limit:
                begin_step(steps, s, rules, now, value - 2 * W * limit, rng)
            elif value % 2:
                begin(steps, s, rules, now, value // 2 // limit, value // 2 % limit)
            else:
                finish(steps, s, rules, now, value // 2 // limit, value // 2 % limit)
        else:
            now = s.due[flow]
            if now == np.inf:
                return False  # nothing can happen any more
            end_chunk(steps, s, rules, now, flow // (W * K), flow // K % W, flow % K)
        for d in range(2):
            if s.dirty[d]:
                reshare(s, rules, now, d)
    return True
