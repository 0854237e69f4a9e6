"""Learn how far the models themselves err, leaving out one kind of network at a time to see what intervals promise.

python -m validation.model_errors

writes queuemodel/models/model_error.json from all series of the testbed. Each kind of network counts as one, however
many series it has: congestion control, buffer, number of servers, and what else sets a series apart.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from scipy import stats

import queuemodel.models.errors
from queuemodel.base.estimates import normal_quantile
from queuemodel.base.files import write_atomically
from queuemodel.models.errors import REGIONS, Method, model_error, profiled_error, regions, waiting_error
from queuemodel.models.errors import correlation_per_doubling as packaged_doubling

from .half_synchronous import half_synchronous, in_between
from .held_out import in_between_folders
from .series import (
    Comparison,
    compare_testbed,
    compare_unusual,
    kind_of,
    read_testbed,
    series_folders,
    untraced_folders,
)

FILE = Path(queuemodel.models.errors.__file__).with_name("model_error.json")
#: The profiled number of workers, then the regions of several.
PARTS = ("profiled", *REGIONS)
#: Kinds of network that the mean over all regions is worth in each: what a region has not shown.
PSEUDO_KINDS = 1.0
#: A measurement errs itself; no model is known better.
LEAST = 0.02
#: Sizes of the errors that waiting may add.
WAITING_SIZES = np.arange(0.0025, 0.3, 0.0025)

ABOUT = (
    "Relative standard errors of the closed network (mva) and of the simulation (trace) "
    "(queuemodel.models.errors says where), their correlation for each doubling of the workers, and what "
    "waiting adds between a barrier and none, learnt by `python -m validation.model_errors` from the testbed's series, "
    "of so many per kind of network."
)


@dataclass(frozen=True)
class Errors:
    """One series' predictions without the model's own error.

    Attributes
    ----------
    kind : str
        Of network.
    parts : ndarray, shape (n, 5)
        How much of `PARTS` is in each number of workers; (n, 1) of `errors_in_between`.
    off : ndarray, shape (n,)
        Logarithm of measured over predicted, as first measured: intervals are those of one measurement.
    others : ndarray, shape (n, 2)
        Standard errors below and above that have other causes.
    """

    comparison: Comparison
    kind: str
    parts: np.ndarray
    off: np.ndarray
    others: np.ndarray


#: What errors of some kinds say of the next one's: standard errors of the parts.
Teach = Callable[[Sequence[Errors]], np.ndarray]


def errors_of(comparison: Comparison, kind: str) -> Errors:
    """What a comparison's curve, made with the packaged errors, shows without them."""
    c, method = comparison, cast(Method, comparison.method)
    ratio = c.counts / c.curve.saturation_workers
    alone = c.counts == 1
    parts = np.column_stack([alone, regions(ratio) * ~alone[:, None]])
    return _without(np.where(alone, profiled_error(method), model_error(method, ratio)), parts, c, kind)


def errors_in_between(comparison: Comparison, kind: str, waiting: np.ndarray) -> Errors:
    """What a comparison's curve shows without what waiting adds, where there is such ``waiting`` (n,).

    Its one part is that of waiting; what asynchronous training's errors promise is among the other causes.
    """
    packaged = waiting_error() * waiting
    return _without(packaged, waiting[:, None].astype(float), comparison, kind)


def _without(packaged: np.ndarray, parts: np.ndarray, c: Comparison, kind: str) -> Errors:
    """Errors and other causes of a comparison, whose interval has packaged errors (n,) of such parts."""
    at = np.searchsorted(c.curve.workers, c.counts)
    ends = np.log([c.curve.lower[at], c.curve.upper[at]] / c.curve.steps_per_second[at]).T / normal_quantile(
        c.curve.confidence
    )
    others = np.sqrt(np.maximum(ends**2 - packaged[:, None] ** 2, 0.0))
    return Errors(c, kind, parts, np.log(c.first / c.curve.steps_per_second[at]), others)


