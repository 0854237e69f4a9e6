"""The curve that every prediction ends in."""

import dataclasses

import numpy as np
import pytest
from jobs_by_hand import profile

import queuemodel as qm

CURVE = qm.fit(profile()).throughput([1, 2, 4])
RATES = ("steps_per_second", "lower", "upper", "bound_lower", "bound_upper", "examples_per_second")
TIMES = ("residence_time", "think_time")


def test_a_faster_curve_is_that_of_a_job_whose_times_are_all_shorter():
    short = {name: getattr(step, name) / 3 for step in profile().steps for name in ("step_time", "fetch", "push")}
    short |= {name: getattr(step, name) / 3 for step in profile().steps for name in ("compute", "update")}
    steps = [qm.Step(**short, fetched_bytes=2_000_000, pushed_bytes=1_000_000)] * 5
    truth, faster = qm.fit(profile(steps)).throughput([1, 2, 4]), CURVE.faster(3)
    for field in dataclasses.fields(CURVE):
        one, other = getattr(faster, field.name), getattr(truth, field.name)
        if isinstance(one, np.ndarray | float):
            np.testing.assert_allclose(one, other, rtol=1e-9, err_msg=field.name)
        else:
            assert one == other, field.name


@pytest.mark.parametrize("factor", [0, -1, float("nan"), float("inf"), "2"])
def test_a_factor_is_positive(factor):
    with pytest.raises(qm.ModelError, match="factor must be"):
        CURVE.faster(factor)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "all", 10**400])
def test_an_epoch_has_examples(size):
    with pytest.raises(qm.ModelError, match="dataset_size must be"):
        CURVE.epoch_time(size)


def test_an_epoch_takes_its_examples_over_the_rate():
    np.testing.assert_allclose(CURVE.epoch_time(), 64_000 / (32 * CURVE.steps_per_second))
    np.testing.assert_allclose(CURVE.epoch_time(320), 10 / CURVE.steps_per_second)


def test_speedup_efficiency_and_the_last_worker():
    X = CURVE.steps_per_second
    np.testing.assert_allclose(CURVE.speedup, X / X[0])
    np.testing.assert_allclose(CURVE.efficiency, X / X[0] / [1, 2, 4])
    np.testing.assert_allclose(CURVE.marginal_speedup, [1, X[1] / X[0] - 1, (X[2] - X[1]) / X[0] / 2])


def test_arrays_are_read_only():
    for name in (*RATES[:5], *TIMES):
        with pytest.raises(ValueError, match="read-only"):
            getattr(CURVE, name)[0] = 1.0


@pytest.mark.parametrize("workers", [3, 0, 8])
def test_only_asked_numbers_of_workers_are_known(workers):
    with pytest.raises(qm.ModelError, match=r"one of 1, 2, 4, got"):
        CURVE.at(workers)
