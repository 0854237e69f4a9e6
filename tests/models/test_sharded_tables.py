"""Tables of sharded jobs: closed forms of the law, knees drawn from it, what narrows them, and refusals."""

from dataclasses import replace

import numpy as np
import pytest

import queuemodel as qm
from queuemodel.models.scaling import Prior, ScalingData, Sizes, fit_scaling
from queuemodel.models.scaling.law import synchronous
from queuemodel.models.scaling.prior import of_gathers
from queuemodel.profile.gathers import Gather, read_gathers
from queuemodel.profile.scenario import SHARDED

NOTHING = {name: np.zeros((1, 1)) for name in ("straggling", "inside a node", "gather", "latency")}
SHARE = {"forward share": np.full((1, 1), 1 / 3)}
NODES = [1, 2, 4, 8, 16, 64]


def placed(nodes, step_time, gpus_per_node=8, batch_size=8, **more):
    n = nodes * gpus_per_node
    return qm.Measurement(workers=n, nodes=nodes, batch_size=batch_size, steps_per_second=n / step_time, **more)


def law(strategy, compute=1.0, gpus_per_node=8, **values):
    x = Sizes.of([placed(k, 1.0, gpus_per_node) for k in NODES])
    given = {name.replace("_", " "): np.full((1, 1), value) for name, value in values.items()}
    return synchronous(NOTHING | SHARE | given, x, np.full((1, len(NODES)), compute), strategy)[0]


def rates(model, rows):
    return np.exp(model.point(model.draws(Sizes.of(rows))))


@pytest.mark.parametrize("strategy", SHARDED)
def test_gathers_are_hidden_or_exposed(strategy):
    """Far below computation the step is computation; without any it is the sum of what is sent."""
    V, a, k = 0.8, 0.003, np.array(NODES[1:])
    across, nodes_alone = V * (1 - 1 / k) + a * (8 * k - 1), V * (1 - 1 / k) + a * (k - 1)
    inside = 0.1 * 7 / 8 + a / 4 * 7
    sent = {"fsdp": 3 * across, "zero-1": 2 * across, "hsdp": 3 * inside + 2 * nodes_alone}[strategy]
    values = {"gather": V, "latency": a, "inside_a_node": 0.1}
    assert law(strategy, compute=1e-9, **values)[1:] == pytest.approx(sent)
    assert law(strategy, compute=100.0, **values)[1:] == pytest.approx(np.full(len(k), 100.0), rel=1e-3)


@pytest.mark.parametrize("strategy", SHARDED)
def test_rows_are_reproduced(strategy):
    rows = [placed(k, t) for k, t in zip(NODES, law(strategy, gather=0.1, latency=4e-4), strict=True)]
    model = fit_scaling(rows, strategy=strategy)
    np.testing.assert_allclose(rates(model, rows), [m.steps_per_second for m in rows], rtol=0.03)
    other = fit_scaling([*rows[:-1], placed(64, 3.0)], strategy=strategy)
    assert rates(other, rows)[-1] < 0.9 * rates(model, rows)[-1]


@pytest.mark.slow
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("reach", [2, 32])
def test_knees_cover_those_of_the_law(known, reach):
    rng, inside, width = np.random.default_rng(3), [], []
    prior = Prior.sharded("fsdp", parameters=7e9 if known else None)
    for _ in range(120):
        rows = [placed(k, 2.0) for k in (1, 2, 4, 8, 16, 32) if k <= reach]
        truth = ScalingData([rows[0]], prior)
        u = rng.standard_normal((1, len(prior.coordinates)))
        log_t = np.log(2.0) + truth.relative(u, Sizes.of(rows))[0]
        noise = np.hypot(0.02, truth.values(u)["misfit"][0, 0]) * rng.standard_t(4, len(rows))
        fitted = fit_scaling([placed(m.nodes, t) for m, t in zip(rows, np.exp(log_t + noise), strict=True)],
                             strategy="fsdp", prior=prior)  # fmt: skip
        exact = replace(fitted, table=truth, coordinates=u, levels=np.log([[2.0]])).knee[0]
        low, high = np.quantile(fitted.knee, [0.05, 0.95], method="nearest")
        inside.append(low <= exact <= high)
        width.append(np.log(min(high, 1e5) / low))
    assert 0.83 <= np.mean(inside) <= 0.98
    assert np.mean(width) > 0.1


