"""One question, every method: which model answers, what the data may be, and answers that stand in known relations."""

import gzip
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import queuemodel as qm
from queuemodel import example_profile
from queuemodel.models import fit, further_measurements, load, predict, simulate
from queuemodel.models.closed_network import ClosedNetworkModel
from queuemodel.models.predict import MODELS
from queuemodel.queueing import ApproximateMVA, ExactMVA, solve
from queuemodel.sgd import compare
from tests.oracles.by_hand import profile_of, serial

SERVERS, RANKS = example_profile("alexnet-60"), example_profile("ddp-alexnet-40")


def traced(*computed, **known):
    """Steps of 0.81 s, or so much more, of 2 MB that are fetched in two tensors and 1 MB that is pushed."""
    steps = [serial(0.2, 0.5 + more, 0.1, 0.01, sizes=(1.5e6, 1e6)) for more in computed or [0.0] * 3]
    return profile_of(*([*one, qm.Operation("fetch", "w1", 0.0, 0.1, 500_000)] for one in steps), **known)


def points(*rates, **more):
    return [qm.Measurement(workers=n, steps_per_second=x, **more) for n, x in rates]


def test_assumed_strategy_comes_first():
    data = points((1, 2.0), (2, 3.9), (4, 6.0))
    curve = predict(data, workers=[1, 8])
    offers = qm.plan_instances(data, [qm.Instance("small", price=1.0)], workers=[1, 8], throughput=1.0)
    for result in (curve, curve.faster(2), fit(data).throughput([8]), qm.plan(curve, min_efficiency=0.5), offers):
        assert "asynchronous parameter servers (async-ps), not data-parallel (all-reduce)" in result.caption()
    given = predict(data, workers=[1, 8], strategy="async-ps")
    assert "assuming" not in given.caption() + given.note + fit(data, strategy="async-ps").caption()
    np.testing.assert_array_equal(given.steps_per_second, curve.steps_per_second)


def test_first_willing_model_answers():
    """Each for its own data; a closed network where it is asked for, or where nothing can be simulated."""
    table, four = points((1, 1.0), (4, 3.0)), traced(workers=4)
    every = [sum(not kind.refuses(data, qm.Scenario()) for kind in MODELS) for data in (SERVERS, RANKS, table)]
    assert every == [2, 1, 1]
    names = [type(predict(data, workers=[2]).model).__name__ for data in (SERVERS, RANKS, table)]
    assert names == ["SimulationModel", "AllReduceModel", "ScalingModel"]
    for data, asked in ((SERVERS, {"method": "mva"}), (SERVERS, {"batch_size": 8}), (four, {})):
        assert isinstance(predict(data, workers=[2], **asked).model, ClosedNetworkModel)
    assert predict(traced(), workers=[1, 2], form="single").stations == ("parameter server",)
    assert predict(four, workers=[4]).at(4) == pytest.approx(4 / 0.81)
    with pytest.raises(qm.ModelError, match="profile of one worker"):
        predict(four, method="trace")


@dataclass(frozen=True)
class Halved:
    """A new solver in one file: exact, but for service demands, which it halves."""

    def solve(self, network, population):
        queues = [s if s.servers > 1 else type(s)(s.name, service_time=s.service_time / 2) for s in network.stations]
        return solve(type(network)(queues), population=population)


def test_a_solver_reaches_predictions():
    counts, network = [1, 4, 16], fit(SERVERS).network()
    for solver in (ExactMVA(), ApproximateMVA(), Halved()):
        curve = predict(SERVERS, workers=counts, method=solver)
        found = [solve(network, population=n, solver=solver).throughput for n in counts]
        assert curve.steps_per_second == pytest.approx(found)
        assert np.all((curve.lower < curve.steps_per_second) & (curve.steps_per_second < curve.upper))
        assert type(solver).__name__ in curve.method
    assert curve.at(1) > 1.05 * predict(SERVERS, workers=[1], method=ExactMVA()).at(1)


