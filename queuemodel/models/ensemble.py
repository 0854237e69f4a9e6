"""How far the models themselves err, whatever their parameters, relative to the saturation point.

The numbers are in model_error.json beside this module, with the series that they were learnt from; ``python -m
validation.model_errors`` makes it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Literal

import numpy as np

from ..base.files import constants
from ..profile.job import Throughput

Method = Literal["mva", "trace"]

#: Numbers of workers over the saturation population: centres of what is below, at, beyond and far beyond the knee.
REGIONS = {"below": 0.5, "at": 1.0, "beyond": 2.0, "far": 4.0}


def regions(ratio: np.ndarray) -> np.ndarray:
    """How much of each region is in numbers of workers over the saturation population (n,): shares (n, 4)."""
    doublings = np.log2(np.maximum(ratio, 1e-9))
    centres, one = np.log2(list(REGIONS.values())), np.eye(len(REGIONS))
    return np.array([np.interp(doublings, centres, one[k]) for k in range(len(REGIONS))]).T


@cache
def _file() -> dict[str, dict[str, float]]:
    learnt = json.loads((resources.files(__package__) / "model_error.json").read_text(encoding="utf-8"))
    return {method: learnt[method] for method in ("mva", "trace")}


def model_error(method: Method, ratio: np.ndarray) -> np.ndarray:
    """Relative standard errors at several workers, (n,), from their numbers over the saturation population."""
    learnt = _file()[method]
    return np.sqrt(regions(ratio) @ np.square([learnt[name] for name in REGIONS]))


def worst_error(method: Method) -> float:
    """The largest of them: for machines on which the regions were not judged."""
    return float(model_error(method, np.array(list(REGIONS.values()))).max())


def waiting_error() -> float:
    """Relative standard error that waiting adds to a simulation between a barrier and none (independent)."""
    return _file()["trace"]["waiting"]


def profiled_error(method: Method) -> float:
    """Relative standard error at the profiled number of workers: tracing makes steps longer."""
    return _file()[method]["profiled"]


def doubling(method: Method) -> float:
    """Correlation of the errors at two numbers of workers, one twice the other."""
    return _file()[method]["doubling"]


#: Measured and assumed numbers, with their sources: constants.toml.
_NUMBERS = constants(__package__)["ensemble"]
OTHER_MACHINES = _NUMBERS["other_machines"]

FREEDOM = _NUMBERS["freedom"]
SIZES = 2.0 ** np.arange(-1.0, 4.1, 0.5)

#: How much larger than is thought the noise of a set of measurements may be, and how likely that is (assumed).
EXCESS = {1.0: 0.985, 2.0: 0.01, 4.0: 0.004, 10.0: 0.001}

DOUBTFUL = _NUMBERS["doubtful"]

#: Combinations of sizes, and models all together, that are less likely than this do not count for quantiles.
NEGLIGIBLE = 1e-5

#: How far a measurement may be off that at least two others contradict (relative): one wrong point does not take over.
WRONG_SPREAD, ENOUGH = 1.0, 3

#: Halvings of the interval in which a quantile lies.
BISECTIONS = 26


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Models that may be true, each with the same kind of errors, at P places where throughput can be measured.

    The logarithm of a measured throughput is a model's, and its error, and the noise of measuring. Errors are normal
    with a covariance, but its size is known from few networks only (so that their law is Student's), and that of the
    noise may be far off too: each of S combinations of these two is as likely as it was, times the likelihood of
    what was measured. Measurements weigh the models by likelihood as well, and move each by the correlation of its
    errors. This is exact on the grid of sizes. What contradicts all models makes their errors larger; measurements
    that contradict each other are treated as noisy.
    """

    logs: np.ndarray  # (S, M, P): Logarithms of throughput (steps per second) by M models
    weights: np.ndarray  # (S, M): How likely each is; they add up to 1
    covariance: np.ndarray  # (S, P, P): Of the models' errors that measurements determine, relative
    sizes: np.ndarray  # sizes, excess: (S,): Factors on the models' errors, and on noise
    excess: np.ndarray
    noise: np.ndarray  # (P,): Relative standard error of measuring there once
    #: (P,): Relative standard error of what is predicted, beside the models' errors: no measurement takes it away,
    #: and noise larger than is thought makes it larger
    rest: np.ndarray

    @classmethod
    def before(
        cls,
        logs: np.ndarray,
        weights: np.ndarray,
        *,
        error: np.ndarray,
        noise: np.ndarray,
        correlation: np.ndarray,
        own: np.ndarray | float = 0.0,
    ) -> Ensemble:
        """
        The prior, before any measurement.

        For M models at P places: ``error`` (P,) is that of predicting one measurement, relative; at least half of it
        is taken to be the models' own, 0 where they have none. ``own`` is the covariance of further errors, whose
        size is known.
        """
        from scipy.special import ndtri, stdtrit

        models = np.sqrt(np.maximum(error**2 - noise**2, (error / 2) ** 2))
        sizes, excess = (grid.ravel() for grid in np.meshgrid(SIZES, list(EXCESS), indexing="ij"))
        likely = np.outer(_size_weights(), list(EXCESS.values())).ravel()
        sizes = sizes * ndtri(0.95) / stdtrit(FREEDOM, 0.95)  # so that 90 % intervals are those of the errors
        covariance = correlation * np.outer(models, models)
        return cls(
            np.repeat(logs[None], len(sizes), axis=0),
            np.outer(likely, weights / weights.sum()),
            covariance * sizes[:, None, None] ** 2 + own,
            sizes,
            excess,
            noise,
            np.where(error > 0, np.sqrt(error**2 - models**2), noise),
        )

    @property
    def models(self) -> np.ndarray:
        """How likely each model is, shape (M,)."""
        return self.weights.sum(axis=0)

    @property
    def size(self) -> float:
        """Expected factor on the models' errors."""
        return float(self.weights.sum(axis=1) @ self.sizes)

    def given(self, at: Sequence[int], logs: np.ndarray, noise: np.ndarray) -> Ensemble:
        """
        The posterior, given throughputs measured at some places.
        """
        if not len(at):
            return self
        places = np.asarray(at)
        errors = np.maximum(noise, 1e-6) * self.excess[:, None]
        among = self.covariance[:, places[:, None], places] + errors[:, :, None] ** 2 * np.eye(len(places))  # (S, n, n)
        gain = np.linalg.solve(among, self.covariance[:, places])  # (S, n, P)
        off = logs - self.logs[:, :, places]  # (S, M, n)
        distance = (off * np.linalg.solve(among, off.swapaxes(1, 2)).swapaxes(1, 2)).sum(axis=-1)
        evidence = -0.5 * (distance + np.linalg.slogdet(among)[1][:, None])
        weights = self.weights * np.exp(evidence - evidence.max())
        return replace(
            self,
            logs=self.logs + off @ gain,
            weights=weights / weights.sum(),
            covariance=self.covariance - self.covariance[:, :, places] @ gain,
        )

    def conditioned(self, points: Sequence[Throughput], at: Sequence[int]) -> tuple[Ensemble, list[Throughput]]:
        """The posterior, and the points that neither the models nor the other points make likely.

        Of three points and more, such a one hardly counts.
        """
        logs = np.log([point.steps_per_second for point in points])
        noise = np.array([p.relative_error(float(self.noise[place])) for p, place in zip(points, at, strict=True)])
        wrong = self.doubtful(at, logs, noise)
        if len(points) >= ENOUGH:
            noise = np.where(wrong, WRONG_SPREAD, noise)
        return self.given(at, logs, noise), [point for point, off in zip(points, wrong, strict=True) if off]

    def at(self, places: Sequence[int]) -> Ensemble:
        """The law of these places alone, by the models that count for quantiles."""
        at, likely = np.asarray(places), self.models > NEGLIGIBLE / self.weights.shape[1]
        return replace(
            self,
            logs=self.logs[:, likely][:, :, at],
            weights=self.weights[:, likely] / self.weights[:, likely].sum(),
            covariance=self.covariance[:, at[:, None], at],
            noise=self.noise[at],
            rest=self.rest[at],
        )

    def interval(self, confidence: float, places: Sequence[int]) -> np.ndarray:
        """Throughput in the middle, and the interval's ends, shape (3, places)."""
        tail = (1 - confidence) / 2
        return np.exp(self._quantiles([0.5, tail, 1 - tail], places, self.rest))

    def doubtful(self, at: Sequence[int], logs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Which measurements, shape (n,), are outliers under the models and the other measurements."""
        wrong = []
        for i, place in enumerate(at):
            rest = [j for j in range(len(at)) if j != i]
            others = self.given([at[j] for j in rest], logs[rest], noise[rest])
            beside = np.full(len(self.noise), noise[i])
            chance = others._below(logs[[i]], [place], beside)[0]
            wrong.append(min(chance, 1 - chance) < DOUBTFUL / 2)
        return np.array(wrong, dtype=bool)

    def _below(self, logs: np.ndarray, places: Sequence[int], beside: np.ndarray) -> np.ndarray:
        """Probability that log throughput is below logs (..., places), with errors ``beside`` the models' (P,)."""
        from scipy.special import ndtr

        at, s = np.asarray(places), np.nonzero(self.weights.sum(axis=1) > NEGLIGIBLE)[0]
        variance = np.maximum(self.covariance[s[:, None], at, at], 0.0) + np.outer(self.excess[s], beside[at]) ** 2
        z = (logs[..., None, None, :] - self.logs[s][:, :, at]) / np.maximum(np.sqrt(variance), 1e-9)[:, None]
        weights = self.weights[s] / self.weights[s].sum()
        return (ndtr(z) * weights[:, :, None]).sum(axis=(-3, -2))

    def _quantiles(self, shares: Sequence[float], places: Sequence[int], beside: np.ndarray) -> np.ndarray:
        """Quantiles of log throughput, shape (shares, places)."""
        at = np.asarray(places)
        most = np.maximum(self.covariance[:, at, at], 0.0).max() + (self.excess.max() * beside.max()) ** 2
        far = 10.0 * np.sqrt(most) + 1e-9
        wanted = np.array(shares)[:, None]
        low = np.zeros((len(shares), len(at))) + self.logs[:, :, at].min(axis=(0, 1)) - far
        high = np.zeros_like(low) + self.logs[:, :, at].max(axis=(0, 1)) + far
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            below = self._below(middle, places, beside) < wanted
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return (low + high) / 2


@dataclass(frozen=True, eq=False)
class Discrepancy:
    """The estimated error of a curve at some numbers of workers."""

    workers: np.ndarray  # (P,): Increasing
    logs: np.ndarray  # (P,): Logarithms of the curve's throughput there
    ensemble: Ensemble
    places: Sequence[int]  # Where it has these P

    def factors(self, workers: np.ndarray, confidence: float) -> np.ndarray:
        """Factors on the curve: to the middle and to the interval's ends, (3, n); beyond the last number they stay."""
        ends = np.log(self.ensemble.interval(confidence, self.places)) - self.logs
        return np.exp([np.interp(np.log(workers), np.log(self.workers), row) for row in ends])


def _size_weights() -> np.ndarray:
    """How likely each of SIZES is, when the mean of `FREEDOM` squared errors was 1."""
    logs = -FREEDOM * (np.log(SIZES) + 0.5 / SIZES**2)  # density of the logarithm
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


def workers_correlation(workers: np.ndarray, doubling: float) -> np.ndarray:
    """Correlation of a model's errors at numbers of workers (P,), shape (P, P): ``doubling`` for each doubling."""
    octaves = np.log2(workers)
    return doubling ** np.abs(octaves[:, None] - octaves)
