"""Update rules of recurrent networks' fixed points against their closed forms."""

import numpy as np
import pytest

from queuemodel import ModelError, example_profile
from queuemodel.sgd import Candidate, FixedPoint, Reparameterized, SynchronousSGD, compare, descend, make_problem

RNG, P = np.random.default_rng(4), 3
X, Y, W = RNG.normal(size=(5, P)), RNG.normal(size=(5, P)), 0.3 * RNG.normal(size=(P, P))
RULES = [Reparameterized(), Reparameterized(first_order=True)]


def one_input(activation="linear", initial=W):
    return FixedPoint(X[:1], 0.5 * Y[:1], activation=activation, initial=initial)


def trained(problem, rule, rate, steps=1, workers=1):
    return descend(problem, rule, workers=workers, steps=range(steps + 1), learning_rate=rate, seeds=1)


@pytest.mark.parametrize("seed", range(5))
def test_loss_falls_by_closed_form(seed):
    problem = one_input(initial=np.random.default_rng(seed).normal(size=(P, P)))
    for rule in (RULES[0], SynchronousSGD()):  # the control
        losses = trained(problem, rule, rate := 0.4 / (X[0] @ X[0]), 8).losses[0]
        falls = np.allclose(losses[1:] / losses[:-1], (1 - rate * X[0] @ X[0]) ** 2, rtol=1e-6)
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
    ways = [Candidate("euclidean", SynchronousSGD()), Candidate("reparameterized", RULES[0])]
    asked = {"problem": FixedPoint(X, Y), "steps": 400, "seeds": 2, "learning_rates": (0.03, 0.1)}
    found = compare(example_profile("ddp-alexnet-40"), workers=4, strategies=ways, **asked)
    plain, other = found.rows
    assert other.steps_per_second == pytest.approx(plain.steps_per_second, rel=0.02)
    assert np.isfinite(np.median(other.seconds_to))
    with pytest.raises(ModelError, match=r"\ALeastSquares: has no fixed point; .*\Z"):
        trained(make_problem("least-squares"), RULES[0], 0.1)
    singular = FixedPoint(X, Y, initial=np.eye(P))
    assert np.isinf(trained(singular, RULES[0], 0.1).losses).all()
    with pytest.raises(ModelError, match=r"targets \(m, p\), m > 0"):
        FixedPoint(X, Y[:, 0])
