"""One question, every method."""

import gzip
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pytest

import queuemodel as qm
from queuemodel import example_profile
from queuemodel.models import curve_of, further_measurements, load, predict, simulate
from queuemodel.sgd import compare


def traced(*, bandwidth=None):
    spans = [("fetch", "w0", 0.0, 0.1, 10**6), ("fetch", "w1", 0.0, 0.2, 10**6), ("compute", "all", 0.2, 0.7),
             ("push", "g", 0.7, 0.8, 10**6), ("update", "u", 0.8, 0.81)]  # fmt: skip
    after = [[], [], [0, 1], [2], [3]]
    operations = [qm.Operation(*span, after=before) for span, before in zip(spans, after, strict=True)]
    step = qm.Step(step_time=0.81, fetch=0.2, compute=0.5, push=0.1, update=0.01, fetched_bytes=2 * 10**6,
                   pushed_bytes=10**6, operations=operations)  # fmt: skip
    job, cluster = qm.Job(batch_size=4, parameter_bytes=2 * 10**6, tensors=2), qm.Cluster(bandwidth=bandwidth)
    return qm.Profile(source=qm.Source(framework="test"), cluster=cluster, job=job, steps=[step] * 3)


def test_assumed_strategy_comes_first():
    points = [qm.Measurement(workers=n, steps_per_second=x) for n, x in ((1, 2.0), (2, 3.9), (4, 6.0))]
    curve = predict(points, workers=[1, 8])
    offers = qm.plan_instances(points, [qm.Instance("small", price=1.0)], workers=[1, 8], throughput=1.0)
    results = (curve, curve.faster(2), qm.fit(points).throughput([8]), qm.plan(curve, min_efficiency=0.5), offers)
    for text in (*(result.caption() for result in results), curve.to_dict()["note"]):
        assert "asynchronous parameter servers (async-ps), not data-parallel (all-reduce)" in text
    given = predict(points, workers=[1, 8], strategy="async-ps")
    assert "assuming" not in given.caption() + given.note + qm.fit(points, strategy="async-ps").caption()
    np.testing.assert_array_equal(given.steps_per_second, curve.steps_per_second)


def test_auto_simulates_one_worker_profiles():
    assert "trace" in predict(traced(), workers=[1, 2]).method
    assert "mva" in predict(traced(), workers=[1, 2], method="mva").method
    assert "mva" in predict(traced(), workers=[1, 2], batch_size=8).method  # cannot be simulated
    assert predict(traced(), workers=[1, 2], form="single").stations == ("parameter server",)
    four = msgspec.structs.replace(traced(), cluster=qm.Cluster(workers=4))
    assert "mva" in predict(four, workers=[4]).method
    assert predict(four, workers=[4]).at(4) == pytest.approx(4 / 0.81)
    with pytest.raises(qm.ModelError, match="profile of one worker"):
        predict(four, method="trace")


@pytest.mark.parametrize("method", ["auto", "mva"])
def test_throughputs_calibrate_either_method(method):
    before, curve = (
        predict(traced(), workers=[1, 2, 4], method=method, throughputs=points)
        for points in ([], [qm.Measurement(workers=4, steps_per_second=3.8)])
    )
    assert ("mva" in curve.method, curve.profiled_workers) == (method == "mva", 4)
    own = msgspec.structs.replace(traced(), throughputs=[qm.Measurement(workers=4, steps_per_second=3.8)])
    assert predict(own, workers=[1, 2, 4], method=method).to_rows() == curve.to_rows()
    assert curve.at(4) < before.at(4)
    assert curve.lower[2] <= 3.8 <= curve.upper[2]


@pytest.mark.parametrize("method", ["auto", "mva"])
@pytest.mark.parametrize("own", [{"bandwidth": 1e7}, {"parameter_servers": 1}, {"batch_size": 4}])
def test_profiled_values_are_no_change(method, own):
    profile, asked = traced(bandwidth=1e7), {"workers": [1, 4], "method": method}
    on_own_links = qm.Measurement(workers=4, steps_per_second=3.8, bandwidth=own.get("bandwidth"))
    plain = predict(profile, **asked, throughputs=[qm.Measurement(workers=4, steps_per_second=3.8)])
    curve = predict(profile, **asked, throughputs=[on_own_links], **own)
    assert curve.to_rows() == plain.to_rows()
    assert (curve.method, curve.profiled_workers) == (plain.method, 4)
    other = predict(profile, **asked, throughputs=[on_own_links], bandwidth=1.2e7)
    assert other.at(4) > plain.at(4)


