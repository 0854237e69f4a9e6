"""Schedules that can be worked out on paper."""

import msgspec
import numpy as np
import pytest
from by_hand import IDEAL, RATE, profile_of, serial, two_layers

from queuemodel.traces import Link, Links, estimate_links, simulate
from queuemodel.training import Operation


def rate(profile, workers=1, **settings):
    return simulate(profile, workers=workers, **{**IDEAL, **settings}).throughput


def test_one_worker_repeats_its_step():
    assert rate(profile_of(serial(update=0.1), pause=0.4)) == pytest.approx(1 / 1.5)


@pytest.mark.parametrize(
    ("policy", "step"), [("tensorflow", 2.7), ("in-order", 2.4), ("tac", 2.4), ("tic", 2.7), ("reverse", 2.7)]
)
def test_the_order_of_parameters_decides_when_computation_starts(policy, step):
    # TIC looks at operations that need several parameters: one needs both here, a tie, so they go as they were recorded
    # in order: first at .2, second at 1.0; forward .5, 1.0 to 1.4; gradients 1.4 to 2.2, then the first's until 2.4
    assert rate(profile_of(two_layers()), policy=policy) == pytest.approx(1 / step)


def test_turns_let_a_small_tensor_overtake():
    # in turns of 64 KB the first layer's 200 KB are there after about 400 KB; the rest goes as in order
    assert 1 / 2.7 < rate(profile_of(two_layers()), policy="multiplexed") == pytest.approx(1 / 2.4, rel=1e-3)


def test_workers_in_phase_share_a_link_equally():
    # two workers that fetch, then push, at the same time: each transfer takes twice as long, for ever
    profile = profile_of(serial())
    assert rate(profile, 2, in_phase=True) == pytest.approx(2 / (0.4 + 0.5 + 0.6))


def test_a_slow_worker_link_leaves_the_rest_to_the_others():
    # max-min: .25 for the slow one, .75 for the other; it fetches 200 kB in .267 s
    run = simulate(
        profile_of(serial(push=0.2)),
        workers=2,
        in_phase=True,
        worker_bandwidth=[0.25e6, 1e6],
        trace_steps=2,
        steps=2,
        **IDEAL,
    )
    fetches = {
        int(w): times for (w, step, _, i), times in zip(run.log, run.log_times, strict=True) if i == 0 and step == 0
    }
    assert fetches[0][2] == pytest.approx(0.8)
    assert fetches[1][2] == pytest.approx(0.2 / 0.75)


def test_updates_queue_at_the_server():
    profile = profile_of(serial(fetch=0.0, compute=0.1, push=0.0, update=0.4))
    assert rate(profile, 4) == pytest.approx(1 / 0.4, rel=1e-3)
    assert simulate(profile, workers=4, **IDEAL).utilization["update[0]"] == pytest.approx(1, abs=0.01)


def test_two_servers_carry_twice_as_much():
    halves = [
        Operation("fetch", "a", 0.0, 0.5, 500_000),
        Operation("fetch", "b", 0.0, 1.0, 500_000, server=1),
        Operation("compute", "step", 1.0, 1.1, after=[0, 1]),
    ]
    profile = profile_of(halves, servers=2)
    many = {"workers": 16, **IDEAL, "steps": 100}
    assert simulate(profile, **many).throughput == pytest.approx(2.0, rel=0.02)
    assert simulate(profile, parameter_servers=1, **many).throughput == pytest.approx(1.0, rel=0.02)


def test_dealing_by_size_balances_the_servers():
    sizes = [900_000, 100_000, 100_000, 100_000]
    fetches = [Operation("fetch", f"w{i}", 0.0, 0.1 + i, size) for i, size in enumerate(sizes)]
    profile = profile_of([*fetches, Operation("compute", "step", 4.0, 4.0, after=[0, 1, 2, 3])])
    settings = {"workers": 8, "parameter_servers": 2, **IDEAL}
    assert simulate(profile, **settings).throughput == pytest.approx(RATE / 1_000_000, rel=0.02)
    assert simulate(profile, sharding="greedy", **settings).throughput == pytest.approx(RATE / 900_000, rel=0.02)


def test_the_transmission_is_recovered_from_intervals_that_contain_waiting():
    rng = np.random.default_rng(1)

    def step():
        operations, at = [], 0.0
        for kind, start in (("fetch", 0.0), ("push", 30.0)):
            at = start
            for i in range(20):
                size = int(rng.integers(1_000, 900_000))
                at += size / RATE
                operations.append(Operation(kind, f"{kind}{i}", start, at + abs(rng.normal(0, 1e-4)), size))
        return operations

    link = estimate_links(profile_of(*[step() for _ in range(4)])).transmit
    assert link.rate == pytest.approx(RATE, rel=2e-3)
    assert link.rate != pytest.approx(1.02 * RATE, rel=2e-3)  # 2 % wrong would be noticed


def test_a_computation_that_waited_for_the_processor_waits_again():
    operations = [
        Operation("fetch", "w", 0.0, 0.1, 100_000),
        Operation("compute", "one", 0.1, 0.6, after=[0]),
        Operation("compute", "other", 0.6, 1.0, after=[0]),  # ready at .1, but the processor was not free
    ]
    assert rate(profile_of(operations)) == pytest.approx(1.0)


def test_what_ends_together_with_a_large_tensor_was_held_up_behind_it():
    operations = [
        Operation("fetch", "small", 0.0, 0.801, 1_000),
        Operation("fetch", "large", 0.0, 0.8011, 800_000),
        Operation("compute", "one", 0.801, 1.301, after=[0]),
        Operation("compute", "other", 1.301, 1.401, after=[1, 2]),
    ]
    assert rate(profile_of(operations)) == pytest.approx(1 / 1.401, rel=1e-3)
    first = [
        Operation("fetch", "small", 0.0, 0.001, 1_000),
        Operation("fetch", "large", 0.0, 0.801, 800_000),
        Operation("compute", "one", 0.001, 0.501, after=[0]),
        Operation("compute", "other", 0.801, 0.901, after=[1, 2]),
    ]
    assert rate(profile_of(first)) == pytest.approx(1 / 0.901, rel=1e-3)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
def test_fast_and_slow_links_are_the_same_but_for_their_rate(scale):
    link = Link(scale * RATE)
    fast = [msgspec.structs.replace(o, bytes=round(o.bytes * scale)) for o in serial()]
    assert rate(profile_of(fast), 2, links=Links(link, link), in_phase=True) == pytest.approx(2 / 1.5)
