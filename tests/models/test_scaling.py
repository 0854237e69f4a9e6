"""The model of tables: what made the data is recovered and covered; small tables as in reports; sharded jobs."""

import re
from dataclasses import replace

import numpy as np
import pytest

import queuemodel as qm
from queuemodel.base.errors import FitError
from queuemodel.curves import plot_efficiency
from queuemodel.models.scaling import Prior, ScalingData, Sizes, fit_scaling
from queuemodel.models.scaling.fit import temper
from queuemodel.models.scaling.law import synchronous
from queuemodel.models.scaling.prior import PRIOR_NUMBERS, of_gathers
from queuemodel.profile.gathers import Gather, read_gathers
from queuemodel.profile.measurements import Measurement
from queuemodel.profile.scenario import SHARDED


def group(workers, rate=1.0, **more):
    return Measurement(workers=workers, steps_per_second=rate, **more)


def placed(nodes, gpus_per_node, step_time=1.0, batch_size=32, **more):
    n = nodes * gpus_per_node
    return group(n, n / step_time, nodes=nodes, gpus_per_node=gpus_per_node, batch_size=batch_size, **more)


def rates(model, wanted):
    return np.exp(model.point(model.draws(Sizes.of(wanted))))


def interval(model, wanted, seed=0):
    rng, x = np.random.default_rng(seed), Sizes.of(wanted)
    draws = model.draws(x)
    noisy = draws + model.error(x, rng) * rng.standard_normal(draws.shape)
    return np.exp(np.quantile(noisy, [0.05, 0.95], axis=1))


def of(model, name):
    return next(p for p in model.parameters if p.name == name)


TWO_NODES = [placed(1, 1, 1.0), placed(1, 4, 1.25), placed(2, 8, 1.36)]  # cases/c01


# The sampler against a posterior in closed form.


@pytest.mark.parametrize("error", [0.5, 0.02])
def test_temper_recovers_a_normal_posterior(error):
    u = np.random.default_rng(0).standard_normal((1000, 2))
    at = 1.0  # prior N(0, 1), one measurement of the first coordinate
    u, _ = temper(lambda v: -0.5 * ((v[:, 0] - at) / error) ** 2, u, np.random.default_rng(1), kept=0.5, moves=6)
    spread = (1 + error**-2) ** -0.5
    assert u[:, 0].mean() == pytest.approx(at * (spread / error) ** 2, abs=0.15 * spread)
    assert u[:, 0].std() == pytest.approx(spread, rel=0.1)
    assert u[:, 1].std() == pytest.approx(1.0, rel=0.15)


@pytest.mark.parametrize(("rows", "wanted", "fits", "least"), [
    (TWO_NODES, placed(8, 8), 12, 100), ([group(1, 1.0), group(2, 1.6), group(4, 2.5)], group(64), 12, 100),
    ([group(2, 2.0), group(4, 4 / 3), group(6, 1.0)], group(12), 4, 30),  # that no published job is like: sampled again
], ids=["nodes", "workers", "unlike"])  # fmt: skip
def test_effective_draws_by_independent_fits(rows, wanted, fits, least):
    models = [fit_scaling(rows, strategy="all-reduce", seed=seed) for seed in range(fits)]
    draws = np.array([model.draws(Sizes.of([wanted]))[0] for model in models])
    assert draws.var(axis=1).mean() / draws.mean(axis=1).var(ddof=1) > least
    assert min(model.effective_draws for model in models) >= 30
    assert "few draws" not in models[0].note
    assert "few draws fit (9 lineages)" in replace(models[0], effective_draws=9.0).note  # control


# Data drawn from the model's own law.


