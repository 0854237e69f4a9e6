"""Fits of throughputs alone: they bear a wrong point and name it, and their intervals hold what they promise."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import queuemodel as qm
from queuemodel.data import example_profile, example_throughputs
from queuemodel.prediction import predict
from queuemodel.solvers import knee_throughput
from queuemodel.training.bandwidth import LINK_EFFICIENCY
from queuemodel.training.prior import knee_prior

SOUND = {1: 1.0, 2: 1.97, 3: 2.9, 4: 3.7}


def fitted(points):
    return qm.fit([qm.Throughput(workers=n, steps_per_second=x) for n, x in points])


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize("factor", [0.01, 0.1, 0.5, 2.0, 10.0, 1e4])
def test_one_wrong_point_changes_little_and_is_named(workers, factor):
    wrong = SOUND | {workers: SOUND[workers] * factor}
    model = fitted(wrong.items())
    assert f"{wrong[workers]:.4g} steps/s with {workers} worker(s): does not fit" in model.note
    assert model.note.count("does not fit") == 1
    without = fitted((n, x) for n, x in SOUND.items() if n != workers).throughput([1, 2, 3, 4])
    assert model.throughput([1, 2, 3, 4]).steps_per_second == pytest.approx(without.steps_per_second, rel=0.03)


@pytest.mark.parametrize("strategy", ["async-ps", "sync-ps", "all-reduce"])
def test_words_per_second_are_predicted_as_steps_are(strategy):
    steps, words = (
        qm.fit([qm.Throughput(workers=n, steps_per_second=unit * x) for n, x in SOUND.items()], strategy=strategy)
        for unit in (1.0, 1e8)
    )
    few, many = (model.throughput([4, 8, 32]) for model in (steps, words))
    for name in ("steps_per_second", "lower", "upper"):
        assert getattr(many, name) == pytest.approx(1e8 * getattr(few, name), rel=1e-6)


@pytest.mark.parametrize("factor", [0.1, 1.9])
@pytest.mark.parametrize("name", ["alexnet-60", "resnet50-60"])
def test_one_wrong_point_besides_a_profile_changes_little_and_is_named(name, factor):
    profile, points = example_profile(name), example_throughputs(name)
    typo = qm.Throughput(workers=4, steps_per_second=points[2].steps_per_second * factor)
    sound, wrong = (qm.fit(profile, throughputs=[*points[:2], third, points[3]]) for third in (points[2], typo))
    assert "does not fit" not in sound.note
    assert f"{typo.steps_per_second:.4g} steps/s with 4 worker(s): does not fit the profile" in wrong.note
    expected, got = (model.throughput([1, 2, 4, 8]) for model in (sound, wrong))
    assert got.steps_per_second == pytest.approx(expected.steps_per_second, rel=0.05)
    assert np.all(got.upper / got.lower < 1.5 * expected.upper / expected.lower)


@pytest.mark.parametrize("method", ["mva", "trace"])
def test_throughputs_above_the_upper_bound_are_refused_with_the_likely_unit(method):
    """One worker computes for 0.613 s a step, and the servers' link carries at most 1 / 0.426 steps a second."""
    profile = example_profile("resnet50-60")
    for workers, x, unit in [(4, 55.7, "55.7 examples/s would be 1.74 steps/s"), (4, 8.0, "another job")]:
        wrong = qm.Throughput(workers=workers, steps_per_second=x)
        with pytest.raises(qm.DataError, match=unit) as error:
            predict(profile, method=method, workers=[4], throughputs=[wrong])
        assert "the profile allows 2.35 at most" in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("method", ["mva", "trace"])
def test_throughputs_that_contradict_the_profile_are_named_with_the_likely_unit(method):
    profile, points = example_profile("resnet50-60"), example_throughputs("resnet50-60")

    def note(points):
        return predict(profile, method=method, workers=[4], throughputs=points).note

    def scaled(factor):
        return [
            qm.Throughput(workers=p.workers, steps_per_second=p.steps_per_second * factor(p.workers)) for p in points
        ]

    assert "contradict" not in note(points)
    assert "as rounds per second, times the workers" in note(scaled(lambda n: 1 / n))
    assert "contradict the profile" in note(scaled(lambda n: 0.3))
    assert "are they of another job?" in note(scaled(lambda n: 0.3))


