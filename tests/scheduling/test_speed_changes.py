"""Jobs whose speed changes as they train: in stretches, and where batch sizes are chosen with the nodes."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuemodel import scheduling as qs
from queuemodel.profile import NoiseScale

SIZES = qs.BatchSizes(
    {32: {1: 4.0, 2: 6.0, 3: 7.0}, 64: {1: 2.2, 2: 4.0, 3: 5.5}, 256: {2: 1.2, 3: 1.7, 4: 2.2}},
    [(500, 32.0), (300, 1000.0), (200, math.inf)],
)


def alone(sizes, *, nodes=4, batch_size=None, policy=None, **rest):
    job = qs.ClusterJob.adaptive("a", arrival_time=0, batch_sizes=sizes, batch_size=batch_size or sizes.first, **rest)
    return qs.schedule([job], policy or qs.Goodput(), nodes=nodes)


@st.composite
def batch_sizes(draw, most_stretches=4):
    """Random tables on 1 to 5 nodes, the smallest batch size on all of them."""
    speed = st.floats(0.1, 10)
    curves = {}
    for size in sorted(draw(st.sets(st.integers(1, 2000), min_size=1, max_size=5))):
        most = draw(st.integers(1, 5)) if curves else 5
        curves[size] = dict(enumerate(draw(st.lists(speed, min_size=most, max_size=most)), start=1))
    pairs = st.tuples(st.floats(1, 1000), st.one_of(st.floats(0, 5000), st.just(math.inf)))
    return qs.BatchSizes(curves, draw(st.lists(pairs, min_size=1, max_size=most_stretches))), curves


def rate(curves, size, nodes, scale):
    """Progress per second, by McCandlish's law written out; 0 where nothing runs."""
    first = min(curves)
    gain = size / first if scale == math.inf else (1 + scale / first) / (1 + scale / size)
    return gain * curves[size].get(nodes, 0.0)


def best_rate(curves, nodes, scale):
    return max(rate(curves, size, nodes, scale) for size in curves)


@settings(max_examples=60)
@given(batch_sizes(), st.data())
def test_lone_job_by_brute_force(drawn, data):
    sizes, curves = drawn
    pairs = [(steps, scales[sizes.first]) for steps, scales in sizes.noise_scales]
    nodes = max(range(1, 6), key=lambda n: (best_rate(curves, n, pairs[0][1]), -n))  # the best of its first stretch
    time = sum(steps / best_rate(curves, nodes, scale) for steps, scale in pairs)
    assert alone(sizes, nodes=5).end[0] == pytest.approx(time, rel=1e-9)
    done = 0.0
    for steps, scale in pairs:
        chosen = sizes.chosen(nodes=3, done=done)
        assert rate(curves, chosen, 3, scale) == pytest.approx(best_rate(curves, 3, scale))
        done += steps
    if len(pairs) == 1:  # no batch size of the user is better
        size = data.draw(st.sampled_from(sorted(curves)))
        fixed = alone(sizes, nodes=5, batch_size=size, policy=qs.RankPriced(), most_nodes=max(curves[size]))
        assert alone(sizes, nodes=5).end[0] <= fixed.end[0] * (1 + 1e-9)


def test_fifo_keeps_the_batch_size():
    """500 steps of noise scale 32: at 64 a step is worth 4/3; then 31.25 + 1 over 15.6 + 1; then 2."""
    schedule = alone(SIZES, batch_size=64, policy=qs.FIFO(), requested_nodes=2, most_nodes=3)
    worth = [4 / 3, (1 + 1000 / 32) / (1 + 1000 / 64), 2]
    assert schedule.end[0] == pytest.approx(sum(n / w for n, w in zip((500, 300, 200), worth, strict=True)) / 4.0)