def test_gathers_narrow_the_knee():
    true = {"gather": -np.log(40e9), "latency": np.log(30e-6)}
    curve = [Gather(b, k, b / 40e9 * (1 - 1 / k) + 30e-6 * (8 * k - 1)) for b in (1e6, 1e8, 1e9) for k in (2, 8, 32)]
    for name, (mean, spread) in of_gathers(curve, 8).items():
        assert mean == pytest.approx(true[name], abs=0.25)
        assert spread < 0.5
    step = law("fsdp", compute=2.4, gather=2 * 7e9 / 40e9, latency=32 * 30e-6)
    rows = [placed(k, t) for k, t in zip(NODES, step, strict=True)]
    known = {"strategy": "fsdp", "parameters": 7e9, "layers": 32}
    late = [one._replace(seconds=10 * one.seconds) for one in curve]
    alone, by_curve, by_job, slow = (
        fit_scaling(rows[:1], gathers=some, **known) for some in ((), curve, fit_scaling(rows, **known), late)
    )
    exact = np.interp(1 / 0.9, step / step.min(), NODES)
    ends = [np.quantile(model.knee, [0.05, 0.95]) for model in (alone, by_curve, by_job)]
    assert all(low < exact < high for low, high in ends)
    wide, *narrow = [high / low for low, high in ends]
    assert max(narrow) < 0.5 * wide
    assert ["not identified" in model.note for model in (alone, by_curve)] == [True, False]
    assert np.median(slow.knee) < 0.5 * np.median(by_curve.knee)


@pytest.mark.parametrize("strategy", SHARDED)
def test_step_is_computation_and_exposed_transfers(strategy):
    """Hardly anything at first; all that is sent in the end, of which gathers are a third in fsdp."""
    step = law(strategy, gather=0.02, latency=2e-2 if strategy == "hsdp" else 2e-3, inside_a_node=1e-3)
    model = fit_scaling([placed(k, t) for k, t in zip(NODES, step, strict=True)], strategy=strategy)
    curve = model.throughput([8, 32, 9600])
    parts = np.column_stack([curve.think_time, curve.residence_time])
    np.testing.assert_allclose(parts.sum(axis=1), curve.workers / curve.steps_per_second)
    shares = parts / parts.sum(axis=1, keepdims=True)
    assert shares[0, 0] > 0.95
    assert shares[2, 0] < 0.2
    assert curve.bottleneck == ("gathers" if strategy == "zero-1" else "reductions")
    gathers = {"fsdp": 1 / 3, "zero-1": 1 / 2, "hsdp": 0.0}[strategy]
    assert curve.utilization[2, 0] == pytest.approx(gathers, abs=0.05)


def test_measured_knee_is_identified():
    step = law("fsdp", gather=0.05, latency=1e-3)
    model = fit_scaling([placed(k, t) for k, t in zip(NODES, step, strict=True)], strategy="fsdp")
    knee = model.parameters[-1]
    assert (knee.name, knee.unit, knee.identified) == ("knee", "nodes", True)
    assert knee.value == pytest.approx(np.interp(np.log(1 / 0.9), np.log(step), NODES), rel=0.5)
    assert f"knee (10 % per GPU lost) on {knee.value:.0f} nodes" in model.note


def test_small_job_has_no_knee():
    small = fit_scaling([placed(k, 1000.0) for k in (1, 2)], strategy="fsdp", parameters=1e6, layers=2)
    assert small.parameters[-1].to_row()["value"] is None
    assert "on over 16,384 nodes" in small.note


