"""What runs and curves report, against a schedule that can be worked out: 0.2, 0.5, 0.3 and 0.1 s in a row."""

import json
from itertools import pairwise

import numpy as np
import pytest
from by_hand import IDEAL, graphs, profile_of, serial, two_layers
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import queuemodel as qm
from queuemodel import example_profile
from queuemodel.models import trace_curve, trace_throughput
from queuemodel.profile import Operation
from queuemodel.simulator import Link, Links, plot_timeline, simulate, trace_runs

PAUSED = profile_of(serial(update=0.1), pause=0.4)


def test_one_workers_step_is_accounted_for():
    run = simulate(PAUSED, workers=1, steps=100, in_phase=True, **IDEAL)
    assert run.breakdown == pytest.approx({"step": 1.1, "fetch": 0.2, "compute": 0.5, "push": 0.4})
    assert run.utilization == pytest.approx(
        {"compute": 0.5 / 1.5, "transmit[0]": 0.2 / 1.5, "receive[0]": 0.3 / 1.5, "update[0]": 0.1 / 1.5}
    )
    assert (run.throughput, run.lower, run.upper) == pytest.approx((1 / 1.5,) * 3)
    unlike = simulate(PAUSED, workers=1, steps=50, **IDEAL | {"links": Links(Link(2e6), Link(0.5e6))})
    assert (unlike.utilization["transmit[0]"], unlike.utilization["receive[0]"]) == pytest.approx(
        (0.1 / 1.7, 0.6 / 1.7)
    )
    assert (run.steps, run.duration) == pytest.approx((100, 1.1 + 99 * 1.5))
    assert run.staleness.tolist() == [1.0]
    assert (run.mean_staleness, run.dropped_share, run.bottleneck) == (0.0, 0.0, "receive[0]")


def test_each_server_has_its_own_share():
    fetches = [
        Operation("fetch", "a", 0.0, 1.0, 300_000, server=0),
        Operation("fetch", "b", 0.0, 1.0, 100_000, server=1),
    ]
    pushes = [Operation("push", "g", 1.5, 1.7, 200_000, server=1, after=[2])]
    updates = [Operation("update", "u", 1.7, 1.8, server=1, after=[3])]
    profile = profile_of([*fetches, Operation("compute", "c", 1.0, 1.5, after=[0, 1]), *pushes, *updates], servers=2)
    run = simulate(profile, workers=3, steps=300, **IDEAL)
    seconds = {"transmit[0]": 0.3, "transmit[1]": 0.1, "receive[0]": 0.0, "receive[1]": 0.2, "update[1]": 0.1}
    for name, each in seconds.items():
        assert run.utilization[name] == pytest.approx(each * run.throughput, rel=0.02)
    assert run.utilization["compute"] == pytest.approx(0.5 * run.throughput / 3, rel=0.02)


def test_what_is_printed_and_saved_is_what_was_found(tmp_path):
    run = simulate(PAUSED, workers=2, steps=200, worker_bandwidth=[1e6, 1e6], seed=2, **IDEAL)
    assert 0 < run.mean_staleness == pytest.approx(run.staleness[1])
    long = simulate(profile_of(serial()), workers=2, steps=20_000, **IDEAL)
    assert len(long.times) <= 4096  # memory does not grow with the run
    assert long.throughputs @ np.diff(long.times, prepend=0.0) == pytest.approx(long.steps)
    assert len(run.times) == 200
    saved = json.loads(run.to_json(tmp_path / "run.json"))
    assert saved == json.loads((tmp_path / "run.json").read_text())
    assert (saved["times"], saved["step_time"]) == (run.times.tolist(), run.breakdown["step"])
    assert "2 worker(s), 1 parameter server(s), tensorflow, async" in repr(run)


# The steady state and its interval


def steps_that_vary(rng, count=60):
    return [serial(fetch=0.1, compute=float(rng.gamma(1.0, 0.5)), push=0.1) for _ in range(count)]


