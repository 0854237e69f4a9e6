"""The end of a step: its totals, and the start of next steps by the rules of synchronization."""

cdef void end_step(CSteps steps, CState s, CRules rules, double now, long w) noexcept nogil:
    """Account for a finished step of worker ``w``, and start the steps that its result allows."""
    s.taken[w] += 1
    if rules.drops and s.step[w] < s.count[ROUND]:  # too late for its round
        s.totals[DROPPED] += 1
        s.step[w] = s.count[ROUND]
        start_next_step(steps, s, now, w)
        return
    count_step(s, now, w)
    s.step[w] += 1
    s.waiting[w] = True
    latest = LONG_MAX  # asynchronous: nobody else waits
    if rules.bounded:
        latest = s.step[0]
        for v in range(len(s.step)):
            latest = min(latest, s.step[v])
        latest += rules.bound  # bounded staleness: step <= slowest step + bound
    if rules.gathers:
        deliver(steps, s, rules, now, w)
    else:
        release(steps, s, now, latest)


cdef void deliver(CSteps steps, CState s, CRules rules, double now, long w) noexcept nogil:
    """End a round or group with its last awaited result; until then workers wait, or repeat with their parameters."""
    s.count[DELIVERED] += 1
    if s.count[DELIVERED] < rules.awaited:
        if rules.repeats:
            s.current[w], s.waiting[w] = True, False
            start_next_step(steps, s, now, w)
        return
    s.count[DELIVERED] = 0
    start = now
    if rules.drops or rules.cuts:  # a round: the next one begins with the updated parameters
        s.count[ROUND] += 1
        s.gathered[:] = 0
        start = max(now, s.applied[0])
    if rules.cuts:
        cut_short(steps, s, rules, now)
        s.current[:] = False
        s.waiting[:] = True
    release(steps, s, start, LONG_MAX)


cdef void release(CSteps steps, CState s, double now, long latest) noexcept nogil:
    """Start the next steps of waiting workers that have done ``latest`` steps or fewer."""
    for v in range(len(s.step)):
        if s.waiting[v] and s.step[v] <= latest:
            s.waiting[v] = False
            start_next_step(steps, s, now, v)


cdef void cut_short(CSteps steps, CState s, CRules rules, double now) noexcept nogil:
    """Cancel all unfinished steps; computed and sent parts count as work."""
    while s.count[TIMERS]:
        end = s.timer_time[0]
        kind, w, i = next_timer(s)
        if kind == FINISH and steps.kind[steps.first[s.record[w]] + i] == COMPUTE:
            s.totals[BUSY] -= end - max(now, s.ready[w, i, BEGIN])  # counted in advance at its begin
    for w in range(len(s.step)):
        if s.unfinished[w] == 0:
            continue
        s.totals[DROPPED] += s.begun[w] < now  # a step begun at this moment has lost nothing
        s.unfinished[w] = 0
        for d in range(2):
            for k in range(s.serving.shape[2]):
                cancel_transfers(steps, s, rules, now, d, w, k)


cdef bint applies(CSteps steps, CState s, CRules rules, long w, long at) noexcept nogil:
    """Whether an update takes place: once per round or group, at the last awaited gradient."""
    if not rules.gathers:
        return True
    if rules.drops and s.step[w] < s.count[ROUND]:
        return False
    s.gathered[steps.variable[at]] += 1
    if s.gathered[steps.variable[at]] != rules.awaited:
        return False
    if not (rules.drops or rules.cuts):
        s.gathered[steps.variable[at]] = 0
    return True


cdef void start_next_step(CSteps steps, CState s, double now, long w) noexcept nogil:
    """Set worker ``w``'s next start: after the queues before the servers' answer, and the recorded pause."""
    answer = 0.0
    for k in range(s.serving.shape[2]):
        answer = max(answer, queueing_delay(s, 0, w, k))
    set_timer(s, now + answer + steps.pause[s.record[w]], START_STEP, w, 0)


cdef void count_step(CState s, double now, long w) noexcept nogil:
    """Add a step to the totals, and keep a snapshot every `STRIDE` steps; the stride doubles when memory is full."""
    s.lags[min(s.count[DONE] - s.seen[w], len(s.lags) - 1)] += 1  # staleness: steps done between begin and end
    s.count[DONE] += 1
    slots = s.log_step.shape[1]
    if slots:
        s.log_result[w, (s.taken[w] - 1) % slots] = s.count[DONE]
    s.totals[TIME], s.totals[STEPS] = now, s.count[DONE]
    s.totals[STEP_TIME] += now - s.begun[w]
    s.totals[FETCH_SPAN] += s.fetched[w] - s.begun[w]
    s.totals[PUSH_SPAN] += now - s.pushed[w] if s.pushed[w] >= 0 else 0.0
    if s.count[DONE] % s.count[STRIDE]:
        return
    for column in range(len(s.totals)):
        s.snapshots[s.count[SNAPSHOTS], column] = s.totals[column]
    s.count[SNAPSHOTS] += 1
    if s.count[SNAPSHOTS] == len(s.snapshots):  # keep every second snapshot: totals add up
        half = len(s.snapshots) // 2
        for row in range(half):
            for column in range(len(s.totals)):
                s.snapshots[row, column] = s.snapshots[2 * row + 1, column]
        s.count[SNAPSHOTS] = half
        s.count[STRIDE] *= 2
