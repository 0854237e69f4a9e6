"""Synchronous rounds from few throughputs: laws, the posterior against direct integration, coverage, mistakes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal, norm

import queuemodel as qm
from queuemodel.data import example_profile
from queuemodel.prediction import predict
from queuemodel.strategies import fit as fit_job
from queuemodel.training.forecast import FLOOR, least_relative_error, quantiles
from queuemodel.training.prior import ENDING, RoundPrior, knee_prior, round_prior
from queuemodel.training.round_law import (
    CHANGE,
    COST_PRIOR,
    COSTS,
    ERROR,
    LEVELS,
    Rounds,
    cost_prior,
    growth,
    round_time,
)

#: Some jobs here do gain nothing from a second node.
pytestmark = pytest.mark.filterwarnings("ignore:.*call the column rounds_per_second:queuemodel.QueueModelWarning")

KINDS = ("sync-ps", "all-reduce")


def points(nodes, throughput):
    return [qm.Throughput(workers=int(n), steps_per_second=float(x)) for n, x in zip(nodes, throughput, strict=True)]


def curve_of(nodes, *, cost, law, level=1.0):
    n = np.asarray(nodes, dtype=float)
    return level * n / round_time(n / n.min(), cost, law)


@given(ratio=st.floats(1.0, 1e4), law=st.floats(-2.0, 8.0))
def test_laws_are_those_of_the_textbooks(ratio, law):
    assert growth(1.0, law) == 0
    assert growth(2.0, law) == pytest.approx(1)
    assert growth(ratio, -1.0) == pytest.approx(ratio - 1)
    assert growth(ratio, 0.0) == pytest.approx(np.log2(ratio), rel=1e-4)
    assert growth(ratio, 1.0) == pytest.approx(2 * (1 - 1 / ratio))
    assert growth(2 * ratio, law) >= growth(ratio, law)


@given(
    nodes=st.integers(2, 1000), ranks=st.integers(1, 64), law=st.floats(-2.0, 8.0), cost=st.floats(0.0, 10.0)
)  # fmt: skip
def test_a_ring_of_all_ranks_sends_between_nodes_what_its_schedule_says(nodes, ranks, law, cost):
    """Each rank sends 2 (1 - 1/ranks) of its bytes; of one node's none cross the network."""
    sent = [2 * (1 - 1 / (n * ranks)) if n > 1 else 0.0 for n in (1, 2, nodes)]
    assert growth(nodes, 1.0, ranks) == pytest.approx(sent[2] / sent[1])
    assert growth(1, 1.0, ranks) == 0
    assert growth(2, law, ranks) == pytest.approx(1)
    assert growth(nodes, law, ranks) <= growth(nodes, law) * (1 + 1e-9)
    assert growth(nodes, law, 1) == pytest.approx(growth(nodes, law))
    if law < ENDING or ranks == 1:
        assert round_time(nodes, cost, law, ranks) == pytest.approx(round_time(nodes, cost, law))
    elif cost > 0.1:
        assert round_time(0.5, cost, law, ranks) == pytest.approx(1), "inside a node nothing is paid for the network"


def test_what_costs_whole_nodes_much_at_once_costs_little_more():
    """Eight GPUs on each node; told nothing, or that a node has one, two nodes at a half may go on losing."""
    x = {8: 8.0, 16: 8.0}
    one, eight, untold = (
        qm.fit(points(x, x.values()), strategy="all-reduce", ranks_per_node=ranks) for ranks in (1, 8, None)
    )
    curves = [model.throughput([32, 64], confidence=0.9) for model in (one, eight, untold)]
    ring = np.array([n / (1 + (1 - 1 / n) / (1 - 1 / 16)) for n in (32, 64)])
    np.testing.assert_allclose(curves[1].steps_per_second, ring, rtol=0.15)
    for other in curves[::2]:
        assert np.all(other.steps_per_second < 0.95 * curves[1].steps_per_second)
    np.testing.assert_allclose(curves[0].steps_per_second, curves[2].steps_per_second)
    assert "ranks_per_node" in untold.note
    assert "ranks_per_node" not in eight.note + one.note
    assert curves[1].workers_per_node == 8
    several = [qm.fit(points([16, 32], [8.0, 9.0]), strategy="all-reduce", ranks_per_node=m) for m in (1, 8)]
    several = [model.throughput([128]).at(128) for model in several]
    assert several[0] == pytest.approx(several[1]), "two nodes use the network as four do"


