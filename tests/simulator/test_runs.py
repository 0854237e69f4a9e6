"""What runs report: their steady state, their figures and timelines, and many of them at once."""

import gc
import json
import signal
import threading
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import queuemodel as qm
from queuemodel import example_profile
from queuemodel.models import trace_curve
from queuemodel.profile import Operation
from queuemodel.simulator import plot_timeline, simulate_operations, trace_runs
from tests.oracles.by_hand import IDEAL, jobs, profile_of, serial, two_layers


def test_long_runs_keep_few_times(tmp_path):
    long = simulate_operations(profile_of(serial()), workers=2, steps=20_000, **IDEAL)
    assert len(long.times) <= 4096  # memory does not grow with the run
    assert long.throughputs @ np.diff(long.times, prepend=0.0) == pytest.approx(long.steps)
    even = simulate_operations(profile_of(serial()), workers=1, steps=20_000, in_phase=True, **IDEAL)
    assert even.times == pytest.approx(even.steps / len(even.times) * np.arange(1, len(even.times) + 1))  # 1 s each
    assert "1 worker, 1 parameter server, tensorflow, async" in repr(even)
    assert even.bottleneck == "receive[0]"
    saved = json.loads(even.to_json(tmp_path / "run.json"))
    short = simulate_operations(profile_of(serial()), workers=1, steps=1, **IDEAL).to_json()
    assert json.loads(short, parse_constant=pytest.fail)["upper"] is None  # JSON has no infinity
    assert saved == json.loads((tmp_path / "run.json").read_text())
    assert (saved["times"], saved["step_time"]) == (even.times.tolist(), even.breakdown["step"])


