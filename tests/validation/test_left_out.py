"""Fits of tables, judged on sources that their prior was not learnt from."""

from dataclasses import replace

import numpy as np
import pytest

from validation.scaling import CLUSTERS, LAWS, by_law, judged

pytestmark = pytest.mark.slow
#: Number of jobs, largest mean error, least coverage, and how the error compares with the best one-line law.
ROWS = {
    CLUSTERS: (42, 0.11, 0.85, 1.0), "all-reduce, published": (106, 0.115, 0.85, 1.15),
    "all-reduce, published, ranks and sparse gradients known": (106, 0.08, 0.85, 0.8),
    "sync-ps": (33, 0.21, 0.85, 0.95), "async-ps, cloud and published": (15, 0.15, 0.85, 0.75),
    "async-ps, testbed, bytes and links known": (18, 0.13, 0.8, 0.3),
    "sharded, to 4 times the second group": (17, 0.05, 0.85, 1.05),
    "sharded, beyond, other models of the cluster known": (9, 0.18, 0.8, 0.5),
    "sharded, from one group, other models of the cluster known": (18, 0.07, 0.85, 0.4),
    "placements, Pollux": (6, 0.22, 0.5, 1.15), "placements, Sia": (3, 0.07, 0.85, 1.1),
    "placements, Gradient-Compression": (4, 0.04, 0.9, 0.8),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_jobs_of_an_unseen_source(row):
    found, (count, most, least, against) = judged()[row], ROWS[row]
    error = np.mean([one.error for one in found])
    assert len(found) == count
    assert error < most
    assert error < against * min(np.nanmean([by_law(law, one.table) for one in found]) for law in LAWS)
    assert np.concatenate([one.inside for one in found]).mean() > least
    moved = [[replace(one, predicted=factor * one.predicted).error for one in found] for factor in (1.3, 1 / 1.3)]
    assert np.mean(moved, axis=1).max() > most, "three tenths too much or too little would go unnoticed"
