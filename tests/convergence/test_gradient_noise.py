"""The noise scale from workers' gradients: exact in the mean, covered by its interval, and what it does to a fit."""

import numpy as np
import pytest

import queuemodel as qm
from queuemodel.convergence import relative_convergence

LENGTH, BATCH = 200, 16


def norms(scale, *, steps=50, workers=2, seed=0):
    """Squared norms of gradients around a true one of norm 1; each example's noise has a covariance of this trace."""
    rng = np.random.default_rng(seed)
    noise = np.sqrt(scale / LENGTH / BATCH) * rng.standard_normal((steps, workers, LENGTH))
    gradients = np.full(LENGTH, LENGTH**-0.5) + noise
    return (gradients**2).sum(axis=2), (gradients.mean(axis=1) ** 2).sum(axis=1)


@pytest.mark.parametrize("workers", [2, 5])
def test_norms_as_they_are_on_average_give_the_scale_exactly(workers):
    own = np.full((3, workers), 1 + 300 / BATCH)
    assert qm.noise_scale(own, np.full(3, 1 + 300 / BATCH / workers), batch_size=BATCH).value == pytest.approx(300)
    assert qm.noise_scale(own, own[:, 0], batch_size=BATCH).value == pytest.approx(0)  # all have the same gradient
    assert qm.noise_scale(own, own[:, 0] / workers, batch_size=BATCH).value > 1e12  # nothing but noise


def test_intervals_hold_the_scale():
    held = []
    for seed in range(100):
        low, high = qm.noise_scale(*norms(100.0, seed=seed), batch_size=BATCH).interval()
        held.append(low <= 100.0 <= high)
    assert 0.8 <= np.mean(held) <= 0.97
    wrong = [qm.noise_scale(*norms(150.0, seed=seed), batch_size=BATCH).interval()[0] for seed in range(20)]
    assert np.mean(np.array(wrong) < 100.0) < 0.5


def test_it_moves_the_critical_batch_and_narrows_the_interval():
    points = [(64, [61e3])]
    without = qm.fit_convergence(points)
    for scale in (200.0, 2e4):
        fitted = qm.fit_convergence(points, noise_scale=scale)
        assert abs(np.log(fitted.critical_batch / scale)) < abs(np.log(without.critical_batch / scale))
        width, before = (np.log(np.divide(*one.critical_interval())) for one in (fitted, without))
        assert abs(width) < 0.85 * abs(before)


def test_its_error_widens_the_critical_batch():
    points = [(64, [61e3])]
    few, many = (qm.noise_scale(*norms(400.0, steps=steps), batch_size=BATCH) for steps in (4, 400))
    widths = [
        np.log(np.divide(*qm.fit_convergence(points, noise_scale=known).critical_interval()[::-1]))
        for known in (few, many, many.value)
    ]
    assert widths[0] > 1.02 * widths[1] > widths[2] > 0.98 * widths[1]
    unknown = qm.noise_scale([[9.0, 9.2], [9.1, 9.0]], [4.5, 4.4], batch_size=BATCH)
    assert unknown.value == np.inf  # no gradient beside the noise
    assert qm.fit_convergence(points, noise_scale=unknown).critical_batch > 1500


def test_alone_it_tells_other_batch_sizes_by_one():
    law = relative_convergence(64, 500.0)
    assert law.examples(64) == pytest.approx(1, rel=1e-4)
    assert law.examples(512) == pytest.approx((1 + 512 / law.critical_batch) / (1 + 64 / law.critical_batch), rel=0.1)
    assert law.examples(512) > 1.05 * relative_convergence(64, 5000.0).examples(512)
    np.testing.assert_allclose(law.quantiles(512, [0.05, 0.95]), law.interval(512))


def test_what_are_no_norms_is_refused():
    with pytest.raises(qm.ModelError, match=r"got \(3,\) and \(3,\)"):
        qm.noise_scale([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], batch_size=8)
    with pytest.raises(qm.ModelError, match="two or more of each"):
        qm.noise_scale([[1.0, 2.0]], [1.0], batch_size=8)  # one step tells no error
    with pytest.raises(qm.ModelError, match="squared norms must be finite and >= 0"):
        qm.noise_scale([[1.0, -2.0]] * 2, [1.0] * 2, batch_size=8)
    with pytest.raises(qm.ModelError, match="noise_scale must be finite and > 0 examples, got inf"):
        qm.fit_convergence([(8, [1.0])], noise_scale=np.inf)
    with pytest.raises(qm.ModelError, match="batch_size must be a whole number"):
        qm.noise_scale([[1.0, 2.0]], [1.0], batch_size=0)
