"""Everything that a curve and a simulation of rounds report, recomputed where each number differs from every other."""

import numpy as np
import pytest

import queuemodel as qm
from queuemodel.models import AllReduceModel, FittedRounds, round_time, simulate_rounds

SIZES, SHARES = np.array([1.1e6, 4e6, 2.3e6]), np.array([0.41, 0.65, 0.93])  # buckets, and when of the computation
ALONE, TAIL, NOMINAL, COVARIANCE = 1.7, 0.07, 1.5e7, np.array([[0.02, -0.011], [-0.011, 0.3]])
GRADIENTS = np.array([0.7e6, 0.4e6, 4e6, 1.5e6, 0.8e6]), np.array([0.3, 0.41, 0.65, 0.8, 0.93])


def known(computed=(1.5,) * 8, **told):
    """Of four ranks, two of which are unlike the others; two and three showed other networks."""
    computed = np.array(computed)
    fields = {
        "job": qm.Job(batch_size=8, parameter_bytes=7_400_000, tensors=5), "ready": computed[:, None] * SHARES,
        "computed": computed, "tail": TAIL, "single_rank_round_time": ALONE, "bucket_bytes": SIZES,
        "gradients": GRADIENTS, "at_once": 2,
        "bandwidth": 1.1e7, "latency": 0.004, "covariance": COVARIANCE, "latency_known": False,
        "nominal": NOMINAL, "ranks": 4, "relative_compute_times": (0.9, 1.0, 1.3, 1.0), "common_compute_error": 0.06,
        "links_by_ranks": {2: (1.3e7, 0.002), 3: (1.2e7, 0.003)},
    }  # fmt: skip
    return FittedRounds(**fields | told)


def network(n, *, bandwidth=None, latency=None, **_):
    """Bytes per second and seconds per message among n ranks; another link replaces what the profiled one explains."""
    carried, own = {1: (1.1e7, 0.004), 2: (1.3e7, 0.002), 3: (1.2e7, 0.003)}.get(n, (1.1e7, 0.004))
    if bandwidth is not None:
        carried = 1 / (max(1 / carried - 1 / (0.95 * NOMINAL), 0.0) + 1 / (0.95 * bandwidth))
    return carried, own if latency is None else latency


def late(size, n, bandwidth, buffer):
    """Seconds by which the messages of a ring of so many bytes come later, under BBR, as documented."""
    return 2 * (n - 1) * buffer * np.minimum(1.0, size / n / (bandwidth * buffer) / (19.0 if n == 2 else 3.8))


def cost(n, bandwidth, latency, buffer):
    wait = np.full(len(SIZES), 2 * (n - 1) * latency)
    return 2 * (n - 1) / n * SIZES / bandwidth, wait + (late(SIZES, n, bandwidth, buffer) if buffer else 0.0)


IN_TURN, BBR = {"at_once": 1}, {"at_once": 1, "congestion_control": "bbr", "buffer": 0.004}
LOADERS = {"loading": (np.full(9, 0.8), np.full(9, 1.9), np.full(9, 2.15))}
CASES = [
    ({}, {}, 0.02), ({"accumulation": 3, "batch_size": 12, "accelerator_speed": 1.25}, {}, 0.02),
    ({"bandwidth": 2.3e7}, BBR, 0.06), ({"latency": 0.013}, IN_TURN | {"congestion_control": "cubic"}, 0.04),
    ({"latency": 0.0}, IN_TURN, 0.10), ({"bandwidth": 5e6}, {"single_rank_round_time": 1.2}, 0.02),
    ({"accumulation": 2, "batch_size": 10}, LOADERS, 0.02), ({"accelerator_speed": 2.0}, LOADERS, 0.02),
    ({"batch_size": 9}, {"computed": (1.5,)}, 0.02),
    ({"accelerator_speed": 2.5, "accumulation": 3}, {"single_rank_round_time": 1.2}, 0.02),
    ({"accelerator_speed": 0.4}, {}, 0.02),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "told", "error"), CASES, ids=[str(i) for i in range(len(CASES))])
