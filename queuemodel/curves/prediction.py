"""Predicted throughput with everything that is uncertain of it, weighed by what was measured.

At a *place*, a number of workers on some machines, the logarithm of throughput is that of one of M kinds of network,
plus what the fit leaves open, plus the model's own error, plus the noise of measuring for a minute:

    log x_p = mean[p, m] + (spread @ u)_p + size e_p + excess noise_p v_p,      u, v ~ N(0, I),   e ~ N(0, C)

The size of the model's error is known from few networks only, so that errors follow Student's t, and the noise may be
larger than assumed. On the grid of kinds, sizes and excesses conditioning is exact (Kennedy and O'Hagan, 2001, with
Gaussian processes of known covariance): each combination is weighed by the likelihood of all measurements together, so
that their order does not matter, and moved by the correlation of its errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist

import numpy as np

from ..base.files import constants

_NUMBERS = constants(__package__)["prediction"]
OTHER_MACHINES, FREEDOM, OUTLIER = (_NUMBERS[name] for name in ("other_machines", "freedom", "outlier"))
#: Sizes of the models' errors relative to the learnt ones; noise over what is assumed of it, and how likely that is.
SIZES = 2.0 ** np.arange(-1.0, 4.1, 0.5)
NOISE_SCALES = {1.0: 0.985, 2.0: 0.01, 4.0: 0.004, 10.0: 0.001}
#: Standard error of the logarithm that an outlier among this many measurements or more counts with.
OUTLIER_ERROR, MIN_WITH_OUTLIERS = 1.0, 3
#: Of more than so many draws, quantiles are those of a sample.
MANY = 200
#: Halvings of the interval in which a quantile lies.
BISECTIONS = 30
#: Student's quantile (4 degrees of freedom) over the normal one, at 95 %: 90 % intervals are those of the learnt errors.
STUDENT_RATIO = 2.131847 / 1.644854


@dataclass(frozen=True, eq=False, kw_only=True)
class Prediction:
    """Log throughput (steps of all workers per second) at P places.

    Attributes
    ----------
    workers, machines : ndarray of int, shape (P,)
        Numbers of workers, and which machines: 0 are those asked for.
    mean : ndarray, shape (P, M)
        By each of M kinds of network, or draw.
    weights : ndarray, shape (M,)
        How likely each is; they add up to 1.
    error : ndarray, shape (P, 1) or (P, M)
        Relative standard error of the model.
    noise : ndarray, shape (P,)
        Relative standard error of one measurement.
    spread : ndarray, shape (P, B)
        Effects of B independent standard normal variables that the fit leaves open.
    correlation : float
        Of the model's errors at two numbers of workers, one twice the other.
    ceiling, ceiling_error : ndarray, shape (P,)
        What log throughput cannot exceed, and its standard error.
    """

    workers: np.ndarray
    mean: np.ndarray
    weights: np.ndarray = field(default_factory=lambda: np.ones(1))
    error: np.ndarray
    noise: np.ndarray
    spread: np.ndarray
    correlation: float = 1.0
    machines: np.ndarray = field(default_factory=lambda: np.zeros(1, int))
    ceiling: np.ndarray = field(default_factory=lambda: np.array(math.inf))
    ceiling_error: np.ndarray = field(default_factory=lambda: np.array(0.0))

    @classmethod
    def drawn(cls, workers: np.ndarray, logs: np.ndarray, error: np.ndarray | float = 0.0) -> Prediction:
        """Of draws (P, M) of log throughput, equally likely, and the model's error (P,) beside them."""
        (P, M), error = logs.shape, np.broadcast_to(error, len(workers))
        return cls(
            workers=workers, mean=logs, weights=np.full(M, 1.0 / M), error=error[:, None], noise=np.zeros(P),
            spread=np.zeros((P, 1)),
        )  # fmt: skip

    def at(self, places: np.ndarray) -> Prediction:
        """Of some places only."""
        size = len(self.workers)
        rows = {
            name: np.broadcast_to(value, (size, *value.shape[1:]))[places]
            for name in ("workers", "machines", "mean", "error", "noise", "spread", "ceiling", "ceiling_error")
            for value in [getattr(self, name)]
        }
        return replace(self, **rows)

    def joined(self, other: Prediction) -> Prediction:
        """With the places of another one, of the same kinds of network on other machines."""
        here, there = (one.at(np.arange(len(one.workers))) for one in (self, other))
        rows = {
            name: np.concatenate([getattr(here, name), getattr(there, name)])
            for name in ("workers", "mean", "error", "noise", "spread", "ceiling", "ceiling_error")
        }
        machines = np.concatenate([here.machines, there.machines + here.machines.max() + 1])
        return replace(here, machines=machines, **rows)

    def interval(self, confidence: float) -> np.ndarray:
        """The median and the ends of the interval of one measurement, steps per second, shape (3, P)."""
        tail = (1.0 - confidence) / 2
        ends = mixture_quantiles(self.mean, np.sqrt(self._variance), self.weights, [0.5, tail, 1.0 - tail])
        most = self.ceiling + NormalDist().inv_cdf(1.0 - tail) * self.ceiling_error
        return np.exp(np.minimum(ends, most))

    def condition(self, at: Sequence[int], log_x: np.ndarray, noise: np.ndarray) -> tuple[Prediction, np.ndarray]:
        """The posterior, given log throughputs (n,) measured at some places, and which of these are outliers.

        An outlier is unlikely under the prior predictive and the other measurements; of three and more it hardly
        counts. ``noise`` (n,) are the relative standard errors of measuring.
        """
        wrong = []
        for i, place in enumerate(at):
            others = [j for j in range(len(at)) if j != i]
            rest = self._given([at[j] for j in others], log_x[others], noise[others]).at(np.array([place]))
            deviation = np.sqrt(rest._variance - rest.noise[:, None] ** 2 + noise[i] ** 2)
            chance = float(mixture_cdf(log_x[[i]], rest.mean, deviation, rest.weights)[0])
            wrong.append(min(chance, 1.0 - chance) < OUTLIER / 2)
        outliers = np.array(wrong, dtype=bool)
        if len(at) >= MIN_WITH_OUTLIERS:
            noise = np.where(outliers, OUTLIER_ERROR, noise)
        return self._given(at, log_x, noise), outliers

    @property
    def _variance(self) -> np.ndarray:
        """Of the logarithm of one measurement, (P, M)."""
        fixed = (self.spread**2).sum(axis=1) + self.noise**2
        return np.broadcast_to(self.error**2 + fixed[:, None], self.mean.shape)

    def _given(self, at: Sequence[int], log_x: np.ndarray, noise: np.ndarray) -> Prediction:
        if not len(at):
            return self
        sizes, scales = (grid.ravel() for grid in np.meshgrid(SIZES / STUDENT_RATIO, [*NOISE_SCALES], indexing="ij"))
        prior = np.outer(size_weights(), [*NOISE_SCALES.values()]).ravel()
        P, M = self.mean.shape
        octaves, machines = np.log2(self.workers), np.broadcast_to(self.machines, P)
        likeness = self.correlation ** np.abs(octaves[at, None] - octaves)  # (n, P)
        likeness = likeness * np.where(machines[at, None] == machines, 1.0, OTHER_MACHINES)
        error = np.broadcast_to(self.error, (P, M)).T
        square = sizes[:, None, None, None] ** 2
        # (S, M, n, P): covariance of log throughput where it was measured with that everywhere
        K = square * likeness * error[:, at, None] * error[:, None, :] + self.spread[at] @ self.spread.T
        among = K[..., at] + np.eye(len(at)) * (scales[:, None] * noise)[:, None, None, :] ** 2
        gain = np.linalg.solve(among, K)
        off = (log_x - self.mean[at].T)[..., None]  # (M, n, 1)
        distance = (off * np.linalg.solve(among, np.broadcast_to(off, (len(sizes), *off.shape)))).sum(axis=(-2, -1))
        evidence = -0.5 * (distance + np.linalg.slogdet(among)[1])  # (S, M)
        weights = np.outer(prior, self.weights) * np.exp(evidence - evidence.max())
        before = square[..., 0] * error**2 + (self.spread**2).sum(axis=1)
        variance = np.maximum(before - (gain * K).sum(axis=-2), 0.0) + (scales[:, None, None] * self.noise) ** 2
        return replace(
            self,
            mean=(self.mean.T + (gain * off).sum(axis=-2)).reshape(-1, P).T,
            error=np.sqrt(variance).reshape(-1, P).T,
            weights=(weights / weights.sum()).ravel(),
            noise=np.zeros(P),
            spread=np.zeros((P, 1)),
        )

    def kinds(self, count: int) -> np.ndarray:
        """Probability of each of so many kinds of network, before or after measurements, shape (count,)."""
        return self.weights.reshape(-1, count).sum(axis=0)


