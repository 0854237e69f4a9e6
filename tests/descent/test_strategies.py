"""Each strategy against what it must be in a special case, against theory, and against a wrong one that is noticed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuemodel import ModelError
from queuemodel.descent import (
    QSGD,
    AdaComm,
    AdaQuantFL,
    BlockSign,
    Clock,
    DoubleCompression,
    Identity,
    LeastSquares,
    LocalSGD,
    OrderedGradient,
    OverlapLocalSGD,
    OverTheAir,
    RandomK,
    ServerSGD,
    SquarmSGD,
    SynchronousSGD,
    TopK,
    descend,
    make_problem,
    mixing_matrix,
    spectral_gap,
    split,
)
from queuemodel.descent.messages import speakers
from queuemodel.descent.strategy import Moment

SQUARES = make_problem("least-squares", examples=200, features=10)
STRATEGIES = [
    SynchronousSGD(0.5),
    LocalSGD(4),
    AdaComm(8, 50.0),
    OverlapLocalSGD(2, momentum=0.3),
    DoubleCompression(TopK(0.2)),
    DoubleCompression(QSGD(2), momentum=0.5, local_steps=3),
    DoubleCompression(BlockSign()),
    SquarmSGD(momentum=0.3),
    SquarmSGD("complete", RandomK(0.3), mixing=0.3, trigger=1e-4),
    AdaQuantFL(),
    OrderedGradient(),
    OverTheAir(4, noise=1e-3),
    ServerSGD(),
    ServerSGD("k-async", 2),
    ServerSGD("k-batch-async", 2),
    ServerSGD("k-sync", 2),
    ServerSGD("k-batch-sync", 2),
    ServerSGD("bounded-staleness", staleness_bound=1),
]


def run(strategy, problem=SQUARES, workers=4, steps=60, learning_rate=0.05, **options):
    return descend(
        problem, strategy, workers=workers, steps=steps, learning_rate=learning_rate, **{"seeds": 2} | options
    )


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_reaches_the_minimum_with_a_falling_rate(strategy):
    done = run(strategy, steps=3000, learning_rate=lambda k: 0.05 / (1 + k / 300), clock=Clock(cv=0.5))
    first, last = done.losses[:, 0] - SQUARES.minimum, done.losses[:, -1] - SQUARES.minimum
    assert (last < 0.004 * first).all()
    assert (np.diff(done.times, axis=1) >= 0).all()
    assert (np.diff(done.up_bits, axis=1) >= 0).all()


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_a_seed_is_the_same_beside_others(strategy):
    both, alone = run(strategy, seeds=[3, 8]), run(strategy, seeds=[8])
    np.testing.assert_allclose(both.losses[1], alone.losses[0], rtol=1e-9)
    assert np.allclose(both.losses[0], both.losses[1], rtol=1e-6) == strategy.exact


def test_special_cases_are_synchronous_sgd():
    truth = run(SynchronousSGD())
    np.testing.assert_allclose(run(LocalSGD(1)).losses, truth.losses, rtol=1e-9)
    np.testing.assert_allclose(run(DoubleCompression(Identity())).losses, truth.losses, rtol=1e-9)
    np.testing.assert_allclose(run(SquarmSGD("complete")).losses, truth.losses, rtol=1e-9)
    np.testing.assert_allclose(run(AdaComm(1)).losses, truth.losses, rtol=1e-9)
    for other in (LocalSGD(2), DoubleCompression(TopK(0.5)), SquarmSGD("ring", mixing=0.5), SynchronousSGD(0.1)):
        assert not np.allclose(run(other).losses, truth.losses, rtol=1e-4)


def test_momentum_is_of_gradients_whatever_the_rates():
    """One example, x* = 1: v <- v / 2 + x - 1, x <- x - eta v."""
    problem = LeastSquares(np.ones((1, 1)), np.ones(1))
    x = v = 0.0
    for k in range(20):
        v = v / 2 + x - 1
        x -= 0.5 / (1 + k) * v
    done = run(SynchronousSGD(0.5), problem, steps=20, learning_rate=lambda k: 0.5 / (1 + k))
    np.testing.assert_allclose(done.model, x, rtol=1e-9)


def test_no_staleness_at_all_is_k_sync_of_all():
    """Each of n gradients of the same parameters is applied by itself: n times as large a step as their mean."""
    truth = run(ServerSGD("k-sync", 4), steps=80, learning_rate=0.04, record=21)
    bounded = run(ServerSGD("bounded-staleness"), steps=80, learning_rate=0.01, record=21)
    np.testing.assert_allclose(bounded.losses, truth.losses, rtol=1e-9)
    assert not np.allclose(run(ServerSGD(), steps=80, learning_rate=0.01, record=21).losses, truth.losses, rtol=1e-4)


@pytest.mark.parametrize(
    "strategy", [LocalSGD(5), OverlapLocalSGD(3, 1.0, 0.0), SquarmSGD(), ServerSGD(), ServerSGD("k-sync")]
)
def test_one_worker_alone_is_sgd(strategy):
    truth = run(SynchronousSGD(), workers=1, steps=30)
    if isinstance(strategy, OverlapLocalSGD):  # pulled back to where it was a round ago: one worker still loses a round
        assert not np.allclose(run(strategy, workers=1, steps=30).losses, truth.losses, rtol=1e-6)
    else:
        np.testing.assert_allclose(run(strategy, workers=1, steps=30).losses, truth.losses, rtol=1e-9)


def test_k_sync_of_all_is_synchronous_sgd():
    """K-sync counts gradients one by one, n of them being a step; other batches are drawn, so these hardly differ."""
    problem = make_problem("least-squares", examples=4, features=3, batch_size=256, seed=2)

    def losses(strategy, steps):
        clock = Clock(cv=1.0)
        done = descend(problem, strategy, workers=4, steps=steps, learning_rate=0.3, seeds=8, record=41, clock=clock)
        return done.losses.mean(axis=0)

    truth = losses(SynchronousSGD(), 40)
    np.testing.assert_allclose(losses(ServerSGD("k-sync", 4), 160), truth, rtol=0.02)
    assert not np.allclose(losses(ServerSGD("async"), 160), truth, rtol=0.04)


def test_double_compression_is_as_derived():
    """Two steps of two workers in two dimensions, one of which is kept, by hand."""
    strategy, rngs = DoubleCompression(TopK(0.5), momentum=0.5), [np.random.default_rng(0)]
    state = strategy.begin(np.zeros((1, 2)), 2)
    g = np.array([[[4.0, 1.0], [1.0, 2.0]]])
    for number, rate in enumerate((1.0, 0.5)):
        strategy.update(state, g, Moment(number, rate, rngs, np.zeros(1), lambda x: x))
    # step 1: m = g, p = 1.5 g = (6, 1.5), (1.5, 3): sends (6, 0), (0, 3), mean (3, 1.5): sends (3, 0), keeps (0, 1.5)
    # step 2: m = 1.5 g, p = 0.5 * 1.75 g + e = (3.5, 0.875 + 1.5), (0.875 + 1.5, 1.75): sends (3.5, 0), (2.375, 0)
    np.testing.assert_allclose(state["error"][0], [[0, 2.375], [0, 1.75]])
    # mean (2.9375, 0) + (0, 1.5): sends (2.9375, 0), keeps (0, 1.5)
    np.testing.assert_allclose(state["server_error"][0, 0], [0, 1.5])
    np.testing.assert_allclose(state["anchor"][0, 0], [-3 - 2.9375, 0])


def test_error_feedback_keeps_its_residual_bounded():
    """|e|^2 <= 4 (1 - delta) eta^2 G^2 / delta^2 (Karimireddy et al., ICML 2019, Lemma 3)."""
    strategy, rng, d = DoubleCompression(TopK(0.1)), np.random.default_rng(1), 50
    state = strategy.begin(np.zeros((1, d)), 3)
    largest = 0.0
    for number in range(400):
        g = rng.normal(size=(1, 3, d))
        g /= np.linalg.norm(g, axis=-1, keepdims=True)
        strategy.update(state, g, Moment(number, 0.1, [rng], np.zeros(1), lambda x: x))
        largest = max(largest, float(np.linalg.norm(state["error"], axis=-1).max()))
    delta = 0.1
    assert 0.1 < largest <= 2 * np.sqrt(1 - delta) * 0.1 / delta


def test_error_feedback_beats_its_absence():
    problem = make_problem("logistic", examples=200, features=20, batch_size=16)

    class Forgetful(DoubleCompression):
        def update(self, state, gradients, moment):
            state["error"][:] = 0.0
            state["server_error"][:] = 0.0
            return super().update(state, gradients, moment)

    kept = run(DoubleCompression(BlockSign(2)), problem, steps=1500, learning_rate=0.05).losses[:, -1].mean()
    lost = run(Forgetful(BlockSign(2)), problem, steps=1500, learning_rate=0.05).losses[:, -1].mean()
    assert kept - problem.minimum < 0.5 * (lost - problem.minimum)


@pytest.mark.parametrize(("graph", "workers"), [("ring", 8), ("torus", 9), ("complete", 5)])
def test_consensus_contracts_at_the_rate_of_the_spectral_gap(graph, workers):
    """Without gradients, exact gossip shrinks the slowest disagreement by exactly 1 - gap each step."""
    weights = mixing_matrix(graph, workers)
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    gap = spectral_gap(weights)
    values, vectors = np.linalg.eigh(weights)
    slowest = vectors[:, np.argsort(np.abs(values))[-2]]
    strategy = SquarmSGD(graph)
    state = strategy.begin(np.zeros((1, 1)), workers)
    state["x"][0, :, 0] = slowest
    for number in range(3):
        strategy.update(state, np.zeros((1, workers, 1)), Moment(number, 1.0, [], np.zeros(1), lambda x: x))
    assert np.linalg.norm(state["x"]) == pytest.approx((1 - gap) ** 3, abs=1e-12)
    if graph == "ring":
        assert gap == pytest.approx((2 - 2 * np.cos(2 * np.pi / workers)) / 3)


@given(st.integers(0, 10_000), st.integers(1, 9), st.floats(0, 20))
def test_ordered_gradient_stays_within_its_threshold(seed, workers, threshold):
    innovations = np.random.default_rng(seed).standard_t(2, (1, workers, 5))
    norms = np.linalg.norm(innovations, axis=-1)
    speaks = speakers(norms, np.array([threshold]))
    missing = np.linalg.norm(innovations[0, ~speaks[0]].sum(axis=0))
    assert missing <= threshold * (1 + 1e-12)
    if speaks.any() and not speaks.all():
        assert norms[speaks].min() >= norms[~speaks].max()
    if speaks.any():  # one less would not do by this rule
        fewest = norms[0][speaks[0]].min()
        assert (workers - speaks.sum() + 1) * fewest > threshold


@pytest.mark.parametrize("problem", [SQUARES, split(SQUARES, 5, concentration=0.3)], ids=["whole", "split"])
def test_ordered_gradient_sends_less_and_arrives(problem):
    exact = run(OrderedGradient(0.0, 0.0), problem, workers=5, steps=300)
    saving = run(OrderedGradient(0.0, 0.2), problem, workers=5, steps=300)
    assert (saving.up_bits[:, -1] < 0.8 * exact.up_bits[:, -1]).all()
    np.testing.assert_allclose(saving.losses[:, -1], exact.losses[:, -1], rtol=1e-3)
    x = np.zeros(10)
    for _ in range(300):  # gradient descent
        x -= 0.05 * problem.gradient(x)
    np.testing.assert_allclose(exact.model[0], x, rtol=1e-9)


@pytest.mark.parametrize("allocation", ["water-filling", "inversion"])
def test_over_the_air_mean_and_variance(allocation):
    """What arrives on the chosen sub-carriers is the mean of what was sent, with the noise's variance over q n^2."""
    strategy = OverTheAir(3, power=2.0, noise=0.5, fading=1e-9, allocation=allocation)
    rng = np.random.default_rng(4)
    u, channel = rng.normal(size=(1, 4, 3)), rng.rayleigh(0.7, (1, 4, 3))
    q = strategy.gains(u, channel)
    spent = (q[:, None] * np.square(u / channel)).sum(axis=-1)
    assert spent.max() <= 2.0 * (1 + 1e-12)
    errors = []
    for i in range(400):
        state = strategy.begin(np.zeros((1, 3)), 4)
        strategy.update(state, u, Moment(0, 1.0, [np.random.default_rng(i)], np.zeros(1), lambda x: x))
        errors.append(-state["x"][0, 0] - u[0].mean(axis=0))
    errors = np.array(errors)
    assert np.abs(errors.mean(axis=0)).max() < 4 * errors.std() / 20
    expected = np.mean(
        [
            (0.25 / 16 / strategy.gains(u, np.random.default_rng(i).rayleigh(np.sqrt(0.5), (1, 4, 3)))).sum()
            for i in range(1000, 5000)
        ]
    )
    total = np.square(errors).sum(axis=1)
    assert total.mean() == pytest.approx(expected, abs=5 * total.std() / 20)


