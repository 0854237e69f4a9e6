"""The closed network of a profile: against exact networks, the simulation, measurements, and what every job keeps."""

import itertools
import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs_by_hand import on_network, profile, step

import queuemodel as qm
from queuemodel import example_profile
from validation.testbed.recordings import unpacked

SERIES = Path(__file__).parents[2] / "validation" / "testbed" / "series"

SECONDS = st.floats(0.01, 1.0)
PHASES = st.fixed_dictionaries({"fetch": SECONDS, "push": SECONDS, "update": SECONDS, "compute": SECONDS})
SHARED = {"congestion_control": "cubic"}


def fitted(phases, **changes):
    """The model of steps that do one thing after the other, on links that connections share equally."""
    return qm.fit(on_network(profile([step(**phases)] * 3), "cubic")).what_if(**changes)


def keeps_laws(curve):
    total = curve.residence_time.sum(axis=1) + curve.think_time
    np.testing.assert_allclose(total, curve.workers / curve.steps_per_second, rtol=1e-9)  # Little's law
    assert np.all(np.diff(curve.steps_per_second) >= -1e-12)
    assert np.all(curve.bound_lower <= curve.steps_per_second * (1 + 1e-9))
    assert np.all(curve.steps_per_second <= curve.bound_upper * (1 + 1e-9))
    assert np.all((curve.lower <= curve.steps_per_second) & (curve.steps_per_second <= curve.upper))


@given(PHASES)
def test_one_server_is_solved_exactly(phases):
    workers = [1, 2, 7, 30]
    curve = fitted(phases).throughput(workers)
    stations = [qm.Station(name, service_time=phases[name]) for name in ("fetch", "push", "update")]
    for i, n in enumerate(workers):
        exact = qm.solve(qm.Network(stations, think_time=phases["compute"]), population=n)
        assert curve.steps_per_second[i] == pytest.approx(exact.throughput, rel=1e-9)
        np.testing.assert_allclose(np.sort(curve.residence_time[i]), np.sort(exact.residence_time), rtol=1e-9)
    assert "exact" in curve.method
    keeps_laws(curve)


@settings(max_examples=30)
@given(PHASES, st.lists(st.sampled_from([0.02, 0.5, 1.0, 3.0, 40.0]), min_size=2, max_size=6))
def test_unequal_workers_are_job_classes(phases, speeds):
    curve = fitted(phases, worker_speeds=speeds).throughput([len(speeds)])
    stations = [qm.Station(name, service_time=phases[name]) for name in ("fetch", "push", "update")]
    classes = [qm.JobClass(str(i), population=1, think_time=phases["compute"] / s) for i, s in enumerate(speeds)]
    exact = qm.solve(qm.Network(stations, classes=classes))
    assert curve.steps_per_second[0] == pytest.approx(exact.throughput, rel=1e-9)
    np.testing.assert_allclose(np.sort(curve.utilization[0]), np.sort(exact.utilization), rtol=1e-8)
    demands = [phases[name] for name in ("fetch", "push", "update")]
    alone = np.mean([1 / (sum(demands) + phases["compute"] / speed) for speed in speeds])
    assert curve.saturation_workers == pytest.approx(1 / (max(demands) * alone))
    if len(set(speeds)) > 1:
        own = fitted(phases, worker_speeds=speeds).network()
        assert qm.solve(own).throughput == pytest.approx(exact.throughput, rel=1e-9)
    keeps_laws(curve)


@settings(max_examples=30)
@given(PHASES, st.lists(st.floats(0.1, 1.0), min_size=2, max_size=4))
def test_several_servers_are_stations_that_more_workers_use_better(phases, shards):
    """Of j workers each has a j-th of the busiest server, and hides the j - 1 next busiest (normalizing constants)."""
    curve = fitted(phases, shards=shards).throughput([12])
    largest = np.sort(np.array(shards) / sum(shards))[::-1]
    rates = [j * largest[0] / (j * largest[0] + largest[j:].sum()) for j in range(1, 13)]
    names = ("fetch", "push", "update")
    stations = [qm.Station(name, service_time=phases[name] * largest[0], rates=rates) for name in names]
    exact = qm.solve(qm.Network(stations, think_time=phases["compute"]), population=12)
    assert curve.steps_per_second[0] == pytest.approx(exact.throughput, rel=1e-6)
    keeps_laws(fitted(phases, shards=shards).throughput([1, 2, 5, 30]))


