"""How the models' own errors are learnt and judged: on errors whose size is known, with controls."""

from dataclasses import replace

import numpy as np
import pytest

from queuemodel import ThroughputCurve
from queuemodel.training.model_error import doubling as packaged_doubling
from queuemodel.training.model_error import regions
from validation.intervals import interval_score, intervals_section
from validation.model_errors import (
    LEAST,
    PARTS,
    Errors,
    calibrated,
    doubling,
    errors_of,
    learn,
    learn_waiting,
    leave_kind_out,
    with_errors,
)
from validation.series import Comparison

RATIO = np.array([0.25, 0.5, 1.0, 2.0, 4.0])
TRUTH = np.array([0.03, 0.04, 0.12, 0.06, 0.05])


def made_up(rng, *, kinds, sizes=TRUTH, series=3):
    """Series of a closed network whose knee is at four workers; the model errs as it is told."""
    found = []
    for kind in range(kinds):
        for number in range(series):
            parts = np.column_stack([RATIO == 0.25, regions(RATIO) * (RATIO != 0.25)[:, None]])
            off = np.sqrt(parts @ sizes**2) * rng.standard_normal(len(RATIO))
            workers = (4 * RATIO).astype(int)
            curve = ThroughputCurve(workers, np.ones(5), 0.8 * np.ones(5), 1.2 * np.ones(5), single=1.0)
            one = Comparison(f"{kind}-{number}", "mva", workers, np.exp(off), curve)
            found.append(Errors(one, f"kind {kind}", parts.astype(float), off, np.zeros((5, 2))))
    return found


def test_learning_recovers_the_errors_that_made_the_data():
    np.testing.assert_allclose(learn(made_up(np.random.default_rng(1), kinds=400)), TRUTH, rtol=0.1)


def test_a_kind_counts_once_however_many_series_it_has():
    rng = np.random.default_rng(2)
    few, many = made_up(rng, kinds=29, series=2), made_up(rng, kinds=1, sizes=10 * TRUTH, series=90)
    both = [*few, *[Errors(one.comparison, "odd", one.parts, one.off, one.others) for one in many]]
    expected = np.sqrt((29 + 100) / 30) * TRUTH[2]  # not of 58 series and 90
    assert learn(both)[2] == pytest.approx(expected, rel=0.15)


def test_few_kinds_leave_their_mean_square_open():
    """Of kinds that differ in nothing, nine of ten of the next one's errors are inside, however few taught them."""
    rng, inside = np.random.default_rng(7), []
    for _ in range(300):
        found = made_up(rng, kinds=4, series=1)
        inside += [(lo <= np.exp(one.off)) & (np.exp(one.off) <= hi) for one, lo, hi in leave_kind_out(found)]
    assert 0.9 < np.mean(inside) < 0.985


def test_what_has_other_causes_is_not_the_models():
    rng = np.random.default_rng(3)
    found = made_up(rng, kinds=40, series=40)
    others = 0.1 * np.ones((5, 2))
    noisy = [
        Errors(one.comparison, one.kind, one.parts, one.off + 0.1 * rng.standard_normal(5), others) for one in found
    ]
    np.testing.assert_allclose(learn(noisy), TRUTH, atol=0.015)
    for one in noisy[:3]:
        lower, upper = with_errors(one, TRUTH)
        width = 1.6449 * np.hypot(0.1, np.sqrt(one.parts @ TRUTH**2))
        np.testing.assert_allclose(np.log([lower, upper]), [-width, width], rtol=1e-3)


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.8])
def test_the_correlation_that_made_errors_is_found(correlation):
    rng, found = np.random.default_rng(8), made_up(np.random.default_rng(8), kinds=60)
    octaves = np.log2(4 * RATIO)
    root = np.linalg.cholesky(correlation ** np.abs(octaves[:, None] - octaves) + 1e-9 * np.eye(5))
    others = 0.03 * np.ones((5, 2))
    for i, one in enumerate(found):
        size = np.sqrt(one.parts @ TRUTH**2)
        measured = np.hypot(0.03, LEAST) * rng.standard_normal(5)
        found[i] = replace(one, off=size * (root @ rng.standard_normal(5)) + measured, others=others)
    assert doubling(found) == pytest.approx(correlation, abs=0.1)


def waiting_series(rng, size, *, kinds=60, others=0.05):
    """Series of which all workers but two wait, so that they err by as much more."""
    found, workers, doubles = [], np.array([2, 4, 8]), packaged_doubling("trace")
    waits = np.array([0.0, 1.0, 1.0])
    octaves = np.log2(workers)
    root = np.linalg.cholesky(doubles ** np.abs(octaves[:, None] - octaves))
    for kind in range(kinds):
        off = others * rng.standard_normal(3) + size * waits * (root @ rng.standard_normal(3))
        curve = ThroughputCurve(workers, np.ones(3), 0.8 * np.ones(3), 1.2 * np.ones(3), single=1.0)
        one = Comparison(f"{kind}", "trace", workers, np.exp(off), curve)
        found.append(Errors(one, f"kind {kind}", waits[:, None], off, np.full((3, 2), others)))
    return found


