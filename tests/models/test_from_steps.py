"""Rounds from a parameter server's trace: one job that ran both ways, and a step written by hand."""

import json

import msgspec
import numpy as np
import pytest

import queuemodel as qm
from queuemodel import example_profile, predict
from tests.oracles.recorded import DATA

MEASURED = DATA / "ddp" / "ddp-alexnet-40" / "measured.json"


def test_server_job_predicts_data_parallel():
    """Traced by TensorFlow at 60 Mbit/s on a server; measured by PyTorch at 40 Mbit/s in rounds."""
    truth = {one["workers"]: one["group_steps_per_s"] for one in json.loads(MEASURED.read_text())}
    rates = np.array([truth[n] for n in sorted(truth)])
    profile = example_profile("alexnet-60")
    curve = predict(profile, strategy="all-reduce", workers=sorted(truth), bandwidth=40e6 / 8)
    assert np.abs(curve.iterations_per_second / rates - 1).max() < 0.04
    assert np.all((curve.lower <= rates * curve.workers) & (rates * curve.workers <= curve.upper))
    assert curve.profiled_workers == 0
    assert "steps on parameter servers" in curve.note
    as_traced = predict(profile, strategy="all-reduce", workers=sorted(truth)).iterations_per_second
    assert np.all(as_traced[1:] > 1.2 * rates[1:])  # the control: at another bandwidth it is far off
    asynchronous = predict(profile, method="mva", workers=sorted(truth), bandwidth=40e6 / 8)
    assert np.abs(asynchronous.steps_per_second / (rates * curve.workers) - 1)[-1] > 0.2


def step(*operations):
    times = {"step_time": 2.0, "fetch": 0.2, "compute": 1.0, "push": 0.4, "update": 0.05}
    return qm.Step(**times, fetched_bytes=3_000_000, pushed_bytes=3_000_000, operations=list(operations))


def profile(*operations):
    job = qm.Job(batch_size=4, parameter_bytes=3_000_000, tensors=2)
    return qm.Profile(source=qm.Source(framework="by hand"), job=job, steps=[step(*operations)] * 3)


def test_gradients_are_ready_before_their_push():
    operations = [
        qm.Operation("fetch", "w", 0.0, 0.2, 3_000_000),
        qm.Operation("compute", "forward", 0.2, 0.5, after=[0]),
        qm.Operation("compute", "upper", 0.7, 1.0, after=[1]),  # after a pause of 0.2 s
        qm.Operation("compute", "beside", 0.8, 1.1, after=[1]),  # 0.2 s of it beside the one before
        qm.Operation("compute", "lower", 1.1, 1.5, after=[2]),
        qm.Operation("push", "g1", 1.4, 1.7, 1_000_000, after=[4]),
        qm.Operation("push", "g2", 1.05, 1.3, 2_000_000, after=[2]),
        qm.Operation("update", "u", 1.7, 1.75, after=[5, 6]),
    ]
    slower = [msgspec.structs.replace(one, start=1.5 * one.start, end=1.5 * one.end) for one in operations]
    once = qm.Operation("push", "of this step alone", 1.4, 1.5, 500, after=[1])
    both = msgspec.structs.replace(profile(), steps=[step(*operations, once), step(*slower)])
    fitted = qm.fit(both, strategy="all-reduce").fitted
    sizes, ready = fitted.gradients
    assert sizes.tolist() == fitted.bucket_bytes.tolist() == [2_000_000, 1_000_000]
    np.testing.assert_allclose(ready, 1.25 * np.array([0.3 + 0.3, 0.3 + 0.4 + 0.4]))
    np.testing.assert_allclose(fitted.ready, np.outer([1, 1.5], [0.6, 1.1]))
    np.testing.assert_allclose(fitted.computed, [1.1, 1.65])
    assert fitted.tail == pytest.approx(0.05)
    assert fitted.single_rank_round_time == pytest.approx(1.25 * 1.1 + 0.05)
    assert (fitted.ranks, fitted.at_once, fitted.latency) == (0, 1, 100e-6)
    np.testing.assert_allclose(fitted.covariance, np.diag([0.05**2, np.log(4) ** 2]))


@pytest.mark.parametrize(("fetch", "push"), [(0.2, 0.4), (0.8, 0.1)])
def test_ring_has_the_slower_direction(fetch, push):
    operations = [
        qm.Operation("fetch", "w", 0.0, fetch, 3_000_000),
        qm.Operation("compute", "all", fetch, fetch + 0.5, after=[0]),
        qm.Operation("push", "g", fetch + 0.5, fetch + 0.5 + push, 3_000_000, after=[1]),
    ]
    fitted = qm.fit(profile(*operations), strategy="all-reduce").fitted
    assert fitted.bandwidth == pytest.approx(3_000_000 / max(fetch, push), rel=0.01)


def test_steps_without_gradients_are_refused():
    for operations in ((), (qm.Operation("compute", "forward", 0.2, 0.5),)):
        with pytest.raises(qm.FitError, match="require recorded operations with gradients"):
            qm.fit(profile(*operations), strategy="all-reduce")
