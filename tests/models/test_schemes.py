"""A round, and how gradients travel in it: against simulations that go event by event, and their laws."""

import heapq
import math
from dataclasses import dataclass

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


def in_order(rows):
    ready, work, latency = np.array(rows).T
    return np.sort(ready), work, latency


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
    at_once = 1 if single else 10**9
    assert round_time(ready, np.array(computed), work, latency, at_once=at_once) == pytest.approx(truth)


@given(buckets, st.integers(1, 4))
def test_sharing_order_leaves_the_end(rows, at_once):
    """A network that never idles while there is work ends as one that sends a bucket after the other."""
    ready, work, _ = in_order(rows)
    one, some = (round_time(ready, np.array(0.0), work, 0 * work, at_once=k) for k in (1, at_once))
    assert some == pytest.approx(one)


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
    np.testing.assert_allclose(
        end[0], by_priority(ready[0], sizes, cap, credit, lambda size: (WORK * size, WAIT)), rtol=1e-9
    )
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


# What the package has not: a collective, a value made here

RANKS = qm.example_profile("ddp-alexnet-40")


@dataclass(frozen=True)
class OneToAll:
    """The first rank receives all data, adds, and sends the sum to each."""

    def time(self, message_bytes, nodes, link):
        return 2 * (nodes - 1) * (link.latency + message_bytes / link.bandwidth)

    def traffic(self, nodes):
        others = np.arange(1, nodes)
        up = np.column_stack([others, 0 * others, np.ones(nodes - 1)])
        return [up, up[:, [1, 0, 2]]] if nodes > 1 else []


@pytest.mark.parametrize("racks", [{}, {"nodes_per_rack": 2, "oversubscription": 4.0}], ids=str)
def test_own_collective_reaches_predict(racks):
    """Where the network is all, among eight: 14 whole messages; of two to a rack six of seven come over its link."""
    curve = qm.predict(RANKS, workers=[2, 8], collective=OneToAll(), bandwidth=1e3, latency=0.0, **racks)
    size, bandwidth = sum(qm.fit(RANKS).fitted.bucket_bytes), curve.model.link_at(curve.model.fitted.ranks).bandwidth
    slower = 6 * 4.0 / 2 / 7 if racks else 1.0
    assert 1 / curve.iterations_per_second[-1] == pytest.approx(14 * size / bandwidth * slower, rel=0.01)
    assert "OneToAll" in curve.method