def test_curve_is_the_round_by_hand(asked, told, error):
    """All recorded rounds are alike, so that nothing is drawn."""
    N, steps = np.array([2, 3, 4, 7]), asked.get("accumulation", 1)
    longer = asked.get("batch_size", 8) / 8 / asked.get("accelerator_speed", 1.0)
    at_once, buffer, compute = told.get("at_once", 2), told.get("buffer", 0.0), 1.5 * longer * steps
    curve = AllReduceModel(known(**told)).what_if(**asked).throughput(N, confidence=0.8)
    beyond = told.get("single_rank_round_time", ALONE) - 1.5
    load = [one[0] * asked.get("batch_size", 8) / 8 * steps for one in told.get("loading", ())]
    off = np.std(np.repeat(load, 9)) / np.mean(load) if load else 0.0

    def waited(T, n, factor=1.0):
        return max(0.0, factor * max(load[:n], default=0.0) - T)

    alone = compute + (beyond if beyond > 0 else beyond * longer * steps)
    alone += waited(alone, 1)
    assert curve.single == pytest.approx(steps / alone)
    for i, n in enumerate(N.tolist()):
        # a third of what BBR may make of the links of more ranks, since nobody says whether it is
        covariance = COVARIANCE + np.diag([(n > 4) * (at_once > 1) * 0.081**2 / 3, 0.0])
        covariance = covariance * np.diag([1.0, 0.0]) if "latency" in asked else covariance
        along = covariance[0, 0] ** 0.5  # independent parts: of the bandwidth, and of the latency beside it
        beside = max(covariance[1, 1] - (covariance[0, 1] / along) ** 2, 0.0) ** 0.5
        parts = np.array([[along, covariance[0, 1] / along], [0.0, beside]])
        link = np.array(network(n, **asked))
        pace = max([0.9, 1.0, 1.3, 1.0][:n] + [1.0] * (n > 4))

        def seconds(link, longest=pace, held=buffer, n=n):
            last = longest * 1.5 * longer
            ready, end = longest * 1.5 * longer * (steps - 1) + last * SHARES, longest * compute
            return float(round_time(ready, np.array(end), *cost(n, *link, held), at_once=at_once)) + TAIL

        slowest, (work, wait) = pace * compute, cost(n, *link, buffer)
        T, best = seconds(link), seconds(link * [1, 0], held=0.0)
        idle = waited(T, n)
        added = [max(best - slowest - TAIL, 0.0), T - best, max(slowest - compute, 0.0)]
        X, k = steps * n / (T + idle), steps
        assert curve.steps_per_second[i] == pytest.approx(X)
        assert curve.iterations_per_second[i] == pytest.approx(1 / (T + idle))
        assert curve.residence_time[i] * k == pytest.approx(added, abs=1e-9)
        assert curve.think_time[i] * k == pytest.approx(T + idle - sum(added))
        busy = [work.sum(), min(wait.sum(), T + idle), added[2]]
        assert curve.utilization[i] == pytest.approx(np.minimum(np.array(busy) / (T + idle), 1.0))
        first = 1.5 * longer * SHARES[0] + compute * (1 - 1 / k)
        assert k * n / curve.bound_upper[i] == pytest.approx(min(max(first + work.sum(), compute), T + idle))
        most = alone + work.sum() + wait.sum() + added[2]
        assert k * n / curve.bound_lower[i] == pytest.approx(max(most, T + idle))
        sampling = 0.05 if "computed" in told else np.hypot(0.06 / 1.5, added[2] / compute / 14**0.5)
        ends = [[seconds(link, longest=pace * np.exp(s * sampling)) for s in (1, -1)]]
        ends += [[seconds(link * np.exp(s * step)) for s in (1, -1)] for step in parts]
        effects = [np.log(after / before) / 2 for after, before in ends]
        ahead = 0.5 * min(off, 1) * idle / (T + idle)
        if load:
            effects.append(np.log((T + waited(T, n, np.exp(off / 27**0.5))) / (T + idle)))
        own = error if n > 4 and at_once == 1 else 0.02 if asked or n > 4 else 0.01
        width = np.linalg.norm([*effects, own])
        draws = np.random.default_rng(1).standard_normal((2, 200_000))  # loaders may be further ahead, never less
        low, high = np.quantile(width * draws[0] + ahead * np.maximum(draws[1], 0), [0.1, 0.9])
        assert np.log(X / curve.lower[i]) == pytest.approx(-low, rel=0.015)
        assert np.log(curve.upper[i] / X) == pytest.approx(high, rel=0.015)
    shares = dict(zip(curve.stations, added, strict=True)) | {"compute": compute}
    late_loader = load and max(load) > T
    assert curve.bottleneck == ("input" if late_loader else max(shares, key=shares.get))
    assert (curve.batch_size, curve.profiled_workers) == (asked.get("batch_size", 8), 0 if asked else 4)


