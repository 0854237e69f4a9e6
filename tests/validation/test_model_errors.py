"""How errors of models and fits are learnt and judged: on errors whose size is known, on sources left out."""

from dataclasses import replace

import numpy as np
import pytest

from queuemodel import ThroughputCurve, example_profile, predict
from validation.intervals import interval_score
from validation.model_errors import Errors, errors_of, learn, learn_waiting, leave_kind_out, with_errors
from validation.scaling import CLUSTERS, LAWS, by_law, judged
from validation.series import Comparison

WORKERS = np.array([1, 2, 4, 8, 16])
TRUTH = np.array([0.03, 0.04, 0.12, 0.06, 0.05])


def series(name, kind, off, parts, others=0.0, method="mva", workers=WORKERS):
    curve = ThroughputCurve(workers, *(np.full(len(workers), x) for x in (1.0, 0.8, 1.2)), single=1.0)
    return Errors(
        Comparison(name, method, workers, np.exp(off), curve), kind, parts, off, np.full((len(off), 2), others)
    )


def made_up(rng, *, kinds, sizes=TRUTH, count=3):
    """Series whose model errs as it is told, in one part at each number of workers."""
    return [
        series(f"{kind}-{number}", f"kind {kind}", sizes * rng.standard_normal(5), np.eye(5))
        for kind in range(kinds) for number in range(count)
    ]  # fmt: skip


def waiting_series(rng, size, *, kinds=60, others=0.05):
    """Series of which all workers but two wait, so that they err by as much more, alike."""
    workers, waits = np.array([2, 4, 8]), np.array([0.0, 1.0, 1.0])
    return [
        series(f"{k}", f"kind {k}", others * rng.standard_normal(3) + size * waits * rng.standard_normal(),
               waits[:, None], others, "trace", workers)
        for k in range(kinds)
    ]  # fmt: skip


def inside(ends, scale=1.0):
    return np.mean([(scale * np.log(lo) <= one.off) & (one.off <= scale * np.log(hi)) for one, lo, hi in ends])


def test_learning_recovers_true_errors():
    np.testing.assert_allclose(learn(made_up(np.random.default_rng(1), kinds=400)), TRUTH, rtol=0.1)


def test_other_causes_are_no_model_error():
    rng = np.random.default_rng(3)
    noisy = [
        replace(one, off=one.off + 0.1 * rng.standard_normal(5), others=np.full((5, 2), 0.1))
        for one in made_up(rng, kinds=40, count=40)
    ]
    np.testing.assert_allclose(learn(noisy), TRUTH, atol=0.015)
    lower, upper = with_errors(noisy[0], TRUTH)
    width = 1.6449 * np.hypot(0.1, TRUTH)
    np.testing.assert_allclose(np.log([lower, upper]), [-width, width], rtol=1e-3)


@pytest.mark.parametrize("size", [0.0, 0.06, 0.15])
def test_what_waiting_adds_is_found(size):
    found = waiting_series(np.random.default_rng(9), size, kinds=200)
    assert learn_waiting(found) == pytest.approx(size, abs=0.025)


def test_coverage_of_kinds_left_out():
    rng = np.random.default_rng(4)
    found = made_up(rng, kinds=60)
    assert inside(leave_kind_out(found)) == pytest.approx(0.9, abs=0.03)
    assert inside(leave_kind_out(found), scale=0.8) < 0.86
    few = [inside(leave_kind_out(made_up(rng, kinds=4, count=1))) for _ in range(200)]
    assert 0.9 < np.mean(few) < 0.985
    waiting = [leave_kind_out(waiting_series(rng, 0.08, kinds=6), learn_waiting) for _ in range(20)]
    assert 0.88 < np.mean([inside(ends) for ends in waiting]) < 0.97
    odd = [replace(one, kind="odd", off=5 * one.off) for one in found[:3]]
    (_, _, upper), *_ = [end for end in leave_kind_out([*found[3:], *odd]) if end[0].kind == "odd"]
    assert np.all(np.log(upper) < 0.25), "a kind must not teach its own intervals"


def test_packaged_error_leaves_the_interval():
    curve = predict(example_profile("alexnet-60"), workers=[1, 2, 4, 8], method="mva")
    found = errors_of(Comparison("alexnet-60", "mva", curve.workers, 1.1 * curve.steps_per_second, curve), "bbr")
    np.testing.assert_allclose(found.off, np.log(1.1))
    np.testing.assert_allclose(found.parts.sum(axis=1), 1.0)
    assert found.parts[0].tolist() == [1, 0, 0, 0, 0]
    assert np.all(found.others < 0.03)  # the sampling of twelve steps


@pytest.mark.parametrize(("value", "score"), [(1.0, 0.4), (1.2, 0.4), (1.3, 0.4 + 20 * 0.1), (0.7, 0.4 + 20 * 0.1)])
def test_interval_score_in_closed_form(value, score):
    assert interval_score(np.array(0.8), np.array(1.2), np.array(value)) == pytest.approx(score)


#: Number of jobs, largest mean error, least coverage, and how the error compares with the best one-line law.
ROWS = {
    CLUSTERS: (42, 0.11, 0.85, 1.0), "all-reduce, published": (106, 0.115, 0.85, 1.15),
    "all-reduce, published, ranks and sparse gradients known": (106, 0.08, 0.85, 0.8),
    "sync-ps": (33, 0.21, 0.85, 0.95), "async-ps, cloud and published": (15, 0.15, 0.85, 0.75),
    "async-ps, testbed, bytes and links known": (18, 0.13, 0.8, 0.3),
    "sharded, to 4 times the second group": (17, 0.05, 0.85, 1.05),
    "sharded, beyond, other models of the cluster known": (9, 0.18, 0.8, 0.5),
    "sharded, from one group, other models of the cluster known": (18, 0.07, 0.85, 0.4),
    "placements, Pollux": (6, 0.22, 0.5, 1.15), "placements, Sia": (3, 0.07, 0.85, 1.1),
    "placements, Gradient-Compression": (4, 0.04, 0.9, 0.8),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS)
def test_jobs_of_an_unseen_source(row):
    found, (count, most, least, against) = judged()[row], ROWS[row]
    error = np.mean([one.error for one in found])
    assert len(found) == count
    assert error < most
    assert error < against * min(np.nanmean([by_law(law, one.table) for one in found]) for law in LAWS)
    assert np.concatenate([one.inside for one in found]).mean() > least
    moved = [[replace(one, predicted=factor * one.predicted).error for one in found] for factor in (1.3, 1 / 1.3)]
    assert np.mean(moved, axis=1).max() > most, "three tenths too much or too little would go unnoticed"
