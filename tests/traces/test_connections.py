"""Connections moved by the simulator's own loop: they share, grow, lose and fall silent as TCP's do.

This uses the state of the compiled loop (`queuemodel.traces.kernel`), and is removed together with it.
"""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from by_hand import LINKS, profile_of, serial
from hypothesis import given
from hypothesis import strategies as st

from queuemodel.traces.graph import prepare
from queuemodel.traces.kernel import memory, sharing, windows
from queuemodel.traces.kernel.state import FLOWS, Rules, new_state
from queuemodel.traces.kernel.windows import FIRST, PACKET, SHORT_TRIP, TIMEOUT

TESTBED = Path(__file__).parents[2] / "validation" / "testbed"
RECORDED = [json.loads(line) for line in (TESTBED / "takeover.jsonl").read_text().splitlines()]
POLICED = json.loads((TESTBED / "policed.json").read_text())
KEPT = {"cubic": 0.7, "reno": 0.5, "bbr": 0.0}
PER_PACKETS = 12.0  # accidents of a kind, per second, other connection, and one over the buffer's packets
PAYLOAD = 125_000 * 1448 / 1514  # bytes per second of a link of 1 Mbit/s
RATE = 60 * PAYLOAD
STEP = 0.01
ROUND_TRIPS, QUARTER, CYCLE = 48.0, 1.25, 8  # BBR takes a link for policed for so many; its probing


class Flows:
    """One server and its workers, whose flows start and stop as told."""

    def __init__(self, tcp, buffer, *, rate=RATE, seed=0, workers=5):
        resumed = 0.75 if tcp == "reno" else 1.0
        self.rules = Rules(np.ones(5), np.inf, False, 0, 0, 0, 0.0, 1.0, buffer, 0.0, KEPT[tcp], resumed)
        self.rate, self.now, self.rng = rate, 0.0, np.random.default_rng(seed)
        graphs, links = prepare(profile_of(serial()), links=LINKS), np.full((2, 1 + workers), rate)
        self.state = new_state(graphs.steps, links=links, starts=np.zeros(workers), rules=self.rules)

    def start(self, d, *workers):
        for w in workers:
            if self.rules.kept:
                windows.restart(self.state, self.rules, self.now, d, w, 0)
            self.state.serving[d, w, 0], self.state.chunk_left[d, w, 0], self.state.since[d, w, 0] = 0, 1e15, self.now

    def stop(self, d, w):
        s = self.state
        s.serving[d, w, 0], s.idle_since[d, w, 0], s.finish[d, w, 0] = -1, self.now, np.inf

    def go(self, times=1, seconds=STEP):
        """Bytes per second of each flow, shape (2, workers), at the last of so many looks."""
        for _ in range(times):
            for d in range(2):
                self.state.dirty[d] = FLOWS
                sharing.reshare(self.state, self.rules, self.now, d, self.rng)
            self.now += seconds
        return self.state.rate[:, :, 0].copy()

    def estimates(self, d=0):
        """Congestion windows, or BBR's estimates."""
        return self.state.estimate[d, :, 0]


# Control by losses


def grown(tcp, times):
    """A window of 100 packets without slow start, after so many looks; packets."""
    flows = Flows(tcp, 1.0)
    flows.start(0, 0)
    flows.state.threshold[:] = 0.0
    flows.estimates()[0] = 100 * PACKET
    flows.go(1 + times)
    return flows.estimates()[0] / PACKET


def test_a_window_grows_by_a_packet_per_round_trip_and_cubics_by_less():
    # a round trip is as long as the link takes for the window: dW/dt = packet * rate / W
    exact = np.sqrt(100**2 + 2 * RATE / PACKET * 101 * STEP)
    assert grown("reno", 101) == pytest.approx(exact, rel=5e-3)
    assert exact > 130
    assert (grown("cubic", 2) - 100) / (grown("reno", 2) - 100) == pytest.approx(3 * 0.3 / 1.7, rel=0.02)  # RFC 9438


def test_acknowledgements_behind_a_full_buffer_slow_a_connection_down_to_its_window_per_round_trip():
    flows = Flows("cubic", 0.025)
    flows.start(1, 3, 4)
    flows.go(200)
    flows.start(0, 0)
    flows.state.silent[:] = flows.state.threshold[0] = 0.0
    flows.estimates()[0] = 30 * PACKET
    got, waits = flows.go()[0, 0], flows.state.standing[1, 0]
    assert waits > 0.015
    assert got == pytest.approx(30 * PACKET / (SHORT_TRIP + waits))
    assert got < 0.5 * RATE


@given(timeouts=st.floats(0.0, 12.0), window=st.floats(2.0, 500.0))
def test_idle_connections_begin_again_from_half_their_window_per_timeout(timeouts, window):
    flows = Flows("cubic", 0.025)
    flows.estimates()[0] = window * PACKET
    flows.now = timeouts * (TIMEOUT + SHORT_TRIP)
    flows.start(0, 0)
    left = window * 0.5 ** int(timeouts + 1e-9)
    expected = window if timeouts < 1 else max(min(window, FIRST / PACKET), left)
    assert flows.estimates()[0] / PACKET == pytest.approx(expected)


