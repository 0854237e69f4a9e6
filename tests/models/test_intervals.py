"""Intervals of the closed network: the steps' sampling, its own error, and what measured throughputs tell."""

import json
from importlib import resources

import numpy as np
import pytest
from jobs_by_hand import on_network, parameter, profile, step
from scipy import stats

import queuemodel as qm

TOLD = json.loads((resources.files("queuemodel.models") / "model_error.json").read_text())["mva"]
SEEN = np.array([TOLD[name] for name in ("below", "at", "beyond", "far")])


def own_error(workers, saturation):
    """Of the closed network itself, by where a number of workers stands to the knee."""
    return np.sqrt(np.interp(np.log2(np.asarray(workers) / saturation), [-1, 0, 1, 2], SEEN**2))


@pytest.mark.parametrize(("traced", "confidence"), [(1, 0.5), (4, 0.9), (1, 0.99)])
def test_steps_that_do_not_vary_leave_the_models_own_error(traced, confidence):
    model, workers = qm.fit(on_network(profile(workers=traced), "cubic")), np.array([1, 2, 4, 7, 64])
    curve, elsewhere = (one.throughput(workers, confidence=confidence) for one in (model, model.what_if(batch_size=64)))
    z = stats.norm.ppf((1 + confidence) / 2)
    errors = np.where(workers == traced, TOLD["profiled"], own_error(workers, curve.saturation_workers))
    for expected, found in ((errors, curve), (np.full(5, SEEN.max()), elsewhere)):
        np.testing.assert_allclose(np.log(found.upper / found.steps_per_second), z * expected, rtol=1e-4)
        np.testing.assert_allclose(np.log(found.steps_per_second / found.lower), z * expected, rtol=1e-4)


def throughputs_of(D, Z, most):
    """Exact, for demands (draws, K)."""
    Q, found = np.zeros_like(D), [np.ones(len(D))]
    for n in range(1, most + 1):
        R = D * (1 + Q)
        found.append(n / (Z + R.sum(axis=1)))
        Q = found[-1][:, None] * R
    return np.array(found).T


@pytest.mark.parametrize("count", [1, 7])
def test_intervals_join_the_sampling_of_the_steps_mean_and_the_models_own_error(count):
    """Student's law with the covariance of the steps; one step is taken to vary by a tenth."""
    rng, N, z = np.random.default_rng(3), np.array([2, 5, 20]), stats.norm.ppf(0.85)
    times = np.array([0.2, 0.1, 0.02, 0.5]) * rng.gamma(20, 0.05, (count, 4))
    times[:, 1] += 0.5 * times[:, 0]
    steps = [step(fetch=a, push=b, update=c, compute=d) for a, b, c, d in times.tolist()]
    model = qm.fit(on_network(profile(steps), "cubic"), seed=3)
    phases = np.column_stack([times[:, :3], times.sum(axis=1)])
    mean = phases.mean(axis=0)
    drawn = np.log([model.draws.fetch, model.draws.push, model.draws.update, model.draws.total] / mean[:, None])
    near = 0.1 if count == 1 else phases.std(axis=0, ddof=1) / mean / count**0.5 * stats.t.ppf(0.84134, count - 1)
    low, high = np.quantile(drawn, [0.15866, 0.84134], axis=1)
    assert (high - low) / 2 == pytest.approx(near * np.ones(4), rel=0.17)
    if count > 1:
        assert np.corrcoef(drawn) == pytest.approx(np.corrcoef(phases.T), abs=0.15)
    curve, every = model.throughput(N, confidence=0.7), model.drawn(np.append(1, N))[1:]
    stations = np.column_stack([model.draws.fetch, model.draws.push, model.draws.update])
    assert every == pytest.approx(throughputs_of(stations, model.draws.worker, 20)[:, N].T, rel=1e-6)
    error = z * own_error(N, curve.saturation_workers)
    for end, share, sign in ((curve.lower, 0.15, -1), (curve.upper, 0.85, 1)):
        off = np.log(np.quantile(every, share, axis=1) / curve.steps_per_second)
        np.testing.assert_allclose(sign * np.log(end / curve.steps_per_second), np.hypot(off, error), rtol=1e-6)