def drawn(prior, fitted, wanted, rng):
    """Rates of both, drawn from the prior and its errors, and the coordinates of the law."""
    table = ScalingData(fitted, prior)
    u = rng.standard_normal((1, len(prior.coordinates)))
    x, freedom, misfit = Sizes.of([*fitted, *wanted]), PRIOR_NUMBERS["freedom"], float(table.values(u)["misfit"][0, 0])
    doublings = np.log2([m.workers / fitted[-1].workers for m in wanted])
    beyond = np.sqrt(misfit**2 * (1 + prior.drift**2 * doublings) + PRIOR_NUMBERS["noise"] ** 2)
    off = np.concatenate([table.scale(table.values(u))[0], beyond]) * rng.standard_t(freedom, len(x.workers))
    rate = x.workers * np.exp(-table.relative(table.values(u), x)[0] - off)
    made = [group(m.workers, float(r), nodes=m.nodes) for m, r in zip([*fitted, *wanted], rate, strict=True)]
    return made[: len(fitted)], made[len(fitted) :]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["all-reduce", "sync-ps", "async-ps", "fsdp", "hsdp"])
def test_intervals_cover_the_law(kind):
    rng, inside = np.random.default_rng(5), []
    for _ in range(150):
        fitted, wanted = drawn(Prior.of(kind), [group(2), group(4), group(8)], [group(16), group(64)], rng)
        low, high = interval(fit_scaling(fitted, strategy=kind), wanted)
        rate = np.array([m.steps_per_second for m in wanted])
        inside.append((low <= rate) & (rate <= high))
    assert 0.85 <= np.mean(inside) <= 0.95


def test_parameters_are_recovered_from_precise_measurements():
    prior, x = Prior.of("all-reduce"), [(1, 1), (1, 2), (1, 8), (2, 1), (2, 8), (4, 8), (16, 8), (32, 1)]
    rows = [placed(k, g, b / 32, b) for k, g in x for b in (8, 32, 128)]
    table, u = ScalingData(rows, prior), np.full((1, len(prior.coordinates)), 0.5)
    seconds = np.exp(table.relative(table.values(u), Sizes.of(rows))[0]) * [m.batch_size / 32 for m in rows]
    rows = [placed(m.nodes, m.gpus_per_node, t, m.batch_size) for m, t in zip(rows, seconds, strict=True)]
    model = fit_scaling(rows, strategy="all-reduce")
    np.testing.assert_allclose(rates(model, rows), [m.steps_per_second for m in rows], rtol=0.03)
    truth = table.values(u)
    for name in ("inside a node", "between nodes", "forward share", "link sharing"):
        assert of(model, name).identified
        error = max(of(model, name).standard_error, 0.01)
        scale = table.reference if name.endswith(("node", "nodes")) else 1.0
        assert of(model, name).value == pytest.approx(truth[name].item() * scale, abs=3 * error)


def test_saturation_is_measured_where_it_shows():
    rows = [group(n, min(2.0 * n, 11.0)) for n in (1, 2, 4, 8, 16)]
    model = fit_scaling(rows, strategy="async-ps")
    assert of(model, "demand").identified
    assert of(model, "demand").value == pytest.approx(1 / 11, rel=0.08)
    assert np.median(model.saturation_workers) == pytest.approx(5.5, rel=0.1)
    assert not model.note


def test_order_of_rows_does_not_matter():
    wanted = [placed(1, 2), placed(4, 8)]
    one, other = (rates(fit_scaling(rows, strategy="all-reduce"), wanted) for rows in (TWO_NODES, TWO_NODES[::-1]))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("strategy", ["all-reduce", "sync-ps", "async-ps"])
@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0])
def test_contradictory_tables_have_finite_curves(strategy, spread):
    rng, x = np.random.default_rng(3), Sizes.of([placed(1, 1), placed(1, 8), placed(8, 8), placed(600, 8)])
    for rows in range(1, 7):
        seconds = np.exp(spread * rng.standard_normal(rows))
        sizes = [(int(k), int(g), int(b)) for k, g, b in zip(*rng.choice([1, 2, 8, 64], (3, rows)), strict=True)]
        table = [placed(k, g, t, b) for (k, g, b), t in zip(sizes, seconds, strict=True)]
        model = fit_scaling(table, strategy=strategy)
        assert np.isfinite(model.draws(x)).all()
        assert np.isfinite(interval(model, [placed(600, 8)])).all()
        assert all(np.isfinite([p.value, p.standard_error]).all() for p in model.parameters)
        assert model.effective_draws > 1
        if strategy == "async-ps":
            low, high = model.bounds(x)
            assert (low <= model.draws(x) + 1e-9).all()
            assert (model.draws(x) <= high + 1e-9).all()


