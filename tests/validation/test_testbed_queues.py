"""The testbed's own queues: what a link, a policer and a plain queue let pass, on a clock of the test's."""

import struct

import numpy as np
import pytest

from testbed.queues import arrive, empty_links, leave, no_packets

RATE, BURST, SIZE = 1.514e6, 15_140.0, 1514  # bytes: a packet takes a millisecond, ten pass at once


class Link:
    """One link; packets are sent to it in the name of flows, and it is asked for what leaves."""

    def __init__(self, *, most=np.inf, slots=4096):
        links, flows = empty_links(np.array([RATE]), np.array([BURST]), np.array([most]))
        self.counters, self.flows, self.packets = links[0], flows[0], no_packets(slots)
        self.port = {}

    def send(self, now, flow):
        free = self.packets.free
        free[-1] -= 1
        slot = int(free[free[-1]])
        self.packets.length[slot] = SIZE
        self.packets.data[slot, 12:24] = np.frombuffer(struct.pack(">4B4BHH", *[10] * 8, flow, 2222), np.uint8)
        arrive(slot, now, self.counters, self.flows, self.packets)

    def take(self, now):
        """The flows of all packets that leave until now, each at its time."""
        found = []
        while True:
            slot, wait = leave(now, self.counters, self.flows, self.packets)
            if slot < 0:
                return found, wait
            found.append(int.from_bytes(self.packets.data[slot, 20:22].tobytes(), "big"))
            free = self.packets.free
            free[free[-1]] = slot
            free[-1] += 1

    def empty(self, now):
        """What leaves, and when, while nothing more comes."""
        left = []
        while True:
            flows, wait = self.take(now)
            left += [(now, flow) for flow in flows]
            if not np.isfinite(wait):
                return left
            now += wait + 1e-9


def test_link_rate_after_its_bucket():
    link = Link()
    for _ in range(60):
        link.send(1.0, flow=7)
    times = [now - 1 for now, _ in link.empty(1.0)]
    assert times == pytest.approx([max(0, 1e-3 * (i - 9)) for i in range(60)], abs=1e-5)


def test_policer_passes_bucket_and_rate():
    link, passed = Link(most=0.0), 0
    for step in range(2000):  # twice the rate
        link.send(0.0005 * step, flow=1)
        flows, wait = link.take(0.0005 * step)
        passed += len(flows)
        assert wait == np.inf
    assert passed == pytest.approx(10 + 1000, abs=1)
    assert link.counters["drops"] == 2000 - passed


def test_plain_queue_drops_the_tail():
    link = Link(most=20 * SIZE)
    for i in range(60):
        link.send(0.0, flow=i)
    assert [flow for _, flow in link.empty(0.0)] == list(range(30))  # ten at once, and twenty that waited
    assert link.counters["drops"] == 30
    for step in range(1000):  # as long as it is not full it drops nothing, however long packets wait
        link.send(1 + 0.001 * step, flow=1)
        if step > 15:
            link.take(1 + 0.001 * step)
    assert link.counters["drops"] == 30
