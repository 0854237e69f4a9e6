"""A connection's bytes in flight: its congestion window (Reno, cubic), or what BBR's bandwidth estimate allows.

Below its threshold a window grows by the acknowledged bytes (slow start), then by a packet per round trip, or by less
where a loss takes less away, so that shares are equal (Floyd, Handley and Padhye 2000; RFC 9438, 4.3); cubic's own
curve is slower than that on short round trips. What the buffer of a full link cannot hold is lost, and a connection
that loses packets keeps a share of its window (RFC 5681). After an idle retransmission timeout it restarts in slow
start, with half of its window per timeout, at least ten packets (`tcp_slow_start_after_idle`).
"""

_NUMBERS = constants(__package__)
_BURSTS, _TRIPS, _BBR, _ACCIDENTS, _POLICED = (
    _NUMBERS[name] for name in ("bursts", "trips", "bbr", "accidents", "policed")
)
cdef double MIN_WINDOW = 2 * PACKET  # RFC 5681, 3.1
cdef double BURST = _BURSTS["burst"], SCARCE = _BURSTS["scarce"]
cdef double TIMEOUT = _TRIPS["timeout"], SHORT_TRIP = _TRIPS["short"]


cdef double queueing_delay(CState s, long d, long w, long k) noexcept nogil:
    """Seconds that packets wait on the way between worker ``w`` and server ``k`` in direction ``d``."""
    return s.standing[d, k] + s.standing[d, s.serving.shape[2] + w]


cdef double bytes_in_flight(CState s, long d, long w, long k) noexcept nogil:
    """The window, or all bytes that the connection has to send where that is less."""
    return min(s.estimate[d, w, k], s.chunk_left[d, w, k] + s.backlog[d, w, k])


cdef double growth(CState s, CRules rules, double seconds, long d, long w, long k) noexcept nogil:
    """Growth of a window in `seconds` at its rate, bytes; a window that is not filled does not grow (RFC 7661)."""
    acknowledged, window = s.rate[d, w, k] * seconds, s.estimate[d, w, k]
    if bytes_in_flight(s, d, w, k) < window:
        return 0.0
    if window < s.threshold[d, w, k]:
        return min(acknowledged, s.threshold[d, w, k] - window)  # slow start
    # AIMD: 3 (1 - b) / (1 + b) packets per window acknowledged, b the share kept at a loss (RFC 9438, 4.3)
    return 3 * (1 - rules.kept) / (1 + rules.kept) * PACKET * acknowledged / window


cdef void grow_windows(CState s, CRules rules, double now, double seconds, long d, bitgen_t* rng) noexcept nogil:
    """Change the windows of direction ``d`` after `seconds` at their rates.

    Where a buffer is full, growth is lost in bursts: far from the sender by the connection that grows, at the sender's
    link by all in proportion to their windows (the sender sees at once that there is no room), unless it is `SCARCE`.
    """
    cdef bint far, individual, full, timeout
    W, K = s.serving.shape[1], s.serving.shape[2]
    s.left_over[:], s.wanted[:] = 0.0, 0.0  # at senders' links: sum of growths, sum of windows
    for w in range(W):
        for k in range(K):
            near = k if d == 0 else K + w
            if s.rate[d, w, k] > 0.0 and s.limiting[d, w, k] == near:
                s.left_over[near] += growth(s, rules, seconds, d, w, k)
                s.wanted[near] += s.estimate[d, w, k]
    for w in range(W):
        for k in range(K):
            if s.rate[d, w, k] > 0.0:
                link, more = s.limiting[d, w, k], growth(s, rules, seconds, d, w, k)
                far = link != (k if d == 0 else K + w)  # true as well without a limiting link, -1: no index then
                individual = far or rules.loaded_trip * s.links[d, link] < SCARCE * PACKET * s.flows[d, link]
                lost = more if individual else s.left_over[link] * s.estimate[d, w, k] / s.wanted[link]
                full = link >= 0 and s.standing[d, link] >= rules.loaded_trip and now >= s.recovered[d, w, k]
                if full and uniform(rng) < 1 - exp(-lost / PACKET / BURST):  # bursts of BURST packets: Poisson
                    timeout = far and uniform(rng) < exp(-s.estimate[d, w, k] / PACKET / BURST)  # the whole window
                    lose_burst(s, rules, now, d, w, k, timeout)
                else:
                    s.estimate[d, w, k] += more


