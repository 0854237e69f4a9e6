"""Bounds of a simulated curve come from the simulation, as the curve itself does."""

import numpy as np
import pytest
from by_hand import IDEAL, graphs, profile_of, serial
from hypothesis import given, settings
from hypothesis import strategies as st

from queuemodel.traces import trace_curve
from queuemodel.traces.curve import busy_bounds
from queuemodel.training import Operation


def test_bounds_are_those_of_the_step_by_hand():
    # a step of 1 s: .2 s on one link, .3 s on the other
    curve = trace_curve(profile_of(serial()), workers=[1, 2, 4, 8], steps=8000, replications=2, **IDEAL)
    N = curve.workers
    assert curve.bound_upper == pytest.approx(np.minimum(N, 1 / 0.3), rel=1e-3)
    assert curve.bound_lower == pytest.approx(N / (1 + (N - 1) * 0.5), rel=2e-3)
    assert curve.saturation_workers == pytest.approx(1 / 0.3, rel=1e-3)
    assert curve.bottleneck == "receive link"


def test_bounds_of_unequal_workers_add_up_what_each_can_do():
    workers, X = np.array([1, 2, 3]), np.array([1.0, 2.0, 2.2])
    D, speeds = np.full((3, 1), 0.25), np.array([1.0, 2.0, 0.5])
    lower, upper = busy_bounds(workers, X, D, 1.0, speeds, "async")
    assert upper == pytest.approx([1, 3, 4])
    assert lower == pytest.approx([1, 2 / 1.25, 2 / 1.5 + 1 / 2.5])
    assert np.isnan(busy_bounds(workers, X, D, 1.0, speeds, "sync")[0]).all()


@settings(max_examples=25)
@given(
    operations=graphs(),
    counts=st.sets(st.integers(1, 12), min_size=1, max_size=3),
    memory=st.booleans(),
    speeds=st.none() | st.lists(st.floats(0.3, 3), min_size=12, max_size=12),
    policy=st.sampled_from(["tensorflow", "random", "multiplexed", "tac"]),
)
def test_predictions_lie_between_their_bounds(operations, counts, memory, speeds, policy):
    profile = profile_of(operations, servers=2)
    ideal = {"links": IDEAL["links"]} if memory else IDEAL
    choices = {"steps": 60, "replications": 2, "worker_speeds": speeds, "policy": policy, **ideal}
    curve = trace_curve(profile, workers=sorted(counts), **choices)
    assert (curve.bound_lower <= curve.steps_per_second * (1 + 1e-9)).all()
    assert (curve.steps_per_second <= curve.bound_upper * (1 + 1e-9)).all()


def test_workers_that_share_nothing_never_saturate():
    alone = [Operation("fetch", "w", 0.0, 0.0, 0), Operation("compute", "c", 0.0, 0.5, after=[0])]
    curve = trace_curve(profile_of(alone), workers=[1, 100], steps=100, replications=1, **IDEAL)
    assert curve.saturation_workers == np.inf
    assert curve.bound_upper == pytest.approx([2, 200])
    assert curve.steps_per_second == pytest.approx([2, 200])


def test_a_barriers_curve_can_be_drawn_without_a_lower_bound():
    curve = trace_curve(profile_of(serial()), workers=[1, 4], steps=40, replications=1, synchronization="sync", **IDEAL)
    assert np.isnan(curve.bound_lower).all()
    assert (curve.bound_upper >= curve.steps_per_second).all()
    curve.plot()