@pytest.mark.parametrize("factors", [(1.0, 1.0), (1.05, 0.8), (0.85, 1.06)], ids=str)
def test_measured_throughputs_move_the_network_by_bayes_rule(factors):
    """Against draws of contention, workers' times, the size of errors and of noise, weighed by likelihood."""
    rng, count, at, rel = np.random.default_rng(1), 60_000, np.array([2, 8, 32]), 0.02
    plain = qm.fit(on_network(profile(), "cubic"))
    x = plain.throughput([2, 8]).steps_per_second * factors
    points = [qm.Throughput(workers=2, steps_per_second=x[0])]
    points += [qm.Throughput(workers=8, steps_per_second=x[1], standard_error=rel * x[1])]
    model = qm.fit(on_network(profile(), "cubic"), throughputs=points)
    z = np.linspace(-5, 100, 20_001)
    density = np.where(z > 0, (1 + z**2 / 3) ** -2, np.exp(-(z**2) / 2))
    contention = 0.015 * rng.choice(z, count, p=density / density.sum())
    D, Z = np.exp(contention)[:, None] * [0.2, 0.1, 0.01], 0.5 * np.exp(0.05 * rng.standard_normal(count))
    logs = np.log(throughputs_of(D, Z, 32)[:, at])
    error = own_error(at, 0.81 / 0.2)
    error = np.sqrt(np.maximum(error**2 - logs.var(axis=0), error**2 / 4))
    noise = np.array([0.08, 0.03, 0.03])
    own = np.sqrt(np.maximum(error**2 - noise**2, error**2 / 4))
    size = stats.norm.ppf(0.95) / stats.t.ppf(0.95, 4) * np.sqrt(4 / rng.chisquare(4, count))
    excess = rng.choice([1.0, 2.0, 4.0, 10.0], count, p=[0.985, 0.01, 0.004, 0.001])
    alike = TOLD["doubling"] ** np.abs(np.subtract.outer(np.log2(at), np.log2(at)))
    covariance = size[:, None, None] ** 2 * alike * np.outer(own, own)
    among = covariance[:, :2, :2] + excess[:, None, None] ** 2 * np.diag([0.08**2, rel**2])
    gain = np.linalg.solve(among, covariance[:, :2])
    off = np.log(x) - logs[:, :2]
    weight = np.exp(-0.5 * (off * np.linalg.solve(among, off[..., None])[..., 0]).sum(axis=1))
    weight /= np.sqrt(np.linalg.det(among))
    left = covariance[:, range(3), range(3)] - (covariance[:, :2] * gain).sum(axis=1)
    left = left + excess[:, None] ** 2 * (error**2 - own**2)
    thought = logs + np.einsum("sn,snp->sp", off, gain) + np.sqrt(left) * rng.standard_normal((count, 3))
    curve = model.throughput(at)
    for k in range(3):
        order = np.argsort(thought[:, k])
        ends = np.interp([0.05, 0.5, 0.95], np.cumsum(weight[order]) / weight.sum(), thought[order, k])
        found = np.log([curve.lower[k], curve.steps_per_second[k], curve.upper[k]])
        np.testing.assert_allclose(found, ends, atol=0.012)
    mean = np.average(contention, weights=weight)
    spread = np.sqrt(np.average((contention - mean) ** 2, weights=weight))
    found = parameter(model, "contention")
    assert np.log(found.value) == pytest.approx(mean, abs=0.01)
    assert found.standard_error / found.value == pytest.approx(spread, rel=0.15)
    assert found.identified == (spread < 0.7 * contention.std())
    total = curve.residence_time.sum(axis=1) + curve.think_time
    np.testing.assert_allclose(total, at / curve.steps_per_second, rtol=1e-9)  # Little's law
    assert np.all((curve.bound_lower <= curve.steps_per_second) & (curve.steps_per_second <= curve.bound_upper))
    assert curve.profiled_workers == 8
    np.testing.assert_allclose(curve.measured, [(2, x[0]), (8, x[1])])
