"""
How much a connection may have under way, under control by losses (Reno, cubic): its congestion window.

Below its threshold a window grows by what is acknowledged (slow start), then by a packet per round trip, or by less
where less is taken away at a loss, so that both share alike (Floyd, Handley and Padhye 2000; RFC 9438, 4.3); cubic's
own curve is slower than that on short round trips. What the buffer of a full link cannot hold is lost, and a connection
that loses packets keeps a share of its window (RFC 5681). One that has sent nothing for a retransmission timeout begins
again in slow start, from half of its window for each timeout, ten packets at least (`tcp_slow_start_after_idle`).
"""

from __future__ import annotations

import numpy as np

from .compiler import entry, fast
from .state import FIRST, PACKET

LEAST = 2 * PACKET
BURST = 7.0  # packets that a connection loses at once, where a buffer is full
SCARCE = 8.0  # packets for each connection: where a buffer holds fewer, shares differ at the sender's own link too
TIMEOUT = 0.2  # seconds: the least retransmission timeout
SHORT_TRIP = 5e-4  # seconds: a round trip when nothing queues


@fast
def standing(s, d, w, k):
    """Seconds that packets wait on the way between worker ``w`` and server ``k`` in direction ``d``."""
    return s.standing[d, k] + s.standing[d, s.serving.shape[2] + w]


@fast
def under_way(s, d, w, k):
    """Bytes that a connection has under way: its window, or all that it has to send where that is less."""
    return min(s.estimate[d, w, k], s.chunk_left[d, w, k] + s.backlog[d, w, k])


@fast
def growth(s, rules, seconds, d, w, k):
    """
    Bytes that a window grows by in `seconds` at its present rate, in slow start or after.

    One that is not filled does not grow (RFC 7661).
    """
    acknowledged, window = s.rate[d, w, k] * seconds, s.estimate[d, w, k]
    if under_way(s, d, w, k) < window:
        return 0.0
    if window < s.threshold[d, w, k]:
        return min(acknowledged, s.threshold[d, w, k] - window)
    return 3 * (1 - rules.kept) / (1 + rules.kept) * PACKET * acknowledged / window


@fast
def grow(s, rules, now, seconds, d, rng):
    """
    Move the windows of direction ``d``, after `seconds` at their present rates.

    Where a buffer is full, what windows grow by is lost, in bursts. Far from the sender whoever grows loses: where a
    burst was the whole window, only the timeout brings the news. At a host's own link a connection is told at once that
    there is no room, and large ones more often: each loses in proportion to its window, so that they stay alike. But
    where the buffer is `SCARCE` large windows are a few packets more, and shares come out as far from the sender.
    """
    _, W, K = s.serving.shape
    s.left_over[:], s.wanted[:] = 0.0, 0.0  # of senders' own links: what the windows there grow by, and what they are
    for w in range(W):
        for k in range(K):
            own = k if d == 0 else K + w
            if s.rate[d, w, k] > 0.0 and s.held[d, w, k] == own:
                s.left_over[own] += growth(s, rules, seconds, d, w, k)
                s.wanted[own] += s.estimate[d, w, k]
    for w in range(W):
        for k in range(K):
            if s.rate[d, w, k] > 0.0:
                link, more = s.held[d, w, k], growth(s, rules, seconds, d, w, k)
                far = link != (k if d == 0 else K + w)
                scarce = rules.loaded_trip * s.links[d, link] < SCARCE * PACKET * s.flows[d, link]
                lost = more if far or scarce else s.left_over[link] * s.estimate[d, w, k] / s.wanted[link]
                full = link >= 0 and s.standing[d, link] >= rules.loaded_trip and now >= s.calm[d, w, k]
                if full and rng.random() < 1 - np.exp(-lost / PACKET / BURST):
                    whole = far and rng.random() < np.exp(-s.estimate[d, w, k] / PACKET / BURST)
                    lose(s, rules, now, d, w, k, whole)
                else:
                    s.estimate[d, w, k] += more


@fast
def lose(s, rules, now, d, w, k, whole):
    """
    A burst is lost: a share of the window stays, of that which slow start has doubled by the time that the news comes.

    After a timeout there is slow start from one packet.
    """
    trip = SHORT_TRIP + standing(s, 0, w, k) + standing(s, 1, w, k)
    window = s.estimate[d, w, k]
    if window < s.threshold[d, w, k]:
        window = min(2 * window, s.threshold[d, w, k])
    s.estimate[d, w, k] = s.threshold[d, w, k] = max(LEAST, rules.kept * window)
    s.calm[d, w, k] = now + trip
    if whole:
        s.estimate[d, w, k] = PACKET
        s.silent[d, w, k] = s.calm[d, w, k] = now + TIMEOUT + trip


@fast
def acknowledge(s, d):
    """Note each flow's round trip besides its own queue: acknowledgements wait behind data that goes the other way."""
    _, W, K = s.serving.shape
    for w in range(W):
        for k in range(K):
            s.trip[d, w, k] = SHORT_TRIP + standing(s, 1 - d, w, k)


@fast
def queue_up(s, rules, d):
    """Where and for how long packets wait: what windows hold beyond rates stands before the link that holds them."""
    _, W, K = s.serving.shape
    for link in range(K + W):
        s.standing[d, link] = 0.0
    for w in range(W):
        for k in range(K):
            link = s.held[d, w, k]
            if s.serving[d, w, k] >= 0 and link >= 0:
                waiting = under_way(s, d, w, k) - s.rate[d, w, k] * s.trip[d, w, k]
                s.standing[d, link] = min(rules.loaded_trip, s.standing[d, link] + max(0.0, waiting) / s.links[d, link])


@entry
def restart(s, rules, now, d, w, k):
    """Slow start after idleness; the request, if there is one, and the first packets wait in the queues."""
    s.silent[d, w, k] = now + standing(s, 1, w, k) + (standing(s, 0, w, k) if d == 0 else 0.0)
    timeout = TIMEOUT + SHORT_TRIP + standing(s, 0, w, k) + standing(s, 1, w, k)
    halvings = np.floor((now - s.idle_since[d, w, k]) / timeout)
    if halvings >= 1:
        s.threshold[d, w, k] = max(s.threshold[d, w, k], rules.resumed * s.estimate[d, w, k])
        s.estimate[d, w, k] = max(min(FIRST, s.estimate[d, w, k]), s.estimate[d, w, k] * 0.5**halvings)
    s.idle_since[d, w, k] = now  # it is idle no more: since when it sends
