"""The end of a step: what it adds to the totals, and, by the way of synchronizing, who may go on."""

cdef void end_step(CSteps steps, CState s, CRules rules, double now, long w) noexcept nogil:
    """Account for a step of worker ``w`` that is over, and let go whoever may go on."""
    s.taken[w] += 1
    if rules.drops:
        end_synchronous(steps, s, rules, now, w)
        return
    count_step(s, now, w)
    s.step[w] += 1
    if rules.bounded:
        end_bounded(steps, s, rules, now, w)
    elif rules.cuts:
        end_round(steps, s, rules, now, w)
    elif rules.gathers:
        end_group(steps, s, rules, now, w)
    else:
        go_on(steps, s, now, w)


cdef void end_synchronous(CSteps steps, CState s, CRules rules, double now, long w) noexcept nogil:
    """All go on when enough have delivered; what comes after that is dropped."""
    if s.step[w] < s.count[ROUND]:
        s.totals[DROPPED] += 1
        s.step[w] = s.count[ROUND]
        go_on(steps, s, now, w)
        return
    count_step(s, now, w)
    s.waiting[w] = True
    s.count[DELIVERED] += 1
    if s.count[DELIVERED] < rules.awaited:
        return
    s.count[DELIVERED] = 0
    s.count[ROUND] += 1
    s.gathered[:] = 0
    for v in range(len(s.step)):
        if s.waiting[v]:
            s.waiting[v] = False
            s.step[v] = s.count[ROUND]
            go_on(steps, s, max(now, s.applied[0]), v)


cdef void end_group(CSteps steps, CState s, CRules rules, double now, long w) noexcept nogil:
    """Who has delivered goes on when enough others have; nothing is dropped."""
    s.waiting[w] = True
    s.count[DELIVERED] += 1
    if s.count[DELIVERED] < rules.awaited:
        return
    s.count[DELIVERED] = 0
    for v in range(len(s.step)):
        if s.waiting[v]:
            s.waiting[v] = False
            go_on(steps, s, now, v)


cdef void end_round(CSteps steps, CState s, CRules rules, double now, long w) noexcept nogil:
    """All begin anew with the last awaited result; until then who delivers may use its parameters again."""
    s.current[w] = True
    s.count[DELIVERED] += 1
    if s.count[DELIVERED] < rules.awaited:
        if rules.repeats:
            go_on(steps, s, now, w)
        return
    s.count[DELIVERED] = 0
    s.gathered[:] = 0
    cut_short(steps, s, rules, now)
    for v in range(len(s.step)):
        s.current[v] = False
        go_on(steps, s, max(now, s.applied[0]), v)


cdef void cut_short(CSteps steps, CState s, CRules rules, double now) noexcept nogil:
    """End all unfinished steps; what they have computed and sent by now counts as work, and is lost."""
    while s.count[TIMERS]:
        end = s.timer_time[0]
        kind, w, i = next_timer(s)
        if kind == FINISH and steps.kind[steps.first[s.record[w]] + i] == COMPUTE:
            s.totals[BUSY] -= end - max(now, s.ready[w, i, BEGIN])
    for w in range(len(s.step)):
        if s.unfinished[w] == 0:
            continue
        s.totals[DROPPED] += s.begun[w] < now  # whose result comes at the same time has only just begun another
        s.unfinished[w] = 0
        for d in range(2):
            for k in range(s.serving.shape[2]):
                give_up(steps, s, rules, now, d, w, k)


cdef bint applies(CSteps steps, CState s, CRules rules, long w, long at) noexcept nogil:
    """Whether an update takes place: in a round or group once, when the last awaited gradient is there."""
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


cdef void end_bounded(CSteps steps, CState s, CRules rules, double now, long w) noexcept nogil:
    """Whoever is no further ahead of the slowest than allowed goes on."""
    s.waiting[w] = True
    slowest = s.step[0]
    for v in range(len(s.step)):
        slowest = min(slowest, s.step[v])
    for v in range(len(s.step)):
        if s.waiting[v] and s.step[v] <= slowest + rules.bound:
            s.waiting[v] = False
            go_on(steps, s, now, v)


cdef void go_on(CSteps steps, CState s, double now, long w) noexcept nogil:
    """Worker ``w``'s next step begins after its recorded pause, and the servers' answer has waited in their queues."""
    answer = 0.0
    for k in range(s.serving.shape[2]):
        answer = max(answer, standing(s, 0, w, k))
    set_timer(s, now + answer + steps.pause[s.record[w]], START_STEP, w, 0)


cdef void count_step(CState s, double now, long w) noexcept nogil:
    """Add a step to the totals, and keep these every so many steps: more seldom once there are too many."""
    s.lags[min(s.count[DONE] - s.seen[w], len(s.lags) - 1)] += 1
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
    if s.count[SNAPSHOTS] == len(s.snapshots):
        half = len(s.snapshots) // 2
        for row in range(half):
            for column in range(len(s.totals)):
                s.snapshots[row, column] = s.snapshots[2 * row + 1, column]
        s.count[SNAPSHOTS] = half
        s.count[STRIDE] *= 2
