"""Policies: who gets which nodes, against plain versions of them and by hand; their names."""

import dataclasses

import numpy as np
import pytest

from queuemodel import ModelError
from queuemodel import scheduling as qs
from tests.oracles.plain_policies import plain


def drawn(seed, count, nodes):
    """Jobs present at once of which no two numbers are alike, on curves with dents, within limits."""
    rng, jobs = np.random.default_rng(seed), []
    for k in range(count):
        least = int(rng.integers(1, 4))
        most = int(rng.integers(least, nodes + 3))
        curve = {n: float(n ** rng.uniform(0.3, 0.9) * rng.uniform(0.7, 1.3)) for n in range(least, nodes + 1)}
        limits = {"least_nodes": least, "most_nodes": most, "steps": float(rng.exponential(30)) + 1}
        asked = int(rng.integers(least, min(most, nodes) + 1))
        jobs.append(qs.ClusterJob(f"{k}", arrival_time=0.0, curve=curve, requested_nodes=asked, **limits))
    return jobs


POLICIES = [
    qs.FIFO(), qs.FIFO(3), qs.ShortestJobFirst(), qs.Backfill(), qs.LeastAttainedService(), qs.EqualShare(), qs.SRPT(),
    qs.HeSRPT(), qs.HeSRPT(0.3), *(qs.ModelBased(order, grant, t) for order in ("arrival", "shortest", "gain")
                                   for grant, t in (("useful", 0.5), ("efficient", 0.7), ("marginal", 0.3))),
    qs.GreedyGain(), qs.GreedyGain(0.7, power=0.3), qs.RankPriced(), qs.RankPriced(0.8, floor=0.6),
    qs.RankPriced(1 - 1e-9), qs.Optimus(), qs.FitnessMaximization(),
]  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_who_gets_which_nodes(policy):
    for seed in range(12):
        for count, nodes in ((1, 9), (4, 14), (9, 14), (5, 40)):
            jobs = drawn(seed, count, nodes)
            changes = qs.schedule(jobs, policy, nodes=nodes, history=True).history
            found = {int(job): granted for time, job, granted in changes if time == 0}
            assert [found.get(job, 0) for job in range(count)] == plain(policy, jobs, nodes), (seed, count)


@pytest.mark.parametrize(("policy", "curve", "nodes"), [
    (qs.GreedyGain(floor=0.5), qs.PowerLawCurve(0.5), 4),  # n ** -0.5 >= 0.5
    (qs.ModelBased("shortest", "efficient", 0.25), qs.PowerLawCurve(0.5), 16),
    (qs.ModelBased("shortest", "marginal", 0.25), {2: 3.0, 4: 5.0, 8: 6.5}, 8),  # 1.5 / 4 over 3 / 2
])  # fmt: skip
def test_floors_that_are_just_met(policy, curve, nodes):
    limits = {"least_nodes": 2, "most_nodes": 8} if isinstance(curve, dict) else {}
    job = qs.ClusterJob("a", arrival_time=0, steps=5.0, curve=curve, **limits)
    assert qs.schedule([job], policy, nodes=100, history=True).history[0, 2] == nodes


def job(name, time, nodes, seconds):
    rest = {"steps": seconds * nodes, "curve": qs.PowerLawCurve(1.0), "requested_nodes": nodes}
    return qs.ClusterJob(name, arrival_time=time, **rest)