def test_rates_above_the_link_are_refused():
    fast = [qm.Measurement(workers=n, steps_per_second=x, bandwidth=1.25e8) for n, x in ((1, 10.0), (2, 19.0))]
    with pytest.raises(FitError, match=r"transfers at 15.2 Gbit/s were faster than links of 1 Gbit/s"):
        qm.predict(fast, strategy="async-ps", parameter_bytes=1e8, workers=[4])
    assert qm.predict(fast, strategy="async-ps", parameter_bytes=1e6, workers=[4]).at(4) > 19


def test_no_measurement_is_refused():
    with pytest.raises(FitError, match="at least one measurement"):
        fit_scaling([], strategy="all-reduce")
    with pytest.raises(qm.ModelError, match="what is known of async-ps must be one of bytes, link, got 'layers'"):
        fit_scaling(TWO_NODES, strategy="async-ps", layers=3)


# Inputs that people have, with the right answers


def table(text, **asked):
    """A curve of rows of "nodes gpus step_time" or "workers rate", with a batch of 32."""
    rows = [tuple(map(float, line.split())) for line in text.strip().splitlines()]
    if len(rows[0]) == 3:
        points = [group(int(n), n / t, nodes=int(k), batch_size=32) for k, n, t in rows]
    else:
        points = [group(int(n), x) for n, x in rows]
    return qm.predict(points, **asked)


def test_unmeasured_growth_is_assumed():
    curve = table("1 1 1.0\n1 4 1.25\n2 16 1.36", workers=[16, 64], gpus_per_node=8)
    assert "growth beyond two nodes is estimated from published jobs" in curve.note
    assert {of(curve.model, name).origin for name in ("growth", "latency", "latency growth")} == {"assumed"}
    assert curve.at(16) == pytest.approx(16 / 1.36, rel=0.03)
    width = curve.upper[1] / curve.lower[1]
    assert width > max(1.4, curve.upper[0] / curve.lower[0])
    more = table("1 1 1.0\n1 4 1.25\n2 16 1.36\n8 64 1.5", workers=[64], gpus_per_node=8)
    assert "growth beyond" not in more.note
    assert more.upper[0] / more.lower[0] < 0.8 * width


def test_efficiency_relates_to_smallest_group():
    curve = table("8 50\n16 82", strategy="all-reduce", ranks_per_node=8, workers=[8, 16, 32])
    assert curve.efficiency[:2] == pytest.approx([1.0, 0.82], rel=0.02)
    assert curve.speedup[:2] == pytest.approx([1.0, 1.64], rel=0.02)
    assert curve.marginal_speedup[:2] == pytest.approx([1.0, 0.64], rel=0.05)  # in workers of the base
    assert plot_efficiency(curve).get_ylabel() == "efficiency over 1 node (%)"
    (choice,) = qm.plan(curve, min_efficiency=0.6).choices
    assert choice.workers_low < choice.workers_high
    assert choice.goal == "efficiency >= 0.6 over 1 node"
    one = table("1 8\n2 14", strategy="all-reduce", workers=[1, 2])  # control: a base of one worker is not named
    assert [(found.base, found.base_workers) for found in (curve, one)] == [("1 node", 8), ("", 1)]


def test_fast_growth_is_no_outlier():
    rows = qm.read_measurements({"workers": [2, 4, 6], "step_time": [1.0, 3.0, 6.0]})
    curve = qm.predict(rows, workers=[2, 4, 6, 8])
    assert "outlier" not in curve.note
    assert "faster than in most published jobs" in curve.note
    assert curve.steps_per_second[:3] == pytest.approx([2.0, 1.33, 1.0], rel=0.12)


