"""
What a connection remembers of the bandwidth that it had, under BBR.

BBR (Cardwell et al., ACM Queue 2016) probes a quarter above its estimate once in eight round trips, and takes the
largest rate of the last ten for its estimate.
"""

from __future__ import annotations

from .compiler import fast

GAIN, CYCLE = 1.25, 8
FULL = 0.98  # a link's load from which on a queue stands before it
SHORT_TRIP = 5e-4  # seconds: a round trip when nothing queues


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
