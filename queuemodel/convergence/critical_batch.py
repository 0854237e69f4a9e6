"""The critical-batch law and what it misses, as a posterior.

    E(B) = E_min (1 + B / B_crit) exp(d(B))

examples until the target at batch size B, so that steps are S = E / B = S_min (1 + B_crit / B) (S. McCandlish et al.,
"An Empirical Model of Large-Batch Training", 2018). Each batch size has its own tuning, and targets are tested now and
then only: d, what the law misses, is an Ornstein-Uhlenbeck process in log B. The level has a flat prior, the ratio of
B_crit to the smallest measured batch and the size of d have distributions over jobs (`prior`). All of it is Gaussian
given the ratio, the size and the error of the measurements, which are summed over a grid: nothing is random here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .prior import LOG_LIMITS, ConvergencePrior

#: Logarithms of the critical batch in smallest measured batches.
LOG_RATIOS = np.linspace(*LOG_LIMITS, 241)
#: Batch sizes that differ by this factor's e-fold deviate from the law by 37 % alike (assumed).
MEMORY = 1.0
#: Normal deviates of equal weight that stand for a Gaussian in quantiles.
LEVELS = 21
#: Shapes less likely than this against the likeliest are left out of forecasts.
NEGLIGIBLE = 1e-4


class CriticalBatch:
    """The posterior of a job's law given measured batch sizes.

    Parameters
    ----------
    batch_size : ndarray, shape (n,)
    log_examples : ndarray, shape (n,)
        Logarithms of the examples that were needed.
    error : ndarray, shape (S, n)
        Their standard errors, as far as these are known: in S cases.
    prior : ConvergencePrior
    cases : ndarray, shape (S,)
        Logarithms of the cases' probabilities, up to a constant.
    """

    def __init__(
        self,
        batch_size: np.ndarray,
        log_examples: np.ndarray,
        error: np.ndarray,
        prior: ConvergencePrior,
        cases: np.ndarray,
    ) -> None:
        self.batch_size = np.asarray(batch_size, dtype=float)
        self.error, self.prior, self.cases = error, prior, cases
        self.off = log_examples - self._shape(self.batch_size)
        self.deviations = np.array(list(prior.deviations))

    def _shape(self, batch_size: np.ndarray) -> np.ndarray:
        """Log examples (ratios, n) by the law, but for the level."""
        return np.log1p(batch_size / self.batch_size.min() * np.exp(-LOG_RATIOS)[:, None])

    def _alike(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Correlation of deviations at two batch sizes."""
        return np.exp(-np.abs(np.subtract.outer(np.log(a), np.log(b))) / MEMORY)

    def _precision(self, deviation: float, error: np.ndarray) -> np.ndarray:
        covariance = deviation**2 * self._alike(self.batch_size, self.batch_size) + np.diag(error**2)
        return np.linalg.inv(covariance)

    def log_evidence(self) -> np.ndarray:
        """Log likelihood of the measurements, shape (ratios, deviations, S), with the cases' own probabilities.

        The level of flat prior is integrated out.
        """
        table = np.empty((len(LOG_RATIOS), len(self.deviations), len(self.error)))
        for column, deviation in enumerate(self.deviations):
            for case, error in enumerate(self.error):
                precision = self._precision(deviation, error)
                total = precision.sum(axis=0)
                centred = precision - np.outer(total, total) / total.sum()
                table[:, column, case] = -0.5 * ((self.off @ centred) * self.off).sum(axis=1)
                table[:, column, case] += 0.5 * (np.linalg.slogdet(precision)[1] - np.log(total.sum()))
        return table + self.cases

    def weights(self) -> np.ndarray:
        """Posterior probabilities, shape (ratios, deviations, S)."""
        log_weight = self.log_evidence() + self.prior.log_density(LOG_RATIOS)[:, None, None]
        log_weight = log_weight + np.log(list(self.prior.deviations.values()))[:, None]
        weight = np.exp(log_weight - log_weight.max())
        return weight / weight.sum()

    def critical(self, levels: np.ndarray) -> np.ndarray:
        """Quantiles of the critical batch."""
        chance = self.weights().sum(axis=(1, 2))
        middle = np.cumsum(chance) - chance / 2
        return self.batch_size.min() * np.exp(np.interp(levels, middle, LOG_RATIOS))

    def quantiles(self, batch_size: np.ndarray, levels: np.ndarray, *, error: npt.ArrayLike = 0.0) -> np.ndarray:
        """Quantiles (levels, m) of the examples at ``batch_size`` (m,), measured with a standard ``error`` (S,)."""
        from scipy.special import ndtri

        weights, shape = self.weights(), self._shape(batch_size)
        errors = np.broadcast_to(error, len(self.error))
        normal = ndtri((np.arange(LEVELS) + 0.5) / LEVELS)
        columns, chances = [], []
        for (column, case), most in np.ndenumerate(weights.max(axis=0)):
            if most <= NEGLIGIBLE * weights.max():
                continue
            deviation, weight = float(self.deviations[column]), weights[:, column, case]
            kept = weight > NEGLIGIBLE * weights.max()
            precision = self._precision(deviation, self.error[case])
            total = precision.sum(axis=0)
            off = self.off[kept]
            level = off @ total / total.sum()
            across = deviation**2 * self._alike(batch_size, self.batch_size)
            gain = across @ precision
            mean = shape[kept] + level[:, None] + (off - level[:, None]) @ gain.T
            left = 1.0 - gain.sum(axis=1)
            variance = deviation**2 - (gain * across).sum(axis=1) + left**2 / total.sum() + errors[case] ** 2
            spread = np.sqrt(np.maximum(variance, 0.0))
            columns.append(
                (mean[:, :, None] + spread[:, None] * normal).transpose(1, 0, 2).reshape(len(batch_size), -1)
            )
            chances.append(np.repeat(weight[kept], LEVELS) / LEVELS)
        every, chance = np.concatenate(columns, axis=1), np.concatenate(chances)
        order = np.argsort(every, axis=1)
        reached = np.cumsum(chance[order], axis=1) - chance[order] / 2
        ordered = np.take_along_axis(every, order, axis=1)
        return np.exp([np.interp(levels * chance.sum(), c, v) for c, v in zip(reached, ordered, strict=True)]).T