@pytest.mark.parametrize("drift", [0.0, 0.1])
def test_weights_and_forecasts_are_those_of_gaussians_with_an_unknown_level(drift):
    """The level's flat prior as a variance of 1e4 in one joint Gaussian of what was and what would be measured."""
    nodes, ahead = np.array([2.0, 4.0]), np.array([6.0, 16.0, 64.0])
    y = np.log([2.0, 3.1])
    prior = RoundPrior({-1.0: 0.5, 1.0: 0.5}, {drift: 1.0})
    every = np.concatenate([nodes, ahead])
    walk = drift**2 * np.minimum.outer(np.log2(every / 2), np.log2(every / 2))
    joint = 1e4 + walk + ERROR**2 * np.eye(5)
    log_weight, means = [], []
    for cost in COSTS:
        for law in prior.laws:
            error = y - np.log(curve_of(every, cost=cost, law=law))[:2]
            log_weight.append(multivariate_normal(np.zeros(2), joint[:2, :2], allow_singular=True).logpdf(error))
            means.append(
                np.log(curve_of(every, cost=cost, law=law))[2:] + joint[2:, :2] @ np.linalg.solve(joint[:2, :2], error)
            )
    weight = np.exp(log_weight - np.max(log_weight)) * np.repeat(COST_PRIOR, 2)
    weight /= weight.sum()
    rounds = Rounds(nodes, y, prior)
    np.testing.assert_allclose(rounds.weights().ravel(), weight, atol=1e-5)
    columns, chance = rounds.forecast(ahead)
    mean = (columns * chance).sum(axis=1)
    np.testing.assert_allclose(mean, weight @ np.array(means), atol=2e-3)
    within = joint[2:, 2:] - joint[2:, :2] @ np.linalg.solve(joint[:2, :2], joint[:2, 2:])
    between = (weight[:, None] * (means - weight @ np.array(means)) ** 2).sum(axis=0)
    spread = np.sqrt(np.diag(within) + between)
    np.testing.assert_allclose(np.sqrt((chance * (columns - mean[:, None]) ** 2).sum(axis=1)), spread, rtol=0.03)
    assert LEVELS > 20


def test_changes_of_servers_are_weighed_by_bayes_rule():
    """A law without cost, three measured groups, the last below it: by one joint Gaussian for each possible change."""
    nodes, ahead, often = np.array([1.0, 2.0, 4.0]), 8.0, 0.2
    every, y = np.append(nodes, ahead), np.log([1.0, 2.0, 3.2])
    rounds = Rounds(nodes, y, RoundPrior({6.0: 1.0}, {0.0: 1.0}, changes=often))
    free = np.where(np.arange(len(COSTS))[:, None] == 0, 0.0, -np.inf)
    rounds.components = [replace(c, log_weight=c.log_weight + free) for c in rounds.components if c.mistaken is None]
    columns, chance = rounds.forecast(np.array([ahead]))
    weight, mean = [], []
    for changed in (False, True):
        after = changed * (every > 2)
        joint = 1e4 + CHANGE**2 * np.outer(after, after) + ERROR**2 * np.eye(4)
        error = y - np.log(nodes)
        weight.append((often if changed else 1 - often) * multivariate_normal(np.zeros(3), joint[:3, :3]).pdf(error))
        mean.append(np.log(ahead) + joint[3, :3] @ np.linalg.solve(joint[:3, :3], error))
    expected = np.average(mean, weights=weight)
    assert (columns * chance).sum() == pytest.approx(expected, abs=2e-3)
    assert abs(mean[0] - expected) > 0.05  # the control: without a change
    far = abs(columns[0] - expected) > 0.3  # one that is to come makes both tails heavy
    assert chance[0][far].sum() == pytest.approx(often * 2 * norm.sf(0.3, scale=CHANGE), rel=0.1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("cost", "law"), [(0.0, 0.0), (0.3, -1.0), (0.3, 0.0), (0.4, 1.0), (0.8, 6.0)])
