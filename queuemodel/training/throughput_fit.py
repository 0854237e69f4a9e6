"""A model from throughputs alone: a Bayesian fit on a grid, because few points leave much open."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..errors import FitError
from ..solvers.knee import knee_throughput
from .demands import Demands, Servers, largest_share, uneven_shards
from .fitted import Fitted
from .job import Job, Throughput
from .parameters import Parameter
from .prior import KneePrior, knee_prior
from .throughputs import doubt

#: Knee widths s: service times of coefficient of variation about 0.1, 0.3 and 0.5; rarely rounder knees, as exponential
#: times and several stations of nearly the same demand have them (assumed).
WIDTHS = np.array([0.15, 0.25, 0.40, 0.65, 1.0, 1.5])
WIDTH_WEIGHTS = np.array([1.0, 1.0, 1.0, 0.05, 0.03, 0.02])
#: Relative errors of one measured throughput, with equal weight; their law is Student's t of 4 degrees of freedom.
SIGMAS = np.array([0.015, 0.03, 0.06])
#: How likely a measurement is wrong altogether, and by how much of a logarithm it then errs.
WRONG, WRONG_SPREAD = 0.02, 1.0
#: Draws of the posterior that the model keeps.
DRAWS = 2000


def fit_throughputs(measured: list[Throughput], *, job: Job, prior: KneePrior | None = None) -> Fitted:
    """Fit server demand and undisturbed cycle to measured throughputs.

    A worker's undisturbed cycle is R, of which the busiest server needs D; X(N) follows `knee_throughput`. Prior: log R
    flat; D/R uniform on (0, 1), but for a share of jobs that saturate nowhere, as their servers grow with their
    workers; the knee's width and the measurement error each from a few values; when the bytes of the parameters are
    known also a wide log-normal for D. The share and the log-normal are learnt from published series
    (`queuemodel.training.prior`). A measurement may be wrong altogether: one that the others contradict hardly counts,
    and the note names it. Predictions have the least expected relative error. The method is numerical integration on a
    grid, without randomness.

    Raises
    ------
    FitError
        When there is no throughput.
    """
    if not measured:
        raise FitError("fit: at least one measured throughput is needed, got none")
    N = np.array([p.workers for p in measured], dtype=float)
    y = np.log([p.steps_per_second for p in measured])
    share = np.array([largest_share(p.parameter_servers) for p in measured])
    servers = Counter(p.parameter_servers for p in measured).most_common(1)[0][0]
    prior = prior or knee_prior()
    posterior = _posterior(N, y, share, job.parameter_bytes, prior)
    cycle, total, width = posterior.draws()
    fewest = np.array([N.argmin()])
    cycle_before, total_before, width_before = _posterior(
        N[fewest], y[fewest], share[fewest], job.parameter_bytes, prior
    ).draws()
    none = np.zeros(DRAWS)
    demands = Demands(np.zeros(()), np.zeros(()), np.median(total), np.median(cycle) - np.median(total))
    low, high = np.quantile(total, [0.16, 0.84])
    seen = high < low * math.exp(2 * 0.25)
    most = max(p.workers for p in measured)
    size = (
        f"prior from {job.parameter_bytes / 1e6:.3g} MB of parameters"
        if job.parameter_bytes
        else "prior from published jobs"
    )
    notes = ["throughputs alone cannot tell the server's links from its processor, nor what a faster network buys"]
    if not seen:
        notes.insert(0, f"the data show no saturation up to {most} worker(s), the server's demand rests on a {size}")
    wrong, misfits = _against(posterior, N, y, share)
    doubtful = wrong > 0.5
    if len(measured) > 1 and wrong.sum() > 0.5:
        doubtful |= wrong > 0.5 * wrong.max()  # where nothing tells which of two is wrong, both are named
        doubted = [point for point, bad in zip(measured, doubtful, strict=True) if bad]
        notes.insert(0, doubt(doubted, "the other measurements"))
    trusted = ~doubtful if not doubtful.all() else doubtful
    return Fitted(
        demands=demands,
        draws=Demands(none, none, total, cycle - total),
        job=job,
        servers=Servers("single", uneven_shards(servers)),
        width=float(np.median(width)),
        draw_widths=width,
        before=(Demands(none, none, total_before, cycle_before - total_before), width_before),
        measured=tuple(measured),
        misfit=float(np.sqrt(np.mean(misfits[trusted] ** 2))),
        average=True,
        others=(
            Parameter(
                "server demand", float(demands.update), "s", standard_error=float(total.std()), origin="derived",
                identified=seen, note="" if seen else size,
            ),
            Parameter(
                "worker time", float(demands.worker), "s", standard_error=float((cycle - total).std()),
                origin="derived", identified=seen, note="undisturbed cycle less the server's demand",
            ),
            Parameter(
                "undisturbed cycle", float(np.median(cycle)), "s", standard_error=float(cycle.std()), origin="derived",
            ),
            Parameter(
                "knee width", float(width.mean()), "", standard_error=float(width.std()), origin="assumed",
                identified=False, note="sharp, unless the data show a round knee",
            ),
            *(
                Parameter(name, math.nan, "s", origin="assumed", identified=False, note="needs a profile")
                for name in ("transmit link demand", "receive link demand", "server update demand")
            ),
        ),
        note="; ".join(notes),
    )  # fmt: skip


class _Posterior(NamedTuple):
    """Weights of combinations on a grid (width, D/R, 1/R), and what they stand for (broadcast)."""

    width: np.ndarray
    ratio: np.ndarray
    rate: np.ndarray
    weight: np.ndarray
    given_sigma: np.ndarray  # the weight's parts for each of SIGMAS, first axis

    def draws(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Undisturbed cycle, servers' demand and knee's width, each (DRAWS,), spread evenly over the posterior."""
        rate, ratio, width, weight = (grid.ravel() for grid in (self.rate, self.ratio, self.width, self.weight))
        keep = (np.arange(DRAWS) + 0.5) / DRAWS
        order = np.argsort(ratio, kind="stable")
        pick = order[np.searchsorted(np.cumsum(weight[order]), keep).clip(max=len(order) - 1)]
        return 1.0 / rate[pick], ratio[pick] / rate[pick], width[pick]


