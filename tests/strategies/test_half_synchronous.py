"""Half-synchronous strategies: the exact ones within a simulation's interval, the others within their stated error."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from half_events import run
from hypothesis import given
from hypothesis import strategies as st

import queuemodel as qm
from queuemodel.data import example_profile
from queuemodel.prediction import predict
from queuemodel.strategies import HalfSynchronous, staleness
from queuemodel.strategies.half import own_scv
from queuemodel.strategies.meeting import arriving, passing
from queuemodel.strategies.order_statistics import rejoined
from queuemodel.traces.result import batch_means
from queuemodel.training.model_error import waiting_error
from queuemodel.training.parameters import normal_quantile
from queuemodel.training.rules import ClosedNetwork, ParallelServers, UnequalWorkers
from validation.series import read_testbed

NOTHING, LIGHT, BUSY = (0.0, 0.0, 0.0), (0.02, 0.02, 0.002), (0.1, 0.1, 0.01)


def predicted(name, number, *, workers, scv, D, base=None, spread=0.0):
    rule = HalfSynchronous(name, number, scv, spread)(base or ClosedNetwork(), 1)
    return float(rule.solve(np.array(D), np.array(1.0), np.array([workers])).X[0])


def bounded(name, number, *, workers, scv, D):
    half = HalfSynchronous(name, number, scv, 0.0)
    lower, upper = half.bounds(half(ClosedNetwork(), 1), np.array(D), np.array(1.0), np.array([workers]))
    return float(lower[0]), float(upper[0])


def simulated(strategy, *, workers, scv, D, k, seed=0, exponential=False, **settings):
    """Results per second that count, with an interval of 99 %."""
    rng = np.random.default_rng(seed)
    durations, _ = run(
        strategy,
        lambda _: rng.gamma(1 / scv, scv),
        lambda: tuple(rng.exponential(d) for d in D) if exponential else D,
        workers=workers, k=k, **settings,
    )  # fmt: skip
    return k * np.array(batch_means(durations, confidence=0.99))


@pytest.mark.parametrize(
    ("name", "number", "strategy", "k", "scv", "D"),
    [
        ("k-batch-async", 3, "async", 3, 0.04, BUSY),
        ("k-batch-async", 3, "async", 3, 0.04, LIGHT),
        ("sync-ps", 0, "k-sync", 6, 0.04, NOTHING),
        ("k-sync", 3, "k-sync", 3, 0.04, NOTHING),
        ("k-batch-sync", 9, "k-batch-sync", 9, 0.04, NOTHING),
        ("k-async", 1, "k-async", 1, 0.04, BUSY),
    ],
)
def test_exact_ones_are_within_the_simulations_interval(name, number, strategy, k, scv, D):
    X, low, high = simulated(strategy, workers=6, scv=scv, D=D, k=k, rounds=6000 // k)
    truth = predicted(name, number, workers=6, scv=scv, D=D)
    assert low <= truth <= high
    assert not low <= 1.02 * truth <= high  # the control: what is 2 % wrong is noticed
    assert not low <= 0.98 * truth <= high
    assert truth == pytest.approx(X, rel=0.02)


@pytest.mark.parametrize(("k", "n"), [(1, 4), (2, 6), (4, 8), (7, 8)])
def test_exponential_times_without_server_are_the_papers_forms(k, n):
    """Dutta et al. (2018): K-sync and K-async H_n - H_{n-K}, K-batch-sync and K-batch-async K/n.

    Late workers who end their steps hold up a round, by the chain of who is late.
    """
    waits = sum(1 / i for i in range(n - k + 1, n + 1))
    late = predicted("sync-ps", n - k, workers=n, scv=1.0, D=NOTHING)
    assert k / late == pytest.approx(rejoined(k, n - k)[-1], rel=1e-6)
    assert k / late > 1.05 * waits
    for name, seconds in (("k-sync", waits), ("k-async", waits), ("k-batch-sync", k / n), ("k-batch-async", k / n)):
        number = k
        if name == "k-async" and k == 1:
            seconds = 1 / n
        assert k / predicted(name, number, workers=n, scv=1.0, D=NOTHING) == pytest.approx(seconds, rel=1e-6)


#: Largest relative error that docs/explanation/half-synchronous states, with a light and with a busy server.
STATED = {
    "k-sync": (0.05, 0.08), "backup": (0.10, 0.20), "k-batch-sync": (0.05, 0.15), "k-async": (0.11, 0.20),
    "bounded": (0.08, 0.10),
}  # fmt: skip


@pytest.mark.parametrize("scv", [1.0, 0.25, 0.01])
@pytest.mark.parametrize(
    ("name", "number", "strategy", "k"),
    [
        ("sync-ps", 0, "k-sync", 8), ("sync-ps", 1, "backup", 7), ("sync-ps", 4, "backup", 4),
        ("sync-ps", 6, "backup", 2),
        ("k-sync", 4, "k-sync", 4), ("k-batch-sync", 8, "k-batch-sync", 8),
        ("k-async", 4, "k-async", 4), ("k-async", 7, "k-async", 7),
        ("bounded-staleness", 1, "bounded", 8), ("bounded-staleness", 4, "bounded", 8),
    ],
)  # fmt: skip
def test_others_are_within_their_stated_error(name, number, strategy, k, scv):
    for busy, D in enumerate((LIGHT, BUSY)):
        X, low, high = simulated(strategy, workers=8, scv=scv, D=D, k=k, bound=number, rounds=2400 // k)
        noise = max(high / X, X / low) - 1
        guess = predicted(name, number, workers=8, scv=scv, D=D)
        assert abs(guess / X - 1) < STATED[strategy][busy] + noise
        least, most = bounded(name, number, workers=8, scv=scv, D=D)
        assert least * (1 - noise) <= X <= most * (1 + noise)
        assert least <= guess <= most
        if busy and strategy == "k-sync":  # the control: the network without rounds is far off
            assert predicted("k-batch-async", 1, workers=8, scv=scv, D=D) > 1.2 * X
        if busy and name == "sync-ps" and number == 6 and scv < 1:  # as are late workers who all follow
            assert predicted("k-sync", k, workers=8, scv=scv, D=D) < 0.93 * X


@pytest.mark.parametrize(("name", "number"), [("sync-ps", 0), ("k-sync", 3), ("k-batch-sync", 6)])
def test_bounds_meet_where_nobody_waits_for_servers(name, number):
    """For k-batch-sync where times are constant, since its lower bound lets all workers finish."""
    scv = 0.0 if name == "k-batch-sync" else 0.3
    truth = predicted(name, number, workers=6, scv=scv, D=NOTHING)
    assert bounded(name, number, workers=6, scv=scv, D=NOTHING) == pytest.approx((truth, truth))
    least, most = bounded(name, number, workers=6, scv=scv, D=BUSY)
    assert least < 0.9 * most


@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_a_barrier_of_exponential_times_is_the_markov_chains(n):
    """Without server exactly; with one nearly, whose work is exponential there and constant here."""
    worker = qm.Station("worker", service_time=1.0, servers=math.inf)
    alone = n / qm.barrier_time(qm.Network([worker]), population=n)
    assert predicted("sync-ps", 0, workers=n, scv=1.0, D=NOTHING) == pytest.approx(alone, rel=1e-9)
    stations = [qm.Station("down", service_time=0.05), worker, qm.Station("up", service_time=0.05)]
    chain = n / qm.barrier_time(qm.Network(stations), population=n)
    rates = [predicted("sync-ps", 0, workers=n, scv=scv, D=(0.05, 0.05, 0.0)) for scv in (1.0, 0.25, 0.01)]
    assert rates[0] == pytest.approx(chain, rel=0.08)
    assert np.all(np.diff(rates) > -1e-9)  # the less times vary, the shorter a round


demand, variation = st.floats(0.0, 0.3), st.floats(0.0, 2.0)


@given(st.tuples(demand, demand, demand), variation, st.integers(2, 12), st.integers(1, 12))
def test_laws(D, scv, n, k):
    k = min(k, n)
    free = predicted("k-batch-async", k, workers=n, scv=scv, D=D)
    barrier = predicted("sync-ps", 0, workers=n, scv=scv, D=D)
    assert predicted("k-sync", n, workers=n, scv=scv, D=D) == pytest.approx(barrier)
    assert predicted("bounded-staleness", 0, workers=n, scv=scv, D=D) == pytest.approx(barrier)
    assert predicted("k-async", k, workers=n, scv=scv, D=D) <= free * (1 + 1e-9)
    loose = [predicted("bounded-staleness", s, workers=n, scv=scv, D=D) for s in (0, 1, 10, 1000)]
    assert all(a <= b * (1 + 1e-9) for a, b in itertools.pairwise(loose))
    assert loose[-1] <= max(free, barrier) * (1 + 1e-9)
    for name, number in [("sync-ps", 0), ("k-sync", k), ("k-batch-sync", k), ("k-async", k), ("bounded-staleness", k)]:
        least, most = bounded(name, number, workers=n, scv=scv, D=D)
        rate = predicted(name, number, workers=n, scv=scv, D=D)
        assert least * (1 - 1e-5) <= rate <= most * (1 + 1e-9)  # quadrature of times that hardly vary
    if n > 2:  # a round that waits for fewer is shorter
        fewer = (n - 1) / predicted("sync-ps", 1, workers=n, scv=scv, D=D)
        assert fewer <= n / barrier * (1 + 1e-9)


@given(st.tuples(demand, demand, demand), variation, st.integers(1, 12), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_strategies_meet_where_all_count_or_nobody_waits(D, scv, n, spread, settled):
    def rate(name, number):
        base = ParallelServers(settled=settled)
        return predicted(name, number, workers=n, scv=scv, D=D, base=base, spread=spread)

    barrier, free = rate("sync-ps", 0), rate("k-batch-async", n)
    for name, number in (("k-sync", n), ("k-async", n), ("bounded-staleness", 0)):
        assert rate(name, number) == pytest.approx(barrier), name
    assert rate("k-async", 1) == pytest.approx(free if n > 1 else barrier)
    assert rate("bounded-staleness", 10_000) == pytest.approx(max(free, barrier), rel=1e-3)


@given(st.lists(st.floats(0.0, 3.0), min_size=1, max_size=8), st.floats(0.0, 1.0), st.integers(1, 8))
def test_passing_is_a_shared_server(arrivals, busiest, K):
    """Against small steps of time."""
    t, K = np.sort(np.array(arrivals)), min(K, len(arrivals))
    first = passing(t, np.array([0.0, busiest]), 1, K)
    last = passing(np.append(t, 1e6), np.array([0.0, busiest]), 1, len(t))  # by events, as one is still to come
    assert last == pytest.approx(passing(t, np.array([0.0, busiest]), 1, len(t)), abs=1e-9)
    left, now, gone = np.full(len(t), busiest), 0.0, []
    while len(gone) < K:
        there = [i for i in range(len(t)) if t[i] <= now + 1e-12 and i not in gone]
        later = t[t > now + 1e-12].min(initial=math.inf)
        least = min((left[i] for i in there), default=math.inf)
        step = min(later - now, least * len(there) if there else math.inf)
        for i in there:
            left[i] -= step / len(there)
        now += step
        gone += [i for i in there if left[i] <= 1e-12]
    assert first == pytest.approx(now, abs=1e-9)


@pytest.mark.parametrize(("k", "n"), [(1, 2), (2, 4), (4, 8), (8, 8)])
@pytest.mark.parametrize("Z", [0.25, 2.0])
def test_rounds_of_unequal_shares(Z, k, n):
    """Against drawn weights of the fetches; where all fetches end together rounds take longer."""
    rng, D, scv = np.random.default_rng(5), np.array([1.0, 1.0, 0.0]), 0.01
    weights = -np.sort(-np.exp(0.2 * rng.standard_normal((4000, n))), axis=1)
    fetched = np.arange(1, n + 1) + (np.cumsum(weights[:, ::-1], axis=1)[:, ::-1] - weights) / weights
    came = np.sort(fetched + Z * rng.gamma(1 / scv, scv, fetched.shape), axis=1)
    seconds = passing(came, np.broadcast_to(D, (len(came), 3)), 1, k).mean()

    def round_time(spread):
        rule = HalfSynchronous("k-sync", k, scv, spread)(ClosedNetwork(), 1)
        return k / rule.solve(D, np.array(Z), np.array([n])).X[0]

    assert round_time(0.2) == pytest.approx(seconds, rel=0.02)
    assert round_time(0.0) > 1.02 * seconds


@given(st.integers(1, 9), st.floats(0.0, 1.0))
def test_who_arrives_is_exact_where_only_one_of_both_spreads(n, spread):
    own = np.sort(np.random.default_rng(n).random(n))
    assert arriving(own, np.array(2.0), 0.0) == pytest.approx(2.0 + own)
    together = arriving(np.full(n, 0.3), np.array(2.0), spread)
    assert together[-1] == pytest.approx(2.3)
    both = arriving(own, np.array(2.0), spread)
    assert np.all(np.diff(both) >= -1e-12)
    assert max(own.var(), together.var()) * 0.99 <= both.var() <= (own.var() + together.var()) * (1 + 1e-9)


def test_several_servers_and_draws():
    """A shape for each draw; two servers with half of the work each are no slower."""
    D, Z = np.tile([0.1, 0.1, 0.01], (5, 1)), np.linspace(0.5, 1.5, 5)
    for name, number in (("sync-ps", 1), ("k-batch-sync", 3), ("k-async", 2), ("bounded-staleness", 2)):
        one = HalfSynchronous(name, number, 0.1)(ClosedNetwork(), 1).solve(D, Z, np.array([1, 2, 4]))
        two = HalfSynchronous(name, number, 0.1)(ParallelServers(2), 2)
        faster = two.solve(np.tile(D / 2, 2), Z, np.array([1, 2, 4]))
        assert one.X.shape == faster.X.shape == (3, 5)
        assert np.all(faster.X >= one.X * (1 - 1e-9))
        cycle = np.array([1, 2, 4])[:, None] / one.X
        np.testing.assert_allclose(one.R.sum(axis=-1) + one.Z, cycle)
        assert np.all(one.Z >= 0)


def test_staleness_is_what_a_simulation_counts():
    slow, fast = 2.0, 0.5
    classes = [qm.JobClass("slow", population=1, think_time=slow), qm.JobClass("fast", population=3, think_time=fast)]
    network = qm.Network([qm.Station("ps", service_time=0.1)], classes=classes)
    rng = np.random.default_rng(3)
    own = [slow, fast, fast, fast]
    _, made = run("async", lambda i: rng.gamma(4, own[i] / 4), lambda: (0.0, 0.1, 0.0), workers=4, rounds=5000)
    counted = np.array([made.sum() / made[0], made.sum() / made[1:].mean()]) - 1
    np.testing.assert_allclose(staleness(network), counted, rtol=0.04)
    assert not np.allclose(counted, 3.0, rtol=0.1)  # as if all were equal
    total = UnequalWorkers().solve(np.array([0.1]), np.array(own), np.array([4])).X[0]
    shares = 1 / (staleness(network) + 1)
    assert shares @ [1, 3] == pytest.approx(1.0)
    assert total == pytest.approx(qm.solve(network).throughput)


def test_a_measured_barrier():
    """The testbed's series behind a barrier, from the trace of one worker; without rounds it is missed by far."""
    folder = Path(__file__).parents[2] / "validation" / "testbed" / "series" / "alexnet-60-sync"
    measured = {row["workers"]: row["steps_per_s"] for row in json.loads((folder / "measured.json").read_text())}
    workers = sorted(measured)
    profile, truth = read_testbed(folder), np.array([measured[n] for n in workers])
    curve = predict(profile, workers=workers, strategy="sync-ps", method="mva")
    errors = np.abs(curve.steps_per_second / truth - 1)
    assert errors.mean() < 0.06
    assert errors.max() < 0.10
    free = predict(profile, workers=workers, method="mva").steps_per_second
    assert np.all(free[1:] > 1.3 * truth[1:])


