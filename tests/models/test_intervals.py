"""Intervals: of simulated throughput, recomputed from the runs; and what measurements besides make of them."""

import json
from importlib import resources

import msgspec
import numpy as np
import pytest
from scipy import stats

import queuemodel as qm
from queuemodel.curves.prediction import Prediction
from queuemodel.models import trace_curve, trace_throughput
from queuemodel.profile import Measurement, Operation, Synchronization, example_profile
from queuemodel.simulator import simulate_operations, trace_runs
from tests.oracles.by_hand import IDEAL, LINKS, profile_of, serial, two_layers

TOLD = json.loads((resources.files("queuemodel.models") / "model_error.json").read_text())["trace"]
SEEN = np.array([TOLD[name] for name in ("below", "at", "beyond", "far")])
COMPUTE = np.array([0.1, 0.5, 0.9, 0.2, 0.3])
VARIED = profile_of(*[serial(fetch=0.15, compute=c, push=0.25, update=0.05) for c in COMPUTE], pause=0.1)
TIMES = COMPUTE + 0.55
SAMPLING = TIMES.std(ddof=1) / TIMES.mean() / 5**0.5


def rate_of(runs):
    return np.mean([run.throughput for run in runs])


def share_of(runs):
    """How much of the recorded steps' sampling several workers have: all alone, none once a link limits them."""
    return min(1.0, rate_of(runs) * TIMES.mean() / runs[0].workers)


def windows(runs):
    """Relative standard deviation of a measurement of a minute or of 20 steps of each worker (analysis of variance)."""
    X = rate_of(runs)
    wanted = max(60.0, 20 * runs[0].workers / X)
    length, squares, n = min([wanted, *((run.duration - run.warmup) / 2 for run in runs)]), 0.0, 0
    for run in runs:
        done = run.steps / len(run.times) * np.arange(1, len(run.times) + 1)
        edges = run.warmup + length * np.arange(int((run.duration - run.warmup) / length + 1e-9) + 1)
        counts = np.diff(np.interp(edges, run.times, done))
        squares, n = squares + np.sum((counts / counts.mean() - 1) ** 2), n + len(counts)
    within = squares / (n - len(runs)) * length / wanted
    between = np.var([run.throughput for run in runs], ddof=1) / X**2 if len(runs) > 1 else 0.0
    return np.sqrt(max(between + (1 - len(runs) / n) * within, within))


def own_error(every, waiting):
    """Of the simulation itself, by where each number of workers stands to the knee; more where some wait for some."""
    alone = rate_of(every[0]) if every[0][0].workers == 1 else 1 / TIMES.mean()
    found = []
    for runs, waits in zip(every, waiting, strict=True):
        busy = [np.mean([run.utilization[name] for run in runs]) for name in runs[0].utilization if name != "compute"]
        ratio = runs[0].workers * alone * max(busy) / rate_of(runs)
        own = TOLD["profiled"] if runs[0].workers == 1 else np.interp(np.log2(ratio), [-1, 0, 1, 2], SEEN**2) ** 0.5
        found.append(np.hypot(own, TOLD["waiting"] * waits))
    return np.array(found)


WAITING = [  # whether some wait for some of the others, of one, two and five workers
    ("async-ps", 0, [0, 0, 0]), ("sync-ps", 0, [0, 0, 0]), ("sync-ps", 1, [0, 1, 1]),
    ("bounded-staleness", 0, [0, 0, 0]), ("bounded-staleness", 2, [0, 1, 1]), ("k-async", 1, [0, 0, 0]),
    ("k-async", 2, [0, 0, 1]), ("k-sync", 2, [0, 0, 1]), ("k-batch-sync", 5, [0, 1, 1]),
]  # fmt: skip


