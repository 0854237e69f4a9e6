"""The closed network of steps: fits recover the truth that made their data, intervals, and simulations of the same."""

import json
import math
from importlib import resources

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

import queuemodel as qm
from queuemodel import example_profile, example_throughputs, queueing
from queuemodel.simulator import simulate_operations
from tests.oracles.by_hand import IDEAL, profile_of, serial
from tests.oracles.jobs_by_hand import noisy, on_network, parameter, profile, step

POSITIVE = st.floats(0.01, 5.0)
DEMANDS = ("transmit link demand", "receive link demand", "server update demand", "worker time")


def demands(model):
    """Seconds of fetching, pushing, updating and of the worker's own."""
    return [parameter(model, name).value for name in DEMANDS]


@given(fetch=POSITIVE, compute=POSITIVE, push=POSITIVE, update=st.floats(0.0, 1.0), share=st.floats(0.0, 0.9))
def test_one_worker_takes_measured_step(fetch, compute, push, update, share):
    measured = step(fetch, compute, push, update, overlap=share * min(fetch + push, compute))
    for form in ("links", "single"):
        model = qm.fit(profile([measured]), form=form)
        assert model.throughput([1]).at(1) == pytest.approx(1 / measured.step_time, rel=1e-9)
        assert (len(model.throughput([1]).stations) == 1) == (form == "single")


def test_overlapping_transfers_keep_the_step():
    full = qm.Step(step_time=1.0, fetch=0.9, compute=0.9, push=0.9, update=0.0, fetched_bytes=1, pushed_bytes=1)
    model = qm.fit(profile([full]))
    assert model.throughput([1]).at(1) == pytest.approx(1.0)
    assert any("overlap each other" in p.note for p in model.parameters)


def test_standard_errors_of_the_mean():
    fetch = parameter(qm.fit(profile(noisy(np.random.default_rng(1), count=100, fetch=0.2))), DEMANDS[0])
    assert fetch.standard_error == pytest.approx(0.2 * 0.1 / math.sqrt(100), rel=0.3)
    assert (fetch.origin, fetch.identified) == ("measured", True)


