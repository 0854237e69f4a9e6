"""What holds for every policy, and what each one is about."""

import dataclasses

import numpy as np
import pytest

from queuemodel import ModelError
from queuemodel import scheduling as qs


def waiting(name, curve=float, remaining=1.0, arrival_time=0.0, **limits):
    return qs.ClusterJob(name, arrival_time=arrival_time, steps=remaining, curve=curve, **limits)


def test_floors_that_are_just_met():
    job = waiting("a", curve=qs.PowerLawCurve(0.5), remaining=5.0)
    least = waiting("a", curve={2: 3.0, 4: 5.0, 8: 6.5}, least_nodes=2, most_nodes=8)
    for policy, one, nodes in (
        (qs.GreedyGain(floor=0.5), job, 4),  # n ** -0.5 >= 0.5
        (qs.ModelBased("shortest", "efficient", 0.25), job, 16),
        (qs.ModelBased("shortest", "marginal", 0.25), least, 8),  # 1.5 / 4 over 3 / 2
    ):
        assert qs.schedule([one], policy, nodes=100, history=True).history[0, 2] == nodes
    with pytest.raises(dataclasses.FrozenInstanceError):
        qs.FIFO().fixed = 2


def job(name, time, nodes, seconds):
    return qs.ClusterJob(
        name, arrival_time=time, steps=seconds * nodes, curve=qs.PowerLawCurve(1.0), requested_nodes=nodes
    )


def test_backfilling_never_delays_the_first():
    jobs = [job("running", 0, 3, 10), job("first", 1, 4, 5), job("short", 2, 1, 4), job("long", 3, 1, 50)]
    fifo, easy = qs.schedule(jobs, qs.FIFO(), nodes=4), qs.schedule(jobs, qs.Backfill(), nodes=4)
    assert easy.start.tolist() == [0, 10, 2, 15]
    assert fifo.start.tolist() == [0, 10, 15, 15]
    spare = [job("running", 0, 3, 10), job("first", 1, 3, 5), job("long", 3, 1, 50)]  # beside the first there is room
    assert qs.schedule(spare, qs.Backfill(), nodes=4).start.tolist() == [0, 10, 3]
    # Who ends in time takes nothing from what is to spare beside the first, decided at once.
    two = [job("running", 0, 4, 10), job("first", 1, 5, 5), job("short", 2, 1, 4), job("long", 2, 1, 50)]
    assert qs.schedule(two, qs.Backfill(), nodes=6).start.tolist() == [0, 10, 2, 2]
    sjf = qs.schedule([job("a", 0, 4, 10), job("b", 1, 4, 9), job("c", 2, 4, 3)], qs.ShortestJobFirst(), nodes=4)
    assert sjf.start.tolist() == [0, 13, 10]


def test_finish_time_fairness():
    """Of 4 nodes both have 2 for 10 s, then the long job all for 10 s: it met 1.5 jobs, so its share is 2 2/3 nodes."""
    curve = {1: 1.0, 2: 1.7, 3: 2.2, 4: 2.5}
    both = [qs.ClusterJob(name, arrival_time=5.0, steps=steps, curve=curve) for name, steps in (("a", 42), ("b", 17))]
    found = qs.schedule(both, qs.EqualShare(), nodes=4)
    assert found.end == pytest.approx([25, 15])
    assert found.shared_time == pytest.approx([42 / (1.7 + 2 / 3 * 0.5), 10.0])
    assert found.fairness == pytest.approx([20 * (1.7 + 1 / 3) / 42, 1.0])
    assert qs.schedule(both[:1], qs.EqualShare(), nodes=4).fairness == pytest.approx([1.0])  # all nodes are its share


def test_attained_service_demotes_exactly():
    """The old job has 3 of 4 nodes: 60 node-seconds after 20 s; the new one then takes 2 for 20 s."""
    schedule = qs.schedule([job("old", 0, 3, 100), job("new", 1, 2, 20)], qs.LeastAttainedService((60.0,)), nodes=4)
    assert schedule.end == pytest.approx([120, 40])
    assert schedule.restarts.tolist() == [1, 0]
    # Two thresholds: a falls at 10 and 30 node-seconds, each time behind b, which falls at the same.
    both = qs.schedule([job("a", 0, 2, 20), job("b", 1, 2, 20)], qs.LeastAttainedService((10.0, 30.0)), nodes=2)
    assert both.start == pytest.approx([0, 5])
    assert both.end == pytest.approx([35, 40])
    assert both.restarts.tolist() == [2, 2]


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
    written = policy.name.partition("(")[2].rstrip(")")
    assert qs.policy_named(f"{short}:{written}") == policy
    assert qs.policy_named(short) == kind()
    assert kind().name == kind.__name__
    for knob in knobs:
        assert kind(**{knob: knobs[knob]}).name != kind().name


def test_policies_by_name():
    assert qs.policy_named("model:order=gain, grant=marginal,threshold=0.3") == qs.ModelBased("gain", "marginal", 0.3)
    assert qs.policy_named("las:thresholds=3600").thresholds == (3600.0,)
    assert qs.policy_named("hesrpt:exponent=none,divisible=true") == qs.HeSRPT(divisible=True)
    for text, message in [
        ("lottery", "must be one of fifo"), ("greedy:flor=1", "takes floor=..., power=..., got 'flor=1'"),
        ("greedy:floor=0.1,floor=0.2", "floor is given twice"), ("rank-priced:exponent=1", "exponent must be below 1"),
        ("equi:divisible=maybe", "divisible must be one of False, True, got 'maybe'"),
        ("las:thresholds=10+10", "thresholds must rise"),
    ]:  # fmt: skip
        with pytest.raises(ModelError, match=message):
            qs.policy_named(text)