@pytest.mark.parametrize(("way", "number", "waiting"), WAITING)
@pytest.mark.parametrize("workers", [[1, 2, 5], [2, 5]], ids=str)
def test_interval_joins_all_error_sources(way, number, waiting, workers):
    asked = {"workers": workers, "replications": 3, "seed": 4, "synchronization": Synchronization(way, number), **IDEAL}
    steps = 2400 if len(workers) == 3 else 600  # windows of a minute, and shorter ones
    every = trace_runs(VARIED, steps=steps, **asked)
    error = own_error(every, waiting[-len(workers) :])
    rows = trace_throughput(VARIED, steps=steps, confidence=0.7, **asked)
    for runs, own, row in zip(every, error, rows, strict=True):
        X, each = rate_of(runs), np.array([run.throughput for run in runs])
        parts = [each.std(ddof=1) / X / 3**0.5, windows(runs), SAMPLING * share_of(runs), own]
        width = stats.norm.ppf(0.85) * np.linalg.norm(parts)
        assert row == pytest.approx([X, X * np.exp(-width), X * np.exp(width)])


TENSORS = (200_000, 100_000, 70_000)
CURVES = [
    {}, {"worker_speeds": [1.25, 0.5, 2.5, 1.0, 2.0]}, {"accelerator_speed": 1.6}, {"synchronization": "sync-ps"},
    {"worker_bandwidth": [1.2e6, 0.6e6, 1e6, 0.7e6, 0.9e6]}, {"parameter_servers": 3, "transfer_order": "in-order"},
]  # fmt: skip


@pytest.mark.parametrize("asked", CURVES, ids=lambda asked: "-".join(asked) or "plain")
def test_curve_fields_follow_from_runs(asked):
    """Three tensors of unlike sizes on two servers, whose updates take unlike times."""
    about = {"steps": 900, "replications": 3, "seed": 6} | IDEAL | asked
    fetches = [Operation("fetch", f"w{i}", 0.0, 0.3, size, server=i % 2) for i, size in enumerate(TENSORS)]
    computes = [Operation("compute", "f", 0.3, 0.5, after=[0]), Operation("compute", "g", 0.5, 1.1, after=[1, 2, 3])]
    pushes = [Operation("push", f"g{i}", 1.1, 1.4, size, server=i % 2, after=[4]) for i, size in enumerate(TENSORS)]
    updates = [Operation("update", f"u{i}", 1.4, 1.45 + 0.03 * i, server=i % 2, after=[5 + i]) for i in range(3)]
    recorded = profile_of([*fetches, *computes, *pushes, *updates], servers=2)
    curve = trace_curve(recorded, workers=[2, 5], **about)
    one, *every = trace_runs(recorded, workers=[1, 2, 5], **about)
    servers, speeds = asked.get("parameter_servers", 2), np.array(asked.get("worker_speeds", [1.0] * 5))
    names = [f"{place}[{k}]" for k in range(servers) for place in ("transmit", "receive", "update")]
    assert curve.single == pytest.approx(rate_of(one))
    for i, (runs, n) in enumerate(zip(every, (2, 5), strict=True)):
        X, used = rate_of(runs), np.array([np.mean([run.utilization[name] for run in runs]) for name in names])
        assert curve.steps_per_second[i] == pytest.approx(X)
        assert curve.utilization[i] == pytest.approx(used)
        spans = [np.mean([run.breakdown[name] for run in runs]) for name in ("fetch", "push")]
        assert curve.residence_time[i] == pytest.approx([*(span / servers for span in spans), 0.0] * servers)
        assert curve.think_time[i] == pytest.approx(max(n / X - sum(spans), 0.0))
        demand, own = used / X, speeds[:n] / speeds[0]
        most = min(rate_of(one) * np.maximum(own, 1).sum(), 1 / demand.max())
        least = (1 / (np.maximum(1 / own, 1) / rate_of(one) + (n - 1) * demand.sum())).sum()
        if "worker_bandwidth" in asked:
            most = 1 / demand.max()
        assert curve.bound_upper[i] == pytest.approx(max(most, X))
        if "worker_bandwidth" in asked or "synchronization" in asked:
            assert np.isnan(curve.bound_lower[i])
        else:
            assert curve.bound_lower[i] == pytest.approx(min(least, X))
    assert curve.saturation_workers == pytest.approx(1 / (rate_of(one) * demand.max()))
    assert curve.bottleneck == curve.stations[int(demand.argmax())]
    how = (asked.get("transfer_order", "tensorflow"), asked.get("synchronization", "async-ps"))
    assert curve.method == f"trace-driven simulation ({', '.join(how)})"