def test_sound_points_are_not_accused():
    assert "does not fit" not in fitted(SOUND.items()).note
    assert fitted([(1, 1.0), (2, 1.8), (4, 3.7)]).note.count("does not fit") == 0


def test_of_two_points_that_contradict_each_other_both_are_named_and_the_interval_holds_either():
    model = fitted([(1, 1.0), (3, 9.0)])
    assert "1 steps/s with 1 worker(s), 9 steps/s with 3 worker(s): does not fit" in model.note
    curve = model.throughput([1])
    assert curve.lower[0] < 1.0 < 3.0 < curve.upper[0]


@settings(max_examples=15)
@given(st.floats(1.0, 20.0), st.floats(0.001, 1000.0), st.sampled_from([0.15, 0.25, 0.4]))
def test_exact_points_are_met_in_any_unit_of_time(ratio, unit, width):
    N = np.arange(1.0, 7.0)
    X = knee_throughput(N, cycle=ratio, demand=1.0, width=width) / unit
    model = fitted(zip(range(1, 7), X.tolist(), strict=True))
    assert model.throughput(range(1, 7)).steps_per_second == pytest.approx(X, rel=0.03)
    assert model.fitted.misfit < 0.02


def test_misfit_is_what_the_points_are_off_and_widens_what_was_not_measured():
    off = {1: 1.12, 2: 1.77, 3: 3.2, 4: 3.3, 5: 4.6, 6: 4.4}
    model = fitted(off.items())
    curve = model.throughput(range(1, 9))
    distance = np.log(np.array(list(off.values())) / curve.steps_per_second[:6])
    assert model.fitted.misfit == pytest.approx(np.sqrt(np.mean(distance**2)), rel=0.1)
    assert model.fitted.misfit > 0.08
    width = np.log(curve.upper / curve.lower)
    assert width[6] > 2 * 1.645 * model.fitted.misfit > 0.5 * width[6]
    assert fitted(SOUND.items()).fitted.misfit < 0.02


def closed_network(rng, stations):
    """Throughputs at 1 to 8 of a product-form network as `fit` has them from profiles, in its own unit of time."""
    demands = [1.0, *rng.uniform(0, 1, stations - 1)]
    think_time = max(1 / rng.uniform(0.02, 1) - sum(demands), 0.0)
    queues = [qm.Station(str(k), service_time=d) for k, d in enumerate(demands)]
    return qm.solve(qm.Network(queues, think_time=think_time), population=8).throughputs


def test_nine_of_ten_intervals_hold_the_truth_of_closed_networks():
    """Counted at the measured workers; throughputs err by 3 %, and knees are rounder than the prior expects."""
    rng = np.random.default_rng(8)
    held = {1.0: [], 0.8: []}
    for workers in ([1, 2, 3, 4], [1, 2, 4, 8], list(range(1, 9))):
        for stations in [1, 3] * 12:
            truth = closed_network(rng, stations)[np.array(workers) - 1]
            noisy = truth * np.exp(0.03 * rng.standard_normal(len(workers)))
            curve = fitted(zip(workers, noisy.tolist(), strict=True)).throughput(workers)
            low, off, high = np.log([curve.lower, truth, curve.upper] / curve.steps_per_second)
            for scale, counts in held.items():
                counts.append(np.mean((scale * low <= off) & (off <= scale * high)))
    assert 0.89 < np.mean(held[1.0]) < 0.97
    assert np.mean(held[0.8]) < 0.88, "intervals a fifth too narrow go unnoticed"