def test_intervals_reach_what_counts_of_asynchronous_steps_where_late_workers_may_keep_apart():
    """As many backups as count, or more; fewer follow the others, and where one counts nobody follows."""
    profile = example_profile("alexnet-60")

    def asked(n, **how):
        return predict(profile, workers=[n], method="mva", **how)

    def reaches(n, backup_workers):
        curve = asked(n, strategy="sync-ps", backup_workers=backup_workers)
        reached = curve.upper[0] > (1 - backup_workers / n) * asked(n).steps_per_second[0]
        assert reached or curve.upper[0] < 1.25 * curve.steps_per_second[0]
        return "late workers" in curve.note

    assert [reaches(8, b) for b in (0, 3, 4, 6, 7)] == [False, False, True, True, False]
    assert "late workers" not in predict(profile, strategy="sync-ps", backup_workers=2, workers=[4]).note  # simulated


@pytest.mark.parametrize("settled", [0.0, 1.0])
def test_late_workers_follow_or_keep_apart(settled):
    """Two that count and two that are late: between rounds of four together and half of asynchronous steps."""
    D, Z, base = np.array([0.4, 0.4, 0.01]), np.array(0.45), ParallelServers(settled=settled)

    def rate(name, number, n=4):
        return float(HalfSynchronous(name, number, 0.0, 0.0)(base, 1).solve(D, Z, np.array([n])).X[0])

    together, free = rate("k-sync", 2), rate("k-batch-async", 1) / 2
    assert rate("sync-ps", 2) == pytest.approx(together + settled * (free - together) / 2)
    few, most = rate("k-sync", 3), rate("k-batch-async", 1) * 3 / 4
    assert rate("sync-ps", 1) == pytest.approx(few + settled * (most - few) / 4)
    assert rate("sync-ps", 3) == pytest.approx(rate("k-batch-async", 1) / 4)
    if not settled:  # of six late ones two follow
        third = rate("k-sync", 2, 8) / 3 + 2 / 3 * rate("k-batch-async", 1, 8) / 4
        assert rate("sync-ps", 6, 8) == pytest.approx(third)
    unequal = HalfSynchronous("sync-ps", 3, 0.0, 0.2)(base, 1).solve(D, Z, np.array([4])).X[0]
    assert unequal > 1.01 * rate("sync-ps", 3)  # steps vary, and late workers count at times


