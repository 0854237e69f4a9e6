"""Barriers and bounds: who waits for whom, and when the servers apply what was pushed."""

import numpy as np
import pytest
from by_hand import IDEAL, LINKS, RATE, graphs, profile_of, serial
from half_events import run as run_events
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import expon, gamma

from queuemodel.compiled import ready
from queuemodel.traces import simulate
from queuemodel.traces.graph import prepare
from queuemodel.traces.kernel.state import DONE, new_state
from queuemodel.traces.rules import MODES, ROUNDS_OF, cluster_rules
from queuemodel.training import Operation


def run(profile, workers=1, **settings):
    return simulate(profile, workers=workers, **{"in_phase": True, **IDEAL, **settings})


def layers() -> list[Operation]:
    """No transfers that take time: two gradients, ready at 0.3 and 0.4 s, whose updates take 0.2 s each."""
    return [
        Operation("compute", "a", 0.0, 0.3),
        Operation("compute", "b", 0.3, 0.4, after=[0]),
        Operation("push", "ga", 0.3, 0.3, after=[0]),
        Operation("push", "gb", 0.4, 0.4, after=[1]),
        Operation("update", "ua", 0.3, 0.5, after=[2]),
        Operation("update", "ub", 0.5, 0.7, after=[3]),
    ]


@given(operations=graphs(), seconds=st.floats(0, 0.3), pause=st.floats(0, 0.5))
def test_one_worker_is_as_fast_with_a_barrier_and_in_rounds_of_one_result_as_without(operations, seconds, pause):
    timed = [o if o.kind != "update" else Operation("update", o.name, o.start, o.end + seconds, after=o.after)
             for o in operations]  # fmt: skip
    profile = profile_of(timed, pause=pause, servers=2)
    alone = run(profile, steps=5)
    for mode, results in (("sync", 0), ("bounded", 0), ("first", 1), ("batches", 1)):
        rounds = run(profile, steps=5, synchronization=mode, results=results)
        assert rounds.throughput == pytest.approx(alone.throughput)


def test_a_barriers_updates_are_applied_once_per_round():
    # all have computed at .5; one update of .3 s for all of them, then everyone begins again
    profile = profile_of(serial(fetch=0.0, push=0.0, update=0.3))
    for workers in (1, 2, 5):
        assert run(profile, workers, synchronization="sync").throughput == pytest.approx(workers / 0.8)
    # asynchronously each has its own: the server's processor is the bottleneck from two workers on
    assert run(profile, 5).throughput == pytest.approx(1 / 0.3, rel=0.01)
    assert run(profile, 5, synchronization="sync").utilization["update[0]"] == pytest.approx(0.3 / 0.8)


def test_a_variable_is_updated_as_soon_as_its_last_gradient_is_there():
    # gradients at .3 and .4: updates from .3 to .5 and from .5 to .7; a worker half as fast: from .6 and from .8
    profile = profile_of(layers())
    assert run(profile, 1, synchronization="sync").throughput == pytest.approx(1 / 0.7)
    assert run(profile, 3, synchronization="sync").throughput == pytest.approx(3 / 0.7)
    assert run(profile, 3, synchronization="sync", slowdown=[1, 1, 2]).throughput == pytest.approx(3 / 1.0)


def test_a_barrier_shares_the_links_among_all():
    # three workers in step: each transfer takes three times as long, the update once
    profile = profile_of(serial(update=0.1), pause=0.2)
    assert run(profile, 3, synchronization="sync").throughput == pytest.approx(3 / (0.6 + 0.5 + 0.9 + 0.1 + 0.2))


def test_a_barrier_costs_the_slowest_worker():
    profile = profile_of(serial(fetch=0.0, push=0.0))
    assert run(profile, 3, synchronization="sync", slowdown=[1, 1, 2]).throughput == pytest.approx(3 / 1.0)
    assert run(profile, 3).throughput == pytest.approx(3 / 0.5)


def test_backup_workers_leave_the_slowest_behind():
    profile = profile_of(serial(fetch=0.0, push=0.0, update=0.1))
    settings = {"synchronization": "sync", "backup_workers": 1, "slowdown": [1, 1, 4.2]}
    result = run(profile, 3, **settings)
    assert result.throughput == pytest.approx(2 / 0.6)
    # the slow worker computes for 2.1 s, begins again at once, and is never counted: 2 of 3.5 rounds each
    assert result.dropped_share == pytest.approx(1 / (1 + 2 * 2.1 / 0.6), rel=0.05)


def test_a_run_lasts_as_many_rounds_as_asked_for_however_many_workers_are_left_behind():
    result = run(profile_of(serial(fetch=0.0, push=0.0)), 1000, synchronization="sync", backup_workers=999, steps=5)
    assert result.steps == 5


