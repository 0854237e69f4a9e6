"""The curve that every prediction ends in."""

import numpy as np
import pytest
from jobs_by_hand import profile

import queuemodel as qm
from queuemodel.curves import plot_efficiency

CURVE = qm.fit(profile()).throughput([1, 2, 4])


@pytest.mark.parametrize(
    ("method", "value", "what"),
    [
        *[("faster", value, "factor must be") for value in (0, -1, float("nan"), float("inf"), "2")],
        *[("epoch_time", value, "dataset_size must be") for value in (0, -1, 1.5, True, "all", 10**400)],
        *[("at", value, "one of 1, 2, 4, got") for value in (3, 0, 8)],
    ],
)
def test_what_no_curve_answers_is_refused(method, value, what):
    with pytest.raises(qm.ModelError, match=what):
        getattr(CURVE, method)(value)


def test_an_epoch_takes_its_examples_over_the_rate():
    np.testing.assert_allclose(CURVE.epoch_time(), 64_000 / (32 * CURVE.steps_per_second))
    np.testing.assert_allclose(CURVE.epoch_time(320), 10 / CURVE.steps_per_second)


def test_speedup_efficiency_and_the_last_worker():
    X = CURVE.steps_per_second
    np.testing.assert_allclose(CURVE.speedup, X / X[0])
    np.testing.assert_allclose(CURVE.efficiency, X / X[0] / [1, 2, 4])
    assert {name for name in CURVE.shown_rows()[0] if "utilization" in name} == {"utilization_transmit link"}
    np.testing.assert_allclose(CURVE.marginal_speedup, [1, X[1] / X[0] - 1, (X[2] - X[1]) / X[0] / 2])


def test_arrays_are_read_only():
    for name in ("steps_per_second", "lower", "upper", "bound_lower", "bound_upper", "residence_time", "think_time"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(CURVE, name)[0] = 1.0


@pytest.mark.parametrize("changes", [{}, {"shards": [3, 1]}, {"accelerator_speed": 4.0}])
def test_bounds_and_knee_are_the_asymptotes(changes):
    model = qm.fit(profile()).what_if(**changes)
    curve, bounds = model.throughput([1, 4, 30]), qm.bounds(model.network(), np.array([1, 4, 30]))
    np.testing.assert_allclose(curve.bound_lower, bounds.lower, rtol=1e-12)
    np.testing.assert_allclose(curve.bound_upper, bounds.upper, rtol=1e-12)
    assert curve.saturation_workers == pytest.approx(qm.saturation_population(model.network()))


def test_a_job_without_transfers_never_saturates():
    alone = qm.Step(step_time=2.0, fetch=0, push=0, update=0, compute=2.0, fetched_bytes=0, pushed_bytes=0)
    curve = qm.fit(profile([alone] * 2)).throughput([1, 50])
    np.testing.assert_allclose(curve.steps_per_second, [0.5, 25])
    np.testing.assert_allclose(curve.bound_upper, [0.5, 25])
    assert curve.saturation_workers == float("inf")


def test_the_efficiency_of_one_worker_has_no_error_and_none_is_above_the_bound():
    curve = qm.fit(profile()).throughput([1, 2, 8])
    assert curve.upper[0] > 1.05 * curve.steps_per_second[0]
    for end in (curve.lower, curve.steps_per_second, curve.upper):
        share = curve.efficiency_of(end)
        assert share[0] == 1.0
        assert np.all(share <= curve.bound_upper / (curve.workers * curve.single) * (1 + 1e-12))
        assert qm.plan(curve, min_efficiency=0.999).choices[0].workers_low == 1
    bands = [path.vertices for one in plot_efficiency(curve).collections for path in one.get_paths()]
    assert any(np.allclose(vertices[vertices[:, 0] == 1, 1], 1.0) for vertices in bands)