def test_enough_points_recover_the_law(kind, cost, law):
    nodes = [1, 2, 4, 8, 16, 32]
    model = qm.fit(points(nodes, curve_of(nodes, cost=cost, law=law)), strategy=kind)
    truth = curve_of([1, 64], cost=cost, law=law)[1]
    assert model.throughput([64]).at(64) == pytest.approx(truth, rel=0.06)
    found = next(p for p in model.parameters if p.name == "cost of doubling")
    assert found.value == pytest.approx(cost, abs=0.03 + 0.5 * found.standard_error)


@settings(max_examples=20)
@given(
    devices=st.integers(2, 16), unit=st.floats(0.01, 100.0), cost=st.floats(0.0, 2.0), law=st.floats(-1.0, 3.0),
    kind=st.sampled_from(KINDS),
)  # fmt: skip
def test_units_of_nodes_and_of_throughput_do_not_matter(devices, unit, cost, law, kind):
    nodes = np.array([1, 2, 4])
    x = curve_of(nodes, cost=cost, law=law)
    one = qm.fit(points(nodes, x), strategy=kind).throughput([8, 32])
    other = qm.fit(points(devices * nodes, unit * x), strategy=kind).throughput([8 * devices, 32 * devices])
    for name in ("steps_per_second", "lower", "upper"):
        np.testing.assert_allclose(getattr(other, name), unit * getattr(one, name), rtol=1e-6)


def coverage(prior, *, jobs, narrower=1.0, seed=1):
    """How many of the throughputs of jobs drawn from a prior lie in the intervals that two of them give."""
    rng = np.random.default_rng(seed)
    nodes, inside = np.array([1, 2, 4, 8, 16]), []
    for _ in range(jobs):
        k = rng.choice(len(prior.laws), p=np.array(list(prior.laws.values())) / sum(prior.laws.values()))
        law, cost = list(prior.laws)[k], rng.choice(COSTS, p=cost_prior(prior)[:, k])
        drift = rng.choice(list(prior.drifts), p=np.array(list(prior.drifts.values())) / sum(prior.drifts.values()))
        walk = np.concatenate([[0.0], drift * rng.standard_normal(4).cumsum()])
        x = curve_of(nodes, cost=cost, law=law) * np.exp(walk + ERROR * rng.standard_normal(5))
        model = qm.RoundModel(
            tuple(points(nodes[:2], x[:2])), "all-reduce", qm.Job(batch_size=1, parameter_bytes=0, tensors=0), prior
        )
        curve = model.throughput(nodes[2:].tolist())
        low, high = (
            curve.steps_per_second * (end / curve.steps_per_second) ** narrower for end in (curve.lower, curve.upper)
        )
        inside.append((low <= x[2:]) & (x[2:] <= high))
    return np.mean(inside)


def test_intervals_hold_what_they_promise_and_narrower_ones_do_not():
    prior = round_prior("all-reduce")
    assert 0.86 < coverage(prior, jobs=150) < 0.94
    assert coverage(prior, jobs=150, narrower=0.7) < 0.86


