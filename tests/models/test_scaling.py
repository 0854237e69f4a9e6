"""The model of tables: what made the data is recovered and covered, small tables in the spirit of reports, laws."""

import re
from dataclasses import replace

import numpy as np
import pytest

import queuemodel as qm
from queuemodel.base.errors import FitError
from queuemodel.curves import plot_efficiency
from queuemodel.models.scaling import Prior, ScalingData, Sizes, fit_scaling
from queuemodel.models.scaling.fit import temper
from queuemodel.models.scaling.prior import PRIOR_NUMBERS
from queuemodel.profile.measurements import Measurement


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
    off = np.concatenate([table.scale(u)[0], beyond]) * rng.standard_t(freedom, len(x.workers))
    rate = x.workers * np.exp(-table.relative(u, x)[0] - off)
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
    seconds = np.exp(table.relative(u, Sizes.of(rows))[0]) * [m.batch_size / 32 for m in rows]
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


def test_no_measurement_is_refused():
    with pytest.raises(FitError, match="at least one measurement"):
        fit_scaling([], strategy="all-reduce")


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


def test_two_rows_of_one_node():
    curve = table("1 1 1.0\n1 8 1.6", workers=[1, 8], gpus_per_node=8)
    assert curve.steps_per_second == pytest.approx([1.0, 5.0], rel=0.03)
    assert curve.efficiency == pytest.approx([1.0, 0.625], rel=0.03)
    assert [of(curve.model, name).identified for name in ("inside a node", "between nodes")] == [True, False]


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


def test_work_has_the_table_unit():
    tokens = {"nodes": [1, 2], "gpus": [8, 16], "tokens_per_second": [8e4, 15e4], "bs": [4, 4], "seqlen": [512, 512]}
    curve = qm.predict(qm.read_measurements(tokens), workers=[8, 32])
    for found in (curve.examples_per_second[0], curve.to_rows()[0]["tokens_per_second"]):
        assert found == pytest.approx(8e4, rel=0.03)
    assert curve.plot().get_ylabel() == "throughput (tokens/s)"
    assert qm.plan(curve, throughput=1e5).choices[0].goal == "at least 100,000 tokens/s"


def test_outliers_are_named():
    rows = [(1, 8, 1.0), (2, 16, 1.05), (8, 64, 1.15), (16, 128, 1.2)]
    alike, odd = ("\n".join(f"{k} {n} {t}" for k, n, t in [*rows, *more]) for more in ([], [(4, 32, 1.6)]))
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


@pytest.mark.parametrize(("text", "strategy"), [
    ("workers,step_time\n1,0.5\n4,0.6\n", "all-reduce"), ("workers,iterations_per_second\n1,2\n4,1.7\n", "all-reduce"),
    ("workers,steps_per_second\n1,2\n4,6.8\n", "async-ps"),
])  # fmt: skip
def test_columns_say_how_a_job_trains(tmp_path, text, strategy):
    (tmp_path / "t.csv").write_text(text)
    curve = qm.predict(tmp_path / "t.csv", workers=[1, 4])
    assert curve.method.startswith(strategy)
    assert "assum" in curve.assumption


def test_smaller_parameters_are_never_slower():
    rates = [qm.predict([group(1, 0.5)], strategy="async-ps", parameter_bytes=size, workers=[1, 64]).at(64)
             for size in (1e7, 1e6, 1e5)]  # fmt: skip
    assert rates == sorted(rates)
    assert rates[-1] == pytest.approx(32, rel=0.05)


def test_server_curve_keeps_its_bounds():
    curve = table("1 2.0\n4 7.9", strategy="async-ps", workers=[1, 4, 8, 16, 32])
    assert np.all(curve.bound_lower <= curve.steps_per_second)
    assert np.all(curve.steps_per_second <= curve.bound_upper)
    assert np.all(np.diff(curve.steps_per_second) >= 0)
    assert np.isfinite(curve.saturation_workers)
    spent = curve.residence_time.sum(axis=1) + curve.think_time
    np.testing.assert_allclose(spent, curve.workers / curve.steps_per_second, rtol=1e-6)  # Little's law


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