@pytest.mark.parametrize("method", ["auto", "mva"])
@pytest.mark.parametrize("own", [{"bandwidth": 1e7}, {"parameter_servers": 1}, {"batch_size": 1}])
def test_profiled_values_are_no_change(method, own):
    profile, asked = traced(bandwidth=1e7), {"workers": [1, 4], "method": method}
    on_own_links = points((4, 3.8), bandwidth=own.get("bandwidth"))
    before, plain = (predict(profile, **asked, throughputs=some) for some in ([], points((4, 3.8))))
    inside = msgspec.structs.replace(profile, throughputs=points((4, 3.8)))
    for curve in (predict(profile, **asked, throughputs=on_own_links, **own), predict(inside, **asked, **own)):
        assert curve.to_rows() == plain.to_rows()
        assert (curve.method, curve.profiled_workers) == (plain.method, 4)
    assert plain.at(4) < before.at(4)
    assert plain.lower[1] <= 3.8 <= plain.upper[1]
    assert predict(profile, **asked, throughputs=on_own_links, bandwidth=1.2e7).at(4) > plain.at(4)


@pytest.mark.parametrize("own", [
    {"bandwidth": 5e6}, {"batch_size": 32}, {"accelerator_speed": 1.0}, {"collective": "ring"}, {"accumulation": 1},
    {"ranks_per_node": 1},
])  # fmt: skip
def test_recorded_values_are_no_change(own):
    plain, named, other = (predict(RANKS, workers=[1, 2, 4], **asked) for asked in ({}, own, {"bandwidth": 5.1e6}))
    assert named.to_dict() == plain.to_dict()
    assert (named.profiled_workers, other.profiled_workers) == (2, 0)
    assert other.upper[0] > plain.upper[0]


#: One of each way in which `compare` knows the seconds of a step on servers.
TIMED = {"workers": 4, "strategies": ["sync", "top-k", "k-sync", "async-ps"]}


@pytest.mark.parametrize(("profile", "asked"), [(SERVERS, TIMED), (RANKS, {"workers": 4})])
def test_comparison_may_name_recorded_values(profile, asked):
    own = {"bandwidth": profile.cluster.bandwidth, "accelerator_speed": 1.0, "batch_size": 32}
    plain, none, named = (compare(profile, **asked, **told).to_rows() for told in ({}, {"bandwidth": None}, own))
    assert plain == none == named


@pytest.mark.parametrize("verb", [predict, fit, simulate])
@pytest.mark.parametrize("data", [None, 3, b"profile.json", fit(traced())])
def test_other_data_is_refused_everywhere(verb, data):
    with pytest.raises(qm.ModelError, match=f"expected a Profile.*got {type(data).__name__}"):
        verb(data, **({"workers": 2} if verb is not fit else {}))


@pytest.mark.parametrize("kind", [str, Path])
def test_paths_stand_for_their_files(tmp_path, kind):
    profile, other, table = traced(bandwidth=1e7), kind(tmp_path / "p.json"), kind(tmp_path / "t.csv")
    profile.save(other)
    Path(table).write_text("workers,steps_per_second\n1,1\n4,3.8\n")
    rows, asked = points((1, 1.0), (4, 3.8)), {"workers": [1, 4], "method": "mva"}
    for throughputs in (table, [table], (one for one in [table])):
        curve = predict(other, **asked, throughputs=throughputs)
        assert curve.to_rows() == predict(profile, **asked, throughputs=rows).to_rows()
    assert fit(other, throughputs=table).to_rows() == fit(profile, throughputs=rows).to_rows()
    goal = {"instances": [qm.Instance("small", price=1.0)], "method": "mva", "throughput": 1.0}
    verbs = [partial(predict, workers=[8]), fit, partial(simulate, workers=2, steps=5), partial(compare, workers=2),
             partial(qm.plan_instances, **goal)]  # fmt: skip
    for verb in verbs:
        assert verb(other).to_rows() == verb(profile).to_rows()
        with pytest.raises(qm.DataError, match=r"nowhere\.json: cannot be read"):
            verb(kind("nowhere.json"))
    for verb in verbs[:2]:
        assert verb(table).to_rows() == verb(rows).to_rows()


