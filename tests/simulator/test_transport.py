"""What a network does is told, recorded or unknown; each gives an answer of its own, which plain sockets gave."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from queuemodel.models import trace_curve, trace_throughput
from queuemodel.profile import Operation
from queuemodel.simulator import LinkRate, LinkRates, simulate_operations, trace_runs
from tests.oracles.by_hand import LINKS, RATE, profile_of, serial

MEASURED = Path(__file__).parents[2] / "testbed" / "measured"
TOGETHER, TAKEOVER = (
    [json.loads(line) for line in (MEASURED / f"{name}.jsonl").read_text().splitlines()]
    for name in ("simultaneous_starts", "convergence_to_fair_share")
)
PAYLOAD = 125_000 * 1448 / 1514  # bytes per second of a link of 1 Mbit/s
PACKET, TIMEOUT = 1448.0, 0.2

SHARED = serial(fetch=0.4, compute=0.2, push=0.4)  # four workers of it share links and leave them all the time
RUNS = {"workers": [4], "steps": 800, "replications": 2, "links": LINKS}
HERE = {"worker:0": "127.0.0.1:1", "ps:0": "127.0.0.1:2"}
CUBIC = {"loaded_trip": 0.012, "window_kept": 0.7}
RENO = {"loaded_trip": 0.012, "window_kept": 0.5}
BBR = {"loaded_trip": 0.012, "unfairness": 0.2}
AT_ONCE = {"loaded_trip": 0.0, "unfairness": 0.4}
FAIR = {"loaded_trip": 0.0, "unfairness": 0.0}


profile_in = partial(profile_of, SHARED)


@pytest.mark.parametrize(("profiled", "asked", "name", "means"), [
    ({}, {}, "loss-based (assumed)", CUBIC),
    ({"buffer": 0.03}, {}, "loss-based (assumed)", CUBIC | {"loaded_trip": 0.03}),
    ({"congestion_control": "cubic", "buffer": 0.03}, {}, "cubic", CUBIC | {"loaded_trip": 0.03}),
    ({"congestion_control": "reno"}, {}, "reno", RENO),
    ({"congestion_control": "reno"}, {"congestion_control": "bbr"}, "bbr", BBR),
    ({"congestion_control": "bbr"}, {"unfairness": 0.1}, "bbr", BBR | {"unfairness": 0.1}),
    ({"congestion_control": "bbr"}, {"congestion_control": "unknown"}, "loss-based (assumed)", CUBIC),
    ({"congestion_control": "bbr", "buffer": 0.03}, {"buffer": 0.0}, "bbr", FAIR),  # queues of their own
    ({"congestion_control": "cubic", "buffer": 0.0}, {}, "cubic", FAIR),
    ({"congestion_control": "cubic", "buffer": 0.0}, {"unfairness": 0.4}, "cubic", AT_ONCE),
    ({"congestion_control": "bbr"}, {"loaded_trip": 0.02}, None, BBR | {"loaded_trip": 0.02}),
    ({"congestion_control": "bbr"}, {"loaded_trip": 0.0}, None, AT_ONCE),
    ({"congestion_control": "bbr", "hosts": HERE}, {}, "loopback", AT_ONCE),
    ({"hosts": HERE}, {"congestion_control": "bbr"}, "bbr", BBR),
    ({"congestion_control": "bbr", "hosts": HERE, "bandwidth": 1e7}, {}, "bbr", BBR),  # shaped
])  # fmt: skip
def test_network_kind_by_known_facts(profiled, asked, name, means):
    alike = {"workers": 4, "links": LINKS, "steps": 50}
    run = simulate_operations(profile_in(**profiled), **asked, **alike)
    assert run.settings.get("network") == name
    for other in (means, CUBIC, RENO, BBR, FAIR, AT_ONCE):
        same = np.array_equal(run.times, simulate_operations(profile_in(), **other, **alike).times)
        assert same == (other == means)


def test_both_sharing_kinds_are_averaged():
    profile, alike = profile_in(congestion_control="cubic", buffer=0.025), {"workers": 4, "links": LINKS}
    for way, told in (("async-ps", [{}, {"loaded_trip": 0.0}]), ("sync-ps", [{}, {}])):
        (runs,) = trace_runs(profile, replications=4, steps=3200, synchronization=way, **alike | {"workers": [4]})
        for i, run in enumerate(runs):
            seed = run.settings["seed"]
            one = simulate_operations(profile, seed=seed, steps=200, synchronization=way, **told[i % 2], **alike)
            assert run.throughput == one.throughput


def test_unknown_network_is_a_mixture():
    unknown, cubic, bbr = (
        trace_curve(profile_in(**told), buffer=0.05, **RUNS)
        for told in ({}, {"congestion_control": "cubic"}, {"congestion_control": "bbr"})
    )
    assert unknown.at(4) == cubic.at(4)
    assert bbr.upper[0] < unknown.upper[0] < 1.001 * cubic.upper[0]  # a mixture by their probabilities
    assert 0.999 * bbr.lower[0] < unknown.lower[0] < 0.96 * cubic.lower[0]
    assert "--congestion-control" in unknown.note
    assert [curve.method.split(", ")[-1] for curve in (unknown, cubic, bbr)] == ["loss-based)", "cubic)", "bbr)"]
    for told in ("bbr", "reno"):
        assert "12 ms: specify them (--buffer)" in trace_curve(profile_in(congestion_control=told), **RUNS).note
    assert "--buffer" not in trace_curve(profile_in(congestion_control="reno", buffer=0.003), **RUNS).note


# A connection alone, and connections of plain sockets


@pytest.mark.parametrize("network", [CUBIC | {"loaded_trip": 0.025}, AT_ONCE, BBR | {"loaded_trip": 9.0}])
def test_one_worker_has_its_links(network):
    alone = simulate_operations(profile_in(), workers=1, links=LINKS, **network)
    assert alone.throughput == pytest.approx(1.0, rel=0.01)


def test_bbr_leaves_links_idle():
    profile, long = profile_in(congestion_control="bbr"), RUNS | {"steps": 4000}
    short, wide = (trace_throughput(profile, buffer=wait, **long)[0, 0] for wait in (0.003, 0.05))
    at_once, fair = (trace_throughput(profile, **told, **long)[0, 0] for told in (AT_ONCE, FAIR))
    assert max(short, wide) < 0.96 * at_once
    assert abs(fair / at_once - 1) > 0.02
    alone = trace_throughput(profile, buffer=0.05, **long | {"workers": [1]})[0, 0]
    often = 0.25 * 12 / (RATE * 0.05 / PACKET)  # a second; each lasts for a timeout, or two
    assert alone == pytest.approx(1 / (1 + 0.8 * often * (TIMEOUT + 0.05) / 0.9), rel=4e-3)


def test_servers_wait_for_timeouts():
    profile, buffer = profile_of(serial(1.0, 0.1, 0.0, shares=(0.5, 0.5)), servers=2), 0.02
    run = {"workers": 1, "steps": 400, "links": LINKS, "unfairness": 0.0}
    ideal, short = (1 / simulate_operations(profile, loaded_trip=wait, **run).throughput for wait in (0.0, buffer))
    assert ideal == pytest.approx(1.1, rel=1e-3)
    often = 2 * 12 / (RATE * buffer / PACKET)  # times a second: one of the two flows falls silent
    silence = (TIMEOUT + buffer) / 0.9
    assert 1.1 + 0.2 * often * silence < short < 1.1 + often * (silence + 48 * 6 * PACKET / RATE)


def run_on(mbit, tcp, buffer, operations, steps, **asked):
    """Steps in phase on links of this rate and buffer (ms)."""
    links = LinkRates(*[LinkRate(mbit * PAYLOAD)] * 2)
    return simulate_operations(
        profile_of(operations, servers=3), steps=steps, trace_steps=steps, in_phase=True, links=links,
        congestion_control=tcp, buffer=buffer / 1e3, unfairness=0.0, **asked,
    )  # fmt: skip


def ends(tcp, buffer, flows, *, way="fetch", size=3_000_000, rounds=30):
    """Mean seconds until the first, the second, ... of so many transfers has ended that begin at once, at 60 Mbit/s."""
    operations = [Operation(way, "w", 0.0, size / (60 * PAYLOAD), size)]
    operations.append(Operation("compute", "c", 9.0, 10.0, after=[0]))
    run = run_on(60, tcp, buffer, operations, rounds, workers=flows, synchronization="sync-ps")
    fetches = run.log[:, 3] == 0
    took = (run.log_times[fetches, 2] - run.log_times[fetches, 0]).reshape(rounds, flows)  # by end
    return took[1:].mean(axis=0)


@pytest.mark.parametrize(("tcp", "buffer", "flows", "within"), [
    ("cubic", 12, 2, 0.05), ("cubic", 12, 4, 0.06), ("cubic", 25, 8, 0.08), ("reno", 4, 4, 0.08),
    ("bbr", 12, 2, 0.07), ("bbr", 12, 4, 0.06), ("bbr", 12, 8, 0.07),
])  # fmt: skip
def test_simultaneous_flows_end_as_measured(tcp, buffer, flows, within):
    cases = {(row["congestion_control"], row["buffer_ms"], len(row["took"][0])): row["took"] for row in TOGETHER}
    took = np.mean(cases[tcp, buffer, flows], axis=0)
    off = (ends(tcp, buffer, flows) - took) / took[-1]
    assert np.abs(off).max() < within
    fair = flows * 3_000_000 / (60 * PAYLOAD) / took[-1] - took / took[-1]  # all at once, if shares were equal
    assert np.abs(fair).max() > within or flows == 2


def test_flows_of_many_senders_differ_more():
    fetches, pushes = (ends("cubic", 12, 4, way=way) for way in ("fetch", "push"))
    assert np.ptp(pushes) > 1.5 * np.ptp(fetches)


def taken_over(tcp, mbit, buffer, way, against):
    """Seconds of three transfers that begin at once, of 0.7, 0.3 and 0.12 s alone, while so many go the other way.

    Those of one sender are one worker's pushes, and those of many its fetches, from so many servers.
    """
    there, back, rate = *(("push", "fetch") if way == "fetch" else ("fetch", "push")), mbit * PAYLOAD
    asked = {there: [0.70, 0.30, 0.12], back: [3.0] * against}
    operations = [Operation("compute", "c", 0.0, 0.001)]
    operations += [
        Operation(kind, f"{kind}{i}", 0.001, 1.0 + share, round(share * rate), server=i, after=[0])
        for kind, shares in asked.items() for i, share in enumerate(shares)
    ]  # fmt: skip
    run = run_on(mbit, tcp, buffer, operations, 40, workers=1)
    first = 1 + against if there == "push" else 0  # fetches stand before what is computed
    own = range(first, first + 3)
    times = [run.log_times[(run.log[:, 1] == k) & np.isin(run.log[:, 3], own)] for k in range(1, 40)]
    return np.mean([one[:, 2].max() - one[:, 0].min() for one in times if len(one) == 3])


@pytest.mark.parametrize("network", [("cubic", 60, 25), ("cubic", 60, 10), ("cubic", 150, 10), ("reno", 60, 10),
                                     ("reno", 60, 25), ("bbr", 60, 10), ("bbr", 20, 10), ("bbr", 150, 10)])  # fmt: skip
def test_successive_flows_take_over_as_measured(network):
    names, off, ideal = ("congestion_control", "mbit", "buffer_ms", "way", "against"), [], []
    cases = {tuple(map(row.get, names)): row["used"] for row in TAKEOVER}
    for case in [(*network, way, n) for way, n in (("fetch", 0), ("fetch", 1), ("fetch", 2), ("push", 0), ("push", 2))]:
        took = (np.array([0.4, 0.36, 0.36]) / cases[case]).sum()  # one, two and three at once use so much of the link
        off.append(taken_over(*case) / took - 1)
        ideal.append(1.12 / took - 1)  # all of the link all the time
    assert np.sqrt(np.square(off).mean()) < min(0.09, 0.9 * np.sqrt(np.square(ideal).mean()))
