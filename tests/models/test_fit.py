"""Fits must recover the truth that made their data, and say what they cannot know."""

import math

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import queuemodel as qm
from queuemodel import example_profile, example_throughputs, queueing
from tests.oracles.jobs_by_hand import noisy, parameter, profile, step

POSITIVE = st.floats(0.01, 5.0)


def demands(model):
    """Seconds of fetching, pushing, updating and of the worker's own."""
    values = {one.name: one.value for one in model.parameters}
    return [
        values[name] for name in ("transmit link demand", "receive link demand", "server update demand", "worker time")
    ]


@given(fetch=POSITIVE, compute=POSITIVE, push=POSITIVE, update=st.floats(0.0, 1.0), share=st.floats(0.0, 0.9))
def test_one_worker_takes_measured_step(fetch, compute, push, update, share):
    measured = step(fetch, compute, push, update, overlap=share * min(fetch + push, compute))
    for form in ("links", "single"):
        model = qm.fit(profile([measured]), form=form)
        assert model.throughput([1]).steps_per_second[0] == pytest.approx(1 / measured.step_time, rel=1e-9)


def test_demands_are_busy_times():
    links, single = (qm.fit(profile([step(overlap=0.15)] * 3), form=form) for form in ("links", "single"))
    values = {p.name: p.value for p in links.parameters}
    assert values["effective bandwidth down"] == pytest.approx(2_000_000 / 0.2)
    assert demands(links) == pytest.approx([0.2, 0.1, 0.01, 0.5 - 0.15])
    curve = single.throughput([1, 300])
    assert curve.steps_per_second == pytest.approx([1 / 0.66, 1 / 0.31], rel=1e-3)
    assert curve.stations == ("parameter server",)
    assert curve.saturation_workers == pytest.approx(0.66 / 0.31)
    assert links.throughput([2]).bottleneck == "transmit link"
    for wrong, match in (({"form": "other"}, "form must be"), ({"parameter_bytes": 64}, "applies to throughputs of")):
        with pytest.raises(qm.ModelError, match=match):
            qm.fit(profile(), **wrong)


def test_overlapping_transfers_keep_the_step():
    full = qm.Step(step_time=1.0, fetch=0.9, compute=0.9, push=0.9, update=0.0, fetched_bytes=1, pushed_bytes=1)
    model = qm.fit(profile([full]))
    assert model.throughput([1]).steps_per_second[0] == pytest.approx(1.0)
    assert any("overlap each other" in p.note for p in model.parameters)


def test_standard_errors_of_the_mean():
    rng = np.random.default_rng(1)
    model = qm.fit(profile(noisy(rng, count=100, fetch=0.2, compute=0.5, push=0.1)))
    fetch = parameter(model, "transmit link demand")
    assert fetch.standard_error == pytest.approx(0.2 * 0.1 / math.sqrt(100), rel=0.3)
    assert fetch.origin == "measured"
    assert fetch.identified


@settings(max_examples=60)
@given(
    seconds=st.tuples(st.floats(0.05, 1.0), st.just(0.0) | st.floats(1e-9, 1.0), st.just(0.0) | st.floats(1e-9, 0.1)),
    think=st.floats(0.0, 5.0),
    workers=st.integers(2, 24),
    form=st.sampled_from(["links", "single"]),
)
@example(seconds=(0.4, 0.2, 0.01), think=0.2, workers=4, form="links")
def test_waiting_is_removed_from_steps(seconds, think, workers, form):
    """What a network shows at N workers gives its demands back, and so its throughput at any number."""
    groups = [[d] for d in seconds] if form == "links" else [seconds]
    network = queueing.Network(
        [queueing.Station(str(k), service_time=sum(g)) for k, g in enumerate(groups)], think_time=think
    )
    truth = queueing.solve(network, population=workers)
    share = np.array(seconds) / sum(seconds)
    seen = truth.residence_time if form == "links" else share * truth.residence_time.sum()
    step_time = workers / truth.throughput
    recorded = qm.Step(
        step_time=step_time, fetch=seen[0], push=seen[1], update=seen[2], compute=think,
        fetched_bytes=1, pushed_bytes=1,
    )  # fmt: skip
    model = qm.fit(profile([recorded] * 3, workers=workers), form=form)
    if form == "links":
        assert demands(model)[:3] == pytest.approx(seconds, rel=1e-6, abs=1e-9)
    curve = model.throughput([1, workers, 2 * workers])
    assert curve.at(workers) == pytest.approx(truth.throughput, rel=1e-7)
    assert curve.at(1) == pytest.approx(1 / (sum(seconds) + think), rel=1e-7)
    assert curve.profiled_workers == workers
    assert curve.upper[0] / curve.lower[0] > 1.1  # one worker was not seen alone


@pytest.mark.parametrize("servers", [2, 3])
def test_several_servers_keep_measured_throughput(servers):
    model = qm.fit(profile([step(fetch=0.5, push=0.3)] * 2, servers=servers, workers=4))
    assert model.throughput([4]).at(4) == pytest.approx(4 / step(fetch=0.5, push=0.3).step_time, rel=1e-7)
    assert model.throughput([1]).at(1) > 1 / step(fetch=0.5, push=0.3).step_time


def test_retransmission_timeouts_are_no_demand():
    """Two of twelve fetches from several servers took 0.6 s longer: so much longer is a step, on average by 0.1 s."""
    steps = [step(fetch=0.4, push=0.2, overlap=0.1)] * 10 + [step(fetch=1.0, push=0.2, overlap=0.1)] * 2
    several, one = (demands(qm.fit(profile(steps, servers=servers))) for servers in (2, 1))
    assert (several[0], one[0]) == pytest.approx((0.4, 0.5))  # a link of its own may be as slow as that
    assert sum(several) == pytest.approx(0.5 + 0.5 + 0.2 + 0.01 - 0.1) == pytest.approx(sum(one))


