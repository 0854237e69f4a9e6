"""The curve that every prediction ends in."""

import numpy as np
import pytest
from jobs_by_hand import profile

import queuemodel as qm
from queuemodel import queueing
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


def test_arrays_are_read_only():
    for name in ("steps_per_second", "lower", "upper", "bound_lower", "bound_upper", "residence_time", "think_time"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(CURVE, name)[0] = 1.0


@pytest.mark.parametrize("changes", [{}, {"shards": [3, 1]}, {"accelerator_speed": 4.0}])
def test_bounds_and_knee_are_the_asymptotes(changes):
    model = qm.fit(profile()).what_if(**changes)
    curve, bounds = model.throughput([1, 4, 30]), queueing.bounds(model.network(), np.array([1, 4, 30]))
    np.testing.assert_allclose(curve.bound_lower, bounds.lower, rtol=1e-12)
    np.testing.assert_allclose(curve.bound_upper, bounds.upper, rtol=1e-12)
    assert curve.saturation_workers == pytest.approx(queueing.saturation_population(model.network()))


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


@pytest.mark.parametrize(("rounds", "synchronous"), [((), False), ((), True), ((3, 5, 9), False)])
def test_every_field_of_rows_and_of_json_is_that_of_the_curve(rounds, synchronous):
    N, X = np.array([2, 4, 9]), np.array([3.0, 5.0, 7.0])
    each = {
        "utilization": np.array([[0.2, 0.3], [0.4, 0.5], [0.6, 0.7]]),
        "residence_time": np.arange(6.0).reshape(3, 2),
    }
    curve = qm.ThroughputCurve(
        N, X, 0.8 * X, 1.3 * X, single=1.7, batch_size=11, parameter_servers=2, workers_per_node=4, confidence=0.7,
        stations=("a", "b"), think_time=X, bound_lower=0.5 * X, bound_upper=1.1 * X, saturation_workers=3.5,
        bottleneck="b", profiled_workers=4, measured=((4, 5.1), (3, 2.0)), method="by hand", assumption="one",
        note="two", synchronous=synchronous, steps_per_round=np.array(rounds), dataset_size=770, **each,
    )  # fmt: skip
    per = X / rounds if rounds else X / N
    lists = {"workers": N, "steps_per_second": X, "lower": 0.8 * X, "upper": 1.3 * X, "examples_per_second": 11 * X}
    lists |= {"speedup": X / 1.7, "efficiency": X / (1.7 * N)}
    lists |= {"iterations_per_second": per} if rounds or synchronous else {}
    whole = {name: pytest.approx(values.tolist()) for name, values in lists.items()}
    for name, values in each.items():
        whole[name] = {"a": values[:, 0].tolist(), "b": values[:, 1].tolist()}
    whole |= {"method": "by hand", "confidence": 0.7, "bottleneck": "b", "saturation_workers": 3.5, "batch_size": 11}
    assert curve.to_dict() == whole | {
        "parameter_servers": 2, "nodes": [3, 3, 5], "profiled_workers": 4, "note": "one; two"
    }  # fmt: skip
    for i, row in enumerate(curve.to_rows()):
        numbers = {name: values[i] for name, values in lists.items()}
        numbers |= {"utilization_a": 0.2 * (i + 1), "utilization_b": 0.2 * i + 0.3}
        assert row.pop("measured") == {1: 5.1}.get(i)
        assert row == pytest.approx(numbers)
    faster, times = curve.faster(4.0), ("residence_time", "think_time")
    for name in ("steps_per_second", "lower", "upper", "single", "bound_lower", "bound_upper", *times):
        factor = 1 / 4 if name in times else 4
        np.testing.assert_allclose(getattr(faster, name), factor * getattr(curve, name))
    np.testing.assert_allclose(curve.efficiency_of(2 * X), 1.1 * X / (1.7 * N))
    np.testing.assert_allclose(curve.marginal_speedup, [3 / 1.7 / 2, 2 / 1.7 / 2, 2 / 1.7 / 5])
    np.testing.assert_allclose(curve.epoch_time(), 70 / X)
    (cheapest,) = qm.plan(curve, epochs=2, price_per_node_hour=1.8).choices
    assert (cheapest.workers, cheapest.cost) == (4, pytest.approx(140 / 5 / 3600 * 1.8 * 3))
