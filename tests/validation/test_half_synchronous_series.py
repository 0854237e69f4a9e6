"""Clusters that train by half-synchronous strategies, predicted from the trace of one worker."""

import numpy as np
import pytest

pytest.importorskip("tensorflow", reason="reading the testbed's traces needs TensorFlow")

from queuemodel.prediction import predict
from queuemodel.training.model_error import waiting_error
from validation.blind import BLIND
from validation.half_synchronous import METHODS, compare_half_synchronous, half_synchronous
from validation.model_errors import half_synchronous_folders, learn_waiting, leave_kind_out, waiting_errors
from validation.series import folder_of_trace, read_measured, read_testbed, untraced_folders
from validation.testbed.recordings import unpacked

#: Largest errors beyond two workers, whose phases decide: of simulation and network.
WITHIN = {
    "k-async": (0.12, 0.17),
    "k-batch-async": (0.03, 0.04),
    "k-sync": (0.04, 0.06),
    "k-batch-sync": (0.08, 0.05),
    "backup-workers": (0.08, 0.16),
    "bounded-staleness": (0.13, 0.28),
}


@pytest.fixture(scope="module")
def series():
    return half_synchronous(half_synchronous_folders())


def test_what_the_pages_say(series):
    for one in series:
        way = next(way for way in WITHIN if one.name.endswith(f"ms-{way}"))
        several = one.counts > 2
        assert np.abs(one.errors[several]).max() < WITHIN[way][one.method == "mva"], one.name


@pytest.mark.parametrize("method", METHODS)
def test_intervals_hold_on_series_left_out(series, method):
    found = waiting_errors([one for one in series if one.method == method])
    assert {one.kind: one.parts.any() for one in found}["cubic, 25 ms, k-batch-async"] == 0, "nobody waits there"
    ends = leave_kind_out(found, learn_waiting)
    inside = np.concatenate([(lower <= np.exp(one.off)) & (np.exp(one.off) <= upper) for one, lower, upper in ends])
    narrow = np.concatenate([np.abs(one.off) <= 0.3 * np.log(upper) for one, _, upper in ends])
    assert inside.mean() >= 0.85
    assert narrow.mean() < 0.75, "far too narrow ones go unnoticed"
    assert waiting_error(method) == pytest.approx(learn_waiting(found)[0], abs=0.01), (
        "run python -m validation.model_errors"
    )


def test_rounds_are_no_asynchronous_training():
    (folder,) = [folder for folder in untraced_folders() if folder.name.endswith("cubic-25ms-k-sync")]
    workers, measured = read_measured(folder)
    free = predict(read_testbed(folder_of_trace(folder)), workers=workers.tolist())
    assert (free.steps_per_second > 2 * measured).all()


def test_few_late_workers_keep_out_of_the_others_way_too():
    folder = unpacked(BLIND) / "vgg16-90-bbr-5ms-backup-workers"  # one of four, two of eight
    workers, measured = read_measured(folder)
    profile = read_testbed(folder_of_trace(folder))
    found = compare_half_synchronous(folder, profile, "mva")
    assert np.abs(found.errors).max() < 0.15
    results = [3, 6]
    close = [
        predict(profile, workers=[n], strategy="k-sync", k=k, method="mva").at(n)
        for n, k in zip(workers.tolist(), results, strict=True)
    ]
    assert np.abs(np.array(close) / measured - 1).min() > 0.2, "as if they followed close behind"
