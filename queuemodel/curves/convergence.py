"""Examples until the target by batch size: E(B) = E_min (1 + B / B_crit) (McCandlish et al., 2018)."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.checks import MOST_EXAMPLES, require_count, require_number
from ..base.drawing import MODEL, PROFILED, band, finish_axes, mark_at, measured_points, new_axes
from ..base.errors import FitError, ModelError
from ..base.files import constants, read_rows
from ..base.results import Result, rows_of
from ..profile.records import NoiseScale, tails

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LAW_DRAWS = 10_000
_NUMBERS = constants(__package__)["convergence"]
#: Logarithms of B_crit in smallest measured batches, and their prior's mean and standard deviation.
LOG_RATIOS, CENTRE, SPREAD = np.linspace(-3.0, 9.0, 241), _NUMBERS["centre"], _NUMBERS["spread"]
#: Relative standard deviations of what the law misses at a batch size, equally likely: each has its own tuning.
DEVIATIONS = np.array([0.02, 0.05, 0.1, 0.2])
SEED_SPREAD, ASSUMED_SEEDS = _NUMBERS["seed_spread"], _NUMBERS["assumed_seeds"]
NOISE_SCALE_SPREAD = _NUMBERS["noise_scale_spread"]


@dataclass(frozen=True, eq=False, repr=False)
class Convergence(Result):
    """How many examples a training job needs to reach its target, by batch size (of a whole step, all workers').

    ``measured`` means of so many ``seeds`` at each ``batch_size``, shape (n,); draws of ``level``, log E_min, of the
    ``critical`` batch and of the relative ``error`` of a mean over as many seeds at one batch size, shape (draws,).
    """

    batch_size: np.ndarray
    seeds: np.ndarray
    measured: np.ndarray
    level: np.ndarray
    critical: np.ndarray
    error: np.ndarray

    @property
    def critical_batch(self) -> float:
        """Where examples have doubled and steps are twice the fewest (posterior median)."""
        return float(np.median(self.critical))

    def critical_interval(self, confidence: float = 0.9) -> tuple[float, float]:
        """An interval that holds the critical batch with this probability."""
        low, high = np.quantile(self.critical, tails(confidence)).tolist()
        return low, high

    def examples(self, batch_size: Any) -> Any:
        """Examples until the target (posterior median) in the measurements' unit, of the shape of the sizes."""
        return np.median(self._drawn(batch_size), axis=-1)[()]

    def interval(self, batch_size: Any, confidence: float = 0.9) -> tuple[Any, Any]:
        """Interval of the examples until the target, for the mean of the measured number of seeds."""
        lower, upper = self.quantiles(batch_size, tails(confidence))
        return lower, upper

    def quantiles(self, batch_size: Any, levels: Sequence[float] | np.ndarray) -> Any:
        """Quantiles of the examples of `interval`: for each level, 0 to 1, of the shape of the batch sizes."""
        return np.quantile(self._drawn(batch_size) * np.exp(self.error), levels, axis=-1)

    def _drawn(self, batch_size: Any) -> np.ndarray:
        sizes = np.asarray(batch_size)
        for size in sizes.ravel().tolist():
            require_count(size, "batch_size", most=MOST_EXAMPLES)
        return np.exp(self.level) * (1 + sizes[..., None] / self.critical)

    def steps(self, batch_size: Any) -> Any:
        """Steps until the target: examples over the batch size; meaningless where epochs were measured."""
        return self.examples(batch_size) / np.asarray(batch_size)

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per measured batch size."""
        lower, upper = self.interval(self.batch_size)
        columns = {"batch_size": self.batch_size, "seeds": self.seeds, "measured": self.measured}
        return rows_of(columns | {"fitted": self.examples(self.batch_size), "lower": lower, "upper": upper})

    def caption(self) -> str:
        low, high = self.critical_interval()
        return f"examples until the target; critical batch {self.critical_batch:.3g} ({low:.3g} to {high:.3g}, 90 %)"

    def plot(self, *, ax: Axes | None = None, largest: int | None = None) -> Axes:
        """Draw the measured means and the fit with its 90 % band, up to four times the measured batches or ``largest``.

        The measured range is shaded; the critical batch is marked where it lies on the axes.
        """
        ax = ax or new_axes()
        first, last = self.batch_size[[0, -1]]
        x = np.unique(np.geomspace(max(first / 2, 1), largest or 4 * last, 80).astype(int))
        lower, upper = self.interval(x)
        ax.set_xscale("log", base=2)
        ax.plot(x, self.examples(x), color=MODEL, linewidth=1.8, label="predicted")
        band(ax, x, lower, upper, MODEL, "90 % interval")
        ax.axvspan(first, last, color=PROFILED, linewidth=0, zorder=0, label="measured range")
        measured_points(ax, list(zip(self.batch_size.tolist(), self.measured.tolist(), strict=True)))
        ax.set_ylim(0, 1.1 * max(float(upper.max()), float(self.measured.max())))
        ax.set(xlabel="batch size of a step (examples)", ylabel="training until the target (examples)")
        finish_axes(ax, legend="right")
        mark_at(ax, self.critical_batch, "critical batch")
        return ax


def fit_convergence(
    measured: Iterable[tuple[int, Sequence[float]]], *, noise_scale: float | NoiseScale | None = None
) -> Convergence:
    """Fit how many examples training needs to reach a target, by batch size.

    Weighted least squares on log E over a grid of critical batches, with a prior from public benchmarks: where few
    batch sizes were measured, it dominates and the interval is wide.

    Parameters
    ----------
    measured : iterable of (batch_size, examples)
        Batch size of a whole step, and the examples until the target with each seed; epochs will do, if all are.
    noise_scale : float or NoiseScale, optional
        Of the gradients (`noise_scale`, `Profile.noise_scale`); the critical batch is near it, by an order of
        magnitude.

    Examples
    --------
    >>> fitted = fit_convergence([(256, [1.00e6, 1.04e6]), (1024, [1.21e6]), (4096, [1.98e6, 2.02e6])])
    >>> print(f"{fitted.examples(8192) / 1e6:.0f} million")
    3 million
    """
    seeds: dict[int, list[float]] = defaultdict(list)
    for pair in measured:
        try:
            size, values = pair
            values = list(values)
        except (TypeError, ValueError):
            raise ModelError(f"fit_convergence: expected (batch_size, [examples, ...]), got {str(pair)[:80]}") from None
        size = require_count(size, "fit_convergence: batch_size", most=MOST_EXAMPLES)
        where = f"fit_convergence: batch size {size}: examples"
        if not values:
            raise ModelError(f"{where} of at least one seed are needed, got none")
        seeds[size] += [require_number(value, where, positive=True, largest=1e30) for value in values]
    if not seeds:
        raise FitError("fit_convergence: at least one batch size must be measured, got none")
    sizes = np.array(sorted(seeds))
    count = np.array([len(seeds[size]) for size in sizes])
    mean = np.array([np.mean(seeds[size]) for size in sizes])
    squares = sum(np.sum((np.divide(seeds[size], m) - 1) ** 2) for size, m in zip(sizes, mean, strict=True))
    spread = np.sqrt((squares + ASSUMED_SEEDS * SEED_SPREAD**2) / (np.sum(count - 1) + ASSUMED_SEEDS))
    log_chance = -0.5 * ((LOG_RATIOS - CENTRE) / SPREAD) ** 2
    if noise_scale is not None:
        if not isinstance(noise_scale, NoiseScale):
            scale = require_number(noise_scale, "noise_scale", unit="examples", positive=True, largest=MOST_EXAMPLES)
            noise_scale = NoiseScale(scale, np.array([scale]))
        seen = np.log(np.clip(noise_scale.draws / sizes[0], *np.exp(LOG_RATIOS[[0, -1]])))
        log_chance -= 0.5 * ((LOG_RATIOS - seen.mean()) / np.hypot(NOISE_SCALE_SPREAD, seen.std())) ** 2
    # Least squares for the level at each B_crit and deviation; its prior is flat.
    off = np.log(mean) - np.log1p(sizes / sizes[0] * np.exp(-LOG_RATIOS)[:, None])  # (ratios, n)
    weight = 1 / (spread**2 / count + DEVIATIONS[:, None] ** 2)  # (deviations, n)
    total = weight.sum(axis=1)
    level = off @ weight.T / total  # (ratios, deviations)
    table = log_chance[:, None] - 0.5 * ((off[:, None] - level[..., None]) ** 2 * weight).sum(axis=2)
    table += 0.5 * (np.log(weight).sum(axis=1) - np.log(total))
    chance = np.cumsum(np.exp(table - table.max()))
    at = np.searchsorted(chance / chance[-1], (np.arange(LAW_DRAWS) + 0.5) / LAW_DRAWS)
    ratio, column = np.unravel_index(at, table.shape)
    rng = np.random.default_rng(0)
    drawn = level[ratio, column] + rng.standard_normal(LAW_DRAWS) / np.sqrt(total[column])
    error = rng.standard_normal(LAW_DRAWS) * np.hypot(DEVIATIONS[column], spread / np.sqrt(count.mean()))
    return Convergence(sizes, count, mean, drawn, sizes[0] * np.exp(LOG_RATIOS[ratio]), error)


def relative_convergence(batch_size: int, noise_scale: float | NoiseScale) -> Convergence:
    """Examples relative to those of one batch size, from the gradient noise scale only."""
    fitted = fit_convergence([(batch_size, [1.0])], noise_scale=noise_scale)
    return replace(fitted, level=np.log(batch_size) - np.log1p(batch_size / fitted.critical), error=np.zeros(LAW_DRAWS))


def read_convergence(path: str | os.PathLike[str]) -> list[tuple[int, list[float]]]:
    """Read examples until the target, a row for each seed, by ``batch_size`` of a whole step; for `fit_convergence`."""
    seeds = defaultdict(list)
    for row in read_rows(path, required=("batch_size", "examples"), what="measurements of convergence"):
        size = row.count("batch_size", most=MOST_EXAMPLES)
        seeds[size].append(row.number("examples", positive=True, largest=MOST_EXAMPLES))
    return sorted(seeds.items())
