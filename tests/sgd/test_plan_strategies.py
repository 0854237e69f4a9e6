"""Plans against brute force over everything that was compared; a job alone on n nodes takes what was compared."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuemodel import ModelError, example_profile
from queuemodel.scheduling import FIFO, Workload, schedule
from queuemodel.sgd import Compared, Comparison, Descent, compare, job_of, make_problem, plan_strategies


def compared(workers, seconds, spread=0.0, **rest):
    rows = tuple(Compared(n, 1.0, 1.0, np.array(s), np.array(s), spread) for n, s in seconds.items())
    return Comparison(rows, workers, workers + 2, **rest)


SECONDS = st.lists(st.sampled_from([np.inf, 1.0, 2.0, 3.0, 5.0, 8.0]), min_size=3, max_size=3)


@given(st.lists(SECONDS, min_size=4, max_size=4), st.sampled_from([0.5, 2.5, 6.0]), st.sampled_from([0.3, 0.5, 0.9]))
def test_no_other_meets_the_goal_better(seconds, deadline, chance):
    table = {(n, name): s for (n, name), s in zip(itertools.product((2, 4), "ab"), seconds, strict=True)}
    comparisons = [compared(n, {name: table[n, name] for name in "ab"}) for n in (2, 4)]
    found = plan_strategies(comparisons, deadline=deadline, price_per_node_hour=3600.0, chance=chance)
    middle = {way: sorted(s)[1] for way, s in table.items() if sorted(s)[1] < np.inf}
    cost = {way: (way[0] + 2) * s for way, s in middle.items()}
    in_time = {way for way in middle if np.mean(np.array(table[way]) <= deadline) > chance}
    fastest, fewest, cheapest, cheapest_in_time = found.choices
    assert fastest.seconds == min(middle.values()) if middle else fastest.strategy is None
    assert fewest.workers == (min(n for n, _ in in_time) if in_time else None)
    assert cheapest.cost == pytest.approx(min(cost.values())) if middle else cheapest.strategy is None
    if in_time:
        assert cheapest_in_time.cost == pytest.approx(min(cost[way] for way in in_time))
        share = np.mean(np.array(table[cheapest_in_time.workers, cheapest_in_time.strategy]) <= deadline)
        assert cheapest_in_time.probability == pytest.approx(share, abs=0.03)
    else:
        assert cheapest_in_time.strategy is None


def test_probabilities_name_their_goal():
    """The cheapest takes longer than the deadline, which the others meet."""
    curve = [compared(n, {"sync": [12.0 + 6 / n]}) for n in (1, 2)]
    found = plan_strategies(curve, deadline=16.0, price_per_node_hour=1.0)
    assert {row["goal"]: row["probability within 16 s"] for row in found._shown_rows()} == {
        "fastest": 1.0, "fewest nodes within 16 s": 1.0, "cheapest": 0.0, "cheapest within 16 s": 1.0,
    }  # fmt: skip
    assert found.to_dict()["deadline"] == 16.0
    assert found.answer().startswith("cheapest within 16 s: sync on 2 workers, 15 s (")
    assert repr(plan_strategies(curve, deadline="16s", price_per_node_hour=1.0)) == repr(found)
    assert "probability of arrival" in plan_strategies(curve)._shown_rows()[0]


@pytest.mark.parametrize(("comparisons", "options", "words"), [
    ([], {}, "needs comparisons in seconds, to one target, got none"),
    ([compared(2, {"a": [1.0]}, relative=True)], {}, "one worker alone"),
    ([compared(2, {"a": [np.nan]})], {}, "no time to a loss is known"),
    ([compared(2, {"a": [1.0]}, target=0.1), compared(4, {"a": [1.0]}, target=0.2)], {}, "to one target"),
    ([compared(2, {"a": [1.0]})], {"deadline": -1}, "deadline"),
])  # fmt: skip
def test_senseless_questions_are_refused(comparisons, options, words):
    with pytest.raises(ModelError, match=words):
        plan_strategies(comparisons, **options)


RANKS = example_profile("ddp-alexnet-40")
PROBLEM = make_problem("least-squares", examples=200, features=10)


@pytest.fixture(scope="module")
def trained():
    few = {"problem": PROBLEM, "seeds": 3, "learning_rates": (0.05,), "steps": 600, "target": 0.5}
    return [compare(RANKS, workers=n, strategies=["adacomm", "sync"], bandwidth=2e6, **few) for n in (2, 4, 8)]


@pytest.mark.parametrize("strategy", ["adacomm", "sync"])
def test_lone_job_takes_compared_time(trained, strategy):
    for comparison in trained:
        (one,) = [row for row in comparison.rows if row.name == strategy]
        job = job_of(trained, strategy, name="a", arrival_time=5.0, requested_nodes=comparison.workers)
        ended = schedule(Workload([job]), FIFO(), nodes=8)
        assert ended.end[0] - 5 == pytest.approx(np.median(one.seconds_to), rel=1e-6)
    assert job.steps == pytest.approx(np.median(next(r for r in trained[0].rows if r.name == strategy).steps_to))
    assert (job.least_nodes, job.most_nodes) == (2, 8)


def way(workers, *seconds):
    """A comparison of one run, whose loss is 1 at first, then a half, then none."""
    times, nothing = np.array([[0.0, *seconds]]), np.zeros((1, 3))
    losses, steps = np.array([[1.0, 0.5, 0.0]]), np.array([0, 50, 100])
    run = Descent("a", (0,), workers, steps, times, losses, nothing, nothing, nothing[:, :1], nothing[0])
    one = Compared("a", 1.0, 1.0, np.array([100.0]), times[:, -1], 0.0, descent=run)
    return Comparison((one,), workers, workers)


def test_stretches_between_equal_losses():
    """Also where a stretch took no time: it has a speed, and the whole takes as long."""
    job = job_of([way(2, 5.0, 10.0), way(4, 2.0, 6.0)], "a", name="a", arrival_time=0.0, stretches=2)
    found = [(part, curve(2), curve(4)) for part, curve in job.curve.stretches]
    np.testing.assert_allclose(found, [(0.5, 50 / 5, 50 / 2), (0.5, 50 / 5, 50 / 4)])
    job = job_of([way(2, 5.0, 10.0), way(4, 0.0, 6.0)], "a", name="a", arrival_time=0.0, stretches=2)
    jump, rest = (50 / curve(4) for _, curve in job.curve.stretches)
    assert 0 < jump < 0.001 * rest
    assert jump + rest == pytest.approx(6.0)


def test_job_by_law_has_one_speed():
    job = job_of([compared(n, {"sync": [300 / n]}) for n in (1, 3)], "sync", name="a", arrival_time=0.0)
    ((_, curve),) = job.curve.stretches
    assert (job.steps, curve(1), curve(3), curve(2)) == pytest.approx((300, 1.0, 3.0, 2.0))
    for asked, name, why in [
        (compared(2, {"sync": [np.inf]}), "fastest", "one that was compared, got 'fastest'"),
        (compared(2, {"sync": [np.inf]}), "sync", "not known to reach the target"),
        (compared(2, {"sync": [np.inf]}, relative=True), "sync", "needs comparisons in seconds"),
    ]:
        with pytest.raises(ModelError, match=why):
            job_of(asked, name, name="a", arrival_time=0)


def test_unknown_arguments_are_refused(trained):
    for wrong in ({"arrival": 1.0}, {"arrival_time": 1.0, "nodes": 4}, {"arrival_time": 1.0, "steps": 9.0}):
        with pytest.raises(ModelError, match=r"argument.*; write (job_of|ClusterJob)\(.*arrival_time="):
            job_of(trained, "sync", name="a", **wrong)
