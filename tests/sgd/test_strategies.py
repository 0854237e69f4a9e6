"""Compressors against their bounds, simulated time against order statistics and queueing laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from queuemodel import ModelError
from queuemodel import sgd as qd

SQUARES = qd.make_problem("least-squares", examples=50, features=3)


def run(strategy, problem=SQUARES, **options):
    usual = {"workers": 4, "steps": 60, "learning_rate": 0.05, "seeds": 2}
    return qd.descend(problem, strategy, **usual | options)


def test_mixing_matrices_by_topology():
    torus = qd.mixing_matrix("torus", 9)
    for i, row in enumerate(torus):
        near = [i, *(i // 3 * 3 + (i + by) % 3 for by in (1, 2)), *((i + 3 * by) % 9 for by in (1, 2))]
        np.testing.assert_allclose(row, np.isin(range(9), near) / 5)
    np.testing.assert_allclose(qd.mixing_matrix("complete", 5), 1 / 5)
    np.testing.assert_allclose(qd.mixing_matrix("ring", 2), 1 / 2)
    assert qd.mixing_matrix("torus", 4)[0] == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])


@pytest.mark.parametrize(("make", "words"), [
    (lambda: run(qd.LocalSGD(2), qd.split(SQUARES, 3), workers=4), "split it again"),
    (lambda: run("local-sgd"), "be a Strategy"), (lambda: run(qd.LocalSGD(2), "logistic"), "be a Problem"),
    (lambda: run(qd.SquarmSGD("torus"), workers=8), "square number"),
    (lambda: run(qd.ServerSGD("k-sync", 9)), "at least k"), (lambda: qd.ServerSGD("async", 2), "k must be 1"),
    (lambda: qd.Clock(slowness=(-5, -5)), "slowness must be finite and > 0"),
    (lambda: qd.LeastSquares(np.ones((3, 2)), np.ones(4)), "shape"),
    (lambda: qd.LeastSquares(np.ones((4, 2)), np.ones(4), shares=(np.array([0, 9]),)), "of worker 0"),
    (lambda: qd.FixedPoint(np.ones((5, 3)), np.ones(5)), r"targets \(m, p\), m > 0"),
    (lambda: run(qd.Reparameterized()), r"\ALeastSquares: has no fixed point; .*\Z"),
    *((lambda kind=kind, name=name, value=value: kind(**{name: value}), f"{kind.__name__}: {name} must be")
      for kind, name, value in (
          (qd.TopK, "index_bits", 0), (qd.RandomK, "share", 1.5), (qd.AdaComm, "interval", 0.0),
          (qd.OverlapLocalSGD, "pull", 2), (qd.OrderedGradient, "threshold", -1),
          (qd.ServerSGD, "staleness_bound", -1))),
])  # fmt: skip
def test_senseless_arguments_are_refused(make, words):
    with pytest.raises(ModelError, match=words):
        make()


COMPRESSORS = [
    qd.Identity(), qd.TopK(0.1), qd.RandomK(0.2), qd.RandomK(0.2, unbiased=True), qd.QSGD(1), qd.QSGD(4),
    qd.BlockSign(5),
]  # fmt: skip


def draws(compressor, v, count):
    return compressor.compress(np.broadcast_to(v, (1, count, len(v))), [np.random.default_rng(1)])[0]


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=str)
@given(st.integers(0, 1000), st.integers(3, 60))
def test_compressor_loss_is_bounded(compressor, seed, d):
    v = np.random.default_rng(seed).standard_t(3, d)
    lost = np.square(draws(compressor, v, 400) - v).sum(axis=-1)
    assert lost.mean() <= compressor.variance(d) * (v @ v) + 4 * lost.std() / 20 + 1e-9
    if isinstance(compressor, qd.RandomK):  # whose bound is what it loses
        assert lost.mean() >= compressor.variance(d) * (v @ v) - 5 * lost.std() / 20 - 1e-9
    scaled = compressor.contract(np.broadcast_to(v, (1, 400, d)), [np.random.default_rng(2)])[0]
    lost = np.square(scaled - v).sum(axis=-1)
    assert lost.mean() <= (v @ v) * (1 + 1e-9) + 4 * lost.std() / 20


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=str)
def test_unbiased_compressors_are_unbiased(compressor):
    v = np.random.default_rng(7).normal(size=30)
    drawn = draws(compressor, v, 20_000)
    noise = np.sqrt(drawn.var(axis=0).sum() / len(drawn))
    assert (np.linalg.norm(drawn.mean(axis=0) - v) <= 4 * noise + 1e-9) == compressor.unbiased
    assert not draws(compressor, np.zeros(20), 3).any()


def test_sent_values_and_bits():
    v = np.array([1.0, -5, 2, 0.1, 3])
    np.testing.assert_array_equal(draws(qd.TopK(0.4), v, 1)[0], [0, -5, 0, 0, 3])
    np.testing.assert_allclose(draws(qd.BlockSign(2), v, 1)[0], np.repeat([8 / 3, 1.55], [3, 2]) * np.sign(v))
    steps = draws(qd.QSGD(3), v, 9) / np.linalg.norm(v) * 3
    np.testing.assert_allclose(steps, np.round(steps))
    assert qd.Identity().bits(1000) == 32_000
    assert qd.TopK(0.01).bits(1024) == 10 * (32 + 10)
    assert qd.TopK(0.01, index_bits=32).bits(1024) == 10 * (32 + 32)
    assert qd.RandomK(0.01).bits(1000) == 10 * 32 + 32  # and a seed
    assert qd.QSGD(3).bits(1000) == 2 * 1000 + 1000 + 32  # two bits for a level, one for a sign
    assert qd.BlockSign(2).bits(1000) == 1000 + 2 * 32
    assert [qd.QSGD(4).variance(d) for d in (9, 100)] == pytest.approx([9 / 4**2, 10 / 4])  # the smaller bound


def seconds(strategy, *, steps, clock, workers=8, seeds=2):
    done = run(strategy, workers=workers, steps=[steps], learning_rate=1e-3, seeds=seeds, clock=clock)
    return done.times[:, -1].mean() / steps, done


def slowest(law, n):
    """Mean of the largest of n: the integral of 1 - F^n."""
    x = np.linspace(0, law.isf(1e-12), 200_001)
    return np.trapezoid(1 - law.cdf(x) ** n, x)


@pytest.mark.parametrize(("strategy", "expected"), [
    (qd.ServerSGD("k-sync", 4), sum(1 / i for i in (5, 6, 7, 8)) / 4),  # (H_8 - H_4) / mu for each four gradients
    (qd.ServerSGD("k-batch-sync", 4), 1 / 8), (qd.ServerSGD("k-batch-async", 4), 1 / 8),
])  # fmt: skip
def test_runtimes_of_dutta_and_others(strategy, expected):
    found, done = seconds(strategy, steps=2000, seeds=32, clock=qd.Clock(1.0, 1.0))
    assert found == pytest.approx(expected, rel=0.02)
    assert np.isfinite(done.losses).all()


def test_barrier_with_stragglers():
    """Of four workers, each with a binomial number of stragglers among eight steps."""
    clock = qd.Clock(0.5, straggler_probability=0.1, straggler_slowdown=10.0)
    most = (1 - stats.binom.cdf(np.arange(8), 8, 0.1) ** 4).sum()
    found = seconds(qd.LocalSGD(8), workers=4, steps=8000, clock=clock, seeds=4)[0]
    assert 8 * found == pytest.approx(8 * 0.5 + most * 4.5, rel=0.03)  # six standard errors
    slow = qd.Clock(0.5, slowness=(1.0, 1.5), transfer=lambda up, down: up * 1e-3 + down * 1e-2)
    assert seconds(qd.LocalSGD(8), workers=4, clock=slow, steps=80)[0] == pytest.approx(0.75 + 96 * 0.011 / 8)


def test_training_stops_when_all_have_arrived():
    goal = SQUARES.minimum + 0.5 * (SQUARES.loss(SQUARES.start(None)) - SQUARES.minimum)
    for strategy in (qd.SynchronousSGD(), qd.ServerSGD()):
        full, short = (run(strategy, until=one, workers=2, steps=500, clock=qd.Clock(cv=1)) for one in (None, goal))
        assert short.steps[-1] < 500
        np.testing.assert_array_equal(short.losses, full.losses[:, : len(short.steps)])
        assert (short.losses.min(axis=1) <= goal).all()
        assert (short.losses[:, :-1].min(axis=1) > goal).any()
    done = run(qd.SynchronousSGD(), learning_rate=5.0, steps=2000)  # diverges
    assert np.isinf([*done.losses[:, -1], *done.time_to(0.2)]).all()


@pytest.mark.parametrize(("strategy", "cv", "batches", "local_steps"), [
    (qd.SynchronousSGD(), 0.2, 1, 1), (qd.SynchronousSGD(), 1.0, 1, 1), (qd.LocalSGD(8), 1.0, 1, 8),
    (qd.OrderedGradient(), 0.5, 12.5, 1),  # all 50 examples, four to a batch
])  # fmt: skip
def test_barrier_is_an_order_statistic(strategy, cv, batches, local_steps):
    """Of sums of gamma times, which are gamma times."""
    law = stats.gamma(batches * local_steps / cv**2, scale=cv**2 / local_steps)
    found = seconds(strategy, workers=4, clock=qd.Clock(1.0, cv), steps=6_000, seeds=4)[0]
    assert found == pytest.approx(slowest(law, 4), rel=0.02)


def test_channels_add_up_the_mean():
    """Received is the mean of what was sent, with the noise's variance over q n^2, within each worker's power."""
    rule, rng = qd.OverTheAir(3, power=2.0, noise=0.5, fading=1e-9), np.random.default_rng(4)
    u, channel = rng.normal(size=(1, 4, 3)), rng.rayleigh(np.sqrt(0.5), (2000, 4, 3))
    q = rule.gains(np.repeat(u, 2000, axis=0), channel)
    spent = (q[:, None] * np.square(u / channel)).sum(axis=-1)
    assert spent.max() <= 2.0 * (1 + 1e-12)
    runs = 400
    state = rule.begin(np.zeros((runs, 3)), 4)
    rngs = [np.random.default_rng(i) for i in range(runs)]
    rule.update(state, np.repeat(u, runs, axis=0), qd.Moment(0, 1.0, rngs, np.zeros(runs), SQUARES))
    errors = -state["x"][:, 0] - u[0].mean(axis=0)
    assert np.abs(errors.mean(axis=0)).max() < 4 * errors.std() / 20
    total, expected = np.square(errors).sum(axis=1), (0.25 / 16 / q).sum(axis=1).mean()
    assert total.mean() == pytest.approx(expected, abs=5 * total.std() / 20)


def test_good_channel_is_synchronous():
    """All coordinates, no noise and no fading: SGD; few coordinates keep the rest, and still reach the minimum."""
    one_each = qd.split(qd.make_problem("least-squares", examples=4, features=3), 4)  # which draws nothing
    rules = qd.OverTheAir(10**6, noise=0.0, fading=1e-12), qd.SynchronousSGD()
    every, same = (run(rule, one_each) for rule in rules)
    np.testing.assert_allclose(every.losses, same.losses, rtol=1e-9)
    few = run(qd.OverTheAir(2, noise=0.0, fading=0.5), steps=300)
    excess = few.losses - SQUARES.minimum
    assert (excess[:, -1] < 0.05 * excess[:, 0]).all()
    assert few.up_bits[0, -1] == pytest.approx(300 * 32 * 2 / 4)
