"""Measured throughputs change what is thought of others as Bayes' rule has it: by brute force, and by its laws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from queuemodel.training.ensemble import EXCESS, FREEDOM, Ensemble, workers_correlation

WORKERS = np.array([1, 2, 4, 8])
LOGS = np.log([[1.0, 1.7, 2.0, 2.2], [1.0, 1.6, 1.8, 2.0]])
WEIGHTS = np.array([0.6, 0.4])
ERROR, NOISE = np.array([0.05, 0.06, 0.05, 0.08]), np.array([0.02, 0.05, 0.03, 0.03])
CORRELATION = workers_correlation(WORKERS, 0.75)


def ensemble(logs=LOGS, weights=WEIGHTS, **changes):
    return Ensemble.before(logs, weights, **{"error": ERROR, "noise": NOISE, "correlation": CORRELATION} | changes)


def by_brute_force(at, logs, *, draws=200_000):
    """Medians and 90 % intervals of what is measured next, from draws weighed by how well they fit."""
    rng = np.random.default_rng(1)
    model = rng.choice(2, p=WEIGHTS, size=draws)
    own = np.sqrt(ERROR**2 - NOISE**2)
    own = np.where(own < ERROR / 2, ERROR / 2, own)
    size = np.sqrt(FREEDOM / rng.chisquare(FREEDOM, draws)) * stats.norm.ppf(0.95) / stats.t.ppf(0.95, FREEDOM)
    excess = rng.choice(list(EXCESS), p=list(EXCESS.values()), size=draws)
    errors = rng.multivariate_normal(np.zeros(4), CORRELATION * np.outer(own, own), draws)
    true = LOGS[model] + size[:, None] * errors
    off = (np.array(logs) - true[:, at]) / (excess[:, None] * NOISE[at])
    likely = np.exp(-0.5 * (off**2).sum(axis=1)) / excess ** len(at)
    rest = np.sqrt(ERROR**2 - own**2)
    again = true + excess[:, None] * rest * rng.standard_normal((draws, 4))
    quantiles = []
    for place in range(4):
        order = np.argsort(again[:, place])
        below = np.cumsum(likely[order]) / likely.sum()
        quantiles.append(again[order, place][np.searchsorted(below, [0.5, 0.05, 0.95])])
    return np.exp(quantiles).T, likely[model == 0].sum() / likely.sum()


@pytest.mark.parametrize(
    ("at", "measured"), [([], []), ([1], [1.55]), ([2], [2.1]), ([2, 3], [1.75, 1.9]), ([2, 2], [2.0, 1.7])]
)
def test_what_is_thought_is_what_draws_say(at, measured):
    thought = ensemble().given(at, np.log(measured), NOISE[at])
    expected, first = by_brute_force(at, np.log(measured))
    assert thought.interval(0.9, range(4)) == pytest.approx(expected, rel=0.012)
    assert thought.models[0] == pytest.approx(first, abs=0.02)
    wrong = ensemble(LOGS + 0.02).given(at, np.log(measured), NOISE[at])
    assert wrong.interval(0.9, range(4)) != pytest.approx(expected, rel=0.012)


def test_errors_follow_students_law_with_the_intervals_asked_for():
    quiet = ensemble(LOGS[:1], np.ones(1), noise=np.full(4, 1e-9))
    scale = ERROR[0] * stats.norm.ppf(0.95) / stats.t.ppf(0.95, FREEDOM)
    for confidence in (0.5, 0.9, 0.98):
        half = scale * stats.t.ppf((1 + confidence) / 2, FREEDOM)
        assert np.log(quiet.interval(confidence, [0])[2] / 1.0) == pytest.approx(half, rel=0.02)


@settings(max_examples=25)
@given(
    places=st.lists(st.integers(0, 3), min_size=1, max_size=4),
    off=st.lists(st.floats(-0.2, 0.2), min_size=4, max_size=4),
    noise=st.floats(0.01, 0.2),
)
def test_measurements_say_the_same_in_any_order_at_once_or_one_by_one(places, off, noise):
    logs = LOGS[0][places] + off[: len(places)]
    errors = np.full(len(places), noise)
    at_once = ensemble().given(places, logs, errors)
    one_by_one = ensemble()
    for i in reversed(range(len(places))):
        one_by_one = one_by_one.given(places[i : i + 1], logs[i : i + 1], errors[i : i + 1])
    assert one_by_one.interval(0.9, range(4)) == pytest.approx(at_once.interval(0.9, range(4)), rel=1e-6)


@settings(max_examples=25)
@given(place=st.integers(0, 3), noise=st.floats(0.005, 0.2))
def test_a_measurement_as_it_was_expected_narrows_what_is_thought_of_its_neighbours(place, noise):
    alone = ensemble(LOGS[:1], np.ones(1))
    thought = alone.given([place], LOGS[0, [place]], np.array([noise]))
    assert (
        np.diff(np.log(thought.interval(0.9, range(4))[1:]), axis=0)
        < np.diff(np.log(alone.interval(0.9, range(4))[1:]), axis=0)
    ).all()
    assert thought.interval(0.9, range(4))[0] == pytest.approx(np.exp(LOGS[0]), rel=1e-6)


def width(thought):
    """Of the logarithm's interval at the last place."""
    _, lower, upper = np.log(thought.interval(0.9, [3]))
    return (upper - lower)[0]


def test_contradictions_widen_and_are_named():
    before = ensemble()
    one = before.given([2], np.log([1.8]), NOISE[[2]])
    two = before.given([2, 2], np.log([1.8, 2.5]), NOISE[[2, 2]])
    assert width(two) > width(before) > width(one)
    assert before.doubtful([2, 2, 2], np.log([1.8, 2.5, 1.82]), NOISE[[2, 2, 2]]).tolist() == [False, True, False]
    assert before.doubtful([2], np.log([2.05]), NOISE[[2]]).tolist() == [False]
    unlike = before.given([2, 3], np.log([1.3, 1.4]), NOISE[[2, 3]])  # these agree with each other
    assert unlike.size > 2 * before.size
    assert unlike.interval(0.9, [3])[0] == pytest.approx(1.4, rel=0.05)
