"""Queues of links by the disciplines that a kernel may lack, packet by packet; the compiled part of `links`.

`fq_codel` is that of Hoeiland-Joergensen et al. (RFC 8290) and Nichols et al. (RFC 8289), with the defaults and the
details of Linux's, without ECN: packets wait for the link's token bucket in a queue for each hash of addresses and
ports. A link that limits what may wait has one queue, and drops what comes last beyond that (Linux's `bfifo`); a
policer lets nothing wait: it drops those that the bucket has no tokens for.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

FLOWS, QUANTUM, TARGET, INTERVAL = 1024, 1514, 0.005, 0.1  # bytes and seconds: Linux's defaults
SLOT = 1600  # bytes of the longest packet

#: Lists that a link's flow may be in: of the new ones, of those that were served, none.
NEW, OLD, IDLE = 0, 1, 2

#: The queue of a flow, and what CoDel knows of it.
FLOW = np.dtype(
    [
        *((name, np.int32) for name in ("head", "tail", "deficit", "list", "next", "count", "last_count", "dropping")),
        *((name, np.float64) for name in ("first_above", "drop_next")),
    ]
)
#: A link in one direction: bytes per second, bytes of its bucket and when they were counted, bytes that may wait
#: besides (infinite: `fq_codel`); `held` leaves next.
LINK = np.dtype(
    [
        *((name, np.float64) for name in ("rate", "burst", "tokens", "counted", "most")),
        ("held", np.int32),
        *((name, np.int32, 2) for name in ("heads", "tails")),
        *((name, np.int64) for name in ("bytes", "packets", "drops", "backlog")),
    ]
)


class Packets(NamedTuple):
    """Packets that wait anywhere, by slot."""

    data: np.ndarray
    length: np.ndarray  # bytes on the wire
    follower: np.ndarray  # the next one in its queue
    since: np.ndarray  # when it came (s)
    free: np.ndarray  # a stack of slots; last, its height


def empty_links(rates: np.ndarray, bursts: np.ndarray, most: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Links of these rates (bytes per second), buckets and what may wait (bytes), and the queues of each."""
    links = np.zeros(len(rates), LINK)
    links["rate"], links["burst"], links["tokens"], links["most"] = rates, bursts, bursts, most
    links["held"], links["heads"] = -1, -1
    flows = np.zeros((len(rates), FLOWS), FLOW)
    flows["list"] = IDLE
    for name in ("head", "tail", "next"):
        flows[name] = -1
    return links, flows


def no_packets(slots: int) -> Packets:
    """Room for so many packets."""
    free = np.append(np.arange(slots), slots)
    return Packets(
        np.empty((slots, SLOT), np.uint8),
        np.zeros(slots, np.int32),
        np.full(slots, -1, np.int32),
        np.zeros(slots),
        free,
    )


@njit(nogil=True)
def release(slot, free):
    free[free[-1]] = slot
    free[-1] += 1


@njit(nogil=True)
def _fill(now, link):
    """Tokens of what has gone by since the last look."""
    link.tokens = min(link.burst, link.tokens + link.rate * (now - link.counted))
    link.counted = now


@njit(nogil=True)
def arrive(slot, now, link, flows, packets):
    """Put a packet into its flow's queue, or into the only one; drop it where that holds no more."""
    _fill(now, link)
    if link.tokens + link.most < packets.length[slot] + link.backlog:
        link.drops += 1
        release(slot, packets.free)
        return
    key = np.uint64(0)
    for i in range(12, 24):  # addresses and ports, of packets without IP options
        key = (key ^ np.uint64(packets.data[slot, i])) * np.uint64(1099511628211)
    i = 0 if link.most < math.inf else int(key >> np.uint64(40)) % FLOWS
    flow = flows[i]
    packets.since[slot], packets.follower[slot] = now, -1
    if flow.tail < 0:
        flow.head = slot
    else:
        packets.follower[flow.tail] = slot
    flow.tail = slot
    link.backlog += packets.length[slot]
    if flow.list == IDLE:
        flow.deficit, flow.list = QUANTUM, NEW
        _append(i, link, flows)