cdef void lose_burst(CState s, CRules rules, double now, long d, long w, long k, bint timeout) noexcept nogil:
    """Reduce a window after a loss: to a share of it, doubled by then in slow start, or one packet after a timeout."""
    trip = SHORT_TRIP + queueing_delay(s, 0, w, k) + queueing_delay(s, 1, w, k)
    window = s.estimate[d, w, k]
    if window < s.threshold[d, w, k]:
        window = min(2 * window, s.threshold[d, w, k])
    s.estimate[d, w, k] = s.threshold[d, w, k] = max(MIN_WINDOW, rules.kept * window)
    s.recovered[d, w, k] = now + trip  # one reduction per round trip
    if timeout:
        s.estimate[d, w, k] = PACKET
        s.silent[d, w, k] = s.recovered[d, w, k] = now + TIMEOUT + trip


cdef void set_round_trips(CState s, long d) noexcept nogil:
    """Set each flow's round trip without its queue: acknowledgements wait behind data of the other direction."""
    W, K = s.serving.shape[1], s.serving.shape[2]
    for w in range(W):
        for k in range(K):
            s.trip[d, w, k] = SHORT_TRIP + queueing_delay(s, 1 - d, w, k)


cdef void set_queueing_delays(CState s, CRules rules, long d) noexcept nogil:
    """Set packets' waits at each link: the windows' excess over rate times round trip, limited by the buffer."""
    W, K = s.serving.shape[1], s.serving.shape[2]
    for link in range(K + W):
        s.standing[d, link] = 0.0
    for w in range(W):
        for k in range(K):
            link = s.limiting[d, w, k]
            if s.serving[d, w, k] >= 0 and link >= 0:
                waiting = bytes_in_flight(s, d, w, k) - s.rate[d, w, k] * s.trip[d, w, k]  # Little's law
                s.standing[d, link] = min(rules.loaded_trip, s.standing[d, link] + max(0.0, waiting) / s.links[d, link])


cdef void restart_window(CState s, CRules rules, double now, long d, long w, long k) noexcept nogil:
    """Restart in slow start after idleness; a fetch's request and the first packets wait in the queues."""
    s.silent[d, w, k] = now + queueing_delay(s, 1, w, k) + (queueing_delay(s, 0, w, k) if d == 0 else 0.0)
    timeout = TIMEOUT + SHORT_TRIP + queueing_delay(s, 0, w, k) + queueing_delay(s, 1, w, k)
    halvings = floor((now - s.idle_since[d, w, k]) / timeout)
    if halvings >= 1:
        s.threshold[d, w, k] = max(s.threshold[d, w, k], rules.resumed * s.estimate[d, w, k])
        s.estimate[d, w, k] = max(min(FIRST, s.estimate[d, w, k]), s.estimate[d, w, k] * 0.5**halvings)
    s.idle_since[d, w, k] = now  # no longer idle: the begin of sending


cdef double GAIN = _BBR["gain"], CYCLE = _BBR["cycle"], MOST_CYCLES = 100.0
cdef double FULL = _BBR["full"], QUANTA = _BBR["quanta"], QUANTUM = _BBR["quantum"], MIN_QUANTUM = 2 * PACKET
cdef double AGGREGATION = _BBR["at_once"] * PACKET, ROUND_BYTES = _POLICED["flight"] * PACKET
cdef double LOSS_RATE = _ACCIDENTS["often"], MIN_BUFFER = _ACCIDENTS["fewest"], SINGLE = _ACCIDENTS["single"]
cdef double REPEATED_TIMEOUT = _ACCIDENTS["again"], POLICER_ROUNDS = _POLICED["lasts"]
cdef double POLICER_SPREAD = _POLICED["spread"], NEAR_POLICER = _POLICED["own"], FALSE_POLICER = _POLICED["mistaken"]
cdef double MIN_POLICED = _POLICED["least"], MAX_POLICED = _POLICED["most"]


cdef double bbr_window(double estimate) noexcept nogil:
    """Bytes that BBR's window allows in flight beyond the bandwidth-delay product (Linux, tcp_bbr.c)."""
    return AGGREGATION + QUANTA * max(MIN_QUANTUM, QUANTUM * estimate)


