"""Predicted throughput with everything that is uncertain of it, weighed by what was measured, and what to measure next.

At a *place*, a number of workers on some machines, the logarithm of throughput is that of one of M draws of what the
data leave open, kinds of network among them, plus the model's own error, plus the noise of measuring for a minute:

    log x_p = mean[p, m] + (spread @ u)_p + size e_p + scale noise_p v_p,      u, v ~ N(0, I),   e ~ N(0, C)

The size of the model's error is known from few networks only, so that errors follow Student's t, and the noise may be
larger than assumed. For each draw, size and scale conditioning is exact (Gaussian processes of known covariance, as
Kennedy and O'Hagan, 2001): all measurements weigh it together by likelihood, so that their order does not matter, and
move it by the correlation of its errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from ..base.errors import ModelError
from ..base.files import constants
from ..base.results import Result, counted, percent
from .goals import named

_NUMBERS = constants(__package__)["prediction"]
OTHER_MACHINES, FREEDOM, OUTLIER = (_NUMBERS[name] for name in ("other_machines", "freedom", "outlier"))
CHEAP_NODES, MIN_NARROWING, ENOUGH = (_NUMBERS[name] for name in ("cheap_nodes", "min_narrowing", "enough"))
MOST_CANDIDATES = 12
#: Sizes of the models' errors relative to the learnt ones; noise over what is assumed of it, and how likely that is.
SIZES = 2.0 ** np.arange(-1.0, 4.1, 0.5)
NOISE_SCALES = {1.0: 0.985, 2.0: 0.01, 4.0: 0.004, 10.0: 0.001}
#: Standard error of the logarithm that an outlier among this many measurements or more counts with.
OUTLIER_ERROR, MIN_WITH_OUTLIERS = 1.0, 3
#: Samples that quantiles are taken of; draws that at least count after conditioning, or else likelihoods are flattened.
SAMPLES, MIN_EFFECTIVE_DRAWS = 4000, 100
#: Fields of a prediction by place.
PLACED = ("workers", "mean", "error", "noise", "spread", "ceiling", "ceiling_error")
GOLDEN = (math.sqrt(5.0) - 1.0) / 2
#: Student's quantile (4 degrees of freedom) over the normal one at 95 %: 90 % intervals are those of the learnt errors.
STUDENT_RATIO = 2.131847 / 1.644854
#: Curves, whose captions call these functions and so import them.
ThroughputCurve = Any


@dataclass(frozen=True, eq=False, kw_only=True)
class Prediction:
    """Log throughput (steps of all workers per second) at P places."""

    workers: np.ndarray  # (P,)
    mean: np.ndarray  # (P, M): Of each draw
    weights: np.ndarray = field(default_factory=lambda: np.ones(1))  # (M,): How likely each draw is; they add up to 1
    kind: np.ndarray = field(default_factory=lambda: np.zeros(1, int))  # (M,): Number of its kind of network
    error: np.ndarray  # (P, 1) or (P, M): Relative standard error of the model
    noise: np.ndarray  # (P,): Relative standard error of one measurement
    spread: np.ndarray  # (P, B): Effects of B independent standard normal variables that the fit leaves open
    correlation: float = 1.0  # Of the model's errors at two numbers of workers, one twice the other
    machines: np.ndarray = field(default_factory=lambda: np.zeros(1, int))  # (P,): 0 are those asked for
    ceiling: np.ndarray = field(default_factory=lambda: np.array(math.inf))  # (P,): log throughput is at most this,
    ceiling_error: np.ndarray = field(default_factory=lambda: np.array(0.0))  # with this standard error

    @classmethod
    def drawn(
        cls, workers: np.ndarray, *logs: np.ndarray, error: np.ndarray | float = 0.0, noise: np.ndarray | float = 0.0,
        weights: Sequence[float] = (1.0,), **more: Any,
    ) -> Prediction:  # fmt: skip
        """Of draws (P, B) of log throughput under each kind of network, whose probabilities are the weights.

        ``error`` is (P,), or (P, M) of each draw.
        """
        draws, error = [one.shape[1] for one in logs], np.asarray(error)
        return cls(
            workers=workers,
            mean=np.concatenate(logs, axis=1),
            weights=np.repeat(np.divide(weights, draws), draws),
            kind=np.repeat(np.arange(len(draws)), draws),
            error=error if error.ndim == 2 else np.broadcast_to(error, workers.shape)[:, None],
            noise=np.broadcast_to(noise, workers.shape),
            **{"spread": np.zeros((len(workers), 1))} | more,
        )

    def at(self, places: np.ndarray) -> Prediction:
        """Of some places only."""
        rows: dict[str, Any] = {
            name: np.broadcast_to(value, (len(self.workers), *value.shape[1:]))[places]
            for name in ("machines", *PLACED) for value in [getattr(self, name)]
        }  # fmt: skip
        return replace(self, **rows)

    def joined(self, other: Prediction) -> Prediction:
        """With the places of another one, of the same kinds of network on other machines."""
        here, there = (one.at(np.arange(len(one.workers))) for one in (self, other))
        rows: dict[str, Any] = {n: np.concatenate([getattr(here, n), getattr(there, n)]) for n in PLACED}
        machines = np.concatenate([here.machines, there.machines + here.machines.max() + 1])
        return replace(here, machines=machines, **rows)

    @property
    def draws(self) -> tuple[int, ...]:
        """How many there are of everything that is drawn: equal where two predictions have common draws."""
        return self.mean.shape[1], self.error.shape[1], self.spread.shape[1]

    def over(self, at: np.ndarray, to: np.ndarray) -> Prediction:
        """Log throughput at some places less that at others, of as many workers each, without noise of measuring.

        What is drawn, and effects, are common to both; errors are as correlated as those on other machines (after
        conditioning approximate: the remaining ones are taken as correlated so, too).
        """
        one, other = self.at(at), self.at(to)
        common = np.where(one.machines == other.machines, 1.0, OTHER_MACHINES)[:, None] * one.error * other.error
        return replace(
            one,
            mean=one.mean - other.mean,
            error=np.sqrt(np.maximum(one.error**2 + other.error**2 - 2 * common, 0.0)),
            spread=one.spread - other.spread,
            noise=np.zeros(len(at)),
            ceiling=np.full(len(at), math.inf),
        )

    def interval(self, confidence: float) -> np.ndarray:
        """The median and the ends of the interval of one measurement, steps per second, shape (3, P)."""
        tail = (1.0 - confidence) / 2
        shares = (0.5, tail, 1.0 - tail)
        scores = np.array([NormalDist().inv_cdf(share) for share in shares])
        if self.mean.shape[1] == 1:
            ends = self.mean[:, 0] + scores[:, None] * np.sqrt(self._variance[:, 0])
        else:  # draws and errors evenly on the plane of their probabilities (a lattice by the golden ratio)
            pick = self._evenly(SAMPLES)
            z = np.array([NormalDist().inv_cdf((i + 0.5) * GOLDEN % 1.0) for i in range(SAMPLES)])
            ends = np.quantile(self.mean[:, pick] + np.sqrt(self._variance[:, pick]) * z, shares, axis=-1)
        return np.exp(np.minimum(ends, self.ceiling + scores[2] * self.ceiling_error))

    def sampled(self, count: int, *, seed: int = 0) -> np.ndarray:
        """Draws (P, count) of log throughput by what the fit leaves open, without the model's own error."""
        open_ends = np.random.default_rng(seed).standard_normal((self.spread.shape[1], count))
        return np.asarray(self.mean[:, self._evenly(count)] + self.spread @ open_ends)

    def _evenly(self, count: int) -> np.ndarray:
        """So many draws, each as often as it is likely (systematic resampling)."""
        reached = np.cumsum(self.weights)
        return np.searchsorted(reached, (np.arange(count) + 0.5) / count * reached[-1])

    def condition(self, at: Sequence[int], log_x: np.ndarray, noise: np.ndarray) -> tuple[Prediction, np.ndarray]:
        """The posterior, given log throughputs (n,) measured at some places, and which of these are outliers.

        An outlier is unlikely under the prior predictive and the other measurements; of three and more it hardly
        counts. ``noise`` (n,) are the relative standard errors of measuring.
        """
        wrong = []
        for i, place in enumerate(at):
            others = [j for j in range(len(at)) if j != i]
            rest = self._given([at[j] for j in others], log_x[others], noise[others])
            deviation = np.hypot(np.sqrt(rest._variance[place]), noise[i])
            z = (log_x[i] - rest.mean[place]) / np.maximum(deviation, 1e-12)
            chance = float(np.array([math.erfc(-x / math.sqrt(2.0)) / 2 for x in z]) @ rest.weights)
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
        likeness = self._likeness(at)
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
        while effective_draws(weights.sum(axis=0)) < min(MIN_EFFECTIVE_DRAWS, effective_draws(self.weights) / 4):
            evidence = 0.8 * evidence  # few draws left: wider, never narrower
            weights = np.outer(prior, self.weights) * np.exp(evidence - evidence.max())
        before = square[..., 0] * error**2 + (self.spread**2).sum(axis=1)
        variance = np.maximum(before - (gain * K).sum(axis=-2), 0.0) + (scales[:, None, None] * self.noise) ** 2
        moved = (self.mean.T + (gain * off).sum(axis=-2)).reshape(-1, P).T
        found = replace(
            self,
            mean=moved,
            error=np.sqrt(variance).reshape(-1, P).T,
            weights=(weights / weights.sum()).ravel(),
            kind=np.tile(self.kind, len(sizes)),
            noise=np.zeros(P),
            spread=np.zeros((P, 1)),
        )
        pick = found._evenly(SAMPLES)
        equal = np.full(SAMPLES, 1.0 / SAMPLES)
        return replace(found, mean=moved[:, pick], error=found.error[:, pick], kind=found.kind[pick], weights=equal)

    def _likeness(self, at: Sequence[int]) -> np.ndarray:
        """Correlation (n, P) of the model's errors at some places with those everywhere."""
        octaves, machines = np.log2(self.workers), np.broadcast_to(self.machines, len(self.workers))
        likeness = self.correlation ** np.abs(octaves[at, None] - octaves)
        return np.asarray(likeness * np.where(machines[at, None] == machines, 1.0, OTHER_MACHINES))

    def expected_deviation(self, place: int, noise: np.ndarray | float) -> tuple[float, np.ndarray]:
        """The standard deviation of log throughput at a place, and what is left of it after a measurement anywhere.

        The second (P,) is that of the best linear estimate from one measurement with this relative error (P,) at each
        place: exact where draws and errors are normal, else an upper bound of the expected variance.
        """
        error, off = np.broadcast_to(self.error, self.mean.shape), self.mean - (self.mean @ self.weights)[:, None]
        likeness = self._likeness([place])[0]

        def covariance(p: int | slice, like: np.ndarray | float) -> np.ndarray:
            drawn = error[p] * error * like + off[p] * off
            return np.asarray(drawn @ self.weights + (self.spread[p] * self.spread).sum(axis=1))

        variance, shared = covariance(slice(None), 1.0), covariance(place, likeness[:, None])
        before = variance[place] + self.noise[place] ** 2
        return math.sqrt(before), np.sqrt(np.maximum(before - shared**2 / (variance + np.square(noise)), 0.0))

    def kinds(self, count: int) -> np.ndarray:
        """Probability of each of so many kinds of network, before or after measurements, shape (count,)."""
        return np.bincount(self.kind, self.weights, minlength=count)