def test_water_filling_has_less_noise_than_inversion():
    rng = np.random.default_rng(0)
    u, channel = rng.normal(size=(50, 6, 20)), rng.rayleigh(0.7, (50, 6, 20))
    noise = {a: (1 / OverTheAir(allocation=a).gains(u, channel)).sum(axis=1) for a in ("water-filling", "inversion")}
    assert (noise["water-filling"] <= noise["inversion"] * (1 + 1e-12)).all()
    assert noise["water-filling"].mean() < 0.9 * noise["inversion"].mean()


def test_adacomm_averages_more_often_as_the_loss_falls():
    done = run(AdaComm(16, 120.0), steps=1000, record=501)
    rounds = np.diff(done.up_bits[0]) > 0
    assert rounds[:50].sum() < 0.4 * rounds[-50:].sum()


@pytest.mark.parametrize(("local_steps", "transfer"), [(60, 0.0), (58, 2.0)])
def test_adacomm_decides_when_an_averaging_ends_the_interval(local_steps, transfer):
    clock = Clock(transfer=lambda up, down: np.full(len(up), transfer))
    done = run(AdaComm(local_steps, 60.0), steps=150, record=151, clock=clock)
    first, second, *_ = np.flatnonzero(np.diff(done.up_bits[0])) + 1
    assert first == local_steps
    assert second - first == np.ceil(np.sqrt(done.losses[0, first] / done.losses[0, 0]) * local_steps)


