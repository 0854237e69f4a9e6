"""How much a connection may have under way: its congestion window (Reno, cubic), or what BBR's estimate allows.

Below its threshold a window grows by what is acknowledged (slow start), then by a packet per round trip, or by less
where less is taken away at a loss, so that both share alike (Floyd, Handley and Padhye 2000; RFC 9438, 4.3); cubic's
own curve is slower than that on short round trips. What the buffer of a full link cannot hold is lost, and a
connection that loses packets keeps a share of its window (RFC 5681). After a retransmission timeout of idleness it
begins again in slow start, from half of its window for each, ten packets at least (`tcp_slow_start_after_idle`).
"""

_NUMBERS = constants(__package__)
_BURSTS, _TRIPS, _BBR, _ACCIDENTS, _POLICED = (
    _NUMBERS[name] for name in ("bursts", "trips", "bbr", "accidents", "policed")
)
cdef double LEAST = 2 * PACKET
cdef double BURST = _BURSTS["burst"], SCARCE = _BURSTS["scarce"]
cdef double TIMEOUT = _TRIPS["timeout"], SHORT_TRIP = _TRIPS["short"]


cdef double standing(CState s, long d, long w, long k) noexcept nogil:
    """Seconds that packets wait on the way between worker ``w`` and server ``k`` in direction ``d``."""
    return s.standing[d, k] + s.standing[d, s.serving.shape[2] + w]


cdef double under_way(CState s, long d, long w, long k) noexcept nogil:
    """Bytes that a connection has under way: its window, or all that it has to send where that is less."""
    return min(s.estimate[d, w, k], s.chunk_left[d, w, k] + s.backlog[d, w, k])


cdef double growth(CState s, CRules rules, double seconds, long d, long w, long k) noexcept nogil:
    """Bytes that a window grows by in `seconds` at its rate; one that is not filled does not grow (RFC 7661)."""
    acknowledged, window = s.rate[d, w, k] * seconds, s.estimate[d, w, k]
    if under_way(s, d, w, k) < window:
        return 0.0
    if window < s.threshold[d, w, k]:
        return min(acknowledged, s.threshold[d, w, k] - window)
    return 3 * (1 - rules.kept) / (1 + rules.kept) * PACKET * acknowledged / window


cdef void grow(CState s, CRules rules, double now, double seconds, long d, bitgen_t* rng) noexcept nogil:
    """Move the windows of direction ``d``, after `seconds` at their present rates.

    Where a buffer is full, growth is lost in bursts: far from the sender by whoever grows, at its own link by all in
    proportion to their windows (it learns at once that there is no room), unless the buffer is `SCARCE`.
    """
    cdef bint far, alone, full, whole
    W, K = s.serving.shape[1], s.serving.shape[2]
    s.left_over[:], s.wanted[:] = 0.0, 0.0  # of senders' own links: what the windows there grow by, and what they are
    for w in range(W):
        for k in range(K):
            own = k if d == 0 else K + w
            if s.rate[d, w, k] > 0.0 and s.limiting[d, w, k] == own:
                s.left_over[own] += growth(s, rules, seconds, d, w, k)
                s.wanted[own] += s.estimate[d, w, k]
    for w in range(W):
        for k in range(K):
            if s.rate[d, w, k] > 0.0:
                link, more = s.limiting[d, w, k], growth(s, rules, seconds, d, w, k)
                far = link != (k if d == 0 else K + w)  # also where none limits it, -1: then nothing may be indexed
                alone = far or rules.loaded_trip * s.links[d, link] < SCARCE * PACKET * s.flows[d, link]
                lost = more if alone else s.left_over[link] * s.estimate[d, w, k] / s.wanted[link]
                full = link >= 0 and s.standing[d, link] >= rules.loaded_trip and now >= s.recovered[d, w, k]
                if full and uniform(rng) < 1 - exp(-lost / PACKET / BURST):
                    whole = far and uniform(rng) < exp(-s.estimate[d, w, k] / PACKET / BURST)
                    lose(s, rules, now, d, w, k, whole)
                else:
                    s.estimate[d, w, k] += more


