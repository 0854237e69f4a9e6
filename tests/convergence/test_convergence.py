"""Examples by batch size: the law, the posterior against direct integration, coverage, MLPerf's benchmarks left out."""

import json
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

import queuemodel as qm
from queuemodel.convergence.critical_batch import LOG_RATIOS, CriticalBatch
from queuemodel.convergence.prior import ConvergencePrior, convergence_prior
from validation.convergence import benchmarks, errors, judge, learn, straight_line

SIZES = np.array([256, 512, 1024, 4096, 16384])


def law(sizes, *, least=1e6, critical=4000.0):
    return least * (1 + np.asarray(sizes) / critical)


def measured(sizes=SIZES, **about):
    return [(int(size), [float(examples)] * 20) for size, examples in zip(sizes, law(sizes, **about), strict=True)]


def test_the_law_is_found_where_it_holds():
    fitted = qm.fit_convergence(measured())
    assert fitted.critical_batch == pytest.approx(4000, rel=0.1)
    low, high = fitted.critical_interval()
    assert low < 4000 < high
    assert fitted.examples(SIZES) == pytest.approx(law(SIZES), rel=0.005)
    assert fitted.examples(2048) == pytest.approx(law(2048), rel=0.02)
    assert fitted.examples(32768) == pytest.approx(law(32768), rel=0.06)
    assert fitted.steps(2048) == pytest.approx(fitted.examples(2048) / 2048)
    halved = qm.fit_convergence(measured(critical=2000.0))
    assert halved.critical_batch == pytest.approx(2000, rel=0.1)


def test_the_posterior_is_that_of_gaussians_with_an_unknown_level():
    """The level's flat prior as a variance of 100 in one joint Gaussian of what was and what would be measured."""
    sizes, ahead = np.array([10.0, 40.0, 50.0]), np.array([20.0, 400.0])
    y, error = np.array([0.1, 0.4, 0.2]), np.array([0.02, 0.05, 0.03])
    prior = ConvergencePrior(2.0, 0.7, {0.1: 1.0})
    every = np.concatenate([sizes, ahead])
    alike = np.exp(-np.abs(np.subtract.outer(np.log(every), np.log(every))))
    joint = 100.0 + 0.01 * alike + np.diag(np.append(error**2, [0.0, 0.0]))
    log_weight, means, variances = [], [], []
    gain = joint[3:, :3] @ np.linalg.inv(joint[:3, :3])
    for log_ratio in LOG_RATIOS:
        shape = np.log1p(every / 10 * np.exp(-log_ratio))
        log_weight.append(multivariate_normal(shape[:3], joint[:3, :3]).logpdf(y) + prior.log_density(log_ratio))
        means.append(shape[3:] + gain @ (y - shape[:3]))
        variances.append(np.diag(joint[3:, 3:] - gain @ joint[:3, 3:]))
    weight = np.exp(log_weight - np.max(log_weight))
    weight /= weight.sum()
    posterior = CriticalBatch(sizes, y, error[None], prior, np.zeros(1))
    np.testing.assert_allclose(posterior.weights()[:, 0, 0], weight, atol=2e-4)
    rng = np.random.default_rng(0)
    at = rng.choice(len(weight), size=200_000, p=weight)
    draws = np.array(means)[at] + np.sqrt(np.array(variances)[at]) * rng.standard_normal((len(at), 2))
    levels = np.array([0.05, 0.5, 0.95])
    np.testing.assert_allclose(
        posterior.quantiles(ahead, levels), np.exp(np.quantile(draws, levels, axis=0)), rtol=0.01
    )


@settings(max_examples=20, deadline=None)
@given(unit=st.floats(1e-6, 1e9), times=st.integers(2, 1000))
def test_neither_the_unit_nor_the_size_of_a_batch_matters(unit, times):
    points = [(8, [1.0, 1.1]), (32, [1.3]), (64, [1.6, 1.5, 1.55])]
    scaled = [(size * times, [unit * x for x in examples]) for size, examples in points]
    one, other = qm.fit_convergence(points), qm.fit_convergence(scaled)
    assert other.examples([8 * times, 512 * times]) == pytest.approx(unit * one.examples([8, 512]), rel=1e-6)
    assert other.interval(512 * times) == pytest.approx([unit * end for end in one.interval(512)], rel=1e-6)
    assert other.critical_batch == pytest.approx(times * one.critical_batch)


def test_one_batch_size_leaves_the_prior():
    fitted = qm.fit_convergence([(100, [50.0] * 1000)])
    prior = convergence_prior()
    ratio = np.exp(np.random.default_rng(0).normal(prior.centre, prior.spread, 100_000))
    assert fitted.critical_batch == pytest.approx(100 * np.exp(prior.centre), rel=0.02)
    growth = np.median((1 + 10 / ratio) / (1 + 1 / ratio))
    assert fitted.examples(1000) == pytest.approx(50 * growth, rel=0.02)
    low, high = fitted.interval(1000)
    assert high / low > 2
    assert qm.fit_convergence([(100, [50.0] * 9), (100, [50.0])]).seeds.tolist() == [10]


def test_seeds_that_agree_and_more_batch_sizes_narrow_the_interval():
    def width(points, confidence=0.9):
        low, high = qm.fit_convergence(points).interval(65536, confidence)
        return np.log(high / low)

    assert width(measured()) < 0.6 * width(measured(SIZES[:2]))
    assert width(measured(), 0.5) < 0.5 * width(measured())
    noisy = [(size, [x * f for f in (0.8, 1.0, 1.2)]) for size, (x, *_) in measured()]
    assert width(noisy) > width([(size, values[:3]) for size, values in measured()])