def test_noise_scales_by_batch_size():
    curves = {10: {1: 1.0}, 40: {1: 0.5}}
    for scale in (NoiseScale(100.0, np.array([90.0, 110.0])), 100.0, {10: 3.0, 40: 100.0}):
        worth = 4 * (100 + 10) / (100 + 40)  # of a step of 40 examples, made in 2 s
        assert alone(qs.BatchSizes(curves, [(100, scale)])).end[0] == pytest.approx(200 / worth)
    assert alone(qs.BatchSizes(curves, [(100, {10: 3.0, 40: 0.0})])).end[0] == pytest.approx(100)
    # The choice follows predictions, where there are speeds in truth, and the truth runs.
    told = {10: {1: 1.0, 2: 1.0}, 40: {1: 0.2, 2: 99.0}}
    believed = qs.BatchSizes({10: {1: 1.0, 2: 1.0}, 40: {1: 0.5}}, [(100, math.inf)], predicted=told)
    assert [believed.chosen(nodes=n, done=0) for n in (1, 2)] == [10, 10]
    assert alone(believed, nodes=1).end[0] == pytest.approx(100)
    workload = qs.Workload([qs.ClusterJob.adaptive("a", arrival_time=0, batch_sizes=SIZES, batch_size=32)])
    wrong = workload.with_prediction_error(level=1.0, seed=3)  # the same factor for every batch size
    ends = [qs.schedule(jobs, qs.Goodput(), nodes=4).end for jobs in (wrong, workload)]
    assert ends[0] == pytest.approx(ends[1])


def test_stretches_end_without_restart():
    schedule = alone(SIZES, nodes=3)
    assert schedule.restarts.tolist() == [0]
    assert (schedule.events, schedule.decisions) == (4, 1)  # arrival, two ends of stretches, end
    assert [SIZES.chosen(nodes=3, done=done) for done in (0, 499, 500, 800, 5000)] == [64, 64, 256, 256, 256]
    assert SIZES.limit(64) == 4
    assert replace(SIZES, most_nodes=2).limit(64) == 2
    needs = {"arrival_time": 0, "batch_sizes": SIZES, "batch_size": 32, "least_nodes": 2, "most_nodes": 3}
    ended = qs.schedule([qs.ClusterJob.adaptive(n, **needs) for n in "ab"], qs.Goodput(), nodes=3)
    assert ended.start.max() == pytest.approx(ended.end.min())  # three nodes are for one of them


def test_rank_prices_of_staged_curves():
    """In its first half nodes help a job, in the second they do not; the older of two is in its second."""
    staged = qs.StagedCurve([(1.0, {n: float(n) for n in (1, 2, 3, 4)}), (1.0, {1: 1.0, 2: 1.01, 3: 1.02, 4: 1.03})])
    held = {}
    for kind, curve in (("staged", staged), ("mean", {n: staged(n) for n in (1, 2, 3, 4)})):
        same = {"steps": 400.0, "curve": curve, "most_nodes": 4}
        jobs = [qs.ClusterJob(f"{time}", arrival_time=time, **same) for time in (0.0, 120.0)]
        ended = qs.schedule(jobs, qs.RankPriced(), nodes=5, history=True)
        held[kind] = {int(j): int(n) for time, j, n in ended.history if time <= 120.0}
    assert held["staged"] == {0: 1, 1: 4}
    assert held["mean"] != held["staged"]


def test_divided_nodes_run_at_the_mean():
    staged = qs.StagedCurve([(1.0, qs.PowerLawCurve(0.5, speed=4.0)), (3.0, qs.PowerLawCurve(0.5, speed=1.0))])
    job = qs.ClusterJob("a", arrival_time=0, steps=100, curve=staged)
    assert qs.schedule([job], qs.HeSRPT(exponent=0.5), nodes=4).end[0] == pytest.approx(25 / 8 + 75 / 2)
    divided = qs.schedule([job, replace(job, name="b")], qs.EqualShare(divisible=True), nodes=1)
    assert divided.end == pytest.approx([(25 / 4 + 75 / 1) * 2**0.5] * 2)  # half a node each
