"""A compared strategy as a job of a cluster: alone on n nodes it takes what the comparison says."""

import numpy as np
import pytest

from queuemodel import ModelError, example_profile
from queuemodel.scheduling import FIFO, Workload, schedule
from queuemodel.sgd import Compared, Comparison, Descent, compare, job_of, make_problem

RANKS = example_profile("ddp-alexnet-40")
PROBLEM = make_problem("least-squares", examples=200, features=10)


@pytest.fixture(scope="module")
def compared():
    few = {"problem": PROBLEM, "seeds": 3, "learning_rates": (0.05,), "steps": 600, "target": 0.5}
    return [compare(RANKS, workers=n, strategies=["adacomm", "sync"], bandwidth=2e6, **few) for n in (2, 4, 8)]


@pytest.mark.parametrize("strategy", ["adacomm", "sync"])
def test_lone_job_takes_compared_time(compared, strategy):
    for comparison in compared:
        (one,) = [row for row in comparison.rows if row.name == strategy]
        job = job_of(compared, strategy, name="a", arrival_time=5.0, requested_nodes=comparison.workers)
        ended = schedule(Workload([job]), FIFO(), nodes=8)
        assert ended.end[0] - 5 == pytest.approx(np.median(one.seconds_to), rel=1e-6)
    assert job.steps == pytest.approx(np.median(next(r for r in compared[0].rows if r.name == strategy).steps_to))
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
    rows = {n: Compared("sync", 1.0, 1.0, np.array([100.0 * n]), np.array([300.0 / n]), 0.0) for n in (1, 3)}
    job = job_of([Comparison((one,), n, n) for n, one in rows.items()], "sync", name="a", arrival_time=0.0)
    ((_, curve),) = job.curve.stretches
    assert (job.steps, curve(1), curve(3), curve(2)) == pytest.approx((100, 1 / 3, 1.0, 2 / 3))
    never = (Compared("sync", 1.0, 1.0, np.array([np.inf]), np.array([np.inf]), 0.0),)
    for given, name, why in [
        (Comparison(never, 2, 2), "fastest", "one that was compared, got 'fastest'"),
        (Comparison(never, 2, 2), "sync", "not known to reach the target"),
        (Comparison(never, 2, 2, relative=True), "sync", "needs comparisons in seconds"),
    ]:
        with pytest.raises(ModelError, match=why):
            job_of(given, name, name="a", arrival_time=0)


def test_unknown_arguments_are_refused(compared):
    for wrong in ({"arrival": 1.0}, {"arrival_time": 1.0, "nodes": 4}, {"arrival_time": 1.0, "steps": 9.0}):
        with pytest.raises(ModelError, match=r"argument.*; write (job_of|ClusterJob)\(.*arrival_time="):
            job_of(compared, "sync", name="a", **wrong)
