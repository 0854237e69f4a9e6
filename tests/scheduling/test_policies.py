"""What holds for every policy, and what each one is about."""

import dataclasses

import numpy as np
import pytest

from queuemodel import scheduling as qs
from queuemodel.base.errors import ModelError

ALL = [
    qs.FIFO(), qs.FIFO(fixed=3), qs.ShortestJobFirst(), qs.Backfill(), qs.LeastAttainedService((10.0, 100.0)),
    qs.EqualShare(), qs.SRPT(), qs.HeSRPT(), qs.HeSRPT(0.5),
    *(
        qs.ModelBased(order, grant)
        for order in ("arrival", "shortest", "gain")
        for grant in ("useful", "efficient", "marginal")
    ),
    qs.GreedyGain(), qs.GreedyGain(0.0, power=0.3), qs.RankPriced(), qs.RankPriced(0.8, floor=0.6), qs.Optimus(),
    qs.FitnessMaximization(),
]  # fmt: skip
CURVES = [
    qs.PowerLawCurve(0.5), qs.PowerLawCurve(1.0, speed=3.0), qs.PowerLawCurve(0.0),
    qs.TableCurve({1: 1.0, 2: 1.1, 4: 3.0, 8: 2.5, 40: 2.4}), lambda n: n / (1 + 0.1 * n + 0.02 * n * n),
]  # fmt: skip


def waiting(name, curve=float, remaining=1.0, arrival_time=0.0, **limits):
    return qs.Job(name, arrival_time=arrival_time, steps=remaining, curve=curve, **limits)