def effective_draws(weights: np.ndarray) -> float:
    """How many equally likely draws these weights are worth (Kish, 1965)."""
    return float(weights.sum() ** 2 / (weights**2).sum())


def size_weights() -> np.ndarray:
    """How likely each of SIZES is, when the mean of `FREEDOM` squared errors was 1."""
    logs = -FREEDOM * (np.log(SIZES) + 0.5 / SIZES**2)  # density of the logarithm: inverse chi-square
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


@dataclass(frozen=True, repr=False)
class NextMeasurement(Result):
    """Which number of workers to measure next, and why."""

    workers: int | None  #: None where no cheap run is more informative than what was measured.
    reason: str
    nodes: int | None = None  #: Where workers are GPUs of whole nodes.

    def to_rows(self) -> list[dict[str, Any]]:
        nodes = {} if self.nodes is None else {"nodes": self.nodes}
        return [{"workers": self.workers, **nodes, "reason": self.reason}]

    @property
    def run(self) -> str:
        """Its size in words; "" for none."""
        if not self.workers or not self.nodes:
            return counted(self.workers, "worker") if self.workers else ""
        return f"{counted(self.nodes, 'node')} ({counted(self.workers, 'GPU')})"

    def caption(self) -> str:
        what = f"{self.run} for a minute" if self.workers else "nothing"
        return f"measure next: {what} ({self.reason})"

    def _shown_rows(self) -> list[dict[str, Any]]:
        return []  # nothing beside the caption