def layered(fetch, push, layers=8):
    """Steps whose layers fetch, compute (0.05 s each way) and push behind one another: most computation overlaps."""
    operations, at = [], 0.0
    for i in range(layers):
        operations.append(qm.Operation("fetch", f"w{i}", 0.0, fetch * (i + 1) / layers, round(1e6 / layers)))
    for i in range(layers):
        at = max(at, fetch * (i + 1) / layers)
        before = [] if i == 0 else [len(operations) - 1]
        operations.append(qm.Operation("compute", f"f{i}", at, at + 0.05, after=[i, *before]))
        at += 0.05
    sent = at
    last = len(operations) - 1
    for i in reversed(range(layers)):
        operations.append(qm.Operation("compute", f"b{i}", at, at + 0.05, after=[last]))
        last, at = len(operations) - 1, at + 0.05
        sent = max(sent, at) + push / layers
        operations.append(qm.Operation("push", f"g{i}", at, sent, round(1e6 / layers), after=[last]))
    recorded = qm.Step(
        step_time=sent, fetch=fetch, compute=0.1 * layers, push=push, update=0.0, fetched_bytes=1_000_000,
        pushed_bytes=1_000_000, overlap=fetch + 0.1 * layers + push - sent, operations=operations,
    )  # fmt: skip
    return on_network(profile([recorded] * 3, bandwidth=1e6 / 0.95 / min(fetch, push)), "cubic")


@pytest.mark.parametrize(("fetch", "push"), [(0.6, 0.6), (0.8, 0.4), (0.3, 0.7)])
def test_steps_whose_computation_overlaps_transfers_are_as_fast_as_simulated(fetch, push):
    """Such workers settle in phases in which they meet less than by chance."""
    recorded, workers = layered(fetch, push), [2, 3, 4]
    simulated = qm.predict(recorded, workers=workers, method="trace", seed=1)
    network = qm.predict(recorded, workers=workers, method="mva")
    np.testing.assert_allclose(network.steps_per_second, simulated.steps_per_second, rtol=0.15)
    model = qm.fit(recorded)
    for i, n in enumerate(workers):  # the control: workers who meet by chance
        chance = qm.solve(model.network(), population=n).throughput
        assert network.steps_per_second[i] >= chance * (1 - 1e-9)
    keeps_laws(model.throughput([1, 2, 3, 7, 30]))


@pytest.mark.parametrize(("name", "buffer"), [("alexnet-60", 0.012), ("alexnet-60-bbr-40ms", 0.04)])
def test_long_buffers_under_bbr_cost_what_was_measured(name, buffer):
    """Control: links that are always used in full are too fast by what the buffer costs."""
    rows = json.loads((unpacked(SERIES) / name / "measured.json").read_text())
    workers, steps = np.array([(row["workers"], row["steps_per_s"]) for row in rows if row["workers"] >= 4]).T
    recorded = example_profile("alexnet-60")
    held, full = (
        qm.predict(recorded, workers=workers.astype(int), method="mva", **known).steps_per_second / steps - 1
        for known in ({"congestion_control": "bbr", "buffer": buffer}, SHARED)
    )
    assert np.abs(held).max() < 0.07
    assert full.max() > (0.15 if buffer > 0.02 else 0.07)