@pytest.mark.parametrize(("asked", "told"), [({}, IN_TURN), ({"accumulation": 2, "bandwidth": 2.3e7}, BBR | LOADERS)])
def test_simulated_rounds_by_hand(asked, told):
    rows, n, steps = np.random.default_rng(1).gamma(30, 0.05, 40), 3, asked.get("accumulation", 1)
    fitted = known(computed=rows, ready=rows[:, None] * [0.3, 0.3, 0.5] + [0.05, 0.4, 0.1], **told)
    model = AllReduceModel(fitted).what_if(**asked)
    run = simulate_rounds(model, ranks=n, rounds=400, seed=5, confidence=0.8)
    work, wait = cost(n, *network(n, **asked), told.get("buffer", 0.0))
    assert run.drawn.sizes.tolist() == SIZES.tolist()
    times, loads = [], [one[0] * steps for one in told.get("loading", ())]
    for r in range(400):
        now, begun, ended = 0.0, [], []
        for ready, w, a in zip(run.drawn.ready[r].max(axis=0), work, wait, strict=True):
            begun.append(max(now, ready))
            now = begun[-1] + w + a
            ended.append(now)
        assert run.drawn.sent[r, 0].T.tolist() == [pytest.approx(begun), pytest.approx(ended)]
        times.append(max(now, (run.computed + run.drawn.waits)[r].max()) + TAIL)
    times = np.array(times)
    np.testing.assert_allclose(run.times, times)
    own, late = run.computed, (run.computed + run.drawn.waits).max(axis=1)
    np.testing.assert_allclose(run.waited, late - own.max(axis=1))
    assert (run.waited.mean() > 0) == bool(loads)
    if loads:  # a loader that is always late sets the pace
        assert run.times.mean() == pytest.approx(max(*loads, (times - run.waited).mean()), rel=0.02)
    x, error = 1 / run.times.mean(), run.times.std(ddof=1) / run.times.mean() / 20
    row = run.to_rows()[0]
    expected = {"ranks": 3, "iterations_per_second": x, "lower": x * np.exp(-1.28155 * error)}
    expected |= {"upper": x * np.exp(1.28155 * error), "round_time": run.times.mean(), "computation": own.mean()}
    expected["stragglers"] = own.max(axis=1).mean() - own.mean()
    expected["communication"] = np.maximum(times - late, 0).mean()
    assert row == pytest.approx(expected | ({"input": run.waited.mean()} if loads else {}), rel=1e-5)
    mean = steps * rows.mean() * np.array(fitted.relative_compute_times[:3])
    assert own.mean(axis=0) == pytest.approx(mean, rel=0.03)  # smoothing keeps mean and variance
    spread = steps**0.5 * rows.std() * np.array(fitted.relative_compute_times[:3])
    assert own.std(axis=0) == pytest.approx(spread, rel=0.1)
    assert len(np.unique(own[:, 1])) > (40 if steps == 1 else 240)
