"""What runs and curves report, against a schedule that can be worked out: 0.2, 0.5, 0.3 and 0.1 s in a row."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import queuemodel as qm
from queuemodel import example_profile
from queuemodel.profile import Operation
from queuemodel.simulator import plot_timeline, simulate_operations, trace_runs
from tests.oracles.by_hand import IDEAL, graphs, profile_of, serial, two_layers

PAUSED = profile_of(serial(update=0.1), pause=0.4)


def test_one_workers_step_is_accounted_for():
    run = simulate_operations(PAUSED, workers=1, steps=100, in_phase=True, **IDEAL)
    assert run.breakdown == pytest.approx({"step": 1.1, "fetch": 0.2, "compute": 0.5, "push": 0.4})
    assert run.utilization == pytest.approx(
        {"compute": 0.5 / 1.5, "transmit[0]": 0.2 / 1.5, "receive[0]": 0.3 / 1.5, "update[0]": 0.1 / 1.5}
    )
    assert (run.throughput, run.lower, run.upper) == pytest.approx((1 / 1.5,) * 3)
    assert (run.steps, run.duration) == pytest.approx((100, 1.1 + 99 * 1.5))
    assert run.staleness.tolist() == [1.0]
    assert (run.mean_staleness, run.dropped_share, run.bottleneck) == (0.0, 0.0, "receive[0]")


def test_printed_and_saved_values_agree(tmp_path):
    run = simulate_operations(PAUSED, workers=2, steps=200, worker_bandwidth=[1e6, 1e6], seed=2, **IDEAL)
    assert 0 < run.mean_staleness == pytest.approx(run.staleness[1])
    long = simulate_operations(profile_of(serial()), workers=2, steps=20_000, **IDEAL)
    assert len(long.times) <= 4096  # memory does not grow with the run
    assert long.throughputs @ np.diff(long.times, prepend=0.0) == pytest.approx(long.steps)
    even = simulate_operations(profile_of(serial()), workers=1, steps=20_000, in_phase=True, **IDEAL)
    assert even.times == pytest.approx(even.steps / len(even.times) * np.arange(1, len(even.times) + 1))  # 1 s each
    assert len(run.times) == 200
    saved = json.loads(run.to_json(tmp_path / "run.json"))
    assert saved == json.loads((tmp_path / "run.json").read_text())
    assert (saved["times"], saved["step_time"]) == (run.times.tolist(), run.breakdown["step"])
    assert "2 workers, 1 parameter server, tensorflow, async" in repr(run)


# The steady state and its interval


def steps_that_vary(rng, count=60):
    return [serial(fetch=0.1, compute=float(rng.gamma(1.0, 0.5)), push=0.1) for _ in range(count)]


@pytest.mark.parametrize(("workers", "steps"), [(1, 500), (8, 500), (2, 19), (3, 22), (2, 26)])
def test_transient_by_mser_interval_by_batches(workers, steps):
    recorded = profile_of(*steps_that_vary(np.random.default_rng(1)))
    run = simulate_operations(recorded, workers=workers, steps=steps, seed=1, **IDEAL)
    took = np.diff(run.times, prepend=0.0)
    fives = took[: len(took) // 5 * 5].reshape(-1, 5).mean(axis=1)
    score = [fives[cut:].var() / (len(fives) - cut) for cut in range(len(fives) // 2 + 1)]
    cut = 5 * int(np.argmin(score)) if len(fives) >= 4 else 0
    assert cut > 0 or workers != 3
    assert run.warmup == pytest.approx(run.times[cut - 1] if cut else 0.0)
    steady = took[cut:]
    each = workers  # steps in a bin
    assert run.throughput == pytest.approx(each * len(steady) / steady.sum())
    count = min(20, len(steady))
    length = len(steady) // count
    means = steady[len(steady) - count * length :].reshape(count, length).mean(axis=1)
    half = stats.t.ppf(0.95, count - 1) * means.std(ddof=1) / count**0.5
    mean = steady.mean()
    assert (run.lower, run.upper) == pytest.approx((each / (mean + half), each / (mean - half)))


# Curves


@pytest.mark.parametrize(
    ("told", "both"),
    [({"accelerator_speed": 2.0}, 8.0), ({"worker_speeds": [1.0, 0.5]}, 3.0),
     ({"worker_speeds": [2.0, 1.0], "accelerator_speed": 0.5}, 3.0)],
)  # fmt: skip
def test_faster_workers_shorten_computation_alone(told, both):
    """Half a second of it, on the first worker and on both; beside transfers of half a second on the first."""
    asked = {"steps": 400, "replications": 1, **told, **IDEAL}
    ((alone,),) = trace_runs(profile_of(serial()), workers=1, **asked)
    first = told.get("worker_speeds", [1.0])[0] * told.get("accelerator_speed", 1.0)
    assert alone.throughput == pytest.approx(1 / (0.5 + 0.5 / first))
    _, (two,) = trace_runs(profile_of(serial(fetch=0.0, push=0.0)), workers=[1, 2], **asked)
    assert two.throughput == pytest.approx(both, rel=0.02)


def test_fewer_workers_are_the_first_ones():
    told = {"worker_bandwidth": [0.5e6, 1e6], "worker_speeds": [1.0, 0.5]}
    ((alone,), _) = trace_runs(profile_of(serial()), workers=[1, 2], steps=100, replications=1, **told, **IDEAL)
    assert alone.throughput == pytest.approx(1 / 1.5)


# Pictures and timelines


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
    expected = {"w": (0, 2e5, 0), "step": (2e5, 7e5, 0), "g": (7e5, 1e6, 0), "sgd": (1e6, 1e6, 0)}
    expected["late"] = 1e6, 1.2e6, 3e5
    assert at == {name: pytest.approx(times, abs=1e-3) for name, times in expected.items()}


@given(operations=graphs(), transfer_order=st.sampled_from(["tensorflow", "multiplexed"]), servers=st.integers(1, 3))
def test_lane_events_never_overlap(operations, transfer_order, servers):
    profile = profile_of(operations, servers=2)
    run = simulate_operations(
        profile, workers=3, transfer_order=transfer_order, parameter_servers=servers, steps=6, trace_steps=3, **IDEAL
    )
    lanes = {}
    for event in events_of(run):
        begin, took = round(1000 * event["ts"]), round(1000 * event["dur"])
        lanes.setdefault((event["pid"], event["tid"]), []).append((begin, begin + took))
    for events in lanes.values():
        assert all(end <= begin for (_, end), (begin, _) in pairwise(sorted(events)))
    named = {(event["pid"], event["tid"]) for event in events_of(run, "M") if event["name"] == "thread_name"}
    assert named == set(lanes)


def test_operations_are_drawn_as_bars():
    profile = example_profile("alexnet-60")
    ax = plot_timeline(profile, step=3)
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "transmit link", "worker", "receive link", "server update"
    ]  # fmt: skip
    for kind, bars in zip(("fetch", "compute", "push", "update"), ax.containers, strict=True):
        operations = [o for o in profile.steps[3].operations if o.kind == kind]
        assert [bar.get_x() + bar.get_width() for bar in bars] == pytest.approx([o.end for o in operations])
        if kind in ("fetch", "push"):  # bars are no longer than the bytes take on the link
            assert all(bar.get_width() <= 1.01 * o.bytes / 7.2e6 for bar, o in zip(bars, operations, strict=True))
    with pytest.raises(qm.DataError, match="step must be 0 to 11, got 12"):
        plot_timeline(profile, step=12)
