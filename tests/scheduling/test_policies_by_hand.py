"""Policies and simulation against plain versions: who gets which nodes, and what a history of nodes amounts to."""

import numpy as np
import pytest

from queuemodel import scheduling as qs
from tests.oracles.plain_policies import plain


def drawn(seed, count=9, nodes=14, **rest):
    """Jobs of which no two numbers are alike, on curves with dents, within limits; and the speeds of each."""
    rng, time, jobs = np.random.default_rng(seed), 0.0, []
    for k in range(count):
        least = int(rng.integers(1, 4))
        most = int(rng.integers(least, nodes + 3))
        curve = {n: float(n ** rng.uniform(0.3, 0.9) * rng.uniform(0.7, 1.3)) for n in range(least, nodes + 1)}
        stretches = [(float(rng.uniform(1, 3)), {n: x * rng.uniform(0.5, 2) for n, x in curve.items()}) for _ in "abc"]
        asked = int(rng.integers(least, min(most, nodes) + 1))
        limits = {"least_nodes": least, "most_nodes": most, "requested_nodes": asked, "kind": "xyz"[k % 3]}
        made = qs.StagedCurve(stretches) if k % 2 and rest.get("staged") else curve
        early = 0.5 if rest.get("staged") else 0.0
        job = qs.ClusterJob(f"{k}", arrival_time=time, steps=float(rng.exponential(30)) + 1, curve=made, **limits,
                     end_probability=early)  # fmt: skip
        time += rng.exponential(rest.get("gap", 4.0))
        jobs.append(job)
    return jobs


POLICIES = [
    qs.FIFO(), qs.FIFO(3), qs.ShortestJobFirst(), qs.Backfill(), qs.LeastAttainedService(), qs.EqualShare(), qs.SRPT(),
    qs.HeSRPT(), qs.HeSRPT(0.3), *(qs.ModelBased(order, grant, t) for order in ("arrival", "shortest", "gain")
                                   for grant, t in (("useful", 0.5), ("efficient", 0.7), ("marginal", 0.3))),
    qs.GreedyGain(), qs.GreedyGain(0.7, power=0.3), qs.RankPriced(), qs.RankPriced(0.8, floor=0.6),
    qs.RankPriced(1 - 1e-9), qs.Optimus(),
    qs.FitnessMaximization(),
]  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_who_gets_which_nodes(policy):
    for seed in range(12):
        for count, nodes in ((1, 9), (4, 14), (9, 14), (5, 40)):
            jobs = drawn(seed, count, nodes, gap=0.0)  # all present at once
            changes = qs.schedule(jobs, policy, nodes=nodes, history=True).history
            found = {int(job): granted for time, job, granted in changes if time == 0}
            assert [found.get(job, 0) for job in range(count)] == plain(policy, jobs, nodes), (seed, count)


def test_jobs_have_what_their_kind_has():
    limits = {"least_nodes": 2, "most_nodes": 5, "requested_nodes": 3, "end_probability": 0.25}
    kinds = [
        qs.JobKind("a", curve=float, steps=7.0, variation=0, **limits),
        qs.JobKind("b", curve={1: 2.0, 6: 3.0}, steps=1.0),
    ]
    first, second = ({job.kind: job for job in qs.Stream(kinds, jobs=40, nodes=9).workload(1)}[name] for name in "ab")
    assert {name: getattr(first, name) for name in limits} == limits
    assert (first.steps, first.curve(4), first.predicted) == (7.0, 4.0, None)
    assert (second.least_nodes, second.most_nodes, second.requested, second.end_probability) == (1, 6, 1, 0.0)
