"""Jobs whose speed changes as they train: alone they take their stretches' sum, and equal curves change nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuemodel import ModelError
from queuemodel.scheduling import (
    FIFO,
    Cluster,
    EqualShare,
    HeSRPT,
    Job,
    PowerLawCurve,
    RankPriced,
    StagedCurve,
    Workload,
    simulate,
)

TABLES = st.fixed_dictionaries({n: st.floats(0.5, 20.0) for n in (1, 2, 3, 4)})
STRETCHES = st.lists(st.tuples(st.floats(0.1, 5.0), TABLES), min_size=1, max_size=5)


def job(curve, steps=100.0, name="a", **rest):
    return Job(name, arrival_time=rest.pop("arrival_time", 0.0), steps=steps, curve=curve, most_nodes=4, **rest)


@given(STRETCHES, st.integers(1, 4), st.floats(10.0, 1e4))
def test_alone_it_takes_the_sum_of_its_stretches(stretches, nodes, steps):
    total = sum(length for length, _ in stretches)
    expected = sum(length / total * steps / table[nodes] for length, table in stretches)
    staged = StagedCurve(stretches)
    ended = simulate(Workload([job(staged, steps, requested_nodes=nodes)]), FIFO(), nodes=4)
    assert ended.end[0] == pytest.approx(expected)
    assert steps / staged(nodes) == pytest.approx(expected)


@settings(max_examples=40)
@given(TABLES, st.integers(2, 5), st.sampled_from([FIFO(), EqualShare(), RankPriced()]))
def test_stretches_of_one_curve_are_no_stretches(table, count, policy):
    plain, staged = (
        Workload([job(curve, 50.0 + k, f"{k}", arrival_time=4.0 * k) for k in range(4)])
        for curve in (table, StagedCurve([(1.0, table)] * count))
    )
    cluster = Cluster(6, restart_seconds=1.0)
    ends = [simulate(jobs, policy, cluster=cluster).end for jobs in (plain, staged)]
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-9)


def test_a_policy_that_knows_curves_gives_nodes_to_whom_they_help_now():
    """In its first half nodes help a job, in the second they do not; the older of two is in its second."""
    staged = StagedCurve([(1.0, {n: float(n) for n in (1, 2, 3, 4)}), (1.0, {1: 1.0, 2: 1.01, 3: 1.02, 4: 1.03})])
    held = {}
    for kind, curve in (("staged", staged), ("mean", {n: staged(n) for n in (1, 2, 3, 4)})):
        jobs = Workload([job(curve, 400.0, "first"), job(curve, 400.0, "second", arrival_time=120.0)])
        ended = simulate(jobs, RankPriced(), nodes=5, history=True)
        held[kind] = {int(j): int(n) for time, j, n in ended.history if time <= 120.0}
    assert held["staged"] == {0: 1, 1: 4}
    assert held["mean"] != held["staged"]


def test_policies_that_divide_nodes_run_at_the_mean():
    staged = StagedCurve([(1.0, PowerLawCurve(0.5, speed=4.0)), (3.0, PowerLawCurve(0.5, speed=1.0))])
    ended = simulate(Workload([Job("a", arrival_time=0, steps=100, curve=staged)]), HeSRPT(exponent=0.5), nodes=4)
    assert ended.end[0] == pytest.approx(25 / 8 + 75 / 2)


def test_what_makes_no_sense_is_refused():
    for stretches, words in (
        ([], "needs at least one pair"),
        ([(0.0, {1: 1.0})], "length must be finite and > 0"),
        ([(1.0, {})], "speed table"),
        ([1.0], "must be pairs"),
    ):
        with pytest.raises(ModelError, match=words):
            StagedCurve(stretches)
    staged = Workload([job(StagedCurve([(1.0, {n: 1.0 * n for n in (1, 2, 3, 4)})] * 2))])
    with pytest.raises(ModelError, match="nodes cannot fail yet where jobs' speeds change"):
        simulate(staged, FIFO(), cluster=Cluster(4, mean_time_to_failure=1e4))