@pytest.mark.parametrize("kind", KINDS)
def test_a_mistaken_measurement_is_named_and_hardly_counts(kind):
    nodes = [1, 2, 4, 8, 16]
    right = curve_of(nodes, cost=0.1, law=0.0)
    wrong = right.copy()
    wrong[3] *= 2.0
    good, bad = (qm.fit(points(nodes, x), strategy=kind) for x in (right, wrong))
    assert "does not fit" not in good.note
    assert f"{wrong[3]:.4g} steps/s with 8 worker(s): does not fit" in bad.note
    assert bad.throughput([32]).at(32) == pytest.approx(good.throughput([32]).at(32), rel=0.05)


@pytest.mark.parametrize("kind", ["async-ps", *KINDS])
def test_the_curve_says_how_much_of_it_is_prior(kind):
    nodes = [1, 2, 4, 8]
    x = curve_of(nodes, cost=0.4, law=0.0)
    shares = [qm.fit(points(nodes[:k], x[:k]), strategy=kind).throughput([16]).prior_share[0] for k in (1, 2, 4)]
    assert shares[0] == pytest.approx(1.0)
    assert shares[2] < 0.3
    row = qm.fit(points(nodes, x), strategy=kind).throughput([16]).to_rows()[0]
    assert row["prior_share"] == pytest.approx(shares[2], abs=1e-3)


def test_a_job_that_scales_is_not_pulled_down():
    """Of what is linear up to two workers much is linear up to eight; D / R uniform for all gives 3.2."""
    two, four = ([1, 2], [1.0, 2.0]), ([1, 2, 3, 4], [1.0, 2.0, 3.0, 4.0])
    assert qm.fit(points(*two)).throughput([8]).at(8) > 0.6 * 8
    assert qm.fit(points(*two)).throughput([8]).upper[0] > 7.9
    assert qm.fit(points(*four)).throughput([8]).at(8) > 0.9 * 8
    assert 0 < knee_prior().growing < 0.5


def test_an_asynchronous_fit_goes_through_what_loses_a_little_and_does_not_saturate():
    """A knee alone, however round, gives 9.4 at one worker."""
    nodes, x = [1, 2, 4], [10.0, 18.5, 34.0]
    model = qm.fit(points(nodes, x))
    np.testing.assert_allclose(model.throughput(nodes).steps_per_second, x, rtol=0.015)
    growing = next(p for p in model.parameters if p.name == "no saturation")
    assert growing.value > 2 * knee_prior().growing
    sharp = next(p for p in qm.fit(points([1, 2, 4, 8], [10.0, 20.0, 30.0, 30.0])).parameters if p.name == growing.name)
    assert sharp.value < 0.05


@settings(max_examples=10)
@given(
    st.lists(st.floats(0.6, 1.1), min_size=1, max_size=3),
    st.lists(st.integers(1, 200), min_size=1, max_size=6, unique=True).map(sorted),
)
def test_points_do_not_fall_and_do_not_depend_on_what_else_is_asked(efficiencies, asked):
    nodes = [1, 2, 4][: len(efficiencies)]
    model = qm.fit(points(nodes, np.array(nodes) * efficiencies))
    curve = model.throughput(range(1, 201))
    assert np.all(np.diff(curve.steps_per_second) >= 0)
    some = model.throughput(asked)
    for name in ("steps_per_second", "lower", "upper"):
        np.testing.assert_allclose(getattr(some, name), getattr(curve, name)[np.array(asked) - 1], rtol=1e-9)


def test_points_between_rungs_are_where_the_draws_put_them():
    """Beyond 32 workers points are interpolated: near a sharp knee too they are less than half a percent off."""
    model = qm.fit(points([1, 2, 4, 8, 16, 32, 64, 128], [1, 2, 4, 8, 16, 32, 50, 50]))
    asked = np.arange(33, 129)
    drawn = np.log(model.drawn(asked))
    own = np.exp(least_relative_error(drawn, np.ones(drawn.shape[-1])))
    np.testing.assert_allclose(model.throughput(asked).steps_per_second, own, rtol=0.005)