def test_a_table_needs_no_reading_first():
    """A dict of columns, records and a frame are the same table; so are measurements beside data."""
    pd = pytest.importorskip("pandas")
    columns = {"nodes": [1, 2, 4], "gpus": [8, 16, 32], "step_time": [0.312, 0.34, 0.371]}
    records = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    found = [predict(data, workers=[64]).at(64) for data in (columns, records, pd.DataFrame(columns))]
    assert found == pytest.approx([predict(qm.read_measurements(columns), workers=[64]).at(64)] * 3)
    besides = {"workers": [4], "steps_per_second": [4.0]}
    asked = (besides, pd.DataFrame(besides), points((4, 4.0)))
    given, frame, truth = (predict(RANKS, workers=[8], throughputs=one).at(8) for one in asked)
    assert given == frame == pytest.approx(truth)


def test_extra_measurements_take_profile_servers(tmp_path):
    (tmp_path / "t.csv").write_text("workers,steps_per_second\n1,2\n")
    given = further_measurements(traced(servers=2), [tmp_path / "t.csv"], [(4, None, 3.8), (8, 1e6, 1.5)])
    found = [(one.workers, one.bandwidth, one.steps_per_second, one.parameter_servers) for one in given]
    assert found == [(1, None, 2.0, 1), (4, None, 3.8, 2), (8, 1e6, 1.5, 2)]


def test_load_knows_both_files(tmp_path):
    traced().save(tmp_path / "p.json")
    table = b"workers,steps_per_second\n1,2\n"
    for name in ("t.CSV", "t.csv.gz", "t.txt", "t"):
        (tmp_path / name).write_bytes(gzip.compress(table) if name.endswith("gz") else table)
    assert isinstance(load(tmp_path / "p.json"), qm.Profile)
    for name in ("t.CSV", "t.csv.gz"):
        assert [*load(tmp_path / name)] == points((1, 2.0))
    for name in ("t.txt", "t"):
        with pytest.raises(qm.DataError, match=f"{name}: not a profile; tables of measurements are read from a .csv"):
            load(tmp_path / name)


POINT, SYNC = points((1, 1.0)), {"strategy": "sync-ps"}


@pytest.mark.parametrize(("asked", "match"), [
    ({"method": "magic"}, "method must be one of auto, trace, mva"), ({"method": ExactMVA}, "solver value"),
    (SYNC | {"method": ExactMVA()}, "equal asynchronous workers"),
    ({"method": ExactMVA(), "strategy": "all-reduce"}, "needs a profile with recorded steps"),
    ({"method": "trace", "batch_size": 8}, "batch_size"),
    ({"method": "trace", "form": "single"}, "no form 'single'"), ({"form": "other"}, "form must be"),
    ({"parameter_bytes": 64}, "applies to throughputs of"),
    ({"throughputs": [(4, 3.8)]}, "expected a Profile or measurements, got int"),
    ({"congestion_control": "vegas"}, "congestion_control must be one of bbr"),
    ({"method": "mva", "parameter_servers": 2, "worker_speeds": [1.0, 0.1]}, "2 parameter servers"),
    ({"method": "mva", "parameter_servers": 2, "shards": [1, 1, 1]}, "shards"),
    ({"method": "mva", "parameter_servers": 3}, "at most the number of tensors, 2, got 3"),
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
    ({"worker_bandwidth": [1e6]}, "2 or more numbers"),
    ({"data": POINT, "strategy": "k-async", "k": 2}, "recorded steps"),
    *(({"data": POINT} | more | told, f"{next(iter(told))} does not apply to|a profile with recorded")
      for more in ({}, {"strategy": "all-reduce"}, {"method": "trace"})
      for told in ({"congestion_control": "bbr"}, {"buffer": 0.0})),
    *((wrong | {"method": method}, next(iter(wrong)).split("_")[0])
      for method in ("mva", "trace")
      for wrong in (
          *({"workers": n} for n in (2.0, 0, [0], "8", ["1"], [], [-1], [2, 1], [1, 1], [1.5], [True], [10**9])),
          {"confidence": 1.0}, {"seed": -1}, {"seed": 1.5}, {"bandwidth": float("inf")}, {"bandwidth": 0},
          {"accelerator_speed": float("nan")}, {"parameter_servers": 2.0}, {"worker_speeds": [1.0, -1.0]},
      )),
])  # fmt: skip
def test_senseless_questions_are_one_line(asked, match):
    with pytest.raises(qm.ModelError, match=match):
        predict(**{"data": traced(bandwidth=1e7), "workers": [2]} | asked)