def next_measurement(curve: ThroughputCurve) -> NextMeasurement:
    """
    Choose the number of workers to measure next for a minute, on the measured machines.

    Of runs larger than those measured and on at most half of the curve's nodes, it is the smallest that narrows the
    interval at the curve's largest number of workers nearly as much as the best one
    (`queuemodel.curves.prediction.Prediction.expected_deviation`).

    Parameters
    ----------
    curve : ThroughputCurve
        Of a profile or a table of measurements, from `predict` or a model's `throughput`; without its model a
        `ModelError`.

    Examples
    --------
    >>> import queuemodel as qm
    >>> rows = [qm.Measurement(workers=8 * n, nodes=n, steps_per_second=x) for n, x in [(1, 50.0), (2, 82.0)]]
    >>> print(qm.next_measurement(qm.fit(rows).throughput([128])).caption())
    measure next: 7 nodes (56 GPUs) for a minute (narrows the interval of 16 nodes (128 GPUs) by about 46 %)
    """
    if curve.model is None:
        raise ModelError("next_measurement: the curve has no model; give one of predict, as it was predicted")
    most, each = int(curve.workers[-1]), curve.workers_per_node
    decision = named(curve, most)
    if curve.profiled_workers == 0:
        return NextMeasurement(None, "not measured on such machines")
    measured, asked = curve.profiled_workers // each, math.ceil(most / each)
    largest = max(math.ceil(asked / 2), min(CHEAP_NODES, asked))
    if measured >= largest:
        return NextMeasurement(None, f"{named(curve, curve.profiled_workers)} were measured")
    nodes = np.unique(np.geomspace(measured + 1, largest, MOST_CANDIDATES).round().astype(int))
    gain = _narrowing(curve, np.minimum(nodes * each, most))
    if gain.max() < MIN_NARROWING:
        runs = f"runs of up to {named(curve, min(largest * each, most))}"
        return NextMeasurement(None, f"{runs} narrow the interval of {decision} by {percent(gain.max())} at most")
    best = int(np.argmax(gain >= ENOUGH * gain.max()))
    reason = f"narrows the interval of {decision} by about {percent(round(gain[best], 2))}"
    return NextMeasurement(int(min(nodes[best] * each, most)), reason, int(nodes[best]) if each > 1 else None)


def _narrowing(curve: ThroughputCurve, runs: np.ndarray) -> np.ndarray:
    """By what share (n,) a measurement of each run is expected to narrow the interval of the largest number."""
    outcome = curve.model.posterior(np.union1d(runs, curve.workers[-1:]))
    place = int(np.searchsorted(outcome.workers, curve.workers[-1]))
    before, after = outcome.prediction.expected_deviation(place, outcome.noise)
    return np.asarray(1.0 - after[np.searchsorted(outcome.workers, runs)] / before)
