"""The posterior of a table of measurements: draws of the law's coordinates and of levels.

    log T(size) = level + log law(size) - log law(smallest measured group, same batch)

so that the smallest group, one GPU or four nodes of eight, is the base. It has a level for each of its batch sizes,
straight between them; outside, computation follows power laws, whose exponents weigh the prior and the slopes of the
outermost measured ones by their variances. A measured log step time errs by Student's t, whose
scale joins the measurement's standard error and the law's misfit, which grows with the doublings of nodes to the
largest group, as laws do not hold over many. Given the parameters, levels are normal (Laplace).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from ...curves.prediction import effective_draws
from ...profile.measurements import Measurement
from .law import Sizes, Values, asynchronous, size_of, synchronous
from .prior import PRIOR_NUMBERS, Prior

#: Most and fewest draws, and values of the law that are computed at once: tables with many sizes have fewer draws.
DRAWS, FEWEST_DRAWS, VALUES_AT_ONCE = 1000, 300, 100_000
#: Draws that show on which parameters measurements depend; repetitions of a robust mean.
PROBES, REWEIGHTED = 50, 3
#: Share of draws that a temperature leaves effective, and moves at each: the second where few lineages survive.
TEMPERING = ((0.5, 6), (0.9, 24))
MOST_AGAIN = 30  #: Groups of workers up to which the second takes about a second.
#: Fewest moves after the last temperature; acceptance rate that their length is adapted to.
LAST_MOVES, ACCEPTANCE = 24, 0.25


class Known(NamedTuple):
    """What the law needs of groups (n,) besides its parameters."""

    weights: np.ndarray  # (n, batch sizes): see `ScalingData.weights`
    compute: np.ndarray  # (1, n): relative computation, interpolated linearly between batch sizes
    outside: np.ndarray  # (n, 2): log of the batch size over the largest, the smallest; 0 inside and without batches
    smallest: Sizes  # the same batches on the smallest group


@dataclass(frozen=True, eq=False)
class ScalingData:
    """Measurements, each size once, under a prior."""

    measured: Sequence[Measurement]
    prior: Prior

    @cached_property
    def groups(self) -> list[list[Measurement]]:
        """Measurements of the same size, the smallest first."""
        by_size: dict[tuple[int, ...], list[Measurement]] = {}
        for m in self.measured:
            by_size.setdefault(size_of(m), []).append(m)
        return [by_size[size] for size in sorted(by_size)]

    @cached_property
    def sizes(self) -> Sizes:
        """Sizes of the groups."""
        return Sizes.of(group[0] for group in self.groups)

    @cached_property
    def log_time(self) -> np.ndarray:
        """Mean log step time (n,)."""
        return np.array([np.mean([np.log(m.step_time) for m in group]) for group in self.groups])

    @cached_property
    def noise(self) -> np.ndarray:
        """Standard errors (n,) of `log_time`."""
        errors = [[m.relative_error(PRIOR_NUMBERS["noise"]) for m in group] for group in self.groups]
        return np.array([np.sqrt(np.mean(np.square(e)) / len(e)) for e in errors])  # of a mean: sqrt(sum e^2) / n

    @cached_property
    def batches(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Batch sizes of the smallest group, increasing, their step times, and the relative errors of these."""
        x = self.sizes
        base = (x.placement == x.placement[0]) & (x.server_share == x.server_share[0])
        return x.batch_size[base], np.exp(self.log_time[base]), self.noise[base]

    @cached_property
    def slopes(self) -> np.ndarray:
        """Exponents (2,) at the largest and smallest batch size, their errors by those of times, and errors of times.

        Of lines to the nearest batch size an octave away, or to the furthest; empty with one batch size.
        """
        found = []
        for b, T, s in ([x[::order] for x in self.batches] for order in (-1, 1)):
            if i := int(np.argmax(np.abs(np.log2(b / b[0])) >= 1.0)) or len(b) - 1:
                e = (1 - T[i] / T[0]) / (1 - b[i] / b[0])  # d log T / d log b of the line, at b_0
                found.append((e, T[i] / T[0] / abs(1 - b[i] / b[0]), np.hypot(s[0], s[i])))
        return np.array(found).T

    @property
    def reference(self) -> float:
        """Seconds of the smallest group's fastest step."""
        return float(self.batches[1].min())

    def values(self, u: np.ndarray) -> Values:
        """Parameters (B, 1) of the law; exponents (B, 2) above and below the batch sizes of the smallest group."""
        v = self.prior.values(u, self.reference)
        e = np.repeat(v["batch exponent"], 2, axis=1)
        if len(self.slopes):
            slope, lever, noise = self.slopes
            mean, spread = self.prior.normal("batch exponent", self.reference)
            variance = PRIOR_NUMBERS["bend"] ** 2 + lever**2 * (2.0 * v["misfit"] ** 2 + noise**2)  # of the slope
            gain = spread**2 / (spread**2 + variance)
            e = mean + gain * (slope - mean) + np.sqrt(1.0 - gain) * (e - mean)  # normal, given the slope
        return {**v, "batch exponent": np.maximum(e, 0.0)}  # a larger batch takes no less time

    def weights(self, x: Sizes) -> np.ndarray:
        """Weights (n, batch sizes) that interpolate between the smallest group's batch sizes."""
        return self._known(x).weights

    def compute(self, v: Values, x: Sizes) -> np.ndarray:
        """Relative computation (1 or B, n) of one worker."""
        known = self._known(x)
        return known.compute * np.exp(v["batch exponent"] @ known.outside.T) if known.outside.any() else known.compute

    @cached_property
    def _known_of_sizes(self) -> Known:
        return self._known_of(self.sizes)

    def _known(self, x: Sizes) -> Known:
        return self._known_of_sizes if x is self.sizes else self._known_of(x)

    def _known_of(self, x: Sizes) -> Known:
        sizes, times, _ = self.batches
        weights = np.column_stack([np.interp(x.batch_size, sizes, unit) for unit in np.eye(len(sizes))])
        b, has_batches = x.batch_size, any(m.batch_size for m in self.measured)
        outside = np.log(np.column_stack([np.maximum(b / sizes[-1], 1.0), np.minimum(b / sizes[0], 1.0)]))
        interpolated = np.atleast_2d(weights @ times / self.reference)
        return Known(weights, interpolated, outside if has_batches else 0.0 * outside, x.on(self.groups[0][0]))

    def relative(self, v: Values, x: Sizes) -> np.ndarray:
        """Log step time (B, n) less the levels."""
        law = asynchronous if self.prior.asynchronous else partial(synchronous, strategy=self.prior.kind)
        compute, known = self.compute(v, x), self._known(x)
        base = law(v, known.smallest, compute) * known.compute
        return np.asarray(np.log(law(v, x, compute) * compute / base))  # log law(size) - log law(smallest, same batch)

    def scale(self, v: Values) -> np.ndarray:
        """Scale (B, n) of the errors of `log_time`."""
        doublings = np.log2(self.sizes.nodes.max() / self.sizes.nodes)
        # s^2 = misfit^2 (1 + drift^2 doublings) + noise^2
        misfit = v["misfit"] ** 2 * (1.0 + PRIOR_NUMBERS["row_drift"] ** 2 * doublings)
        return np.asarray(np.sqrt(misfit + self.noise**2))

    def levels(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Likeliest levels (B, batch sizes) under coordinates, their precisions, and log likelihoods (B,) of these."""
        w, f, v = self.weights(self.sizes), PRIOR_NUMBERS["freedom"], self.values(u)
        y, scale = self.log_time - self.relative(v, self.sizes), self.scale(v)
        level, weight = np.zeros((len(u), w.shape[1])), scale**-2
        for _ in range(REWEIGHTED):  # least squares, reweighted by Student's t
            precision = weight @ w
            level = level + ((y - level @ w.T) * weight) @ w / precision
            square = ((y - level @ w.T) / scale) ** 2
            weight = (f + 1.0) / (f + square) / scale**2  # (f + 1) / (f + z^2)
        log_likelihood = -(0.5 * (f + 1.0) * np.log1p(square / f) + np.log(scale)).sum(axis=1)  # Student's t
        return level, precision, log_likelihood - 0.5 * np.log(precision).sum(axis=1)  # Laplace: levels integrated out

    def depends(self, u: np.ndarray) -> np.ndarray:
        """Of each coordinate, whether measurements depend on it; on the law's misfit, where there are several."""
        depends, before = [], self.relative(self.values(u[:PROBES]), self.sizes)
        for i, (name, *_) in enumerate(self.prior.coordinates):
            changed = u[:PROBES].copy()
            changed[:, i] = np.roll(changed[:, i], 1)  # another draw's value of this coordinate alone
            change = self.relative(self.values(changed), self.sizes) - before
            depends.append(np.abs(change).max() > 1e-9 or (name == "misfit" and len(self.groups) > 1))
        return np.array(depends)

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
        """Equally likely coordinates (B, d), levels (B, batch sizes), and how many independent draws they are worth.

        Coordinates on which no measurement depends are the prior's.
        """
        count = int(np.clip(VALUES_AT_ONCE / len(self.groups), FEWEST_DRAWS, DRAWS))
        u, effective = rng.standard_normal((count, len(self.prior.coordinates))), float(count)
        if (depends := self.depends(u)).any():
            coordinates = u.copy()

            def log_likelihood(dependent: np.ndarray) -> np.ndarray:
                coordinates[:, depends] = dependent
                return self.levels(coordinates)[2]

            for kept, moves in TEMPERING:
                posterior, ancestors = temper(log_likelihood, u[:, depends], rng, kept=kept, moves=moves)
                effective = effective_draws(np.bincount(ancestors).astype(float))  # lineages by their descendants
                if effective >= PRIOR_NUMBERS["effective"] or len(self.groups) > MOST_AGAIN:
                    break
            u[:, depends] = posterior
        level, precision, _ = self.levels(u)
        return u, level + rng.standard_normal(level.shape) / np.sqrt(precision), effective


def temper(
    log_likelihood: Callable[[np.ndarray], np.ndarray], u: np.ndarray, rng: np.random.Generator, *, kept: float,
    moves: int,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Draws (B, d) of a posterior from draws u of its standard normal prior, and the ancestor (B,) of each in these.

    Sequential Monte Carlo (P. Del Moral, A. Doucet and A. Jasra, 2006): the likelihood's exponent rises from 0 to 1 in
    steps that leave a share of the effective sample size of the weights; after each, draws are resampled and moved by a
    random walk of their own covariance (Metropolis). Draws of few ancestors have seen few of the posterior's modes (A.
    Lee and N. Whiteley, 2018).
    """
    count, d = u.shape
    ancestors = np.arange(count)

    def effective(step: float) -> float:
        return effective_draws(np.exp(step * (log_l - log_l.max())))

    # 2.38 / sqrt(d): the best length on normal posteriors (Roberts, Gelman and Gilks, 1997)
    log_l, exponent, length = log_likelihood(u), 0.0, 2.38 / np.sqrt(d)
    while exponent < 1.0:
        low, step = 0.0, 1.0 - exponent
        while effective(step) < count * kept and step - low > 1e-3 * step:  # bisection
            middle = (low + step) / 2
            low, step = (middle, step) if effective(middle) > count * kept else (low, middle)
        exponent = min(exponent + step, 1.0) if step < 1.0 - exponent else 1.0
        # systematic resampling by the weights L^step
        cumulative = np.cumsum(np.exp(step * (log_l - log_l.max())))
        pick = np.searchsorted(cumulative, (np.arange(count) + rng.random()) / count * cumulative[-1])
        u, log_l, ancestors = u[pick], log_l[pick], ancestors[pick]
        root = np.linalg.cholesky(np.atleast_2d(np.cov(u.T)) + 1e-8 * np.eye(d))
        for _ in range(moves if exponent < 1.0 else max(LAST_MOVES, 2 * moves)):
            lengths = length * 10.0 ** rng.uniform(-1.5, 0.5, (count, 1))  # short moves too, for narrow modes
            moved = u + lengths * rng.standard_normal(u.shape) @ root.T
            log_moved = log_likelihood(moved)
            # log of L'^exponent N(u') / (L^exponent N(u))
            gain = exponent * (log_moved - log_l) + 0.5 * ((u**2).sum(axis=1) - (moved**2).sum(axis=1))
            accepted = np.log(rng.random(count)) < gain
            u[accepted], log_l[accepted] = moved[accepted], log_moved[accepted]
            length *= np.exp(accepted.mean() - ACCEPTANCE)
    return u, ancestors
