"""One verb for every way of training: what `fit` gives back, and that `predict` asks it."""

import numpy as np
import pytest

import queuemodel as qm
from queuemodel import example_profile, models, predict

NUMBERS = {"async-ps": {}, "sync-ps": {}, "k-batch-async": {"k": 4}}


@pytest.mark.parametrize("strategy", NUMBERS)
def test_recorded_steps_give_the_curve_that_predict_gives(strategy):
    profile, workers = example_profile("alexnet-60"), [2, 4, 8]
    numbers = NUMBERS[strategy]
    model = qm.fit(profile, strategy=strategy, **numbers)
    assert isinstance(model, models.ClosedNetworkModel)
    curve = model.throughput(workers)
    asked = predict(profile, strategy=strategy, workers=workers, method="mva", **numbers)
    assert curve.to_dict() == asked.to_dict()
    assert np.all(curve.bound_lower <= curve.steps_per_second * (1 + 1e-9))
    assert np.all(curve.steps_per_second <= curve.bound_upper * (1 + 1e-9))
    assert np.isfinite(curve.iterations_per_second).all() == (strategy != "async-ps")
    twice = model.what_if(bandwidth=2 * profile.cluster.bandwidth).throughput(workers)
    assert np.all(twice.steps_per_second > curve.steps_per_second)
    assert len(qm.plan(curve, min_efficiency=0.1).choices) == 1
