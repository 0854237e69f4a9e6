"""How connections share links: weighted max-min fairly, each by what its congestion control would send.

Under BBR a flow's weight is its estimate of the bandwidth (memory.py), under control by losses its window (windows.py).
"""

from __future__ import annotations

import numpy as np

from .compiler import entry, fast
from .memory import remember
from .state import FLOWS
from .windows import acknowledge, grow, queue_up

INSISTENT = 10.0  # weight of a flow that keeps its rate, beside those that give way
TICK = 0.02  # seconds between two looks at growing rates
PATIENCE, LATER = 10.0, 0.05  # once flows have been the same for so long, looks come later by this share of the rest


@fast
def insistence(s, d, w, k):
    """What a flow's weight is, over its estimate: one that believes itself policed does not give way."""
    return s.luck[d, w, k] * (INSISTENT if s.policed[d, w, k] > 0.0 else 1.0)


@fast
def settle(s, d, w, k, rate):
    """Give a flow its rate, and take it off what its links have left."""
    s.rate[d, w, k] = max(rate, 1e-9 * s.links[d, k])  # rounding may leave a link less than nothing
    for link in (k, s.serving.shape[2] + w):
        s.left_over[link] -= rate
        weight = s.estimate[d, w, k] * insistence(s, d, w, k)
        s.wanted[link] = max(1e-9 * weight, s.wanted[link] - weight)
        s.unsettled[link] -= 1


@fast
def sends(s, d, w, k):
    """Whether a flow has something to send, and is not silent."""
    return s.serving[d, w, k] >= 0 and s.silent[d, w, k] <= s.shared[d]


@fast
def share(s, d, capped):
    """
    Weighted max-min fair rates of direction ``d`` by progressive filling (Bertsekas and Gallager 1992, 6.5.2).

    A flow's weight is its estimate times its luck; when `capped`, it gets no more than its estimate per `trip`. Notes
    each link's number of flows and its load, what they would send together over its capacity, and which link holds each
    flow back.
    """
    _, W, K = s.serving.shape
    for link in range(K + W):
        s.left_over[link], s.wanted[link], s.load[d, link] = s.links[d, link], 0.0, 0.0
        s.flows[d, link] = s.unsettled[link] = 0
    for w in range(W):
        for k in range(K):
            s.rate[d, w, k], s.held[d, w, k] = 0.0, -1
            if sends(s, d, w, k):
                for link in (k, K + w):
                    s.wanted[link] += s.estimate[d, w, k] * insistence(s, d, w, k)
                    s.load[d, link] += s.estimate[d, w, k] / s.trip[d, w, k] / s.links[d, link]
                    s.flows[d, link] += 1
                    s.unsettled[link] += 1
    while True:
        tightest, level = -1, np.inf
        for i in range(K + W):
            link = i if d == 0 else K + W - 1 - i  # of equal ones a sender's own holds its flow back, so it comes first
            if s.unsettled[link] and s.left_over[link] < level * s.wanted[link] * (1 - 1e-12):
                tightest, level = link, s.left_over[link] / s.wanted[link]
        if tightest < 0:
            return
        below = False
        for w in range(W if capped else 0):
            for k in range(K):
                own = sends(s, d, w, k) and s.rate[d, w, k] == 0.0
                if own and level * insistence(s, d, w, k) * s.trip[d, w, k] >= 1.0:
                    below = True
                    settle(s, d, w, k, s.estimate[d, w, k] / s.trip[d, w, k])
        for w in range(0 if below else W):
            for k in range(K):
                if sends(s, d, w, k) and s.rate[d, w, k] == 0.0 and tightest in (k, K + w):
                    s.held[d, w, k] = tightest
                    settle(s, d, w, k, level * s.estimate[d, w, k] * insistence(s, d, w, k))


@entry
def reshare(s, rules, now, d, rng):
    """Bring the flows of direction ``d`` up to date and set their rates anew."""
    _, W, K = s.serving.shape
    windows = rules.kept > 0.0
    remembers = rules.loaded_trip > 0.0 and not windows
    if windows:
        grow(s, rules, now, now - s.shared[d], d, rng)
        acknowledge(s, d)
    elif remembers:
        remember(s, rules, now, now - s.shared[d], d, rng)
    if s.dirty[d] == FLOWS:
        s.same_since[d] = now
    s.shared[d] = now
    for w in range(W):
        for k in range(K):
            if s.serving[d, w, k] >= 0:
                s.chunk_left[d, w, k] -= s.rate[d, w, k] * (now - s.since[d, w, k])
            s.since[d, w, k] = now
    share(s, d, windows or remembers)
    if windows:
        queue_up(s, rules, d)
    s.tick[d] = np.inf
    for w in range(W):
        for k in range(K):
            if s.serving[d, w, k] >= 0:
                if s.rate[d, w, k] > 0.0:
                    s.finish[d, w, k] = now + max(0.0, s.chunk_left[d, w, k]) / s.rate[d, w, k]
                else:
                    s.finish[d, w, k] = np.inf
                    s.tick[d] = min(s.tick[d], s.silent[d, w, k])
                slower = s.estimate[d, w, k] < 0.999 * min(s.links[d, k], s.links[d, K + w])
                if windows or (remembers and (slower or s.flows[d, k] > 1 or s.flows[d, K + w] > 1)):
                    s.tick[d] = min(s.tick[d], now + max(TICK, LATER * (now - s.same_since[d] - PATIENCE)))
    s.dirty[d] = 0