# Conditioning: the law by draws, and what holds for every model

FAST = {"steps": 600, "links": LINKS}


def of(workers, speed, **more):
    return Measurement(workers=workers, steps_per_second=speed, **more)


def some_prediction():
    """Four places, the last on other machines, two kinds of network, and errors that differ."""
    workers = np.array([1, 2, 8, 4])
    return Prediction(
        workers=workers, machines=np.array([0, 0, 0, 1]), mean=np.log(np.outer(workers, [1.0, 0.6])) - 0.1,
        weights=np.array([0.7, 0.3]), kind=np.array([0, 1]), error=np.array([[0.02], [0.05], [0.1], [0.08]]),
        noise=np.array([0.01, 0.03, 0.02, 0.02]), correlation=0.6,
        spread=np.array([[0.03, 0.0], [0.02, 0.01], [0.0, 0.04], [0.0, 0.02]]),
    )  # fmt: skip


def test_conditioning_is_bayes_rule_by_draws():
    """Against draws of kinds, sizes of errors and noise, weighed by likelihood, each moved by Matheron's rule."""
    rng, count, at, noise = np.random.default_rng(1), 200_000, [1, 3], np.array([0.03, 0.02])
    prior, log_x = some_prediction(), np.log([1.75, 3.5])
    kind = rng.choice(2, count, p=[0.7, 0.3])
    size = stats.norm.ppf(0.95) / stats.t.ppf(0.95, 4) * np.sqrt(4 / rng.chisquare(4, count))
    scale = rng.choice([1.0, 2.0, 4.0, 10.0], count, p=[0.985, 0.01, 0.004, 0.001])
    octaves, elsewhere = np.log2([1, 2, 8, 4]), np.array([0, 0, 0, 1])
    alike = 0.6 ** np.abs(np.subtract.outer(octaves, octaves)) * (1 - 0.25 * np.not_equal.outer(elsewhere, elsewhere))
    own = size[:, None] * (rng.standard_normal((count, 4)) @ np.linalg.cholesky(alike).T) * [0.02, 0.05, 0.1, 0.08]
    fixed = rng.standard_normal((count, 2)) @ prior.spread.T
    truth = prior.mean[:, kind].T + own + fixed
    off = (log_x - truth[:, at]) / (scale[:, None] * noise)
    weight = np.exp(-0.5 * (off**2).sum(axis=1)) / scale**2
    seen = truth + scale[:, None] * prior.noise * rng.standard_normal((count, 4))
    posterior, outliers = prior.condition(at, log_x, noise)
    found = np.log(posterior.interval(0.9))
    for k in range(4):
        order = np.argsort(seen[:, k])
        ends = np.interp([0.5, 0.05, 0.95], np.cumsum(weight[order]) / weight.sum(), seen[order, k])
        np.testing.assert_allclose(found[:, k], ends, atol=0.012)
    assert posterior.kinds(2)[1] == pytest.approx(np.average(kind, weights=weight), abs=0.02)
    assert not outliers.any()


def test_few_explaining_draws_never_narrow():
    workers, rng = np.array([1, 4]), np.random.default_rng(2)
    draws = np.log(workers)[:, None] + 0.2 * rng.standard_normal(400)
    prior = Prediction.drawn(workers, draws, error=0.001, noise=0.001)
    posterior, _ = prior.condition([0], np.array([0.5]), np.array([0.001]))  # beyond almost all draws
    assert np.ptp(np.log(posterior.interval(0.9)[1:, 1])) > 0.05
    assert len(np.unique(posterior.mean[1].round(12))) > 50