cdef void lose(CState s, CRules rules, double now, long d, long w, long k, bint whole) noexcept nogil:
    """Lose a burst: of the window, doubled by then in slow start, a share stays, or one packet after a timeout."""
    trip = SHORT_TRIP + standing(s, 0, w, k) + standing(s, 1, w, k)
    window = s.estimate[d, w, k]
    if window < s.threshold[d, w, k]:
        window = min(2 * window, s.threshold[d, w, k])
    s.estimate[d, w, k] = s.threshold[d, w, k] = max(LEAST, rules.kept * window)
    s.recovered[d, w, k] = now + trip
    if whole:
        s.estimate[d, w, k] = PACKET
        s.silent[d, w, k] = s.recovered[d, w, k] = now + TIMEOUT + trip


cdef void acknowledge(CState s, long d) noexcept nogil:
    """Note each flow's round trip besides its own queue: acknowledgements wait behind data that goes the other way."""
    W, K = s.serving.shape[1], s.serving.shape[2]
    for w in range(W):
        for k in range(K):
            s.trip[d, w, k] = SHORT_TRIP + standing(s, 1 - d, w, k)


cdef void queue_up(CState s, CRules rules, long d) noexcept nogil:
    """Where and for how long packets wait: windows' excess over rates stands before the link that limits them."""
    W, K = s.serving.shape[1], s.serving.shape[2]
    for link in range(K + W):
        s.standing[d, link] = 0.0
    for w in range(W):
        for k in range(K):
            link = s.limiting[d, w, k]
            if s.serving[d, w, k] >= 0 and link >= 0:
                waiting = under_way(s, d, w, k) - s.rate[d, w, k] * s.trip[d, w, k]
                s.standing[d, link] = min(rules.loaded_trip, s.standing[d, link] + max(0.0, waiting) / s.links[d, link])


cdef void restart(CState s, CRules rules, double now, long d, long w, long k) noexcept nogil:
    """Slow start after idleness; the request, if there is one, and the first packets wait in the queues."""
    s.silent[d, w, k] = now + standing(s, 1, w, k) + (standing(s, 0, w, k) if d == 0 else 0.0)
    timeout = TIMEOUT + SHORT_TRIP + standing(s, 0, w, k) + standing(s, 1, w, k)
    halvings = floor((now - s.idle_since[d, w, k]) / timeout)
    if halvings >= 1:
        s.threshold[d, w, k] = max(s.threshold[d, w, k], rules.resumed * s.estimate[d, w, k])
        s.estimate[d, w, k] = max(min(FIRST, s.estimate[d, w, k]), s.estimate[d, w, k] * 0.5**halvings)
    s.idle_since[d, w, k] = now  # it is idle no more: since when it sends


cdef double GAIN = _BBR["gain"], CYCLE = _BBR["cycle"], MOST_CYCLES = 100.0
cdef double FULL = _BBR["full"], QUANTA = _BBR["quanta"], QUANTUM = _BBR["quantum"], SMALLEST = 2 * PACKET
cdef double AT_ONCE = _BBR["at_once"] * PACKET, FLIGHT = _POLICED["flight"] * PACKET
cdef double ACCIDENTS = _ACCIDENTS["often"], FEWEST = _ACCIDENTS["fewest"], SINGLE = _ACCIDENTS["single"]
cdef double AGAIN = _ACCIDENTS["again"], POLICED = _POLICED["lasts"], SPREAD = _POLICED["spread"]
cdef double MORE = _POLICED["own"], MISTAKEN = _POLICED["mistaken"]
cdef double LEAST_FLIGHT = _POLICED["least"], MOST = _POLICED["most"]


cdef double window(double estimate) noexcept nogil:
    """Bytes that a connection with this estimate may have under way."""
    return AT_ONCE + QUANTA * max(SMALLEST, QUANTUM * estimate)


