"""The model of tables: what made the data is recovered and covered, small tables in the spirit of reports, laws."""

from dataclasses import replace

import numpy as np
import pytest

from queuemodel.base.errors import FitError
from queuemodel.curves.prediction import effective_draws
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


def test_temper_keeps_mode_weights():
    u = np.random.default_rng(0).standard_normal((1000, 1))
    log_l = lambda v: np.logaddexp(-0.5 * ((v[:, 0] - 1) / 0.05) ** 2, -0.5 * ((v[:, 0] + 1) / 0.05) ** 2)  # noqa: E731
    u, _ = temper(log_l, u, np.random.default_rng(1), kept=0.5, moves=6)
    assert (u > 0).mean() == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("rows", [TWO_NODES, [group(1, 1.0), group(2, 1.6), group(4, 2.5)]], ids=["nodes", "workers"])
def test_effective_draws_by_independent_fits(rows):
    wanted = Sizes.of([placed(8, 8)] if rows is TWO_NODES else [group(64)])
    models = [fit_scaling(rows, strategy="all-reduce", seed=seed) for seed in range(12)]
    draws = np.array([model.draws(wanted)[0] for model in models])
    assert draws.var(axis=1).mean() / draws.mean(axis=1).var(ddof=1) > 100
    assert min(model.effective_draws for model in models) >= 30


def test_few_lineages_are_sampled_again():
    """A case that no published job is like: one pass of tempering leaves 3 effective draws, by independent fits."""
    rows = [group(2, 2.0), group(4, 4 / 3), group(6, 1.0)]  # cases/c06
    models = [fit_scaling(rows, strategy="all-reduce", seed=seed) for seed in range(4)]
    draws = np.array([model.draws(Sizes.of([group(12)]))[0] for model in models])
    assert draws.var(axis=1).mean() / draws.mean(axis=1).var(ddof=1) > 30
    assert min(model.effective_draws for model in models) > 30
    assert "few draws" not in models[0].note
    few = replace(models[0], effective_draws=9.0)  # control
    assert "few draws fit (9 lineages)" in few.note


def test_effective_draws_of_one_weight():
    assert effective_draws(np.array([1.0, 0.0, 0.0])) == pytest.approx(1.0)
    assert effective_draws(np.ones(7)) == pytest.approx(7.0)


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


# Small tables.


# Servers.


def test_saturation_is_measured_where_it_shows():
    rows = [group(n, min(2.0 * n, 11.0)) for n in (1, 2, 4, 8, 16)]
    model = fit_scaling(rows, strategy="async-ps")
    assert of(model, "demand").identified
    assert of(model, "demand").value == pytest.approx(1 / 11, rel=0.08)
    assert np.median(model.saturation_workers) == pytest.approx(5.5, rel=0.1)
    assert not model.note


# Laws.


def test_order_of_rows_does_not_matter():
    wanted = [placed(1, 2), placed(4, 8)]
    one, other = (rates(fit_scaling(rows, strategy="all-reduce"), wanted) for rows in (TWO_NODES, TWO_NODES[::-1]))
    np.testing.assert_array_equal(one, other)


def test_a_repeated_row_narrows():
    spread = [
        fit_scaling([group(1, 1.0), *[group(2, 1.6)] * times], strategy="sync-ps").draws(Sizes.of([group(2)])).std()
        for times in (1, 4)
    ]
    assert spread[1] < spread[0]


@pytest.mark.slow
def test_further_measurements_narrow_on_average():
    rng, widths = np.random.default_rng(2), []
    for _ in range(30):
        fitted, wanted = drawn(Prior.of("all-reduce"), [group(1), group(2), group(4), group(8)], [group(64)], rng)
        models = [fit_scaling(fitted[:k], strategy="all-reduce") for k in (2, 3, 4)]
        widths.append([np.log(np.divide(*interval(model, wanted)[::-1])).item() for model in models])
    assert (np.diff(np.mean(widths, axis=0)) < 0).all()


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
