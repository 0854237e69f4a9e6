"""A round, and how gradients travel in it: against simulations that go event by event, and their laws."""

import heapq
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import queuemodel as qm
from queuemodel.models import SCHEMES, Buckets, Fusion, Slices, round_time
from queuemodel.models.rounds.graph import Task, end_times
from tests.oracles.slices import by_priority

seconds = st.floats(0.0, 3.0)
buckets = st.lists(st.tuples(seconds, st.floats(1e-3, 2.0), seconds), min_size=1, max_size=8)
pieces = st.lists(st.tuples(seconds, st.floats(0.05, 4.0)), min_size=1, max_size=9)
WORK, WAIT = 0.3, 0.05


def taken(scheme, sizes, ready, computed, cost):
    """Seconds of rounds of one step, whose forward pass ends when the first piece is ready."""
    rows = np.column_stack([ready, computed])
    return scheme.time(sizes, np.column_stack([rows[:, 0], rows]), cost)


def cost(sizes):
    """Seconds of messages: 0.3 per byte, and 0.05 that need no bandwidth."""
    return WORK * sizes, np.full(len(sizes), WAIT)


def cost_of_one(size):
    return WORK * size, WAIT


def split(rows):
    ready, sizes = np.array(rows).T
    return np.sort(ready)[None], sizes


def in_cycles_by_hand(ready, sizes, cap, cycle):
    """A background thread that wakes up, sends all it finds, and sleeps for what is left of its cycle."""
    woke, ends, todo = 0.5 * cycle, {}, list(range(len(sizes)))
    while todo:
        found = [i for i in todo if ready[i] <= woke]
        now, message = woke, []
        for i in [*found, None]:
            if message and (i is None or sum(sizes[j] for j in message) + sizes[i] > cap):
                now += WORK * sum(sizes[j] for j in message) + WAIT
                ends |= dict.fromkeys(message, now)
                message = []
            if i is not None:
                message.append(i)
        todo = todo[len(found) :]
        woke = max(woke + cycle, now)
    return np.array([ends[i] for i in range(len(sizes))])


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


def in_order(rows):
    ready, work, latency = np.array(rows).T
    return np.sort(ready), work, latency


@given(buckets, st.floats(0.0, 5.0))
def test_one_bucket_at_a_time(rows, computed):
    ready, work, latency = in_order(rows)
    truth = by_hand(ready, computed, work, latency)
    assert round_time(ready, np.array(computed), work, latency) == pytest.approx(truth)
    assert round_time(ready, np.array(computed), 1.02 * work, latency) >= truth


@given(buckets, st.floats(0.0, 5.0), st.booleans())
def test_a_round_is_its_graph(rows, computed, single):
    """Computations, and after each the all-reduce of its bucket: one at a time, or any number under way."""
    ready, work, latency = in_order(rows)
    each = np.diff(ready, prepend=0.0)
    tasks, seconds, late = [], [], []
    for i, (computing, needs, beside) in enumerate(zip(each, work, latency, strict=True)):
        tasks += [Task("compute"), Task("network", (2 * i,), "all-reduce")]
        seconds += [np.array([computing]), np.array([needs + single * beside])]
        late += [np.zeros(1), np.array([(not single) * beside])]
    truth = max(float(np.max(end_times(tasks, seconds, late))), computed)
    found = round_time(ready, np.array(computed), work, latency, at_once=1 if single else 10**9)
    assert found == pytest.approx(truth)


@given(buckets, st.integers(1, 4))
def test_sharing_order_leaves_the_end(rows, at_once):
    ready, work, _ = in_order(rows)
    ends = round_time(ready, np.array(0.0), work, 0 * work, at_once=at_once)
    assert ends == pytest.approx(shared(ready, work, at_once))


def pipelined(ready, work, latency):
    """The network works on a bucket after the other; each is there its own latency later."""
    free, ends = 0.0, []
    for r, w, a in zip(ready, work, latency, strict=True):
        free = max(r, free) + w
        ends.append(free + a)
    return max(ends)