@settings(max_examples=10)
@given(st.floats(0.4, 1.0))
def test_points_of_servers_have_the_least_expected_relative_error(efficiency):
    """By a search; values far below the median count as if they were not. An all-reduce's points are medians."""
    nodes, x, ahead = np.array([1.0, 2.0]), np.array([1.0, 2.0 * efficiency]), [4, 64]
    server, ring = (qm.fit(points(nodes, x), strategy=kind) for kind in KINDS)
    curve = server.throughput(ahead)
    columns, chance = Rounds(nodes, np.log(x), server.prior).forecast(np.array(ahead, dtype=float))
    for logs, weight, point in zip(columns, chance, curve.steps_per_second, strict=True):
        middle = np.exp(quantiles(logs[None], weight, [0.5])[0, 0])
        tried = np.append(point * np.geomspace(0.5, 2.0, 41), middle)
        base = np.maximum(np.exp(logs), FLOOR * middle)
        expected = [weight @ (abs(one - np.exp(logs)) / base) for one in tried]
        assert expected[20] <= min(expected) * (1 + 1e-6)
    assert expected[-1] > 1.02 * expected[20], "the median would do as well"
    columns, chance = Rounds(nodes, np.log(x), ring.prior).forecast(np.array(ahead, dtype=float))
    medians = np.exp(quantiles(columns, chance, [0.5])[0])
    np.testing.assert_allclose(ring.throughput(ahead).steps_per_second, medians, rtol=1e-9)


def test_points_lie_inside_narrow_intervals_too():
    for kind in KINDS:
        curve = qm.fit(points([1, 2], [1.0, 1.9]), strategy=kind).throughput([2, 8, 64], confidence=0.1)
        assert np.all((curve.lower <= curve.steps_per_second) & (curve.steps_per_second <= curve.upper))


def test_one_measurement_gives_the_prior_around_it():
    curve = qm.fit(points([4], [4.0]), strategy="all-reduce").throughput([1, 4, 64])
    assert curve.at(4) == pytest.approx(4.0, rel=1e-3)
    assert 0.5 < curve.at(1) <= 2.0
    assert curve.lower[2] < 25 < curve.at(64) < 64.1


def test_refused_in_one_line():
    two = points([1, 2], [1.0, 1.9])
    with pytest.raises(qm.ModelError, match="strategy must be one of async-ps"):
        qm.fit(two, strategy="ring")
    with pytest.raises(qm.FitError, match="at least one"):
        qm.fit([], strategy="all-reduce")
    with pytest.raises(qm.ModelError, match="bandwidth needs a profile"):
        predict(two, strategy="all-reduce", bandwidth=1e9)


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_of_the_parameters_change_nothing_and_the_note_says_so(kind):
    two = points([1, 2], [1.0, 1.9])
    told, untold = (predict(two, workers=[4, 16], strategy=kind, parameter_bytes=size) for size in (1e8, None))
    np.testing.assert_allclose(told.steps_per_second, untold.steps_per_second)
    assert "bytes are not used" in told.note
    assert "bytes" not in untold.note


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cost", [0.2, 0.5, 1.5])
def test_rows_that_are_gathered_grow_with_the_group(kind, cost):
    """An all-gather of n nodes' rows takes n - 1 times as long as that of two; untold, few jobs are like that."""
    two, ahead = [1, 2], [4, 8, 16]
    x = curve_of([*two, *ahead], cost=cost, law=-1.0)
    told, untold = (
        qm.fit(points(two, x[:2]), strategy=kind, sparse_gradients=sparse).throughput(ahead) for sparse in (True, False)
    )
    if kind == "all-reduce":  # servers' points are lower than medians, as laws that grow faster are possible
        np.testing.assert_allclose(told.steps_per_second, x[2:], rtol=0.25)
    assert np.all((told.lower < x[2:]) & (x[2:] < told.upper))
    assert np.all(untold.steps_per_second > 1.15 * told.steps_per_second)
    assert untold.at(16) > 1.5 * x[-1], "it would not matter"
    assert "sparse gradients" in told.note
    assert "sparse gradients" not in untold.note