def test_table_of_tokens_gives_curve(tmp_path):
    text = "nodes,gpus_per_node,tokens_per_second_per_gpu\n2,8,9000\n4,8,8950\n16,8,7400\n"
    (tmp_path / "job.csv").write_text(text)
    curve = qm.predict(tmp_path / "job.csv", strategy="fsdp", workers=[16, 32, 128])
    assert curve.steps_per_second == pytest.approx([16 * 9000, 32 * 8950, 128 * 7400], rel=0.04)
    assert curve.method == "fsdp on nodes of 8 GPUs (fitted table)"
    with pytest.raises(qm.ModelError, match="parameters needs the seconds of a step; give batch_size"):
        qm.predict(tmp_path / "job.csv", strategy="fsdp", parameters=7e9, workers=[16])


def test_fewer_bytes_move_the_knee():
    rows = [placed(1, 2.0), placed(2, 2.02)]
    knees = [np.median(qm.fit(rows, strategy="fsdp", parameters=70e9, precision=p).knee) for p in ("bf16", "fp32")]
    assert knees[0] > knees[1]


@pytest.mark.parametrize(("name", "said"), [
    *((name, "did you mean 'fsdp'") for name in ("fsdp1", "fsdp2", "zero3", "zero-3", "deepspeed", "FSDP")),
    *((name, "did you mean 'zero-1'") for name in ("zero1", "zero2", "zero-2")),
    ("zero", "give fsdp for stage 3, zero-1 for stages 1 and 2"),
])  # fmt: skip
def test_other_names_of_strategies(name, said):
    with pytest.raises(qm.ModelError, match=said):
        qm.Scenario(strategy=name)


@pytest.mark.parametrize("strategy", SHARDED)
@pytest.mark.parametrize("profile", ["alexnet-60", "ddp-alexnet-40"])
def test_server_profiles_give_no_shards(strategy, profile):
    for ask in (qm.predict, qm.fit):
        with pytest.raises(qm.ModelError, match=f"{strategy}.* needs a table of step times or rates"):
            ask(qm.example_profile(profile), strategy=strategy)


@pytest.mark.parametrize(("asked", "said"), [
    ({"parameters": 7e9}, "parameters applies to throughputs of fsdp"),
    ({"strategy": "fsdp", "sparse_gradients": True}, "sparse_gradients applies to throughputs of sync-ps"),
    ({"strategy": "fsdp", "parameters": 0}, "parameters must be finite and > 0"),
    ({"strategy": "fsdp", "precision": "fp32"}, "precision requires parameters; give both"),
    ({"strategy": "fsdp", "precision": "int4"}, "precision must be one of bf16, fp16, fp32"),
    ({"strategy": "fsdp", "gathers": "none.csv"}, "none.csv: cannot be read"),
    ({"strategy": "fsdp", "gathers": 3}, "gathers must be a CSV of all-gathers, or the model of another"),
    ({"strategy": "fsdp", "parameters": 1e9, "gathers": qm.fit([placed(1, 1.0)])}, "the other job must be sharded"),
    ({"strategy": "hsdp", "parameter_servers": 2}, "parameter_servers applies to training on parameter servers"),
    ({"strategy": "fsdp", "bandwidth": "10Gbit/s"}, "bandwidth is not a change of a table"),
])  # fmt: skip
def test_options_of_others_are_refused(asked, said):
    with pytest.raises(qm.QueueModelError, match=said):
        qm.predict([placed(1, 1.0), placed(2, 1.1)], workers=[8], **asked)


@pytest.mark.parametrize(("text", "said"), [
    ("bytes,nodes,time_us\n1000,1,5\n", "must be of 2 nodes or more"),
    ("bytes,nodes,time_us\n1000,2,0\n", "line 2: time_us must be finite and > 0"),
    ("size,nodes,time_us\n1000,2,9\n", "column 'bytes' is missing"), ("bytes,nodes,time\n1000,2,9\n", "has no unit"),
])  # fmt: skip
def test_bad_all_gathers_are_refused(tmp_path, text, said):
    (tmp_path / "gathers.csv").write_text(text)
    with pytest.raises(qm.DataError, match=said):
        read_gathers(tmp_path / "gathers.csv")