@pytest.mark.parametrize("bound", [0, 3])
def test_bounded_staleness_holds_the_fast_worker_to_the_slow_ones_pace(bound):
    profile = profile_of(serial(fetch=0.0, push=0.0))
    settings = {"synchronization": "bounded", "staleness_bound": bound, "slowdown": [1, 2], "steps": 400}
    assert run(profile, 2, **settings).throughput == pytest.approx(2, rel=0.02)


def test_bounded_staleness_lets_the_fast_worker_ahead_by_that_many_steps():
    # the slow one takes 5 s a step: until then the fast one ends its first and as many more as it may be ahead
    profile = profile_of(serial(fetch=0.0, push=0.0))
    for bound in (0, 1, 4):
        settings = {"synchronization": "bounded", "staleness_bound": bound, "slowdown": [1, 10]}
        result = run(profile, 2, steps=20, trace_steps=20, **settings)
        fast = (result.log[:, 0] == 0) & (result.log[:, 3] == 0) & (result.log_times[:, 2] > 4.9)
        assert result.log[fast, 1].min() == bound + 1


def test_groups_are_updated_together_and_nobody_waits_for_the_next_one():
    # four workers that compute for .5 s: two updates of .3 s for two workers each fit into a cycle of .8 s, four do not
    profile = profile_of(serial(fetch=0.0, push=0.0, update=0.3))
    for results, throughput in ((4, 4 / 0.8), (2, 4 / 0.8), (1, 1 / 0.3)):
        result = run(profile, 4, synchronization="groups", results=results)
        assert result.throughput == pytest.approx(throughput, rel=0.01)
        assert result.dropped_share == 0
    # a slow worker holds up a barrier, and groups of two only when it comes
    slow = {"synchronization": "groups", "slowdown": [1, 1, 8]}
    free = profile_of(serial(fetch=0.0, push=0.0))
    assert run(free, 3, results=2, **slow).throughput == pytest.approx(2 / 0.5 + 1 / 4.0, rel=0.07)
    assert run(free, 3, results=3, **slow).throughput == pytest.approx(3 / 4.0)


@pytest.mark.parametrize(("results", "other"), [(3, "sync"), (1, "async")])
def test_one_group_of_all_is_a_barrier_and_groups_of_one_are_asynchronous(results, other):
    profile = profile_of(layers(), pause=0.1)
    groups = run(profile, 3, synchronization="groups", results=results, slowdown=[1, 1.3, 2])
    alike = run(profile, 3, synchronization=other, slowdown=[1, 1.3, 2])
    assert groups.throughput == pytest.approx(alike.throughput, rel=0.01)


@pytest.mark.parametrize(
    ("workers", "results", "seconds"), [(3, 3, 0.5), (3, 6, 1.0), (3, 4, 1.0), (3, 1, 0.5), (1, 5, 2.5)]
)
def test_a_batch_is_whole_with_the_last_awaited_result_of_any_worker(workers, results, seconds):
    profile = profile_of(serial(fetch=0.0, push=0.0))
    result = run(profile, workers, synchronization="batches", results=results)
    assert result.throughput == pytest.approx(results / seconds)


def test_a_batchs_worker_fetches_once_and_its_updates_are_applied_once():
    profile = profile_of(serial(update=0.1), pause=0.2)
    result = run(profile, 1, synchronization="batches", results=3)
    cycle = 0.2 + 3 * (0.5 + 0.3 + 0.2) + 0.1
    assert result.throughput == pytest.approx(3 / cycle)
    assert result.utilization["transmit[0]"] == pytest.approx(0.2 / cycle)
    assert result.utilization["update[0]"] == pytest.approx(0.1 / cycle)


@pytest.mark.parametrize(("mode", "results"), [("first", 2), ("batches", 4)])
def test_what_is_unfinished_at_the_end_of_a_round_is_lost(mode, results):
    """The slow one, who would need 2.1 s, never counts; at a barrier it ends its step late and is dropped then."""
    profile = profile_of(serial(fetch=0.0, push=0.0))
    result = run(profile, 3, synchronization=mode, results=results, slowdown=[1, 1, 4.2])
    assert result.throughput == pytest.approx(4)
    assert result.dropped_share == pytest.approx(1 / (results + 1), rel=0.01)
    assert result.utilization["compute"] == pytest.approx(1, rel=0.01)  # of all three, also of what is lost