@pytest.mark.parametrize("workers", [1, 8])
def test_the_transient_is_mser_5s_and_the_interval_that_of_batch_means(workers):
    run = simulate(profile_of(*steps_that_vary(np.random.default_rng(1))), workers=workers, steps=500, seed=4, **IDEAL)
    took = np.diff(run.times, prepend=0.0)
    fives = took[: len(took) // 5 * 5].reshape(-1, 5).mean(axis=1)
    score = [fives[cut:].var() / (len(fives) - cut) for cut in range(len(fives) // 2 + 1)]
    cut = 5 * int(np.argmin(score))
    assert run.warmup == pytest.approx(run.times[cut - 1] if cut else 0.0)
    steady = took[cut:]
    each = workers  # steps in a bin
    assert run.throughput == pytest.approx(each * len(steady) / steady.sum())
    length = len(steady) // 20
    means = steady[len(steady) - 20 * length :].reshape(20, length).mean(axis=1)
    half = stats.t.ppf(0.95, 19) * means.std(ddof=1) / 20**0.5
    mean = steady.mean()
    assert (run.lower, run.upper) == pytest.approx((each / (mean + half), each / (mean - half)))


def test_intervals_cover_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(2)
    steps = steps_that_vary(rng)
    truth = 1 / np.mean([0.2 + one[1].end - one[1].start for one in steps])
    runs = [
        simulate(profile_of(*steps), workers=1, steps=1000, seed=seed, in_phase=True, **IDEAL) for seed in range(200)
    ]
    assert 0.83 < np.mean([run.lower <= truth <= run.upper for run in runs]) < 0.96
    assert np.mean([run.lower <= 1.1 * truth <= run.upper for run in runs]) < 0.5


# Curves


def test_the_curve_tells_where_a_step_spends_its_time():
    curve = trace_curve(PAUSED, workers=[1, 4], steps=400, replications=2, **IDEAL)
    assert curve.residence_time[0] == pytest.approx([0.2, 0.4, 0.0], abs=1e-6)
    assert curve.think_time[0] == pytest.approx(0.9)
    assert curve.utilization[0] == pytest.approx([0.2 / 1.5, 0.3 / 1.5, 0.1 / 1.5])
    assert curve.single == pytest.approx(1 / 1.5) == pytest.approx(curve.at(1))
    assert curve.method == "trace-driven simulation (tensorflow, async)"
    assert (curve.lower < curve.steps_per_second).all()
    assert (curve.steps_per_second < curve.upper).all()


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


def test_intervals_join_runs_sampling_and_the_models_own_error():
    asked = {"steps": 6000, "replications": 3, "in_phase": True, "confidence": 0.6827, **IDEAL}
    (constant,) = trace_throughput(profile_of(serial()), workers=[1], **asked)
    own = np.log(constant[2] / constant[0])  # nothing varies: the simulation's own error
    assert np.log(constant[0] / constant[1]) == pytest.approx(own)
    compute = (0.1, 0.5, 0.9) * 3
    profile = profile_of(*[serial(compute=c) for c in compute])
    (varied,) = trace_throughput(profile, workers=[1], **asked)
    sampling = np.std(compute, ddof=1) / 1.0 / 3
    window = np.std(compute) / 60**0.5  # a minute of steps of 1 s
    width = np.sqrt(own**2 + sampling**2 + window**2)
    assert np.log(varied[2] / varied[0]) == pytest.approx(width, rel=0.1)
    slow = profile_of(*[serial(fetch=2.0, compute=10 * c, push=3.0) for c in compute])  # 20 steps last longer
    ((_, low, high),) = trace_throughput(slow, workers=[1], **asked)
    expected = np.hypot(np.hypot(own, sampling), np.std(compute) / 20**0.5)
    assert np.log(high / low) / 2 == pytest.approx(expected, rel=0.1)
    # behind a full link few steps leave nothing open
    beyond = [profile_of(*[serial(compute=c, push=0.0) for c in some]) for some in ((0.01, 0.1, 0.3), (0.137,) * 3)]
    few, same = (trace_throughput(one, workers=[20], **asked)[0] for one in beyond)
    assert few[2] / few[0] == pytest.approx(same[2] / same[0], rel=0.02)


def test_the_models_own_error_grows_with_its_load():
    """A link that each of two workers needs for an eighth of its step, and each of thirty for a quarter."""
    widths = []
    for link, n in ((0.125, 2), (0.25, 30)):
        profile = profile_of(serial(fetch=0.0, compute=1 - link, push=link))
        (row,) = trace_throughput(profile, workers=[n], steps=1000, in_phase=True, **IDEAL)
        widths.append(np.log(row[2] / row[0]))
    assert widths[1] > 1.6 * widths[0]


def test_bounds_are_those_of_the_step_by_hand():
    # a step of 1 s: .2 s on one link, .3 s on the other
    curve = trace_curve(profile_of(serial()), workers=[1, 2, 4, 8], steps=8000, replications=2, **IDEAL)
    N = curve.workers
    assert curve.bound_upper == pytest.approx(np.minimum(N, 1 / 0.3), rel=1e-3)
    assert curve.bound_lower == pytest.approx(N / (1 + (N - 1) * 0.5), rel=2e-3)
    assert curve.saturation_workers == pytest.approx(1 / 0.3, rel=1e-3)
    assert curve.bottleneck == "receive link"
    barrier = trace_curve(profile_of(serial()), workers=[1, 4], steps=40, synchronization="sync", **IDEAL)
    assert np.isnan(barrier.bound_lower).all()
    barrier.plot()


@pytest.mark.parametrize("faster", [1.0, 2.0])
def test_bounds_of_unequal_workers_add_up_what_each_can_do(faster):
    # 1 s of which a quarter on the server's link; the second computes twice as fast, the third half as fast
    speeds = {"worker_speeds": [faster, 2 * faster, faster / 2], "accelerator_speed": 1 / faster}
    speeds |= {"steps": 3000, "replications": 2}
    profile = profile_of(serial(fetch=0.25, compute=0.75, push=0.0))
    curve = trace_curve(profile, workers=[1, 2, 3], **speeds, **IDEAL)
    assert curve.bound_upper == pytest.approx([1, 3, 4], rel=1e-3)
    assert curve.bound_lower == pytest.approx([1, 2 / 1.25, 2 / 1.5 + 1 / 2.5], rel=5e-3)


@settings(max_examples=25)
@given(
    operations=graphs(),
    counts=st.sets(st.integers(1, 12), min_size=1, max_size=3),
    memory=st.booleans(),
    speeds=st.none() | st.lists(st.floats(0.3, 3), min_size=12, max_size=12),
    policy=st.sampled_from(["tensorflow", "random", "multiplexed", "tac"]),
)
def test_predictions_lie_between_their_bounds(operations, counts, memory, speeds, policy):
    profile = profile_of(operations, servers=2)
    ideal = {"links": IDEAL["links"]} if memory else IDEAL
    choices = {"steps": 60, "replications": 2, "worker_speeds": speeds, "policy": policy, **ideal}
    curve = trace_curve(profile, workers=sorted(counts), **choices)
    assert (curve.bound_lower <= curve.steps_per_second * (1 + 1e-9)).all()
    assert (curve.steps_per_second <= curve.bound_upper * (1 + 1e-9)).all()


# Pictures and timelines


def events_of(run, kind="X"):
    return [event for event in json.loads(run.chrome_trace())["traceEvents"] if event["ph"] == kind]


def test_every_operation_of_the_last_steps_is_an_event():
    run = simulate(profile_of(two_layers()), workers=2, steps=10, trace_steps=3, slowdown=[1, 30], **IDEAL)
    names = {operation.name for operation in two_layers()}
    for w in range(2):
        steps = {}
        for event in events_of(run):
            if event["pid"] == w:
                steps.setdefault(event["args"]["step"], set()).add(event["name"])
        last = max(steps)
        assert steps.pop(last) <= names  # the one that the worker was in
        assert steps == dict.fromkeys(range(max(0, last - 3), last), names)


def test_times_are_microseconds_of_the_simulated_clock(tmp_path):
    profile = profile_of([*serial(), Operation("push", "late", 0.7, 1.2, 200_000, after=[1])])
    run = simulate(profile, workers=1, steps=1, trace_steps=1, in_phase=True, **IDEAL)
    run.chrome_trace(tmp_path / "steps.json")
    assert json.loads((tmp_path / "steps.json").read_text()) == json.loads(run.chrome_trace())
    at = {e["name"]: (e["ts"], e["ts"] + e["dur"], 1e6 * e["args"]["waited"]) for e in events_of(run)}
    expected = {"w": (0, 2e5, 0), "step": (2e5, 7e5, 0), "g": (7e5, 1e6, 0), "sgd": (1e6, 1e6, 0)}
    expected["late"] = 1e6, 1.2e6, 3e5
    assert at == {name: pytest.approx(times, abs=1e-3) for name, times in expected.items()}


@given(operations=graphs(), policy=st.sampled_from(["tensorflow", "multiplexed"]), servers=st.integers(1, 3))
def test_events_of_a_lane_do_not_overlap(operations, policy, servers):
    profile = profile_of(operations, servers=2)
    run = simulate(profile, workers=3, policy=policy, parameter_servers=servers, steps=6, trace_steps=3, **IDEAL)
    lanes = {}
    for event in events_of(run):
        begin, took = round(1000 * event["ts"]), round(1000 * event["dur"])
        lanes.setdefault((event["pid"], event["tid"]), []).append((begin, begin + took))
    for events in lanes.values():
        assert all(end <= begin for (_, end), (begin, _) in pairwise(sorted(events)))
    named = {(event["pid"], event["tid"]) for event in events_of(run, "M") if event["name"] == "thread_name"}
    assert named == set(lanes)


def test_every_operation_is_a_bar_that_ends_when_it_ended():
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
