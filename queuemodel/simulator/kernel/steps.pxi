"""A worker's step: drawn from the recorded steps, and executed operation by operation."""

cdef void begin_step(CSteps steps, CState s, CRules rules, double now, long w, bitgen_t* rng) noexcept nogil:
    """Draw a recorded step for worker ``w``, reset its graph, and begin the operations without predecessors."""
    r = <long>(uniform(rng) * len(steps.pause))
    base, n = steps.first[r], steps.first[r + 1] - steps.first[r]
    if rules.unfairness > 0.0:
        for d in range(2):
            for k in range(s.flow_weight.shape[2]):
                s.flow_weight[d, w, k] = exp(rules.unfairness * normal(rng))  # lognormal weights of flows
    s.record[w] = r
    s.begun[w], s.seen[w], s.unfinished[w] = now, s.count[DONE], n
    s.fetched[w], s.pushed[w] = now, -1.0
    s.slow[w] = rules.slowdown[w]
    if rules.straggler_probability > 0.0 and uniform(rng) < rules.straggler_probability:
        s.slow[w] *= rules.straggler_slowdown
    for i in range(n):
        s.missing[w, i] = steps.degree[base + i]
        s.rank[w, i] = uniform(rng) if rules.shuffle and steps.kind[base + i] == FETCH else steps.rank[base + i]
    open_log(s, w)
    request = -1.0
    for i in range(n):
        if steps.degree[base + i] == 0:
            if steps.kind[base + i] == FETCH and not s.current[w]:
                request = now + steps.delay[base + i]
            elif steps.kind[base + i] == PUSH:
                set_timer(s, now + steps.delay[base + i], START, w, i)
            else:
                begin_operation(steps, s, rules, now, w, i)
    if request >= 0.0:
        set_timer(s, request, ASK, w, 0)


cdef void request_parameters(CSteps steps, CState s, CRules rules, double now, long w) noexcept nogil:
    """Queue all parameters without predecessors of worker ``w``'s step, before any flow chooses from its queue."""
    base = steps.first[s.record[w]]
    for i in range(steps.first[s.record[w] + 1] - base):
        if steps.degree[base + i] == 0 and steps.kind[base + i] == FETCH:
            s.ready[w, i, READY] = now
            s.left[w, i] = steps.size[base + i]
            s.backlog[0, w, steps.server[base + i]] += steps.size[base + i]
            enqueue(s, 0, w, steps.server[base + i], i)
    for k in range(s.serving.shape[2]):
        if s.serving[0, w, k] < 0 and s.queued[0, w, k]:
            serve_next(steps, s, rules, now, 0, w, k)


cdef void begin_operation(CSteps steps, CState s, CRules rules, double now, long w, long i) noexcept nogil:
    """Begin operation ``i`` of worker ``w``, whose predecessors have ended."""
    at = steps.first[s.record[w]] + i
    kind, k = steps.kind[at], steps.server[at]
    s.ready[w, i, READY] = now
    if kind == FETCH and s.current[w]:  # the parameters are there: a step repeated in its round
        s.ready[w, i, BEGIN] = now
        set_timer(s, now, FINISH, w, i)
        return
    if kind in (FETCH, PUSH):
        d = 0 if kind == FETCH else 1
        s.left[w, i] = steps.size[at]
        s.backlog[d, w, k] += steps.size[at]
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
    elif applies(steps, s, rules, w, at):
        start = max(start, s.server_free[k])  # a server's updates are first come first served
        s.server_free[k] = start + seconds
        s.applied[0] = max(s.applied[0], start + seconds)
        s.totals[PER_SERVER + 3 * k + 2] += seconds
    else:
        start, seconds = now, 0.0
    s.ready[w, i, BEGIN] = start
    set_timer(s, start + seconds, FINISH, w, i)


cdef void end_operation(CSteps steps, CState s, CRules rules, double now, long w, long i) noexcept nogil:
    """Account for an operation, and begin the successors whose last predecessor it is."""
    base = steps.first[s.record[w]]
    at = base + i
    if steps.kind[at] == FETCH:
        s.fetched[w] = now
        s.totals[PER_SERVER + 3 * steps.server[at]] += 0.0 if s.current[w] else steps.size[at]
    elif steps.kind[at] == PUSH:
        s.totals[PER_SERVER + 3 * steps.server[at] + 1] += steps.size[at]
    log(s, now, w, i)
    for e in range(steps.next_first[at], steps.next_first[at + 1]):
        j = steps.next[e]
        s.missing[w, j] -= 1
        if s.missing[w, j] == 0:
            if steps.delay[base + j] > 0.0 and steps.kind[base + j] in (FETCH, PUSH):
                set_timer(s, now + steps.delay[base + j], START, w, j)
            else:
                begin_operation(steps, s, rules, now, w, j)
    s.unfinished[w] -= 1
    if s.unfinished[w] == 0:
        end_step(steps, s, rules, now, w)


cdef void end_chunk(CSteps steps, CState s, CRules rules, double now, long d, long w, long k) noexcept nogil:
    """End a flow's chunk: its tensor has arrived, or queues again behind the others (round robin)."""
    i = s.serving[d, w, k]
    if s.left[w, i] > 0.0:
        enqueue(s, d, w, k, i)
    else:
        end_operation(steps, s, rules, now, w, i)
    serve_next(steps, s, rules, now, d, w, k)


cdef void open_log(CState s, long w) noexcept nogil:
    """Overwrite the oldest of worker ``w``'s kept steps with the step that begins."""
    slots = s.log_step.shape[1]
    if slots:
        slot = s.taken[w] % slots
        s.log_step[w, slot], s.log_record[w, slot] = s.taken[w], s.record[w]
        s.log_result[w, slot] = 0
        for i in range(s.log_times.shape[2]):
            s.log_times[w, slot, i, END] = -1.0


cdef void log(CState s, double now, long w, long i) noexcept nogil:
    slots = s.log_step.shape[1]
    if slots:
        slot = s.taken[w] % slots
        s.log_times[w, slot, i, READY], s.log_times[w, slot, i, BEGIN] = s.ready[w, i, READY], s.ready[w, i, BEGIN]
        s.log_times[w, slot, i, END] = now