def test_adacomm_bound_holds():
    """Mean squared gradient over the run, from below, against Theorem 1's bound for learning rates that it allows."""
    problem = make_problem("least-squares", examples=200, features=10, batch_size=4)
    mu, *_, smoothness = np.linalg.eigvalsh(problem.hessian)
    start, eta, seconds = np.zeros(10), 0.01, 400
    gap, variance = problem.loss(start) - problem.minimum, problem.gradient_variance(start) / problem.batch_size
    for local_steps in (1, 8):
        done = run(LocalSGD(local_steps), problem, steps=400, learning_rate=0.01, seeds=4, record=401)
        least_norm = 2 * mu * (done.losses.mean() - problem.minimum)  # |gradient|^2 >= 2 mu (f - minimum)
        noise = eta * smoothness * variance / 4 + (eta * smoothness) ** 2 * variance * (local_steps - 1)
        bound = 2 * gap / (eta * seconds) + noise
        assert least_norm <= bound < np.square(problem.gradient(start)).sum()


def test_adaquant_refines_its_messages():
    done = run(AdaQuantFL(1, 2), steps=400, record=401)
    bits = np.diff(done.up_bits[0])
    assert bits[0] == 10 * 2 + 10 + 32
    assert bits[-1] > bits[0]


def test_senseless_arguments_are_refused():
    with pytest.raises(ModelError, match="split it again"):
        run(LocalSGD(2), split(SQUARES, 3), workers=4)
    with pytest.raises(ModelError, match="learning_rate"):
        run(LocalSGD(2), learning_rate=-1)
    with pytest.raises(ModelError, match="strategy"):
        run("local-sgd")
    with pytest.raises(ModelError, match="problem"):
        run(LocalSGD(2), problem="logistic")
    with pytest.raises(ModelError, match="square number"):
        run(SquarmSGD("torus"), workers=8)
    with pytest.raises(ModelError, match="at least k"):
        run(ServerSGD("k-sync", 9))
    with pytest.raises(ModelError, match="k must be 1"):
        ServerSGD("async", 2)


def test_a_diverging_run_says_so():
    done = run(SynchronousSGD(), learning_rate=5.0, steps=2000)
    assert np.isinf(done.losses[:, -1]).all()
    assert np.isinf(done.time_to(0.2)).all()