def test_outliers_are_named():
    rows = [(1, 8, 1.0), (2, 16, 1.05), (8, 64, 1.15), (16, 128, 1.2)]
    alike, odd = ("\n".join(f"{k} {n} {t}" for k, n, t in [*rows, *more]) for more in ([], [(4, 32, 1.8)]))
    curve = table(odd, workers=[8, 32])
    assert curve.at(32) == pytest.approx(table(alike, workers=[32]).at(32), rel=0.04)  # it counts little
    assert re.search(r"4 nodes \(32 GPUs\), batch 32: -3\d % off the fit, an outlier", curve.note)
    noisy = [group(n, n / t) for _, n, t in rows] + [group(32, 32 / 1.6, standard_error=0.3 * 32 / 1.6)]
    assert "off the fit" not in qm.fit(noisy, strategy="all-reduce").note  # control: within its noise
    note = table("\n".join(f"{k} {8 * k} {1 + 0.4 * (k % 2)}" for k in range(1, 13)), workers=[8]).note
    assert note.count("off the fit") == 3
    assert re.search(r"\d+ more measurements off by up to \d+ %", note)


@pytest.mark.parametrize("rows", ["1 8 0.5\n2 16 0.55\n4 32 0.6", "2 16 0.55\n4 32 0.6", "1 8 0.5"], ids=len)
def test_whole_nodes_give_a_curve(rows):
    curve = table(rows, workers=[8, 16, 32, 64])
    assert np.all(np.diff(curve.steps_per_second) > 0)
    assert np.all((curve.lower < curve.steps_per_second) & (curve.steps_per_second < curve.upper))
    for nodes, gpus, seconds in (map(float, row.split()) for row in rows.splitlines()):
        assert curve.at(int(gpus)) == pytest.approx(gpus / seconds, rel=0.05), nodes


def test_smaller_parameters_are_never_slower():
    rates = [qm.predict([group(1, 0.5)], strategy="async-ps", parameter_bytes=size, workers=[1, 64]).at(64)
             for size in (1e7, 1e6, 1e5)]  # fmt: skip
    assert rates == sorted(rates)
    assert rates[-1] == pytest.approx(32, rel=0.05)


@pytest.mark.parametrize("strategy", ["async-ps", "sync-ps", "all-reduce"])
def test_standard_errors_weigh(strategy):
    def width(error):
        rows = [group(n, x, standard_error=error and error * x) for n, x in ((1, 2.0), (2, 3.7), (4, 6.0))]
        curve = qm.predict(rows, workers=[4], strategy=strategy)
        return np.log(curve.upper[0] / curve.lower[0])

    assert width(0.001) < width(None) < width(0.3)


@pytest.mark.parametrize("strategy", ["all-reduce", "fsdp"])
def test_halving_all_times_doubles_the_rate(strategy):
    rows = "8 64 {}\n16 128 {}\n32 256 {}"
    slow, fast = (table(rows.format(t, 1.4 * t, 1.7 * t), workers=[64, 512], strategy=strategy) for t in (0.5, 0.25))
    assert fast.steps_per_second == pytest.approx(2 * slow.steps_per_second, rel=0.02)
    assert fast.efficiency == pytest.approx(slow.efficiency, rel=0.02)


def test_extra_measurement_counts_as_row():
    asked = {"workers": [32], "batch_size": 32}
    before = table("1 1 1.0\n1 8 1.3\n2 16 1.5", **asked)
    after = table("1 1 1.0\n1 8 1.3\n2 16 1.5", throughputs=[group(32, before.at(32))], **asked)
    assert after.at(32) == pytest.approx(before.at(32), rel=0.03)
    assert after.upper[0] / after.lower[0] < before.upper[0] / before.lower[0]
    assert after.profiled_workers == 32


# Sharded jobs: closed forms of the law, knees drawn from it, what narrows them, and refusals