def test_groups_that_keep_apart_are_faster_and_one_has_nobody_to_keep_away_from():
    def rate(k, settled):
        rule = HalfSynchronous("k-async", k, 0.0)(ParallelServers(settled=settled), 1)
        return rule.solve(np.array([0.4, 0.4, 0.01]), np.array(0.45), np.array([6])).X[0]

    assert rate(3, 1.0) > 1.25 * rate(3, 0.0)
    assert rate(3, 0.0) < rate(3, 0.5) < rate(3, 1.0)
    assert rate(6, 1.0) == pytest.approx(rate(6, 0.0), rel=1e-3)


def test_the_spread_of_computation_is_the_recorded_ones():
    profile = example_profile("alexnet-60")
    computed = np.array([step.compute for step in profile.steps])
    assert own_scv(profile) == pytest.approx((computed.std(ddof=1) / computed.mean()) ** 2)
    assert own_scv(profile) < 0.05


@pytest.mark.parametrize(
    ("name", "number", "between"),
    [
        ("k-batch-async", 4, [False, False, False]),
        ("k-async", 1, [False, False, False]),
        ("k-async", 4, [False, False, True]),
        ("k-sync", 4, [False, False, True]),
        ("k-sync", 1, [False, True, True]),
        ("k-batch-sync", 4, [False, True, True]),
        ("sync-ps", 0, [False, False, False]),
        ("sync-ps", 1, [False, True, True]),
        ("bounded-staleness", 0, [False, False, False]),
        ("bounded-staleness", 1, [False, True, True]),
    ],
)
def test_a_strategy_is_in_between_where_it_is_neither_a_barrier_nor_none(name, number, between):
    assert HalfSynchronous(name, number).in_between(np.array([1, 4, 8])).tolist() == between