cdef double link_delay(CState s, CRules rules, long d, long link, long besides) noexcept nogil:
    """Seconds of the queue at a link: windows of its flows but `besides` over its rate, limited by the buffer."""
    flows, rate = s.flows[d, link], s.links[d, link]
    return min(rules.loaded_trip, (flows - besides) * bbr_window(rate / flows) / rate)


cdef double full_link_delay(CState s, CRules rules, long d, long w, long k, long besides) noexcept nogil:
    """Seconds that packets wait at full links: a single flow fills the sender's link, two the receiver's."""
    K = s.serving.shape[2]
    near, far = k if d == 0 else K + w, K + w if d == 0 else k
    cdef double longest = 0.0
    if s.load[d, near] > FULL:
        longest = link_delay(s, rules, d, near, besides)
    if s.load[d, far] > FULL and s.flows[d, far] > 1:
        longest = max(longest, link_delay(s, rules, d, far, besides))
    return longest


cdef double window_rate(CState s, CRules rules, long d, long w, long k) noexcept nogil:
    """Rate that a flow's window allows: the window per round trip, behind the other flows' windows."""
    trip = SHORT_TRIP + full_link_delay(s, rules, d, w, k, 1) + full_link_delay(s, rules, 1 - d, w, k, 0)
    return bbr_window(s.estimate[d, w, k]) / trip


cdef void update_estimates(CState s, CRules rules, double now, double seconds, long d, bitgen_t* rng) noexcept nogil:
    """Update each flow's estimate of its bandwidth after `seconds` at its rate (Cardwell et al., 2016).

    Once in eight round trips a flow sends 5/4 of its estimate; the new estimate is the rate at which that arrives.
    """
    cdef double estimate, link, probed, cycles
    W, K = s.serving.shape[1], s.serving.shape[2]
    for w in range(W):
        for k in range(K):
            if s.rate[d, w, k] <= 0.0:
                continue
            trip = SHORT_TRIP + full_link_delay(s, rules, d, w, k, 0) + full_link_delay(s, rules, 1 - d, w, k, 0)
            estimate = s.estimate[d, w, k]
            link = min(s.links[d, k], s.links[d, K + w])
            if s.policed[d, w, k] > 0.0:
                s.policed[d, w, k] -= seconds / max(trip, ROUND_BYTES / estimate)  # round trips left
                if s.policed[d, w, k] <= 0.0:
                    s.estimate[d, w, k] = link
            else:
                # a probe at load rho arrives at GAIN / (rho + (GAIN - 1) estimate / link) of the estimate, at most GAIN
                probed = max(s.load[d, k], s.load[d, K + w]) + (GAIN - 1) * estimate / link
                cycles = min(MOST_CYCLES, seconds / (CYCLE * trip))
                s.estimate[d, w, k] = estimate * min(GAIN**cycles, (GAIN / probed) ** min(1.0, cycles))
            draw_losses(s, rules, now, seconds, d, w, k, rng)


cdef void draw_losses(
    CState s, CRules rules, double now, double seconds, long d, long w, long k, bitgen_t* rng
) noexcept nogil:
    """Draw a flow's policed rate and silences in `seconds`: Poisson, in proportion to the other flows of its link."""
    far = s.serving.shape[2] + w
    link = k if s.flows[d, k] > s.flows[d, far] else far
    cdef double rate, packets = max(MIN_BUFFER, s.links[d, link] * rules.loaded_trip / PACKET)
    expected, others = LOSS_RATE * seconds / packets, s.flows[d, link] - 1  # events per other flow
    if s.policed[d, w, k] <= 0.0 and uniform(rng) > exp(-expected * others):
        s.policed[d, w, k] = POLICER_ROUNDS
        rate = s.links[d, link] / s.flows[d, link] * exp(POLICER_SPREAD * normal(rng))  # lognormal around the fair rate
        if link == (k if d == 0 else far):
            rate *= NEAR_POLICER
        elif uniform(rng) < FALSE_POLICER:
            rate *= MIN_POLICED + (MAX_POLICED - MIN_POLICED) * uniform(rng)
        s.estimate[d, w, k] = max(ROUND_BYTES / TIMEOUT, rate)
    if uniform(rng) > exp(-expected * max(others, SINGLE)):
        timeout = TIMEOUT + rules.loaded_trip
        s.silent[d, w, k] = now + timeout
        while uniform(rng) < REPEATED_TIMEOUT:  # exponential backoff (RFC 6298, 5.5)
            timeout *= 2
            s.silent[d, w, k] += timeout
