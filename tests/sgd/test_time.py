"""Simulated time against order statistics and queueing laws."""

import numpy as np
import pytest
from scipy import stats

from queuemodel import sgd as qd

PROBLEM = qd.make_problem("least-squares", examples=50, features=3)
EXPONENTIAL = qd.Clock(1.0, 1.0)


def seconds(strategy, *, workers=8, steps=2500, clock=EXPONENTIAL, seeds=2):
    done = qd.descend(PROBLEM, strategy, workers=workers, steps=[steps], learning_rate=1e-3, seeds=seeds, clock=clock)
    return done.times[:, -1].mean() / steps, done


def slowest(law, n):
    """Mean of the largest of n: the integral of 1 - F^n."""
    x = np.linspace(0, law.isf(1e-12), 200_001)
    return np.trapezoid(1 - law.cdf(x) ** n, x)


@pytest.mark.parametrize(("strategy", "expected"), [
    (qd.ServerSGD("k-sync", 4), sum(1 / i for i in (5, 6, 7, 8)) / 4),  # (H_8 - H_4) / mu for each four gradients
    (qd.ServerSGD("k-sync", 8), sum(1 / i for i in range(1, 9)) / 8), (qd.ServerSGD("k-batch-sync", 4), 1 / 8),
    (qd.ServerSGD("k-batch-async", 4), 1 / 8), (qd.ServerSGD(), 1 / 8),
])  # fmt: skip
def test_runtimes_of_dutta_and_others(strategy, expected):
    found, done = seconds(strategy, steps=2000, seeds=32)
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
    goal = PROBLEM.minimum + 0.5 * (PROBLEM.loss(np.zeros(3)) - PROBLEM.minimum)
    for strategy in (qd.SynchronousSGD(), qd.ServerSGD()):
        settings = {"workers": 2, "steps": 500, "learning_rate": 0.05, "seeds": 2, "clock": qd.Clock(cv=1)}
        full, short = (qd.descend(PROBLEM, strategy, until=until, **settings) for until in (None, goal))
        assert short.steps[-1] < 500
        np.testing.assert_array_equal(short.losses, full.losses[:, : len(short.steps)])
        assert (short.losses.min(axis=1) <= goal).all()
        assert (short.losses[:, :-1].min(axis=1) > goal).any()


@pytest.mark.parametrize(("cv", "local_steps"), [(0.2, 1), (0.5, 1), (1.0, 1), (1.0, 8)])
def test_barrier_is_an_order_statistic(cv, local_steps):
    """Of sums of gamma times, which are gamma times."""
    law = stats.gamma(local_steps / cv**2, scale=cv**2 / local_steps)
    strategy = qd.SynchronousSGD() if local_steps == 1 else qd.LocalSGD(local_steps)
    found = seconds(strategy, workers=4, clock=qd.Clock(1.0, cv), steps=6_000, seeds=4)[0]
    assert found == pytest.approx(slowest(law, 4), rel=0.02)


def test_exact_gradient_takes_its_batches():
    problem = qd.make_problem("least-squares", examples=60, batch_size=4)
    for own, batches in ((problem, 15), (qd.split(problem, 3), 5)):
        for clock in (qd.Clock(2.0), qd.Clock(2.0, 0.5)):
            run = qd.descend(own, qd.OrderedGradient(), workers=3, steps=2, learning_rate=0.01, seeds=400, clock=clock)
            each = stats.gamma(batches / clock.cv**2, scale=2.0 * clock.cv**2) if clock.cv else None
            expected = slowest(each, 3) if each else 2.0 * batches
            assert run.times[:, -1].mean() / 2 == pytest.approx(expected, rel=0.03)
