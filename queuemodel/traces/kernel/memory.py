"""
What a connection has under way and remembers under BBR, and what befalls it where buffers are short.

BBR (Cardwell et al., ACM Queue 2016) probes a quarter above its estimate once in eight round trips, and takes the
largest rate of the last ten for its estimate. But it has no more than a window under way: a few quanta of a millisecond
at its estimate and what acknowledgements bring at once, since twice the estimate times the shortest round trip, which
is that of an idle network, is less than that. So where packets wait at a full link, and where acknowledgements do, a
connection is held to its window per round trip, and connections that share a link have about equal shares of it,
whatever they remember. It does not give way to losses. Connections that share a buffer of few packets lose many, and
two kinds of accidents befall them. What is sent in place of a lost packet is lost as well: the connection is silent
until its timeout, at least 0.2 s, and twice as long each time that happens again. Or it takes the link for policed
(Linux: `tcp_bbr.c`, "long-term bandwidth"): for 48 round trips it sends at the rate that it had, of which a link that
is full loses as large a share as of the others', and then takes all that it gets.

How often was measured with plain sockets (validation/testbed: accidents): each kind befalls a connection `ACCIDENTS`
times a second for each other one on its link, over the packets that the buffer holds, whatever the link's rate. Of
packets sent again one in twenty is lost. Alone on its link a connection is silent as often as if a quarter of another
one were there: 18 times in 418 untraced steps of one worker. A rate taken for policed at the sender's own link is no
less than the fair one; far from it one in twenty was taken while silent, so that it is too low.
"""

from __future__ import annotations

import numpy as np

from .compiler import entry, fast
from .windows import PACKET, SHORT_TRIP, TIMEOUT

GAIN, CYCLE, MOST_CYCLES = 1.25, 8, 100.0
FULL = 0.98  # a link's load from which on a queue stands before it
QUANTA, QUANTUM, SMALLEST = 3, 2.0**-10, 2 * PACKET  # in a window, seconds and least bytes of each (`tcp_bbr.c`)
AT_ONCE = 16 * PACKET  # what acknowledgements that come together add to a window
ACCIDENTS, FEWEST = 12.0, 10.0  # per second and other connection, over the buffer's packets, of which there are some
LONE = 0.25  # other connections that one alone suffers like
AGAIN = 0.05  # share of packets sent again that are lost
POLICED = 48.0  # round trips for which a link is taken for policed
FLIGHT = 6 * PACKET  # a round trip lasts until so much is sent
SPREAD, MORE = 0.55, 1.25  # rates taken for policed, over the fair one: how they vary, and what they are at own links
MISTAKEN, LEAST, MOST = 0.05, 0.05, 0.4  # share of far links' rates that were taken while silent, and what they come to


@fast
def window(estimate):
    """Bytes that a connection with this estimate may have under way."""
    return AT_ONCE + QUANTA * max(SMALLEST, QUANTUM * estimate)


@fast
def queue(s, rules, d, link, besides):
    """Seconds that the windows of a link's flows last, of all but `besides`, as far as the buffer holds them."""
    flows, rate = s.flows[d, link], s.links[d, link]
    return min(rules.loaded_trip, (flows - besides) * window(rate / flows) / rate)


@fast
def waits(s, rules, d, w, k, besides):
    """
    Seconds that packets wait at full links on the way from sender to receiver in direction ``d``.

    At the sender's own link one flow is enough, at the receiver's it takes two: one alone has been slowed down before.
    """
    K = s.serving.shape[2]
    own, far = (k, K + w) if d == 0 else (K + w, k)
    longest = 0.0
    if s.load[d, own] > FULL:
        longest = queue(s, rules, d, own, besides)
    if s.load[d, far] > FULL and s.flows[d, far] > 1:
        longest = max(longest, queue(s, rules, d, far, besides))
    return longest


@fast
def window_rate(s, rules, d, w, k):
    """What a flow's window allows it to send: so much per round trip, behind the other flows' windows."""
    trip = SHORT_TRIP + waits(s, rules, d, w, k, 1) + waits(s, rules, 1 - d, w, k, 0)
    return window(s.estimate[d, w, k]) / trip


@fast
def remember(s, rules, now, seconds, d, rng):
    """
    Move each flow's estimate of its bandwidth, after `seconds` at its present rate, as BBR does.

    Once in eight round trips a flow sends a quarter more than its estimate, and what then arrives is its new estimate,
    until the link is full. Round trips are long while packets wait at a full link, and while their acknowledgements
    wait behind the data that goes the other way.
    """
    _, W, K = s.serving.shape
    for w in range(W):
        for k in range(K):
            if s.rate[d, w, k] <= 0.0:
                continue
            trip = SHORT_TRIP + waits(s, rules, d, w, k, 0) + waits(s, rules, 1 - d, w, k, 0)
            estimate, link = s.estimate[d, w, k], min(s.links[d, k], s.links[d, K + w])
            if s.policed[d, w, k] > 0.0:
                s.policed[d, w, k] -= seconds / max(trip, FLIGHT / estimate)
                if s.policed[d, w, k] <= 0.0:
                    s.estimate[d, w, k] = link
            else:
                probed = max(s.load[d, k], s.load[d, K + w]) + (GAIN - 1) * estimate / link
                cycles = min(MOST_CYCLES, seconds / (CYCLE * trip))
                s.estimate[d, w, k] = estimate * min(GAIN**cycles, (GAIN / probed) ** min(1.0, cycles))
            suffer(s, rules, now, seconds, d, w, k, rng)


@entry
def suffer(s, rules, now, seconds, d, w, k, rng):
    """What happens to a flow in `seconds` because others share its link, and, more seldom, alone."""
    far = s.serving.shape[2] + w
    link = k if s.flows[d, k] > s.flows[d, far] else far
    packets = max(FEWEST, s.links[d, link] * rules.loaded_trip / PACKET)
    often, others = ACCIDENTS * seconds / packets, s.flows[d, link] - 1
    if s.policed[d, w, k] <= 0.0 and rng.random() > np.exp(-often * others):
        s.policed[d, w, k] = POLICED
        rate = s.links[d, link] / s.flows[d, link] * np.exp(SPREAD * rng.standard_normal())
        if link == (k if d == 0 else far):
            rate *= MORE
        elif rng.random() < MISTAKEN:
            rate *= LEAST + (MOST - LEAST) * rng.random()
        s.estimate[d, w, k] = max(FLIGHT / TIMEOUT, rate)
    if rng.random() > np.exp(-often * max(others, LONE)):
        timeout = TIMEOUT + rules.loaded_trip
        s.silent[d, w, k] = now + timeout
        while rng.random() < AGAIN:
            timeout *= 2
            s.silent[d, w, k] += timeout