@pytest.mark.parametrize(("workers", "steps"), [(1, 500), (8, 500), (2, 19), (3, 22)])
def test_transient_by_mser_interval_by_batches(workers, steps):
    rng = np.random.default_rng(1)
    recorded = profile_of(*[serial(fetch=0.1, compute=float(rng.gamma(1.0, 0.5)), push=0.1) for _ in range(60)])
    run = simulate_operations(recorded, workers=workers, steps=steps, seed=1, **IDEAL)
    took = np.diff(run.times, prepend=0.0)
    fives = took[: len(took) // 5 * 5].reshape(-1, 5).mean(axis=1)
    score = [fives[cut:].var() / (len(fives) - cut) for cut in range(len(fives) // 2 + 1)]
    cut = max(5 * int(np.argmin(score)) if len(fives) >= 4 else 0, int(steps < 20))
    assert cut > 1 or workers != 3
    assert run.warmup == pytest.approx(run.times[cut - 1] if cut else 0.0)
    steady = took[cut:]
    assert run.throughput == pytest.approx(workers * len(steady) / steady.sum())
    count = min(20, len(steady))
    length = len(steady) // count
    means = steady[len(steady) - count * length :].reshape(count, length).mean(axis=1)
    half, mean = stats.t.ppf(0.95, count - 1) * means.std(ddof=1) / count**0.5, steady.mean()
    assert (run.lower, run.upper) == pytest.approx((workers / (mean + half), workers / (mean - half)))


@pytest.mark.parametrize("steps", [1, 2, 5, 19, 20])
def test_few_steps_leave_out_the_start(steps):
    """A step of 1 s, from a start within 2 s; a run that starts at once has no such time."""
    for seed in range(3):
        run = simulate_operations(profile_of(serial()), workers=1, steps=steps, seed=seed, **IDEAL)
        assert (run.throughput, run.breakdown["step"]) == pytest.approx((1.0, 1.0))
        assert run.times[0] > 1.01
        assert run.steps == steps + (steps < 20)
    assert simulate_operations(profile_of(serial()), workers=1, in_phase=True, steps=1, **IDEAL).steps == 1


@pytest.mark.parametrize(("told", "first", "second"), [
    ({"accelerator_speed": 2.0}, 2.0, 2.0),
    ({"worker_speeds": [2.0, 1.0], "accelerator_speed": 0.5}, 1.0, 0.5),
])  # fmt: skip
def test_faster_workers_shorten_computation_alone(told, first, second):
    """Half a second of it; of the first worker alone beside transfers of half a second, on a link of half the rate."""
    asked = {"steps": 400, "replications": 1, **told, **IDEAL}
    (alone,), _ = trace_runs(profile_of(serial()), workers=[1, 2], worker_bandwidth=[0.5e6, 1e6], **asked)
    assert alone.throughput == pytest.approx(1 / (1.0 + 0.5 / first))
    _, (two,) = trace_runs(profile_of(serial(fetch=0.0, push=0.0)), workers=[1, 2], **asked)
    assert two.throughput == pytest.approx(2 * first + 2 * second, rel=0.02)


def events_of(run, kind="X"):
    return [event for event in json.loads(run.chrome_trace())["traceEvents"] if event["ph"] == kind]


def test_last_steps_are_traced_whole():
    run = simulate_operations(profile_of(two_layers()), workers=2, steps=10, trace_steps=3, slowdown=[1, 30], **IDEAL)
    names = {operation.name for operation in two_layers()}
    for w in range(2):
        steps = {}
        for event in events_of(run):
            if event["pid"] == w:
                steps.setdefault(event["args"]["step"], set()).add(event["name"])
        last = max(steps)
        assert steps.pop(last) <= names  # the one that the worker was in
        assert steps == dict.fromkeys(range(max(0, last - 3), last), names)


def test_trace_times_are_microseconds(tmp_path):
    profile = profile_of([*serial(), Operation("push", "late", 0.7, 1.2, 200_000, after=[1])])
    run = simulate_operations(profile, workers=1, steps=1, trace_steps=1, in_phase=True, **IDEAL)
    run.chrome_trace(tmp_path / "steps.json")
    assert json.loads((tmp_path / "steps.json").read_text()) == json.loads(run.chrome_trace())
    at = {e["name"]: (e["ts"], e["ts"] + e["dur"], 1e6 * e["args"]["waited"]) for e in events_of(run)}
    expected = {"w0": (0, 2e5, 0), "step": (2e5, 7e5, 0), "g0": (7e5, 1e6, 0), "u0": (1e6, 1e6, 0)}
    expected["late"] = 1e6, 1.2e6, 3e5
    assert at == {name: pytest.approx(times, abs=1e-3) for name, times in expected.items()}


@given(profile=jobs(), transfer_order=st.sampled_from(["tensorflow", "multiplexed"]), servers=st.integers(1, 3))
def test_lane_events_never_overlap(profile, transfer_order, servers):
    asked = {"transfer_order": transfer_order, "parameter_servers": servers, "steps": 6, "trace_steps": 3, **IDEAL}
    run, lanes = simulate_operations(profile, workers=3, **asked), {}
    for event in events_of(run):
        begin, took = round(1000 * event["ts"]), round(1000 * event["dur"])
        lanes.setdefault((event["pid"], event["tid"]), []).append((begin, begin + took))
    for events in lanes.values():
        assert all(end <= begin for (_, end), (begin, _) in pairwise(sorted(events)))
    named = {(event["pid"], event["tid"]) for event in events_of(run, "M") if event["name"] == "thread_name"}
    assert named == set(lanes)


def test_operations_are_drawn_as_bars():
    profile = example_profile("alexnet-60")
    ax, lanes = plot_timeline(profile, step=3), ["transmit link", "worker", "receive link", "server update"]
    assert [label.get_text() for label in ax.get_yticklabels()] == lanes
    for kind, bars in zip(("fetch", "compute", "push", "update"), ax.containers, strict=True):
        operations = [o for o in profile.steps[3].operations if o.kind == kind]
        assert [bar.get_x() + bar.get_width() for bar in bars] == pytest.approx([o.end for o in operations])
        if kind in ("fetch", "push"):  # bars are no longer than the bytes take on the link
            assert all(bar.get_width() <= 1.01 * o.bytes / 7.2e6 for bar, o in zip(bars, operations, strict=True))
    with pytest.raises(qm.DataError, match="step must be 0 to 11, got 12"):
        plot_timeline(profile, step=12)


# Many runs: each as if it were alone, and an end for all when one cannot go on


@settings(max_examples=5)
@given(st.sets(st.integers(1, 8)), st.sampled_from(["bbr", "unknown"]), st.integers(0, 2**64 - 1))
def test_answers_ignore_other_questions(others, congestion_control, seed):
    """With one thread or several."""
    asked = {"congestion_control": congestion_control, "steps": 60, "replications": 2}
    workers = sorted(others | {3})
    among = trace_curve(example_profile(), workers=workers, seed=seed, **asked)
    alone = trace_curve(example_profile(), workers=[3], seed=seed, n_jobs=1, **asked)
    for name in ("steps_per_second", "lower", "upper", "utilization", "residence_time"):
        np.testing.assert_array_equal(getattr(among, name)[workers.index(3)], getattr(alone, name)[0])
    assert trace_curve(example_profile(), workers=[3], seed=seed ^ 1, **asked).at(3) != alone.at(3)


def test_ctrl_c_ends_all_runs():
    """Runs under way end at their next look, those that wait never begin, and the next question is answered."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    gc.disable()  # an interrupt inside a collector's callback is swallowed
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            trace_runs(example_profile(), workers=range(1, 257), steps=1_000_000, replications=20)
        assert time.monotonic() - begun < 60
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPool")]
    assert len(trace_runs(example_profile(), workers=[1, 2, 4], steps=60, replications=3)) == 3
