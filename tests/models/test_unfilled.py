"""Links that one worker does not fill: seen in the steps' rates, and nothing is made of links that are full."""

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import queuemodel as qm
from queuemodel import queueing
from queuemodel.profile import Cluster, Job, Operation, Profile, Source, Step

SIZE, COMPUTE = 1_000_000, 0.5
LINK_EFFICIENCY = 0.95  # of a link's nominal rate, as documented
UNFILLED = "the same bytes took much longer in most steps than in the best"


def profile_of(rates, *, operations=True, back=1.0, **cluster):
    """A step for each rate (bytes per second), that of its fetch, and ``back`` times of its push, of half the bytes."""
    steps = []
    for rate in rates:
        there, push = SIZE / rate, SIZE / rate / 2 / back
        end = there + COMPUTE + push
        recorded = [
            Operation("fetch", "w", 0.0, there, SIZE),
            Operation("compute", "step", there, there + COMPUTE, after=[0]),
            Operation("push", "g", there + COMPUTE, end, SIZE // 2, after=[1]),
        ]
        phases = {"fetch": there, "compute": COMPUTE, "push": push, "update": 0.0, "step_time": end}
        sizes = {"fetched_bytes": SIZE, "pushed_bytes": SIZE // 2}
        steps.append(Step(**phases, **sizes, operations=recorded if operations else []))
    job = Job(name="by hand", batch_size=1, parameter_bytes=SIZE, tensors=1)
    return Profile(source=Source(framework="by hand"), cluster=Cluster(**cluster), job=job, steps=steps)


ERRATIC = [1e6, 2e6, 1.2e6, 4e6, 1e6, 1.5e6]


def seen(profile):
    return UNFILLED in qm.predict(profile, workers=[1], method="mva").note


@settings(max_examples=20)
@given(st.lists(st.floats(0.95, 1.0), min_size=5, max_size=12), st.integers(0, 2))
def test_full_links_are_recognized(shares, late):
    assert not seen(profile_of(4e6 * np.array([*shares, *[0.3] * late])))


ELSEWHERE = {
    "few steps": profile_of(ERRATIC[:4]), "a millisecond": profile_of(1000 * np.array(ERRATIC)),
    "no operations": profile_of(ERRATIC, operations=False), "two workers": profile_of(ERRATIC, workers=2),
    "one machine": msgspec.structs.replace(
        profile_of(ERRATIC), source=Source(framework="x", hosts={"ps": "a:1", "worker": "a:2"})
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", ELSEWHERE)
def test_unfilled_links_are_recognized(why):
    assert seen(profile_of(ERRATIC))
    assert not seen(ELSEWHERE[why])


@pytest.mark.parametrize("method", ["mva", "trace"])
def test_unfilled_link_scales_until_full(method):
    """Each of n workers is held to one's mean rate while they use less than the link together."""
    rates = np.array(ERRATIC)
    profile = profile_of(rates, bandwidth=1e9, congestion_control="cubic")
    step = COMPUTE + 1.5 * (SIZE / rates).mean()
    curve = qm.predict(profile, workers=[1, 2, 4], method=method)
    assert curve.steps_per_second == pytest.approx(curve.steps_per_second[0] * np.array([1, 2, 4]), rel=0.02)
    assert curve.steps_per_second[0] == pytest.approx(1 / step, rel=0.1)
    assert UNFILLED in curve.note
    full = qm.predict(profile_of([1e6] * 6, bandwidth=1e9, congestion_control="cubic"), workers=[4], method=method)
    assert full.steps_per_second[0] < 1.02 * 1e6 / SIZE  # it was the link
    assert UNFILLED not in full.note


def test_slow_connections_queue_only_when_full():
    profile, n = profile_of(ERRATIC, bandwidth=8e6, congestion_control="cubic"), np.arange(1, 13)
    mva = qm.predict(profile, workers=n, method="mva").steps_per_second
    most = LINK_EFFICIENCY * 8e6 / SIZE
    assert mva == pytest.approx(np.minimum(n * mva[0], most), rel=0.03)
    full = profile_of([4e6, 4.1e6, 3.9e6] * 2, bandwidth=4e6, congestion_control="cubic")  # control: these queue
    X = qm.predict(full, workers=[1, 2, 3], method="mva").steps_per_second
    assert (X[1:] < 0.95 * np.minimum([2 * X[0], 3 * X[0]], LINK_EFFICIENCY * 4e6 / SIZE)).any()


def as_in_the_best_step(bandwidth):
    """Steps per second of eight workers whose transfers nothing but full links holds up (mean-value analysis)."""
    D = SIZE / (LINK_EFFICIENCY * bandwidth)
    links = [queueing.Station("transmit", service_time=D), queueing.Station("receive", service_time=D / 2)]
    return queueing.solve(queueing.Network(links, think_time=COMPUTE + 1.5 * (SIZE / 4e6 - D)), population=8).throughput


@pytest.mark.parametrize("method", ["trace", "mva"])
def test_the_interval_spans_what_nobody_knows(method):
    told, untold = (
        qm.predict(profile_of(ERRATIC, congestion_control="cubic", **known), workers=[8], method=method)
        for known in ({"bandwidth": 8e6}, {})
    )
    shared = 1 / (SIZE * np.mean(1 / np.array(ERRATIC)))  # all get together what one does
    for curve in (told, untold):
        assert curve.lower[0] < 1.2 * shared
    assert 0.95 * as_in_the_best_step(8e6) < told.upper[0] < 8e6 / SIZE * (1 + 1e-6)
    assert untold.upper[0] > 0.9 * 8 / (COMPUTE + 1.5 * SIZE / 4e6)
    assert math.isfinite(untold.upper[0])
    full = qm.predict(profile_of([1e6] * 6, bandwidth=8e6, congestion_control="cubic"), workers=[8], method=method)
    assert full.upper[0] < 1.3 * full.lower[0]


def test_nominal_rate_bounds_unfilled_links():
    """It bounds what several workers may get, where one step in two was far below the best."""
    curve = qm.predict(profile_of(ERRATIC, congestion_control="cubic", bandwidth=5e6), workers=[64], method="mva")
    assert 0.98 < curve.upper[0] / (LINK_EFFICIENCY * 5e6 / SIZE) < 1.08  # the model's own error besides
    two = qm.predict(profile_of(ERRATIC, bandwidth=4e6, parameter_servers=2), workers=[64], method="mva")
    assert two.steps_per_second[0] == pytest.approx(2 * 4e6 / SIZE, rel=0.01)  # as in the best step, which was faster
    slow = profile_of(ERRATIC, back=0.25, bandwidth=0.8e6, parameter_servers=2)  # pushes: 1 MB/s in the best step
    assert qm.predict(slow, workers=[64], method="mva").steps_per_second[0] == pytest.approx(2 * 1e6 / 5e5, rel=0.01)
