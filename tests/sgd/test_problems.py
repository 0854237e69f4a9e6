"""Gradients against differences, minima against theory, sampling against the whole; rules of fixed points."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuemodel import example_profile
from queuemodel import sgd as qd
from queuemodel.sgd import FixedPoint, Reparameterized, SynchronousSGD, make_problem, split


@pytest.mark.parametrize("kind", [*qd.PROBLEM_KINDS, "linear", "tanh"])
def test_gradient_agrees_with_differences(kind):
    rng = np.random.default_rng(4)
    made = kind in qd.PROBLEM_KINDS and make_problem(kind, examples=60, features=4, seed=3)
    problem = made or FixedPoint(*rng.normal(size=(2, 5, 3)), activation=kind)
    x = problem.start(rng) + 0.3 * rng.normal(size=problem.dimension)
    step = 1e-5 * np.eye(problem.dimension)
    differences = (problem.loss(x + step) - problem.loss(x - step)) / 2e-5
    np.testing.assert_allclose(problem.gradient(x), differences, rtol=1e-5, atol=1e-8)
    if not made:
        r, f = problem.fixed_points(x, problem.features)[0], {"linear": np.positive, "tanh": np.tanh}[kind]
        np.testing.assert_allclose(r, f(r @ x.reshape(3, 3).T + problem.features), rtol=1e-9)


@pytest.mark.parametrize("kind", qd.PROBLEM_KINDS)
def test_sampled_gradients_are_unbiased(kind):
    problem = make_problem(kind, examples=80, features=5, batch_size=4, seed=1)
    x = problem.start(np.random.default_rng(5)) + 0.1
    drawn = problem.sampled_gradients(x[None, None], np.arange(4000), [np.random.default_rng(2)])[0]
    every = problem.example_gradient(x, problem.features[:, None], problem.targets[:, None])
    variance = every.var(axis=0).sum() / problem.batch_size
    miss = drawn.mean(axis=0) - problem.gradient(x)
    assert np.linalg.norm(miss) < 4 * np.sqrt(variance / len(drawn))
    assert drawn.var(axis=0).sum() == pytest.approx(variance, rel=0.1)


def test_minima_have_zero_gradient():
    squares = make_problem("least-squares")
    np.testing.assert_allclose(squares.gradient(squares.optimum), 0, atol=1e-12)
    logistic = make_problem("logistic")
    np.testing.assert_allclose(logistic.gradient(logistic.optimum), 0, atol=1e-6)
    rng = np.random.default_rng(0)
    assert (logistic.loss(logistic.optimum + 0.1 * rng.normal(size=(50, logistic.dimension))) > logistic.minimum).all()
    # Two classes are the logistic loss of the difference.
    A, x = np.array([[1.0, 2.0], [-1.0, 0.5]]), np.array([0.3, -0.2, 0.1, 0.7])
    margin = np.array([-1, 1]) * (A @ ([-1, 1] @ x.reshape(2, 2)))
    assert qd.LogisticRegression(A, np.array([0, 1])).loss(x) == pytest.approx(np.log1p(np.exp(-margin)).mean())


@given(st.integers(1, 12), st.sampled_from([0.05, 0.5, 5.0, np.inf]), st.integers(0, 50))
def test_split_gives_each_example_once(workers, concentration, seed):
    problem = split(make_problem("logistic", examples=40), workers, concentration=concentration, seed=seed)
    np.testing.assert_array_equal(np.sort(np.concatenate(problem.shares)), np.arange(40))
    assert np.ptp([len(share) for share in problem.shares]) <= 1


def test_small_concentration_separates_classes():
    pure = []
    for concentration in (0.05, np.inf):
        problem = split(make_problem("logistic", examples=400), 4, concentration=concentration)
        pure.append(np.mean([max(np.bincount(problem.targets[s], minlength=2)) / len(s) for s in problem.shares]))
    assert pure[0] > 0.8 > 0.65 > pure[1]


RNG, P = np.random.default_rng(4), 3
X, Y, W = RNG.normal(size=(5, P)), RNG.normal(size=(5, P)), 0.3 * RNG.normal(size=(P, P))
RULES = [Reparameterized(), Reparameterized(first_order=True)]


def one_input(activation="linear", initial=W):
    return FixedPoint(X[:1], 0.5 * Y[:1], activation=activation, initial=initial)


def trained(problem, rule, rate, steps=1, workers=1):
    return qd.descend(problem, rule, workers=workers, steps=range(steps + 1), learning_rate=rate, seeds=1)


@pytest.mark.parametrize("seed", range(5))
def test_loss_falls_by_closed_form(seed):
    problem = one_input(initial=np.random.default_rng(seed).normal(size=(P, P)))
    for rule, near in ((RULES[0], 1e-6), (SynchronousSGD(), 0.02)):  # the control
        losses = trained(problem, rule, rate := 0.4 / (X[0] @ X[0]), 8).losses[0]
        falls = np.allclose(losses[1:] / losses[:-1], (1 - rate * X[0] @ X[0]) ** 2, rtol=near)
        assert falls == (rule == RULES[0])


@pytest.mark.parametrize("activation", ["linear", "tanh"])
def test_first_order_differs_by_squared_rate(activation):
    problem = one_input(activation)
    full, half = (np.concatenate([trained(problem, rule, rate).model for rule in RULES]) for rate in (1e-3, 5e-4))
    apart = np.linalg.norm(full[0] - full[1])
    assert apart / np.linalg.norm(half[0] - half[1]) == pytest.approx(4, rel=0.02)
    assert apart < 0.02 * np.linalg.norm(full[0] - problem.start(None))


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_slopes_replace_the_identity(rule):
    """To first order the loss falls by eta |dL/dr|^2 |M r|^2, M = G^-1 - W; without G it does not."""
    problem, rate = one_input("tanh"), 1e-5
    r, G, _ = problem.fixed_points(W.ravel(), X[:1])
    (r, G), error = (r[0], G[0]), r[0] - 0.5 * Y[0]
    fall = -np.diff(trained(problem, rule, rate).losses[0])[0] / rate
    at_slopes, without = (error @ error * np.square((np.diag(d) - W) @ r).sum() for d in (1 / G, np.ones(P)))
    assert fall == pytest.approx(at_slopes, rel=1e-3)
    assert abs(fall / without - 1) > 0.1


def test_only_euclidean_descent_diverges_near_singularity():
    """Its first step throws W so far that the gradient vanishes from then on."""
    problem = FixedPoint(X[:1], 0.5 * X[:1] + 0.2 * Y[:1], initial=0.95 * np.eye(P))
    rate = 0.2 / (X[0] @ X[0])
    euclidean, *others = (trained(problem, rule, rate, 60) for rule in (SynchronousSGD(), *RULES))
    assert np.linalg.norm(euclidean.model) > 1000
    assert euclidean.losses[0, -1] > 0.9 * euclidean.losses[0, 1] > 0.1
    for done in others:
        assert done.losses[0, -1] < 1e-6 * done.losses[0, 0]
        assert np.linalg.norm(done.model) < 10


def test_workers_average_the_step():
    """Two workers with an input each: A <- A - eta times the mean of the errors times the inputs."""
    problem = FixedPoint(X[:2], Y[:2], initial=W, shares=(np.array([0]), np.array([1])))
    A = np.linalg.inv(np.eye(P) - W)
    for _ in range(6):
        A = A - 0.1 * np.mean([np.outer(A @ x - y, x) for x, y in zip(X[:2], Y[:2], strict=True)], axis=0)
    done = trained(problem, RULES[0], 0.1, 6, workers=2)
    np.testing.assert_allclose(done.model[0].reshape(P, P), np.eye(P) - np.linalg.inv(A), rtol=1e-8)
    assert done.up_bits[0, -1] == 6 * 32 * P * P


def test_compared_at_synchronous_speed():
    ways = [qd.Candidate("euclidean", SynchronousSGD()), qd.Candidate("reparameterized", RULES[0])]
    asked = {"problem": FixedPoint(X, Y), "steps": 400, "seeds": 2, "learning_rates": (0.03, 0.1)}
    found = qd.compare(example_profile("ddp-alexnet-40"), workers=4, strategies=ways, **asked)
    plain, other = found.rows
    assert other.steps_per_second == pytest.approx(plain.steps_per_second, rel=0.02)
    assert np.isfinite(np.median(other.seconds_to))
    singular = FixedPoint(X, Y, initial=np.eye(P))
    assert np.isinf(trained(singular, RULES[0], 0.1).losses).all()
