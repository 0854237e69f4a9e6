"""Control by losses: windows share a link, grow, lose and begin again as TCP's do, and use it as plain sockets did."""

import json
from pathlib import Path

import numpy as np
import pytest
from by_hand import IDEAL, LINKS, profile_of, serial
from hypothesis import given
from hypothesis import strategies as st
from plain_flows import PAYLOAD, STEP, Flows, rules_of, used

from queuemodel.traces import Link, Links, simulate
from queuemodel.traces.contention import WINDOW_KEPT
from queuemodel.traces.kernel.windows import FIRST, PACKET, SHORT_TRIP, TIMEOUT

TESTBED = Path(__file__).parents[2] / "validation" / "testbed"
RECORDED = [json.loads(line) for line in (TESTBED / "takeover.jsonl").read_text().splitlines()]
CROWDED = [json.loads(line) for line in (TESTBED / "crowded.jsonl").read_text().splitlines()]
RATE = 60 * PAYLOAD


def windows_of(flows, d=0):
    return flows.state.estimate[d, :, 0]


def test_a_window_grows_by_a_packet_per_round_trip():
    flows = Flows(rules_of(window_kept=0.5, buffer=1.0), RATE)
    flows.start(0, 0)
    flows.state.threshold[:] = 0.0
    windows_of(flows)[0] = 100 * PACKET
    flows.go()
    for _ in range(100):
        flows.go()
    # a round trip is as long as the link takes for the window: dW/dt = packet * rate / W
    exact = np.sqrt((100 * PACKET) ** 2 + 2 * PACKET * RATE * 100 * STEP)
    flows.go()
    assert windows_of(flows)[0] == pytest.approx(exact, rel=5e-3)
    assert exact / PACKET > 1.3 * 100


def test_cubic_keeps_more_and_grows_less():
    grown = {}
    for name, kept in WINDOW_KEPT.items():
        flows = Flows(rules_of(window_kept=kept, buffer=1.0), RATE)
        flows.start(0, 0)
        flows.state.threshold[:] = 0.0
        windows_of(flows)[0] = 100 * PACKET
        for _ in range(3):
            flows.go()
        grown[name] = windows_of(flows)[0] / PACKET - 100
    assert grown["cubic"] / grown["reno"] == pytest.approx(3 * 0.3 / 1.7, rel=0.02)  # RFC 9438, 4.3


def test_windows_share_a_link_in_proportion():
    flows = Flows(rules_of(buffer=1.0), RATE)
    for w, window in enumerate((100, 200, 50)):
        flows.start(0, w)
        windows_of(flows)[w] = window * PACKET
    flows.state.threshold[:] = 0.0
    got = flows.go()[0, :3]
    assert got / got.sum() == pytest.approx(np.array([2, 4, 1]) / 7, rel=1e-6)
    assert got.sum() == pytest.approx(RATE * STEP)


def test_acknowledgements_behind_a_full_buffer_slow_a_connection_down_to_its_window_per_round_trip():
    flows = Flows(rules_of(buffer=0.025), RATE)
    for w in (3, 4):
        flows.start(1, w)
    for _ in range(200):
        flows.go()
    flows.start(0, 0)
    flows.state.silent[:] = flows.state.threshold[0] = 0.0
    windows_of(flows)[0] = 30 * PACKET
    got = flows.go()[0, 0]
    waits = flows.state.standing[1, 0]
    assert waits > 0.015
    assert got / STEP == pytest.approx(30 * PACKET / (SHORT_TRIP + waits), rel=1e-6)
    assert got / STEP < 0.5 * RATE


@given(timeouts=st.floats(0.0, 12.0), window=st.floats(2.0, 500.0))
def test_idle_connections_begin_again_from_half_their_window_per_timeout(timeouts, window):
    flows = Flows(rules_of(), RATE)
    windows_of(flows)[0] = window * PACKET
    flows.now = timeouts * (TIMEOUT + SHORT_TRIP)
    flows.start(0, 0)
    left = window * 0.5 ** int(timeouts + 1e-9)
    expected = window if timeouts < 1 else max(min(window, FIRST / PACKET), left)
    assert windows_of(flows)[0] / PACKET == pytest.approx(expected)


def test_a_burst_as_large_as_the_window_means_a_timeout_at_the_far_link_only():
    silences = {}
    for d in (0, 1):  # fetching flows share the server's own link, pushing ones one far from them
        flows = Flows(rules_of(buffer=0.003), 5 * PAYLOAD, seed=3)
        for w in range(5):
            flows.start(d, w)
        flows.state.silent[:] = 0.0  # who finds no room at the start: test_together
        silent = 0
        for _ in range(3000):
            flows.go()
            silent += (flows.state.silent[d] > flows.now).sum()
        silences[d] = silent * STEP
    assert silences[0] == 0.0 < silences[1]