@pytest.mark.parametrize("verb", [predict, qm.fit, simulate])
@pytest.mark.parametrize("data", [None, 3, b"profile.json", qm.fit(traced())])
def test_other_data_is_refused_everywhere(verb, data):
    with pytest.raises(qm.ModelError, match=f"expected a Profile.*got {type(data).__name__}"):
        verb(data, **({"workers": 2} if verb is not qm.fit else {}))


@pytest.mark.parametrize("kind", [str, Path])
def test_paths_stand_for_their_files(tmp_path, kind):
    profile, other, table = traced(bandwidth=1e7), kind(tmp_path / "p.json"), kind(tmp_path / "t.csv")
    profile.save(other)
    Path(table).write_text("workers,steps_per_second\n1,1\n4,3.8\n")
    points = [qm.Measurement(workers=n, steps_per_second=speed) for n, speed in ((1, 1.0), (4, 3.8))]
    asked = {"workers": [1, 4], "method": "mva"}
    for throughputs in (table, [table], [points[0], table][1:], (one for one in [table])):
        curve = predict(other, **asked, throughputs=throughputs)
        assert curve.to_rows() == predict(profile, **asked, throughputs=points).to_rows()
    assert predict(table, workers=[8]).to_rows() == predict(points, workers=[8]).to_rows()
    assert qm.fit(other, throughputs=table).to_rows() == qm.fit(profile, throughputs=points).to_rows()
    assert qm.fit(table).to_rows() == qm.fit(points).to_rows()
    assert simulate(other, workers=2, steps=5).to_rows() == simulate(profile, workers=2, steps=5).to_rows()
    goal = {"instances": [qm.Instance("small", price=1.0)], "method": "mva", "throughput": 1.0}
    assert qm.plan_instances(other, **goal).to_rows() == qm.plan_instances(profile, **goal).to_rows()
    assert compare(other, workers=2).to_rows() == compare(profile, workers=2).to_rows()
    for verb in (predict, qm.fit, partial(simulate, workers=2), partial(compare, workers=2)):
        with pytest.raises(qm.DataError, match=r"nowhere\.json: cannot be read"):
            verb(kind("nowhere.json"))


def test_extra_measurements_take_profile_servers(tmp_path):
    two = msgspec.structs.replace(traced(), cluster=qm.Cluster(parameter_servers=2))
    (tmp_path / "t.csv").write_text("workers,steps_per_second\n1,2\n")
    found = [(one.workers, one.bandwidth, one.steps_per_second, one.parameter_servers)
             for one in further_measurements(two, [tmp_path / "t.csv"], [(4, None, 3.8), (8, 1e6, 1.5)])]  # fmt: skip
    assert found == [(1, None, 2.0, 1), (4, None, 3.8, 2), (8, 1e6, 1.5, 2)]


@pytest.mark.parametrize(
    ("settings", "least"),
    [({"strategy": "k-sync", "k": "3"}, 3), ({"strategy": "k-async", "k": "2"}, 2),
     ({"strategy": "sync-ps", "backup_workers": "1"}, 2), ({"strategy": "k-batch-async", "k": "3"}, 1)],
    ids=str,
)  # fmt: skip
def test_workload_speeds_are_predictions(tmp_path, settings, least):
    varied().save(tmp_path / "p.json")
    curve = curve_of(tmp_path / "p.json", 4, settings)
    asked = {name: text if name == "strategy" else int(text) for name, text in settings.items()}
    solved = {"method": "mva"} if settings["strategy"] == "k-batch-async" else {}
    truth = predict(varied(), workers=range(least, 5), **asked, **solved)
    assert curve.to_rows() == truth.to_rows()


