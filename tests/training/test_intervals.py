"""What intervals promise is counted: how often they hold the truth of jobs that are made up, steps and all."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobs_by_hand import profile

import queuemodel as qm
from queuemodel.training import model as training_model
from queuemodel.training.model_error import REGIONS, model_error, regions
from queuemodel.training.parameters import normal_quantile

WORKERS = [1, 2, 4, 8]
JOBS = 600


def job(rng, steps):
    """Steps of a random closed network, of one worker alone, and the network's throughputs."""
    demands, think_time = rng.uniform(0.02, 0.3, 3), rng.uniform(0.1, 2.0)
    phases = np.array([*demands, think_time]) * rng.gamma(100, 0.01, (steps, 4))
    recorded = [
        qm.Step(
            step_time=sum(row), fetch=row[0], push=row[1], update=row[2], compute=row[3],
            fetched_bytes=1_000, pushed_bytes=1_000,
        )
        for row in phases.tolist()
    ]  # fmt: skip
    stations = [qm.Station(str(k), service_time=d) for k, d in enumerate(demands.tolist())]
    truth = qm.solve(qm.Network(stations, think_time=think_time), population=8).throughputs
    return recorded, truth[np.array(WORKERS) - 1]


def counted(*, steps, untraced=0):
    """How far the truth and the ends of the 90 % interval are off the prediction, logarithms, each (JOBS, 4)."""
    rng = np.random.default_rng(steps)
    off = []
    for seed in range(JOBS):
        recorded, truth = job(rng, steps)
        measured = [
            qm.Throughput(workers=1, steps_per_second=float(truth[0] * np.exp(0.03 * rng.standard_normal())))
            for _ in range(untraced)
        ]
        curve = qm.fit(profile(recorded, throughputs=measured), seed=seed).throughput(WORKERS)
        off.append(np.log([truth, curve.lower, curve.upper] / curve.steps_per_second))
    return np.moveaxis(off, 1, 0)


def share(truth, lower, upper, *, scale=1.0):
    """How often intervals ``scale`` times as wide hold the truth, at each number of workers."""
    return ((scale * lower <= truth) & (truth <= scale * upper)).mean(axis=0)


@pytest.mark.parametrize(("steps", "untraced"), [(4, 0), (12, 0), (12, 1)])
def test_nine_of_ten_intervals_hold_the_truth(monkeypatch, steps, untraced):
    """Of the sampling alone: these jobs do not make the model's own error."""
    monkeypatch.setattr(training_model, "model_error", lambda method, ratio: np.zeros(len(ratio)))
    monkeypatch.setattr(training_model, "profiled_error", lambda method: 0.0)
    off = counted(steps=steps, untraced=untraced)
    assert np.all(np.abs(share(*off) - 0.9) < 0.04), share(*off)
    assert np.all(share(*off, scale=0.8) < 0.86), "intervals a fifth too narrow go unnoticed"


def test_the_models_own_error_widens_what_was_not_profiled():
    truth, lower, upper = counted(steps=12)
    assert np.all(share(truth, lower, upper) > 0.95)
    assert np.all((upper - lower)[:, 1:] > 2 * 1.6448 * min(training_model.model_error("mva", np.geomspace(0.1, 10))))
    assert np.all((upper - lower)[:, 0] > 2 * 1.6448 * training_model.profiled_error("mva"))


@given(st.floats(0.0, 100.0))
def test_errors_change_from_region_to_region_without_steps(ratio):
    share = regions(np.array([ratio, 1.01 * ratio]))
    assert share.sum(axis=1) == pytest.approx(1.0)
    assert np.all(np.abs(np.diff(share, axis=0)) < 0.02)
    for method in ("mva", "trace"):
        ends = model_error(method, np.array(list(REGIONS.values())))
        assert ends.min() * 0.999 <= model_error(method, np.array([ratio]))[0] <= ends.max() * 1.001


def test_one_step_is_taken_to_vary():
    """An assumed spread cannot hold its promise for every job; where steps vary as much as assumed it does."""
    assert np.all(share(*counted(steps=1)) >= 0.87)


@given(st.floats(1e-6, 1 - 1e-16))
def test_a_normal_interval_holds_what_it_says(confidence):
    assert math.erfc(normal_quantile(confidence) / math.sqrt(2)) == pytest.approx(1 - confidence, rel=1e-9)
