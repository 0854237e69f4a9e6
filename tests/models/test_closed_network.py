"""The closed network of steps: fits recover their truth, intervals, simulations of the same, and barriers."""

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
from queuemodel.models import order_statistic, staleness
from queuemodel.simulator import simulate_operations
from tests.oracles.by_hand import IDEAL, profile_of, serial
from tests.oracles.jobs_by_hand import on_network, parameter, profile, step

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
    fetch = parameter(model, DEMANDS[0])
    assert (fetch.origin, fetch.identified) == ("measured", True)
    if count > 1:
        assert fetch.standard_error == pytest.approx(mean[0] * near[0], rel=0.17)
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


# A barrier at every step, strategies that the closed network does not know, and order statistics

SPREAD = 0.2  # of the logarithms of fetches' shares, as documented


def at_a_barrier(times, *, form="links", strategy="sync-ps", **seconds):
    """The model of steps that compute for these times and do everything one after the other."""
    steps = [step(**seconds, compute=t) for t in times.tolist()]
    return qm.fit(on_network(profile(steps), "cubic"), form=form, strategy=strategy)


def gamma(scv, count=100):
    """Times of mean 1 with nearly this squared coefficient of variation."""
    times = stats.gamma(1 / scv, scale=scv).ppf((np.arange(count) + 0.5) / count)
    return times / times.mean()


def variation(times):
    """Squared coefficient of variation."""
    return times.var(ddof=1) / times.mean() ** 2


@pytest.mark.parametrize("scv", [1e-13, 0.25])
def test_round_bounds_by_slowest_and_busiest(scv):
    """At worst everything is one after the other; at best only one step's transfers, or one station of one server."""
    fetch, push, update, shards, workers = 0.05, 0.03, 0.02, (0.75, 0.25), np.array([1, 3, 60])
    times, slowest = gamma(scv) if scv > 0.1 else np.ones(4), np.ones(3)
    curve = at_a_barrier(times, fetch=fetch, push=push, update=update).what_if(shards=shards).throughput(workers)
    if scv > 0.1:
        law = stats.gamma(1 / variation(times), scale=variation(times)).isf
        slowest = np.array([order_statistic(law, n, n) for n in workers.tolist()])
    least = slowest + fetch + push + update
    np.testing.assert_allclose(workers / curve.bound_lower, slowest + workers * (fetch + push + update), rtol=1e-6)
    np.testing.assert_allclose(workers / curve.bound_upper, np.maximum(least, workers * fetch * max(shards)), rtol=1e-6)
    assert np.all((curve.bound_lower <= curve.steps_per_second) & (curve.steps_per_second <= curve.bound_upper))
    assert np.all((curve.lower <= curve.steps_per_second) & (curve.steps_per_second <= curve.upper))


@pytest.mark.parametrize("form", ["links", "single"])
@pytest.mark.parametrize("shards", [(1.0,), (0.5, 0.3, 0.2)], ids=str)
def test_round_phases_by_hand(form, shards):
    """Unequal shares drawn, own times by their order statistics, spreads combined as those of independent times."""
    rng, times, workers = np.random.default_rng(2), 0.7 * gamma(0.25), np.array([1, 3, 8])
    fetch, push, update, most = 0.09, 0.03, 0.05, max(shards)
    asked = {"fetch": fetch, "push": push, "update": update, "form": form}
    curve, free = (at_a_barrier(times, strategy=way, **asked).what_if(shards=shards).throughput(workers)
                   for way in ("sync-ps", None))  # fmt: skip
    phases = (fetch * most, fetch, max(push, update) * most, push + update)
    if form == "single":  # one station serves what comes after computing
        phases = (0.0, 0.0, (fetch + push + update) * most, fetch + push + update)
    law = stats.gamma(1 / variation(times), scale=variation(times) * 0.7).isf
    for i, n in enumerate(workers.tolist()):
        weights = -np.sort(-np.exp(SPREAD * rng.standard_normal((200_000, n))), axis=1)
        behind = np.cumsum(weights[:, ::-1], axis=1)[:, ::-1] - weights
        ends = max(n * phases[0], phases[1]) * ((np.arange(1, n + 1) + behind / weights) / n).mean(axis=0)
        own = np.array([order_statistic(law, k, n) for k in range(1, n + 1)])
        first, second = ends - ends.mean(), own - own.mean()
        both = np.hypot(first.std(), second.std()) or 1.0
        came = ends.mean() + own.mean() + (first.std() * first + second.std() * second) / both
        took = (came + np.arange(n)[::-1] * phases[2]).max() + phases[3]
        took = max(took, n / curve.bound_upper[i])
        assert n / curve.steps_per_second[i] == pytest.approx(took, rel=2e-3)
        R = np.minimum(free.residence_time[i], took / len(curve.stations))
        assert curve.residence_time[i] == pytest.approx(R, rel=5e-3)
        assert curve.think_time[i] == pytest.approx(took - R.sum(), rel=5e-3)