cdef double queue(CState s, CRules rules, long d, long link, long besides) noexcept nogil:
    """Seconds that the windows of a link's flows last, of all but `besides`, as far as the buffer holds them."""
    flows, rate = s.flows[d, link], s.links[d, link]
    return min(rules.loaded_trip, (flows - besides) * window(rate / flows) / rate)


cdef double waits(CState s, CRules rules, long d, long w, long k, long besides) noexcept nogil:
    """Seconds that packets wait at full links: one flow fills the sender's own, but the receiver's only two do."""
    K = s.serving.shape[2]
    own, far = k if d == 0 else K + w, K + w if d == 0 else k
    cdef double longest = 0.0
    if s.load[d, own] > FULL:
        longest = queue(s, rules, d, own, besides)
    if s.load[d, far] > FULL and s.flows[d, far] > 1:
        longest = max(longest, queue(s, rules, d, far, besides))
    return longest


cdef double window_rate(CState s, CRules rules, long d, long w, long k) noexcept nogil:
    """What a flow's window allows it to send: so much per round trip, behind the other flows' windows."""
    trip = SHORT_TRIP + waits(s, rules, d, w, k, 1) + waits(s, rules, 1 - d, w, k, 0)
    return window(s.estimate[d, w, k]) / trip


cdef void remember(CState s, CRules rules, double now, double seconds, long d, bitgen_t* rng) noexcept nogil:
    """Move each flow's estimate of its bandwidth, after `seconds` at its present rate, as BBR does.

    Once in eight round trips a flow sends a quarter more than its estimate, and the new estimate is what then arrives.
    """
    cdef double estimate, link, probed, cycles
    W, K = s.serving.shape[1], s.serving.shape[2]
    for w in range(W):
        for k in range(K):
            if s.rate[d, w, k] <= 0.0:
                continue
            trip = SHORT_TRIP + waits(s, rules, d, w, k, 0) + waits(s, rules, 1 - d, w, k, 0)
            estimate = s.estimate[d, w, k]
            link = min(s.links[d, k], s.links[d, K + w])
            if s.policed[d, w, k] > 0.0:
                s.policed[d, w, k] -= seconds / max(trip, FLIGHT / estimate)
                if s.policed[d, w, k] <= 0.0:
                    s.estimate[d, w, k] = link
            else:
                probed = max(s.load[d, k], s.load[d, K + w]) + (GAIN - 1) * estimate / link
                cycles = min(MOST_CYCLES, seconds / (CYCLE * trip))
                s.estimate[d, w, k] = estimate * min(GAIN**cycles, (GAIN / probed) ** min(1.0, cycles))
            suffer(s, rules, now, seconds, d, w, k, rng)


cdef void suffer(
    CState s, CRules rules, double now, double seconds, long d, long w, long k, bitgen_t* rng
) noexcept nogil:
    """What happens to a flow in `seconds` because others share its link, and, more seldom, by itself."""
    far = s.serving.shape[2] + w
    link = k if s.flows[d, k] > s.flows[d, far] else far
    cdef double rate, packets = max(FEWEST, s.links[d, link] * rules.loaded_trip / PACKET)
    often, others = ACCIDENTS * seconds / packets, s.flows[d, link] - 1
    if s.policed[d, w, k] <= 0.0 and uniform(rng) > exp(-often * others):
        s.policed[d, w, k] = POLICED
        rate = s.links[d, link] / s.flows[d, link] * exp(SPREAD * normal(rng))
        if link == (k if d == 0 else far):
            rate *= MORE
        elif uniform(rng) < MISTAKEN:
            rate *= LEAST_FLIGHT + (MOST - LEAST_FLIGHT) * uniform(rng)
        s.estimate[d, w, k] = max(FLIGHT / TIMEOUT, rate)
    if uniform(rng) > exp(-often * max(others, SINGLE)):
        timeout = TIMEOUT + rules.loaded_trip
        s.silent[d, w, k] = now + timeout
        while uniform(rng) < AGAIN:
            timeout *= 2
            s.silent[d, w, k] += timeout