def test_load_knows_both_files(tmp_path):
    traced().save(tmp_path / "p.json")
    table = "workers,steps_per_second\n1,2\n"
    for name in ("t.CSV", "t.txt", "t"):
        (tmp_path / name).write_text(table)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(table.encode()))
    assert isinstance(load(tmp_path / "p.json"), qm.Profile)
    for name in ("t.CSV", "t.csv.gz"):
        assert [*load(tmp_path / name)] == [qm.Measurement(workers=1, steps_per_second=2.0)]
    for name in ("t.txt", "t"):
        with pytest.raises(qm.DataError, match=f"{name}: not a profile; tables of measurements are read from a .csv"):
            load(tmp_path / name)


POINT = [qm.Measurement(workers=1, steps_per_second=1.0)]
SYNC = {"strategy": "sync-ps"}


@pytest.mark.parametrize(("asked", "match"), [
    ({"method": "magic"}, "method must be"), ({"method": "trace", "batch_size": 8}, "batch_size"),
    ({"method": "trace", "form": "single"}, "no form 'single'"),
    ({"throughputs": [(4, 3.8)]}, "expected a Profile or measurements, got int"),
    ({"congestion_control": "vegas"}, "congestion_control must be one of bbr"),
    ({"method": "mva", "parameter_servers": 2, "worker_speeds": [1.0, 0.1]}, "2 parameter servers"),
    ({"data": POINT, "method": "trace"}, "recorded operations"), ({"strategy": "k-sync"}, "needs k"),
    ({"strategy": "bounded-staleness"}, "needs staleness_bound"), ({"strategy": "k-sync", "k": 0}, "k must be"),
    ({"strategy": "k-sync", "k": 9}, "workers must be at least 9, got 2"),
    (SYNC | {"backup_workers": 2}, "workers must be at least 3, got 2"),
    (SYNC | {"backup_workers": -1}, "backup_workers must be"), (SYNC | {"k": 2}, "k applies to"),
    (SYNC | {"latency": 1e-3}, "latency applies to strategy 'all-reduce'"),
    (SYNC | {"transfer_order": "tic", "method": "mva"}, "transfer_order applies to the simulation only"),
    (SYNC | {"worker_speeds": [1.0, 0.5], "method": "mva"}, "no rule covers unequal workers"),
    (SYNC | {"data": POINT, "backup_workers": 1}, "recorded steps"),
    (SYNC | {"data": POINT, "parameter_servers": 2}, "parameter_servers requires a profile"),
    (SYNC | {"data": POINT, "latency": 2}, "latency applies to"),
    ({"data": POINT, "strategy": "k-async", "k": 2}, "recorded steps"),
    *(({"data": POINT} | more | told, f"{next(iter(told))} does not apply to|a profile with recorded")
      for more in ({}, {"strategy": "all-reduce"}, {"method": "trace"})
      for told in ({"congestion_control": "bbr"}, {"buffer": 0.0})),
    *((wrong | {"method": method}, next(iter(wrong)).split("_")[0])
      for method in ("mva", "trace")
      for wrong in (
          {"workers": 2.0}, {"workers": [0]}, {"workers": "8"}, {"workers": []}, {"confidence": 1.0}, {"seed": -1},
          {"seed": 1.5}, {"bandwidth": float("inf")}, {"bandwidth": 0}, {"accelerator_speed": float("nan")},
          {"parameter_servers": 2.0}, {"worker_speeds": [1.0, -1.0]},
      )),
])  # fmt: skip
def test_senseless_questions_are_one_line(asked, match):
    with pytest.raises(qm.ModelError, match=match):
        predict(**{"data": traced(bandwidth=1e7), "workers": [2]} | asked)


def test_contention_for_recorded_steps_only():
    profile = traced()
    cubic, bbr = (predict(profile, workers=[6], congestion_control=told, buffer=0.05) for told in ("cubic", "bbr"))
    assert bbr.at(6) < 0.97 * cubic.at(6)
    assert predict(profile, workers=[6], buffer=0.05).at(6) == pytest.approx(cubic.at(6))
    known = profile.with_network("bbr", 0.05)
    assert known.cluster == qm.Cluster(
        congestion_control="bbr", buffer=0.05, origins=dict.fromkeys(("congestion_control", "buffer"), "given")
    )
    analysed = [
        predict(one, workers=[6], method="mva", **network).to_rows()
        for one, network in ((profile, {"congestion_control": "bbr", "buffer": 0.05}), (known, {}), (profile, {}))
    ]
    assert analysed[0] == analysed[1] != analysed[2]