def recorded(tcp, mbit, buffer_ms, way, against):
    (row,) = [
        row
        for row in RECORDED
        if (row["congestion_control"], row["mbit"], row["buffer_ms"], row["way"], row["against"])
        == (tcp, mbit, buffer_ms, way, against)
    ]
    return np.array(row["used"])


NETWORKS = [("cubic", 60, 25), ("cubic", 60, 10), ("cubic", 150, 10), ("cubic", 20, 50), ("reno", 60, 10)]
CASES = [
    (*network, way, against)
    for network in NETWORKS
    for way, against in (("fetch", 0), ("fetch", 1), ("fetch", 2), ("push", 0), ("push", 2))
]


def simulated(tcp, mbit, buffer_ms, way, against):
    kept = WINDOW_KEPT[tcp]
    rules = rules_of(window_kept=kept, buffer=buffer_ms / 1e3, resumed=0.75 if kept == 0.5 else 1.0)
    return used(rules, mbit, way, against)


def test_plain_flows_use_a_link_as_they_were_measured_to():
    errors = np.array([simulated(*case) - recorded(*case) for case in CASES])
    assert np.sqrt((errors[:, 0] ** 2).mean()) < 0.09  # one flow, three rounds measured: 0.34 to 1.0 of the link
    assert np.abs(errors[:, 0].mean()) < 0.04
    assert np.sqrt((errors[:, 1:] ** 2).mean()) < 0.07
    # without windows a flow that is alone takes all of the link, whatever goes the other way: that is noticed
    ideal = np.array([1.0 - recorded(*case)[0] for case in CASES])
    assert np.sqrt((ideal**2).mean()) > 0.18


def test_no_more_waits_in_a_queue_than_there_is_to_send():
    rules = rules_of(buffer=0.025)
    waits = {}
    for left in (5e4, 1e9):
        flows = Flows(rules, RATE)
        flows.start(0, 0)
        windows_of(flows)[0], flows.state.chunk_left[0, 0, 0] = 200 * PACKET, left
        flows.go()
        waits[left] = flows.state.standing[0, 0]
        flows.go()
        assert (windows_of(flows)[0] > 200 * PACKET) == (left > 200 * PACKET)
    assert waits[5e4] == pytest.approx((5e4 - RATE * SHORT_TRIP) / RATE)
    assert waits[1e9] == pytest.approx(0.025)


@pytest.mark.parametrize("buffer", [0.003, 0.05, 1.0])
def test_a_link_that_is_fast_for_the_data_has_no_queues_however_large_its_buffer(buffer):
    rate = 1e4 * LINKS.transmit.rate
    fast = Link(rate)
    short = profile_of(serial(fetch=4e-5, compute=2e-3, push=4e-5))
    run = {"workers": 1, "links": Links(fast, fast), "unfairness": 0.0, "loaded_trip": buffer, "window_kept": 0.7}
    assert simulate(short, **run).throughput == pytest.approx(1 / 2.08e-3, rel=0.05)


def test_one_worker_never_notices():
    profile = profile_of(serial(fetch=0.4, compute=0.2, push=0.4))
    lone = simulate(profile, workers=1, **IDEAL | {"loaded_trip": 0.025, "window_kept": 0.7})
    assert lone.throughput == pytest.approx(1.0, rel=0.01)


def filled(row, *, pause=0.0):
    """Share of the link that as many connections carry as a recorded row had; all are silent for a `pause` at first."""
    tcp, buffer = row["congestion_control"], row["buffer_ms"] / 1e3
    counts = row["fetching"], row["pushing"]
    flows = Flows(rules_of(window_kept=WINDOW_KEPT[tcp], buffer=buffer), row["mbit"] * PAYLOAD, workers=max(counts))
    for d, count in enumerate(counts):
        for w in range(count):
            flows.start(d, w)
    for _ in range(100):
        flows.go()
    flows.state.silent[:] = np.maximum(flows.state.silent, flows.now + pause)
    carried = sum(flows.go()[0 if row["way"] == "fetch" else 1].sum() for _ in range(300))
    return carried / (300 * STEP * flows.rate)


def test_many_connections_with_few_packets_each_fill_a_link_as_plain_ones_did():
    crowds = [row for row in CROWDED if max(row["fetching"], row["pushing"]) == 8]
    measured = np.array([row["used"] for row in crowds])
    assert measured == pytest.approx([filled(row) for row in crowds], abs=0.02)  # acknowledgements are not simulated
    assert np.all(measured - [filled(row, pause=0.2) for row in crowds] > 0.02)  # that is noticed
