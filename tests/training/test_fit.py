"""Fits must recover the truth that made their data, and say what they cannot know."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import queuemodel as qm
from queuemodel.solvers import knee_throughput
from queuemodel.solvers.recursions import mva_recursion
from queuemodel.training.rules import ParallelServers


def step(fetch=0.2, compute=0.5, push=0.1, update=0.01, overlap=0.0, idle=0.0):
    return qm.Step(
        step_time=fetch + compute + push + update - overlap + idle,
        fetch=fetch,
        compute=compute,
        push=push,
        update=update,
        fetched_bytes=2_000_000,
        pushed_bytes=1_000_000,
        overlap=overlap,
    )


def profile(steps=None, *, throughputs=(), hosts=None, bandwidth=None, servers=1, batch_size=32):
    return qm.Profile(
        source=qm.Source(framework="test", hosts=hosts or {}),
        cluster=qm.Cluster(parameter_servers=servers, bandwidth=bandwidth),
        job=qm.Job(name="job", batch_size=batch_size, parameter_bytes=2_000_000, tensors=8, dataset_size=64_000),
        steps=[step()] * 5 if steps is None else steps,
        throughputs=list(throughputs),
    )


def noisy(rng, count=40, **means):
    return [step(**{k: v * rng.gamma(100, 0.01) for k, v in means.items()}) for _ in range(count)]


POSITIVE = st.floats(0.01, 5.0)


@given(fetch=POSITIVE, compute=POSITIVE, push=POSITIVE, update=st.floats(0.0, 1.0), share=st.floats(0.0, 0.9))
def test_one_worker_takes_exactly_the_measured_step(fetch, compute, push, update, share):
    measured = step(fetch, compute, push, update, overlap=share * min(fetch + push, compute))
    for form in ("links", "single"):
        model = qm.fit(profile([measured]), form=form)
        assert model.throughput([1]).steps_per_second[0] == pytest.approx(1 / measured.step_time, rel=1e-9)


def test_demands_are_busy_times_and_the_worker_gets_the_rest():
    model = qm.fit(profile([step(overlap=0.15)] * 3))
    values = {p.name: p.value for p in model.parameters}
    assert values["transmit link demand"] == pytest.approx(0.2)
    assert values["receive link demand"] == pytest.approx(0.1)
    assert values["server update demand"] == pytest.approx(0.01)
    assert values["worker time"] == pytest.approx(0.5 - 0.15)
    assert values["effective bandwidth down"] == pytest.approx(2_000_000 / 0.2)


def test_forms_agree_with_exact_mva():
    links, single = qm.fit(profile()), qm.fit(profile(), form="single")
    for model, demands in ((links, [0.2, 0.1, 0.01]), (single, [0.31])):
        truth = qm.solve(
            qm.Network([qm.Station(str(d), service_time=d) for d in demands], think_time=0.5), population=32
        )
        np.testing.assert_allclose(model.throughput().steps_per_second, truth.throughputs, rtol=1e-9)
    assert links.throughput([32]).steps_per_second < 1 / 0.2
    assert single.throughput([32]).steps_per_second < 1 / 0.31


def test_curve_is_the_networks_solution():
    model = qm.fit(profile())
    curve, solution = model.throughput(range(1, 9)), qm.solve(model.network(), population=8)
    np.testing.assert_allclose(curve.steps_per_second, solution.throughputs, rtol=1e-12)
    np.testing.assert_allclose(curve.utilization[-1], solution.utilization[:3], rtol=1e-12)
    assert curve.bottleneck == "transmit link"
    assert curve.saturation_workers == pytest.approx(0.81 / 0.2)


def test_transfers_that_overlap_each_other_still_give_the_step():
    full = qm.Step(step_time=1.0, fetch=0.9, compute=0.9, push=0.9, update=0.0, fetched_bytes=1, pushed_bytes=1)
    model = qm.fit(profile([full]))
    assert model.throughput([1]).steps_per_second[0] == pytest.approx(1.0)
    assert any("overlap each other" in p.note for p in model.parameters)


def test_standard_errors_are_those_of_the_mean():
    rng = np.random.default_rng(1)
    model = qm.fit(profile(noisy(rng, count=100, fetch=0.2, compute=0.5, push=0.1)))
    fetch = next(p for p in model.parameters if p.name == "transmit link demand")
    assert fetch.standard_error == pytest.approx(0.2 * 0.1 / math.sqrt(100), rel=0.3)
    assert fetch.origin == "measured"
    assert fetch.identified


def test_intervals_shrink_with_more_steps_and_widen_beyond_the_profile():
    rng = np.random.default_rng(2)
    steps = noisy(rng, count=400, fetch=0.2, compute=0.5, push=0.1)
    few, many = qm.fit(profile(steps[:10])).throughput([1, 8]), qm.fit(profile(steps)).throughput([1, 8])
    width = lambda curve: np.log(curve.upper / curve.lower)  # noqa: E731
    assert width(many)[0] < 0.5 * width(few)[0]
    assert width(many)[1] > 5 * width(many)[0]


def test_profile_and_throughputs_in_one_fit_find_contention():
    truth = qm.solve(
        qm.Network([qm.Station(str(d), service_time=1.4 * d) for d in (0.2, 0.1, 0.01)], think_time=0.5), population=8
    )
    measured = [qm.Throughput(workers=n, steps_per_second=truth.at(n).throughput) for n in (2, 4, 8)]
    alone, both = qm.fit(profile()), qm.fit(profile(), throughputs=measured)
    contention = next(p for p in both.parameters if p.name == "contention")
    assert contention.value == pytest.approx(1.4, rel=0.05)
    assert contention.identified
    assert not next(p for p in alone.parameters if p.name == "contention").identified
    error = lambda model: abs(model.throughput([16]).steps_per_second[0] * 0.28 - 1)  # noqa: E731
    assert error(both) < 0.05 < error(alone)
    assert both.throughput([8]).profiled_workers == 8


def test_untraced_throughput_of_one_worker_removes_what_tracing_cost():
    untraced = qm.Throughput(workers=1, steps_per_second=1.25 / 0.81)
    model = qm.fit(profile(throughputs=[untraced]))
    for name in ("fetch", "push", "update", "worker"):
        alone = getattr(qm.fit(profile()).demands, name)
        assert getattr(model.demands, name) == pytest.approx(alone / 1.25, rel=1e-12)
    assert model.throughput([1]).steps_per_second[0] == pytest.approx(1.25 / 0.81)
    overhead = next(p for p in model.parameters if p.name == "tracing overhead")
    assert overhead.value == pytest.approx(1.25)


@pytest.mark.parametrize("knee", [2.5, 3.5, 6.0])
def test_throughputs_alone_recover_the_knee_once_it_is_seen(knee):
    N = np.arange(1, 9)
    x = knee_throughput(N, cycle=0.5, demand=0.5 / knee, width=0.25)
    model = qm.fit([qm.Throughput(workers=int(n), steps_per_second=float(v)) for n, v in zip(N, x, strict=True)])
    demand = next(p for p in model.parameters if p.name == "server demand")
    assert demand.value == pytest.approx(0.5 / knee, rel=0.05)
    assert demand.identified
    assert model.throughput([16]).steps_per_second[0] == pytest.approx(knee / 0.5, rel=0.06)


def test_throughputs_without_a_knee_say_so():
    line = [qm.Throughput(workers=n, steps_per_second=3.0 * n) for n in (1, 2, 3, 4)]
    model = qm.fit(line)
    demand = next(p for p in model.parameters if p.name == "server demand")
    assert not demand.identified
    assert "no saturation" in model.note
    curve = model.throughput([4, 64])
    assert curve.upper[1] / curve.lower[1] > 3 * curve.upper[0] / curve.lower[0]
    links = [p for p in model.parameters if "link" in p.name]
    assert links
    assert all(not p.identified and math.isnan(p.value) for p in links)


def test_throughputs_do_not_tell_what_a_network_buys():
    model = qm.fit([qm.Throughput(workers=1, steps_per_second=1.0)])
    with pytest.raises(qm.ModelError, match="bytes per step"):
        model.what_if(bandwidth=1e9)


def test_fit_refuses_nonsense():
    with pytest.raises(qm.FitError, match="at least one measured throughput"):
        qm.fit([])
    with pytest.raises(qm.ModelError, match="form must be"):
        qm.fit(profile(), form="other")


def test_the_seed_decides():
    rng = np.random.default_rng(3)
    data = profile(noisy(rng, fetch=0.2, compute=0.5, push=0.1))
    same = [qm.fit(data, seed=7).throughput([8]).lower[0] for _ in range(2)]
    assert same[0] == same[1] != qm.fit(data, seed=8).throughput([8]).lower[0]


# What-ifs


def test_bandwidth_replaces_the_links_part_only():
    nominal = 20e6
    model = qm.fit(profile(bandwidth=nominal))
    wire = 2_000_000 / (0.95 * nominal)
    faster = model.what_if(bandwidth=10 * nominal)
    assert faster.demands.fetch == pytest.approx(0.2 - wire + wire / 10)
    assert model.what_if(bandwidth=nominal).demands.fetch == model.demands.fetch
    slower = model.what_if(bandwidth=nominal / 10).throughput([8]).steps_per_second
    assert slower < model.throughput([8]).steps_per_second < faster.throughput([8]).steps_per_second


def test_loopback_keeps_the_hosts_cost_when_a_link_is_added():
    model = qm.fit(profile(hosts={"ps:0": "127.0.0.1:1", "worker:0": "localhost:2"})).what_if(bandwidth=125e6)
    assert model.demands.fetch == pytest.approx(0.2 + 2_000_000 / (0.95 * 125e6))


def test_two_even_servers_double_the_capacity():
    model = qm.fit(profile())
    two = model.what_if(shards=[1, 1])
    assert two.parameter_servers == 2
    assert two.throughput([1]).steps_per_second == pytest.approx(model.throughput([1]).steps_per_second)
    assert two.throughput([200]).steps_per_second[0] == pytest.approx(2 / 0.2, rel=1e-2)
    uneven = model.what_if(shards=[3, 1]).throughput([200])
    assert uneven.steps_per_second[0] == pytest.approx(1 / (0.75 * 0.2), rel=1e-3)
    assert uneven.bottleneck == "transmit link 0"


@given(
    demands=st.lists(st.floats(0.01, 2.0), min_size=3, max_size=3),
    think=st.floats(0.0, 5.0),
    population=st.integers(1, 40),
)
def test_one_of_several_servers_is_exact_mva(demands, think, population):
    D = np.array(demands)
    N = np.arange(1, population + 1)
    parallel = ParallelServers(1).solve(D, np.array(think), N).X
    exact, _ = mva_recursion(D, think, np.zeros(3, dtype=bool), N)
    np.testing.assert_allclose(parallel, exact, rtol=1e-12)


def test_residence_times_of_several_servers_add_up_to_the_cycle():
    curve = qm.fit(profile()).what_if(shards=[3, 1]).throughput([1, 4, 16])
    total = curve.residence_time.sum(axis=1) + curve.think_time
    np.testing.assert_allclose(total, curve.workers / curve.steps_per_second, rtol=1e-9)


def test_batch_and_accelerator_change_the_computation():
    model = qm.fit(profile([step(overlap=0.15)]))
    assert model.what_if(accelerator_speed=2).demands.worker == pytest.approx(0.35 - 0.25)
    double = model.what_if(batch_size=64)
    assert double.demands.worker == pytest.approx(0.35 + 0.5)
    assert double.throughput([1]).batch_size == 64
    assert model.what_if(accelerator_speed=1e6).demands.worker == 0


def test_equal_worker_speeds_change_little_and_slow_workers_cost():
    model = qm.fit(profile())
    equal = model.what_if(worker_speeds=[1.0] * 8).throughput([1, 8])
    exact = model.throughput([1, 8])
    assert equal.steps_per_second[0] == pytest.approx(exact.steps_per_second[0], rel=1e-9)
    assert equal.steps_per_second[1] == pytest.approx(exact.steps_per_second[1], rel=1e-9)
    # two classes of one customer each: by hand, exact multi-class mean-value analysis
    D, Z = np.array([0.2, 0.1, 0.01]), np.array([0.5, 2.0])
    alone = D / (D.sum() + Z[:, None])  # queue lengths of each worker without the other
    truth = sum(1 / (Z[i] + (D * (1 + alone[1 - i])).sum()) for i in (0, 1))
    assert model.what_if(worker_speeds=[1.0, 0.25]).throughput([2]).steps_per_second[0] == pytest.approx(
        truth, rel=0.02
    )
    slow = model.what_if(worker_speeds=[1.0, 0.25]).throughput([2])
    assert slow.steps_per_second < model.throughput([2]).steps_per_second
    with pytest.raises(qm.ModelError, match="worker_speeds"):
        model.what_if(worker_speeds=[1.0, 1.0]).throughput([3])


@pytest.mark.parametrize(
    "change",
    [
        {"bandwidth": 0}, {"bandwidth": -1.0}, {"bandwidth": math.nan}, {"bandwidth": math.inf}, {"bandwidth": "fast"},
        {"parameter_servers": 0}, {"parameter_servers": 1.5}, {"batch_size": 0}, {"batch_size": 2.5},
        {"accelerator_speed": 0}, {"worker_speeds": [1.0, -1.0]}, {"shards": [0, 1]},
        {"shards": [1, 1], "parameter_servers": 3},
    ],
)  # fmt: skip
def test_bad_what_ifs_are_one_clear_line(change):
    with pytest.raises(qm.ModelError) as error:
        qm.fit(profile()).what_if(**change)
    assert next(iter(change)) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("workers", [0, [], [0], [-1], [2, 1], [1, 1], [1.5], ["1"], [True], [10**9], math.nan])
def test_bad_workers_are_refused(workers):
    with pytest.raises(qm.ModelError, match="workers"):
        qm.fit(profile()).throughput(workers)


@pytest.mark.parametrize("confidence", [0, 1, -1, math.nan])
def test_bad_confidence_is_refused(confidence):
    with pytest.raises(qm.ModelError, match="confidence"):
        qm.fit(profile()).throughput([1], confidence=confidence)


@settings(max_examples=30, deadline=None)
@given(fetch=POSITIVE, compute=POSITIVE, push=POSITIVE, factor=st.floats(0.01, 100.0))
def test_units_scale(fetch, compute, push, factor):
    plain = qm.fit(profile([step(fetch, compute, push)])).throughput([1, 5, 20])
    scaled = qm.fit(profile([step(fetch * factor, compute * factor, push * factor, 0.01 * factor)]))
    np.testing.assert_allclose(
        scaled.throughput([1, 5, 20]).steps_per_second * factor, plain.steps_per_second, rtol=1e-9
    )
