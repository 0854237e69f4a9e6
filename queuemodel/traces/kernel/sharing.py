"""How connections share links: weighted max-min fairly, with a memory of the bandwidth that each had.

BBR (Cardwell et al., ACM Queue 2016) probes a quarter above its estimate once in eight round trips, and takes the
largest rate of the last ten for its estimate.
"""

from __future__ import annotations

import numpy as np

from .compiler import fast
from .state import FLOWS

GAIN, CYCLE = 1.25, 8
FULL = 0.98  # a link's load from which on a queue stands before it
SHORT_TRIP = 5e-4  # seconds: a round trip when nothing queues
TICK = 0.02  # seconds between two looks at growing rates
PATIENCE, LATER = 10.0, 0.05  # once flows have been the same for so long, looks come later by this share of the rest


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
    if s.dirty[d] == FLOWS:
        s.same_since[d] = now
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
                    s.tick[d] = now + max(TICK, LATER * (now - s.same_since[d] - PATIENCE))
    s.dirty[d] = 0