def test_intervals_hold_what_the_prior_draws():
    prior, rng = convergence_prior(), np.random.default_rng(2)
    shares = np.array(list(prior.deviations.values()))
    inside = []
    for _ in range(150):
        critical = 64 * np.exp(rng.normal(prior.centre, prior.spread))
        deviation = rng.choice(list(prior.deviations), p=shares / shares.sum())
        sizes = np.array([64, 256, 1024, 8192])
        alike = np.exp(-np.abs(np.subtract.outer(np.log(sizes), np.log(sizes))))
        off = deviation * np.linalg.cholesky(alike) @ rng.standard_normal(4)
        means = law(sizes, critical=critical) * np.exp(off)
        seeds = means[:, None] * (1 + 0.05 * rng.standard_normal((4, 10)))
        fitted = qm.fit_convergence([(int(size), own.tolist()) for size, own in zip(sizes[:2], seeds[:2], strict=True)])
        low, high = fitted.interval(sizes[2:])
        truth = seeds[2:].mean(axis=1)
        inside += [*((low <= truth) & (truth <= high))]
    assert 0.83 <= np.mean(inside) <= 0.96


@pytest.mark.parametrize("seeds", [1, 4])
def test_intervals_cover_where_seeds_vary_by_more_than_is_assumed(seeds):
    """By 15 %, among jobs of any critical batch, at two batch sizes beside four measured ones."""
    prior, rng = convergence_prior(), np.random.default_rng(3)
    sizes = np.array([64, 256, 1024, 4096, 512, 16384])
    inside = []
    for _ in range(60):
        means = law(sizes, critical=64 * np.exp(rng.normal(prior.centre, prior.spread)))
        found = means[:, None] * np.exp(0.15 * rng.standard_normal((6, seeds)))
        fitted = qm.fit_convergence([(int(size), own.tolist()) for size, own in zip(sizes[:4], found, strict=False)])
        low, high = fitted.interval(sizes[4:])
        truth = found[4:].mean(axis=1)
        inside += [*((low <= truth) & (truth <= high))]
    assert 0.79 <= np.mean(inside) <= 0.99


@pytest.fixture(scope="module")
def judged():
    return judge(benchmarks())


def pooled(judged, question):
    off, held = np.concatenate([answers[question] for answers in judged.values()]).T
    return np.abs(off), held


def test_benchmarks_with_a_prior_of_the_others(judged):
    """MLPerf's reference points: the prior never saw the benchmark that it serves."""
    off, _ = pooled(judged, "in sample")
    assert off.mean() < 0.02
    off, held = pooled(judged, "each from the others")
    assert off.mean() < 0.045
    assert 0.85 <= held.mean() <= 0.98
    off, held = pooled(judged, "from the two smallest")
    line = np.abs(np.concatenate([straight_line(points) for points in benchmarks().values()]))
    assert off.mean() < 0.15 < 0.5 < line.mean()
    assert np.median(off) < 0.13
    assert 0.85 <= held.mean() <= 0.99


def test_another_prior_is_noticed():
    jobs = benchmarks()
    wrong = replace(convergence_prior(), centre=convergence_prior().centre - 2.5, spread=0.5)
    off = np.concatenate([errors(p, [0, 1], range(2, len(p)), wrong) for p in jobs.values()])[:, 0]
    assert np.abs(off).mean() > 0.3


def test_the_prior_is_what_the_command_learns():
    told = json.loads((resources.files("queuemodel.convergence") / "convergence_prior.json").read_text())
    jobs = benchmarks()
    assert told["benchmarks"] == sorted(jobs)
    prior, found = convergence_prior(), learn(list(jobs.values()))
    assert (found.centre, found.spread) == pytest.approx((prior.centre, prior.spread), abs=2e-3)
    assert found.deviations == pytest.approx(prior.deviations, abs=2e-3)


def test_a_result_shows_itself():
    fitted = qm.fit_convergence(measured())
    assert len(fitted.to_rows()) == len(SIZES)
    assert "critical batch 4" in repr(fitted)
    ax = fitted.plot()
    assert ax.get_xlabel() == "batch size of a step"
    assert fitted.examples([[256, 512]]).shape == (1, 2)
    assert isinstance(fitted.examples(256), float)


def test_what_is_no_measurement_is_refused():
    fit = qm.fit_convergence
    with pytest.raises(qm.FitError, match="at least one batch size must be measured"):
        fit([])
    with pytest.raises(qm.ModelError, match="batch_size must be a whole number of at least 1, got 0"):
        fit([(0, [1.0])])
    with pytest.raises(qm.ModelError, match=r"batch size 8: examples must be finite and > 0, got -1\.0"):
        fit([(8, [1.0, -1.0])])
    with pytest.raises(qm.ModelError, match="batch size 8: examples of at least one seed are needed, got none"):
        fit([(8, [])])
    with pytest.raises(qm.ModelError, match=r"expected \(batch_size, \[examples, ...\]\), got \(8, 1.0\)"):
        fit([(8, 1.0)])
    with pytest.raises(qm.ModelError, match=r"batch_size must be a whole number of at least 1, got 2\.5"):
        fit([(8, [1.0])]).examples(2.5)
    with pytest.raises(qm.ModelError, match="confidence must be between 0 and 1"):
        fit([(8, [1.0])]).interval(8, 90)
