"""What recorded rounds tell of a network that starts slowly, and what untraced rates correct."""

import msgspec
import numpy as np
import pytest
from scipy.stats import norm

import queuemodel as qm
from queuemodel import predict
from queuemodel.models import fit_rounds, order_statistic
from queuemodel.profile import Bucket, Gradient, Round

BANDWIDTH, SIZES = 7e6, (3_000_000, 300_000)


def recorded(*, computed=1.0, start=0.0, tracing=1.0, slow=1.0, cv=0.02, evaluated=0.0, rounds=12, seed=1):
    """A job of two ranks: a large bucket ready after a quarter of the computation, a small one at its end.

    Each reduction takes ``start`` seconds beside its bytes; ``tracing`` makes computation longer, and ``slow`` that of
    rank 1. Every third round begins with so many seconds in which both evaluate.
    """
    rng, made = np.random.default_rng(seed), []
    for number in range(rounds):
        own = tracing * computed * (1 + cv * rng.standard_normal(2)) * [1.0, slow]
        late = evaluated if number % 3 == 0 else 0.0
        slowest, over = own.max(), 0.0
        ends = []
        for size, share in zip(SIZES, (0.25, 1.0), strict=True):
            over = max(over, share * slowest) + start + size / BANDWIDTH  # of a ring of two: its bytes once
            ends.append(over)
        for rank in range(2):
            buckets = [
                Bucket(size, late + share * own[rank], late + share * own[rank], late + end)
                for size, share, end in zip(SIZES, (0.25, 1.0), ends, strict=True)
            ]
            seconds = {"round_time": late + over, "computed": late + own[rank]}
            made.append(Round(rank=rank, ranks=2, number=number, buckets=buckets, **seconds))
        alone = late + tracing * computed * (1 + cv * rng.standard_normal())
        made.append(Round(number=number, round_time=alone, computed=alone))
    return qm.Profile(
        source=qm.Source(framework="made"), job=qm.Job(batch_size=8, parameter_bytes=sum(SIZES), tensors=2), rounds=made
    )


def with_rates(profile, iterations_per_second):
    points = [qm.Measurement(workers=n, steps_per_second=n * rate) for n, rate in iterations_per_second.items()]
    return msgspec.structs.replace(profile, throughputs=points)


def test_large_bucket_gives_the_bandwidth():
    """By the last end alone, the small bucket's slow start would make the bandwidth 300 kB in 53 ms: 5.7 MB/s."""
    fitted = fit_rounds(recorded(start=0.01))
    assert fitted.bandwidth == pytest.approx(BANDWIDTH, rel=0.04)
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
    curve = predict(msgspec.structs.replace(recorded(), rounds=made), workers=[1, 2, 8])
    assert ((curve.efficiency > 0.85) & (curve.efficiency <= 1)).all()


@pytest.mark.parametrize("evaluated", [0.0, 0.6])
def test_common_round_effect_is_removed(evaluated):
    fitted = fit_rounds(recorded(cv=0.05, evaluated=evaluated, rounds=300))
    assert fitted.computed.std() / fitted.computed.mean() == pytest.approx(0.05 / (1 + evaluated / 3), rel=0.1)