@settings(max_examples=60)
@given(
    seconds=st.tuples(st.floats(0.05, 1.0), st.just(0.0) | st.floats(1e-9, 1.0), st.just(0.0) | st.floats(1e-9, 0.1)),
    think=st.floats(0.0, 5.0), workers=st.integers(2, 24), form=st.sampled_from(["links", "single"]),
)  # fmt: skip
@example(seconds=(0.4, 0.2, 0.01), think=0.2, workers=4, form="links")
def test_waiting_is_removed_from_steps(seconds, think, workers, form):
    """What a network shows at N workers gives its demands back, and so its throughput at any number."""
    groups = seconds if form == "links" else [sum(seconds)]
    stations = [queueing.Station(str(k), service_time=D) for k, D in enumerate(groups)]
    truth = queueing.solve(queueing.Network(stations, think_time=think), population=workers)
    seen = truth.residence_time
    if form == "single":
        seen = np.array(seconds) / sum(seconds) * seen.sum()
    recorded = qm.Step(
        step_time=workers / truth.throughput, fetch=seen[0], push=seen[1], update=seen[2], compute=think,
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
    recorded = step(fetch=0.5, push=0.3)
    curve = qm.fit(profile([recorded] * 2, servers=servers, workers=4)).throughput([1, 4])
    assert curve.at(4) == pytest.approx(4 / recorded.step_time, rel=1e-7)
    assert curve.at(1) > 1 / recorded.step_time


def test_retransmission_timeouts_are_no_demand():
    """Two of twelve fetches from several servers took 0.6 s longer: so much longer is a step, on average by 0.1 s."""
    steps = [step(fetch=0.4, push=0.2, overlap=0.1)] * 10 + [step(fetch=1.0, push=0.2, overlap=0.1)] * 2
    several, one = (demands(qm.fit(profile(steps, servers=servers))) for servers in (2, 1))
    assert (several[0], one[0]) == pytest.approx((0.4, 0.5))  # a link of its own may be as slow as that
    assert sum(several) == pytest.approx(0.5 + 0.5 + 0.2 + 0.01 - 0.1) == pytest.approx(sum(one))


def test_worker_link_spares_several_servers():
    """The faster direction shows what a link carries: 2 MB in 0.1 s, so the 1 MB pushed in 0.3 s need 0.05 s of it."""
    one, two = (demands(qm.fit(profile([step(fetch=0.1, push=0.3)] * 2, servers=servers))) for servers in (1, 2))
    assert one == pytest.approx([0.1, 0.3, 0.01, 0.5])
    assert two == pytest.approx([0.1, 0.05, 0.01, 0.75])


def test_server_shares_follow_the_shards():
    data = profile(servers=2)
    uneven = msgspec.structs.replace(data, job=msgspec.structs.replace(data.job, shard_bytes=[1_500_000, 500_000]))
    for recorded, busiest in ((data, 0.5), (uneven, 0.75)):
        assert qm.fit(recorded).throughput([300]).at(300) == pytest.approx(1 / (0.2 * busiest), rel=0.01)


def test_untraced_throughput_removes_tracing_overhead():
    """Of the worker's own time, which tracing lengthens; a link demands what it did."""

    def untraced(rate, times=1):
        return qm.fit(profile(throughputs=[qm.Measurement(workers=1, steps_per_second=rate)] * times))

    model, own = untraced(1.25 / 0.81), 0.5 - 0.81 * (1 - 1 / 1.25)
    assert demands(model) == pytest.approx([0.2, 0.1, 0.01, own])
    assert parameter(model, "tracing overhead").value == pytest.approx(1.25)
    four = parameter(untraced(1.25 / 0.81, times=4), "tracing overhead")
    assert four.standard_error == pytest.approx(1.25 * 0.03 / 2)  # of their mean
    faster = model.what_if(accelerator_speed=2.0).throughput([1]).at(1)
    assert 1 / faster == pytest.approx(0.81 / 1.25 - own / 2)
    assert demands(untraced(1 / 0.155)) == pytest.approx([0.1, 0.05, 0.005, 0.0])  # shorter than transfers: so are they


def test_one_worker_with_other_servers():
    """One worker's own link is the limit, whatever the servers: 1.3 steps/s instead of 1.23 is a shorter step."""
    point = qm.Measurement(workers=1, steps_per_second=1.3, parameter_servers=2)
    model, plain = qm.fit(profile(), throughputs=[point]), qm.fit(profile())
    assert plain.throughput([1]).at(1) < model.throughput([1]).at(1) < 1.3
    assert model.what_if(parameter_servers=2).throughput([1]).measured == ((1, 1.3),)
    faster = qm.Measurement(workers=4, steps_per_second=3.5, bandwidth=40e6)
    assert qm.fit(profile(bandwidth=20e6), throughputs=[faster]).throughput([4]).measured == ()


def test_step_without_transfers_has_no_bottleneck():
    model = qm.fit(profile([step(fetch=0.0, push=0.0, update=0.0, idle=0.3)] * 3))
    curve = model.throughput([1, 8])
    assert (curve.bottleneck, curve.saturation_workers) == ("", math.inf)
    for rates in (curve.steps_per_second, curve.bound_upper):
        assert rates == pytest.approx(np.array([1, 8]) / 0.8)
    assert "0.3 s more than the 0.5 s of computation" in parameter(model, "worker time").note


@pytest.mark.parametrize(("times", "said"), [(0.02, "faster than links of"), (1, None), (0.9, None), (250, "used lit")])
def test_links_unlike_transfers_are_noted(times, said):
    """Links of so many times those that carried 10 MB/s in steps, and 5 MB/s in rounds."""
    ranks = example_profile("ddp-alexnet-40")
    cluster = msgspec.structs.replace(ranks.cluster, bandwidth=times * ranks.cluster.bandwidth)
    for data in (profile(bandwidth=times * 1e7), msgspec.structs.replace(ranks, cluster=cluster)):
        note = qm.predict(data, workers=[1, 2]).note
        for one in ("faster than links of", "used lit"):
            assert (one in note) == (one == said and (data.rounds != [] or times < 1))


@pytest.mark.parametrize("method", ["mva", "trace"])
def test_contradictory_throughputs_name_the_unit(method):
    recorded, points = example_profile("resnet50-60"), example_throughputs("resnet50-60")

    def note(factor):
        scaled = [msgspec.structs.replace(p, steps_per_second=p.steps_per_second * factor(p.workers)) for p in points]
        return qm.predict(recorded, method=method, workers=[4], throughputs=scaled).note

    assert "contradict" not in note(lambda n: 1.0)
    assert "as rounds per second, times the workers" in note(lambda n: 1 / n)
    assert "contradict the profile" in note(lambda n: 0.3)


# Intervals: the steps' sampling, and the network's own error

TOLD = json.loads((resources.files("queuemodel.models") / "model_error.json").read_text())["mva"]
SEEN = np.array([TOLD[name] for name in ("below", "at", "beyond", "far")])


def own_error(workers, saturation):
    """Of the closed network itself, by where a number of workers stands to the knee."""
    return np.sqrt(np.interp(np.log2(np.asarray(workers) / saturation), [-1, 0, 1, 2], SEEN**2))


@pytest.mark.parametrize(("traced", "confidence"), [(1, 0.5), (4, 0.9), (1, 0.99)])
def test_constant_steps_leave_model_error(traced, confidence):
    model, workers = qm.fit(on_network(profile(workers=traced), "cubic")), np.array([1, 2, 4, 7, 64])
    curve, elsewhere = (one.throughput(workers, confidence=confidence) for one in (model, model.what_if(batch_size=64)))
    z = stats.norm.ppf((1 + confidence) / 2)
    errors = np.where(workers == traced, TOLD["profiled"], own_error(workers, curve.saturation_workers))
    for expected, found in ((errors, curve), (np.full(5, SEEN.max()), elsewhere)):
        for ratio in (found.upper / found.steps_per_second, found.steps_per_second / found.lower):
            np.testing.assert_allclose(np.log(ratio), z * expected, rtol=0.01)


@pytest.mark.parametrize("count", [1, 7])
def test_intervals_join_sampling_and_model_error(count):
    """Student's law with the covariance of the steps; one step is taken to vary by a tenth."""
    rng, N = np.random.default_rng(3), np.array([2, 5, 20])
    times = np.array([0.2, 0.1, 0.02, 0.5]) * rng.gamma(20, 0.05, (count, 4))
    times[:, 1] += 0.5 * times[:, 0]
    steps = [step(fetch=a, push=b, update=c, compute=d) for a, b, c, d in times.tolist()]
    model = qm.fit(on_network(profile(steps), "cubic"), seed=3)
    phases, draws = np.column_stack([times[:, :3], times.sum(axis=1)]), model.draws
    mean = phases.mean(axis=0)
    drawn = np.log([draws.fetch, draws.push, draws.update, draws.total] / mean[:, None])
    near = 0.1 if count == 1 else phases.std(axis=0, ddof=1) / mean / count**0.5 * stats.t.ppf(0.84134, count - 1)
    low, high = np.quantile(drawn, [0.15866, 0.84134], axis=1)
    assert (high - low) / 2 == pytest.approx(near * np.ones(4), rel=0.17)
    if count > 1:
        assert np.corrcoef(drawn) == pytest.approx(np.corrcoef(phases.T), abs=0.15)
    curve, every = model.throughput(N, confidence=0.7), model.drawn(np.append(1, N))[1:]
    D, Q, X = np.column_stack([draws.fetch, draws.push, draws.update]), 0.0, []
    for n in range(1, 21):  # exact mean-value analysis of each draw
        R = D * (1 + Q)
        X.append(n / (draws.worker + R.sum(axis=1)))
        Q = X[-1][:, None] * R
    assert every == pytest.approx(np.array(X)[N - 1], rel=1e-6)
    error = own_error(N, curve.saturation_workers)
    for end, share, sign in ((curve.lower, 0.15, -1), (curve.upper, 0.85, 1)):
        both = np.log(every)[:, :, None] + error[:, None, None] * stats.norm.ppf((np.arange(200) + 0.5) / 200)
        ends = np.quantile(both.reshape(len(N), -1), share, axis=1) - np.log(curve.steps_per_second)
        np.testing.assert_allclose(sign * np.log(end / curve.steps_per_second), sign * ends, rtol=0.02)


@pytest.mark.parametrize("phases", [(0.45, 0.1, 0.45), (0.3, 0.4, 0.3)], ids=["heavy", "light"])
@pytest.mark.parametrize(
    ("shares", "most"),
    [([1.0], 0.04), ([0.5] * 2, 0.04), ([0.25] * 4, 0.04), ([0.3, 0.7], 0.13), ([0.28, 0.08, 0.64], 0.13)],
)
def test_several_servers_agree_with_simulation(shares, most, phases):
    """But for the simulation's own error of about 1 %; steps vary, since phases never mix where everything repeats."""
    drawn = np.random.default_rng(1).gamma([11, 4, 11], 1 / np.array([11, 4, 11]), (300, 3))
    times, sizes = drawn / drawn.mean(axis=0) * phases, [round(1000 * share) for share in shares]
    recorded = profile_of(
        *(serial(*row, shares=shares) for row in times.tolist()), servers=len(shares), congestion_control="cubic"
    )
    job = qm.Job(batch_size=1, parameter_bytes=sum(sizes), tensors=len(shares), shard_bytes=sizes)
    recorded, workers = msgspec.structs.replace(recorded, job=job), [1, 4, 24]
    runs = [simulate_operations(recorded, workers=n, steps=6_000 // n, **IDEAL).throughput for n in workers]
    off = qm.fit(recorded).throughput(workers).steps_per_second / runs - 1
    assert off.min() > (-0.04 if len(set(shares)) == 1 else -0.02)
    assert off.max() < most
    assert abs(off[0]) < 0.01
    assert abs(off[-1]) < 0.02
