"""Ranks that wait for input which is loaded ahead: what is recorded of it, and what that does among more ranks."""

import msgspec
import numpy as np
import pytest

import queuemodel as qm
from queuemodel.models import fit_rounds
from queuemodel.profile import Bucket, Round

COMPUTED = 0.2
AHEAD = 2  # batches that a loader may have ready, as documented


def always(rng, size):
    return rng.gamma(100, 0.0035, size)


def often(rng, size):
    return rng.exponential(0.3, size)


def seldom(rng, size):
    return np.where(rng.random(size) < 0.06, 1.5, 0.02)


def trained(law, ranks, rounds, *, ahead=AHEAD, seed=0, computed=COMPUTED, slow=1.0):
    """Rounds as recorded: of each rank a loader that begins a batch when the one before is made and a place is free.

    Rank 1's takes ``slow`` times as long. Each round ends in the reduction of a bucket, a tenth of its computation.
    """
    rng = np.random.default_rng(seed)
    load = law(rng, (rounds, ranks)) * np.where(np.arange(ranks) == 1, slow, 1.0)
    made, taken, end, recorded = np.zeros((rounds, ranks)), np.zeros((rounds, ranks)), 0.0, []
    for k in range(rounds):
        for rank in range(ranks):
            free = taken[k - ahead, rank] if k >= ahead else 0.0
            made[k, rank] = max(made[k - 1, rank] if k else 0.0, free) + load[k, rank]
            taken[k, rank] = max(made[k, rank], end)
        begin, end = end, taken[k].max() + computed
        bucket = Bucket(bytes=1_000_000, ready=0.9 * computed, begin=0.9 * computed, end=computed)
        recorded += [
            Round(rank=r, ranks=ranks, number=k, round_time=end - begin, waited=taken[k, r] - begin,
                  computed=0.9 * computed, buckets=[bucket])
            for r in range(ranks)
        ]  # fmt: skip
    return recorded


def round_time(recorded):
    return np.mean([one.round_time for one in recorded if one.rank == 0 and one.number >= 50])


def profile(rounds):
    return qm.Profile(
        source=qm.Source(framework="none"),
        job=qm.Job(batch_size=1, parameter_bytes=1_000_000, tensors=1),
        cluster=qm.Cluster(workers=2),
        rounds=rounds,
    )


def computed_of(n):
    """Computation and the reduction among n ranks, a ring's share of the recorded one among two."""
    return COMPUTED * (0.9 + 0.2 * (n - 1) / n)


@pytest.mark.parametrize(("law", "slow"), [(always, 1.0), (often, 1.0), (seldom, 1.0), (always, 1.8), (often, 3.0)])
def test_recorded_waits_tell_the_rounds_of_more_ranks(law, slow):
    recorded = trained(law, 2, 2000, slow=slow)
    curve = qm.predict(profile(recorded), workers=[2, 4, 8])
    for n, rate in zip(curve.workers.tolist(), curve.rounds_per_second, strict=True):
        if slow == 1.0:
            truth = round_time(trained(law, n, 2500, seed=1, computed=computed_of(n)))
            assert 1 / rate == pytest.approx(truth, rel=0.25 if law is seldom else 0.15), n
            if n == 8 and law is not always:  # the control: as if nobody waited more than two do
                assert 1 / rate > 1.1 * round_time(recorded)
    if slow > 1.0:  # one slow loader holds up all
        assert 1 / curve.rounds_per_second[0] == pytest.approx(round_time(recorded), rel=0.1)
    assert law is seldom or curve.bottleneck == "input"


def test_constant_loaders_are_waited_for_in_every_round_or_in_none():
    waited = trained(lambda rng, size: np.full(size, 0.5), 2, 40)
    assert 1 / qm.predict(profile(waited), workers=[8]).rounds_per_second[0] == pytest.approx(0.5, rel=0.02)
    np.testing.assert_allclose(fit_rounds(profile(waited)).loading, 0.5)
    quick = trained(lambda rng, size: np.full(size, 0.1), 2, 40)
    plain = [msgspec.structs.replace(one, waited=0.0, round_time=COMPUTED) for one in quick]
    found, truth = (qm.predict(profile(one), workers=[2, 8]).steps_per_second for one in (quick, plain))
    assert found == pytest.approx(truth, rel=0.01)


def test_larger_batches_take_longer_to_load():
    recorded = profile(trained(always, 2, 200))
    plain, double = (qm.predict(recorded, workers=[4], **asked) for asked in ({}, {"batch_size": 2}))
    assert plain.rounds_per_second[0] == pytest.approx(2 * double.rounds_per_second[0], rel=0.05)
    faster = qm.predict(recorded, workers=[4], accelerator_speed=10.0)
    assert faster.rounds_per_second[0] == pytest.approx(plain.rounds_per_second[0], rel=0.05)  # input holds it up
    several = qm.predict(recorded, workers=[4], accumulation=4)
    assert several.steps_per_second[0] == pytest.approx(plain.steps_per_second[0], rel=0.05)


@pytest.mark.parametrize("law", [always, often, seldom])
def test_intervals_hold_where_more_is_loaded_ahead(law):
    curve = qm.predict(profile(trained(law, 2, 500, ahead=6)), workers=[2, 8])
    for n, lower, upper in zip(curve.workers, curve.lower, curve.upper, strict=True):
        measured = round_time(trained(law, n, 2500, ahead=6, seed=1, computed=computed_of(n)))
        assert lower < n / measured < upper
        assert upper < (1.6 if law is always else 3) * lower
    if law is not always:  # loaders that are further ahead make ranks wait less, never more
        assert np.all(np.log(curve.upper / curve.steps_per_second) > 1.3 * np.log(curve.steps_per_second / curve.lower))