def test_what_would_not_be_used_is_refused():
    two = points([1, 2], [1.0, 1.9])
    refused = [
        lambda: qm.fit(two, sparse_gradients=True),
        lambda: predict(two, sparse_gradients=True),
        lambda: fit_job(two, strategy="k-sync", k=1, sparse_gradients=True),
        lambda: qm.fit(example_profile("alexnet-60"), strategy="sync-ps", sparse_gradients=True),
        lambda: predict(example_profile("ddp-alexnet-40"), sparse_gradients=True),
    ]
    for ask in refused:
        with pytest.raises(qm.ModelError, match="sparse_gradients is for throughputs of sync-ps or all-reduce alone"):
            ask()
    ranks = [
        lambda: qm.fit(two, strategy="sync-ps", ranks_per_node=2),
        lambda: fit_job(example_profile("ddp-alexnet-40"), ranks_per_node=2),
    ]
    for ask in ranks:
        with pytest.raises(qm.ModelError, match="ranks_per_node is for throughputs of all-reduce alone; leave it out"):
            ask()
    with pytest.raises(qm.FitError, match=r"whole nodes of 2 \(ranks_per_node\), got a throughput of 1; leave"):
        predict(two, strategy="all-reduce", ranks_per_node=2)
    with pytest.raises(qm.ModelError, match="ranks_per_node must be a whole number of at least 1, got 0"):
        qm.fit(two, strategy="all-reduce", ranks_per_node=0)
    with pytest.raises(qm.ModelError, match="ranks_per_node is a question for strategy 'all-reduce', not 'sync-ps'"):
        predict(two, strategy="sync-ps", ranks_per_node=2)
    eight = points([8, 16], [1.0, 1.9])
    curve = predict(eight, workers=[64], strategy="all-reduce", ranks_per_node=8)
    model = qm.fit(eight, strategy="all-reduce", ranks_per_node=8)
    assert curve.at(64) == pytest.approx(model.throughput([64]).at(64))
    curve = predict(two, workers=[8], strategy="all-reduce", sparse_gradients=True)
    model = qm.fit(two, strategy="all-reduce", sparse_gradients=True)
    assert curve.at(8) == pytest.approx(model.throughput([8]).at(8))
    hints = {"sparse_gradients", "ranks_per_node"}
    for told, left in (({}, hints), ({"ranks_per_node": 1}, {"sparse_gradients"}), ({"sparse_gradients": True}, set())):
        note = qm.fit(two, strategy="all-reduce", **told).note
        assert {hint for hint in hints if hint in note} == left
    assert "sparse_gradients" in qm.fit(two, strategy="sync-ps").note


def test_what_costs_an_all_reduce_much_at_once_is_bandwidth():
    """Two nodes three times as slow as one: a ring's growth ends at twice the cost; a server's would not."""
    x = np.array([1.0, 2 / 3])
    model = qm.fit(points([1, 2], x), strategy="all-reduce")
    other = replace(model, prior=replace(model.prior, growing_cost=None))
    rounds, others = (64 / one.throughput([64]).at(64) for one in (model, other))
    assert 3.0 < rounds < 7.0
    assert others > 1.5 * rounds
    table = cost_prior(RoundPrior({-1.0: 0.5, 1.0: 0.5}, {0.0: 1.0}, 0.5))
    np.testing.assert_allclose(table.sum(axis=0), 1.0)
    assert table[:, 0] @ COSTS < 0.5 < table[:, 1] @ COSTS
    paid = cost_prior(RoundPrior({-1.0: 0.5, 1.0: 0.5}, {0.0: 1.0}, paid=True))
    np.testing.assert_allclose(paid.sum(axis=0), 1.0)
    orders = [paid[(least <= COSTS) & (least * 10 > COSTS), 0].sum() for least in (0.01, 0.1, 1.0)]
    assert orders == pytest.approx([orders[0]] * 3, rel=0.15)
    assert paid[0, 0] == 0.0
