"""The gradient noise scale: a critical batch from the gradients of a few steps, without training to the target.

S. McCandlish et al., "An Empirical Model of Large-Batch Training" (2018), appendix A.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..checks import MOST_EXAMPLES, require_count, require_share
from ..errors import ModelError

#: Resampled means of the steps, for the interval.
DRAWS = 2000


@dataclass(frozen=True, eq=False)
class NoiseScale:
    """Where the noise of a batch's gradient is as large as the gradient itself, in examples.

    Attributes
    ----------
    value : float
        trace of the covariance of one example's gradient over the squared norm of the true gradient; infinite when the
        steps show no gradient beside the noise.
    draws : ndarray
        The same of resampled steps, sorted.
    """

    value: float
    draws: np.ndarray

    @classmethod
    def exactly(cls, value: float) -> NoiseScale:
        """One whose error is not known, or none."""
        return cls(value, np.array([value]))

    def __str__(self) -> str:
        low, high = self.interval()
        return f"{self.value:.3g} examples ({low:.3g} to {high:.3g}, 90%)"

    def interval(self, confidence: float = 0.9) -> tuple[float, float]:
        """Between which the scale lies with this probability, as far as the steps differ; the end may be infinite."""
        tail = (1.0 - require_share(confidence, "interval: confidence", open_ended=True)) / 2
        at = np.array([tail, 1.0 - tail]) * (len(self.draws) - 1)
        low, high = self.draws[np.round(at).astype(int)].tolist()
        return low, high


def noise_scale(worker_norms: npt.ArrayLike, mean_norms: npt.ArrayLike, *, batch_size: int) -> NoiseScale:
    """Estimate the noise scale from what a step of data-parallel training has at hand.

    The squared norm of one worker's gradient, of b examples, is ``|G|² + tr Σ / b`` on average, that of all
    workers' mean, of B examples, ``|G|² + tr Σ / B``: two equations for both, unbiased; the scale is the ratio of
    their means over the steps. It changes as training goes on, so take steps that lie close together.

    Parameters
    ----------
    worker_norms : array, shape (steps, workers)
        Squared norm of each worker's gradient before it is reduced; two workers or more, and two steps: they tell the
        error by how they differ.
    mean_norms : array, shape (steps,)
        Squared norm of the mean of the workers' gradients.
    batch_size : int
        Examples per worker.

    Raises
    ------
    ModelError
        When the arrays do not fit together, or hold what is no squared norm.

    Examples
    --------
    >>> scale = noise_scale([[5.0, 5.2], [4.9, 5.1], [5.1, 4.8]], [3.0, 2.9, 3.1], batch_size=32)
    >>> round(scale.value)  # |G|² = 0.983, tr Σ / 32 = 4.03
    131
    """
    b = require_count(batch_size, "noise_scale: batch_size", most=MOST_EXAMPLES)
    own, mean = np.asarray(worker_norms, dtype=float), np.asarray(mean_norms, dtype=float)
    if own.ndim != 2 or own.shape[1] < 2 or mean.shape != own.shape[:1] or len(mean) < 2:
        raise ModelError(
            "noise_scale: worker_norms must be of shape (steps, workers) with two or more of each and mean_norms of "
            f"shape (steps,), got {own.shape} and {mean.shape}"
        )
    if not (np.isfinite(own).all() and np.isfinite(mean).all() and own.min() >= 0 and mean.min() >= 0):
        raise ModelError("noise_scale: squared norms must be finite and >= 0")
    B = b * own.shape[1]
    gradient = (B * mean - b * own.mean(axis=1)) / (B - b)
    noise = (own.mean(axis=1) - mean) / (1 / b - 1 / B)
    draw = np.random.default_rng(0).integers(len(mean), size=(DRAWS, len(mean)))
    draws = _ratio(noise[draw].mean(axis=1), gradient[draw].mean(axis=1))
    return NoiseScale(float(_ratio(noise.mean(), gradient.mean())), np.sort(draws))


def _ratio(noise: npt.ArrayLike, gradient: npt.ArrayLike) -> np.ndarray:
    top, below = np.maximum(noise, 0.0), np.asarray(gradient)
    return np.divide(top, below, out=np.full(top.shape, np.inf), where=below > 0)
