"""Single messages under BBR: how late they are is what rings of plain sockets showed."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuemodel.comparison import compare
from queuemodel.errors import ModelError
from queuemodel.prediction import predict
from queuemodel.strategies import fit_rounds, simulate
from queuemodel.strategies.late_messages import WINDOW, late, late_rounds
from queuemodel.training import Cluster, Job, Profile, Source
from queuemodel.training.rounds import Bucket, Round

RINGS = Path(__file__).parents[2] / "validation" / "testbed" / "rings.jsonl"
PAYLOAD = 1448 / 1514


def rings():
    """Each recorded ring, and what one of so many ranks takes where nothing is lost: under cubic, or in 40 ms."""
    rows = [json.loads(line) for line in RINGS.read_text().splitlines()]
    lossless = [row for row in rows if row["congestion_control"] == "cubic" or row["buffer_ms"] == 40]
    known = sorted({row["ranks"] for row in lossless})
    mean = [np.mean([row["wire"] for row in lossless if row["ranks"] == ranks]) for ranks in known]
    for row in rows:
        yield row, float(np.interp(row["ranks"], known, mean))


def predicted(row):
    bandwidth, buffer = row["mbit"] * 125_000 * PAYLOAD, row["buffer_ms"] / 1e3
    part = np.array(row["pack_bytes"] / row["ranks"])
    return float(late(part, row["ranks"], bandwidth=bandwidth, buffer=buffer) * bandwidth / part)


def test_rings_of_plain_sockets_take_as_long():
    """Within 0.06 of the wire's time on average; without the law, the control, three times as far off."""
    short = [(row, base) for row, base in rings() if row["congestion_control"] == "bbr" and row["buffer_ms"] < 40]
    errors = np.array([base + predicted(row) - row["wire"] for row, base in short])
    nothing = np.array([base - row["wire"] for row, base in short])
    assert np.abs(errors).mean() < 0.06
    assert np.abs(nothing).mean() > 3 * np.abs(errors).mean()


def test_nothing_is_late_in_a_buffer_that_holds_the_window():
    for row, _ in rings():
        if row["congestion_control"] == "bbr" and row["mbit"] * 125 * row["buffer_ms"] * PAYLOAD > WINDOW:
            assert predicted(row) == 0
            assert row["wire"] < 1.15


@given(st.floats(1, 1e9), st.floats(1e4, 1e9), st.floats(0, 1), st.integers(2, 64))
def test_no_message_is_later_than_a_full_buffer_and_longer_ones_not_less(size, bandwidth, buffer, ranks):
    short, long = late(np.array([size, 2 * size]), ranks, bandwidth=bandwidth, buffer=buffer)
    assert 0 <= short <= long <= buffer
    assert late_rounds([size], ranks, bandwidth=bandwidth, buffer=buffer)[0] <= 2 * (ranks - 1) * buffer


def ring_profile(framework, cluster, *, bandwidth=7e6, size=400_000, ranks=3):
    """Rounds whose packs follow each other, as late as the law says."""
    took = (
        2
        * (ranks - 1)
        * (size / ranks / bandwidth + float(late(np.array(size / ranks), ranks, bandwidth=bandwidth, buffer=0.012)))
    )
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


def test_what_the_link_carries_is_found_beside_what_is_late():
    assert fit_rounds(ring_profile("tensorflow", BBR)).bandwidth == pytest.approx(7e6, rel=0.02)


@pytest.mark.parametrize(
    ("framework", "cluster"),
    [("tensorflow", {}), ("tensorflow", BBR | {"congestion_control": "cubic"}), ("pytorch", BBR)],
)
def test_it_is_for_single_messages_under_bbr_only(framework, cluster):
    fitted = fit_rounds(ring_profile(framework, cluster))
    assert fitted.buffer == 0
    assert fitted.bandwidth < 6.5e6


def test_a_network_may_be_told_when_asked_instead_of_when_imported():
    known, untold = ring_profile("tensorflow", BBR), ring_profile("tensorflow", {})
    for ask in (
        lambda profile, **told: predict(profile, workers=[2, 4, 8], **told).to_rows(),
        lambda profile, **told: simulate(profile, workers=4, steps=20, **told).to_rows(),
        lambda profile, **told: compare(profile, workers=4, strategies=["sync", "local-sgd"], **told).to_rows(),
    ):
        assert ask(untold, **BBR) == ask(known) != ask(untold)
        with pytest.raises(ModelError, match="congestion_control must be one of bbr"):
            ask(known, congestion_control="vegas")
