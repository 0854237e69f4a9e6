"""What holds for every policy, and what each one is about."""

import dataclasses

import numpy as np
import pytest

from queuemodel.errors import ModelError
from queuemodel.scheduling import (
    FIFO,
    POLICIES,
    SRPT,
    Backfill,
    EqualShare,
    FitnessMaximization,
    GreedyGain,
    HeSRPT,
    Job,
    JobState,
    LeastAttainedService,
    ModelBased,
    Optimus,
    Policy,
    PowerLawCurve,
    RankPriced,
    ShortestJobFirst,
    TableCurve,
    policy_named,
    simulate,
)
from queuemodel.scheduling.policies.increments import corners, speed_increments
from queuemodel.scheduling.speed_tables import speed_table

ALL = [
    FIFO(),
    FIFO(fixed=3),
    ShortestJobFirst(),
    Backfill(),
    LeastAttainedService((10.0, 100.0)),
    EqualShare(),
    SRPT(),
    HeSRPT(),
    HeSRPT(0.5),
    *(
        ModelBased(order, grant)
        for order in ("arrival", "shortest", "gain")
        for grant in ("useful", "efficient", "marginal")
    ),
    GreedyGain(),
    GreedyGain(0.0, power=0.3),
    RankPriced(),
    RankPriced(0.8, floor=0.6),
    Optimus(),
    FitnessMaximization(),
]
CURVES = [
    PowerLawCurve(0.5),
    PowerLawCurve(1.0, speed=3.0),
    PowerLawCurve(0.0),
    TableCurve({1: 1.0, 2: 1.1, 4: 3.0, 8: 2.5, 40: 2.4}),
    lambda n: n / (1 + 0.1 * n + 0.02 * n * n),
]


def states(seed, count):
    rng = np.random.default_rng(seed)
    made = []
    for k in range(count):
        least = int(rng.integers(1, 4))
        most = int(rng.integers(least, 20))
        made.append(
            JobState(
                f"job-{k}",
                curve=CURVES[int(rng.integers(len(CURVES)))],
                remaining=float(rng.exponential(50)) + 1e-3,
                arrival_time=float(rng.integers(0, 5)),
                attained_service=float(rng.exponential(50)),
                least_nodes=least,
                most_nodes=most,
                requested_nodes=int(rng.integers(least, most + 1)),
            )
        )
    return made


@pytest.mark.parametrize("policy", ALL, ids=lambda policy: policy.name)
@pytest.mark.parametrize("nodes", [1, 7, 40])
def test_every_policy_keeps_the_rules(policy, nodes):
    for seed in range(12):
        jobs = [state for state in states(seed, 1 + 2 * seed) if state.requested_nodes <= nodes]
        first = policy.allocate(jobs, nodes, 9.0)
        assert sum(first.values()) <= nodes
        for state in jobs:
            granted = first.get(state.name, 0)
            assert granted == 0 or state.least_nodes <= granted <= state.most_nodes
            assert granted == int(granted)
        order = np.random.default_rng(seed).permutation(len(jobs))
        assert policy.allocate([jobs[k] for k in order], nodes, 9.0) == first
        if isinstance(policy, EqualShare) and jobs:  # leaves no node idle that some job could use
            room = [s for s in jobs if first.get(s.name, 0) < s.most_nodes and s.least_nodes == 1]
            assert sum(first.values()) == nodes or not room


