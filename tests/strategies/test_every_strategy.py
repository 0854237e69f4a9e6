"""One verb for every way of training: what `fit` gives back, and that `predict` asks it."""

import numpy as np
import pytest

import queuemodel as qm
from queuemodel import predict
from queuemodel.data import example_profile
from queuemodel.strategies import AllReduceModel

NUMBERS = {"async-ps": {}, "sync-ps": {}, "k-batch-async": {"k": 4}}


@pytest.mark.parametrize("strategy", NUMBERS)
def test_recorded_steps_give_the_curve_that_predict_gives(strategy):
    profile, workers = example_profile("alexnet-60"), [2, 4, 8]
    numbers = NUMBERS[strategy]
    model = qm.fit(profile, strategy=strategy, **numbers)
    assert isinstance(model, qm.TrainingModel)
    curve = model.throughput(workers)
    asked = predict(profile, strategy=strategy, workers=workers, method="mva", **numbers)
    assert curve.to_dict() == asked.to_dict()
    assert np.all(curve.bound_lower <= curve.steps_per_second * (1 + 1e-9))
    assert np.all(curve.steps_per_second <= curve.bound_upper * (1 + 1e-9))
    assert np.isfinite(curve.rounds_per_second).all() == (strategy != "async-ps")
    twice = model.what_if(bandwidth=2 * profile.cluster.bandwidth).throughput(workers)
    assert np.all(twice.steps_per_second > curve.steps_per_second)
    assert len(qm.plan(curve, min_efficiency=0.1).choices) == 1


def test_recorded_rounds_give_the_curve_that_predict_gives():
    profile = example_profile("ddp-alexnet-40")
    model = qm.fit(profile, strategy="all-reduce")
    assert isinstance(model, AllReduceModel)
    assert model.throughput([1, 4]).to_dict() == predict(profile, workers=[1, 4]).to_dict()


@pytest.mark.parametrize(
    ("name", "settings", "match"),
    [
        ("alexnet-60", {"strategy": "k-sync"}, "'k-sync' needs k; give it"),
        ("alexnet-60", {"strategy": "k-batch-async", "k": 0}, "k"),
        ("alexnet-60", {"strategy": "sync-ps", "k": 2}, "k is a question for strategy k-sync"),
        ("alexnet-60", {"strategy": "ring"}, "strategy must be one of async-ps"),
        ("ddp-alexnet-40", {"strategy": "async-ps"}, "ask with strategy 'all-reduce'"),
        ("ddp-alexnet-40", {"strategy": "k-async", "k": 2}, "ask with strategy 'all-reduce'"),
    ],
)
def test_what_a_profile_does_not_tell_is_refused(name, settings, match):
    with pytest.raises(qm.QueueModelError, match=match) as error:
        qm.fit(example_profile(name), **settings)
    assert "\n" not in str(error.value)


def test_a_profile_is_fitted_as_it_was_recorded():
    for name, strategy in (("alexnet-60", "async-ps"), ("ddp-alexnet-40", "all-reduce")):
        profile = example_profile(name)
        assert qm.fit(profile).to_rows() == qm.fit(profile, strategy=strategy).to_rows()