def learn(found: Sequence[Errors]) -> np.ndarray:
    """Standard errors of `PARTS` that a next kind of network shows.

    Few kinds leave their mean square open, so that the next kind's errors follow Student's law; the packaged errors,
    taken for normal ones, are as much larger as its 90 % interval is wider.
    """
    kinds = {one.kind for one in found}
    student = stats.t.ppf(0.95, max(len(kinds) - 1, 1)) / stats.norm.ppf(0.95)
    return np.asarray(student * root_mean_squares(found))


def root_mean_squares(found: Sequence[Errors]) -> np.ndarray:
    """Root mean squares of `PARTS` over kinds of network, of what other causes leave."""
    kinds = sorted({one.kind for one in found})
    squares, sizes = np.zeros(len(PARTS)), np.zeros(len(PARTS))
    for kind in kinds:
        own = [one for one in found if one.kind == kind]
        parts = np.concatenate([one.parts for one in own])
        off = np.concatenate([one.off**2 - (one.others**2).mean(axis=1) for one in own])
        size = parts.sum(axis=0)
        share = np.minimum(size / len(own), 1.0)  # a kind that has little of a region tells little of it
        squares += share * np.maximum(parts.T @ off / np.maximum(size, 1e-9), 0.0)
        sizes += share
    several = squares[1:].sum() / sizes[1:].sum()
    squares[1:], sizes[1:] = squares[1:] + PSEUDO_KINDS * several, sizes[1:] + PSEUDO_KINDS
    return np.asarray(np.sqrt(np.maximum(squares / sizes, LEAST**2)))


def doubling(found: Sequence[Errors]) -> float:
    """Correlation of a series' errors at two numbers of workers, one twice the other: its posterior mean.

    Errors are normal, of the sizes of `root_mean_squares`, and correlate by a power of the octaves between them; what
    has other causes does not. Every correlation from 0 to 1 is equally likely beforehand, and each kind counts once.
    """
    sigma, kinds = root_mean_squares(found), [one.kind for one in found]
    grid, logs = np.arange(0.0, 1.0, 0.01), []
    for correlation in grid:
        likely = 0.0
        for one in found:
            octaves = np.log2(one.comparison.counts)
            size = np.sqrt(one.parts @ sigma**2)
            covariance = correlation ** np.abs(octaves[:, None] - octaves) * np.outer(size, size)
            covariance += np.diag((one.others**2).mean(axis=1) + LEAST**2)
            likely += _log_likelihood(one.off, covariance) / kinds.count(one.kind)
        logs.append(likely)
    return float(np.average(grid, weights=np.exp(logs - np.max(logs))))


def learn_waiting(found: Sequence[Errors]) -> np.ndarray:
    """Standard error, (1,), that waiting between a barrier and none adds in a next kind of network and strategy.

    Beyond what asynchronous training's errors promise each kind has a normal error of one unknown size (a random
    effect: DerSimonian and Laird, 1986), which correlates over octaves as those do. Every size is equally likely
    beforehand (Gelman, 2006). Few kinds leave it open, so that the next one's errors are a mixture over sizes; the
    normal law that has the mixture's 90 % interval stands for it.
    """
    kinds, logs = [one.kind for one in found], np.zeros(len(WAITING_SIZES))
    for one in found:
        octaves = np.log2(one.comparison.counts)
        alike = packaged_doubling(cast(Method, one.comparison.method)) ** np.abs(octaves[:, None] - octaves)
        waiting, others = alike * np.outer(one.parts, one.parts), np.where(one.off < 0, *one.others.T)
        likely = [_log_likelihood(one.off, size**2 * waiting + np.diag(others**2)) for size in WAITING_SIZES]
        logs += np.array(likely) / kinds.count(one.kind)
    ends = np.linspace(0.0, 1.0, 2001)[:, None]
    inside = np.average(2.0 * stats.norm.cdf(ends / WAITING_SIZES) - 1.0, axis=1, weights=np.exp(logs - logs.max()))
    return np.array([np.interp(0.9, inside, ends[:, 0]) / stats.norm.ppf(0.95)])


