"""What recorded rounds tell: of a network that starts slowly, of slow ranks, of input loaded ahead, of tracing."""

import msgspec
import numpy as np
import pytest
from scipy.stats import norm

import queuemodel as qm
from queuemodel import predict
from queuemodel.models import fit_rounds, order_statistic
from queuemodel.profile import Bucket, Gradient, Round
from tests.oracles.by_hand import job_of, rounds_of

BANDWIDTH, SIZES, SHARES = 7e6, (3_000_000, 300_000), (0.25, 1.0)


def recorded(*, computed=1.0, start=0.0, tracing=1.0, slow=1.0, cv=0.02, evaluated=0.0, rounds=12, seed=1):
    """A job of two ranks: a large bucket ready after a quarter of the computation, a small one at its end.

    Each reduction takes ``start`` seconds beside its bytes; ``tracing`` makes computation longer, and ``slow`` that of
    rank 1. Every third round begins with so many seconds in which both evaluate. One rank alone does the same.
    """
    own = tracing * computed * (1 + cv * np.random.default_rng(seed).standard_normal((rounds, 3))) * [1.0, slow, 1.0]
    late, slowest = np.where(np.arange(rounds) % 3, 0.0, evaluated)[:, None], own[:, :2].max(axis=1)
    first = 0.25 * slowest + start + SIZES[0] / BANDWIDTH  # of a ring of two: its bytes once
    last = np.maximum(first, slowest) + start + SIZES[1] / BANDWIDTH
    ready = late[..., None] + own[:, :2, None] * SHARES
    both = rounds_of(late + own[:, :2], ready, late + np.column_stack([first, last]), SIZES)
    alone = [Round(number=k, round_time=t, computed=t) for k, t in enumerate((late[:, 0] + own[:, 2]).tolist())]
    return job_of([*both, *alone], SIZES)


def with_rates(profile, iterations_per_second):
    points = [qm.Measurement(workers=n, steps_per_second=n * rate) for n, rate in iterations_per_second.items()]
    return msgspec.structs.replace(profile, throughputs=points)


def test_large_bucket_gives_the_bandwidth():
    """By the last end alone, the small bucket's slow start would make the bandwidth 300 kB in 53 ms: 5.7 MB/s."""
    assert fit_rounds(recorded(start=0.01)).bandwidth == pytest.approx(BANDWIDTH, rel=0.04)
    assert fit_rounds(recorded()).bandwidth == pytest.approx(BANDWIDTH, rel=0.005)


@pytest.mark.parametrize("start", [0.0, 0.02])
def test_covariance_from_ends_of_rounds(start):
    """By 0.3 % of a round each; what is assumed of the latency, within a factor of 4, is one observation more."""
    fitted = fit_rounds(recorded(cv=0.0, start=start))
    messages, total = 2 * fitted.latency, 1.0 + start + SIZES[1] / BANDWIDTH
    ends = [[-size / fitted.bandwidth / total, messages / total] for size in SIZES] * 12
    slopes = np.vstack([np.array(ends) / 0.003, [0.0, 1 / np.log(4.0)]])
    np.testing.assert_allclose(fitted.covariance, np.linalg.inv(slopes.T @ slopes), rtol=1e-3)
    assert fitted.latency_known == (start > 0)


def test_size_independent_times_are_predicted():
    """Small models, or NVLink: as long for 300 kB as for 3 MB, and now and then shorter for more."""
    made = []
    for one in recorded(computed=0.1).rounds:
        took = [1.1e-3, 1.2e-3] if one.number % 2 else [1.0e-3, 1.3e-3]  # the smaller bucket's is longer
        own = [msgspec.structs.replace(b, end=b.ready + t) for b, t in zip(one.buckets, took, strict=False)]
        made.append(msgspec.structs.replace(one, buckets=own, round_time=one.computed + 2e-3 * bool(own)))
    curve = predict(job_of(made, SIZES), workers=[1, 2, 8])
    assert ((curve.efficiency > 0.85) & (curve.efficiency <= 1)).all()


@pytest.mark.parametrize("evaluated", [0.0, 0.6])
def test_common_round_effect_is_removed(evaluated):
    fitted = fit_rounds(recorded(cv=0.05, evaluated=evaluated, rounds=300))
    assert fitted.computed.std() / fitted.computed.mean() == pytest.approx(0.05 / (1 + evaluated / 3), rel=0.1)


