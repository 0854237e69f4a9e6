"""The simulation: what it charges, what it records, and that it is exact; studies of it."""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from queuemodel import ModelError
from queuemodel import scheduling as qs

LINEAR = qs.PowerLawCurve(1.0)
FAILING = qs.Nodes(1, mean_time_to_failure=600)  # no checkpoints


def job(name, time, steps, curve=LINEAR, **rest):
    return qs.ClusterJob(name, arrival_time=time, steps=steps, curve=curve, **rest)


def ran(policy=None, nodes=8, **rest):
    return qs.schedule([job("a", 0, **{"steps": 1} | rest)], policy or qs.FIFO(), nodes=nodes)


def test_early_ends_are_uniform():
    jobs = qs.Workload([job(f"{k}", 0, 100, end_probability=0.5) for k in range(400)])
    shares = jobs.shares(3)
    assert np.quantile(shares, [1 / 8, 1 / 4, 3 / 8, 0.7]) == pytest.approx([0.25, 0.5, 0.75, 1.0], abs=0.12)
    assert jobs.shares(4).tolist() != shares.tolist()


def test_finish_time_fairness():
    """Of 4 nodes both have 2 for 10 s, then the long job all for 10 s: it met 1.5 jobs, so its share is 2 2/3 nodes."""
    curve = {1: 1.0, 2: 1.7, 3: 2.2, 4: 2.5}
    both = [job("a", 5.0, 42, curve), job("b", 5.0, 17, curve)]
    found = qs.schedule(both, qs.EqualShare(), nodes=4)
    assert found.end == pytest.approx([25, 15])
    assert found.shared_time == pytest.approx([42 / (1.7 + 2 / 3 * 0.5), 10.0])
    assert found.fairness == pytest.approx([20 * (1.7 + 1 / 3) / 42, 1.0])
    assert qs.schedule(both[:1], qs.EqualShare(), nodes=4).fairness == pytest.approx([1.0])  # all nodes are its share


def test_failures_return_to_the_checkpoint():
    cluster = qs.Nodes(1, mean_time_to_failure=400, checkpoint_seconds=100, restart_seconds=7)
    schedule = qs.schedule([job("a", 3, 1000, most_nodes=1)], qs.FIFO(), nodes=cluster, seed=11)
    rng = np.random.default_rng([11, 0x6661696C])
    now, resume, done, failures = 3.0, 3.0, 0.0, 0
    gap = 400 * rng.exponential()
    while now + gap < resume + 1000 - done:
        now, failures = now + gap, failures + 1
        done += max(now - resume, 0.0) // 100 * 100
        resume = now + 7
        gap = 400 * rng.exponential()
        rng.random()  # which node it is
    assert failures > 1
    assert schedule.failures.tolist() == [failures]
    assert schedule.end == pytest.approx([resume + 1000 - done])
    assert ran(steps=3600, most_nodes=1, nodes=FAILING).failures > 10  # often, but gets through


def test_prediction_error_misleads_policies_only():
    jobs = qs.Workload([job(f"{k}", k, 50 + k, qs.PowerLawCurve(0.6)) for k in range(40)])
    wrong = jobs.with_prediction_error(scaling=0.3, level=0.5, seed=2)
    true, misled = (qs.schedule(w, qs.RankPriced(), nodes=20).mean_response_time for w in (jobs, wrong))
    assert misled > true
    blind = [qs.schedule(w, qs.EqualShare(), nodes=20).mean_response_time for w in (jobs, wrong)]
    assert blind[0] == pytest.approx(blind[1])
    seen = [[j.predicted(n) / j.curve(n) for n in (1, 10)] for j in wrong]
    level, bend = np.log(seen)[:, 0], np.log10(np.divide(*np.transpose(seen)[::-1]))
    assert (level.std(), bend.std()) == pytest.approx((0.5, 0.3), rel=0.3)