HALF = {
    "sync-ps": {}, "bounded-staleness": {"staleness_bound": 3}, "k-sync": {"k": 2}, "k-batch-sync": {"k": 2},
    "k-async": {"k": 2}, "k-batch-async": {"k": 2},
}  # fmt: skip


def test_strategies_keep_their_order():
    one = partial(predict, traced(-0.1, 0.0, 0.1), workers=[4, 8])
    curves = {name: one(strategy=name, **numbers) for name, numbers in HALF.items()}
    free, X = one(), {name: curve.steps_per_second for name, curve in curves.items()}
    assert np.all(X["sync-ps"] < X["bounded-staleness"])
    assert np.all(X["bounded-staleness"] < 1.02 * free.steps_per_second)
    np.testing.assert_allclose(X["k-batch-async"], free.steps_per_second)
    backed = one(strategy="sync-ps", backup_workers=1)
    for curve, steps in ((curves["k-batch-async"], 2), (curves["sync-ps"], [4, 8]), (curves["k-sync"], 2),
                         (backed, [3, 7])):  # fmt: skip
        np.testing.assert_allclose(curve.iterations_per_second * steps, curve.steps_per_second)
    assert np.all(curves["k-sync"].iterations_per_second > curves["sync-ps"].iterations_per_second)
    assert np.isnan(curves["bounded-staleness"].iterations_per_second).all()
    for name, curve in curves.items():
        assert np.all((curve.lower < curve.steps_per_second) & (curve.steps_per_second < curve.upper))
        assert ("iterations_per_second" in curve.to_rows()[0]) == (name != "bounded-staleness")


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


# Pairs of questions whose answers stand in a known relation: other units, another order, what undoes itself

STRATEGIES = {"async-ps": {}, "sync-ps": {}, "k-batch-async": {"k": 2}}
CHANGES = [{}, {"parameter_servers": 3}, {"accelerator_speed": 2.5}, {"batch_size": 7}, {"bandwidth": 0.7}]


@st.composite
def profiles(draw):
    """Steps whose phases vary and overlap, on links of 1 MB/s.

    Told cubic: what BBR may make of buffers has a clock of its own.
    """
    fetch, compute, push, update = (draw(st.floats(0.05, 2.0)) for _ in range(4))
    overlap = draw(st.floats(0.0, 0.9)) * min(fetch + push, compute)
    jitter = np.random.default_rng(draw(st.integers(0, 2**32))).uniform(0.9, 1.1, draw(st.integers(1, 6)))
    steps = [
        qm.Step(
            step_time=1.1 * (fetch + compute + push + update - overlap), fetch=by * fetch, compute=compute / by,
            push=push, update=update * by, fetched_bytes=round(9e5 * fetch), pushed_bytes=round(7e5 * push),
        )
        for by in jitter.tolist()
    ]  # fmt: skip
    job = qm.Job(batch_size=32, parameter_bytes=10**6, tensors=4)
    cluster = qm.Cluster(bandwidth=1e6, congestion_control="cubic")
    return qm.Profile(source=qm.Source(framework="test"), cluster=cluster, job=job, steps=steps)


