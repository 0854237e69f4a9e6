"""What to measure next: the cheap run that is expected to narrow the interval most, for every kind of data."""

from dataclasses import replace

import numpy as np
import pytest

import queuemodel as qm
from queuemodel import example_profile
from queuemodel.curves.prediction import Prediction

PROFILE, ROUNDS = example_profile("alexnet-60"), example_profile("ddp-alexnet-40")
POINTS = [qm.Measurement(workers=n, steps_per_second=x) for n, x in ((1, 10.0), (2, 19.0))]
ON_NODES = [qm.Measurement(workers=8 * n, nodes=n, steps_per_second=x) for n, x in ((1, 50.0), (2, 82.0))]
UNKNOWN = {"congestion_control": "unknown", "method": "trace"}


def width(curve):
    return float(np.log(curve.upper[-1] / curve.lower[-1]))


@pytest.mark.parametrize("kinds", [1, 2])
def test_expected_deviation_is_that_of_conditioning(kinds):
    """Against the mean over measurements drawn from the prediction itself; one kind: exact."""
    rng, workers, noise = np.random.default_rng(kinds), np.array([1, 4, 8]), 0.03
    logs = [np.log(workers)[:, None] * (1.0 - 0.1 * kind) for kind in range(kinds)]
    given = Prediction.drawn(
        workers, *logs, error=np.full(3, 0.1), noise=np.array([0.0, 0.0, 0.02]),
        weights=np.full(kinds, 1 / kinds), correlation=0.6,
    )  # fmt: skip
    before, after = given.expected_deviation(2, noise)
    assert before**2 == pytest.approx(0.1**2 + 0.02**2 + np.var([x[2, 0] for x in logs]))
    if kinds == 1:
        assert after[1] ** 2 == pytest.approx(before**2 - (0.6 * 0.1**2) ** 2 / (0.1**2 + noise**2))
        return
    variances = []
    for _ in range(300):
        log_x = given.mean[1, rng.integers(kinds)] + np.hypot(0.1, noise) * rng.standard_normal()
        found, _ = given.condition([1], np.array([log_x]), np.array([noise]))
        variances.append(found.mean[2].var() + (found.error[2] ** 2).mean())
    assert 0.85 * after[1] ** 2 < np.mean(variances) < 1.1 * after[1] ** 2
    assert after[2] < after[1] < after[0] < before  # the nearer, the more


@pytest.mark.parametrize(("data", "asked", "nodes", "more"), [
    (POINTS, 16, None, {}), (POINTS, 16, None, {"strategy": "sync-ps"}), (ON_NODES, 128, True, {}),
    (ROUNDS, 16, None, {}), (PROFILE, 8, None, UNKNOWN),
], ids=["asynchronous", "synchronous", "nodes", "rounds", "steps"])  # fmt: skip
def test_predicted_run_narrows_the_interval(data, asked, nodes, more):
    curve = qm.predict(data, workers=[asked], **more)
    found = qm.next_measurement(curve)
    assert curve.profiled_workers < found.workers <= asked / 2
    assert (found.nodes is not None) == bool(nodes)
    X = qm.predict(data, workers=[found.workers], **more).steps_per_second[0]
    point = qm.Measurement(workers=found.workers, nodes=found.nodes, steps_per_second=float(X))
    given = {"throughputs": [point]} if isinstance(data, qm.Profile) else {}
    after = qm.predict(data if given else [*data, point], workers=[asked], **more, **given)
    assert width(after) < 0.95 * width(curve)


def test_whole_nodes_name_their_gpus():
    found = qm.next_measurement(qm.fit(ON_NODES).throughput([128]))
    assert found.workers == 8 * found.nodes
    assert found.to_rows()[0]["nodes"] == found.nodes
    assert f"measure next: {found.nodes} nodes ({found.workers} GPUs) for a minute" in found.caption()


def test_uninformative_runs_are_not_recommended():
    measured = [qm.Measurement(workers=5, steps_per_second=1.85)]
    again = qm.predict(PROFILE, workers=[8], throughputs=measured, method="mva")
    few, elsewhere = (qm.fit(PROFILE).what_if(**one).throughput([16]) for one in ({}, {"bandwidth": 1e9}))
    for curve, why in ((again, "were measured"), (few, "at most"), (elsewhere, "not measured on such machines")):
        found = qm.next_measurement(curve)
        assert found.workers is None
        assert why in found.reason
        assert not any("narrow" in note for note in curve.notes())
    uncertain = qm.predict(ROUNDS, workers=[16])  # control
    found = qm.next_measurement(uncertain)
    assert f"to narrow it: measure {found.run} for a minute" in uncertain.notes()


def test_curve_without_model_is_refused():
    with pytest.raises(qm.ModelError, match="no model"):
        qm.next_measurement(replace(qm.fit(POINTS).throughput([8]), model=None))
