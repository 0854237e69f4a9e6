"""Ranks that wait for input which is loaded ahead: what is recorded of it, and what that does among more ranks."""

import msgspec
import numpy as np
import pytest

import queuemodel as qm
from queuemodel.strategies import fit
from queuemodel.strategies.loading import AHEAD, loading_times, waits
from queuemodel.training.rounds import Bucket, Round

COMPUTED = 0.2


def always(rng, size):
    return rng.gamma(100, 0.0035, size)


def often(rng, size):
    return rng.exponential(0.3, size)


def seldom(rng, size):
    return np.where(rng.random(size) < 0.06, 1.5, 0.02)


def trained(law, ranks, rounds, *, ahead=AHEAD, seed=0, computed=COMPUTED):
    """Rounds as recorded: of each rank a loader that begins a batch when the one before is made and a place is free."""
    rng = np.random.default_rng(seed)
    load = law(rng, (rounds, ranks))
    made, taken, end, recorded = np.zeros((rounds, ranks)), np.zeros((rounds, ranks)), 0.0, []
    for k in range(rounds):
        for rank in range(ranks):
            free = taken[k - ahead, rank] if k >= ahead else 0.0
            made[k, rank] = max(made[k - 1, rank] if k else 0.0, free) + load[k, rank]
            taken[k, rank] = max(made[k, rank], end)
        begin, end = end, taken[k].max() + computed
        recorded += [
            Round(rank=r, ranks=ranks, number=k, round_time=end - begin, waited=taken[k, r] - begin, computed=computed)
            for r in range(ranks)
        ]
    return recorded


def round_time(recorded):
    return np.mean([one.round_time for one in recorded if one.rank == 0 and one.number >= 50])


def predicted(loading, ranks):
    return COMPUTED + waits(loading, np.full(2500, COMPUTED), ranks=ranks).mean()


@pytest.mark.parametrize(("loading", "computing"), [(1.0, 1.0), (2.0, 1.0), (0.5, 1.0)])
def test_one_rank_and_its_loader_are_a_queue_with_a_finite_buffer(loading, computing):
    """M/M/1/K: exponential times, `AHEAD` batches and the one in use."""
    rng, m, K = np.random.default_rng(1), 40_000, AHEAD + 1
    times = rng.exponential(computing, m)
    rho = computing / loading
    full = 1 / (K + 1) if rho == 1 else (1 - rho) * rho**K / (1 - rho ** (K + 1))
    cycle = (times + waits([rng.exponential(loading, m)], times, ranks=1)).mean()
    assert cycle == pytest.approx(loading / (1 - full), rel=0.02)
    assert cycle != pytest.approx(loading / (1 - full / 2), rel=0.02)


@pytest.mark.parametrize("ranks", [1, 3, 20])
def test_constant_loaders_are_waited_for_in_every_round_or_in_none(ranks):
    slow, quick = (
        waits([np.array([0.5])], np.full(10, 0.2), ranks=ranks),
        waits([np.array([0.2])], np.full(10, 0.2), ranks=ranks),
    )
    assert slow == pytest.approx([0.3] * 10)
    assert quick == pytest.approx([0.0] * 10)
    assert waits([np.array([0.2])], np.full(10, 0.5), ranks=ranks, steps=4) == pytest.approx([0.3] * 10)


def test_a_rank_whose_loader_is_slow_holds_up_all():
    loading = [np.array([0.1]), np.array([0.5])]
    assert waits(loading, np.full(5, 0.2), ranks=1) == pytest.approx([0.0] * 5)
    for ranks in (2, 7):
        assert waits(loading, np.full(5, 0.2), ranks=ranks) == pytest.approx([0.3] * 5)


@pytest.mark.parametrize("law", [always, often, seldom])
@pytest.mark.parametrize("recorded", [1, 2])
def test_recorded_waits_tell_the_rounds_of_more_ranks(law, recorded):
    loading = loading_times(trained(law, recorded, 2000))
    assert len(loading) == recorded
    for ranks in (1, 4, 8):
        assert predicted(loading, ranks) == pytest.approx(round_time(trained(law, ranks, 2500, seed=1)), rel=0.15)


@pytest.mark.parametrize("law", [often, seldom])
def test_neither_a_shortest_round_nor_late_computation_would_tell_them(law):
    rounds = trained(law, 2, 2000)
    measured = round_time(trained(law, 8, 2500, seed=1))
    late = np.array([one.waited for one in rounds])
    computation = COMPUTED + np.random.default_rng(0).choice(late, (20_000, 8)).max(axis=1).mean()
    assert max(COMPUTED, round_time(rounds)) < 0.85 * measured < 1.2 * measured < computation


def test_loaders_that_keep_up_and_rounds_without_waits():
    assert loading_times([Round(number=0, round_time=1.0, computed=0.5)]) == ()
    (one,) = loading_times([Round(number=0, round_time=1.0, waited=0.4, computed=0.5)])
    assert one.tolist() == pytest.approx([1.0])
    late = {3: 0.5, 4: 0.1}
    rounds = [
        Round(number=k, round_time=0.2 + late.get(k, 0.0), waited=late.get(k, 0.0), computed=0.2) for k in range(6)
    ]
    (one,) = loading_times(rounds)
    assert one.tolist() == pytest.approx([0.0, 0.0, 0.0, 0.2 + 0.1, 0.5 + AHEAD * 0.2])  # four were in time


def reducing(one):
    """The same round, at the end of which a bucket is reduced for a tenth of the computation's time."""
    over = one.round_time - one.waited
    begun = over - COMPUTED / 10
    bucket = Bucket(bytes=1_000_000, ready=0.9 * COMPUTED, begin=begun, end=over)
    return msgspec.structs.replace(one, computed=0.9 * COMPUTED, buckets=[bucket])


@pytest.mark.parametrize("law", [always, often, seldom])
def test_intervals_hold_where_more_is_loaded_ahead(law):
    profile = qm.Profile(
        source=qm.Source(framework="none"),
        job=qm.Job(batch_size=1, parameter_bytes=1_000_000, tensors=1),
        cluster=qm.Cluster(workers=2),
        rounds=[reducing(one) for one in trained(law, 2, 500, ahead=6)],
    )
    curve = fit(profile, strategy="all-reduce").throughput([2, 8])
    assert curve.bottleneck == ("input" if law is not seldom else "compute")
    for n, lower, upper in zip(curve.workers, curve.lower, curve.upper, strict=True):
        computed = COMPUTED * (0.9 + 0.2 * (n - 1) / n)
        measured = round_time(trained(law, n, 2500, ahead=6, seed=1, computed=computed))
        assert lower < n / measured < upper
        assert upper < (1.6 if law is always else 3) * lower
