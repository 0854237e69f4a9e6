"""The K-th of n: against closed forms, and laws of all of them together."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import queuemodel as qm
from queuemodel.strategies import order_statistic
from queuemodel.strategies.order_statistics import ordered, rejoined, shared, superposed


def harmonic(n):
    return sum(1 / i for i in range(1, n + 1))


@pytest.mark.parametrize(("k", "n"), [(1, 1), (4, 8), (8, 8), (1, 100), (100, 100), (999, 1000)])
def test_exponential_times_have_harmonic_numbers(k, n):
    truth = harmonic(n) - harmonic(n - k)
    assert order_statistic(stats.expon(scale=0.5).isf, k, n) == pytest.approx(0.5 * truth, rel=1e-10)
    assert ordered(k, n, 1.0)[-1] == pytest.approx(truth, rel=1e-10)
    assert order_statistic(stats.expon().isf, 4, 8) == pytest.approx(0.6345, abs=5e-5)


@pytest.mark.parametrize(("k", "n"), [(1, 3), (3, 3), (5, 9)])
def test_uniform_and_weibull_times(k, n):
    assert order_statistic(stats.uniform().isf, k, n) == pytest.approx(k / (n + 1), rel=1e-8)
    smallest = order_statistic(stats.weibull_min(2.0).isf, 1, n)
    assert smallest == pytest.approx(math.gamma(1.5) / n**0.5, rel=1e-8)


@given(st.integers(1, 40), st.floats(1e-4, 3.0))
def test_all_of_them_have_the_mean(n, scv):
    means = ordered(n, n, scv)
    assert np.all(np.diff(means) > 0)
    assert means.mean() == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("days", [2, 3, 23, 365])
def test_one_result_among_late_workers_is_the_birthday_problem(days):
    """People until two share a birthday, less one: Ramanujan's Q. Of 365 days they are 24.6166."""
    Q = sum(math.prod(1 - i / days for i in range(k)) for k in range(1, days + 1))
    assert rejoined(1, days - 1)[0] == pytest.approx(Q / days, rel=1e-12)


def test_a_years_birthdays():
    assert 365 * rejoined(1, 364)[0] + 1 == pytest.approx(24.6166, abs=5e-5)


@given(st.integers(1, 12), st.integers(0, 12))
def test_rounds_with_late_workers_are_an_absorbing_chains(k, late):
    states = [(j, s) for j in range(1, k + 1) for s in range(late + 1)]  # results to come, older times
    at, rates = {state: i for i, state in enumerate(states)}, np.zeros((len(states), len(states)))
    for (j, s), i in at.items():
        rates[i, i] = j + late
        for after, rate in (((j - 1, s), j + late - s), ((j, s - 1), s)):
            if rate and after in at:
                rates[i, at[after]] = -rate
    truth = np.linalg.solve(rates, np.ones(len(states)))
    np.testing.assert_allclose(rejoined(k, late), [truth[at[j, late]] for j in range(1, k + 1)], rtol=1e-9)
    assert rejoined(k, 0)[-1] == pytest.approx(harmonic(k))
    assert np.all(rejoined(k, late) >= [ordered(j, j + late, 1.0)[-1] * (1 - 1e-9) for j in range(1, k + 1)])


@given(st.integers(1, 30), st.integers(1, 50))
def test_results_of_exponential_workers_come_evenly(k, n):
    np.testing.assert_allclose(superposed(k, n, 1.0), np.arange(1, k + 1) / n, rtol=1e-6)


@pytest.mark.parametrize("scv", [0.01, 0.25, 2.0])
def test_results_of_gamma_workers_follow_from_renewals(scv):
    """One worker's k-th end has the mean k; of many, the first is the smallest, and drawn ones agree."""
    np.testing.assert_allclose(superposed(6, 1, scv), np.arange(1, 7), rtol=1e-6)
    assert superposed(1, 5, scv)[0] == pytest.approx(ordered(1, 5, scv)[0], rel=1e-4)
    draws = np.random.default_rng(1).gamma(1 / scv, scv, size=(20_000, 12, 5)).cumsum(axis=1).reshape(20_000, -1)
    draws.sort(axis=1)
    error = 4 * draws[:, :12].std(axis=0) / len(draws) ** 0.5
    assert np.all(np.abs(superposed(12, 5, scv) - draws[:, :12].mean(axis=0)) < error)


def test_constant_times():
    assert ordered(3, 5, 0.0).tolist() == [1.0] * 3
    assert superposed(7, 3, 0.0).tolist() == [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 3.0]


@pytest.mark.parametrize(("k", "n"), [(0, 3), (4, 3), (1.5, 3), (1, 0)])
def test_what_is_no_order_statistic_is_refused(k, n):
    with pytest.raises(qm.ModelError, match="order_statistic"):
        order_statistic(stats.expon().isf, k, n)


@given(st.floats(0.0, 1.5))
def test_the_first_of_two_transfers_ends_when_the_other_one_is_as_far_as_its_share(spread):
    """The lighter weight over the heavier one is exp(-|x|), with x normal of variance 2 spread^2."""
    lighter = 2 * math.exp(spread**2) * stats.norm.cdf(-(2**0.5) * spread)
    assert shared(2, spread) == pytest.approx([(1 + lighter) / 2, 1.0], rel=1e-8)


@given(st.integers(1, 40), st.floats(0.0, 1.0))
def test_transfers_end_between_together_and_one_after_the_other(n, spread):
    ends = shared(n, spread)
    assert ends[-1] == pytest.approx(1.0)
    assert np.all(np.diff(ends) >= -1e-12)
    assert np.all(ends >= np.arange(1, n + 1) / n - 1e-9)
    assert np.all(ends <= shared(n, spread / 2) + 1e-9)  # the more alike the shares, the more together


def test_shares_that_are_drawn():
    weights = -np.sort(-np.exp(0.4 * np.random.default_rng(2).standard_normal((20_000, 6))), axis=1)
    lighter = np.cumsum(weights[:, ::-1], axis=1)[:, ::-1] - weights
    ends = (np.arange(1, 7) + lighter / weights) / 6
    assert np.all(np.abs(shared(6, 0.4) - ends.mean(axis=0)) <= 4 * ends.std(axis=0) / len(ends) ** 0.5 + 1e-9)
    assert not np.allclose(shared(6, 0.4)[:-1], shared(6, 0.3)[:-1], rtol=0.02)
