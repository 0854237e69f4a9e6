"""What the network does is told, recorded or unknown, and each gives an answer of its own."""

import msgspec
import numpy as np
import pytest
from by_hand import LINKS, RATE, graphs, profile_of, serial
from hypothesis import given, settings

import queuemodel as qm
from queuemodel.traces import simulate, trace_curve, trace_runs, trace_throughput
from queuemodel.traces.contention import BESIDE_ACCIDENTS, BUFFER, UNFAIRNESS, WINDOW_KEPT, contentions
from queuemodel.traces.kernel.state import PACKET
from queuemodel.traces.kernel.windows import TIMEOUT

SHARED = serial(fetch=0.4, compute=0.2, push=0.4)  # four workers of it share links and leave them all the time
RUNS = {"workers": [4], "steps": 800, "replications": 2, "links": LINKS}


def profile_in(steps=SHARED, *, hosts=None, **cluster):
    source = qm.Source(framework="by hand", hosts=hosts or {})
    return msgspec.structs.replace(profile_of(steps), source=source, cluster=qm.Cluster(**cluster))


BBR = {"congestion_control": "bbr"}
HERE = {"worker:0": "127.0.0.1:1", "ps:0": "127.0.0.1:2"}


@pytest.mark.parametrize(
    ("profiled", "asked", "expected"),
    [
        ({}, {}, [("loss-based", BUFFER), ("bbr", BUFFER)]),
        ({"buffer": 0.03}, {}, [("loss-based", 0.03), ("bbr", 0.03)]),
        ({"congestion_control": "cubic", "buffer": 0.03}, {}, [("cubic", 0.03)]),
        ({"congestion_control": "reno"}, {}, [("reno", BUFFER)]),
        ({"congestion_control": "reno"}, BBR, [("bbr", BUFFER)]),
        (BBR | {"buffer": 0.03}, {"buffer": 0.0}, [("bbr", 0.0)]),
        (BBR, {"congestion_control": "unknown"}, [("loss-based", BUFFER), ("bbr", BUFFER)]),
        ({"congestion_control": "bbr"}, {"loaded_trip": 0.02}, [("", 0.02)]),
        ({"congestion_control": "bbr", "hosts": HERE}, {}, [("loopback", 0.0)]),
        ({"congestion_control": "bbr", "hosts": HERE}, {"bandwidth": 1.25e9}, [("bbr", BUFFER)]),
        ({"hosts": HERE}, {"congestion_control": "bbr"}, [("bbr", BUFFER)]),
        ({"congestion_control": "bbr", "hosts": HERE, "bandwidth": 1e7}, {}, [("bbr", BUFFER)]),  # shaped
    ],
)
def test_the_kind_follows_from_what_is_known(profiled, asked, expected):
    kinds = contentions(profile_in(**profiled), **asked)
    assert [(kind.name, kind.loaded_trip) for kind in kinds] == expected
    for kind in kinds:
        assert kind.window_kept == {"loss-based": 0.7, "cubic": 0.7, "reno": 0.5}.get(kind.name, 0.0)
        own_queues = kind.name in (*WINDOW_KEPT, "bbr") and not kind.loaded_trip
        accidents = kind.loaded_trip and not kind.window_kept
        assert kind.unfairness == (0.0 if own_queues else BESIDE_ACCIDENTS if accidents else UNFAIRNESS)
    assert {kind.unfairness for kind in contentions(profile_in(**profiled), unfairness=0.1, **asked)} == {0.1}


@pytest.mark.parametrize("name", ["cubic", "bbr"])
def test_connections_with_queues_of_their_own_share_equally_at_once_and_have_no_history(name):
    (kind,) = contentions(profile_in(congestion_control=name, buffer=0.0))
    assert kind.settings == {"loaded_trip": 0.0, "unfairness": 0.0, "window_kept": 0.0}


def test_a_profile_and_an_argument_say_the_same():
    asked = simulate(profile_in(), congestion_control="bbr", buffer=0.05, workers=4, links=LINKS)
    by_profile = simulate(profile_in(congestion_control="bbr", buffer=0.05), workers=4, links=LINKS)
    by_number = simulate(profile_in(), loaded_trip=0.05, workers=4, links=LINKS)
    loss_based = simulate(profile_in(), workers=4, links=LINKS)
    assert asked.throughput == by_profile.throughput == by_number.throughput
    assert (
        loss_based.throughput == simulate(profile_in(), congestion_control="cubic", workers=4, links=LINKS).throughput
    )
    assert asked.upper < loss_based.lower


def test_a_bandwidth_asked_for_takes_a_job_from_loopback_to_the_hosts_own_network():
    profile, runs = profile_in(hosts=HERE, congestion_control="bbr"), {"workers": 4, "links": LINKS}
    ((many,),) = trace_runs(profile, bandwidth=1e6, replications=1, steps=800, **runs)
    ((bbr,),) = trace_runs(profile, bandwidth=1e6, replications=1, steps=800, loaded_trip=BUFFER, **runs)
    assert many.throughput == bbr.throughput
    here, loss_based = (simulate(profile, **told, **runs) for told in ({}, {"loaded_trip": 0.0}))
    assert here.throughput == loss_based.throughput
    assert (
        simulate(profile, bandwidth=1e6, **runs).throughput
        != simulate(profile, bandwidth=1e6, loaded_trip=0.0, **runs).throughput
    )