WAYS = [
    ("alexnet-60", {"method": "mva"}), ("resnet50-60", {"method": "mva", "strategy": "sync-ps"}),
    ("resnet50-60", {"method": "mva", "strategy": "k-batch-async", "k": 2}), ("alexnet-60", {"method": "trace"}),
    ("resnet50-60", {"strategy": "k-sync", "k": 2}), ("resnet50-60", {"method": "trace", "strategy": "sync-ps"}),
    ("alexnet-60", {"method": "mva", "parameter_servers": 2}), ("alexnet-60", {"strategy": "all-reduce"}),
    ("ddp-alexnet-40", {}), ("ddp-alexnet-40", {"bandwidth": 10e6}), ("fsdp-gpt8-60", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "asked"), WAYS, ids=lambda one: one if isinstance(one, str) else "-".join(one))
def test_predicted_measurement_only_narrows(name, asked):
    """Of workers who wait for each other as in the scenario: nothing else is known of it."""
    profile, workers = example_profile(name), [2, 4, 8]
    before = qm.predict(profile, workers=workers, **asked)
    here = {key: asked[key] for key in ("bandwidth", "parameter_servers") if key in asked}
    after, lower = (qm.predict(profile, workers=workers, throughputs=[of(8, by * before.at(8), **here)], **asked)
                    for by in (1.0, 0.9))  # fmt: skip
    moved = lower.steps_per_second / before.steps_per_second
    assert 0.88 < moved[2] < 0.98
    assert moved[1] < 1.001
    np.testing.assert_allclose(after.steps_per_second, before.steps_per_second, rtol=0.004)
    widths = np.log([one.upper / one.lower for one in (before, after)])
    assert widths[1, 2] < 0.97 * widths[0, 2]
    assert np.all(widths[1] < 1.02 * widths[0])
    assert "calibrated by 1 measurement" in after.note
    assert (8, pytest.approx(before.at(8))) in after.measured


@pytest.mark.parametrize(("truth", "trip"), [("loss-based", 0.0), ("bbr", 0.012)])
def test_true_network_is_identified(truth, trip):
    profile = profile_of(two_layers())
    asked = {"loaded_trip": trip, "links": LINKS}
    speeds = {n: simulate_operations(profile, workers=n, steps=4000 // n, **asked).throughput for n in (3, 5)}
    points = [of(n, speed, standard_error=0.005 * speed) for n, speed in speeds.items()]
    found = trace_curve(profile, workers=[4], measured=points, congestion_control="unknown", **FAST)
    assert found.note.startswith(f"calibrated by 2 measurements: {truth} ")
    assert "does not fit" not in found.note


def test_tracing_slows_machines_not_links():
    profile = example_profile("alexnet-60")
    settings = {"workers": [1, 2, 8], "steps": 400, "replications": 1}
    traced, faster = (trace_curve(profile, measured=points, **settings) for points in ([], [of(1, 1.5)]))
    assert faster.single == pytest.approx(1.5, rel=1e-3)
    gain = faster.steps_per_second / traced.steps_per_second
    assert gain[0] == pytest.approx(1.5 / traced.single, rel=1e-3)
    assert 1.02 < gain[2] < gain[1] < gain[0]
    source = msgspec.structs.replace(profile.source, hosts={"ps:0": "localhost:1", "worker:0": "localhost:2"})
    here = msgspec.structs.replace(profile, source=source, cluster=qm.Cluster())
    traced, faster = (trace_curve(here, measured=points, **settings) for points in ([], [of(1, 1.5)]))
    for name in ("steps_per_second", "bound_lower", "bound_upper"):
        assert getattr(faster, name) == pytest.approx(1.5 / traced.single * getattr(traced, name), rel=1e-3)


def test_measurements_on_other_machines_count_less():
    """Errors there are those here to three quarters."""
    profile = profile_of(two_layers())
    settings = {"workers": [4], "congestion_control": "cubic", **FAST}
    before = trace_curve(profile, bandwidth=0.5e6, **settings)
    points = [of(4, 1.1 * before.at(4), bandwidth=0.5e6, standard_error=0.001 * before.at(4))]
    machines: list[dict] = [{"bandwidth": 0.5e6}, {}]
    here, there = (trace_curve(profile, measured=points, **settings, **one) for one in machines)
    moved = [np.log(here.at(4) / before.at(4)), np.log(there.at(4) / trace_curve(profile, **settings).at(4))]
    assert 0.3 * moved[0] < moved[1] < 0.95 * moved[0]