@pytest.mark.parametrize("arrivals", ["poisson", "bursty", "regular"])
def test_load_and_variation_of_streams(arrivals):
    limits = {"least_nodes": 2, "most_nodes": 5, "requested_nodes": 4, "end_probability": 0.25}
    kinds = [
        qs.JobKind("a", curve=qs.PowerLawCurve(0.5), steps=40.0, weight=3.0, **limits),
        qs.JobKind("b", curve=LINEAR, steps=300.0, variation=2.0, requested_nodes=3),
    ]
    jobs = qs.Stream(kinds, jobs=20_000, nodes=10, load=0.6, arrivals=arrivals).workload(0).jobs
    assert {name: getattr(next(j for j in jobs if j.kind == "a"), name) for name in limits} == limits
    times, steps = np.array([j.arrival_time for j in jobs]), np.array([j.steps for j in jobs])
    of_a = np.array([j.kind == "a" for j in jobs])
    assert of_a.mean() == pytest.approx(0.75, abs=0.01)
    assert [steps[of_a].mean(), steps[~of_a].mean()] == pytest.approx([40, 300], rel=0.08)
    assert steps[~of_a].std() / steps[~of_a].mean() == pytest.approx(2.0, rel=0.15)
    gaps = np.diff(times)
    assert gaps.std() / gaps.mean() == pytest.approx({"poisson": 1, "bursty": 3, "regular": 0}[arrivals], abs=0.15)
    service = 0.75 * 4 * 40 / 2 + 0.25 * 3 * 300 / 3  # node-seconds on the requested nodes
    assert service / gaps.mean() / 10 == pytest.approx(0.6, rel=0.06)


def test_curves_of_every_form_are_understood():
    measured = SimpleNamespace(workers=np.array([1, 2, 4]), steps_per_second=np.array([1.0, 1.8, 3.0]))
    for curve in ({1: 1.0, 2: 1.8, 4: 3.0}, measured, qs.TableCurve({1: 1.0, 2: 1.8, 4: 3.0})):
        assert [qs.as_curve(curve)(n) for n in (1, 2, 3, 4)] == pytest.approx([1.0, 1.8, 2.4, 3.0])
    kind = qs.JobKind.training("a", curve={1: 1.0, 4: 3.0}, epochs=2, dataset_size=500, batch_size=10, variation=0)
    (one,) = qs.Stream([kind], jobs=1, nodes=8).workload(0)
    assert (one.least_nodes, one.most_nodes, one.requested, one.steps, one.predicted) == (1, 4, 1, 100, None)
    assert qs.schedule([one], qs.SRPT(), nodes=8).response_time == pytest.approx([one.steps / 3.0])
    measured = {kind.name: kind for kind in qs.measured_kinds(most=16)}
    assert measured["shakesmall-p100"].steps == pytest.approx(10 * 50_000 / 128)
    found = [measured[name].curve(8) for name in ("alexnet-60", "resnet50-60", "shakesmall-p100")]
    assert found[1:] == pytest.approx([2.284, 27.04], rel=0.1)  # as measured


STREAM = qs.Stream(qs.example_kinds(most=16), jobs=40, nodes=16)


def test_study_intervals_and_processes():
    asked = {"policies": [qs.FIFO(), qs.RankPriced()], "loads": [0.4, 0.8], "replications": 3}
    study = qs.sweep(STREAM, **asked)
    assert study.to_rows() == qs.sweep(STREAM, **asked, n_jobs=2, backend="threading").to_rows()
    rows = study.table("mean_response_time")
    assert [(row["load"], row["replications"]) for row in rows] == [(0.4, 3), (0.4, 3), (0.8, 3), (0.8, 3)]
    single = qs.schedule(replace(STREAM, load=0.8).workload(2), qs.FIFO(), nodes=16, seed=2, warmup=0.1)
    (run,) = [r for r in study.runs if (r["policy"], r["load"], r["replication"]) == ("FIFO", 0.8, 2)]
    assert run["mean_response_time"] == single.mean_response_time
    relative = study.relative("mean_response_time", to="FIFO", confidence=0.9)
    fifo, priced = (row for row in relative if row["load"] == 0.4)
    assert (fifo["ratio"], fifo["half_width"]) == (1, 0)
    runs = {(r["policy"], r["replication"]): r["mean_response_time"] for r in study.runs if r["load"] == 0.4}
    ratios = [runs[qs.RankPriced().name, k] / runs["FIFO", k] for k in range(3)]
    assert priced["ratio"] == pytest.approx(np.mean(ratios))
    assert priced["half_width"] == pytest.approx(2.91999 * np.std(ratios, ddof=1) / 3**0.5, rel=1e-5)


def test_ctrl_c_keeps_what_has_ended():
    calls = itertools.count()

    class Interrupted(qs.FIFO):
        def grants(self, jobs, nodes, now):
            if next(calls) == 200:
                raise KeyboardInterrupt
            return super().grants(jobs, nodes, now)

    study = qs.sweep(STREAM, [Interrupted()], replications=5)
    assert (study.complete, 0 < len(study.runs) < 5, "(interrupted)" in repr(study)) == (False, True, True)


