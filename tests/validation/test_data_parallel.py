"""TensorFlow's rings under BBR, recorded: what three ranks' traces tell of more, and two ranks' do not."""

import json

import msgspec
import numpy as np
import pytest

from queuemodel import predict
from queuemodel.adapters import read_mirrored
from testbed.recordings import unpacked
from validation.data_parallel import OURS, read_ranks

SERIES = unpacked(OURS)
AGAIN, BEFORE = SERIES / "mirrored-resnet50-60-packs-again", SERIES / "mirrored-resnet50-60-packs"


@pytest.fixture(scope="module")
def profile():
    return untold(read_ranks(AGAIN))


def untold(profile):
    """The same, of a network that nobody knows."""
    cluster = msgspec.structs.replace(profile.cluster, congestion_control="unknown", buffer=None, origins={})
    return msgspec.structs.replace(profile, cluster=cluster)


def packs(profile, ranks):
    return {tuple(bucket.bytes for bucket in one.buckets) for one in profile.rounds if one.ranks == ranks}


def test_small_packs_have_recorded_sizes(profile):
    """Among three ranks, buffers are a third of a pack: below the 256 KiB that TensorFlow records."""
    assert packs(profile, 3) == packs(profile, 2)
    (sizes,) = packs(profile, 2)
    assert sum(sizes) == profile.job.parameter_bytes
    (alone,) = packs(read_mirrored([AGAIN / "trace_n3"], batch_size=1, parameter_bytes=sum(sizes)), 3)
    np.testing.assert_allclose(alone, sizes, rtol=0.03)
    assert alone != sizes


@pytest.mark.parametrize("measured", [AGAIN, BEFORE], ids=lambda folder: folder.name)
def test_three_ranks_predict_under_bbr(profile, measured):
    """Within 8 %, in the run that was traced and in one of another day; from two ranks, the control, 10 % and more."""
    points = json.loads((measured / "measured.json").read_text())[2:]
    workers, truth = (np.array([one[key] for one in points]) for key in ("workers", "group_steps_per_s"))
    curve = predict(profile, workers=workers.tolist())
    assert np.abs(curve.iterations_per_second / truth - 1).max() < 0.08
    assert np.all((curve.lower <= truth * workers) & (truth * workers <= curve.upper))
    two = predict(untold(read_ranks(BEFORE)), workers=workers.tolist())
    assert (two.iterations_per_second / truth - 1).min() > 0.1