@pytest.mark.parametrize("policy", ALL, ids=lambda policy: policy.name)
def test_every_policy_finishes_every_job_and_is_frozen(policy):
    rng = np.random.default_rng(1)
    jobs = [
        Job(
            f"{k}",
            arrival_time=float(k // 3),
            steps=float(rng.exponential(20)) + 0.1,
            curve=CURVES[k % len(CURVES)],
            least_nodes=1 + k % 2,
            most_nodes=12,
            requested_nodes=2 + k % 5,
        )
        for k in range(60)
    ]
    schedule = simulate(jobs, policy, nodes=16)
    assert (schedule.end > schedule.arrival).all()
    assert (schedule.start >= schedule.arrival).all()
    assert 0 < schedule.utilization <= 1 + 1e-12
    assert 0 < schedule.efficiency <= 1.8  # one table above is superlinear
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.fixed = 2


def brute_force(increments, weights, nodes):
    granted = [0] * len(weights)
    for _ in range(nodes):
        gains = [w * (row[g] if g < len(row) else 0) for row, g, w in zip(increments, granted, weights, strict=True)]
        best = int(np.argmax(gains))
        if gains[best] <= 0:
            break
        granted[best] += 1
    return granted


@pytest.mark.parametrize("seed", range(8))
def test_greedy_gain_is_node_by_node(seed):
    rng = np.random.default_rng(seed)
    curves = [PowerLawCurve(float(p)) for p in rng.uniform(0.3, 0.95, 9)]
    left = rng.exponential(30, 9) + 0.1
    jobs = [JobState(f"{k}", curve=c, remaining=r) for k, (c, r) in enumerate(zip(curves, left, strict=True))]
    increments = [speed_increments(speed_table(c, least=1, most=50, what="")) for c in curves]
    expected = brute_force(increments, 1 / left, 50)
    granted = GreedyGain(floor=0.0).allocate(jobs, 50, 0.0)
    assert [granted.get(f"{k}", 0) for k in range(9)] == expected


def test_optimus_is_node_by_node():
    left = [3.0, 10.0, 40.0]
    jobs = [JobState(f"{k}", curve=PowerLawCurve(0.7), remaining=r) for k, r in enumerate(left)]
    n = np.arange(1, 21.0)
    increments = [np.concatenate([[1e9], -np.diff(n**-0.7)])] * 3
    granted = Optimus().allocate(jobs, 20, 0.0)
    assert [granted[f"{k}"] for k in range(3)] == brute_force(increments, left, 20)


def test_efficiency_floor_and_marginal_threshold_do_what_they_say():
    job = JobState("a", curve=PowerLawCurve(0.5), remaining=5.0)
    assert GreedyGain(floor=0.5).allocate([job], 100, 0.0) == {"a": 4}  # n ** -0.5 >= 0.5
    assert ModelBased("shortest", "efficient", 0.25).allocate([job], 100, 0.0) == {"a": 16}
    assert ModelBased("shortest", "marginal", 0.25).allocate([job], 100, 0.0) == {"a": 4}  # sqrt(4) - sqrt(3) = 0.27
    assert ModelBased("shortest", "useful").allocate([job], 100, 0.0) == {"a": 100}


def test_corners_pass_over_dents():
    marks = corners(speed_table(TableCurve({1: 1, 2: 1.1, 3: 2.7, 4: 2.8, 5: 2.0}), least=1, most=5, what=""))
    assert np.flatnonzero(marks).tolist() == [1, 3, 4]


def test_backfilling_fills_holes_without_delaying_the_first():
    def job(name, time, nodes, steps):
        return Job(name, arrival_time=time, steps=steps * nodes, curve=PowerLawCurve(1.0), requested_nodes=nodes)

    jobs = [job("running", 0, 3, 10), job("first", 1, 4, 5), job("short", 2, 1, 4), job("long", 3, 1, 50)]
    fifo, easy = simulate(jobs, FIFO(), nodes=4), simulate(jobs, Backfill(), nodes=4)
    assert easy.start.tolist() == [0, 10, 2, 15]
    assert fifo.start.tolist() == [0, 10, 15, 15]


def test_attained_service_demotes_at_the_exact_time():
    jobs = [
        Job("old", arrival_time=0, steps=100, curve=PowerLawCurve(1.0)),
        Job("new", arrival_time=1, steps=10, curve=PowerLawCurve(1.0)),
    ]
    schedule = simulate(jobs, LeastAttainedService((20.0,)), nodes=1)
    assert schedule.end == pytest.approx([110, 30])
    assert schedule.restarts.tolist() == [1, 0]


def test_a_policy_sees_only_what_it_declares():
    @dataclasses.dataclass(frozen=True)
    class Peeking(Policy):
        def grants(self, jobs, nodes, now):
            return (jobs.remaining > 0).astype(int)

    job = Job("a", arrival_time=0, steps=1, curve=float)
    with pytest.raises(ModelError, match="looks at 'remaining' but does not declare it"):
        simulate([job], Peeking(), nodes=1)


@pytest.mark.parametrize(
    ("grant", "message"),
    [(3, "at most 2 nodes together"), (-1, "grants must be >= 0"), (0, "starve|must run somebody")],
)
def test_a_policy_that_breaks_the_rules_is_caught(grant, message):
    @dataclasses.dataclass(frozen=True)
    class Wrong(Policy):
        def grants(self, jobs, nodes, now):
            return np.full(len(jobs), grant)

    with pytest.raises(ModelError, match=message):
        simulate([Job("a", arrival_time=0, steps=1, curve=float)], Wrong(), nodes=2)


def test_a_name_tells_every_knob_that_differs_from_its_default_and_nothing_else():
    assert [policy.name for policy in (RankPriced(), RankPriced(0.5), FIFO(), GreedyGain(floor=0.5, power=1))] == [
        "RankPriced",
        "RankPriced",
        "FIFO",
        "GreedyGain",
    ]
    assert LeastAttainedService((10, 100.5)).name == "LeastAttainedService(thresholds=10+100.5)"
    assert ModelBased("gain", threshold=0.1).name == "ModelBased(order=gain, threshold=0.1)"
    assert EqualShare(divisible=True).name == "EqualShare(divisible=True)"
    assert GreedyGain(0.6, 0.3).name == "GreedyGain(floor=0.6, power=0.3)"


@pytest.mark.parametrize("short", POLICIES)
def test_a_name_is_what_the_command_line_takes(short):
    """Every knob of every policy, moved from its default, is in the name, and the name leads back to the policy."""
    kind = POLICIES[short]
    moved = {"exponent": 0.25, "floor": 0.125, "power": 0.75, "threshold": 0.3, "fixed": 3, "divisible": True}
    moved |= {"thresholds": (5.0, 1e6), "order": "gain", "grant": "marginal"}
    knobs = {field.name: moved[field.name] for field in dataclasses.fields(kind)}
    policy = kind(**knobs)
    written = policy.name.partition("(")[2].rstrip(")")
    assert policy_named(f"{short}:{written}") == policy
    for knob in knobs:
        assert kind(**{knob: knobs[knob]}).name != kind().name


def test_policies_by_name():
    for name in POLICIES:
        assert isinstance(policy_named(name), Policy)
    assert policy_named("model:order=gain, grant=marginal,threshold=0.3") == ModelBased("gain", "marginal", 0.3)
    assert policy_named("las:thresholds=10+20") == LeastAttainedService((10, 20))
    assert policy_named("las:thresholds=3600").thresholds == (3600.0,)
    assert policy_named("hesrpt:exponent=none,divisible=true") == HeSRPT(divisible=True)
    for text, message in [
        ("lottery", "must be one of fifo"),
        ("greedy:flor=1", "takes floor=..., power=..., got 'flor=1'"),
        ("greedy:floor=0.1,floor=0.2", "floor is given twice"),
        ("greedy:floor=2", "floor must be between 0 and 1, got 2"),
        ("greedy:floor=nan", "floor must be between 0 and 1, got nan"),
        ("greedy:power=abc", "power must be finite and >= 0, got 'abc'"),
        ("greedy:power=inf", "power must be finite and >= 0, got inf"),
        ("greedy:power=99", "power must be at most 10, got 99"),
        ("rank-priced:exponent=1", "exponent must be below 1"),
        ("hesrpt:exponent=1.0", "exponent must be below 1"),
        ("hesrpt:divisible=2", "divisible must be one of False, True, got 2"),
        ("equi:divisible=maybe", "divisible must be one of False, True, got 'maybe'"),
        ("las:thresholds=0", "thresholds must be finite and > 0 node-seconds, got 0"),
        ("las:thresholds=abc", "thresholds must be finite and > 0 node-seconds, got 'abc'"),
        ("las:thresholds=20+10", "thresholds must rise"),
        ("las:thresholds=10+10", "thresholds must rise"),
        ("model:order=size", "order must be one of arrival, shortest, gain"),
        ("fifo:fixed=0", "whole number of at least 1, got 0"),
        ("fifo:fixed=2.0", "whole number of at least 1, got 2.0"),
        ("fifo:fixed=abc", "whole number of at least 1, got 'abc'"),
    ]:
        with pytest.raises(ModelError, match=message):
            policy_named(text)