@pytest.mark.parametrize(("tcp", "kept"), [("cubic", 0.7), ("reno", 0.5)])
def test_who_loses_keeps_its_share_of_the_window(tcp, kept):
    flows = Flows(tcp, 0.025)
    flows.start(0, 0)
    flows.state.silent[:], flows.state.threshold[:] = 0.0, 0.0
    sizes = []
    for _ in range(3000):
        flows.go()
        sizes.append(flows.estimates()[0])
    ratios = np.array(sizes[1:]) / sizes[:-1]
    assert (ratios < 0.95).sum() > 5
    assert ratios[ratios < 0.95] == pytest.approx(kept, rel=0.03)


def test_a_burst_as_large_as_the_window_means_a_timeout_at_the_far_link_only():
    silences = {}
    for d in (0, 1):  # fetching flows share the server's own link, pushing ones one far from them
        flows = Flows("cubic", 0.003, rate=5 * PAYLOAD, seed=3)
        flows.start(d, *range(5))
        flows.state.silent[:] = silences[d] = 0.0
        for _ in range(3000):
            flows.go()
            silences[d] += (flows.state.silent[d] > flows.now).sum()
    assert silences[0] == 0.0 < silences[1]


def used(tcp, mbit, buffer, way, against):
    """Shares of the link that 1, 2 and 3 flows use, while so many others go the other way, as `takeover` measures."""
    flows, d = Flows(tcp, buffer, rate=mbit * PAYLOAD), ("fetch", "push").index(way)
    flows.start(1 - d, *range(3, 3 + against))
    flows.go(50)
    seconds, carried = np.zeros(4), np.zeros(4)
    for _ in range(12):
        left, begin = np.array((0.70, 0.30, 0.12)) * flows.rate, flows.now
        flows.start(d, 0, 1, 2)
        while left.any() or flows.now < begin + 2.0:
            running = int(np.count_nonzero(left))
            got = np.minimum(flows.go()[d, :3] * STEP, left)
            seconds[running] += STEP
            carried[running] += got.sum()
            for w in np.flatnonzero((left > 0) & (left <= got)):
                flows.stop(d, w)
            left -= got
    return carried[1:] / seconds[1:] / flows.rate


def test_plain_flows_use_a_link_as_they_were_measured_to():
    networks = [("cubic", 60, 25), ("cubic", 60, 10), ("cubic", 150, 10), ("cubic", 20, 50), ("reno", 60, 10)]
    ways = [("fetch", 0), ("fetch", 1), ("fetch", 2), ("push", 0), ("push", 2)]
    names, errors, ideal = ("congestion_control", "mbit", "buffer_ms", "way", "against"), [], []
    for tcp, mbit, buffer in networks:
        for way, against in ways:
            case = (tcp, mbit, buffer, way, against)
            (measured,) = [row["used"] for row in RECORDED if tuple(map(row.get, names)) == case]
            errors.append(used(tcp, mbit, buffer / 1e3, way, against) - measured)
            ideal.append(1.0 - measured[0])  # without windows a flow that is alone takes all of the link
    one, more = np.array(errors)[:, 0], np.array(errors)[:, 1:]
    assert np.sqrt((one**2).mean()) < 0.09  # three rounds measured: 0.34 to 1.0 of the link
    assert abs(one.mean()) < 0.04
    assert np.sqrt((more**2).mean()) < 0.07
    assert np.sqrt(np.square(ideal).mean()) > 0.18  # that is noticed


# BBR


@given(estimate=st.floats(0.02, 0.5), seconds=st.floats(0.002, 0.02))
def test_estimates_grow_by_a_quarter_in_eight_round_trips_however_often_one_looks(estimate, seconds):
    found = []
    for looks in (1, 20):
        flows = Flows("bbr", 1e6, workers=1)  # so long a buffer that nothing is lost
        flows.start(0, 0)
        flows.estimates()[0] = estimate * RATE
        flows.go(looks, seconds / looks)
        flows.go()
        found.append(flows.estimates()[0] / RATE)
    assert found[0] == pytest.approx(min(1.0, estimate * QUARTER ** (seconds / (CYCLE * SHORT_TRIP))), rel=0.03)
    assert found[0] == pytest.approx(found[1], rel=0.1)


@pytest.mark.parametrize(("others", "buffer"), [(2, 0.03), (3, 0.03), (3, 0.012), (2, 0.05)])
def test_acknowledgements_behind_others_windows_hold_a_connection_to_its_own(others, buffer):
    flows = Flows("bbr", buffer)
    flows.start(1, *range(others))
    flows.go()
    flows.start(0, 4)
    got = flows.go(3)[0, 4]
    estimates = np.array([flows.rate / others, flows.estimates()[4]])
    each, own = 16 * PACKET + 3 * np.maximum(2 * PACKET, estimates / 1024)  # what acknowledgements bring, three quanta
    assert got == pytest.approx(own / (SHORT_TRIP + min(buffer, others * each / flows.rate)), rel=0.02)
    assert got < 0.9 * flows.rate


