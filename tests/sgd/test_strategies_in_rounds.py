"""Strategies on ranks differ in what is sent and when ranks meet; all else is that of synchronous rounds."""

import numpy as np
import pytest

import queuemodel as qm
from queuemodel import sgd as qd
from queuemodel.models import fit_rounds
from queuemodel.profile import Bucket, Round
from queuemodel.sgd import Candidate, compare
from queuemodel.transport import Link
from tests.oracles.by_hand import job_of

SIZE, BANDWIDTH, COMPUTED, TAIL, BUFFER = 400_000, 2e6, 0.3, 0.02, 0.012


class Silent(qd.Strategy):
    """Nothing is ever sent; workers may wait for each other."""

    def __init__(self, meeting=False):
        self.sent = qd.Sent(synchronized=meeting)

    def update(self, state, gradients, moment):
        return self.sent


def profile(rounds, **cluster):
    """Rounds of two ranks: what each waited, what both computed and when the buckets ended."""
    made = []
    for number, (waits, computed, ends) in enumerate(rounds):
        for rank, waited in enumerate(map(float, waits)):
            ready = computed * np.linspace(0.5, 1.0, 2)
            own = np.maximum(np.asarray(ends) - waited, ready)
            spans = zip(ready.tolist(), own.tolist(), strict=True)
            made.append(Round(
                rank=rank, ranks=2, number=number, waited=waited, computed=computed,
                round_time=float(max(own[-1], computed) + waited + TAIL),
                buckets=[Bucket(SIZE // 2, ready, ready, end) for ready, end in spans],
            ))  # fmt: skip
    return job_of(made, [SIZE // 2] * 2, framework="tensorflow", workers=2, **cluster)


def alike(**cluster):
    """Nothing varies: two buckets, each of which a ring of two reduces in 0.1 s."""
    first = 0.5 * COMPUTED + SIZE / 2 / BANDWIDTH
    ends = [first, max(first, COMPUTED) + SIZE / 2 / BANDWIDTH]
    return profile([([0.0, 0.0], COMPUTED, ends)] * 8, **cluster)


def seconds(made, *ways, workers=4, compression=0.0, **asked):
    named = [Candidate(str(i), way, compression=compression) for i, way in enumerate(ways)]
    rows = compare(made, workers=workers, strategies=named, **asked).rows
    return [workers / row.steps_per_second for row in rows]


OPTIONS = [
    {}, {"latency": 0.05, "gradient_precision": "half"}, {"bandwidth": 1e7, "latency": 0.0},
    {"nodes_per_rack": 2, "oversubscription": 4.0}, {"ranks_per_node": 2, "inside_bandwidth": 5e6},
    {"ranks_per_node": 2, "inside_bandwidth": 5e6, "nodes_per_rack": 1, "oversubscription": 3.0},
    {"collective": "halving-doubling", "accelerator_speed": 2.0}, {"congestion_control": "bbr", "buffer": BUFFER},
]  # fmt: skip


@pytest.mark.parametrize("asked", OPTIONS, ids=str)
def test_special_cases_and_messages(asked):
    """Of four ranks: top-k gathers, block sign and local SGD reduce, overlapped averaging hides what fits."""
    made = alike(bandwidth=BANDWIDTH / 0.95)
    ways = [qd.SynchronousSGD(), qd.LocalSGD(1), Silent(), Silent(meeting=True)]
    sync, every, alone, meeting = seconds(made, *ways, **asked)
    assert alone == pytest.approx(COMPUTED / asked.get("accelerator_speed", 1.0) + TAIL)
    assert [meeting, every] == pytest.approx([alone, sync])
    assert sync == pytest.approx(4 / qm.predict(made, workers=[4], **asked).at(4))
    assert sync > 1.05 * alone  # the control
    question = {name: value for name, value in asked.items() if name != "gradient_precision"}
    model = qm.predict(made, workers=[4], **question).model
    bandwidth, latency, buffer = model.link_at(4)
    assert (buffer > 0) == ("buffer" in asked)

    def taken(size):
        held = 2 * 3 * buffer * min(1.0, size / 4 / (bandwidth * buffer) / 3.8) if buffer else 0.0  # as documented
        return model.collective.time(size, 4, Link(bandwidth, latency=latency)) + held

    sign, top = qd.BlockSign(1), qd.TopK(0.4)
    ways = [*map(qd.DoubleCompression, (sign, top)), qd.LocalSGD(4), qd.OverlapLocalSGD(1), qd.OverlapLocalSGD(3)]
    summed, gathered, local, *ahead = seconds(made, *ways, **question)
    size, named = (way.bits(SIZE // 4) / 8 for way in (sign, top))
    assert summed - alone == pytest.approx(taken(size), rel=0.01)
    assert gathered - alone == pytest.approx(taken(4 * named) / 2, rel=0.01)
    assert local - alone == pytest.approx(taken(SIZE) / 4, rel=0.01)
    assert seconds(made, qd.LocalSGD(4), compression=7.0, **question)[0] - local == pytest.approx(7.0 / 4)
    assert ahead == pytest.approx([max(alone, taken(SIZE) / k) for k in (1, 3)], rel=0.02)


def test_gossip_between_racks_and_nodes():
    made, about = alike(bandwidth=BANDWIDTH / 0.95), {"workers": 8, "latency": 0.0}
    message = SIZE / BANDWIDTH  # to each of two neighbours, of which one is in the same rack, or on the same node
    for asked, expected in (
        ({}, 2 * message), ({"nodes_per_rack": 2, "oversubscription": 8.0}, 8 * message),
        ({"ranks_per_node": 4, "inside_bandwidth": BANDWIDTH / 10}, 20 * message),
        ({"ranks_per_node": 4, "inside_bandwidth": 1e12}, 2 * message),
    ):  # fmt: skip
        alone, gossip = seconds(made, Silent(), qd.SquarmSGD("ring"), **about, **asked)
        assert gossip - alone == pytest.approx(expected, rel=0.02)


def trained(steps, rounds, *, ranks, seed, ahead=False, warm=100):
    """Own simulation: waits, ends and mean seconds of rounds of ``steps`` batches of 0.25 s that end in a barrier.

    A loader takes 0.3 s for a batch (gamma) and is two batches ahead; of ``ahead``, ranks wait for those of the round
    before.
    """
    rng, at = np.random.default_rng(seed), np.zeros(ranks)
    made, taken, waits, took, arrival = np.zeros(ranks), [np.zeros(ranks)] * 2, [], [], 0.0
    for _ in range(rounds + warm):
        began, waited = at.max(), np.zeros(ranks)
        for _ in range(steps):
            made = np.maximum(made, taken[-2]) + rng.gamma(2, 0.15, ranks)
            start = np.maximum(at, made)
            taken, waited, at = [taken[-1], start], waited + start - at, start + 0.25
        if ahead:
            at = np.maximum(at, arrival)
            arrival = at.max()
        else:
            at = np.full(ranks, at.max())
        waits.append(waited)
        took.append(at.max() - began)
    return np.array(waits[warm:]), np.array(took[warm:])


def test_every_strategy_waits_for_input():
    waits, took = trained(1, 600, ranks=2, seed=1)
    made = profile([(wait, 0.25 - TAIL, [end - TAIL] * 2) for wait, end in zip(waits, took, strict=True)])
    about = {"bandwidth": 1e14, "latency": 0.0}  # nothing is to be sent
    assert len(fit_rounds(made).loading) == 2
    for n in (2, 8):
        ways = qd.SynchronousSGD(), qd.DoubleCompression(qd.TopK(0.01)), qd.LocalSGD(8), qd.OverlapLocalSGD(2)
        found = seconds(made, *ways, workers=n, **about)
        truth = [trained(k, 40_000 // k, ranks=n, seed=2, ahead=ahead)[1].mean() / k
                 for k, ahead in ((1, False), (1, False), (8, False), (2, True))]  # fmt: skip
        np.testing.assert_allclose(found, truth, rtol=0.08)  # loading is known from 600 rounds
        np.testing.assert_allclose(np.divide(found, found[0]), np.divide(truth, truth[0]), rtol=0.02)
        assert min(truth) > 1.04 * 0.25  # the control: as if input were always there
