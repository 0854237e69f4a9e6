"""Clusters that train by half-synchronous strategies, predicted from the trace of one worker."""

import json

import numpy as np
import pytest

pytest.importorskip("tensorflow", reason="reading the testbed's traces needs TensorFlow")

from validation.half_synchronous import half_synchronous
from validation.model_errors import FILE, half_synchronous_folders, learn_waiting, leave_kind_out, waiting_errors

#: Largest errors of the simulation beyond two workers, whose phases decide.
WITHIN = {
    "k-async": 0.12, "k-batch-async": 0.03, "k-sync": 0.04, "k-batch-sync": 0.08, "backup-workers": 0.09,
    "bounded-staleness": 0.16,
}  # fmt: skip


@pytest.fixture(scope="module")
def series():
    return half_synchronous(half_synchronous_folders())


def test_what_the_pages_say(series):
    for one in series:
        way = next(way for way in WITHIN if one.name.endswith(f"ms-{way}"))
        assert np.abs(one.errors[one.counts > 2]).max() < WITHIN[way], one.name


def test_intervals_hold_on_series_left_out(series):
    found = waiting_errors(series)
    assert {one.kind: one.parts.any() for one in found}["cubic, 25 ms, k-batch-async"] == 0, "nobody waits there"
    ends = leave_kind_out(found, learn_waiting)
    inside = np.concatenate([(lower <= np.exp(one.off)) & (np.exp(one.off) <= upper) for one, lower, upper in ends])
    narrow = np.concatenate([np.abs(one.off) <= 0.3 * np.log(upper) for one, _, upper in ends])
    assert inside.mean() >= 0.85
    assert narrow.mean() < 0.75, "far too narrow ones go unnoticed"
    packaged = json.loads(FILE.read_text())["trace"]["waiting"]
    assert packaged == pytest.approx(learn_waiting(found)[0], abs=0.01), "run python -m validation.model_errors"