def accidents(workers, *, seconds, times=4000, buffer=0.05, rate=1e6):
    """Shares of looks at a flow of so many after which it was silent, and was policed; how long, and at which rate."""
    flows = Flows("bbr", buffer, rate=rate, workers=workers)
    flows.start(0, *range(workers))
    flows.go(seconds=0.0)
    s, silent, rates = flows.state, [], []
    for _ in range(times):
        s.silent[0, 0, 0] = s.policed[0, 0, 0] = 0.0
        memory.suffer(s, flows.rules, 0.0, seconds, 0, 0, 0, flows.rng)
        if s.policed[0, 0, 0] > 0:
            assert s.policed[0, 0, 0] == ROUND_TRIPS
            rates.append(workers * flows.estimates()[0] / rate)
        if s.silent[0, 0, 0] > 0:
            silent.append(s.silent[0, 0, 0])
    return len(silent) / times, len(rates) / times, np.array(silent), np.array(rates)


@pytest.mark.parametrize(("workers", "buffer"), [(1, 0.05), (1, 0.2), (2, 0.05), (4, 0.2), (4, 0.02), (8, 0.05)])
def test_accidents_come_by_the_others_over_the_packets_that_the_buffer_holds(workers, buffer):
    often = PER_PACKETS * (workers - 1 or 0.25) / (1e6 * buffer / PACKET)  # alone silent as beside a quarter of one
    expected = 1 - math.exp(-1.0)
    found = accidents(workers, seconds=1 / often, buffer=buffer)
    for kind in found[: 1 if workers == 1 else 2]:
        assert kind == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / 4000))
    assert (found[1] == 0) == (workers == 1)
    off = accidents(workers, seconds=0.8 / often, buffer=buffer)[0]  # the test's own power
    assert abs(off - expected) > 4 * math.sqrt(expected * (1 - expected) / 4000)


def test_a_timeout_doubles_when_what_is_sent_again_is_lost():
    lengths = accidents(8, seconds=100.0)[2]
    first = TIMEOUT + 0.05
    doublings = np.log2(lengths / first + 1)  # first (1 + 2 + 4 + ...)
    assert np.allclose(doublings, np.round(doublings))
    assert (doublings > 1.5).mean() == pytest.approx(0.05, abs=4 * math.sqrt(0.05 / len(lengths)))
    assert lengths.mean() == pytest.approx(first / (1 - 2 * 0.05), rel=0.05)


def test_rates_taken_for_policed_are_about_the_fair_one():
    median, *limits = np.quantile(np.log(accidents(4, seconds=10.0)[3]), (0.5, 0.1, 0.9))
    measured = {
        way: np.quantile(np.log([row[0] * row[1] for row in rows if row[1] > 1 > row[0]]), (0.5, 0.1, 0.9))
        for way, rows in POLICED.items()
    }
    assert median == pytest.approx(measured["fetch"][0], abs=0.1)
    assert measured["push"][0] < 0 < median
    assert np.diff(limits) == pytest.approx(np.mean([np.diff(some[1:]) for some in measured.values()]), rel=0.15)


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.5])
def test_who_believes_itself_policed_keeps_its_rate_for_48_round_trips_and_then_takes_the_link(rate):
    flows = Flows("bbr", 1e6, rate=1e6, workers=1)  # where silence hardly ever comes
    flows.start(0, 0)
    flows.state.policed[0, 0, 0], flows.estimates()[0] = ROUND_TRIPS, rate * 1e6
    while flows.go(seconds=0.002)[0, 0] == pytest.approx(rate * 1e6):
        pass
    assert flows.now == pytest.approx(ROUND_TRIPS * max(SHORT_TRIP, 6 * PACKET / (rate * 1e6)), rel=0.02, abs=0.006)
    assert flows.go()[0, 0] == pytest.approx(1e6)


def test_who_believes_itself_policed_gives_way_at_a_full_link_and_others_have_the_link_of_a_silent_one():
    flows = Flows("bbr", 0.2, rate=1e6, workers=4)
    flows.start(0, 0, 1, 2, 3)
    flows.state.policed[0, 0, 0], flows.estimates()[0] = ROUND_TRIPS, 0.2e6
    shares = flows.go(5, seconds=0.0)[0]
    assert shares.sum() == pytest.approx(1e6)
    assert 0.1e6 < shares[0] < 0.2e6
    assert shares[1:] == pytest.approx([(1e6 - shares[0]) / 3] * 3)
    flows.state.silent[0, 1, 0] = 1.0
    assert flows.go(5, seconds=0.0)[0, 1] == 0.0
    assert flows.state.tick[0] <= 1.0