def test_alternating_steps_are_refused():
    """Buckets are made anew after the first rounds; later ones that differ are other steps."""
    profile = recorded()

    def half(those):
        rounds = [msgspec.structs.replace(one, buckets=small(one)) if one.number in those else one for one in all_of]
        return msgspec.structs.replace(profile, rounds=rounds)

    def small(one):
        return [msgspec.structs.replace(bucket, bytes=bucket.bytes // 2) for bucket in one.buckets]

    all_of = profile.rounds
    assert fit_rounds(half({0, 1})).bandwidth == pytest.approx(BANDWIDTH, rel=0.01)
    with pytest.raises(qm.FitError, match=r"round 1 of 2 ranks reduces 1,650,000 bytes in 2.*round 0 3,300,000 in 2"):
        fit_rounds(half(range(1, 12, 3)))


def test_untraced_rates_undo_what_tracing_costs():
    truth = predict(recorded(rounds=400), workers=[1, 2, 8]).steps_per_second
    slowed = recorded(tracing=1.1, rounds=400)
    rates = {n: truth[i] / n for i, n in enumerate((1, 2))}
    corrected = predict(with_rates(slowed, rates), workers=[1, 2, 8]).steps_per_second
    assert corrected == pytest.approx(truth, rel=0.005)
    assert predict(slowed, workers=[8]).steps_per_second[0] < 0.95 * truth[2]  # the control


def test_gap_between_rounds_is_constant():
    profile = recorded()
    before = predict(profile, workers=[2, 8])
    seconds = 1 / before.iterations_per_second
    later = predict(with_rates(profile, {2: 1 / (seconds[0] + 0.05)}), workers=[2, 8])
    assert 1 / later.iterations_per_second == pytest.approx(seconds + 0.05, rel=0.005)


@pytest.mark.parametrize("slow", [1.1, 1.5])
def test_slow_rank_stays_the_only_one(slow):
    """A round of eight with one slow rank, which all wait for; and not of four slow ones."""
    fitted = fit_rounds(recorded(slow=slow, cv=0.05, rounds=200))
    assert fitted.relative_compute_times == pytest.approx((1.0, slow), rel=0.01)
    assert [len(fit_rounds(recorded(slow=slow, cv=1e-3, rounds=n)).relative_compute_times) for n in (1, 2)] == [0, 2]
    rng = np.random.default_rng(2)
    own = (1 + 0.05 * rng.standard_normal((20_000, 8))) * [slow, *[1.0] * 7]
    over = np.zeros(len(own))
    for size, share in zip(SIZES, (0.25, 1.0), strict=True):
        over = np.maximum(over, share * own.max(axis=1)) + 1.75 * size / BANDWIDTH
    curve = predict(recorded(slow=slow, cv=0.05, rounds=200), workers=[8])
    assert 1 / curve.iterations_per_second[0] == pytest.approx(over.mean(), rel=0.01)
    assert "rank 1 takes 1." in curve.note


def test_chance_differences_are_ignored():
    """Of 80 recordings of equal ranks, hardly one is taken to have a slow rank."""
    unequal = [fit_rounds(recorded(cv=0.05, seed=seed)).relative_compute_times for seed in range(80)]
    assert sum(map(bool, unequal)) <= 1


def test_slowest_follows_the_order_statistic():
    """Where hardly anything is sent: rounds of normal computation, whose spread smoothing does not add to."""
    rng, rounds = np.random.default_rng(3), []
    times = 1 + 0.05 * norm.ppf((rng.permutation(400) + 0.5) / 400)
    for number, own in enumerate(times.reshape(200, 2)):
        over = own.max() + 1e-3
        rounds += [
            Round(rank=rank, ranks=2, number=number, round_time=over, computed=own[rank],
                  buckets=[Bucket(1000, own[rank], own[rank], over)])
            for rank in range(2)
        ]  # fmt: skip
    job = qm.Job(batch_size=8, parameter_bytes=1000, tensors=1)
    recorded = qm.Profile(source=qm.Source(framework="made"), job=job, rounds=rounds)
    taken = 1 / predict(recorded, workers=[2, 10, 100], latency=0.0).iterations_per_second
    truth = [1 + 0.05 * order_statistic(norm().isf, n, n) for n in (2, 10, 100)]
    assert taken == pytest.approx(truth, abs=0.006)
    assert taken[1:] != pytest.approx([1 + 1.15 * (one - 1) for one in truth[1:]], abs=0.006)  # the control


def test_fields_are_read_from_rounds():
    """Two ranks, and three of which one is slow; buckets overlap, and rounds of one rank waited for input."""
    rng, every = np.random.default_rng(8), []
    slow = {1: [1.0], 2: [1.0, 1.0], 3: [1.0, 1.4, 1.1]}
    for n, numbers in ((1, 5), (2, 9), (3, 7)):
        for number in range(numbers):
            own = np.array(slow[n]) * (1 + 0.01 * rng.standard_normal(n))
            over = float(max(own)) + 0.3
            for rank in range(n):
                begun = np.array([0.4, 0.7, 1.0]) * own[rank]
                buckets = [Bucket(size, ready, ready + 0.01, end) for size, ready, end in zip(
                    (2_000_000, 900_000, 400_000), begun.tolist(), [over - 0.04, over - 0.03, over], strict=True
                )]  # fmt: skip
                gradients = [Gradient(int(1e5 * (k + 1)), 0.9 * t) for k, t in enumerate(begun.tolist())]
                waited = 0.02 * rng.random() if n == 1 else 0.0
                every.append(Round(
                    rank=rank, ranks=n, number=number, round_time=over + 0.05 + 0.01 * rank + waited, waited=waited,
                    computed=float(own[rank]), buckets=buckets if n > 1 else [], gradients=gradients if n > 1 else [],
                ))  # fmt: skip
    job = qm.Job(batch_size=8, parameter_bytes=3_300_000, tensors=3)
    cluster = qm.Cluster(bandwidth=1.7e7, congestion_control="reno", buffer=0.02, workers=3)
    made = qm.Profile(source=qm.Source(framework="made"), job=job, cluster=cluster, rounds=every)
    fitted, (one, two, three) = fit_rounds(made), ([r for r in every if r.ranks == n] for n in (1, 2, 3))
    means = [np.mean([r.computed for r in three if r.rank == rank]) for rank in range(3)]
    paces = np.array(means) / np.sort(means)[1]  # against the rank in the middle
    assert fitted.relative_compute_times == pytest.approx(paces)
    typical = np.array([1 / paces[r.rank] for r in two])
    assert fitted.computed == pytest.approx(typical * [r.computed for r in two])
    assert fitted.ready == pytest.approx(typical[:, None] * [[b.ready for b in r.buckets] for r in two])
    sizes, moments = fitted.gradients
    assert sizes.tolist() == [1e5, 2e5, 3e5]
    assert moments == pytest.approx((typical[:, None] * [[g.ready for g in r.gradients] for r in two]).mean(axis=0))
    assert fitted.tail == pytest.approx(np.mean([0.05 + 0.01 * r.rank for r in three]))
    assert fitted.single_rank_round_time == pytest.approx(np.mean([r.round_time - r.waited for r in one]))
    assert (fitted.at_once, fitted.ranks, fitted.nominal, fitted.buffer) == (3, 3, 1.7e7, 0.0)
    assert (fitted.congestion_control, fitted.bucket_bytes.tolist()) == ("reno", [2e6, 9e5, 4e5])
    assert list(fitted.links_by_ranks) == [2]
    assert fitted.link_at(2)[:2] == fitted.links_by_ranks[2] != fitted.link_at(3)[:2] == fitted.link_at(9)[:2]
    fewer = fit_rounds(msgspec.structs.replace(made, rounds=[*one, *two]))
    assert fewer.link_at(2)[:2] == pytest.approx(fitted.links_by_ranks[2])
    plain = msgspec.structs.replace(made, rounds=[msgspec.structs.replace(r, waited=0.0) for r in every])
    before, after = fit_rounds(plain), fit_rounds(with_rates(plain, {1: 1 / 0.9}))
    factor = 0.9 / np.mean([r.round_time for r in one])
    for name, by in (
        ("computed", factor),
        ("ready", factor),
        ("tail", 1.0),
        ("single_rank_round_time", 0.9 / before.single_rank_round_time),
    ):
        assert getattr(after, name) == pytest.approx(by * getattr(before, name))
    assert after.gradients[1] == pytest.approx(factor * before.gradients[1])
    waited = fit_rounds(with_rates(made, {1: 1 / 0.9}))  # rounds that waited are no untraced ones
    assert waited.single_rank_round_time == fitted.single_rank_round_time


@pytest.mark.parametrize("rank", [0, 1])
def test_one_recorded_rank_widens_the_interval(rank):
    """Rank 1 is 8 % slower: what rank 0 waits for it is no time of the network's, and stays among two."""
    optimizer = 0.1
    rounds = [msgspec.structs.replace(r, round_time=r.round_time + optimizer) for r in recorded(slow=1.08).rounds]
    whole = msgspec.structs.replace(recorded(), rounds=rounds)
    own = [r for r in rounds if r.ranks == 2 and r.rank == rank]
    part = msgspec.structs.replace(whole, rounds=own)
    fitted, computed = fit_rounds(part), np.mean([r.computed for r in own])
    assert (fitted.unrecorded, fit_rounds(whole).unrecorded) == (1, 0)
    assert fitted.single_rank_round_time == pytest.approx(computed + optimizer)  # no round of one rank is there
    curve, truth = predict(part, workers=[1, 2, 8]), predict(whole, workers=[1, 2, 8])
    assert 1 / curve.iterations_per_second[0] == pytest.approx(computed + optimizer, rel=1e-6)
    assert 1 / curve.iterations_per_second[1] == pytest.approx(np.mean([r.round_time for r in own]), rel=0.005)
    inside = (curve.lower < truth.steps_per_second) & (truth.steps_per_second < curve.upper)
    assert inside[1:].all()  # alone, the slow one is slow
    assert "1 of 2 ranks recorded: differences between ranks are unknown" in curve.note
    assert "ranks recorded" not in truth.note
    width, usual = (np.log(one.upper / one.lower)[1:] for one in (curve, truth))
    assert np.all(width > np.maximum(2 * 1.64 * 0.08, 1.5 * usual))
