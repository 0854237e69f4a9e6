"""Each strategy against what it must be in a special case, against theory, and against a wrong one that is noticed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuemodel import ModelError
from queuemodel import sgd as qd

SQUARES = qd.make_problem("least-squares", examples=200, features=10)
STRATEGIES = [
    qd.SynchronousSGD(0.5), qd.LocalSGD(4), qd.AdaComm(8, 50.0), qd.OverlapLocalSGD(2, momentum=0.3),
    qd.DoubleCompression(qd.TopK(0.2)), qd.DoubleCompression(qd.QSGD(2), momentum=0.5, local_steps=3),
    qd.DoubleCompression(qd.BlockSign()), qd.SquarmSGD(momentum=0.3),
    qd.SquarmSGD("complete", qd.RandomK(0.3), mixing=0.3, trigger=1e-4), qd.AdaQuantFL(), qd.OrderedGradient(),
    qd.ServerSGD(), qd.ServerSGD("k-async", 2), qd.ServerSGD("k-batch-async", 2), qd.ServerSGD("k-sync", 2),
    qd.ServerSGD("k-batch-sync", 2), qd.ServerSGD("bounded-staleness", staleness_bound=1),
]  # fmt: skip


def run(strategy, problem=SQUARES, workers=4, steps=60, learning_rate=0.05, **options):
    return qd.descend(
        problem, strategy, workers=workers, steps=steps, learning_rate=learning_rate, **{"seeds": 2} | options
    )


def moment(number=0, rate=1.0, *rngs):
    return qd.Moment(number, rate, list(rngs), np.zeros(1), lambda x: x)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_reaches_the_minimum_with_a_falling_rate_whatever_seeds_run_beside(strategy):
    options = {"steps": 3000, "learning_rate": lambda k: 0.05 / (1 + k / 300), "clock": qd.Clock(cv=0.5)}
    done, alone = run(strategy, seeds=[3, 8], **options), run(strategy, seeds=[8], **options)
    first, last = done.losses[:, 0] - SQUARES.minimum, done.losses[:, -1] - SQUARES.minimum
    assert (last < 0.004 * first).all()
    assert (np.diff(done.times, axis=1) >= 0).all()
    assert (np.diff(done.up_bits, axis=1) >= 0).all()
    np.testing.assert_allclose(done.losses[1, :4], alone.losses[0, :4], rtol=1e-9)
    np.testing.assert_allclose(done.times[1], alone.times[0], rtol=1e-9)
    assert np.allclose(done.losses[0, :4], done.losses[1, :4], rtol=1e-6) == strategy.exact


def test_special_cases_are_synchronous_sgd():
    truth = run(qd.SynchronousSGD())
    for same in (qd.LocalSGD(1), qd.DoubleCompression(qd.Identity()), qd.SquarmSGD("complete"), qd.AdaComm(1)):
        np.testing.assert_allclose(run(same).losses, truth.losses, rtol=1e-9)
    for other in (
        qd.LocalSGD(2), qd.DoubleCompression(qd.TopK(0.5)), qd.SquarmSGD("ring", mixing=0.5), qd.SynchronousSGD(0.1),
    ):  # fmt: skip
        assert not np.allclose(run(other).losses, truth.losses, rtol=1e-4)
    alone = run(qd.SynchronousSGD(), workers=1, steps=30)
    for same in (
        qd.LocalSGD(5), qd.SquarmSGD(), qd.ServerSGD(), qd.ServerSGD("k-sync"),
        qd.DoubleCompression(qd.Identity(), 0.0, 3),
    ):  # fmt: skip
        np.testing.assert_allclose(run(same, workers=1, steps=30).model, alone.model, rtol=1e-9)
    momentum = run(qd.SynchronousSGD(0.6), workers=1, steps=30)  # Polyak's is not Nesterov's
    assert not np.allclose(run(qd.SquarmSGD(momentum=0.6), workers=1, steps=30).model, momentum.model, rtol=1e-3)


def test_momentum_is_of_gradients_whatever_the_rates():
    """One example, x* = 1: v <- v / 2 + x - 1; Polyak x <- x - eta v, Nesterov x <- x - eta (v / 2 + x - 1)."""
    problem = qd.LeastSquares(np.ones((1, 1)), np.ones(1))
    x, v = np.zeros(2), np.zeros(2)
    for k in range(20):
        v = v / 2 + x - 1
        x = x - 0.5 / (1 + k) * np.array([v[0], v[1] / 2 + x[1] - 1])
    for strategy, expected in (
        (qd.SynchronousSGD(0.5), x[0]), (qd.SquarmSGD(momentum=0.5), x[1]),
        (qd.DoubleCompression(qd.Identity(), momentum=0.5), x[1]),
    ):  # fmt: skip
        done = run(strategy, problem, workers=3, steps=20, learning_rate=lambda k: 0.5 / (1 + k))
        np.testing.assert_allclose(done.model, expected, rtol=1e-9)


def test_server_rules_in_the_limits():
    """Without staleness each of n gradients of equal parameters is applied alone: n times as large a step."""
    truth = run(qd.ServerSGD("k-sync", 4), steps=80, learning_rate=0.04, record=21)
    bounded = run(qd.ServerSGD("bounded-staleness"), steps=80, learning_rate=0.01, record=21)
    np.testing.assert_allclose(bounded.losses, truth.losses, rtol=1e-9)
    assert not np.allclose(run(qd.ServerSGD(), steps=80, learning_rate=0.01, record=21).losses, truth.losses, rtol=1e-4)
    # K-sync of all is synchronous SGD, whose batches are all alike here.
    problem = qd.LeastSquares(np.ones((1, 1)), np.ones(1))
    synchronous = run(qd.SynchronousSGD(), problem, steps=20, record=21).losses
    for name, same in (("k-sync", True), ("k-async", True), ("k-batch-sync", True), ("k-batch-async", False)):
        served = run(qd.ServerSGD(name, 4), problem, steps=80, record=21, clock=qd.Clock(cv=1.0)).losses
        assert np.allclose(served, synchronous, rtol=1e-9) == same


def test_overlap_is_as_derived():
    """Two workers in one dimension, pulled by a half to an anchor of momentum 0.5, every step."""
    strategy, state = qd.OverlapLocalSGD(1, 0.5, 0.5), None
    state = strategy.begin(np.zeros((1, 1)), 2)
    g = np.array([[[4.0], [2.0]]])
    strategy.update(state, g.copy(), moment(0, 0.5))  # x = -2, -1; pulled to -1, -0.5; v = (0 + 0.75) / 0.5
    np.testing.assert_allclose([*state["x"][0, :, 0], state["v"].item(), state["z"].item()], [-1, -0.5, 1.5, -0.75])
    sent = strategy.update(state, g.copy(), moment(1, 0.5))  # x = -3, -1.5: pulled to -1.875, -1.125, mean -1.5
    np.testing.assert_allclose(state["x"][0, :, 0], [-1.875, -1.125])
    assert state["v"].item() == pytest.approx(0.75 + (-0.75 + 1.5) / 0.5)
    assert state["z"].item() == pytest.approx(-0.75 - 0.5 * 2.25)
    assert sent.ahead


def test_double_compression_is_as_derived():
    """Two steps of two workers in two dimensions, one of which is kept, by hand."""
    strategy, rng = qd.DoubleCompression(qd.TopK(0.5), momentum=0.5), np.random.default_rng(0)
    state = strategy.begin(np.zeros((1, 2)), 2)
    g = np.array([[[4.0, 1.0], [1.0, 2.0]]])
    for number, rate in enumerate((1.0, 0.5)):
        strategy.update(state, g, moment(number, rate, rng))
    # step 1: m = g, p = 1.5 g = (6, 1.5), (1.5, 3): sends (6, 0), (0, 3), mean (3, 1.5): sends (3, 0), keeps (0, 1.5)
    # step 2: m = 1.5 g, p = 0.5 * 1.75 g + e = (3.5, 0.875 + 1.5), (0.875 + 1.5, 1.75): sends (3.5, 0), (2.375, 0)
    np.testing.assert_allclose(state["error"][0], [[0, 2.375], [0, 1.75]])
    # mean (2.9375, 0) + (0, 1.5): sends (2.9375, 0), keeps (0, 1.5)
    np.testing.assert_allclose(state["server_error"][0, 0], [0, 1.5])
    np.testing.assert_allclose(state["anchor"][0, 0], [-3 - 2.9375, 0])


@pytest.mark.parametrize(("graph", "workers", "rate"), [
    ("ring", 8, (1 + 2 * np.cos(np.pi / 4)) / 3), ("torus", 9, (3 + 2 * np.cos(2 * np.pi / 3)) / 5), ("complete", 5, 0),
])  # fmt: skip
def test_consensus_contracts_at_the_second_eigenvalue(graph, workers, rate):
    """Without gradients, exact gossip shrinks the slowest disagreement by exactly that each step."""
    weights = qd.mixing_matrix(graph, workers)
    values, vectors = np.linalg.eigh(weights)
    second = np.argsort(np.abs(values))[-2]
    slowest = vectors[:, second]
    assert sorted(np.abs(values))[-2:] == pytest.approx([rate, 1], abs=1e-12)
    for mixing in (1.0, 0.4):
        strategy = qd.SquarmSGD(graph, mixing=mixing)
        state = strategy.begin(np.zeros((1, 1)), workers)
        state["x"][0, :, 0] = slowest
        for number in range(3):
            strategy.update(state, np.zeros((1, workers, 1)), moment(number))
        assert np.linalg.norm(state["x"]) == pytest.approx(abs(1 - mixing * (1 - rate)) ** 3, abs=1e-12)


@pytest.mark.parametrize(("trigger", "speakers"), [(0.0, 4), (0.9, 4), (1.1, 3), (4.1, 2), (9.1, 1), (16.1, 0)])
def test_only_who_has_moved_by_more_than_the_trigger_speaks(trigger, speakers):
    """Gradients of norms 1 to 4 at rate 0.1: |x - known|^2 = rate^2 |g|^2 is held against trigger rate^2."""
    norms = np.arange(1.0, 5.0)
    g = norms[None, :, None] * np.array([0.6, 0.8])
    strategy = qd.SquarmSGD("ring", trigger=trigger, mixing=0.5)
    state = strategy.begin(np.zeros((1, 2)), 4)
    sent = strategy.update(state, g.copy(), moment(0, 0.1))
    known = np.where(norms[:, None] > 4 - speakers, -0.1 * g[0], 0)
    np.testing.assert_allclose(state["known"][0], known, atol=1e-15)
    mixed = -0.1 * g[0] + 0.5 * (qd.mixing_matrix("ring", 4) @ known - known)
    np.testing.assert_allclose(state["x"][0], mixed, atol=1e-15)
    assert sent.up[0] == pytest.approx(speakers / 4 * 2 * 64)  # two neighbours, two numbers of 32 bits
    # What was held back adds up: at half the rate a step later those of norm 2 have moved 0.3 of 0.05 sqrt(trigger).
    again = strategy.update(state, g.copy(), moment(1, 0.05))
    moved = np.linalg.norm(state["x"][0] * 0 + (mixed - 0.05 * g[0] - known), axis=-1) ** 2 > trigger * 0.05**2
    assert again.up[0] == pytest.approx(moved.mean() * 2 * 64)


@given(st.integers(0, 10_000), st.integers(1, 9), st.floats(0, 20), st.sampled_from([0.0, 0.5]))
def test_ordered_gradient_stays_within_its_threshold(seed, workers, threshold, relative):
    strategy, rng, x = qd.OrderedGradient(threshold, relative), np.random.default_rng(seed), np.zeros(5)
    state, told = strategy.begin(np.zeros((1, 5)), workers), np.zeros((workers, 5))
    for number in range(2):  # all is new at first; then the threshold is relative to the sum that was used
        g, halt = rng.standard_t(2, (workers, 5)), threshold + relative * np.linalg.norm(told.sum(axis=0))
        sent = strategy.update(state, g[None].copy(), moment(number))
        missing, speaks = g - told, (state["told"][0] != told).any(axis=-1)
        norms, told = np.linalg.norm(missing, axis=-1), np.where(speaks[:, None], g, told)
        x -= told.mean(axis=0)
        np.testing.assert_allclose(state["x"][0, 0], x)
        assert sent.up[0] == pytest.approx(speaks.mean() * 5 * 32)
        assert np.linalg.norm(missing[~speaks].sum(axis=0)) <= halt * (1 + 1e-12)
        if speaks.any() and not speaks.all():
            assert norms[speaks].min() >= norms[~speaks].max()
        if speaks.any():  # one less would not do by this rule
            assert (workers - speaks.sum() + 1) * norms[speaks].min() > halt


@pytest.mark.parametrize("problem", [SQUARES, qd.split(SQUARES, 5, concentration=0.3)], ids=["whole", "split"])
def test_ordered_gradient_sends_less_and_arrives(problem):
    exact = run(qd.OrderedGradient(0.0, 0.0), problem, workers=5, steps=300)
    saving = run(qd.OrderedGradient(0.0, 0.2), problem, workers=5, steps=300)
    assert (saving.up_bits[:, -1] < 0.8 * exact.up_bits[:, -1]).all()
    np.testing.assert_allclose(saving.losses[:, -1], exact.losses[:, -1], rtol=1e-3)
    x = np.zeros(10)
    for _ in range(300):  # gradient descent
        x -= 0.05 * problem.gradient(x)
    np.testing.assert_allclose(exact.model[0], x, rtol=1e-9)


@pytest.mark.parametrize(("local_steps", "transfer"), [(60, 0.0), (58, 2.0)])
def test_adacomm_decides_when_an_averaging_ends_the_interval(local_steps, transfer):
    clock = qd.Clock(transfer=lambda up, down: np.full(len(up), transfer))
    done = run(qd.AdaComm(local_steps, 60.0), steps=150, record=151, clock=clock)
    first, second, *_ = np.flatnonzero(np.diff(done.up_bits[0])) + 1
    assert first == local_steps
    assert second - first == np.ceil(np.sqrt(done.losses[0, first] / done.losses[0, 0]) * local_steps)
    # A rate that falls to a quarter doubles the steps that are wanted: not less, so they are halved, never below 1.
    done = run(qd.AdaComm(8, 1.0), steps=60, record=61, learning_rate=lambda k: 1e-6 if k < 8 else 0.25e-6)
    assert np.diff(np.flatnonzero(np.diff(done.up_bits[0])))[:6].tolist() == [4, 2, 1, 1, 1, 1]


def test_adaquant_refines_its_messages_as_the_root_of_the_loss():
    done = run(qd.AdaQuantFL(2, 3), steps=400, record=401)
    bits = np.diff(done.up_bits[0])
    assert (bits[::2] == 0).all()
    levels = np.append(3, np.ceil(np.sqrt(done.losses[0, 0] / done.losses[0, 2:-1:2]) * 3))
    np.testing.assert_allclose(bits[1::2], 10 * np.ceil(np.log2(levels + 1)) + 10 + 32)
    assert levels[-1] > 2 * levels[0]


def test_senseless_arguments_are_refused_and_divergence_is_said():
    for make, words in [
        (lambda: run(qd.LocalSGD(2), qd.split(SQUARES, 3), workers=4), "split it again"),
        (lambda: run(qd.SquarmSGD("torus"), workers=8), "square number"),
        (lambda: run(qd.ServerSGD("k-sync", 9)), "at least k"), (lambda: qd.ServerSGD("async", 2), "k must be 1"),
        (lambda: qd.Clock(paces=(-5, -5)), "paces must be finite and > 0"),
    ]:  # fmt: skip
        with pytest.raises(ModelError, match=words):
            make()
    done = run(qd.SynchronousSGD(), learning_rate=5.0, steps=2000)
    assert np.isinf(done.losses[:, -1]).all()
    assert np.isinf(done.time_to(0.2)).all()


COMPRESSORS = [
    qd.Identity(), qd.TopK(0.1), qd.RandomK(0.2), qd.RandomK(0.2, unbiased=True), qd.QSGD(1), qd.QSGD(4),
    qd.BlockSign(5),
]  # fmt: skip


def draws(compressor, v, count):
    return compressor.compress(np.broadcast_to(v, (1, count, len(v))), [np.random.default_rng(1)])[0]


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=str)
@given(st.integers(0, 1000), st.integers(3, 60))
def test_a_compressor_loses_no_more_than_promised(compressor, seed, d):
    v = np.random.default_rng(seed).standard_t(3, d)
    lost = np.square(draws(compressor, v, 400) - v).sum(axis=-1)
    assert lost.mean() <= compressor.variance(d) * (v @ v) + 4 * lost.std() / 20 + 1e-9
    if isinstance(compressor, qd.RandomK):  # whose bound is what it loses
        assert lost.mean() >= compressor.variance(d) * (v @ v) - 5 * lost.std() / 20 - 1e-9
    scaled = compressor.contract(np.broadcast_to(v, (1, 400, d)), [np.random.default_rng(2)])[0]
    lost = np.square(scaled - v).sum(axis=-1)
    assert lost.mean() <= (v @ v) * (1 + 1e-9) + 4 * lost.std() / 20


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=str)
def test_unbiased_says_who_is_and_nothing_stays_nothing(compressor):
    v = np.random.default_rng(7).normal(size=30)
    drawn = draws(compressor, v, 20_000)
    noise = np.sqrt(drawn.var(axis=0).sum() / len(drawn))
    assert (np.linalg.norm(drawn.mean(axis=0) - v) <= 4 * noise + 1e-9) == compressor.unbiased
    assert not draws(compressor, np.zeros(20), 3).any()


def test_what_is_sent_and_in_how_many_bits():
    v = np.array([1.0, -5, 2, 0.1, 3])
    np.testing.assert_array_equal(draws(qd.TopK(0.4), v, 1)[0], [0, -5, 0, 0, 3])
    np.testing.assert_allclose(draws(qd.BlockSign(2), v, 1)[0], np.repeat([8 / 3, 1.55], [3, 2]) * np.sign(v))
    assert qd.Identity().bits(1000) == 32_000
    assert qd.TopK(0.01).bits(1024) == 10 * (32 + 10)
    assert qd.TopK(0.01, index_bits=32).bits(1024) == 10 * (32 + 32)
    assert qd.QSGD(3).bits(1000) == 2 * 1000 + 1000 + 32  # two bits for a level, one for a sign
    assert qd.BlockSign(2).bits(1000) == 1000 + 2 * 32
    assert [qd.QSGD(4).variance(d) for d in (9, 100)] == pytest.approx([9 / 4**2, 10 / 4])  # the smaller bound
    for kind, name, value in [
        (qd.TopK, "share", 0), (qd.TopK, "index_bits", 0), (qd.RandomK, "share", 1.5), (qd.QSGD, "levels", 0),
        (qd.BlockSign, "blocks", 0), (qd.LocalSGD, "local_steps", 0), (qd.AdaComm, "interval", 0.0),
        (qd.SquarmSGD, "mixing", 1.1), (qd.OverlapLocalSGD, "pull", 2), (qd.SynchronousSGD, "momentum", -0.1),
        (qd.OrderedGradient, "threshold", -1), (qd.ServerSGD, "staleness_bound", -1),
    ]:  # fmt: skip
        with pytest.raises(ModelError, match=f"{kind.__name__}: {name} must be"):
            kind(**{name: value})