def in_other_units(profile, *, seconds, size):
    """The same steps, as many times as long, with as many times the bytes."""
    times = ("step_time", "fetch", "compute", "push", "update", "overlap")
    factors = dict.fromkeys(times, seconds) | dict.fromkeys(("fetched_bytes", "pushed_bytes"), size)
    changed = ({name: by * getattr(step, name) for name, by in factors.items()} for step in profile.steps)
    steps = [msgspec.structs.replace(step, **one) for step, one in zip(profile.steps, changed, strict=True)]
    cluster = msgspec.structs.replace(profile.cluster, bandwidth=profile.cluster.bandwidth * size / seconds)
    return msgspec.structs.replace(profile, cluster=cluster, steps=steps)


def asked(profile, strategy, change, workers):
    change = {k: v * profile.cluster.bandwidth if k == "bandwidth" else v for k, v in change.items()}
    return predict(profile, workers=workers, strategy=strategy, method="mva", **STRATEGIES[strategy], **change)


@settings(max_examples=40)
@given(profiles(), st.sampled_from(sorted(STRATEGIES)), st.sampled_from(CHANGES), st.sampled_from([0.01, 8.0]))
def test_units_of_time_and_bytes_cancel(profile, strategy, change, seconds):
    curve = asked(profile, strategy, change, [2, 3, 8])
    other = asked(in_other_units(profile, seconds=seconds, size=5), strategy, change, [2, 3, 8]).faster(seconds)
    for name in ("steps_per_second", "lower", "upper", "bound_lower", "bound_upper", "residence_time", "utilization"):
        np.testing.assert_allclose(getattr(other, name), getattr(curve, name), rtol=1e-6, atol=1e-9)
    assert (other.bottleneck, other.single) == (curve.bottleneck, pytest.approx(curve.single))
    assert other.saturation_workers == pytest.approx(curve.saturation_workers)
    plans = [qm.plan(one, throughput=0.7 * curve.examples_per_second[-1]).choices[0].workers for one in (curve, other)]
    assert plans[0] == plans[1]


@settings(max_examples=20)
@given(profiles(), st.sampled_from(sorted(STRATEGIES)), st.data())
def test_order_of_steps_does_not_matter(profile, strategy, data):
    curve = asked(profile, strategy, {}, [2, 3, 8, 40])
    steps = data.draw(st.permutations(profile.steps))
    shuffled = asked(msgspec.structs.replace(profile, steps=steps), strategy, {}, [2, 3, 8, 40])
    np.testing.assert_allclose(shuffled.steps_per_second, curve.steps_per_second, rtol=1e-9)
    alone = asked(profile, strategy, {}, 8)
    for name in ("steps_per_second", "lower", "upper", "bound_lower", "bound_upper"):
        np.testing.assert_allclose(getattr(alone, name)[0], getattr(curve, name)[2], rtol=1e-9)


def test_inverse_accelerator_factors_cancel():
    model = fit(RANKS)
    faster, squared = (model.what_if(accelerator_speed=one) for one in (0.3, 0.3 * 0.3))
    for one, other in ((1 / 0.3, model), (0.3, squared)):
        assert faster.what_if(accelerator_speed=one).throughput([1, 4]).to_dict() == other.throughput([1, 4]).to_dict()


def test_unknown_bytes_compare_without_links():
    steps = [msgspec.structs.replace(one, fetched_bytes=0, pushed_bytes=0, operations=[]) for one in SERVERS.steps]
    result = compare(msgspec.structs.replace(SERVERS, steps=steps), workers=4)
    assert "step's bytes are unknown" in result.caption()
    rows = {row["strategy"]: row["steps_per_second"] for row in result.to_rows()}
    assert rows["top-k"] == pytest.approx(rows["sync"], rel=0.01)