@pytest.mark.parametrize("size", [0.0, 0.06, 0.15])
def test_what_waiting_adds_is_found(size):
    assert learn_waiting(waiting_series(np.random.default_rng(9), size, kinds=200)) == pytest.approx(size, abs=0.015)


def test_what_few_series_leave_open_of_waiting_widens_the_next_ones_intervals():
    rng, inside, narrow = np.random.default_rng(10), [], []
    for _ in range(40):
        for one, lo, hi in leave_kind_out(waiting_series(rng, 0.08, kinds=6), learn_waiting):
            inside += list((np.log(lo) <= one.off) & (one.off <= np.log(hi)))
            narrow += list(np.abs(one.off) <= 1.6449 * one.others[:, 0])
    assert 0.9 < np.mean(inside) < 0.96
    assert np.mean(narrow) < 0.8


def coverage(found, scale=1.0):
    ends = leave_kind_out(found)
    return np.mean([(scale * np.log(lo) <= one.off) & (one.off <= scale * np.log(hi)) for one, lo, hi in ends])


def test_intervals_of_kinds_left_out_hold_what_they_promise():
    found = made_up(np.random.default_rng(4), kinds=60)
    assert coverage(found) == pytest.approx(0.9, abs=0.03)
    assert coverage(found, scale=0.8) < 0.86
    odd = [Errors(one.comparison, "odd", one.parts, 5 * one.off, one.others) for one in found[:3]]
    ((_, lower, upper), *_) = [end for end in leave_kind_out([*found[3:], *odd]) if end[0].kind == "odd"]
    assert np.all(np.log(upper) < 0.25), "a kind must not teach its own intervals"
    assert np.all(lower < 1)


def test_the_packaged_error_is_taken_out_of_a_curves_interval():
    from queuemodel.data import example_profile
    from queuemodel.prediction import predict

    curve = predict(example_profile("alexnet-60"), workers=[1, 2, 4, 8], method="mva")
    one = Comparison("alexnet-60", "mva", curve.workers, 1.1 * curve.steps_per_second, curve)
    found = errors_of(one, "bbr")
    np.testing.assert_allclose(found.off, np.log(1.1))
    np.testing.assert_allclose(found.parts.sum(axis=1), 1.0)
    assert found.parts[0].tolist() == [1, 0, 0, 0, 0]
    assert np.all(found.others < 0.03)  # the sampling of twelve steps


def test_a_number_of_workers_that_was_measured_often_counts_once():
    curve = ThroughputCurve(np.array([1, 2]), np.ones(2), 0.8 * np.ones(2), 1.2 * np.ones(2), single=1.0)
    one = Comparison("made up", "mva", np.array([1, 2, 2, 2]), np.array([1.0, 1.0, 1.3, 1.3]), curve)
    assert one.coverage == pytest.approx((1 + 1 / 3) / 2)
    section = intervals_section({"made up": [one]}, {}, {})
    assert f"| made up | 4 | 67% | 40% | {0.4 + (2 / 3) * 20 * 0.1 / 2:.2f} |" in section


@pytest.mark.parametrize(("value", "score"), [(1.0, 0.4), (1.2, 0.4), (1.3, 0.4 + 20 * 0.1), (0.7, 0.4 + 20 * 0.1)])
def test_the_interval_score_is_that_of_gneiting_and_raftery(value, score):
    assert interval_score(np.array(0.8), np.array(1.2), np.array(value)) == pytest.approx(score)


def test_the_score_is_least_for_true_intervals():
    x = np.random.default_rng(5).standard_normal(200_000)
    scores = [interval_score(np.array(-w), np.array(w), x).mean() for w in (1.3, 1.6449, 2.0)]
    assert scores[1] < min(scores[0], scores[2])


def test_the_section_tells_every_group_and_part():
    found, few = made_up(np.random.default_rng(6), kinds=5), waiting_series(np.random.default_rng(6), 0.1, kinds=5)
    text = intervals_section({"Testbed": [one.comparison for one in found]}, {"mva": found}, {"waiting": few})
    assert "| Testbed | 75 |" in text
    for part in PARTS:
        assert f"mva: kind left out, {part} |" in text
    assert "| waiting: **kind left out** | 15 |" in text


def test_what_is_too_narrow_where_a_kind_is_left_out_is_widened():
    """Where some kinds are odd, intervals need more than the mean square says; where errors are normal, they do not."""
    rng = np.random.default_rng(5)
    normal = made_up(rng, kinds=60)
    np.testing.assert_allclose(calibrated(normal), learn(normal), rtol=0.12)
    odd = [
        Errors(
            one.comparison, one.kind, one.parts, one.off * (4 if int(one.kind.split()[1]) % 5 == 0 else 1), one.others
        )
        for one in normal
    ]
    wide = calibrated(odd)
    assert (wide >= learn(odd)).all()
    inside = np.mean(
        [
            (lo <= np.exp(one.off)) & (np.exp(one.off) <= hi)
            for one, lo, hi in ((one, *with_errors(one, wide)) for one in odd)
        ]
    )
    assert inside >= 0.89