def _posterior(N: np.ndarray, y: np.ndarray, share: np.ndarray, parameter_bytes: int, known: KneePrior) -> _Posterior:
    # cycle over all servers' demand; the last for jobs that saturate nowhere
    log_knee = np.append(np.linspace(0.0, math.log(max(200.0, 10.0 * N.max())), 200), math.inf)
    uniform = np.exp(-log_knee[:-1])  # in D/R
    log_share = np.log(np.append((1.0 - known.never) * uniform / uniform.sum(), known.never))

    def log_weight(log_rate: np.ndarray, knees: slice) -> np.ndarray:
        prior = np.log(WIDTH_WEIGHTS)[:, None, None] + log_share[knees, None]
        if parameter_bytes:
            expected = math.log(known.server_rate / parameter_bytes)
            server = log_rate + log_knee[knees, None] - expected
            prior = prior - 0.5 * (server / known.server_rate_spread) ** 2
        sigmas = np.maximum(SIGMAS, log_rate[1] - log_rate[0])
        width, ratio, rate = np.broadcast_arrays(
            WIDTHS[:, None, None], np.exp(-log_knee[knees, None]), np.exp(log_rate)
        )
        weight = np.broadcast_to(prior, (len(SIGMAS), *width.shape)).copy()
        for error in _errors(width, ratio, rate, N, y, share):
            wrong = _wrong(error)
            for part, sigma in zip(weight, sigmas, strict=True):
                part += np.log(_right(error, sigma) + wrong)
        return weight

    lowest, highest = float(np.min(y - np.log(N))) - 0.35, float(np.max(y)) + 0.35  # X(1) <= X(N) <= N X(1)
    for _ in range(3):  # each time where the weight is
        log_rate = np.linspace(lowest, highest, 140)
        spacing = log_rate[1] - log_rate[0]
        coarse = log_weight(log_rate, slice(None, None, 8))
        likely = np.nonzero(coarse.max(axis=(0, 1, 2)) > coarse.max() - 12.0)[0]
        if spacing < 0.003 or len(likely) > 100:
            break
        lowest, highest = log_rate[likely[0]] - spacing, log_rate[likely[-1]] + spacing
    log_rate = np.linspace(lowest, highest, 140)
    weight = log_weight(log_rate, slice(None))
    weight = np.exp(weight - weight.max())
    weight /= weight.sum()
    width, ratio, rate = np.broadcast_arrays(WIDTHS[:, None, None], np.exp(-log_knee[:, None]), np.exp(log_rate))
    return _Posterior(width, ratio, rate, weight.sum(axis=0), weight)


def _against(posterior: _Posterior, N: np.ndarray, y: np.ndarray, share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How likely each measurement is wrong, and its mean difference from the fit."""
    wrong, misfits = [], []
    for error in _errors(posterior.width, posterior.ratio, posterior.rate, N, y, share):
        chances = [1.0 / (1.0 + _right(error, sigma) / _wrong(error)) for sigma in SIGMAS]
        wrong.append(sum(float((w * p).sum()) for w, p in zip(posterior.given_sigma, chances, strict=True)))
        misfits.append(float((posterior.weight * error).sum()))
    return np.array(wrong), np.array(misfits)


def _errors(
    width: np.ndarray, ratio: np.ndarray, rate: np.ndarray, N: np.ndarray, y: np.ndarray, share: np.ndarray
) -> Iterator[np.ndarray]:
    """For one measurement after the other: its logarithm less that of each combination on the grid."""
    flat = ratio[:, :, :1], width[:, :, :1]
    for n, log_x, largest in zip(N, y, share, strict=True):
        shape = np.log(knee_throughput(n, cycle=1.0, demand=largest * flat[0], width=flat[1]))
        yield log_x - shape - np.log(rate)


def _right(error: np.ndarray, sigma: float) -> np.ndarray:
    return (1.0 - WRONG) * _student(error, sigma)


def _wrong(error: np.ndarray) -> np.ndarray:
    return WRONG * _student(error, WRONG_SPREAD)


def _student(error: np.ndarray, scale: float) -> np.ndarray:
    """Density of Student's t of 4 degrees of freedom, up to a factor."""
    t = 1.0 + (error / (2.0 * scale)) ** 2
    return 1.0 / (scale * t * t * np.sqrt(t))
