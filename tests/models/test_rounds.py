"""Rounds of an all-reduce: all that a curve and a simulation report, by hand and from round to round."""

import itertools
import json

import numpy as np
import pytest

import queuemodel as qm
from queuemodel import example_profile
from queuemodel.models import (
    AllReduceModel,
    Buckets,
    FittedRounds,
    Fusion,
    Slices,
    fit_rounds,
    plot_round,
    round_time,
    simulate_rounds,
)
from queuemodel.profile import Round
from queuemodel.transport import HalvingDoubling, Hierarchical, InRacks, Link, ParameterServers, Ring
from tests.oracles.by_hand import job_of
from tests.oracles.pairs import pairwise
from tests.oracles.slices import by_priority

SIZES, SHARES = np.array([1.1e6, 4e6, 2.3e6]), np.array([0.41, 0.65, 0.93])  # buckets, and when of the computation
GRADIENTS = np.array([0.7e6, 0.4e6, 4e6, 1.5e6, 0.8e6]), np.array([0.6, 0.62, 0.97, 1.2, 1.4])
COMPUTED, ALONE, TAIL, BANDWIDTH, NOMINAL, LATENCY = 1.5, 1.7, 0.07, 1.1e7, 1.5e7, 0.004
COVARIANCE = np.array([[0.02, -0.011], [-0.011, 0.3]])


