"""Ratios of curves: their interval against simulation, and what is common to both cancels."""

from dataclasses import replace

import numpy as np
import pytest

import queuemodel as qm
from queuemodel.curves.prediction import OTHER_MACHINES, Prediction
from tests.oracles.jobs_by_hand import profile

MODEL = qm.fit(profile())
COUNTS = [1, 2, 4, 8]
BASE = MODEL.throughput(COUNTS)
FASTER = MODEL.what_if(accelerator_speed=2.0).throughput(COUNTS)


def test_interval_agrees_with_simulation():
    rng, draws, N = np.random.default_rng(0), 500, np.array([1, 4])
    shared, own = rng.normal(0.0, 0.3, (2, draws)), rng.normal(0.0, 0.05, (2, draws))
    effects, error = np.array([[0.1, 0.0], [0.2, 0.05]]), 0.04
    one, other = (
        Prediction.drawn(N, mean, error=error, noise=0.5, spread=spread)
        for mean, spread in ((1.0 + shared + own, effects), (0.4 + shared, 0.5 * effects))
    )
    ratio = one.joined(other).over(np.array([0, 1]), np.array([2, 3])).interval(0.9)
    u, pick = rng.normal(size=(2, 200_000)), rng.integers(draws, size=200_000)
    errors = rng.multivariate_normal([0, 0], error**2 * np.array([[1, OTHER_MACHINES], [OTHER_MACHINES, 1]]), 200_000).T
    log = 0.6 + own[:, pick] + 0.5 * effects @ u + errors[0] - errors[1]
    np.testing.assert_allclose(ratio, np.exp(np.quantile(log, [0.5, 0.05, 0.95], axis=1)), rtol=0.01)


def test_common_errors_cancel():
    """Those of two fits do not."""
    ratio, apart = FASTER / BASE, FASTER / replace(BASE, model=None)
    assert (ratio.common, apart.common) == (True, False)
    np.testing.assert_allclose(ratio.value, FASTER.steps_per_second / BASE.steps_per_second)
    assert np.all(np.log(ratio.upper / ratio.lower) < np.log(apart.upper / apart.lower))
    np.testing.assert_allclose(
        [apart.lower, apart.upper],
        np.exp(
            np.log(apart.value)
            + np.array([[-1], [1]])
            * [np.hypot(np.log(FASTER.upper / FASTER.steps_per_second), np.log(BASE.steps_per_second / BASE.lower))]
        ),
        rtol=0.3,
    )  # as of independent log-normal errors, which are nearly symmetric here
    again = qm.predict(profile(), workers=COUNTS, method="mva", accelerator_speed=2.0)
    assert (again / BASE).common  # another fit of the same data
    other = qm.fit(qm.example_profile("alexnet-60"))
    assert not (other.throughput(COUNTS) / BASE).common  # control


def test_a_curve_over_itself_is_one():
    ratio = BASE / MODEL.throughput(COUNTS)
    np.testing.assert_allclose([ratio.value, ratio.lower, ratio.upper], 1.0)


def test_inverse_ratio_inverts_the_interval():
    ratio, inverse = FASTER / BASE, BASE / FASTER
    np.testing.assert_allclose(1 / inverse.value, ratio.value)
    np.testing.assert_allclose([1 / inverse.upper, 1 / inverse.lower], [ratio.lower, ratio.upper], rtol=0.01)


def test_measurements_weigh_both_curves_together():
    told = [qm.Measurement(workers=8, steps_per_second=0.8 * BASE.at(8))]
    model = qm.fit(profile(), throughputs=told)
    both = model.what_if(accelerator_speed=2.0).throughput(COUNTS), model.throughput(COUNTS)
    ratio = both[0] / both[1]
    assert ratio.common
    assert ratio.lower[-1] <= both[0].at(8) / both[1].at(8) <= ratio.upper[-1]


def test_ratio_as_value_table_figure():
    ratio = FASTER / BASE
    assert repr(ratio[8]).startswith(f"{ratio.value[3]:.3g} (")
    assert float(ratio[8]) == ratio.value[3]
    frame = ratio.to_frame()
    assert (frame.index.name, frame.index.tolist()) == ("workers", COUNTS)
    assert frame.loc[8, "ratio"] == ratio.value[3]
    assert ratio.answer().startswith("8 workers: ")
    ax = ratio.plot(label="twice as fast")
    (BASE / FASTER).plot(ax=ax, label="half")
    assert [line.get_label() for line in ax.get_lines() if line.get_gid()] == ["twice as fast", "half"]


@pytest.mark.parametrize(("other", "message"), [
    (MODEL.throughput([3]), "numbers of workers in common"), (replace(BASE, unit="tokens"), "the same unit"),
    (MODEL.throughput(COUNTS, confidence=0.5), "the same confidence"),
])  # fmt: skip
def test_curves_of_other_questions_are_refused(other, message):
    with pytest.raises(qm.ModelError, match=message):
        BASE / other
    with pytest.raises(qm.ModelError, match="must be one of 1, 2, 4, 8, got 3"):
        (BASE / FASTER)[3]
    with pytest.raises(TypeError):
        BASE / 2
