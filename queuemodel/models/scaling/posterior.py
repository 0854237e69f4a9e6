"""Draws from a posterior whose prior is standard normal: tempered sequential Monte Carlo.

P. Del Moral, A. Doucet and A. Jasra, "Sequential Monte Carlo samplers" (2006): particles start in the prior; the
likelihood's exponent rises from 0 to 1 in steps that halve the effective sample size of their weights, after each of
which they are resampled and moved by a random walk of their own covariance (Metropolis). Coordinates that no
measurement depends on keep their prior, and several modes are kept by their weights.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

#: Moves at each temperature, and after the last one; acceptance that the length of moves is adapted to.
MOVES, LAST_MOVES, ACCEPTANCE = 4, 16, 0.25


def sample(
    log_likelihood: Callable[[np.ndarray], np.ndarray], dimensions: int, *, draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Equally likely draws (draws, dimensions) from the posterior of a log likelihood of (draws, dimensions)."""
    u = rng.standard_normal((draws, dimensions))
    log_l, exponent, length = log_likelihood(u), 0.0, 2.38 / np.sqrt(dimensions)
    while exponent < 1.0:
        step = _step(log_l, 1.0 - exponent)
        exponent = 1.0 if step == 1.0 - exponent else exponent + step
        weight = np.exp(step * (log_l - log_l.max()))
        reached = np.cumsum(weight) / weight.sum()
        pick = np.searchsorted(reached, (np.arange(draws) + rng.random()) / draws).clip(max=draws - 1)
        u, log_l = u[pick], log_l[pick]
        root = np.linalg.cholesky(np.cov(u.T) + 1e-8 * np.eye(dimensions))
        for _ in range(MOVES if exponent < 1.0 else LAST_MOVES):
            moved = u + length * rng.standard_normal(u.shape) @ root.T
            log_moved = log_likelihood(moved)
            gain = exponent * (log_moved - log_l) + 0.5 * ((u**2).sum(axis=1) - (moved**2).sum(axis=1))
            accepted = np.log(rng.random(draws)) < gain
            u[accepted], log_l[accepted] = moved[accepted], log_moved[accepted]
            length *= np.exp(accepted.mean() - ACCEPTANCE)
    return u


def effective_sample_size(weight: np.ndarray) -> float:
    """(sum w)^2 / sum w^2 (Kong, 1992)."""
    return float(weight.sum() ** 2 / (weight @ weight))


def _step(log_l: np.ndarray, most: float) -> float:
    """The largest step of the exponent, up to ``most``, that leaves half the effective sample size."""
    left = lambda step: effective_sample_size(np.exp(step * (log_l - log_l.max())))  # noqa: E731
    if left(most) >= len(log_l) / 2:
        return most
    low, high = 0.0, most
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if left(middle) > len(log_l) / 2 else (low, middle)
    return low or high