def test_worker_link_spares_several_servers():
    """The faster direction shows what a link carries: 2 MB in 0.1 s, so the 1 MB pushed in 0.3 s need 0.05 s of it."""
    recorded = step(fetch=0.1, push=0.3)
    one, two = (demands(qm.fit(profile([recorded] * 2, servers=servers))) for servers in (1, 2))
    assert one == pytest.approx([0.1, 0.3, 0.01, 0.5])
    assert two == pytest.approx([0.1, 0.05, 0.01, 0.75])


def test_server_shares_follow_the_shards():
    data = profile(servers=2)
    uneven = msgspec.structs.replace(data, job=msgspec.structs.replace(data.job, shard_bytes=[1_500_000, 500_000]))
    for recorded, busiest in ((data, 0.5), (uneven, 0.75)):
        assert qm.fit(recorded).throughput([300]).at(300) == pytest.approx(1 / (0.2 * busiest), rel=0.01)


def test_untraced_throughput_removes_tracing_overhead():
    """Of the worker's own time, which tracing lengthens; a link demands what it did."""
    model = qm.fit(profile(throughputs=[qm.Measurement(workers=1, steps_per_second=1.25 / 0.81)]))
    own = 0.5 - 0.81 * (1 - 1 / 1.25)
    assert demands(model) == pytest.approx([0.2, 0.1, 0.01, own])
    assert parameter(model, "tracing overhead").value == pytest.approx(1.25)
    four = qm.fit(profile(throughputs=[qm.Measurement(workers=1, steps_per_second=1.25 / 0.81)] * 4))
    assert parameter(four, "tracing overhead").standard_error == pytest.approx(1.25 * 0.03 / 2)  # of their mean
    faster = model.what_if(accelerator_speed=2.0).throughput([1]).steps_per_second[0]
    assert 1 / faster == pytest.approx(0.81 / 1.25 - own / 2)
    shorter = qm.fit(profile(throughputs=[qm.Measurement(workers=1, steps_per_second=1 / 0.155)]))
    assert demands(shorter) == pytest.approx([0.1, 0.05, 0.005, 0.0])  # than its transfers, so that these are


def test_one_worker_with_other_servers():
    """One worker's own link is the limit, whatever the servers: 1.3 steps/s instead of 1.23 is a shorter step."""
    point = qm.Measurement(workers=1, steps_per_second=1.3, parameter_servers=2)
    model, plain = qm.fit(profile(), throughputs=[point]), qm.fit(profile())
    assert plain.throughput([1]).at(1) < model.throughput([1]).at(1) < 1.3
    assert model.what_if(parameter_servers=2).throughput([1]).measured == ((1, 1.3),)
    faster = qm.Measurement(workers=4, steps_per_second=3.5, bandwidth=40e6)
    assert qm.fit(profile(bandwidth=20e6), throughputs=[faster]).throughput([4]).measured == ()


def test_the_seed_decides():
    rng = np.random.default_rng(3)
    data = profile(noisy(rng, fetch=0.2, compute=0.5, push=0.1))
    same = [qm.fit(data, seed=7).throughput([8]).lower[0] for _ in range(2)]
    assert same[0] == same[1] != qm.fit(data, seed=8).throughput([8]).lower[0]


@pytest.mark.parametrize("workers", [0, [], [0], [-1], [2, 1], [1, 1], [1.5], ["1"], [True], [10**9], math.nan])
def test_bad_workers_are_refused(workers):
    with pytest.raises(qm.ModelError, match="workers"):
        qm.fit(profile()).throughput(workers)


def test_step_without_transfers_has_no_bottleneck():
    idle = profile([step(fetch=0.0, push=0.0, update=0.0, idle=0.3)] * 3)
    model = qm.fit(idle)
    curve = model.throughput([1, 8])
    assert curve.bottleneck == ""
    assert curve.steps_per_second == pytest.approx(np.array([1, 8]) / 0.8)
    assert curve.bound_upper == pytest.approx(np.array([1, 8]) / 0.8)
    assert curve.saturation_workers == math.inf
    worker = parameter(model, "worker time")
    assert "0.3 s more than the 0.5 s of computation" in worker.note


@pytest.mark.parametrize(("bandwidth", "wrong"), [(2e5, True), (1e7, False), (9e6, False), (None, False)])
def test_transfers_above_link_rate_are_noted(bandwidth, wrong):
    curve = qm.fit(profile(bandwidth=bandwidth)).throughput([1, 2])  # 2 MB in 0.2 s
    assert ("faster than links of" in curve.note) == wrong
    ranks = example_profile("ddp-alexnet-40")
    scale = bandwidth / 1e7 if bandwidth else 1.0
    cluster = msgspec.structs.replace(ranks.cluster, bandwidth=scale * ranks.cluster.bandwidth)
    assert ("faster than links of" in qm.predict(msgspec.structs.replace(ranks, cluster=cluster)).note) == wrong


@pytest.mark.parametrize("method", ["mva", "trace"])
def test_contradictory_throughputs_name_the_unit(method):
    profile, points = example_profile("resnet50-60"), example_throughputs("resnet50-60")

    def note(points):
        return qm.predict(profile, method=method, workers=[4], throughputs=points).note

    def scaled(factor):
        return [
            qm.Measurement(workers=p.workers, steps_per_second=p.steps_per_second * factor(p.workers)) for p in points
        ]

    assert "contradict" not in note(points)
    assert "as rounds per second, times the workers" in note(scaled(lambda n: 1 / n))
    assert "contradict the profile" in note(scaled(lambda n: 0.3))
    assert "are they of another job?" in note(scaled(lambda n: 0.3))