HALF = {
    "sync-ps": {}, "bounded-staleness": {"staleness_bound": 3}, "k-sync": {"k": 2}, "k-batch-sync": {"k": 2},
    "k-async": {"k": 2}, "k-batch-async": {"k": 2},
}  # fmt: skip


def varied():
    """Computation, the third operation, takes 0.4 to 0.6 s."""
    steps, step, replace = [], traced().steps[0], msgspec.structs.replace
    for by in (-0.1, 0.0, 0.1):
        later = [replace(o, start=o.start + by * (i > 2), end=o.end + by * (i >= 2))
                 for i, o in enumerate(step.operations)]  # fmt: skip
        steps.append(replace(step, step_time=0.81 + by, compute=0.5 + by, operations=later))
    return replace(traced(), steps=steps)


def test_strategies_keep_their_order():
    curves = {name: predict(varied(), workers=[4, 8], strategy=name, **numbers) for name, numbers in HALF.items()}
    free = predict(varied(), workers=[4, 8])
    X = {name: curve.steps_per_second for name, curve in curves.items()}
    assert np.all(X["sync-ps"] < X["bounded-staleness"])
    assert np.all(X["bounded-staleness"] < 1.02 * free.steps_per_second)
    np.testing.assert_allclose(X["k-batch-async"], free.steps_per_second)
    np.testing.assert_allclose(curves["k-batch-async"].iterations_per_second, free.steps_per_second / 2)
    np.testing.assert_allclose(curves["sync-ps"].iterations_per_second * [4, 8], X["sync-ps"])
    np.testing.assert_allclose(curves["k-sync"].iterations_per_second * 2, X["k-sync"])
    assert np.all(curves["k-sync"].iterations_per_second > curves["sync-ps"].iterations_per_second)
    backed = predict(varied(), workers=[4, 8], strategy="sync-ps", backup_workers=1)
    np.testing.assert_allclose(backed.iterations_per_second * [3, 7], backed.steps_per_second)
    assert np.isnan(curves["bounded-staleness"].iterations_per_second).all()
    for curve in curves.values():
        assert np.all(curve.lower < curve.steps_per_second)
        assert np.all(curve.steps_per_second < curve.upper)
        assert ("iterations_per_second" in curve.to_rows()[0]) == (curve is not curves["bounded-staleness"])


def test_methods_agree_on_a_barrier():
    """Where operations say no more than phases."""
    simulated, network = (predict(traced(), workers=[3], strategy="sync-ps", method=one) for one in ("auto", "mva"))
    assert "trace" in simulated.method
    assert simulated.at(3) == pytest.approx(network.at(3), rel=0.15)
    assert (simulated.synchronous, network.synchronous) == (True, True)
    assert simulated.single == pytest.approx(network.single, rel=0.02)
    speeds = {"worker_speeds": [1.0, 0.5, 2.0], "workers": [3], "method": "mva"}
    batched = predict(traced(), strategy="k-batch-async", k=3, **speeds)
    assert batched.iterations_per_second[0] == pytest.approx(predict(traced(), **speeds).at(3) / 3)


def test_slow_links_and_stragglers():
    """A slow link costs at most its worker; the curve takes the first workers of the list."""
    profile = example_profile("alexnet-60")
    ask = {"workers": [1, 2], "method": "trace", "seed": 1}
    fair, slow, late = (
        predict(profile, **ask, **more)
        for more in ({"worker_bandwidth": [7.2e6, 7.2e6]}, {"worker_bandwidth": [7.2e6, 1e6]},
                     {"straggler_probability": 0.5, "straggler_slowdown": 5.0})
    )  # fmt: skip
    assert slow.single == pytest.approx(fair.single)
    assert fair.single < slow.at(2) < 0.95 * fair.at(2)
    assert late.single < 0.8 * fair.single
    assert (slow.steps_per_second <= slow.bound_upper).all()
    with pytest.raises(qm.ModelError, match="worker_bandwidth must be 2 or more numbers"):
        predict(profile, **ask, worker_bandwidth=[1e6])