def test_bbr_leaves_links_idle_by_its_buffer_and_one_worker_notices_silences_only():
    profile = profile_in(congestion_control="bbr")
    long = RUNS | {"steps": 4000}
    short, wide = (trace_throughput(profile, buffer=wait, **long)[0, 0] for wait in (0.003, 0.05))
    at_once = trace_throughput(profile, loaded_trip=0.0, **long)[0, 0]
    own_queues = [
        trace_throughput(profile, congestion_control=name, buffer=0.0, **long)[0, 0] for name in ("bbr", "cubic")
    ]
    fair = trace_throughput(profile, loaded_trip=0.0, unfairness=0.0, **long)[0, 0]
    assert own_queues == pytest.approx([fair, fair])
    assert max(short, wide) < 0.96 * at_once
    assert abs(wide / short - 1) > 0.02
    alone = [trace_throughput(profile, buffer=wait, **long | {"workers": [1]})[0, 0] for wait in (0.0, 0.05)]
    often = 0.25 * 12 / (RATE * 0.05 / PACKET)  # a second; each lasts for a timeout, or two
    assert alone == pytest.approx([1.0, 1 / (1 + 0.8 * often * (TIMEOUT + 0.05) / 0.9)], rel=4e-3)


def test_windows_and_sharing_at_once_are_averaged():
    profile, alike = profile_in(congestion_control="cubic", buffer=0.025), {"workers": 4, "steps": 200, "links": LINKS}
    (runs,) = trace_runs(profile, replications=4, **alike | {"workers": [4], "steps": 3200})
    for i, told in enumerate(({}, {"loaded_trip": 0.0}, {}, {"loaded_trip": 0.0})):
        assert runs[i].throughput == simulate(profile, seed=runs[i].settings["seed"], **told, **alike).throughput


def test_unknown_is_the_likeliest_with_an_interval_over_all():
    unknown, cubic, bbr = (
        trace_curve(profile_in(**told), buffer=0.05, **RUNS)
        for told in ({}, {"congestion_control": "cubic"}, {"congestion_control": "bbr"})
    )
    assert unknown.at(4) == cubic.at(4)
    assert unknown.upper[0] == cubic.upper[0]
    assert unknown.lower[0] == bbr.lower[0] < 0.96 * cubic.lower[0]
    assert "--congestion-control" in unknown.note
    assert "known" not in cubic.note + bbr.note
    assert [curve.method.split(", ")[-1] for curve in (unknown, cubic, bbr)] == ["loss-based)", "cubic)", "bbr)"]


def test_one_run_says_which_network_it_was_and_whether_that_was_assumed():
    networks = [
        simulate(profile_in(**told), workers=2, steps=20, links=LINKS, **given).settings.get("network")
        for told, given in (
            ({}, {"buffer": 0.05}),
            ({"congestion_control": "bbr"}, {}),
            ({}, {"congestion_control": "reno"}),
            ({}, {"loaded_trip": 0.0}),
        )
    ]
    assert networks == ["loss-based (assumed)", "bbr", "reno", None]
    assert "loss-based (assumed)" in simulate(profile_in(), workers=1, steps=5, links=LINKS).caption()


def test_a_buffer_that_nobody_told_is_said_to_be_assumed():
    curve = trace_curve(profile_in(congestion_control="bbr"), **RUNS)
    assert "12 ms: tell them (--buffer)" in curve.note
    assert "12 ms: tell them (--buffer)" in trace_curve(profile_in(congestion_control="reno"), **RUNS).note
    assert "--buffer" not in trace_curve(profile_in(congestion_control="reno", buffer=0.003), **RUNS).note


@settings(max_examples=20, deadline=None)
@given(graphs())
def test_the_interval_over_all_is_that_of_every_kind(operations):
    profile = profile_of(operations, servers=2)
    runs = {"workers": [1, 3], "steps": 60, "replications": 2, "links": LINKS}
    kinds = [trace_throughput(profile, congestion_control=told, **runs) for told in ("cubic", "bbr")]
    unknown = trace_throughput(profile, **runs)
    np.testing.assert_array_equal(unknown[:, 0], kinds[0][:, 0])
    np.testing.assert_array_equal(unknown[:, 1], np.min(kinds, axis=0)[:, 1])
    np.testing.assert_array_equal(unknown[:, 2], np.max(kinds, axis=0)[:, 2])


@pytest.mark.parametrize("told", [{"congestion_control": "bbr"}, {"buffer": 0.0}])
def test_what_a_number_already_says_is_not_told_again(told):
    for run in (simulate, trace_throughput):
        with pytest.raises(qm.ModelError, match=r"simulate: loaded_trip says what .* leave it or them, got 0.01"):
            run(profile_in(), workers=2, loaded_trip=0.01, **told)


def test_a_profile_keeps_what_is_told_and_whence():
    told = {"congestion_control": "bbr", "buffer": 0.012}
    cluster = qm.Cluster(**told, origins={"congestion_control": "recorded", "buffer": "given"})
    profile = msgspec.structs.replace(profile_in(), cluster=cluster)
    assert qm.Profile.from_json(profile.to_json()).cluster == cluster


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("congestion_control", "vegas", "congestion_control must be one of bbr, cubic, reno, unknown, got 'vegas'"),
        ("buffer", 12, "buffer must be at most 10 seconds, got 12"),
        ("buffer", -0.01, "buffer must be finite and >= 0 seconds, got -0.01"),
        ("origins", {"buffer": "guessed"}, "origins: buffer must be one of recorded, given, got 'guessed'"),
        ("origins", {"latency": "given"}, "origins: name must be one of congestion_control, buffer, got 'latency'"),
    ],
)
def test_a_profile_refuses_what_no_network_is(field, value, message):
    data = profile_in().to_dict()
    data["cluster"][field] = value
    with pytest.raises(qm.DataError, match=message):
        qm.Profile.from_json(msgspec.json.encode(data))