@pytest.mark.parametrize("mode", ["first", "batches"])
def test_what_was_sent_of_lost_gradients_counts_as_work_of_the_link(mode):
    # from .5 s on three gradients of 300 kB share the server's link, one through a quarter of it: two are there at 1.3
    profile, far = profile_of(serial(fetch=0.0)), [1e6, 1e6, 0.25e6]
    result = run(profile, 3, synchronization=mode, results=2, worker_bandwidth=far)
    assert result.throughput == pytest.approx(2 / 1.3)
    assert result.utilization["receive[0]"] == pytest.approx(0.8 / 1.3, rel=0.01)


def test_a_round_that_ends_with_the_results_of_all_is_a_barrier():
    profile = profile_of(layers(), serial(), pause=0.1)
    first, barrier = (
        run(profile, 3, slowdown=[1, 1.3, 2], **how)
        for how in ({"synchronization": "first", "results": 3}, {"synchronization": "sync"})
    )
    np.testing.assert_allclose(first.throughputs, barrier.throughputs)


@pytest.mark.parametrize(("mode", "k", "strategy"), [("first", 3, "k-sync"), ("batches", 9, "k-batch-sync"),
                                                     ("groups", 2, "k-async"), ("sync", 4, "backup"),
                                                     ("bounded", 6, "bounded"), ("async", 1, "async")])  # fmt: skip
@pytest.mark.parametrize("transfer", [0.0, 0.1])
def test_every_mode_is_as_fast_as_events_one_by_one(mode, k, strategy, transfer):
    """Six workers whose own times vary, without a server and with a busy one; a control is a few per cent off."""
    times = gamma(4, scale=0.25).ppf((np.arange(1000) + 0.5) / 1000)
    profile = profile_of(*[serial(fetch=transfer, compute=float(t), push=transfer / 2) for t in times])
    asked = {"bounded": {"staleness_bound": 1}, "sync": {"backup_workers": 2}}.get(mode, {"results": k})
    settings = asked if mode != "async" else {}
    result = run(profile, 6, synchronization=mode, steps=30_000 // k, seed=1, confidence=0.99, **settings)
    rng = np.random.default_rng(0)
    demands = (transfer, transfer / 2, 0.0)
    durations, _ = run_events(
        strategy, lambda _: rng.choice(times), lambda: demands, workers=6, k=k, bound=1, rounds=9000 // k
    )
    rate = k / durations.mean()
    error = np.hypot(0.01, np.log(result.upper / result.lower) / 2)  # of both, generously
    assert result.throughput == pytest.approx(rate, rel=2 * error)
    assert error < 0.03


@pytest.mark.parametrize("backup_workers", [2, 5])
def test_late_workers_hold_up_rounds_as_their_chain_says(backup_workers):
    """Six workers' exponential times, without a server: of j results to come and s older times any ends next."""
    times = expon().ppf((np.arange(2000) + 0.5) / 2000)
    profile = profile_of(*[serial(fetch=0.0, compute=float(t), push=0.0) for t in times])
    asked = {"synchronization": "sync", "backup_workers": backup_workers, "confidence": 0.99}
    result = run(profile, 6, steps=12_000, seed=1, **asked)

    def seconds(j, s):
        if j == 0:
            return 0.0
        newer, older = (j + backup_workers - s) * seconds(j - 1, s), s * seconds(j, s - 1) if s else 0.0
        return (1 + newer + older) / (j + backup_workers)

    truth = (6 - backup_workers) / seconds(6 - backup_workers, backup_workers)
    assert result.lower <= truth <= result.upper
    assert not result.lower <= 1.03 * truth <= result.upper
    assert not result.lower <= 0.97 * truth <= result.upper


@settings(max_examples=15, deadline=None)
@given(operations=graphs(), mode=st.sampled_from(sorted(MODES)), workers=st.integers(2, 4))
def test_who_sends_nothing_has_nothing_left_to_send(operations, mode, workers):
    packed = prepare(profile_of(operations, servers=2), links=LINKS)
    rules = cluster_rules(
        workers=workers,
        policy="multiplexed",
        synchronization=mode,
        results=workers - 1 if mode in ROUNDS_OF else 0,
        loaded_trip=0.02,
        unfairness=0.0,
        window_kept=0.7,
    )
    state = new_state(packed.steps, links=np.full((2, 2 + workers), RATE), starts=np.zeros(workers), rules=rules)
    loop = ready("queuemodel.traces.kernel.loop", "run")
    for _ in range(20):
        loop(packed.steps, state, rules, np.random.default_rng(1), 10**9, 37)
        idle = (state.serving < 0) & (state.queued == 0)
        assert state.backlog[idle] == pytest.approx(0.0, abs=1e-3)
        assert (state.backlog > -1e-3).all()
    assert state.count[DONE] > 0
