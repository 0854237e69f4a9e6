"""Gradients against differences, minima against theory, sampling against the whole."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuemodel import ModelError
from queuemodel.sgd import PROBLEM_KINDS, FixedPoint, LeastSquares, LogisticRegression, make_problem, split


@pytest.mark.parametrize("kind", [*PROBLEM_KINDS, "linear", "tanh"])
def test_gradient_agrees_with_differences(kind):
    rng = np.random.default_rng(4)
    if kind in PROBLEM_KINDS:
        problem = make_problem(kind, examples=60, features=4, seed=3)
    else:
        problem = FixedPoint(*rng.normal(size=(2, 5, 3)), activation=kind)
    x = problem.start(rng) + 0.3 * rng.normal(size=problem.dimension)
    step = 1e-5 * np.eye(problem.dimension)
    differences = (problem.loss(x + step) - problem.loss(x - step)) / 2e-5
    np.testing.assert_allclose(problem.gradient(x), differences, rtol=1e-5, atol=1e-8)
    if kind not in PROBLEM_KINDS:
        r, f = problem.fixed_points(x, problem.features)[0], {"linear": np.positive, "tanh": np.tanh}[kind]
        np.testing.assert_allclose(r, f(r @ x.reshape(3, 3).T + problem.features), rtol=1e-9)


@pytest.mark.parametrize("kind", PROBLEM_KINDS)
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
    assert LogisticRegression(A, np.array([0, 1])).loss(x) == pytest.approx(np.log1p(np.exp(-margin)).mean())


@given(st.integers(1, 12), st.sampled_from([0.05, 0.5, 5.0, np.inf]), st.integers(0, 50))
def test_split_gives_each_example_once(workers, concentration, seed):
    problem = split(make_problem("logistic", examples=40), workers, concentration=concentration, seed=seed)
    np.testing.assert_array_equal(np.sort(np.concatenate(problem.shares)), np.arange(40))
    sizes = [len(share) for share in problem.shares]
    assert max(sizes) - min(sizes) <= 1


def test_small_concentration_separates_classes():
    pure = []
    for concentration in (0.05, np.inf):
        problem = split(make_problem("logistic", examples=400), 4, concentration=concentration)
        pure.append(np.mean([max(np.bincount(problem.targets[s], minlength=2)) / len(s) for s in problem.shares]))
    assert pure[0] > 0.8 > 0.65 > pure[1]
    fine = {"features": np.ones((4, 2)), "targets": np.ones(4)}
    for change, words in (({"features": np.ones((3, 2))}, "shape"), ({"shares": (np.array([0, 9]),)}, "of worker 0")):
        with pytest.raises(ModelError, match=words):
            LeastSquares(**fine | change)
