"""Clusters that train by half-synchronous strategies, predicted from the trace of one worker."""

import numpy as np
import pytest

pytest.importorskip("tensorflow", reason="reading the testbed's traces needs TensorFlow")

from queuemodel.prediction import predict
from validation.half_synchronous import half_synchronous
from validation.series import folder_of_trace, read_measured, read_testbed, untraced_folders

#: Largest errors beyond two workers, whose phases decide: of simulation and network.
WITHIN = {
    "k-async": (0.11, 0.16),
    "k-batch-async": (0.03, 0.04),
    "k-sync": (0.04, 0.06),
    "k-batch-sync": (0.08, 0.05),
    "backup-workers": (0.07, 0.16),
    "bounded-staleness": (0.12, 0.05),
}


def test_what_the_pages_say():
    for one in half_synchronous():
        way = next(way for way in WITHIN if one.name.endswith(f"ms-{way}"))
        several = one.counts > 2
        assert np.abs(one.errors[several]).max() < WITHIN[way][one.method == "mva"], one.name


def test_rounds_are_no_asynchronous_training():
    (folder,) = [folder for folder in untraced_folders() if folder.name.endswith("cubic-25ms-k-sync")]
    workers, measured = read_measured(folder)
    free = predict(read_testbed(folder_of_trace(folder)), workers=workers.tolist())
    assert (free.steps_per_second > 2 * measured).all()