@pytest.mark.parametrize("servers", [1, 2, 3, 7])
def test_no_station_has_less_than_its_demand_and_littles_law_holds(servers):
    points = [qm.Throughput(workers=n, steps_per_second=x, parameter_servers=servers) for n, x in SOUND.items()]
    model = qm.fit(points)
    curve = model.throughput(range(1, 17))
    assert np.all(curve.residence_time >= model.service_demand * (1 - 1e-9))
    pace = model.pace(curve.workers)  # of the demands' medians; the curve's throughput is the median of all draws
    assert pace.R.sum(axis=-1) + pace.Z == pytest.approx(curve.workers / pace.X, rel=1e-6)


def of_job(pairs, size, bandwidth=None):
    points = [qm.Throughput(workers=n, steps_per_second=x, bandwidth=bandwidth) for n, x in pairs]
    return qm.fit(points, parameter_bytes=size)


def test_known_parameter_bytes_say_where_a_server_that_nobody_saturated_yet_ends():
    """More bytes saturate sooner; where the points leave it open, the server carries what servers do."""
    two, sizes = ((1, 1.0), (2, 1.98)), [1e6, 1e8, 1e9]
    X = [of_job(two, size).throughput([32]).at(32) for size in sizes]
    assert X[0] > 1.5 * X[1] > 1.6 * X[2]
    assert X[1] * sizes[1] == pytest.approx(knee_prior().server_rate, rel=0.7)
    on_fast_links = of_job(two, 1e6, bandwidth=1.25e9).throughput([32])
    assert on_fast_links.at(32) > 28


@settings(max_examples=8)
@given(st.floats(3.0, 12.0), st.sampled_from([1.0, 0.95]))
def test_a_link_that_is_told_is_where_the_curve_ends(knee, efficiency):
    """Two workers far below saturation; servers of published jobs do fifty times as much as this link."""
    size, link = 1e6, 1e6 * knee / LINK_EFFICIENCY  # a step a second of each worker
    curve = of_job(((1, 1.0), (2, 2.0 * efficiency)), size, bandwidth=link).throughput([2, 64])
    assert curve.at(64) == pytest.approx(knee, rel=0.3)
    assert curve.lower[1] < knee < curve.upper[1] < 2 * knee
    untold = of_job(((1, 1.0), (2, 2.0 * efficiency)), size).throughput([64])
    assert untold.upper[0] > 2 * curve.upper[1]


@settings(max_examples=12)
@given(st.floats(3.0, 13.0), st.none() | st.floats(4.0, 11.0))
def test_what_is_told_of_a_server_gives_way_to_what_is_measured(size, bandwidth):
    """Four measurements show a knee: wherever else bytes and links put it, they decide."""
    truth = ((1, 1.0), (2, 1.9), (4, 2.6), (8, 2.7))
    told = of_job(truth, 10**size, bandwidth and 10**bandwidth)
    X = told.throughput([2, 8, 16]).steps_per_second
    untold = fitted(truth).throughput([2, 8, 16]).steps_per_second
    np.testing.assert_allclose(X, untold, rtol=0.15)
    assert ("is the bandwidth right" in told.note) == bool(bandwidth and 2.7 * 10 ** (size - bandwidth) > 1.5)


def test_all_throughputs_alone_have_one_bandwidth_or_none():
    point = qm.Throughput(workers=1, steps_per_second=1.0)
    slow, fast = (qm.Throughput(workers=2, steps_per_second=1.9, bandwidth=b) for b in (1e7, 1e8))
    for mixed in ([point, slow], [slow, fast]):
        with pytest.raises(qm.FitError, match="give those of one bandwidth"):
            qm.fit(mixed)
    with pytest.raises(qm.ModelError, match="parameter_bytes is for throughputs alone"):
        predict(example_profile("alexnet-60"), parameter_bytes=1e8)
    curve = predict([slow], workers=[8], parameter_bytes=1e6)
    assert curve.at(8) == pytest.approx(qm.fit([slow], parameter_bytes=1e6).throughput([8]).at(8))
    assert curve.measured == ((2, 1.9),)
    rounds = [qm.fit([p], strategy="all-reduce").throughput([8]).at(8) for p in (slow, fast)]
    assert rounds[0] == pytest.approx(rounds[1])