@settings(max_examples=20)
@given(PHASES, st.floats(0.001, 0.1))
def test_longer_buffers_never_help_and_cost_no_more_than_everyones_turn(phases, buffer):
    recorded, workers = profile([step(**phases)] * 3, bandwidth=20e6), np.array([1, 2, 5, 30])
    free = qm.fit(on_network(recorded, "cubic")).throughput(workers).steps_per_second
    short, longer = (
        qm.fit(on_network(recorded, "bbr", one)).throughput(workers).steps_per_second for one in (buffer, 2 * buffer)
    )
    assert short[0] == pytest.approx(free[0])
    assert np.all(short <= free * 1.01)  # waiting moves between the directions
    assert np.all(longer <= short * 1.01)
    in_turn = workers / (phases["compute"] + workers * (phases["fetch"] + phases["push"] + phases["update"]))
    assert np.all(longer >= in_turn * (1 - 1e-9))


def test_a_short_buffer_costs_little_where_the_windows_fill_it():
    """Both ways at 1 MB/s, five times as many bytes one way: a window takes as long on either link."""
    one = step(fetch=1.0, compute=0.3, push=0.2, update=0.0)
    recorded = profile([msgspec.structs.replace(one, fetched_bytes=1_000_000, pushed_bytes=200_000)] * 3)
    free, short, longer = (
        qm.fit(on_network(recorded, *known)).throughput([8]).at(8)
        for known in (("cubic",), ("bbr", 0.05), ("bbr", 0.2))
    )
    assert short > 0.995 * free
    assert 0.95 * free < longer < 0.98 * free


def test_where_congestion_control_is_unknown_intervals_reach_down_to_bbr():
    """The point is that of equal shares; the lower end the lower one's of both, not below."""
    workers, recorded = [1, 2, 4, 8], example_profile("alexnet-60")
    unknown, fair, bbr = (qm.fit(on_network(recorded, one)).throughput(workers) for one in ("unknown", "cubic", "bbr"))
    np.testing.assert_allclose(unknown.steps_per_second, fair.steps_per_second)
    np.testing.assert_allclose(unknown.upper, fair.upper)
    np.testing.assert_allclose(unknown.lower, np.minimum(fair.lower, bbr.lower))
    assert unknown.lower[2] < 0.95 * fair.lower[2]
    assert "--congestion-control" in unknown.note
    assert "--congestion-control" not in fair.note + bbr.note
    asked = {"workers": workers, "method": "mva", "congestion_control": "bbr"}
    apart, shared = (qm.predict(recorded, **asked, buffer=buffer) for buffer in (0.0, None))
    np.testing.assert_allclose(apart.steps_per_second, fair.steps_per_second)  # queues of their own
    np.testing.assert_allclose(shared.steps_per_second, bbr.steps_per_second)


def test_no_rule_for_unequal_workers_of_several_servers():
    model = qm.fit(profile())
    for one, other in itertools.permutations(({"parameter_servers": 2}, {"worker_speeds": [1.0, 0.5]})):
        with pytest.raises(qm.ModelError, match="2 parameter servers"):
            model.what_if(**one).what_if(**other)


# What is measured besides a profile.


def calibrated(*points, **asked):
    return qm.predict(example_profile("alexnet-60"), workers=[1, 2, 4, 8], method="mva", throughputs=points, **asked)


def test_one_that_contradicts_others_is_named_and_counts_little_and_what_contradicts_the_model_widens():
    def points(*rates):
        return [qm.Throughput(workers=4, steps_per_second=rate) for rate in rates]

    alike, odd, elsewhere = (calibrated(*points(*rates)) for rates in ((1.7, 1.69), (1.7, 1.68, 2.5), (1.3, 1.31)))
    assert "2.5 steps/s with 4 worker(s): does not fit" in odd.note
    again = calibrated(*points(2.5, 1.68, 1.7))
    for name in ("steps_per_second", "lower", "upper"):
        np.testing.assert_allclose(getattr(again, name), getattr(odd, name), rtol=1e-6)
    assert "fit" not in alike.note + elsewhere.note
    assert odd.at(4) == pytest.approx(alike.at(4), rel=0.02)
    assert elsewhere.at(4) == pytest.approx(1.31, rel=0.03)
    widths = [np.log(curve.upper / curve.lower) for curve in (alike, elsewhere)]
    assert np.all(widths[1][[0, 1, 3]] > 1.5 * widths[0][[0, 1, 3]])
