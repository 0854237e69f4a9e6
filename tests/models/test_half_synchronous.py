"""A barrier at every step by the closed network, strategies that it does not know, and order statistics."""

import math

import msgspec
import numpy as np
import pytest
from scipy import stats

import queuemodel as qm
from queuemodel import example_profile, queueing
from queuemodel.models import order_statistic, staleness
from tests.oracles.jobs_by_hand import on_network, profile, step

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