def known(computed=(COMPUTED,) * 8, **told):
    """Of four ranks, two of which are unlike the others; two and three showed other networks."""
    computed = np.array(computed)
    fields = {
        "job": qm.Job(batch_size=8, parameter_bytes=7_400_000, tensors=5), "ready": computed[:, None] * SHARES,
        "computed": computed, "tail": TAIL, "single_rank_round_time": ALONE, "bucket_bytes": SIZES,
        "gradients": GRADIENTS, "at_once": 2, "bandwidth": BANDWIDTH, "latency": LATENCY, "covariance": COVARIANCE,
        "latency_known": False, "nominal": NOMINAL, "ranks": 4, "relative_compute_times": (0.9, 1.0, 1.3, 1.0),
        "common_compute_error": 0.06, "links_by_ranks": {2: (1.3e7, 0.002), 3: (1.2e7, 0.003)},
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


@pytest.mark.parametrize(
    "told", [{}, {"single_rank_round_time": 1.2}, LOADERS | {"single_rank_round_time": 1.2}], ids=str
)
@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_parts_add_up_to_the_round(ranks, told):
    asked = {"accumulation": 2, "worker_speeds": (0.8,) * 8}
    run = simulate_rounds(AllReduceModel(known(**told)).what_if(**asked), ranks=ranks, rounds=1, seed=1)
    row = run.to_rows()[0]
    parts = [row["computation"], row["stragglers"], row["communication"], row.get("input", 0.0)]
    assert row["round_time"] == pytest.approx(sum(parts))
    alone = 2 * told.get("single_rank_round_time", COMPUTED) / 0.8
    assert ranks > 1 or row["computation"] == pytest.approx(alone)
    assert run.caption().startswith("1 simulated round, seed 1")


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


# All options in pairs, from when loaders, ranks and one network are free

LOADTIMES = (0.8, 1.9, 2.15, 0.3)


def model(*, loaders=(), spread=0.0, **asked):
    """Of equal ranks, whose buckets follow each other."""
    rng = np.random.default_rng(2)
    computed = COMPUTED * (1 + spread * rng.standard_normal(400))
    loading = tuple(one * (rng.gamma(4, 0.25, 4000) if spread else np.ones(9)) for one in loaders)
    alike = {"relative_compute_times": (), "links_by_ranks": {}, "at_once": 1, "loading": loading}
    return AllReduceModel(known(computed, single_rank_round_time=COMPUTED + TAIL, **alike)).what_if(**asked)


def asked_of(n, asked):
    """Pieces that are sent, their moments, what a message costs, and the steps of a round, by hand."""
    precision = 0.5 if asked.get("gradient_precision") else 1.0
    sizes, share = (SIZES, SHARES) if "scheme" not in asked else (GRADIENTS[0], GRADIENTS[1] / COMPUTED)
    carried, wanted = BANDWIDTH, asked.get("bandwidth", NOMINAL)
    if wanted != NOMINAL:
        carried = 1 / (1 / carried - 1 / (0.95 * NOMINAL) + 1 / (0.95 * wanted))
    algorithm = {"halving-doubling": HalvingDoubling(), "parameter-servers": ParameterServers()}.get(
        asked.get("collective"), Ring()
    )
    if "ranks_per_node" in asked:
        algorithm = Hierarchical(2, Link(asked["inside_bandwidth"]), algorithm)
    if "nodes_per_rack" in asked:
        algorithm = InRacks(algorithm, asked["nodes_per_rack"], asked["oversubscription"])
    link = Link(carried, latency=asked.get("latency", LATENCY))

    def cost(size):
        both = algorithm.time(size, n, link)
        work = algorithm.time(size, n, Link(carried))
        return work, both - work

    factor = asked.get("batch_size", 8) / 8
    own = [COMPUTED * factor / asked.get("accelerator_speed", 1.0) / s for s in asked.get("worker_speeds", [1.0] * n)]
    return sizes * precision, share, cost, own[:n], factor


def round_by_round(n, asked, *, loaders=(), spread=0.0, rounds=40, warm=20):
    """Mean seconds of rounds after the first ones, from when ranks, loaders and the network are free.

    With a ``spread`` of computation loading varies, too. A loader is two batches ahead at most.
    """
    sizes, share, cost, mean, factor = asked_of(n, asked)
    rng, scheme, steps = np.random.default_rng(1), asked.get("scheme"), asked.get("accumulation", 1)
    free, made, taken, done, marks = np.zeros(n), np.zeros(n), np.zeros((n, 2)), np.zeros(len(sizes)), []
    gaps = np.diff(share, prepend=share[0])
    for _ in range(warm + rounds):
        ready, over = np.zeros((n, len(sizes))), np.zeros(n)
        for r, step in itertools.product(range(n), range(steps)):
            now, before = over[r] if step else free[r], 0.0
            if loaders:
                load = loaders[r % len(loaders)] * factor * (rng.gamma(4, 0.25) if spread else 1.0)
                made[r] = max(made[r], taken[r, 0]) + load
                now = max(now, made[r])
                taken[r] = taken[r, 1], now
            computed = mean[r] * (1 + spread * rng.standard_normal())
            if isinstance(scheme, Slices) and step == 0:  # forward, layer by layer from the lowest, as each is reduced
                before = share[0]
                for j in reversed(range(len(sizes))):
                    now = max(now, done[j]) + computed * before * gaps[j] / gaps.sum()
            if r == step == 0:
                marks.append(now)
            ready[r], over[r] = now + computed * (share - before), now + computed * (1 - before)
        done = sent(scheme, ready.max(axis=0), sizes, cost) + TAIL
        free = over + TAIL if isinstance(scheme, Slices) else np.full(n, max(over.max() + TAIL, done.max()))
    return (marks[-1] - marks[warm]) / (len(marks) - 1 - warm)


def sent(scheme, ready, sizes, cost):
    """When each piece is reduced: one message after the other, of all that is there, or the most urgent first."""
    if isinstance(scheme, Slices):
        return by_priority(ready, sizes, scheme.cap, scheme.credit, cost)
    now, ends, groups = 0.0, np.zeros(len(sizes)), grouped(sizes, scheme)
    while groups:
        group, *groups = groups
        now = max(now, ready[group].max())
        if isinstance(scheme, Fusion):  # pieces that are ready fill messages up to the cap
            there = [[j] for j in (*group, *(i for one in groups for i in one)) if ready[j] <= now]
            groups = groups[len(there) - 1 :]
            while there:
                group, *there = there
                while there and sizes[[*group, *there[0]]].sum() <= scheme.cap:
                    group += there.pop(0)
                now = ends[group] = now + sum(cost(sizes[group].sum()))
        else:
            now = ends[group] = now + sum(cost(sizes[group].sum()))
    return ends


def grouped(sizes, scheme):
    """Buckets that are closed when full, the first one earlier."""
    if not isinstance(scheme, Buckets):
        return [[j] for j in range(len(sizes))]
    groups = [[]]
    for j in range(len(sizes)):
        groups[-1].append(j)
        if sizes[groups[-1]].sum() >= (scheme.first if len(groups) == 1 else scheme.cap):
            groups.append([])
    return [group for group in groups if group]


OPTIONS = {
    "scheme": [None, Buckets(2e6, 5e5, 1), Fusion(2e6, 0.0), Slices(6e5, 1.2e6)],
    "collective": [None, "halving-doubling", "parameter-servers"], "accumulation": [None, 3],
    "gradient_precision": [None, "half"], "worker_speeds": [None, (1.0, 0.5, 1.0, 2.0)], "latency": [None, 0.02],
    "bandwidth": [None, 2.5e7], "accelerator_speed": [None, 1.6], "batch_size": [None, 12],
    "place": [None, {"ranks_per_node": 2, "inside_bandwidth": 4e7}],
    "racks": [None, {"nodes_per_rack": 2, "oversubscription": 3.0}], "loaders": [None, LOADTIMES],
}  # fmt: skip


@pytest.mark.parametrize("asked", [*pairwise(0, **OPTIONS)], ids=str)
def test_options_combine_round_by_round(asked):
    loaders = asked.pop("loaders", ())
    curve = model(loaders=loaders, **asked).throughput([2, 4])
    for n, rate in zip(curve.workers.tolist(), curve.iterations_per_second.tolist(), strict=True):
        truth = round_by_round(n, asked, loaders=loaders)
        assert 1 / rate == pytest.approx(truth, rel=1e-6)
        run = simulate_rounds(model(loaders=loaders, **asked), ranks=n, rounds=30)
        assert run.times.mean() == pytest.approx(truth, rel=1e-2)


def test_two_percent_are_noticed():
    """The control: of computation, of bytes, and of a loader that is always late."""
    seconds = round_by_round(4, {}, loaders=(2.15,)), round_by_round(4, {}), round_by_round(4, {"bandwidth": 2.5e7})
    found = [
        1 / model(**changes).throughput([4]).iterations_per_second[0]
        for changes in ({"loaders": (2.2,)}, {"accelerator_speed": 1.02}, {"bandwidth": 2.45e7})
    ]
    assert not np.isclose(found, seconds, rtol=1e-3).any()


@pytest.mark.parametrize("accumulation", [1, 2, 5])
@pytest.mark.parametrize("load", [1.5, 1.7])
def test_loader_is_two_batches_ahead(load, accumulation):
    """Batches are computed in 1.5 s and loaded in 1.5 or 1.7 s (gamma): not always in time where four ranks meet."""
    about = {"loaders": (load,), "spread": 0.1}
    asked = {"accumulation": accumulation, "bandwidth": 1e8}
    truth = round_by_round(4, asked, **about, rounds=5000 // accumulation)
    found = 1 / model(**about, **asked).throughput([4]).iterations_per_second[0]
    assert found == pytest.approx(truth, rel=0.025)
    assert simulate_rounds(model(**about, **asked), ranks=4, rounds=600).times.mean() == pytest.approx(truth, rel=0.03)
    without = 1 / model(spread=0.1, **asked).throughput([4]).iterations_per_second[0]
    assert without < 0.97 * truth  # the control


# What viewers are shown of a recorded job


@pytest.fixture(scope="module")
def recorded():
    return AllReduceModel(fit_rounds(example_profile("ddp-alexnet-40")))


def test_a_simulated_profile_is_fitted_again(recorded):
    run = simulate_rounds(recorded, ranks=2, rounds=30, seed=1)
    rounds = [Round(rank=r, ranks=2, number=k, round_time=one.round_time, computed=one.computed, buckets=one.buckets)
              for k in range(30) for r in (0, 1) for one in [run.round(k, rank=r)]]  # fmt: skip
    again = fit_rounds(job_of(rounds, SIZES.astype(int).tolist()))
    assert again.bandwidth == pytest.approx(recorded.link_at(2).bandwidth, rel=0.02)
    assert again.computed.mean() == pytest.approx(recorded.fitted.computed.mean(), rel=0.02)
    with pytest.raises(qm.ModelError, match="round: number"):
        run.round(30)


def test_what_perfetto_is_shown(recorded, tmp_path):
    """Nothing overlaps in a lane, and the lanes hold all of it."""
    run = simulate_rounds(recorded, ranks=3, rounds=20)
    run.chrome_trace(tmp_path / "t.json", rounds=2)
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    lanes = {(event["pid"], event["tid"]) for event in spans}
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert lanes == named
    for lane in lanes:
        inside = sorted((e["ts"], e["ts"] + e["dur"]) for e in spans if (e["pid"], e["tid"]) == lane)
        assert all(end <= begin + 1e-6 for (_, end), (begin, _) in itertools.pairwise(inside))
    sent = sum(event["args"]["bytes"] for event in spans if event["cat"] == "in transit")
    assert sent == 2 * 3 * run.drawn.sizes.sum()
    assert max(event["ts"] + event["dur"] for event in spans) == pytest.approx(1e6 * run.times[:2].sum(), rel=0.05)


def test_recorded_round_is_drawn():
    one = next(r for r in example_profile("ddp-alexnet-40").rounds if r.ranks == 2)
    computed, waiting, sent = (container.patches for container in plot_round(one).containers)
    for bucket, *bars in zip(one.buckets, computed, waiting, sent, strict=True):
        ends = [bars[k].get_x() + bars[k].get_width() for k in (0, 2)]
        assert ends == pytest.approx([bucket.ready, bucket.end])
        assert bars[1].get_width() == pytest.approx(max(bucket.begin - bucket.ready, 0))
