"""Connections' rates: weighted max-min fair, at most what their congestion control (windows) would send."""

cdef double TICK = 0.02  # seconds between updates of growing rates
cdef double PATIENCE = 10.0, LATER = 0.05  # after PATIENCE seconds of the same flows: LATER times the excess


cdef void set_offers(CState s, CRules rules, long d, bint remembers) noexcept nogil:
    """Set the rate that each flow would send at, before `reset_links` clears the loads that its packets wait behind."""
    W, K = s.serving.shape[1], s.serving.shape[2]
    for w in range(W):
        for k in range(K):
            s.offered[d, w, k] = s.estimate[d, w, k]
            if remembers and s.serving[d, w, k] >= 0:
                s.offered[d, w, k] = min(s.estimate[d, w, k], window_rate(s, rules, d, w, k))


cdef void fix_rate(CState s, long d, long i, double rate) noexcept nogil:
    """Fix the rate of the ``i``-th sending flow, and take it off its links' capacity."""
    w, k = s.sending[i, 0], s.sending[i, 1]
    s.rate[d, w, k] = max(rate, 1e-9 * s.links[d, k])  # rounding may leave a link less than nothing
    cdef long[2] links = [k, s.serving.shape[2] + w]
    for link in links:
        s.left_over[link] -= rate
        s.wanted[link] = max(1e-9 * s.weight[i], s.wanted[link] - s.weight[i])
        s.unsettled[link] -= 1


cdef long reset_links(CState s, long d) noexcept nogil:
    """Reset rates, links' capacity, weights and loads; returns the number of flows that send and are not silent."""
    W, K = s.serving.shape[1], s.serving.shape[2]
    for link in range(K + W):
        s.left_over[link], s.wanted[link], s.load[d, link] = s.links[d, link], 0.0, 0.0
        s.flows[d, link] = s.unsettled[link] = 0
    n = 0
    cdef long[2] links
    for w in range(W):
        for k in range(K):
            s.rate[d, w, k], s.limiting[d, w, k] = 0.0, -1
            if s.serving[d, w, k] >= 0 and s.silent[d, w, k] <= s.shared[d]:
                s.sending[n, 0], s.sending[n, 1] = w, k
                s.weight[n] = s.offered[d, w, k] * s.flow_weight[d, w, k]
                needed = s.offered[d, w, k] / s.trip[d, w, k]
                links[0], links[1] = k, K + w
                for link in links:
                    s.wanted[link] += s.weight[n]
                    s.load[d, link] += needed / s.links[d, link]  # offered load
                    s.flows[d, link] += 1
                    s.unsettled[link] += 1
                n += 1
    return n


cdef void share(CState s, long d, bint capped) noexcept nogil:
    """Weighted max-min fair rates of direction ``d`` by progressive filling (Bertsekas and Gallager, 1992, 6.5.2)."""
    W, K = s.serving.shape[1], s.serving.shape[2]
    n, offers = reset_links(s, d), capped
    while n:
        tightest, level = -1, INFINITY  # rate per weight that the tightest link can give: capacity left / weights
        for i in range(K + W):
            link = i if d == 0 else K + W - 1 - i  # of equal links the sender's limits the flow, so it comes first
            if s.unsettled[link] and s.left_over[link] < level * s.wanted[link] * (1 - 1e-12):
                tightest, level = link, s.left_over[link] / s.wanted[link]
        left = 0
        for i in range(n):
            w, k = s.sending[i, 0], s.sending[i, 1]
            if offers and level * s.flow_weight[d, w, k] * s.trip[d, w, k] >= 1.0:  # its fair rate exceeds its offer
                fix_rate(s, d, i, s.offered[d, w, k] / s.trip[d, w, k])
            elif not offers and tightest in (k, K + w):
                s.limiting[d, w, k] = tightest
                fix_rate(s, d, i, level * s.offered[d, w, k] * s.flow_weight[d, w, k])
            else:  # without a rate: moves up
                s.sending[left, 0], s.sending[left, 1], s.weight[left] = w, k, s.weight[i]
                left += 1
        offers = capped and not (offers and left == n)  # when no offer is below, the tightest link limits its flows
        n = left


cdef void reshare(CState s, CRules rules, double now, long d, bitgen_t* rng) noexcept nogil:
    """Advance the flows of direction ``d`` to ``now``, and set their new rates."""
    W, K = s.serving.shape[1], s.serving.shape[2]
    cdef bint windows = rules.kept > 0.0
    cdef bint remembers = rules.loaded_trip > 0.0 and not windows
    if windows:
        grow_windows(s, rules, now, now - s.shared[d], d, rng)
        set_round_trips(s, d)
    elif remembers:
        update_estimates(s, rules, now, now - s.shared[d], d, rng)
    if s.dirty[d] == FLOWS:
        s.same_since[d] = now
    s.shared[d] = now
    for w in range(W):
        for k in range(K):
            if s.serving[d, w, k] >= 0:
                s.chunk_left[d, w, k] -= s.rate[d, w, k] * (now - s.since[d, w, k])
            s.since[d, w, k] = now
    set_offers(s, rules, d, remembers)
    share(s, d, windows or remembers)
    if windows:
        set_queueing_delays(s, rules, d)
    s.tick[d] = INFINITY
    for w in range(W):
        for k in range(K):
            if s.serving[d, w, k] >= 0:
                if s.rate[d, w, k] > 0.0:
                    s.finish[d, w, k] = now + max(0.0, s.chunk_left[d, w, k]) / s.rate[d, w, k]
                else:
                    s.finish[d, w, k] = INFINITY
                    s.tick[d] = min(s.tick[d], s.silent[d, w, k])
                if windows or remembers:
                    s.tick[d] = min(s.tick[d], now + max(TICK, LATER * (now - s.same_since[d] - PATIENCE)))
    s.dirty[d] = 0
