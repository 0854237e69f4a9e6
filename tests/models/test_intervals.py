"""Intervals of the closed network: the steps' sampling, and its own error."""

import json
from importlib import resources

import numpy as np
import pytest
from scipy import stats

import queuemodel as qm
from tests.oracles.jobs_by_hand import on_network, profile, step

TOLD = json.loads((resources.files("queuemodel.models") / "model_error.json").read_text())["mva"]
SEEN = np.array([TOLD[name] for name in ("below", "at", "beyond", "far")])


def own_error(workers, saturation):
    """Of the closed network itself, by where a number of workers stands to the knee."""
    return np.sqrt(np.interp(np.log2(np.asarray(workers) / saturation), [-1, 0, 1, 2], SEEN**2))


@pytest.mark.parametrize(("traced", "confidence"), [(1, 0.5), (4, 0.9), (1, 0.99)])
def test_constant_steps_leave_model_error(traced, confidence):
    model, workers = qm.fit(on_network(profile(workers=traced), "cubic")), np.array([1, 2, 4, 7, 64])
    curve, elsewhere = (one.throughput(workers, confidence=confidence) for one in (model, model.what_if(batch_size=64)))
    z = stats.norm.ppf((1 + confidence) / 2)
    errors = np.where(workers == traced, TOLD["profiled"], own_error(workers, curve.saturation_workers))
    for expected, found in ((errors, curve), (np.full(5, SEEN.max()), elsewhere)):
        np.testing.assert_allclose(np.log(found.upper / found.steps_per_second), z * expected, rtol=0.01)
        np.testing.assert_allclose(np.log(found.steps_per_second / found.lower), z * expected, rtol=0.01)


def throughputs_of(D, Z, most):
    """Exact, for demands (draws, K)."""
    Q, found = np.zeros_like(D), [np.ones(len(D))]
    for n in range(1, most + 1):
        R = D * (1 + Q)
        found.append(n / (Z + R.sum(axis=1)))
        Q = found[-1][:, None] * R
    return np.array(found).T


@pytest.mark.parametrize("count", [1, 7])
def test_intervals_join_sampling_and_model_error(count):
    """Student's law with the covariance of the steps; one step is taken to vary by a tenth."""
    rng, N = np.random.default_rng(3), np.array([2, 5, 20])
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
    error = own_error(N, curve.saturation_workers)
    for end, share, sign in ((curve.lower, 0.15, -1), (curve.upper, 0.85, 1)):
        both = np.log(every)[:, :, None] + error[:, None, None] * stats.norm.ppf((np.arange(200) + 0.5) / 200)
        ends = np.quantile(both.reshape(len(N), -1), share, axis=1) - np.log(curve.steps_per_second)
        np.testing.assert_allclose(sign * np.log(end / curve.steps_per_second), sign * ends, rtol=0.02)
