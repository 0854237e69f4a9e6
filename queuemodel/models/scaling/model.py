"""The model of a table of measurements: rates or step times by workers, nodes and batch size.

    log T(size) = level + log law(size) - log law(smallest measured group, same batch)

so that the smallest group, one GPU or four nodes of eight, is the base. It has a level for each of its batch sizes,
straight between them; outside, computation follows a power law. A measured log step time errs by Student's t, whose scale
joins the measurement's standard error, the law's misfit and, as laws do not hold over many doublings, a drift with the
square root of the doublings of nodes to the largest group. What measurements leave open is in draws from the posterior
(`queuemodel.models.scaling.posterior`), levels being normal given the others (Laplace); error beyond the measured sizes
drifts in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from ...base.errors import FitError
from ...base.estimates import Parameter
from ...base.results import counted
from ...profile.measurements import Measurement
from .law import Sizes, Values, asynchronous, server_load, synchronous
from .posterior import effective_sample_size, sample
from .prior import NUMBERS, Prior

Strategy = Literal["all-reduce", "sync-ps", "async-ps"]

#: Draws of the posterior, fewer of a table with many sizes: so many values of the law are computed at once.
DRAWS, FEWEST_DRAWS, VALUES_AT_ONCE = 1000, 300, 100_000
#: Draws by which is seen on which parameters measurements depend; repetitions of a robust mean.
PROBES, REWEIGHTED = 50, 4


@dataclass(frozen=True, eq=False, repr=False)
class ScalingModel:
    """A job known by a table of measurements; made by `fit_scaling`.

    Attributes
    ----------
    measured : tuple of Measurement
    strategy : {"all-reduce", "sync-ps", "async-ps"}
    prior : Prior
    base : Measurement
        Of the smallest measured group: what speedup and efficiency relate to.
    coordinates : ndarray, shape (B, d)
        Equally likely draws of the prior's standard normal coordinates.
    levels : ndarray, shape (B, batch sizes)
        Of each draw, by batch size of the smallest group.
    """

    measured: tuple[Measurement, ...]
    strategy: Strategy
    prior: Prior
    seed: int = 0
    coordinates: np.ndarray = field(init=False)
    levels: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        draws = int(np.clip(VALUES_AT_ONCE / len(self._table[0].workers), FEWEST_DRAWS, DRAWS))
        u = rng.standard_normal((draws, len(self.prior.coordinates)))
        shown = self._depends(u)
        if shown.any():

            def log_likelihood(some: np.ndarray) -> np.ndarray:
                every = u.copy()
                every[:, shown] = some
                return self._conditional(every)[2]

            u[:, shown] = sample(log_likelihood, int(shown.sum()), draws=draws, rng=rng)
        level, precision, _ = self._conditional(u)
        object.__setattr__(self, "coordinates", u)
        object.__setattr__(self, "levels", level + rng.standard_normal(level.shape) / np.sqrt(precision))

    @cached_property
    def base(self) -> Measurement:
        return min(self.measured, key=_group)

    @property
    def largest(self) -> int:
        """Workers of the largest measured group."""
        return max(m.workers for m in self.measured)

    @property
    def effective_draws(self) -> float:
        """Effective sample size of the draws: those that resampling left equal count as one."""
        _, copies = np.unique(self.coordinates, axis=0, return_counts=True)
        return effective_sample_size(copies.astype(float)) if len(copies) > 1 else 1.0

    def draws(self, sizes: Sizes) -> np.ndarray:
        """Log steps per second of all workers, shape (n, B)."""
        return (np.log(sizes.workers) - self._log_time(sizes)).T

    def error(self, sizes: Sizes, rng: np.random.Generator) -> np.ndarray:
        """Standard deviation (n, B) of one measurement's logarithm from each draw; its size drawn, hence Student's t."""
        doublings = np.log2(np.maximum(np.maximum(sizes.workers / self.largest, self.base.workers / sizes.workers), 1.0))
        _, misfit = self._values(self.coordinates)
        drift = (NUMBERS["drift"] * misfit) ** 2 * doublings[:, None]
        size = np.sqrt(NUMBERS["freedom"] / rng.chisquare(NUMBERS["freedom"], len(misfit)))
        return np.asarray(np.sqrt(misfit**2 + NUMBERS["noise"] ** 2 + drift) * size)

    def point(self, values: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """Of draws of any logarithm (n, B), the value (n,) that goes with the point estimate of the throughput.

        The median; of asynchronous workers under probabilities divided by the throughput, where the expected error relative
        to what comes is least (Gneiting, "Making and evaluating point forecasts", 2011).
        """
        middle = np.median(draws, axis=1, keepdims=True)
        weight = np.exp(-np.maximum(draws - middle, -NUMBERS["floor"])) if self.prior.asynchronous else 1.0 + 0.0 * draws
        order = np.argsort(values, axis=1)
        reached = np.cumsum(np.take_along_axis(weight, order, axis=1), axis=1)
        ordered = np.take_along_axis(values, order, axis=1)
        return np.array([np.interp(0.5 * r[-1], r, own) for r, own in zip(reached, ordered, strict=True)])

    def bounds(self, sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
        """Asymptotic bounds (n, B) of the draws of asynchronous workers: no work waits for other, and all of it."""
        v, _ = self._values(self.coordinates)
        between, compute = self._compute(v, sizes)
        at = self.levels @ between.T + np.log(compute / asynchronous(v, sizes.at(self.base), compute))
        load, log_n = server_load(v, sizes), np.log(sizes.workers)
        return (log_n - at - np.log(compute + load)).T, (log_n - at - np.log(np.maximum(compute, load))).T

    @cached_property
    def saturation_workers(self) -> np.ndarray:
        """N* (B,) of asynchronous workers, where computation and the servers' load are equal."""
        v, _ = self._values(self.coordinates)
        return np.asarray((v["demand"] ** (-1.0 / v["growth"]))[:, 0])

    @cached_property
    def outliers(self) -> tuple[Measurement, ...]:
        """Measurements far from most draws, unless they are half of all groups."""
        x, log_time, noise = self._table
        off = np.abs(log_time - self._log_time(x))
        far = (off > NUMBERS["outlier"] * self._scale(self.coordinates, noise)).mean(axis=0) > 0.5
        groups = {_group(m) for m, one in zip(self._unique, far, strict=True) if one}
        few = 2 * len(groups) < len({_group(m) for m in self.measured})
        return tuple(m for m in self.measured if few and _size(m) in {_size(u) for u in np.array(self._unique)[far]})

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What was fitted, with its uncertainty; measured where a measurement depends on it and narrows it."""
        v, _ = self._values(self.coordinates)
        known = self._identified
        step = np.exp(self.levels[:, 0])
        group = f"{counted(self.base.workers, 'worker')} on {counted(self.base.nodes or self.base.workers, 'node')}"
        found = [Parameter("step", float(np.median(step)), "s", standard_error=float(step.std()), note=f"of {group}")]
        for (name, _, unit, note), measured in zip(self.prior.coordinates, known, strict=True):
            values = v[name][:, 0] * (self._reference if unit == "step" else 1.0)
            low, middle, high = np.quantile(values, [0.15866, 0.5, 0.84134])
            found.append(
                Parameter(
                    name, float(middle), "s" if unit else "", standard_error=float((high - low) / 2),
                    origin="measured" if measured else "assumed", identified=measured, note=note,
                )
            )  # fmt: skip
        return tuple(found)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the measurements leave open, or do not fit, a clause each."""
        found = [
            f"{m.steps_per_second:.4g} steps/s with {counted(m.workers, 'worker')} is an outlier" for m in self.outliers
        ]
        nodes = {m.nodes or m.workers for m in self.measured}
        if self.prior.asynchronous:
            if not self._identified[0]:
                basis = "the parameters' size" if self.prior.bytes else "published jobs"
                found.append(f"no saturation up to {counted(self.largest, 'worker')}: it is estimated from {basis}")
            return tuple(found)
        if len(nodes) == 1:
            found.append("the cost of further nodes is estimated from published jobs; measure two sizes")
        elif max(nodes) <= 2:
            found.append("growth beyond two nodes is estimated from published jobs; measure a third")
        names = [one.name for one in self.prior.coordinates]
        fast = (self.coordinates[:, names.index("latency")].mean() > NUMBERS["surprise"]) or bool(self._unfitted)
        return (*found, "rounds grow faster than in published jobs") if fast else tuple(found)

    @property
    def _unfitted(self) -> bool:
        x, log_time, noise = self._table
        off = np.abs(log_time - self._log_time(x))
        return bool(((off > NUMBERS["outlier"] * self._scale(self.coordinates, noise)).mean(axis=0) > 0.5).any()) and not self.outliers

    @cached_property
    def _identified(self) -> list[bool]:
        """Of each parameter, whether a measurement depends on it, and narrows it."""
        narrowed = self.coordinates.std(axis=0) < NUMBERS["narrowed"]
        return [bool(one) for one in self._depends(self.coordinates) & narrowed]

    def _depends(self, u: np.ndarray) -> np.ndarray:
        """Of each coordinate, whether a measurement's law or error depends on it."""
        u, x = u[:PROBES], self._table[0]
        found = []
        for i in range(u.shape[1]):
            other = u.copy()
            other[:, i] = np.roll(u[:, i], 1)
            found.append(np.abs(self._relative(other, x) - self._relative(u, x)).max() > 1e-9)
        names = [one.name for one in self.prior.coordinates]
        return np.array(found) | np.array([name == "misfit" and len(x.workers) > 1 for name in names])

    @cached_property
    def _unique(self) -> list[Measurement]:
        return list({_size(m): m for m in self.measured}.values())

    @cached_property
    def _table(self) -> tuple[Sizes, np.ndarray, np.ndarray]:
        """Measured sizes, each once, their mean log step times and standard errors."""
        alike = [[m for m in self.measured if _size(m) == _size(u)] for u in self._unique]
        log_time = np.array([np.mean([np.log(m.step_time) for m in own]) for own in alike])
        noise = [np.sqrt(np.mean([m.relative_error(NUMBERS["noise"]) ** 2 for m in own]) / len(own)) for own in alike]
        return Sizes.of(self._unique), log_time, np.array(noise)

    @cached_property
    def _batches(self) -> tuple[np.ndarray, np.ndarray]:
        """Batch sizes of the smallest group, increasing, and their log step times as measured."""
        x, log_time, _ = self._table
        found = sorted((b, t) for m, b, t in zip(self._unique, x.batch_size, log_time, strict=True) if _group(m) == _group(self.base))
        return np.array(found).T[0], np.array(found).T[1]

    @property
    def _reference(self) -> float:
        return float(np.exp(self._batches[1].min()))

    def _values(self, u: np.ndarray) -> tuple[Values, np.ndarray]:
        """Parameters (B, 1) of the law, and its misfit (B,)."""
        v = self.prior.values(u, self._reference)
        return v, v["misfit"][:, 0]

    def _compute(self, v: Values, x: Sizes) -> tuple[np.ndarray, np.ndarray]:
        """Weights (n, batch sizes) of the levels, and relative computation (1 or B, n) with these batches."""
        sizes, logs = self._batches
        between = np.column_stack([np.interp(x.batch_size, sizes, unit) for unit in np.eye(len(sizes))])
        compute = np.atleast_2d(between @ np.exp(logs) / self._reference)
        outside = np.log(x.batch_size / np.clip(x.batch_size, sizes[0], sizes[-1]))
        if outside.any() and any(m.batch_size for m in self.measured):
            compute = compute * np.exp(v["batch exponent"] * outside)
        return between, compute

    def _relative(self, u: np.ndarray, x: Sizes) -> np.ndarray:
        """Log step time (B, n) but for the levels."""
        law, v = asynchronous if self.prior.asynchronous else synchronous, self._values(u)[0]
        compute = self._compute(v, x)[1]
        batch = np.log(compute) - np.log(self._compute(v, x)[0] @ np.exp(self._batches[1]) / self._reference)
        return np.asarray(np.log(law(v, x, compute) / law(v, x.at(self.base), compute)) + batch)

    def _log_time(self, x: Sizes) -> np.ndarray:
        """Log step time (B, n) of the draws."""
        between, _ = self._compute(self._values(self.coordinates)[0], x)
        return np.asarray(self.levels @ between.T + self._relative(self.coordinates, x))

    def _scale(self, u: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Scale (B, n) of the errors of measured log step times."""
        x = self._table[0]
        drift = NUMBERS["row_drift"] ** 2 * np.log2(x.nodes.max() / x.nodes)
        return np.asarray(np.sqrt(self._values(u)[1][:, None] ** 2 + noise**2 + drift))

    def _conditional(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Likeliest levels (B, batch sizes) under coordinates, their precisions, and log likelihoods (B,) without them."""
        x, log_time, noise = self._table
        between, _ = self._compute(self._values(u[:1])[0], x)
        off, scale, freedom = log_time - self._relative(u, x), self._scale(u, noise), NUMBERS["freedom"]
        level, weight = np.zeros((len(u), between.shape[1])), scale**-2
        for _ in range(REWEIGHTED):  # least squares, reweighted by Student's t
            precision = weight @ between + 1e-12
            level = level + ((off - level @ between.T) * weight) @ between / precision
            z = (off - level @ between.T) / scale
            weight = (freedom + 1.0) / (freedom + z * z) / scale**2
        log_l = (-0.5 * (freedom + 1.0) * np.log1p(z * z / freedom) - np.log(scale)).sum(axis=1)
        return level, precision, log_l - 0.5 * np.log(precision).sum(axis=1)


def _group(m: Measurement) -> tuple[int, int, int]:
    return m.workers, m.nodes or m.workers, m.fullest_node


def _size(m: Measurement) -> tuple[int, ...]:
    return (*_group(m), m.batch_size or 1, m.parameter_servers)


def fit_scaling(
    measured: Iterable[Measurement],
    *,
    strategy: Strategy,
    sparse_gradients: bool = False,
    parameter_bytes: float | None = None,
    link: float | None = None,
    prior: Prior | None = None,
    seed: int = 0,
) -> ScalingModel:
    """Fit how a job's rate depends on workers, nodes and batch size.

    Parameters
    ----------
    measured : iterable of Measurement
        Of one group or more, whatever its size.
    strategy : {"all-reduce", "sync-ps", "async-ps"}
    sparse_gradients : bool
        Of a synchronous job: most parameters are embeddings.
    parameter_bytes, link : float, optional
        Bytes of the parameters, and bytes per second of each asynchronous server's link.
    prior : Prior, optional
        In place of the one learnt from all published jobs.
    seed : int

    Raises
    ------
    FitError
        When nothing was measured.
    """
    rows: Sequence[Measurement] = tuple(measured)
    if not rows:
        raise FitError("fit: at least one measurement is needed, got none")
    if prior is None:
        free = strategy == "async-ps"
        kind = "sparse gradients" if sparse_gradients and not free else strategy
        prior = Prior.of(kind, **({"bytes": parameter_bytes, "link": link} if free else {}))  # type: ignore[arg-type]
    return ScalingModel(tuple(rows), strategy, prior, seed)
