"""Rates of convergence as slopes over replications, each beside what must not have that slope."""

from dataclasses import replace

import numpy as np

from queuemodel.descent import LocalSGD, SynchronousSGD, descend, make_problem, split

PROBLEM = make_problem("least-squares", examples=400, features=8, batch_size=2, seed=4)


def excess(strategy, workers, steps, rate, seeds=24, tail=0.5):
    done = descend(PROBLEM, strategy, workers=workers, steps=steps, learning_rate=rate, seeds=seeds, record=60)
    return (done.losses[:, int(60 * tail) :] - PROBLEM.minimum).mean()


def slope(x, y):
    return np.polyfit(np.log(x), np.log(y), 1)[0]


def test_more_workers_average_the_noise():
    """With a constant rate the excess loss at the end is proportional to 1 / n: linear speedup."""
    workers = [1, 4, 16]
    by_workers = slope(workers, [excess(SynchronousSGD(), n, 1000, 0.02) for n in workers])
    assert abs(by_workers + 1) < 0.12
    by_rate = slope([0.02, 0.08], [excess(SynchronousSGD(), 1, 1500, r) for r in (0.02, 0.08)])
    assert abs(by_rate - 1) < 0.2  # and to the rate: control that the slope is no constant of the test


def test_falling_rate_gives_one_over_nT():
    """Strongly convex, rates of order 1/k: excess loss of order 1 / (n T)."""
    mu = float(np.linalg.eigvalsh(PROBLEM.hessian)[0])

    def last(n, steps):
        rate = lambda k: 2 / (mu * (k + 40))  # noqa: E731
        done = descend(PROBLEM, LocalSGD(4), workers=n, steps=steps, learning_rate=rate, seeds=24, record=2)
        return (done.losses[:, -1] - PROBLEM.minimum).mean()

    steps = [500, 2000]
    assert abs(slope(steps, [last(4, t) for t in steps]) + 1) < 0.2
    assert abs(slope([1, 4, 16], [last(n, 1000) for n in (1, 4, 16)]) + 1) < 0.2


def test_local_steps_on_different_data_end_where_theory_says():
    """Expected parameters obey x <- mean of x_i* + (I - eta H_i)^tau (x - x_i*), whose fixed point is no optimum."""
    problem, rate, local_steps = split(PROBLEM, 8, concentration=0.1), 0.05, 64
    own = [replace(problem, features=A, targets=b, shares=()) for A, b in zip(*shares(problem), strict=True)]
    shrink = [np.linalg.matrix_power(np.eye(8) - rate * one.hessian, local_steps) for one in own]
    away = np.mean([(np.eye(8) - S) @ one.optimum for S, one in zip(shrink, own, strict=True)], axis=0)
    fixed = np.linalg.solve(np.eye(8) - np.mean(shrink, axis=0), away)
    done = descend(problem, LocalSGD(local_steps), workers=8, steps=640, learning_rate=rate, seeds=64, record=2)
    noise = np.sqrt(done.model.var(axis=0).sum() / 64)
    assert np.linalg.norm(done.model.mean(axis=0) - fixed) < 3 * noise
    assert np.linalg.norm(done.model.mean(axis=0) - problem.optimum) > 6 * noise


def shares(problem):
    return [problem.features[s] for s in problem.shares], [problem.targets[s] for s in problem.shares]