def test_intervals_have_what_waiting_adds_between_a_barrier_and_none():
    profile, asked = example_profile("alexnet-60"), {"workers": [4, 8], "method": "mva"}
    free = predict(profile, **asked)
    half = predict(profile, strategy="k-async", k=4, **asked)
    widths = [np.log(c.upper / c.steps_per_second) / normal_quantile(c.confidence) for c in (free, half)]
    assert widths[1][0] == pytest.approx(widths[0][0], rel=0.05), "k-async of all is a barrier"
    assert widths[1][1] ** 2 - widths[0][1] ** 2 == pytest.approx(waiting_error("mva") ** 2, rel=0.2)


@pytest.mark.parametrize("changes", [{}, {"accelerator_speed": 3.0}, {"batch_size": 20}, {"bandwidth": 1.25e9}])
@pytest.mark.parametrize(
    ("strategy", "number"),
    [
        ("sync-ps", {}),
        ("sync-ps", {"backup_workers": 1}),
        ("bounded-staleness", {"staleness_bound": 2}),
        ("k-sync", {"k": 2}),
        ("k-batch-sync", {"k": 100}),
        ("k-async", {"k": 2}),
        ("k-batch-async", {"k": 100}),
    ],
)
def test_nobody_makes_steps_faster_than_it_computes(strategy, number, changes):
    """Transfers that hide computation are not waited for by all; the computation is."""
    profile = example_profile("resnet50-60")
    computed = profile.values("compute").mean() * changes.get("batch_size", profile.job.batch_size)
    computed /= profile.job.batch_size * changes.get("accelerator_speed", 1.0)
    workers = np.array([2, 4, 8])
    asked = {"method": "mva", "strategy": strategy, **number, **changes}
    curve = predict(profile, workers=workers, **asked)
    assert np.all(curve.steps_per_second <= workers / computed * (1 + 1e-9))
    assert np.all(curve.lower <= curve.steps_per_second)
    if strategy == "k-batch-sync":
        alone = predict(profile, workers=1, **asked)
        assert np.all(alone.steps_per_second <= (1 + 1e-9) / computed)


@pytest.mark.parametrize("job", ["alexnet-60", "resnet50-60"])
def test_workers_in_lockstep_on_as_many_times_faster_links_take_the_profiled_step(job):
    """Each has its share of the link, the profiled bandwidth, and as much computation behind its transfers."""
    profile = example_profile(job)
    alone = float(predict(profile, method="mva", strategy="sync-ps", workers=1).steps_per_second[0])
    for n in (2, 4, 8):
        faster = n * profile.cluster.bandwidth
        curve = predict(profile, method="mva", strategy="sync-ps", workers=n, bandwidth=faster)
        assert curve.lower[0] < n * alone < curve.upper[0]
        assert curve.steps_per_second[0] == pytest.approx(n * alone, rel=0.13)


def test_intervals_exceed_the_upper_bound_by_no_more_than_one_workers_step_is_unsure():
    profile = example_profile("resnet50-60")
    asked = {"method": "mva", "strategy": "bounded-staleness", "staleness_bound": 2}
    curve = predict(profile, workers=[1, 4, 8, 32], **asked)
    unsure = curve.upper[0] / curve.steps_per_second[0]
    assert curve.upper[1:] == pytest.approx(np.minimum(curve.upper, 1.02 * unsure * curve.bound_upper)[1:])