@njit(nogil=True)
def _append(i, link, flows):
    """Put a flow at the end of the list that it says."""
    flows[i].next, which = -1, flows[i].list
    if link.heads[which] < 0:
        link.heads[which] = i
    else:
        flows[link.tails[which]].next = i
    link.tails[which] = i


@njit(nogil=True)
def leave(now, link, flows, packets):
    """The packet that leaves the link now; or -1, and how long until the next can (s)."""
    if link.held < 0:
        link.held = _next(now, link, flows, packets)
        if link.held < 0:
            return -1, math.inf
    _fill(now, link)
    slot = link.held
    if link.tokens < packets.length[slot]:
        return -1, (packets.length[slot] - link.tokens) / link.rate
    link.tokens -= packets.length[slot]
    link.backlog -= packets.length[slot]
    link.bytes += packets.length[slot]
    link.packets += 1
    link.held = -1
    return slot, 0.0


@njit(nogil=True)
def _next(now, link, flows, packets):
    """The next packet by turns of the flows; -1 where none waits."""
    while True:
        which = NEW if link.heads[NEW] >= 0 else OLD
        i = link.heads[which]
        if i < 0:
            return -1
        flow = flows[i]
        if flow.deficit > 0:
            slot = _by_codel(now, link, flow, packets)
            if slot >= 0:
                flow.deficit -= packets.length[slot]
                return slot
        link.heads[which] = flow.next
        if flow.deficit <= 0:
            flow.deficit += QUANTUM
            flow.list = OLD
        else:  # empty: one that was new goes to the old ones once, so that it cannot always be first
            flow.list = OLD if which == NEW and link.heads[OLD] >= 0 else IDLE
        if flow.list != IDLE:
            _append(i, link, flows)


@njit(nogil=True)
def _take(flow, packets):
    """The first packet of a flow's queue; -1 where it is empty."""
    slot = flow.head
    if slot >= 0:
        flow.head = packets.follower[slot]
        if flow.head < 0:
            flow.tail = -1
    return slot


@njit(nogil=True)
def _late(slot, now, link, flow, packets):
    """Whether a flow's packets have waited for longer than the target for an interval."""
    if slot < 0 or now - packets.since[slot] < TARGET or link.backlog - packets.length[slot] <= QUANTUM:
        flow.first_above = 0.0
        return False
    if flow.first_above == 0.0:
        flow.first_above = now + INTERVAL
        return False
    return now > flow.first_above


@njit(nogil=True)
def _by_codel(now, link, flow, packets):
    """The next packet of a flow, after those that have to be dropped; -1 where its queue is empty."""
    slot = _take(flow, packets)
    if slot < 0 or link.most < math.inf:
        flow.dropping = 0
        return slot
    late = _late(slot, now, link, flow, packets)
    if flow.dropping:
        if not late:
            flow.dropping = 0
        while flow.dropping and now >= flow.drop_next:
            flow.count += 1
            _drop(slot, link, packets)
            slot = _take(flow, packets)
            if _late(slot, now, link, flow, packets):
                flow.drop_next += INTERVAL / math.sqrt(flow.count)
            else:
                flow.dropping = 0
    elif late:
        _drop(slot, link, packets)
        slot = _take(flow, packets)
        _late(slot, now, link, flow, packets)
        flow.dropping = 1
        recent = flow.count - flow.last_count
        flow.count = recent if recent > 1 and now - flow.drop_next < 16 * INTERVAL else 1
        flow.last_count = flow.count
        flow.drop_next = now + INTERVAL / math.sqrt(flow.count)
    return slot


@njit(nogil=True)
def _drop(slot, link, packets):
    link.backlog -= packets.length[slot]
    link.drops += 1
    release(slot, packets.free)