@given(buckets)
def test_latencies_overlap_other_work(rows):
    """A large bucket before a small one, as on a double binary tree, may be the last to end."""
    ready, work, latency = in_order(rows)
    truth = pipelined(ready, work, latency)
    assert round_time(ready, np.array(0.0), work, latency, at_once=10**9) == pytest.approx(truth)
    assert round_time(
        np.zeros(2), np.array(0.0), np.array([1.0, 0.1]), np.array([2.0, 0.1]), at_once=9
    ) == pytest.approx(3.0)


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
def test_equal_buckets_hide_latency(count, work, latency, at_once):
    """Equal buckets that are all ready: a machine repairman without chance, exact while the network is busy."""
    rows, ready = np.ones(count), np.zeros(count)
    found = float(round_time(ready, np.array(0.0), work * rows, latency * rows, at_once=at_once))
    truth = station_and_delay(ready, work * rows, latency * rows, at_once)
    assert found <= truth + latency + 1e-9
    assert found >= truth - latency - 1e-9
    if at_once == 1 or work >= latency:
        assert found == pytest.approx(truth)


def test_buckets_close_at_the_cap():
    sizes = np.array([0.5, 0.6, 3.0, 10.0, 20.0, 1.0]) * 2**20
    assert Buckets().ends(sizes).tolist() == [1, 4, 5]
    assert Buckets(cap=1.0).ends(sizes).tolist() == [0, 1, 2, 3, 4, 5]
    assert Buckets(cap=1e12).ends(sizes).tolist() == [1, 5]


@given(pieces, st.floats(0.1, 8.0), st.floats(0.01, 1.0))
def test_fusion_sends_all_ready_gradients(rows, cap, cycle):
    ready, sizes = split(rows)
    begin, end = Fusion(cap, cycle).schedule(sizes, ready, cost)
    late = [ready[0] + 1e-9 * shift for shift in (0, -1, 1)]  # what is ready when a cycle begins may be in it, or not
    assert any(np.allclose(end[0], in_cycles_by_hand(moments, sizes, cap, cycle), rtol=1e-8) for moments in late)
    assert np.all(begin >= ready - 1e-12)
    assert not np.allclose(end[0], in_cycles_by_hand(ready[0], 1.02 * sizes, 1.02 * cap, cycle), rtol=1e-9)


@given(pieces, st.floats(0.1, 5.0), st.floats(0.1, 5.0))
def test_slices_go_by_priority(rows, cap, credit):
    ready, sizes = split(rows)
    scheme = Slices(cap, credit)
    _, end = scheme.schedule(sizes, ready, cost)
    np.testing.assert_allclose(end[0], by_priority(ready[0], sizes, cap, credit, cost_of_one), rtol=1e-9)
    assert scheme.units(sizes).sum() == pytest.approx(sizes.sum())
    assert np.all(scheme.units(sizes) <= cap * (1 + 1e-12))


@given(pieces, st.floats(0.1, 5.0), st.integers(1, 3))
def test_buckets_end_when_their_recursion_says(rows, cap, at_once):
    ready, sizes = split(rows)
    scheme = Buckets(cap, 0.1, at_once)
    begin, end = scheme.schedule(sizes, ready, cost)
    assert end.max() == pytest.approx(float(taken(scheme, sizes, ready, np.zeros(1), cost)[0]))
    last = scheme.ends(sizes)
    free = np.append(np.full(at_once, -np.inf), end[0, last])[: len(last)]  # when a message of so many is through
    np.testing.assert_allclose(begin[0, last], np.maximum(ready[0, last], free))
    assert np.all(end >= begin + WAIT)
    work, wait = cost(scheme.units(sizes))
    assert end.max() == pytest.approx(float(round_time(ready[:, last], np.zeros(1), work, wait, at_once=at_once)[0]))


def test_nothing_to_send_is_computation():
    for scheme in SCHEMES.values():
        assert taken(scheme, np.empty(0), np.empty((2, 0)), np.array([1.0, 2.0]), cost).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("scheme", "values", "match"),
    [(Slices, {"cap": 0, "credit": 1}, "slices: cap"), (Slices, {"cap": 1, "credit": math.nan}, "credit"),
     (Fusion, {"cycle": -1}, "fusion: cycle"), (Buckets, {"cap": -1}, "buckets: cap"),
     (Buckets, {"at_once": 0}, "at_once"), (Slices, {"cap": 1, "credit": 1}, "more than 100,000")],
)  # fmt: skip
def test_bad_schemes_are_refused(scheme, values, match):
    with pytest.raises(qm.ModelError, match=match):
        scheme(**values).units(np.array([1e9]))
