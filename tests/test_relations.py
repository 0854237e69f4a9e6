"""Pairs of questions whose answers stand in a known relation: other units, another order, what undoes itself."""

from functools import partial

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import queuemodel as qm
from queuemodel import example_profile
from queuemodel.models import fit, predict
from queuemodel.sgd import compare

SERVERS, RANKS = example_profile("alexnet-60"), example_profile("ddp-alexnet-40")
STRATEGIES = {"async-ps": {}, "sync-ps": {}, "k-batch-async": {"k": 2}}
CHANGES = [{}, {"parameter_servers": 3}, {"accelerator_speed": 2.5}, {"batch_size": 7}, {"bandwidth": 0.7}]


@st.composite
def profiles(draw):
    """Steps whose phases vary and overlap, on links of 1 MB/s.

    Told cubic: what BBR may make of buffers has a clock of its own.
    """
    fetch, compute, push, update = (draw(st.floats(0.05, 2.0)) for _ in range(4))
    overlap = draw(st.floats(0.0, 0.9)) * min(fetch + push, compute)
    jitter = np.random.default_rng(draw(st.integers(0, 2**32))).uniform(0.9, 1.1, draw(st.integers(1, 6)))
    steps = [
        qm.Step(
            step_time=1.1 * (fetch + compute + push + update - overlap), fetch=by * fetch, compute=compute / by,
            push=push, update=update * by, fetched_bytes=round(9e5 * fetch), pushed_bytes=round(7e5 * push),
        )
        for by in jitter.tolist()
    ]  # fmt: skip
    job = qm.Job(batch_size=32, parameter_bytes=10**6, tensors=4)
    cluster = qm.Cluster(bandwidth=1e6, congestion_control="cubic")
    return qm.Profile(source=qm.Source(framework="test"), cluster=cluster, job=job, steps=steps)


def in_other_units(profile, *, seconds, size):
    """The same steps, as many times as long, with as many times the bytes."""
    times = ("step_time", "fetch", "compute", "push", "update", "overlap")
    factors = dict.fromkeys(times, seconds) | dict.fromkeys(("fetched_bytes", "pushed_bytes"), size)
    changed = ({name: by * getattr(step, name) for name, by in factors.items()} for step in profile.steps)
    steps = [msgspec.structs.replace(step, **one) for step, one in zip(profile.steps, changed, strict=True)]
    cluster = msgspec.structs.replace(profile.cluster, bandwidth=profile.cluster.bandwidth * size / seconds)
    return msgspec.structs.replace(profile, cluster=cluster, steps=steps)


def asked(profile, strategy, change, workers):
    change = {k: v * profile.cluster.bandwidth if k == "bandwidth" else v for k, v in change.items()}
    return predict(profile, workers=workers, strategy=strategy, method="mva", **STRATEGIES[strategy], **change)


@settings(max_examples=40)
@given(profiles(), st.sampled_from(sorted(STRATEGIES)), st.sampled_from(CHANGES), st.sampled_from([0.01, 8.0]))
def test_units_of_time_and_bytes_cancel(profile, strategy, change, seconds):
    curve = asked(profile, strategy, change, [2, 3, 8])
    other = asked(in_other_units(profile, seconds=seconds, size=5), strategy, change, [2, 3, 8]).faster(seconds)
    for name in ("steps_per_second", "lower", "upper", "bound_lower", "bound_upper", "residence_time", "utilization"):
        np.testing.assert_allclose(getattr(other, name), getattr(curve, name), rtol=1e-6, atol=1e-9)
    assert (other.bottleneck, other.single) == (curve.bottleneck, pytest.approx(curve.single))
    assert other.saturation_workers == pytest.approx(curve.saturation_workers)
    plans = [qm.plan(one, throughput=0.7 * curve.examples_per_second[-1]).choices[0].workers for one in (curve, other)]
    assert plans[0] == plans[1]