def test_study_of_one_replication():
    alone = repr(qs.sweep(STREAM, [qs.FIFO()], replications=1))
    assert ("one replication gives no interval" in alone, "nan" in alone) == (True, False)
    short, long = qs.LeastAttainedService(600), qs.LeastAttainedService(60_000)
    study = qs.sweep(STREAM, [short, long, qs.LeastAttainedService(60_000.0)], loads=[0.9], replications=2)
    assert [(r["policy"], r["replications"]) for r in study.table()] == [(short.name, 2), (long.name, 2)]


SIZES = qs.BatchSizes({32: {1: 4.0}}, [(300, 32.0)])
GAP = qs.BatchSizes({32: {1: 4.0}, 64: {3: 5.5}}, [(500, 32.0)])
CHOOSING = {"batch_sizes": SIZES, "batch_size": 32}


def adaptive(sizes, batch_size):
    return qs.ClusterJob.adaptive("a", arrival_time=0, batch_sizes=sizes, batch_size=batch_size)


@pytest.mark.parametrize(("make", "message"), [
    (lambda: job("a", 0, 0), "steps must be finite and > 0"),
    (lambda: qs.Workload([]), "at least one job"),
    (lambda: qs.Workload([job("a", 0, 1), job("a", 1, 1)]), "two jobs are named 'a'"),
    (lambda: qs.Workload([job("a", 2, 1), job("b", 1, 1)]), "sort the jobs by arrival time"),
    (lambda: ran(least_nodes=9), "at most the cluster's 8 nodes, got 9"),
    (lambda: ran(curve=lambda n: {1: 1.0}[n]), "curve failed on 2 nodes"),
    (lambda: ran(steps=1e9, curve=qs.PowerLawCurve(1.0, speed=1e-3)), "1e[+]12 s alone"),
    (lambda: ran("fifo"), "must be a Policy, got str"),
    # A day without failure comes once in e^144 tries.
    (lambda: ran(steps=86400, nodes=FAILING), r"job 'a': fails every 600 s on 1 nodes, but needs 8\.64e\+04 s until"),
    (lambda: qs.TableCurve({1: 1.0, 2: math.nan}), "speed at 2 nodes must be finite and > 0"),
    (lambda: qs.Nodes(0), "nodes must be a whole number of at least 1, got 0"),
    (lambda: qs.JobKind("a", curve=lambda n: {}[n], steps=1.0), "kind 'a': curve failed on 1 nodes"),
    (lambda: qs.Stream(qs.example_kinds(), jobs=1, nodes=1, arrivals="daily"), "arrivals must be one of"),
    *((lambda wrong=wrong: qs.sweep(STREAM, [qs.FIFO()], **wrong), message) for wrong, message in (
        ({"backend": "foo"}, "backend 'foo' cannot be used"), ({"warmup": 1.0}, "warmup must be below 1"))),
    (lambda: qs.sweep(STREAM, [qs.FIFO()]).relative("mean_response_time", to="x"), "no runs of a policy named 'x'"),
    *((lambda make=make, more=more: make("a", **more), r"argument.*; write [\w.]+\(name, .*=") for make, more in (
        (qs.ClusterJob, {"arrival_time": 0.0, "nodes": 4, "curve": LINEAR, "steps": 1.0}),
        (qs.ClusterJob.adaptive, {"arrival": 0.0} | CHOOSING),
        (qs.ClusterJob.adaptive, {"arrival_time": 0, "steps": 5.0} | CHOOSING),
        (qs.JobKind.training, {"name_of": "x", "epochs": 1, "dataset_size": 9, "batch_size": 3, "curve": LINEAR}))),
    (lambda: qs.plot_nodes(ran()), "history=True"),
    (lambda: qs.plot_sweep(qs.Study(({"a": 1},), ("a",))), "not policy and 'load'"),
    (lambda: replace(SIZES, curves={}), "curves must map batch sizes to curves"),
    (lambda: replace(SIZES, noise_scales=[5]), "pairs"),
    (lambda: replace(SIZES, noise_scales=[(5, math.nan)]), "noise scale"),
    (lambda: qs.schedule([adaptive(GAP, 32)], qs.Goodput(), nodes=4), r"no batch size of .* has a speed on 2 nodes"),
    (lambda: adaptive(SIZES, 48), "must be one of 32, got 48"),
    (lambda: qs.statistical_efficiency(64, -3, first=32), "noise_scale must be finite and >= 0 examples, got -3"),
    (lambda: qs.StagedCurve([(0.0, {1: 1.0})]), "length must be finite and > 0"),
    (lambda: ran(curve=qs.StagedCurve([(1.0, LINEAR)] * 2), nodes=FAILING), "nodes cannot fail yet where jobs' speeds"),
])  # fmt: skip
def test_nonsense_is_refused_in_one_line(make, message):
    with pytest.raises(ModelError, match=message):
        make()