def test_alternating_steps_are_refused():
    """Buckets are made anew after the first rounds; later ones that differ are other steps."""

    def half(those):
        small = [[msgspec.structs.replace(b, bytes=b.bytes // 2) for b in r.buckets] if r.number in those else r.buckets
                 for r in recorded().rounds]  # fmt: skip
        rounds = zip(recorded().rounds, small, strict=True)
        return job_of([msgspec.structs.replace(one, buckets=own) for one, own in rounds], SIZES)

    assert fit_rounds(half({0, 1})).bandwidth == pytest.approx(BANDWIDTH, rel=0.01)
    with pytest.raises(qm.FitError, match=r"round 1 of 2 ranks reduces 1,650,000 bytes in 2.*round 0 3,300,000 in 2"):
        fit_rounds(half(range(1, 12, 3)))


def test_untraced_rates_undo_what_tracing_costs():
    truth = predict(recorded(rounds=400), workers=[1, 2, 8]).steps_per_second
    slowed, rates = recorded(tracing=1.1, rounds=400), {1: truth[0], 2: truth[1] / 2}
    assert predict(with_rates(slowed, rates), workers=[1, 2, 8]).steps_per_second == pytest.approx(truth, rel=0.005)
    assert predict(slowed, workers=[8]).at(8) < 0.95 * truth[2]  # the control


def test_gap_between_rounds_is_constant():
    seconds = 1 / predict(recorded(), workers=[2, 8]).iterations_per_second
    later = predict(with_rates(recorded(), {2: 1 / (seconds[0] + 0.05)}), workers=[2, 8])
    assert 1 / later.iterations_per_second == pytest.approx(seconds + 0.05, rel=0.005)


@pytest.mark.parametrize("slow", [1.1, 1.5])
def test_slow_rank_stays_the_only_one(slow):
    """A round of eight with one slow rank, which all wait for; and not of four slow ones."""
    profile = recorded(slow=slow, cv=0.05, rounds=200)
    assert fit_rounds(profile).relative_compute_times == pytest.approx((1.0, slow), rel=0.01)
    assert [len(fit_rounds(recorded(slow=slow, cv=1e-3, rounds=n)).relative_compute_times) for n in (1, 2)] == [0, 2]
    own = (1 + 0.05 * np.random.default_rng(2).standard_normal((20_000, 8))) * [slow, *[1.0] * 7]
    over = np.zeros(len(own))
    for size, share in zip(SIZES, SHARES, strict=True):
        over = np.maximum(over, share * own.max(axis=1)) + 1.75 * size / BANDWIDTH
    curve = predict(profile, workers=[8])
    assert 1 / curve.iterations_per_second[0] == pytest.approx(over.mean(), rel=0.01)
    assert "rank 1 takes 1." in curve.note


def test_chance_differences_are_ignored():
    """Of 80 recordings of equal ranks, hardly one is taken to have a slow rank."""
    unequal = [fit_rounds(recorded(cv=0.05, seed=seed)).relative_compute_times for seed in range(80)]
    assert sum(map(bool, unequal)) <= 1


def test_slowest_follows_the_order_statistic():
    """Where hardly anything is sent: rounds of normal computation, whose spread smoothing does not add to."""
    own = 1 + 0.05 * norm.ppf((np.random.default_rng(3).permutation(400) + 0.5) / 400).reshape(200, 2)
    profile = job_of(rounds_of(own, own[..., None], own.max(axis=1)[:, None] + 1e-3, [1000]), [1000])
    taken = 1 / predict(profile, workers=[2, 10, 100], latency=0.0).iterations_per_second
    truth = [1 + 0.05 * order_statistic(norm().isf, n, n) for n in (2, 10, 100)]
    assert taken == pytest.approx(truth, abs=0.006)
    assert taken[1:] != pytest.approx([1 + 1.15 * (one - 1) for one in truth[1:]], abs=0.006)  # the control


def test_fields_are_read_from_rounds():
    """Two ranks, and three of which one is slow; buckets overlap, and rounds of one rank waited for input."""
    rng, sizes, every = np.random.default_rng(8), (2_000_000, 900_000, 400_000), []
    for slow, count in (([1.0], 5), ([1.0, 1.0], 9), ([1.0, 1.4, 1.1], 7)):
        own = np.array(slow) * (1 + 0.01 * rng.standard_normal((count, len(slow))))
        ready, over = own[..., None] * [0.4, 0.7, 1.0], own.max(axis=1)[:, None] + 0.3
        for r in rounds_of(own, ready, over - [0.04, 0.03, 0.0], sizes, begin=ready + 0.01):
            gradients = [Gradient(int(1e5 * (k + 1)), 0.9 * b.ready) for k, b in enumerate(r.buckets)]
            waited, many = 0.02 * rng.random() * (r.ranks == 1), r.ranks > 1
            every.append(msgspec.structs.replace(
                r, round_time=r.round_time + 0.05 + 0.01 * r.rank + waited, waited=waited,
                buckets=r.buckets * many, gradients=gradients * many,
            ))  # fmt: skip
    made = job_of(every, sizes, bandwidth=1.7e7, congestion_control="reno", buffer=0.02, workers=3)
    fitted, (one, two, three) = fit_rounds(made), ([r for r in every if r.ranks == n] for n in (1, 2, 3))
    means = [np.mean([r.computed for r in three if r.rank == rank]) for rank in range(3)]
    paces = np.array(means) / np.sort(means)[1]  # against the rank in the middle
    assert fitted.relative_compute_times == pytest.approx(paces)
    typical = np.array([1 / paces[r.rank] for r in two])
    assert fitted.computed == pytest.approx(typical * [r.computed for r in two])
    assert fitted.ready == pytest.approx(typical[:, None] * [[b.ready for b in r.buckets] for r in two])
    assert fitted.gradients[0].tolist() == [1e5, 2e5, 3e5]
    assert fitted.gradients[1] == pytest.approx(0.9 * fitted.ready.mean(axis=0))
    assert fitted.tail == pytest.approx(np.mean([0.05 + 0.01 * r.rank for r in three]))
    for same in (fitted, fit_rounds(with_rates(made, {1: 1 / 0.9}))):  # rounds that waited are no untraced ones
        assert same.single_rank_round_time == pytest.approx(np.mean([r.round_time - r.waited for r in one]))
    assert (fitted.at_once, fitted.ranks, fitted.nominal, fitted.buffer) == (3, 3, 1.7e7, 0.0)
    assert fitted.link_at(2)[:2] == fitted.links_by_ranks[2] != fitted.link_at(3)[:2] == fitted.link_at(9)[:2]


@pytest.mark.parametrize("rank", [0, 1])
def test_one_recorded_rank_widens_the_interval(rank):
    """Rank 1 is 8 % slower: what rank 0 waits for it is no time of the network's, and stays among two."""
    optimizer = 0.1
    rounds = [msgspec.structs.replace(r, round_time=r.round_time + optimizer) for r in recorded(slow=1.08).rounds]
    own = [r for r in rounds if r.ranks == 2 and r.rank == rank]
    whole, part = job_of(rounds, SIZES), job_of(own, SIZES)
    alone = np.mean([r.computed for r in own]) + optimizer  # no round of one rank is there
    curve, truth = predict(part, workers=[1, 2, 8]), predict(whole, workers=[1, 2, 8])
    assert 1 / curve.iterations_per_second[0] == pytest.approx(alone, rel=1e-6)
    assert 1 / curve.iterations_per_second[1] == pytest.approx(np.mean([r.round_time for r in own]), rel=0.005)
    inside = (curve.lower < truth.steps_per_second) & (truth.steps_per_second < curve.upper)
    assert inside[1:].all()  # alone, the slow one is slow
    said = "1 of 2 ranks recorded: differences between ranks are unknown"
    assert [said in one.note for one in (curve, truth)] == [True, False]
    width, usual = (np.log(one.upper / one.lower)[1:] for one in (curve, truth))
    assert np.all(width > np.maximum(2 * 1.64 * 0.08, 1.5 * usual))


# Ranks that wait for input which is loaded ahead

COMPUTED = 0.2
AHEAD = 2  # batches that a loader may have ready, as documented


def always(rng, size):
    return rng.gamma(100, 0.0035, size)


def often(rng, size):
    return rng.exponential(0.3, size)


def seldom(rng, size):
    return np.where(rng.random(size) < 0.06, 1.5, 0.02)


def trained(law, ranks, rounds, *, ahead=AHEAD, seed=0, computed=COMPUTED, slow=1.0):
    """A job as recorded: of each rank a loader that begins a batch when the one before is made and a place is free.

    Rank 1's takes ``slow`` times as long. Each round ends in the reduction of a bucket, a tenth of its computation.
    """
    load = law(np.random.default_rng(seed), (rounds, ranks)) * np.where(np.arange(ranks) == 1, slow, 1.0)
    made, taken, end, recorded = np.zeros((rounds, ranks)), np.zeros((rounds, ranks)), 0.0, []
    bucket = Bucket(bytes=1_000_000, ready=0.9 * computed, begin=0.9 * computed, end=computed)
    for k in range(rounds):
        free = taken[k - ahead] if k >= ahead else 0.0
        made[k] = np.maximum(made[k - 1] if k else 0.0, free) + load[k]
        taken[k] = np.maximum(made[k], end)
        begin, end = end, taken[k].max() + computed
        recorded += [
            Round(rank=r, ranks=ranks, number=k, round_time=end - begin, waited=waited, computed=0.9 * computed,
                  buckets=[bucket])
            for r, waited in enumerate((taken[k] - begin).tolist())
        ]  # fmt: skip
    return job_of(recorded, [1_000_000], batch_size=1, workers=2)


def truth_of(law, n, **asked):
    """Seconds of a round of n ranks; the reduction takes a ring's share of the recorded one among two."""
    computed = COMPUTED * (0.9 + 0.2 * (n - 1) / n)
    return np.mean([r.round_time for r in trained(law, n, 2500, seed=1, computed=computed, **asked).rounds[50 * n :]])


@pytest.mark.parametrize(("law", "slow"), [(always, 1.0), (often, 1.0), (seldom, 1.0), (always, 1.8), (often, 3.0)])
def test_loading_times_extrapolate_to_ranks(law, slow):
    recorded = trained(law, 2, 2000, slow=slow)
    curve, two = predict(recorded, workers=[2, 4, 8]), np.mean([r.round_time for r in recorded.rounds[100:]])
    if slow > 1.0:  # one slow loader holds up all
        assert 1 / curve.iterations_per_second[0] == pytest.approx(two, rel=0.1)
        return
    for n, rate in zip((2, 4, 8), curve.iterations_per_second, strict=True):
        assert 1 / rate == pytest.approx(truth_of(law, n), rel=0.25 if law is seldom else 0.15), n
    assert law is always or 1 / rate > 1.1 * two  # the control: as if nobody waited more than two do
    assert law is seldom or curve.bottleneck == "input"


@pytest.mark.parametrize("law", [always, often, seldom])
def test_intervals_hold_with_deeper_prefetch(law):
    curve = predict(trained(law, 2, 500, ahead=6), workers=[2, 8])
    for n, lower, upper in zip(curve.workers.tolist(), curve.lower, curve.upper, strict=True):
        assert lower < n / truth_of(law, n, ahead=6) < upper
        assert upper < (1.6 if law is always else 3) * lower
    if law is not always:  # loaders that are further ahead make ranks wait less, never more
        assert np.all(np.log(curve.upper / curve.steps_per_second) > 1.3 * np.log(curve.steps_per_second / curve.lower))


@pytest.mark.parametrize(("law", "ahead"), [(often, 1), (often, 6), (always, 8)])
def test_more_batches_ahead_shorten_waits(law, ahead):
    """Of exponential loading times a longer buffer hides more; of constant ones that are too long, nothing."""
    profiled, named, changed = (
        1 / predict(trained(law, 2, 2000), workers=[4], **asked).iterations_per_second[0]
        for asked in ({}, {"batches_ahead": AHEAD}, {"batches_ahead": ahead})
    )
    assert changed == pytest.approx(truth_of(law, 4, ahead=ahead), rel=0.15)
    assert named == pytest.approx(profiled)
    assert law is always or (changed < 0.95 * profiled) == (ahead > 2)