def _log_likelihood(off: np.ndarray, covariance: np.ndarray) -> float:
    """Of normal errors (n,), but for a constant."""
    return -0.5 * float(off @ np.linalg.solve(covariance, off) + np.linalg.slogdet(covariance)[1])


def with_errors(one: Errors, sigma: np.ndarray, *, confidence: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the intervals, relative to the prediction, if the model erred by ``sigma`` of `PARTS`."""
    error = np.sqrt(one.parts @ sigma**2)
    lower, upper = normal_quantile(confidence) * np.hypot(one.others, error[:, None]).T
    return np.exp(-lower), np.exp(upper)


def leave_kind_out(found: Sequence[Errors], teach: Teach = learn) -> list[tuple[Errors, np.ndarray, np.ndarray]]:
    """Each series with the intervals that all other kinds of network teach."""
    others = {kind: teach([one for one in found if one.kind != kind]) for kind in {one.kind for one in found}}
    return [(one, *with_errors(one, others[one.kind])) for one in found]


def calibrated(found: Sequence[Errors], *, confidence: float = 0.9) -> np.ndarray:
    """What all series teach, as much larger in each of `PARTS` as intervals with a kind left out were too narrow there.

    The quantile of distance over half width is that of conformal prediction (Vovk et al., 2005), without its surcharge
    for few points, which at twenty takes the largest of them.
    """
    factors = np.ones(len(PARTS))
    rows = []
    for one, lower, upper in leave_kind_out(found):
        half = np.where(one.off < 0, -np.log(lower), np.log(upper))
        rows.append(np.column_stack([one.parts.argmax(axis=1), np.abs(one.off) / half]))
    part, distance = np.concatenate(rows).T
    for k in range(len(PARTS)):
        own = distance[part == k]
        if len(own) >= 1.0 / (1.0 - confidence):  # fewer have no such quantile
            factors[k] = max(1.0, float(np.quantile(own, confidence)))
    return factors * learn(found)


def testbed_errors(method: Method) -> list[Errors]:
    """All of the testbed's series, predicted by a method from one worker's traces."""
    found = [errors_of(compare_testbed(f, read_testbed(f), method), kind_of(f)) for f in series_folders()]
    if method == "trace":
        unusual = series_folders(usual=False)
        found += [errors_of(compare_unusual(f, read_testbed(f)), kind_of(f)) for f in unusual]
    return found


def half_synchronous_folders() -> list[Path]:
    """Series of half-synchronous strategies, those that were blind among them."""
    return [*untraced_folders(), *in_between_folders()]


def waiting_errors(comparisons: Sequence[Comparison]) -> list[Errors]:
    """What half-synchronous series show."""
    folders = {folder.name: folder for folder in half_synchronous_folders()}
    return [
        errors_in_between(c, kind_of(folder), in_between(folder, c.counts))
        for c in comparisons
        for folder in [folders[c.name]]
    ]


def main() -> int:
    """Write what all series teach."""
    waiting = half_synchronous(half_synchronous_folders())
    told: dict[str, Any] = {"about": ABOUT, "series per kind": {}}
    for method in ("mva", "trace"):
        found = testbed_errors(cast(Method, method))
        told[method] = dict(zip(PARTS, calibrated(found).round(4).tolist(), strict=True)) | {
            "doubling": round(doubling(found), 2),
        }
        if method == "trace":
            told[method] |= {"waiting": round(float(learn_waiting(waiting_errors(waiting))[0]), 4)}
        names = [one.kind for one in found]
        told["series per kind"] = {kind: names.count(kind) for kind in sorted(set(names))}
    write_atomically(FILE, json.dumps(told, indent=1) + "\n")
    print(f"wrote {FILE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