def size_weights() -> np.ndarray:
    """How likely each of SIZES is, when the mean of `FREEDOM` squared errors was 1."""
    logs = -FREEDOM * (np.log(SIZES) + 0.5 / SIZES**2)  # density of the logarithm: inverse chi-square
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


_erfc = np.frompyfunc(math.erfc, 1, 1)


def mixture_cdf(x: np.ndarray, mean: np.ndarray, deviation: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Probability below x (..., P) of mixtures of M normal laws, mean and deviation (P, M), weights (M,)."""
    z = (x[..., None] - mean) / np.maximum(deviation, 1e-12)
    return np.asarray(0.5 * _erfc(-z / math.sqrt(2.0)) @ weights, dtype=float)


def mixture_quantiles(
    mean: np.ndarray, deviation: np.ndarray, weights: np.ndarray, shares: Sequence[float]
) -> np.ndarray:
    """Quantiles (shares, P) of mixtures of M normal laws."""
    deviation = np.broadcast_to(deviation, mean.shape)
    scores = np.array([NormalDist().inv_cdf(share) for share in shares])
    if mean.shape[1] == 1:
        return np.asarray(mean[:, 0] + scores[:, None] * deviation[:, 0])
    if mean.shape[1] > MANY:  # equally likely draws: their errors at evenly spread probabilities, in a fixed order
        order = np.random.default_rng(0).permutation(mean.shape[1])
        z = np.array([NormalDist().inv_cdf((rank + 0.5) / len(order)) for rank in order])
        return np.quantile(mean + deviation * z, shares, axis=-1)
    each = mean + scores[:, None, None] * deviation  # a mixture's quantile lies between its parts'
    low, high = each.min(axis=-1), each.max(axis=-1)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        below = mixture_cdf(middle, mean, deviation, weights) < np.array(shares)[:, None]
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2
