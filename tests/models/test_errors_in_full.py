"""Intervals of simulated throughput, recomputed from the runs."""

import json
from importlib import resources

import numpy as np
import pytest
from scipy import stats

from queuemodel.models import trace_curve, trace_throughput
from queuemodel.profile import Operation, Synchronization
from queuemodel.simulator import trace_runs
from tests.oracles.by_hand import IDEAL, profile_of, serial

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


WAYS = [
    ({}, [0, 0, 0]), ({"synchronization": "sync-ps"}, [0, 0, 0]),
    ({"synchronization": Synchronization("sync-ps", 1)}, [0, 1, 1]),
    ({"synchronization": "bounded-staleness"}, [0, 0, 0]),
    ({"synchronization": Synchronization("bounded-staleness", 2)}, [0, 1, 1]),
    ({"synchronization": Synchronization("k-async", 2)}, [0, 0, 1]),
    ({"synchronization": Synchronization("k-async", 1)}, [0, 0, 0]),
    ({"synchronization": Synchronization("k-sync", 2)}, [0, 0, 1]),
    ({"synchronization": Synchronization("k-batch-sync", 5)}, [0, 1, 1]),
]  # fmt: skip


@pytest.mark.parametrize(("way", "waiting"), WAYS)
@pytest.mark.parametrize("workers", [[1, 2, 5], [2, 5]], ids=str)
def test_interval_joins_all_error_sources(way, waiting, workers):
    asked = {"workers": workers, "replications": 3, "seed": 4, **way, **IDEAL}
    steps = 2400 if len(workers) == 3 else 600  # windows of a minute, and shorter ones
    every = trace_runs(VARIED, steps=steps, **asked)
    error = own_error(every, waiting[-len(workers) :])
    for runs, own, row in zip(
        every, error, trace_throughput(VARIED, steps=steps, confidence=0.7, **asked), strict=True
    ):
        X, each = rate_of(runs), np.array([run.throughput for run in runs])
        parts = [each.std(ddof=1) / X / 3**0.5, windows(runs), SAMPLING * share_of(runs), own]
        width = stats.norm.ppf(0.85) * np.linalg.norm(parts)
        assert row == pytest.approx([X, X * np.exp(-width), X * np.exp(width)])


SIZES = (200_000, 100_000, 70_000)
CURVES = [
    {}, {"worker_speeds": [1.25, 0.5, 2.5, 1.0, 2.0]}, {"accelerator_speed": 1.6}, {"synchronization": "sync-ps"},
    {"worker_bandwidth": [1.2e6, 0.6e6, 1e6, 0.7e6, 0.9e6]}, {"parameter_servers": 3, "transfer_order": "in-order"},
]  # fmt: skip


@pytest.mark.parametrize("asked", CURVES, ids=lambda asked: "-".join(asked) or "plain")
def test_curve_fields_follow_from_runs(asked):
    """Three tensors of unlike sizes on two servers, whose updates take unlike times."""
    about = {"steps": 900, "replications": 3, "seed": 6} | IDEAL | asked
    fetches = [Operation("fetch", f"w{i}", 0.0, 0.3, size, server=i % 2) for i, size in enumerate(SIZES)]
    computes = [Operation("compute", "f", 0.3, 0.5, after=[0]), Operation("compute", "g", 0.5, 1.1, after=[1, 2, 3])]
    pushes = [Operation("push", f"g{i}", 1.1, 1.4, size, server=i % 2, after=[4]) for i, size in enumerate(SIZES)]
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
