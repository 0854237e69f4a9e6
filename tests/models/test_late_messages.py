"""Single messages under BBR come later than their bytes allow: in what is fitted and in what is predicted."""

import numpy as np
import pytest

from queuemodel import ModelError, predict
from queuemodel.models import fit_rounds, simulate
from queuemodel.profile import Bucket, Cluster, Job, Profile, Round, Source
from queuemodel.sgd import compare
from queuemodel.transport.sharing import ring_lateness


def late(size, ranks, bandwidth, buffer=0.012):
    """Seconds by which a message of a ring of three ranks or more comes later, as rings of plain sockets showed."""
    return 0.0 if bandwidth * buffer > 79 * 1448 else buffer * min(1.0, size / (bandwidth * buffer) / 3.8)


def ring_profile(framework, cluster, *, bandwidth=7e6, size=400_000, ranks=3):
    """Rounds whose packs follow each other, as late as the law says."""
    took = 2 * (ranks - 1) * (size / ranks / bandwidth + late(size / ranks, ranks, bandwidth))
    rounds = [
        Round(
            rank=rank, ranks=ranks, number=number, round_time=0.1 + 2 * took, computed=0.1, gradients=[],
            buckets=[Bucket(size, 0.1, 0.1 + i * took, 0.1 + (i + 1) * took) for i in range(2)],
        )
        for number in range(6) for rank in range(ranks)
    ]  # fmt: skip
    return Profile(
        source=Source(framework=framework), cluster=Cluster(workers=ranks, **cluster),
        job=Job(batch_size=1, parameter_bytes=2 * size, tensors=2), rounds=rounds,
    )  # fmt: skip


BBR = {"congestion_control": "bbr", "buffer": 0.012}


@pytest.mark.parametrize(("bandwidth", "size"), [(7e6, 400_000), (7e6, 2_000_000), (15e6, 400_000)])
def test_bandwidth_is_found_despite_lateness(bandwidth, size):
    """Of messages that the buffer holds to a third, that overflow it for sure, and where it holds the whole window."""
    profile = ring_profile("tensorflow", BBR, bandwidth=bandwidth, size=size)
    assert fit_rounds(profile).bandwidth == pytest.approx(bandwidth, rel=0.02)
    wire, waits = 2 * 14 * size / 8 / bandwidth, 2 * 14 * late(size / 8, 8, bandwidth)
    curve = predict(profile, workers=[8])
    assert 1 / curve.iterations_per_second[0] == pytest.approx(0.1 + wire + waits, rel=0.03)
    assert curve.residence_time[0] == pytest.approx([wire, waits, 0.0], rel=0.03, abs=0.01)


def test_two_simultaneous_ranks_lose_less():
    """A message is surely late from 19 buffers on between two ranks, from 3.8 among more; the ring has 2 (n - 1)."""
    link = {"bandwidth": 7e6, "buffer": 0.012}  # which holds 84,000 bytes
    sizes = 84_000 * np.array([9.5, 19.0, 40.0])
    assert ring_lateness(2 * sizes, 2, **link) == pytest.approx(0.012 * np.array([1.0, 2.0, 2.0]))
    assert ring_lateness(3 * sizes / 5, 3, **link) == pytest.approx(0.012 * np.array([2.0, 4.0, 4.0]))
    for lossless in ({"buffer": 0.0}, {"buffer": 114_392 / 7e6}):
        assert not ring_lateness(2 * sizes, 2, **link | lossless).any()
    curve = predict(ring_profile("tensorflow", BBR), workers=[2])
    waits = 2 * 2 * 0.012 * 200_000 / 84_000 / 19
    assert 1 / curve.iterations_per_second[0] == pytest.approx(0.1 + 2 * 400_000 / 7e6 + waits, rel=0.01)


@pytest.mark.parametrize(
    ("framework", "cluster"),
    [("tensorflow", {}), ("tensorflow", BBR | {"congestion_control": "cubic"}), ("pytorch", BBR)],
)
def test_lateness_for_single_messages_under_bbr(framework, cluster):
    fitted = fit_rounds(ring_profile(framework, cluster))
    assert fitted.buffer == 0
    assert fitted.bandwidth < 6.5e6


def test_network_may_be_given_when_asked():
    known, untold = ring_profile("tensorflow", BBR), ring_profile("tensorflow", {})
    for ranks in (2, 3):
        note = predict(ring_profile("tensorflow", {}, ranks=ranks), workers=[8]).note
        assert ("record three ranks" in note) == (ranks == 2)
    for ask in (
        lambda profile, **told: predict(profile, workers=[2, 4, 8], **told).to_rows(),
        lambda profile, **told: simulate(profile, workers=4, steps=20, **told).to_rows(),
        lambda profile, **told: compare(profile, workers=4, strategies=["sync", "local-sgd"], **told).to_rows(),
    ):
        assert ask(untold, **BBR) == ask(known) != ask(untold)
        with pytest.raises(ModelError, match="congestion_control must be one of bbr"):
            ask(known, congestion_control="vegas")
