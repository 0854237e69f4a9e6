"""What a run reports, against a schedule that can be worked out: 0.2, 0.5, 0.3 and 0.1 s in a row, pause 0.4 s."""

import json

import numpy as np
import pytest
from by_hand import IDEAL, profile_of, serial

from queuemodel.traces import simulate, trace_curve, trace_runs, trace_throughput
from queuemodel.traces.variants import window_spread
from queuemodel.training.model_error import model_error, profiled_error, waiting_error


@pytest.fixture
def run():
    return simulate(
        profile_of(serial(update=0.1), pause=0.4), workers=2, steps=200, worker_bandwidth=[1e6, 1e6], seed=2, **IDEAL
    )


def test_one_workers_step_is_accounted_for():
    run = simulate(profile_of(serial(update=0.1), pause=0.4), workers=1, steps=100, in_phase=True, **IDEAL)
    assert run.breakdown == pytest.approx({"step": 1.1, "fetch": 0.2, "compute": 0.5, "push": 0.4})
    assert run.utilization == pytest.approx(
        {"compute": 0.5 / 1.5, "transmit[0]": 0.2 / 1.5, "receive[0]": 0.3 / 1.5, "update[0]": 0.1 / 1.5}
    )
    assert (run.throughput, run.lower, run.upper) == pytest.approx((1 / 1.5,) * 3)
    assert (run.steps, run.duration) == pytest.approx((100, 1.1 + 99 * 1.5))
    assert run.warmup in (0, *run.times[:51])
    assert run.staleness.tolist() == [1.0]
    assert (run.mean_staleness, run.dropped_share) == (0.0, 0.0)
    assert run.throughputs[1:] == pytest.approx([1 / 1.5] * 99)
    assert run.bottleneck == "receive[0]"


def test_two_workers_see_each_others_steps(run):
    assert 0 < run.mean_staleness <= 1
    assert run.mean_staleness == pytest.approx(run.staleness[1])
    assert run.staleness.sum() == pytest.approx(1)
    assert run.throughput == pytest.approx(2 * run.utilization["compute"] / 0.5)
    assert run.utilization["receive[0]"] == pytest.approx(0.3 * run.throughput, rel=1e-6)
    assert run.duration == pytest.approx(run.times[-1])
    assert len(run.times) == 200
    assert not run.times.flags.writeable


def test_what_is_printed_and_saved_is_what_was_found(run, tmp_path):
    (row,) = run.to_rows()
    assert (row["throughput"], row["workers"], row["step_time"]) == (run.throughput, 2, run.breakdown["step"])
    assert run.to_frame()["utilization_update[0]"][0] == run.utilization["update[0]"]
    saved = json.loads(run.to_json(tmp_path / "run.json"))
    assert saved == json.loads((tmp_path / "run.json").read_text())
    assert saved["times"] == run.times.tolist()
    assert "2 worker(s), 1 parameter server(s), tensorflow, async" in repr(run)
    assert "receive[0]" in run._repr_html_()
    run.chrome_trace(tmp_path / "steps.json")
    assert json.loads((tmp_path / "steps.json").read_text())["traceEvents"]


def test_intervals_join_windows_runs_sampling_and_the_models_own_error():
    constant = trace_throughput(profile_of(serial()), workers=[1], steps=100, confidence=0.6827, **IDEAL)
    alone = profiled_error("trace")
    assert constant[0] == pytest.approx([1.0, np.exp(-alone), np.exp(alone)], rel=1e-3)
    steps = [serial(compute=c) for c in (0.1, 0.5, 0.9)] * 3
    times = np.array([0.6, 1.0, 1.4] * 3)
    sampling = times.std(ddof=1) / times.mean() / 3
    settings = {"steps": 6000, "replications": 3, "in_phase": True, **IDEAL}
    (runs,) = trace_runs(profile_of(*steps), workers=1, **settings)
    X = np.array([r.throughput for r in runs])
    own = np.hypot(X.std(ddof=1) / X.mean() / 3**0.5, window_spread(runs))
    (mean, lower, upper) = trace_throughput(profile_of(*steps), workers=1, confidence=0.6827, **settings)[0]
    assert mean == pytest.approx(X.mean())
    width = np.sqrt(alone**2 + sampling**2 + own**2)
    assert (np.log(mean / lower), np.log(upper / mean)) == pytest.approx((width, width), rel=0.02)


def test_sampling_of_steps_does_not_matter_behind_a_full_link():
    steps = [serial(compute=c, push=0.0) for c in (0.01, 0.1, 0.3)]
    _, lower, upper = trace_throughput(profile_of(*steps), workers=[20], confidence=0.6827, **IDEAL)[0]
    alone = np.log(upper / lower) / 2
    sampling = np.std([0.21, 0.3, 0.5], ddof=1) / np.mean([0.21, 0.3, 0.5]) / 3**0.5
    beyond = float(model_error("trace", np.array([20.0]))[0])
    assert beyond < alone < np.hypot(beyond, 0.5 * sampling)


def test_waiting_between_a_barrier_and_none_is_less_certain():
    settings = {"workers": [1, 4], "steps": 400, "confidence": 0.6827, "synchronization": "first", **IDEAL}
    barrier, some = (trace_throughput(profile_of(serial()), results=k, **settings) for k in (4, 3))
    alone, several = np.log(some[:, 2] / some[:, 0])
    assert alone == pytest.approx(np.log(barrier[0, 2] / barrier[0, 0]))
    own = model_error("trace", np.geomspace(0.5, 4.0, 50))
    assert np.hypot(own.min(), waiting_error()) < several < np.hypot(own.max(), waiting_error()) + 1e-3
    assert np.log(barrier[1, 2] / barrier[1, 0]) < own.max() + 1e-3


def test_the_curve_tells_where_a_step_spends_its_time():
    curve = trace_curve(profile_of(serial(update=0.1), pause=0.4), workers=[1, 4], steps=400, replications=2, **IDEAL)
    assert curve.residence_time[0] == pytest.approx([0.2, 0.4, 0.0], abs=1e-6)
    assert curve.think_time[0] == pytest.approx(0.9)
    assert curve.utilization[0] == pytest.approx([0.2 / 1.5, 0.3 / 1.5, 0.1 / 1.5])
    assert curve.single == pytest.approx(1 / 1.5)
    assert curve.at(1) == pytest.approx(curve.single)
    assert curve.method == "trace-driven simulation (tensorflow, async)"


def test_faster_accelerators_shorten_computation_alone():
    settings = {"steps": 100, "replications": 1, **IDEAL}
    (runs,) = trace_runs(profile_of(serial()), workers=1, accelerator_speed=2.0, **settings)
    assert runs[0].throughput == pytest.approx(1 / 0.75)
    rows = trace_runs(profile_of(serial(fetch=0.0, push=0.0)), workers=[1, 2], worker_speeds=[1, 0.5], **settings)
    assert [row[0].throughput for row in rows] == pytest.approx([2.0, 3.0], rel=0.01)
    assert [len(row) for row in rows] == [1, 1]
