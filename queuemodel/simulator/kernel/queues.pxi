"""Timers, and each connection's queue of tensors, as binary heaps of three arrays by (key, sequence): ties in order."""

cdef bint _precedes(double* key, long* sequence, long i, long j) noexcept nogil:
    return key[i] < key[j] or (key[i] == key[j] and sequence[i] < sequence[j])


cdef void _swap(double* key, long* sequence, long* value, long i, long j) noexcept nogil:
    key[i], key[j] = key[j], key[i]
    sequence[i], sequence[j] = sequence[j], sequence[i]
    value[i], value[j] = value[j], value[i]


cdef void heap_push(
    double* key, long* sequence, long* value, long n, double new_key, long new_sequence, long new_value
) noexcept nogil:
    i = n
    key[i], sequence[i], value[i] = new_key, new_sequence, new_value
    while i and _precedes(key, sequence, i, (i - 1) // 2):
        _swap(key, sequence, value, i, (i - 1) // 2)
        i = (i - 1) // 2


cdef long heap_pop(double* key, long* sequence, long* value, long n) noexcept nogil:
    n -= 1
    _swap(key, sequence, value, 0, n)
    i = 0
    while True:
        child = 2 * i + 1
        if child >= n:
            return value[n]
        if child + 1 < n and _precedes(key, sequence, child + 1, child):
            child += 1
        if not _precedes(key, sequence, child, i):
            return value[n]
        _swap(key, sequence, value, i, child)
        i = child


cdef void set_timer(CState s, double when, long kind, long w, long i) noexcept nogil:
    value = (kind * len(s.step) + w) * s.missing.shape[1] + i
    n = s.count[TIMERS]
    heap_push(&s.timer_time[0], &s.timer_sequence[0], &s.timer_value[0], n, when, s.count[SEQUENCE], value)
    s.count[TIMERS] += 1
    s.count[SEQUENCE] += 1


cdef (long, long, long) next_timer(CState s) noexcept nogil:
    """Remove the earliest timer; returns its kind, worker and operation."""
    value = heap_pop(&s.timer_time[0], &s.timer_sequence[0], &s.timer_value[0], s.count[TIMERS])
    s.count[TIMERS] -= 1
    W, limit = s.missing.shape[0], s.missing.shape[1]
    return value // limit // W, value // limit % W, value % limit  # value = (kind W + w) limit + i


cdef long queue_base(CState s, long d, long w, long k) noexcept nogil:
    """First index of a flow's queue in the arrays of all queues."""
    W, K = s.queued.shape[1], s.queued.shape[2]
    return ((d * W + w) * K + k) * s.missing.shape[1]


cdef void enqueue(CState s, long d, long w, long k, long i) noexcept nogil:
    n, rank, base = s.queued[d, w, k], s.rank[w, i], queue_base(s, d, w, k)
    heap_push(&s.queue_rank[base], &s.queue_sequence[base], &s.queue_op[base], n, rank, s.count[SEQUENCE], i)
    s.count[SEQUENCE] += 1
    s.queued[d, w, k] = n + 1


cdef void serve_next(CSteps steps, CState s, CRules rules, double now, long d, long w, long k) noexcept nogil:
    """Begin the next chunk of a flow that has carried one, or leave it idle."""
    n = s.queued[d, w, k]
    if n == 0:
        s.serving[d, w, k] = -1
        s.idle_since[d, w, k] = now
        s.finish[d, w, k] = INFINITY
        s.dirty[d] = FLOWS
        return
    base = queue_base(s, d, w, k)
    i = heap_pop(&s.queue_rank[base], &s.queue_sequence[base], &s.queue_op[base], n)
    s.queued[d, w, k] = n - 1
    if s.serving[d, w, k] < 0:
        s.dirty[d] = FLOWS
        if rules.kept > 0.0:
            restart_window(s, rules, now, d, w, k)
    s.serving[d, w, k] = i
    cdef double size = min(s.left[w, i], rules.chunk)
    if s.left[w, i] == steps.size[steps.first[s.record[w]] + i]:  # the tensor's first chunk
        s.ready[w, i, BEGIN] = now
    s.left[w, i] -= size
    s.backlog[d, w, k] -= size
    s.chunk_left[d, w, k] = size
    s.since[d, w, k] = now
    if not s.dirty[d]:  # else `reshare` sets it with the new rate
        s.finish[d, w, k] = now + size / s.rate[d, w, k]


cdef void cancel_transfers(CSteps steps, CState s, CRules rules, double now, long d, long w, long k) noexcept nogil:
    """Empty a flow; carried parts of its tensors count as sent."""
    cdef double sent = 0.0
    base, queue = steps.first[s.record[w]], queue_base(s, d, w, k)
    for n in range(s.queued[d, w, k]):
        i = s.queue_op[queue + n]
        sent += steps.size[base + i] - s.left[w, i]
    s.queued[d, w, k] = 0
    s.backlog[d, w, k] = 0.0
    i = s.serving[d, w, k]
    if i >= 0:
        unsent = s.chunk_left[d, w, k] - s.rate[d, w, k] * (now - s.since[d, w, k])
        sent += steps.size[base + i] - s.left[w, i] - max(0.0, unsent)
        serve_next(steps, s, rules, now, d, w, k)
    s.totals[PER_SERVER + 3 * k + d] += sent
