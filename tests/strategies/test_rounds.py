"""The recursion of a synchronous round: against one bucket after the other by hand, and its laws."""

import heapq

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from queuemodel.strategies.rounds import round_time, slowest_of
from queuemodel.strategies.schemes import Buckets

seconds = st.floats(0.0, 2.0)
buckets = st.lists(st.tuples(seconds, st.floats(1e-3, 2.0), seconds), min_size=1, max_size=8)


def by_hand(ready, computed, work, latency):
    """One bucket at a time."""
    now = 0.0
    for r, w, a in zip(ready, work, latency, strict=True):
        now = max(now, r) + w + a
    return max(now, computed)


def shared(ready, work, at_once):
    """Buckets that share the network, some at a time, event by event."""
    now, left, active, waiting = 0.0, list(work), [], list(range(len(work)))
    while waiting or active:
        while waiting and len(active) < at_once and ready[waiting[0]] <= now:
            active.append(waiting.pop(0))
        if not active:
            now = ready[waiting[0]]
            continue
        first = min(left[i] for i in active) * len(active)
        if waiting and len(active) < at_once:
            first = min(first, ready[waiting[0]] - now)
        for i in active:
            left[i] -= first / len(active)
        now += first
        active = [i for i in active if left[i] > 1e-12]
    return now


def split(rows):
    ready, work, latency = np.array(rows).T
    return np.sort(ready), work, latency


@given(buckets, st.floats(0.0, 5.0))
def test_one_bucket_at_a_time_is_the_recursion_by_hand(rows, computed):
    ready, work, latency = split(rows)
    truth = by_hand(ready, computed, work, latency)
    assert round_time(ready, np.array(computed), work, latency) == pytest.approx(truth)
    assert round_time(ready, np.array(computed), 1.02 * work, latency) >= truth


@given(buckets, st.integers(1, 4))
def test_without_latency_any_way_of_sharing_ends_at_the_same_time(rows, at_once):
    ready, work, _ = split(rows)
    ends = round_time(ready, np.array(0.0), work, 0 * work, at_once=at_once)
    assert ends == pytest.approx(shared(ready, work, at_once))


def station_and_delay(ready, work, latency, at_once):
    """Each bucket waits for its latency, then for the network, which takes one after the other; so many under way."""
    network, ends, out = 0.0, [], []
    for r, w, a in zip(ready, work, latency, strict=True):
        start = max(r, heapq.heappop(ends) if len(ends) == at_once else 0.0)
        network = max(network, start + a) + w
        heapq.heappush(ends, network)
        out.append(network)
    return max(out)


@given(st.integers(1, 30), st.floats(0.01, 1.0), st.floats(0.0, 1.0), st.integers(1, 4))
def test_a_row_of_equal_buckets_hides_latency_behind_others(count, work, latency, at_once):
    """Equal buckets that are all ready: a machine repairman without chance, exact while the network is busy."""
    rows, ready = np.ones(count), np.zeros(count)
    found = float(round_time(ready, np.array(0.0), work * rows, latency * rows, at_once=at_once))
    truth = station_and_delay(ready, work * rows, latency * rows, at_once)
    assert found <= truth + latency + 1e-9
    assert found >= truth - latency - 1e-9
    if at_once == 1 or work >= latency:
        assert found == pytest.approx(truth)


def test_nothing_to_send_is_computation_alone():
    assert round_time(np.empty((3, 0)), np.array([1.0, 2.0, 3.0]), np.empty(0), np.empty(0)).tolist() == [1, 2, 3]


def test_the_slowest_of_many_follows_the_order_statistic_of_the_recorded_law():
    """Of a normal law: E max of 10 lies 1.5388 standard deviations above the mean, of 100 2.5076 (Tippett, 1925)."""
    rounds = (1.0 + 0.05 * np.random.default_rng(3).standard_normal(4000))[:, None]
    found = [slowest.mean() for slowest in slowest_of(rounds, [1, 10, 100], samples=4000, seed=1)]
    truth = rounds.mean() + rounds.std() * np.array([0.0, 1.5388, 2.5076])
    assert found == pytest.approx(truth, abs=0.005)
    assert found != pytest.approx(rounds.mean() + 1.1 * rounds.std() * np.array([0.0, 1.5388, 2.5076]), abs=0.005)


def test_few_recorded_rounds_do_not_bound_the_slowest_of_many():
    rounds = 1.0 + 0.05 * np.random.default_rng(4).standard_normal((12, 1))
    (most,) = slowest_of(rounds, [500], samples=200, seed=2)
    assert most.mean() > 1.01 * rounds.max()
    (one,) = slowest_of(rounds, [1], samples=20_000, seed=2)
    assert one.std() == pytest.approx(rounds.std(), rel=0.03)  # smoothing adds no spread


def test_draws_lie_around_recorded_rounds_as_a_smoothed_bootstrap_has_them():
    """A normal kernel of Silverman's width (1986), drawn in towards the mean so that the variance stays."""
    (drawn,) = slowest_of(np.array([[0.9], [1.1]]), [1], samples=40_000, seed=3)
    width = 0.9 * 0.1 * 2**-0.2
    keep = 0.1 / np.hypot(0.1, width)
    for moment in (0.8, 0.9):
        kernels = [norm(1 + keep * (row - 1), keep * row * width) for row in (0.9, 1.1)]
        assert (drawn <= moment).mean() == pytest.approx(np.mean([one.cdf(moment) for one in kernels]), abs=0.01)
        wider = [norm(1 + keep * (row - 1), 1.5 * keep * row * width) for row in (0.9, 1.1)]
        assert (drawn <= moment).mean() != pytest.approx(np.mean([one.cdf(moment) for one in wider]), abs=0.01)


def test_buckets_are_closed_when_the_cap_is_reached():
    sizes = np.array([0.5, 0.6, 3.0, 10.0, 20.0, 1.0]) * 2**20
    assert Buckets().ends(sizes).tolist() == [1, 4, 5]
    assert Buckets(cap=1.0).ends(sizes).tolist() == [0, 1, 2, 3, 4, 5]
    assert Buckets(cap=1e12).ends(sizes).tolist() == [1, 5]


def test_the_last_bucket_alone_takes_its_own_work_and_latency():
    """Nothing is left to hide its latency behind, whatever the first one's was."""
    work, latency = np.array([1.0, 1.0]), np.array([0.0, 0.5])
    for ready, end in (([0.0, 5.0], 6.5), ([0.0, 0.0], 2.5)):
        assert round_time(np.array(ready), np.array(0.0), work, latency, at_once=2) == pytest.approx(end)


def test_the_benchmark_holds_the_recursion_against_simpy(monkeypatch, capsys):
    pytest.importorskip("simpy")
    from benchmarks import rounds as benchmark

    for name, value in {"BUCKETS": 3, "NODES": 4, "ROUNDS": 5, "seconds": lambda run: (run(), 1.0)[1]}.items():
        monkeypatch.setattr(benchmark, name, value)
    benchmark.main()
    assert "5 rounds of 4 nodes: 1000.0 ms, SimPy 1.00 s" in capsys.readouterr().out
    monkeypatch.setattr(benchmark, "round_time", lambda *times: 1.02 * round_time(*times))
    with pytest.raises(AssertionError):
        benchmark.main()
