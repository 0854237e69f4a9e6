"""Examples until the target at any batch size, from seeds at a few."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from ..checks import MOST_EXAMPLES, require_count, require_number, require_share
from ..errors import FitError, ModelError
from ..results import Result, rows_of
from .critical_batch import CriticalBatch
from .figures import plot_convergence
from .gradient_noise import NoiseScale
from .prior import ConvergencePrior, convergence_prior

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Relative spreads between the seeds of a job: lognormal, of this median and this spread of the logarithm, wider than
#: MLPerf's benchmarks, which have 2 to 12 % (assumed).
SEED_SPREAD, SEED_FACTOR = 0.08, 1.0
#: Deviates that stand for that normal law.
DEVIATES = np.linspace(-2.5, 2.5, 11)
#: How many seeds the spread of the whole job is worth at each batch size.
ASSUMED_SEEDS = 2
#: Relative spread that stands for none.
NO_SPREAD = 1e-6


@dataclass(frozen=True, eq=False, repr=False)
class Convergence(Result):
    """How many examples a training job needs to reach its target, by batch size.

    Made by `fit_convergence`. Batch sizes are those of a whole step, all workers' together.

    Attributes
    ----------
    batch_size : ndarray of int, shape (n,)
        Measured, increasing.
    seeds : ndarray of int, shape (n,)
        How often each was measured.
    measured : ndarray, shape (n,)
        Mean examples (or epochs: the unit of what was given) until the target.
    seed_spread : ndarray, shape (S, n)
        Relative standard deviation between seeds, in S cases of what few seeds leave open.
    cases : ndarray, shape (S,)
        Logarithms of the cases' probabilities, given how the seeds differ.
    prior : ConvergencePrior
    """

    batch_size: np.ndarray
    seeds: np.ndarray
    measured: np.ndarray
    seed_spread: np.ndarray
    cases: np.ndarray
    prior: ConvergencePrior

    @cached_property
    def _posterior(self) -> CriticalBatch:
        error = self.seed_spread / np.sqrt(self.seeds)
        return CriticalBatch(self.batch_size, np.log(self.measured), error, self.prior, self.cases)

    @property
    def critical_batch(self) -> float:
        """Where examples have doubled and steps are twice the fewest (posterior median)."""
        return float(self._posterior.critical(np.array([0.5]))[0])

    def critical_interval(self, confidence: float = 0.9) -> tuple[float, float]:
        """An interval that holds the critical batch with this probability."""
        low, high = self._posterior.critical(_tails(confidence))
        return float(low), float(high)

    @overload
    def examples(self, batch_size: int) -> float: ...
    @overload
    def examples(self, batch_size: npt.ArrayLike) -> np.ndarray: ...
    def examples(self, batch_size: Any) -> float | np.ndarray:
        """Examples until the target (posterior median), in the unit of what was measured.

        Parameters
        ----------
        batch_size : int, or array of them
            Of a whole step: workers times examples per worker.

        Returns
        -------
        float, or ndarray of the same shape

        Raises
        ------
        ModelError
            When a batch size is no whole number of at least 1.
        """
        sizes = _sizes(batch_size)
        return _as_asked(self._posterior.quantiles(sizes.ravel(), np.array([0.5]))[0], sizes)

    def interval(self, batch_size: Any, confidence: float = 0.9) -> tuple[Any, Any]:
        """Between which examples the mean of as many seeds as were measured lies with this probability.

        Parameters
        ----------
        batch_size : int, or array of them
        confidence : float

        Returns
        -------
        lower, upper : float, or ndarrays of the same shape
        """
        lower, upper = self.quantiles(batch_size, _tails(confidence))
        return lower, upper

    def quantiles(self, batch_size: Any, levels: npt.ArrayLike) -> tuple[Any, ...]:
        """Quantiles of what `interval` is of: for each level, 0 to 1, a float or an ndarray as ``batch_size`` is."""
        sizes = _sizes(batch_size)
        error = np.sqrt(np.mean(self.seed_spread**2, axis=1) / self.seeds.mean())
        found = self._posterior.quantiles(sizes.ravel(), np.asarray(levels, dtype=float), error=error)
        return tuple(_as_asked(values, sizes) for values in found)

    def steps(self, batch_size: Any) -> Any:
        """Steps until the target: examples over the batch size; of no use where epochs were given."""
        return self.examples(batch_size) / np.asarray(batch_size)

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per measured batch size."""
        lower, upper = self.interval(self.batch_size)
        return rows_of({
            "batch_size": self.batch_size, "seeds": self.seeds, "measured": self.measured,
            "fitted": self.examples(self.batch_size), "lower": lower, "upper": upper,
        })  # fmt: skip

    def caption(self) -> str:
        """The critical batch."""
        low, high = self.critical_interval()
        return f"examples until the target; critical batch {self.critical_batch:.3g} ({low:.3g} to {high:.3g}, 90%)"

    def plot(self, *, ax: Axes | None = None, largest: int | None = None) -> Axes:
        """Draw examples against batch size, see `plot_convergence`."""
        return plot_convergence(self, ax=ax, largest=largest)