FIRST = [job("running", 0, 3, 10), job("first", 1, 4, 5), job("short", 2, 1, 4), job("long", 3, 1, 50)]
#: Policy, jobs, nodes and the jobs' starts.
STARTS = [
    (qs.FIFO(), FIRST, 4, [0, 10, 15, 15]),
    (qs.Backfill(), FIRST, 4, [0, 10, 2, 15]),
    # Beside the first there is room.
    (qs.Backfill(), [job("running", 0, 3, 10), job("first", 1, 3, 5), job("long", 3, 1, 50)], 4, [0, 10, 3]),
    # Who ends in time takes nothing from what is to spare beside the first, decided at once.
    (qs.Backfill(), [job("running", 0, 4, 10), job("first", 1, 5, 5), job("short", 2, 1, 4), job("long", 2, 1, 50)], 6,
     [0, 10, 2, 2]),
    # Two end together: all their nodes but those of the first are to spare.
    (qs.Backfill(), [job("a", 0, 1, 100), job("b", 0, 1, 100), job("first", 1, 2, 5), job("long", 2, 1, 1000)], 3,
     [0, 0, 100, 2]),
    # Every start takes 15 s: the last would end at 47, the first that waits can start at 35.
    (qs.Backfill(), [job("running", 0, 1, 20), job("first", 1, 2, 5), job("last", 22, 1, 10)],
     qs.Nodes(2, start_seconds=15), [0, 35, 55]),
    (qs.ShortestJobFirst(), [job("a", 0, 4, 10), job("b", 1, 4, 9), job("c", 2, 4, 3)], 4, [0, 13, 10]),
    # The old job has 3 of 4 nodes, 60 node-seconds after 20 s; the new one then takes 2 for 20 s.
    (qs.LeastAttainedService((60.0,)), [job("old", 0, 3, 100), job("new", 1, 2, 20)], 4, [0, 20]),
    # Two thresholds: a falls at 10 and 30 node-seconds, each time behind b, which falls at the same.
    (qs.LeastAttainedService((10.0, 30.0)), [job("a", 0, 2, 20), job("b", 1, 2, 20)], 2, [0, 5]),
]  # fmt: skip


@pytest.mark.parametrize(("policy", "jobs", "nodes", "starts"), STARTS)
def test_starts_by_hand(policy, jobs, nodes, starts):
    found = qs.schedule(jobs, policy, nodes=nodes)
    assert found.start == pytest.approx(starts)
    if isinstance(policy, qs.LeastAttainedService):
        ends, restarts = ([35, 40], [2, 2]) if nodes == 2 else ([120, 40], [1, 0])
        assert (found.end.tolist(), found.restarts.tolist()) == (pytest.approx(ends), restarts)


@pytest.mark.parametrize("wait", [10.0, np.inf])
@pytest.mark.parametrize(("grant", "message"), [
    (3, "at most 2 nodes together"), (-1, "grants must be >= 0"), (0, "must run a job"), (0.5, "whole nodes"),
    (None, "looks at 'remaining' but does not declare it"),
])  # fmt: skip
def test_rule_breaking_policies_are_refused(grant, message, wait):
    @dataclasses.dataclass(frozen=True)
    class Wrong(qs.Policy):
        def grants(self, jobs, nodes, now):
            return np.full(len(jobs), jobs.remaining if grant is None else grant)

        def review(self, jobs, grants, now):
            return now + wait

    with pytest.raises(ModelError, match=message):
        qs.schedule([job("a", 0, 1, 1)], Wrong(), nodes=2)


@pytest.mark.parametrize("short", qs.POLICIES)
def test_policy_names_round_trip(short):
    """Every knob of every policy, moved from its default, is in the name, and the name leads back to the policy."""
    kind = qs.POLICIES[short]
    moved = {"exponent": 0.25, "floor": 0.125, "power": 0.75, "threshold": 0.3, "fixed": 3, "divisible": True}
    moved |= {"thresholds": (5.0, 1e6), "order": "gain", "grant": "marginal"}
    knobs = {field.name: moved[field.name] for field in dataclasses.fields(kind)}
    policy = kind(**knobs)
    assert qs.policy_named(f"{short}:{policy.name.partition('(')[2].rstrip(')')}") == policy
    assert qs.policy_named(short) == kind()
    assert qs.policy_named("hesrpt:exponent=none, divisible=true") == qs.HeSRPT(divisible=True)
    assert kind().name == kind.__name__
    for knob in knobs:
        assert kind(**{knob: knobs[knob]}).name != kind().name


@pytest.mark.parametrize(("text", "message"), [
    ("lottery", "must be one of fifo"), ("greedy:flor=1", "takes floor=..., power=..., got 'flor=1'"),
    ("greedy:floor=0.1,floor=0.2", "floor is given twice"), ("rank-priced:exponent=1", "exponent must be below 1"),
    ("equi:divisible=maybe", "divisible must be one of False, True, got 'maybe'"),
    ("las:thresholds=10+10", "thresholds must rise"),
])  # fmt: skip
def test_unknown_names_are_refused(text, message):
    with pytest.raises(ModelError, match=message):
        qs.policy_named(text)
