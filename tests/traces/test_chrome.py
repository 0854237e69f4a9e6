"""Kept steps as Chrome trace events: all of them, where viewers show them."""

import json
from itertools import pairwise

import pytest
from by_hand import IDEAL, graphs, profile_of, serial, two_layers
from hypothesis import given
from hypothesis import strategies as st

from queuemodel.traces import simulate


def events_of(run, kind="X"):
    return [event for event in json.loads(run.chrome_trace())["traceEvents"] if event["ph"] == kind]


def lanes_of(run):
    """Begin and end in nanoseconds of the events of each lane, in order."""
    lanes = {}
    for event in events_of(run):
        begin, took = round(1000 * event["ts"]), round(1000 * event["dur"])
        lanes.setdefault((event["pid"], event["tid"]), []).append((begin, begin + took))
    return {lane: sorted(events) for lane, events in lanes.items()}


def test_every_operation_of_the_last_steps_is_kept():
    run = simulate(profile_of(two_layers()), workers=2, steps=10, trace_steps=3, **IDEAL)
    names = {operation.name for operation in two_layers()}
    for w in range(2):
        steps = {}
        for event in events_of(run):
            if event["pid"] == w:
                steps.setdefault(event["args"]["step"], set()).add(event["name"])
        last = max(steps)
        assert steps.pop(last) <= names  # the one that the worker was in
        assert steps == dict.fromkeys(range(last - 3, last), names)
    assert all(event["dur"] >= 0 and event["args"]["waited"] >= 0 for event in events_of(run))


def test_a_slow_worker_has_events_too():
    run = simulate(profile_of(serial()), workers=3, steps=40, slowdown=[1, 1, 30], trace_steps=2, **IDEAL)
    assert {event["pid"] for event in events_of(run)} == {0, 1, 2}


def test_times_are_microseconds_of_the_simulated_clock():
    run = simulate(profile_of(serial()), workers=1, steps=1, trace_steps=1, in_phase=True, **IDEAL)
    at = {event["name"]: (event["ts"], event["ts"] + event["dur"]) for event in events_of(run)}
    assert at == {
        "w": pytest.approx((0, 2e5)),
        "step": pytest.approx((2e5, 7e5)),
        "g": pytest.approx((7e5, 1e6)),
        "sgd": pytest.approx((1e6, 1e6)),
    }


@given(
    operations=graphs(),
    policy=st.sampled_from(["tensorflow", "multiplexed"]),
    servers=st.integers(1, 3),
    seed=st.integers(0, 100),
)
def test_events_of_a_lane_do_not_overlap(operations, policy, servers, seed):
    profile = profile_of(operations, servers=2)
    settings = {"policy": policy, "parameter_servers": servers, "seed": seed, "steps": 6, "trace_steps": 3}
    run = simulate(profile, workers=3, **settings, **IDEAL)
    for events in lanes_of(run).values():
        assert all(end <= begin for (_, end), (begin, _) in pairwise(events))
    named = {(event["pid"], event["tid"]) for event in events_of(run, "M") if event["name"] == "thread_name"}
    assert named == set(lanes_of(run))