def fit_convergence(
    measured: Iterable[tuple[int, Sequence[float]]],
    *,
    noise_scale: float | NoiseScale | None = None,
    prior: ConvergencePrior | None = None,
) -> Convergence:
    """Fit how many examples training needs to reach a target, by batch size.

    The law is E = E_min (1 + B / B_crit) (S. McCandlish et al., 2018), with a smooth deviation from it, so that the
    fit comes close to what was measured. Where few batch sizes were measured, the answer rests on what critical
    batches were like on public benchmarks, and its interval is wide.

    Parameters
    ----------
    measured : iterable of (batch_size, examples)
        Batch size of a whole step, and the examples until the target with each seed; epochs will do, if all are.
    noise_scale : float or NoiseScale, optional
        Of the gradients (`noise_scale`, `Profile.noise_scale`); the critical batch is near it, by an order of
        magnitude.
    prior : ConvergencePrior, optional
        That of the package unless given.

    Returns
    -------
    Convergence

    Raises
    ------
    FitError
        When nothing was measured.
    ModelError
        When a batch size is no whole number, or the examples are no positive numbers.

    Examples
    --------
    >>> fitted = fit_convergence([(256, [1.00e6, 1.04e6]), (1024, [1.21e6]), (4096, [1.98e6, 2.02e6])])
    >>> print(f"{fitted.examples(8192):.2e}")
    3.03e+06
    """
    seeds: dict[int, list[float]] = {}
    for pair in measured:
        try:
            size, values = pair
            values = list(values)
        except (TypeError, ValueError):
            raise ModelError(f"fit_convergence: expected (batch_size, [examples, ...]), got {str(pair)[:80]}") from None
        size = require_count(size, "fit_convergence: batch_size", most=MOST_EXAMPLES)
        where = f"fit_convergence: batch size {size}: examples"
        numbers = [require_number(value, where, positive=True, largest=1e30) for value in values]
        if not numbers:
            raise ModelError(f"{where} of at least one seed are needed, got none")
        seeds.setdefault(size, []).extend(numbers)
    if not seeds:
        raise FitError("fit_convergence: at least one batch size must be measured, got none")
    sizes = sorted(seeds)
    count = np.array([len(seeds[size]) for size in sizes])
    mean = np.array([np.mean(seeds[size]) for size in sizes])
    squares = np.array([np.var(seeds[size]) * len(seeds[size]) for size in sizes]) / mean**2
    common = ASSUMED_SEEDS * (SEED_SPREAD * np.exp(SEED_FACTOR * DEVIATES))[:, None] ** 2
    spread = np.sqrt((squares + common) / (count - 1 + ASSUMED_SEEDS))
    # Student's law of the seeds at each batch size, whose spreads are scattered around the job's.
    likely = (1 - count) * np.log(common) - (count - 1 + ASSUMED_SEEDS) * np.log1p(squares / common)
    cases = 0.5 * (likely.sum(axis=1) - DEVIATES**2)
    prior = prior or convergence_prior()
    if noise_scale is not None:
        prior = prior.knowing(noise_scale, sizes[0])
    return Convergence(np.array(sizes), count, mean, spread, cases, prior)


def relative_convergence(batch_size: int, noise_scale: float | NoiseScale) -> Convergence:
    """How many times the examples of ``batch_size`` other batch sizes need, by the noise of the gradients alone.

    Examples
    --------
    >>> law = relative_convergence(32, 1000.0)
    >>> [round(law.examples(size), 1) for size in (32, 256, 2048)]
    [1.0, 1.3, 3.7]
    """
    one = np.array([require_count(batch_size, "relative_convergence: batch_size", most=MOST_EXAMPLES)])
    prior = convergence_prior().knowing(noise_scale, batch_size)
    return Convergence(one, np.array([1]), np.array([1.0]), np.array([[NO_SPREAD]]), np.zeros(1), prior)


def _tails(confidence: float) -> np.ndarray:
    tail = (1.0 - require_share(confidence, "interval: confidence", open_ended=True)) / 2
    return np.array([tail, 1.0 - tail])


def _sizes(batch_size: Any) -> np.ndarray:
    sizes = np.asarray(batch_size)
    for size in sizes.ravel().tolist():
        require_count(size, "batch_size", most=MOST_EXAMPLES)
    return sizes.astype(float)


def _as_asked(values: np.ndarray, sizes: np.ndarray) -> Any:
    return float(values[0]) if sizes.ndim == 0 else values.reshape(sizes.shape)