def some_jobs(seed, count, nodes):
    rng = np.random.default_rng(seed)
    made = []
    for k in range(count):
        least = int(rng.integers(1, min(nodes, 3) + 1))
        most = int(rng.integers(least, 20))
        asked = int(rng.integers(least, min(most, nodes) + 1))
        limits = {"least_nodes": least, "most_nodes": most, "requested_nodes": asked}
        curve, steps = CURVES[int(rng.integers(len(CURVES)))], float(rng.exponential(50)) + 1e-3
        made.append(waiting(f"job-{k}", curve, steps, float(k // 3), **limits))
    return made


@pytest.mark.parametrize("policy", ALL, ids=lambda policy: policy.name)
@pytest.mark.parametrize("nodes", [1, 7, 40])
def test_every_policy_keeps_the_rules_and_finishes_every_job(policy, nodes):
    """The simulation refuses grants outside the jobs' limits, of fractions, and of more nodes than there are."""
    for seed in range(6):
        jobs = some_jobs(seed, 1 + 6 * seed, nodes)
        schedule = qs.simulate(jobs, policy, nodes=nodes)
        assert (schedule.end > schedule.start).all()
        assert (schedule.start >= schedule.arrival).all()
        assert 0 < schedule.utilization <= 1 + 1e-12
        assert 0 < schedule.efficiency <= 1.8  # one table above is superlinear
        first = policy.allocate(jobs, nodes, 9.0)
        order = np.random.default_rng(seed).permutation(len(jobs))
        assert policy.allocate([jobs[k] for k in order], nodes, 9.0) == first
        if isinstance(policy, qs.EqualShare):  # leaves no node idle that some job could use
            room = [one for one in jobs if first.get(one.name, 0) < one.most_nodes and one.least_nodes == 1]
            assert sum(first.values()) == nodes or not room
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.fixed = 2


def best_of_all(values, nodes):
    """Node by node to whoever gains most; ``values[j]`` are those of a job's nodes, falling."""
    granted = [0] * len(values)
    for _ in range(nodes):
        gains = [row[g] if g < len(row) else 0 for row, g in zip(values, granted, strict=True)]
        if max(gains) <= 0:
            break
        granted[int(np.argmax(gains))] += 1
    return granted


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", ["greedy", "rank-priced", "optimus", "fitness"])
def test_policies_on_concave_curves_go_node_by_node(name, seed):
    """Speed over the work left, at prices by rank, time saved, and the harmonic mean of speedups."""
    rng, nodes = np.random.default_rng(seed), 50
    exponents, left, speeds = rng.uniform(0.3, 0.95, 9), rng.exponential(30, 9) + 0.1, rng.uniform(0.5, 3.0, 9)
    curves = [qs.PowerLawCurve(float(p), speed=float(x)) for p, x in zip(exponents, speeds, strict=True)]
    jobs = [waiting(f"{k}", curve=c, remaining=r) for k, (c, r) in enumerate(zip(curves, left, strict=True))]
    table = speeds[:, None] * np.arange(nodes + 1.0) ** exponents[:, None]
    saved = np.hstack([np.full((9, 1), 1e9), -np.diff(1 / table[:, 1:])])
    rank = np.empty(9)
    rank[np.argsort(-left / speeds)] = np.arange(1, 10)  # the largest job has the first
    values = {
        "greedy": np.diff(table) / left[:, None],
        "rank-priced": np.diff(table) / speeds[:, None] * np.sqrt(rank**2 - (rank - 1) ** 2)[:, None],
        "optimus": saved * left[:, None],
        "fitness": saved * table[:, [nodes // 9]],
    }[name]
    granted = qs.policy_named(name + (":floor=0" if name == "greedy" else "")).allocate(jobs, nodes, 0.0)
    assert [granted.get(f"{k}", 0) for k in range(9)] == best_of_all(values.tolist(), nodes)


def test_dents_of_a_curve_are_passed_over():
    """Alone a job stops at its fastest number of nodes; shared, only where the curve touches its concave majorant."""
    dented = qs.TableCurve({1: 1, 2: 1.1, 3: 2.7, 4: 2.8, 5: 2.0})
    for nodes, expected in [(5, 4), (3, 3), (2, 2)]:
        assert qs.GreedyGain(floor=0.0).allocate([waiting("a", curve=dented)], nodes, 0.0) == {"a": expected}
    both = [
        waiting("a", curve=dented, most_nodes=5),
        waiting("b", curve=qs.PowerLawCurve(1.0, speed=0.5), most_nodes=3),
    ]
    for nodes, expected in [(2, {"a": 1, "b": 1}), (3, {"a": 3}), (4, {"a": 3, "b": 1}), (7, {"a": 4, "b": 3})]:
        assert qs.GreedyGain(floor=0.0).allocate(both, nodes, 0.0) == expected


def test_efficiency_floor_and_marginal_threshold_do_what_they_say():
    job = waiting("a", curve=qs.PowerLawCurve(0.5), remaining=5.0)
    assert qs.GreedyGain(floor=0.5).allocate([job], 100, 0.0) == {"a": 4}  # n ** -0.5 >= 0.5
    assert qs.ModelBased("shortest", "efficient", 0.25).allocate([job], 100, 0.0) == {"a": 16}
    assert qs.ModelBased("shortest", "marginal", 0.25).allocate([job], 100, 0.0) == {"a": 4}  # sqrt(4) - sqrt(3) = 0.27
    assert qs.ModelBased("shortest", "useful").allocate([job], 100, 0.0) == {"a": 100}
    # not monotone: the third node adds 0.85 on the concave majorant, the fourth 0.1, the fifth takes away
    dented = waiting("a", curve={1: 1, 2: 1.1, 3: 2.7, 4: 2.8, 5: 2.0})
    for threshold, expected in [(0.9, 1), (0.8, 3), (0.2, 3), (0.05, 4), (0.0, 4)]:
        assert qs.ModelBased("shortest", "marginal", threshold).allocate([dented], 5, 0.0) == {"a": expected}
    least = waiting("a", curve={2: 3.0, 4: 5.0, 8: 6.0}, least_nodes=2, most_nodes=8)
    assert qs.ModelBased("shortest", "efficient", 0.8).allocate([least], 8, 0.0) == {"a": 4}  # 5 / 4 over 3 / 2
    assert qs.ModelBased("shortest", "marginal", 0.6).allocate([least], 8, 0.0) == {"a": 4}  # 1 over 3 / 2, then 1 / 4


def test_equal_shares_give_the_odd_nodes_to_the_earliest_within_limits():
    jobs = [waiting(n, arrival_time=t) for n, t in (("late", 2.0), ("first", 0.0), ("second", 1.0))]
    assert qs.EqualShare().allocate(jobs, 8, 3.0) == {"first": 3, "second": 3, "late": 2}
    assert qs.EqualShare().allocate(jobs, 2, 3.0) == {"first": 1, "second": 1}
    limited = [*jobs, waiting("small", most_nodes=1), waiting("large", least_nodes=5)]
    for nodes, second in ((13, 2), (14, 3)):  # the large one has more than the others already
        expected = {"large": 5, "small": 1, "first": 3, "second": second, "late": 2}
        assert qs.EqualShare().allocate(limited, nodes, 3.0) == expected
    jobs = [waiting("small", remaining=1.0, most_nodes=1), waiting("large", remaining=9.0, least_nodes=3)]
    for nodes, expected in ((3, {"small": 1}), (5, {"small": 1, "large": 4})):  # what nobody can use stays idle
        assert qs.HeSRPT(0.5).allocate(jobs, nodes, 0.0) == expected
    fast = waiting("fast", curve=qs.PowerLawCurve(0.5, speed=10.0), remaining=5.0)  # small is who ends soon
    jobs = [fast, waiting("slow", curve=qs.PowerLawCurve(0.5), remaining=2.0)]
    assert qs.HeSRPT().allocate(jobs, 4, 0.0) == {"fast": 3, "slow": 1}


def test_orders_of_the_model_based_policies():
    """Nodes for one only: the first, the one that ends first, and the largest gain per node."""
    jobs = [
        waiting("first", curve={4: 1.0}, remaining=90.0, least_nodes=4, most_nodes=4),
        waiting("short", curve={4: 1.0}, remaining=20.0, least_nodes=4, most_nodes=4, arrival_time=1.0),
        waiting("narrow", curve={1: 1.0}, remaining=30.0, most_nodes=1, arrival_time=2.0),
    ]
    for order, names in [("arrival", {"first": 4}), ("shortest", {"short": 4}), ("gain", {"narrow": 1})]:
        assert qs.ModelBased(order, "useful").allocate(jobs, 4, 5.0) == names


def job(name, time, nodes, seconds):
    return qs.Job(name, arrival_time=time, steps=seconds * nodes, curve=qs.PowerLawCurve(1.0), requested_nodes=nodes)


def test_backfilling_fills_holes_without_delaying_the_first():
    jobs = [job("running", 0, 3, 10), job("first", 1, 4, 5), job("short", 2, 1, 4), job("long", 3, 1, 50)]
    fifo, easy = qs.simulate(jobs, qs.FIFO(), nodes=4), qs.simulate(jobs, qs.Backfill(), nodes=4)
    assert easy.start.tolist() == [0, 10, 2, 15]
    assert fifo.start.tolist() == [0, 10, 15, 15]
    spare = [job("running", 0, 3, 10), job("first", 1, 3, 5), job("long", 3, 1, 50)]  # beside the first there is room
    assert qs.simulate(spare, qs.Backfill(), nodes=4).start.tolist() == [0, 10, 3]
    # Who ends in time takes nothing from what is to spare beside the first, decided at once.
    two = [job("running", 0, 4, 10), job("first", 1, 5, 5), job("short", 2, 1, 4), job("long", 2, 1, 50)]
    assert qs.simulate(two, qs.Backfill(), nodes=6).start.tolist() == [0, 10, 2, 2]
    sjf = qs.simulate([job("a", 0, 4, 10), job("b", 1, 4, 9), job("c", 2, 4, 3)], qs.ShortestJobFirst(), nodes=4)
    assert sjf.start.tolist() == [0, 13, 10]


def test_attained_service_counts_nodes_and_demotes_at_the_exact_time():
    """The old job has 3 of 4 nodes: 60 node-seconds after 20 s; the new one then takes 2 for 20 s."""
    schedule = qs.simulate([job("old", 0, 3, 100), job("new", 1, 2, 20)], qs.LeastAttainedService((60.0,)), nodes=4)
    assert schedule.end == pytest.approx([120, 40])
    assert schedule.restarts.tolist() == [1, 0]
    # Two thresholds: a falls at 10 and 30 node-seconds, each time behind b, which falls at the same.
    both = qs.simulate([job("a", 0, 2, 20), job("b", 1, 2, 20)], qs.LeastAttainedService((10.0, 30.0)), nodes=2)
    assert both.start == pytest.approx([0, 5])
    assert both.end == pytest.approx([35, 40])
    assert both.restarts.tolist() == [2, 2]


@pytest.mark.parametrize("wait", [10.0, np.inf])
@pytest.mark.parametrize(
    ("grant", "message"),
    [
        (3, "at most 2 nodes together"),
        (-1, "grants must be >= 0"),
        (0, "must run somebody"),
        (0.5, "whole nodes"),
        (None, "looks at 'remaining' but does not declare it"),
    ],
)
def test_a_policy_that_breaks_the_rules_is_caught(grant, message, wait):
    @dataclasses.dataclass(frozen=True)
    class Wrong(qs.Policy):
        def grants(self, jobs, nodes, now):
            return np.full(len(jobs), jobs.remaining if grant is None else grant)

        def review(self, jobs, grants, now):
            return now + wait

    with pytest.raises(ModelError, match=message):
        qs.simulate([job("a", 0, 1, 1)], Wrong(), nodes=2)


@pytest.mark.parametrize("short", qs.POLICIES)
def test_a_name_is_what_the_command_line_takes(short):
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