NOTHING = {name: np.zeros((1, 1)) for name in ("straggling", "inside a node", "gather", "latency")}
SHARE = {"forward share": np.full((1, 1), 1 / 3)}
NODES = [1, 2, 4, 8, 16, 64]


def eights(nodes, step_time, **more):
    """On nodes of eight GPUs, with a batch of eight."""
    return placed(nodes, 8, step_time, 8, **more)


def law(strategy, compute=1.0, **values):
    x = Sizes.of([eights(k, 1.0) for k in NODES])
    given = {name.replace("_", " "): np.full((1, 1), value) for name, value in values.items()}
    return synchronous(NOTHING | SHARE | given, x, np.full((1, len(NODES)), compute), strategy)[0]


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
    rows = [eights(k, t) for k, t in zip(NODES, law(strategy, gather=0.1, latency=4e-4), strict=True)]
    model = fit_scaling(rows, strategy=strategy)
    np.testing.assert_allclose(rates(model, rows), [m.steps_per_second for m in rows], rtol=0.03)
    other = fit_scaling([*rows[:-1], eights(64, 3.0)], strategy=strategy)
    assert rates(other, rows)[-1] < 0.9 * rates(model, rows)[-1]


@pytest.mark.slow
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("reach", [2, 32])
def test_knees_cover_those_of_the_law(known, reach):
    rng, inside, width = np.random.default_rng(3), [], []
    prior = Prior.sharded("fsdp", parameters=7e9 if known else None)
    for _ in range(120):
        rows = [eights(k, 2.0) for k in (1, 2, 4, 8, 16, 32) if k <= reach]
        truth = ScalingData([rows[0]], prior)
        u = rng.standard_normal((1, len(prior.coordinates)))
        log_t = np.log(2.0) + truth.relative(truth.values(u), Sizes.of(rows))[0]
        noise = np.hypot(0.02, truth.values(u)["misfit"][0, 0]) * rng.standard_t(4, len(rows))
        fitted = fit_scaling([eights(m.nodes, t) for m, t in zip(rows, np.exp(log_t + noise), strict=True)],
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
    rows = [eights(k, t) for k, t in zip(NODES, step, strict=True)]
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
    model = fit_scaling([eights(k, t) for k, t in zip(NODES, step, strict=True)], strategy=strategy)
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
    model = fit_scaling([eights(k, t) for k, t in zip(NODES, step, strict=True)], strategy="fsdp")
    knee = model.parameters[-1]
    assert (knee.name, knee.unit, knee.identified) == ("knee", "nodes", True)
    assert knee.value == pytest.approx(np.interp(np.log(1 / 0.9), np.log(step), NODES), rel=0.5)
    assert f"knee (10 % per GPU lost) on {knee.value:.0f} nodes" in model.note


def test_small_job_has_no_knee():
    small = fit_scaling([eights(k, 1000.0) for k in (1, 2)], strategy="fsdp", parameters=1e6, layers=2)
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


BATCHES = {16: 0.245, 32: 0.250, 64: 0.260}  # 0.24 s, and 0.3125 ms of each example


def of_batches(batches, wanted):
    """Seconds (low, median, high) of a step of eight GPUs with a wanted batch, from those with others."""
    curve = qm.predict([placed(1, 8, BATCHES[b], b) for b in batches], workers=[8], batch_size=wanted)
    return [8 / float(rate[0]) for rate in (curve.upper, curve.steps_per_second, curve.lower)]


def test_batches_outside_follow_those_inside():
    low, below, high = of_batches([32, 64], 16)
    assert low < 0.245 < high
    assert 0.19 < below < 0.250  # half the batch: far over half the time
    assert of_batches([16, 32, 64], 16)[1] == pytest.approx(0.245, rel=0.02)
    low, above, high = of_batches([16, 32, 64], 128)
    assert low < 0.280 < high
    assert above < 0.36
    assert of_batches([64], 128)[1] > 1.1 * above  # control: one batch tells of no slope
    linear = [placed(1, 8, b / 100, b) for b in (16, 32, 64)]
    curve = qm.predict(linear, workers=[8], batch_size=128)
    assert 8 / curve.at(8) == pytest.approx(1.28, rel=0.12)


def test_batch_bounds_grow_with_data():
    for batches, (least, most) in (([32], (4, 256)), ([32, 64], (4, 512)), ([16, 32, 64], (2, 512))):
        for size in (least, most):
            assert np.isfinite(of_batches(batches, size)).all()
        for size in (least - 1, most + 1):
            with pytest.raises(qm.ModelError, match=f"must be {least} to {most}, .* got {size}; measure it too"):
                of_batches(batches, size)


@pytest.mark.parametrize("strategy", ["all-reduce", *SHARDED])
@pytest.mark.parametrize("rows", [{1: 0.25}, {1: 0.25, 1000: 0.3}], ids=len)
def test_more_nodes_are_never_faster(rows, strategy):
    nodes = np.array([1, 2, 4, 8, 100, 1000, 1200])
    curve = qm.predict([placed(k, 8, t) for k, t in rows.items()], workers=(8 * nodes).tolist(), strategy=strategy)
    sizes = curve.model.sizes(curve.workers)
    per_worker = curve.model.draws(sizes) - np.log(sizes.workers)[:, None]
    assert (np.diff(per_worker, axis=0) <= 1e-12).all()
    assert (np.diff(curve.steps_per_second / curve.workers) <= 1e-12).all()
    unmeasured = ~np.isin(nodes, [*rows])
    assert (curve.upper / curve.workers)[unmeasured].max() <= 1.04 / 0.25  # as measured, within 2 %


def test_fewer_bytes_move_the_knee():
    rows = [eights(1, 2.0), eights(2, 2.02)]
    knees = [np.median(qm.fit(rows, strategy="fsdp", parameters=70e9, precision=p).knee) for p in ("bf16", "fp32")]
    assert knees[0] > knees[1]


@pytest.mark.parametrize(("asked", "said"), [
    ({"strategy": "fsdp", "sparse_gradients": True}, "sparse_gradients applies to throughputs of sync-ps"),
    ({"strategy": "fsdp", "parameters": 0}, "parameters must be finite and > 0"),
    ({"strategy": "fsdp", "precision": "fp32"}, "precision requires parameters; give both"),
    ({"strategy": "fsdp", "precision": "int4"}, "precision must be one of bf16, fp16, fp32"),
    ({"strategy": "fsdp", "gathers": "none.csv"}, "none.csv: cannot be read"),
    ({"strategy": "fsdp", "gathers": 3}, "gathers must be a CSV of all-gathers, or the model of another"),
    ({"strategy": "fsdp", "parameters": 1e9, "gathers": qm.fit([eights(1, 1.0)])}, "the other job must be sharded"),
    ({"strategy": "hsdp", "parameter_servers": 2}, "parameter_servers applies to training on parameter servers"),
    ({"strategy": "fsdp", "bandwidth": "10Gbit/s"}, "bandwidth is not a change of a table"),
])  # fmt: skip
def test_options_of_others_are_refused(asked, said):
    with pytest.raises(qm.QueueModelError, match=said):
        qm.predict([eights(1, 1.0), eights(2, 1.1)], workers=[8], **asked)


@pytest.mark.parametrize(("text", "said"), [
    ("bytes,nodes,time_us\n1000,1,5\n", "must be of 2 nodes or more"),
    ("bytes,nodes,time_us\n1000,2,0\n", "line 2: time_us must be finite and > 0"),
    ("size,nodes,time_us\n1000,2,9\n", "column 'bytes' is missing"), ("bytes,nodes,time\n1000,2,9\n", "has no unit"),
])  # fmt: skip
def test_bad_all_gathers_are_refused(tmp_path, text, said):
    (tmp_path / "gathers.csv").write_text(text)
    with pytest.raises(qm.DataError, match=said):
        read_gathers(tmp_path / "gathers.csv")