@settings(max_examples=20)
@given(profiles(), st.sampled_from(sorted(STRATEGIES)), st.data())
def test_order_of_steps_does_not_matter(profile, strategy, data):
    curve = asked(profile, strategy, {}, [2, 3, 8, 40])
    steps = data.draw(st.permutations(profile.steps))
    shuffled = asked(msgspec.structs.replace(profile, steps=steps), strategy, {}, [2, 3, 8, 40])
    np.testing.assert_allclose(shuffled.steps_per_second, curve.steps_per_second, rtol=1e-9)
    alone = asked(profile, strategy, {}, 8)
    for name in ("steps_per_second", "lower", "upper", "bound_lower", "bound_upper"):
        np.testing.assert_allclose(getattr(alone, name)[0], getattr(curve, name)[2], rtol=1e-9)


@pytest.mark.parametrize(
    "own",
    [{"bandwidth": 5e6}, {"batch_size": 32}, {"accelerator_speed": 1.0}, {"collective": "ring"}, {"accumulation": 1},
     {"ranks_per_node": 1}],
)  # fmt: skip
def test_recorded_values_are_no_change(own):
    plain, named = (predict(RANKS, workers=[1, 2, 4], **asked) for asked in ({}, own))
    assert named.to_dict() == plain.to_dict()
    assert named.profiled_workers == 2
    other = predict(RANKS, workers=[1, 2, 4], bandwidth=5.1e6)
    assert other.profiled_workers == 0
    assert other.upper[0] > plain.upper[0]


@pytest.mark.parametrize(("profile", "strategy"), [(SERVERS, "async-ps"), (RANKS, "all-reduce")])
@pytest.mark.parametrize("speed", [3.0, 0.3])
def test_inverse_accelerator_factors_cancel(profile, strategy, speed):
    model = fit(profile, strategy=strategy)
    faster = model.what_if(accelerator_speed=speed)
    twice, squared = faster.what_if(accelerator_speed=speed), model.what_if(accelerator_speed=speed * speed)
    for one, other in ((faster.what_if(accelerator_speed=1 / speed), model), (twice, squared)):
        assert one.throughput([1, 4]).to_dict() == other.throughput([1, 4]).to_dict()


@pytest.mark.parametrize("accumulation", [2, 7])
def test_faster_single_rank_accumulates(accumulation):
    alone = fit(RANKS, strategy="all-reduce")
    assert alone.non_compute_time < 0
    several = alone.what_if(accumulation=accumulation)
    assert several.throughput([1]).single == pytest.approx(alone.throughput([1]).single)
    assert several.throughput([4]).at(4) > 1.2 * alone.throughput([4]).at(4)


#: One of each way in which `compare` knows the seconds of a step on servers.
TIMED = partial(compare, workers=4, strategies=["sync", "top-k", "k-sync", "async-ps"])


@pytest.mark.parametrize(("comparison", "profile"), [(TIMED, SERVERS), (partial(compare, workers=4), RANKS)])
def test_comparison_may_name_recorded_values(comparison, profile):
    own = {"bandwidth": profile.cluster.bandwidth, "accelerator_speed": 1.0, "batch_size": 32}
    plain, none, named = (comparison(profile, **told).to_rows() for told in ({}, {"bandwidth": None}, own))
    assert plain == none == named


def test_equal_speeds_are_faster_accelerators():
    both = [TIMED(SERVERS, **asked) for asked in ({"accelerator_speed": 2}, {"worker_speeds": [2.0] * 4})]
    for one, other in zip(*(comparison.to_rows() for comparison in both), strict=True):
        assert one == pytest.approx(other, nan_ok=True)
    assert both[0].rows[1].steps_per_second > 1.2 * TIMED(SERVERS).rows[1].steps_per_second


def test_unknown_bytes_compare_without_links():
    steps = [msgspec.structs.replace(one, fetched_bytes=0, pushed_bytes=0, operations=[]) for one in SERVERS.steps]
    untold = msgspec.structs.replace(SERVERS, steps=steps)
    result = compare(untold, workers=4)
    assert "step's bytes are unknown" in result.caption()
    rows = {row["strategy"]: row["steps_per_second"] for row in result.to_rows()}
    assert rows["top-k"] == pytest.approx(rows["sync"], rel=0.01)