@pytest.mark.parametrize("changes", [{}, {"accelerator_speed": 3.0}, {"batch_size": 20}, {"bandwidth": 1.25e9}])
def test_computation_bounds_the_rate(changes):
    """Transfers that hide computation are not waited for by all; the computation is."""
    recorded = example_profile("resnet50-60")
    computed = recorded.values("compute").mean() * changes.get("batch_size", recorded.job.batch_size)
    computed /= recorded.job.batch_size * changes.get("accelerator_speed", 1.0)
    workers = np.array([2, 4, 8])
    curve = qm.predict(recorded, workers=workers, method="mva", strategy="sync-ps", **changes)
    assert np.all(curve.steps_per_second <= workers / computed * (1 + 1e-9))


SIMULATED = {
    "bounded-staleness": {"staleness_bound": 2}, "k-sync": {"k": 2}, "k-batch-sync": {"k": 2}, "k-async": {"k": 2},
    "sync-ps": {"backup_workers": 1},
}  # fmt: skip


@pytest.mark.parametrize("strategy", SIMULATED)
def test_simulated_strategies_need_operations(strategy):
    recorded, asked = example_profile("alexnet-60"), {"strategy": strategy, **SIMULATED[strategy]}
    steps = [msgspec.structs.replace(step, operations=[]) for step in recorded.steps]
    phases = msgspec.structs.replace(recorded, steps=steps)
    several = msgspec.structs.replace(recorded, cluster=msgspec.structs.replace(recorded.cluster, workers=2))
    for verb, data, changes, match in (
        (qm.predict, phases, {}, "needs a profile with recorded operations; import one from traces"),
        (qm.predict, several, {}, "requires a profile of one worker"),
        (qm.predict, recorded, {"batch_size": 64}, f"strategy '{strategy}' cannot change batch_size"),
        (qm.predict, recorded, {"method": "mva"}, "has no closed network; use method 'trace'"),
        (qm.fit, recorded, {}, "has no closed network; use method 'trace' of predict"),
    ):
        with pytest.raises(qm.ModelError, match=match):
            verb(data, **asked, **changes)


def test_staleness_of_unequal_workers():
    """Without a server each works at its own rate; equal ones count all others, at any server."""
    classes = [
        queueing.JobClass("slow", population=1, think_time=2.0),
        queueing.JobClass("fast", population=3, think_time=0.5),
    ]
    nearly = queueing.Network([queueing.Station("ps", service_time=1e-9)], classes=classes)
    assert staleness(nearly) == pytest.approx([(0.5 + 6.0) / 0.5 - 1, 6.5 / 2.0 - 1])
    busy = queueing.Network([queueing.Station("ps", service_time=0.4)], classes=classes)
    assert 1 / (staleness(busy) + 1) @ [1, 3] == pytest.approx(1.0)
    one = queueing.Network([queueing.Station("ps", service_time=0.4)], think_time=1.0)
    assert staleness(one, population=5) == pytest.approx([4.0])


@pytest.mark.parametrize(("k", "n"), [(1, 1), (4, 8), (8, 8), (1, 100), (100, 100), (999, 1000)])
def test_order_statistics_of_known_laws(k, n):
    exponential = sum(0.5 / i for i in range(n - k + 1, n + 1))
    assert order_statistic(stats.expon(scale=0.5).isf, k, n) == pytest.approx(exponential, rel=1e-7)
    assert order_statistic(stats.uniform().isf, k, n) == pytest.approx(k / (n + 1), rel=1e-7)
    smallest = order_statistic(stats.weibull_min(2.0).isf, 1, n)
    assert smallest == pytest.approx(math.gamma(1.5) / n**0.5, rel=1e-7)
    assert order_statistic(stats.norm().isf, k, n) == pytest.approx(-order_statistic(stats.norm().isf, n + 1 - k, n))


@pytest.mark.parametrize(("k", "n"), [(0, 3), (4, 3), (1.5, 3), (1, 0)])
def test_bad_order_statistics_are_refused(k, n):
    with pytest.raises(qm.ModelError, match="order_statistic"):
        order_statistic(stats.expon().isf, k, n)
