"""Ranks that wait for input which is loaded ahead: what is recorded of it, and what that does among more ranks."""

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
        source=qm.Source(framework="none"), job=qm.Job(batch_size=1, parameter_bytes=1_000_000, tensors=1),
        cluster=qm.Cluster(workers=2), rounds=rounds,
    )  # fmt: skip


def computed_of(n):
    """Computation and the reduction among n ranks, a ring's share of the recorded one among two."""
    return COMPUTED * (0.9 + 0.2 * (n - 1) / n)


@pytest.mark.parametrize(("law", "slow"), [(always, 1.0), (often, 1.0), (seldom, 1.0), (always, 1.8), (often, 3.0)])
def test_loading_times_extrapolate_to_ranks(law, slow):
    recorded = trained(law, 2, 2000, slow=slow)
    curve = qm.predict(profile(recorded), workers=[2, 4, 8])
    for n, rate in zip(curve.workers.tolist(), curve.iterations_per_second, strict=True):
        if slow == 1.0:
            truth = round_time(trained(law, n, 2500, seed=1, computed=computed_of(n)))
            assert 1 / rate == pytest.approx(truth, rel=0.25 if law is seldom else 0.15), n
            if n == 8 and law is not always:  # the control: as if nobody waited more than two do
                assert 1 / rate > 1.1 * round_time(recorded)
    if slow > 1.0:  # one slow loader holds up all
        assert 1 / curve.iterations_per_second[0] == pytest.approx(round_time(recorded), rel=0.1)
    assert law is seldom or curve.bottleneck == "input"


@pytest.mark.parametrize("law", [always, often, seldom])
def test_intervals_hold_with_deeper_prefetch(law):
    curve = qm.predict(profile(trained(law, 2, 500, ahead=6)), workers=[2, 8])
    for n, lower, upper in zip(curve.workers, curve.lower, curve.upper, strict=True):
        measured = round_time(trained(law, n, 2500, ahead=6, seed=1, computed=computed_of(n)))
        assert lower < n / measured < upper
        assert upper < (1.6 if law is always else 3) * lower
    if law is not always:  # loaders that are further ahead make ranks wait less, never more
        assert np.all(np.log(curve.upper / curve.steps_per_second) > 1.3 * np.log(curve.steps_per_second / curve.lower))


@pytest.mark.parametrize(("law", "ahead"), [(often, 1), (often, 6), (always, 8)])
def test_more_batches_ahead_shorten_waits(law, ahead):
    """Of exponential loading times a longer buffer hides more; of constant ones that are too long, nothing."""
    recorded = profile(trained(law, 2, 2000))
    truth = round_time(trained(law, 4, 2500, ahead=ahead, seed=1, computed=computed_of(4)))
    as_profiled, changed = (
        1 / qm.predict(recorded, workers=[4], batches_ahead=k).iterations_per_second[0] for k in (2, ahead)
    )
    assert changed == pytest.approx(truth, rel=0.15)
    assert 1 / qm.predict(recorded, workers=[4]).iterations_per_second[0] == pytest.approx(as_profiled)
    if law is often:
        assert (changed < 0.95 * as_profiled) == (ahead > 2)


def of_rank(taken, waited):
    """Product-limit quantiles of batches' times: exact where a batch came late, a limit where it was in time."""
    values, exact, before = [], [], 0
    for k in range(1, len(taken)):
        begun = max(before, k - AHEAD)
        values.append(taken[k] - taken[begun])
        exact.append(waited[k] > 0)
        if exact[-1]:
            if begun == before:  # the loader never stopped
                values[before:] = [values[-1] / (k - before)] * (k - before)
                exact[before:] = [True] * (k - before)
            before = k
    values, exact = np.array(values), np.array(exact)

    def reached(x):  # probability of at most x
        return np.prod([1 - 1 / rank for rank, v, known in zip(ranks, values, exact, strict=True) if known and v > x])

    ranks = 1 + np.argsort(np.argsort(values))  # how many are at most as long
    at = (np.arange(len(values)) + 0.5) / len(values)
    below = [reached(v) for v in np.sort(values)]
    return [0.0 if q <= reached(0.0) else np.sort(values)[np.searchsorted(below, q)] for q in at]


@pytest.mark.parametrize(
    "law", [often, seldom, lambda rng, size: rng.gamma(4, 0.06, size)], ids=["often", "seldom", ""]
)
def test_loading_times_by_product_limit(law):
    recorded = trained(lambda rng, size: law(rng, size) * rng.uniform(0.99, 1.01, size), 2, 60, seed=3)
    few = trained(lambda rng, size: np.full(size, 0.21), 3, 20)  # a run that waited less
    found = fit_rounds(profile([*few, *recorded])).loading
    for rank, times in enumerate(found):
        rows = [(one.round_time, one.waited) for one in recorded if one.rank == rank]
        took, waited = np.array(rows).T
        assert times == pytest.approx(of_rank(np.cumsum(took) - took + waited, waited))
