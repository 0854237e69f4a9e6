"""What a fitted network thinks of throughput where it could be measured, with its own error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .changes import Changes
from .ensemble import OTHER_MACHINES, Ensemble, workers_correlation
from .fitted import Fitted
from .job import Throughput
from .model import TrainingModel
from .model_error import doubling
from .parameters import normal_quantile, standard_errors

#: Relative standard error of one measured throughput (2 to 4 % in a minute's run).
THROUGHPUT_ERROR = 0.03

#: Relative error of one measurement of two asynchronous workers, whose phases drift too slowly for its window: repeated
#: on the testbed, it differs by 8 %.
TWO_WORKERS_ERROR = 0.08

#: Scale of the logarithm of what contention makes of the servers' demands against one worker's profile, and degrees of
#: freedom of its law: mostly little, but now and then a lot (assumed). Student's above 0; below, the normal law, since
#: sharing does not speed a link up. In the testbed's series errors at four and eight workers share nothing that counts:
#: the likelihood of 0.02 is e**-0.8 of that of 0, that of 0.04 e**-3.
CONTENTION, CONTENTION_FREEDOM = 0.015, 3.0

#: Relative standard error of the worker's own time, beside its spread over the recorded steps (assumed).
WORKER_ERROR = 0.05

#: Correlation of the errors of fits of throughputs alone for each doubling of the workers (assumed).
DRIFTING = 0.75

#: How far a measurement may be off that at least two others contradict (relative): one wrong point does not take over.
WRONG_SPREAD, ENOUGH = 1.0, 3

CONFIDENCE = 0.9

#: Draws that are kept.
DRAWS = 100

#: A number of workers on machines that differ from the fitted ones in this.
Site = tuple[Changes, int]


@dataclass(frozen=True, eq=False)
class Thought:
    """Networks that may be, of one worker's steps: what they think of sites, before more workers were measured.

    Attributes
    ----------
    contention, worker : ndarray, shape (M,)
        Logarithms of factors on the servers' demands while workers share them, and on the worker's own time.
    ensemble : Ensemble
    """

    contention: np.ndarray
    worker: np.ndarray
    ensemble: Ensemble


def predictive(model: TrainingModel, places: Sequence[tuple[int, float | None]], asked: Sequence[int]) -> Ensemble:
    """
    What a model thinks of throughput on the machines that it was fitted on, and on those that are asked for.

    Parameters
    ----------
    model : TrainingModel
        With what-ifs, which are those of the machines asked for.
    places : sequence of (int, float or None)
        Numbers of workers on the fitted machines, and another nominal bandwidth of their links, if any (bytes/s).
    asked : sequence of int
        Numbers of workers on the machines asked for; they come after ``places``.
    """
    fitted = model.fitted
    here = Changes(parameter_servers=fitted.servers.count)
    others = model.changes.other_machines(fitted) or model.servers != fitted.servers
    sites = [(replace(here, bandwidth=bandwidth), n) for n, bandwidth in places]
    sites += [(model.changes if others else here, n) for n in asked]
    for changes, _ in sites:
        changes.require_known(fitted)
    if fitted.recorded is None:
        return _of_throughputs(fitted, sites)
    fitted = fitted.uncalibrated or fitted
    points = beyond_one(fitted)
    thought = of_steps(fitted, [*map(site_of, points), *sites]).ensemble
    return given(thought, points).at(range(len(points), len(points) + len(sites)))


def beyond_one(fitted: Fitted) -> list[Throughput]:
    """What was measured but one worker on the profiled machines, which sets the length of a step."""
    return [p for p in fitted.measured if not is_untraced(p, fitted.servers.count)]


def is_untraced(point: Throughput, servers: int) -> bool:
    """Whether it is of one worker on the profiled machines, on so many servers."""
    return (point.workers, point.parameter_servers, point.bandwidth) == (1, servers, None)


def site_of(point: Throughput) -> Site:
    """Where it was measured."""
    return Changes(bandwidth=point.bandwidth, parameter_servers=point.parameter_servers), point.workers


def given(thought: Ensemble, points: Sequence[Throughput]) -> Ensemble:
    """What is thought once these are measured, which are at the first places.

    Of three and more, one that the network and the others do not make likely hardly counts.
    """
    logs, noise = _measured(thought, points)
    if len(points) >= ENOUGH:
        noise = np.where(thought.doubtful(range(len(points)), logs, noise), WRONG_SPREAD, noise)
    return thought.given(range(len(points)), logs, noise)


def doubted(thought: Ensemble, points: Sequence[Throughput]) -> list[Throughput]:
    """Those that neither the network nor the others make likely; they are at the first places."""
    wrong = thought.doubtful(range(len(points)), *_measured(thought, points))
    return [point for point, off in zip(points, wrong, strict=True) if off]


def _measured(thought: Ensemble, points: Sequence[Throughput]) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of the throughputs, and their relative standard errors."""
    noise = [p.relative_error(own) for p, own in zip(points, thought.noise[: len(points)].tolist(), strict=True)]
    return np.log([p.steps_per_second for p in points]), np.array(noise)


def of_steps(fitted: Fitted, sites: Sequence[Site]) -> Thought:
    """Networks on a grid of contention and the worker's time, the model's own errors, the steps' sampling."""
    sampling = float(standard_errors(fitted.draws.worker)) / max(float(fitted.demands.worker), 1e-12)
    own = np.hypot(WORKER_ERROR, min(sampling, 1.0))
    reach = np.linspace(-np.arcsinh(5.0), np.arcsinh(100.0), 41)  # up to four and a half times the demands
    z = np.sinh(reach)
    tails = np.where(z > 0, (1 + z**2 / CONTENTION_FREEDOM) ** (-(CONTENTION_FREEDOM + 1) / 2), np.exp(-(z**2) / 2))
    times = np.linspace(-3.0, 3.0, 7)
    contention, worker = (grid.ravel() for grid in np.meshgrid(CONTENTION * z, own * times, indexing="ij"))
    weights = np.outer(tails * np.cosh(reach), np.exp(-(times**2) / 2)).ravel()
    alone = replace(fitted, measured=tuple(p for p in fitted.measured if is_untraced(p, fitted.servers.count)))
    shared, unshared = (
        replace(alone, draws=alone.demands.scaled(server=np.exp(factor), worker=np.exp(worker)))
        for factor in (contention, 0.0 * contention)
    )
    saturation = {
        changes: TrainingModel(alone, changes).throughput([1]).saturation_workers
        for changes in {one for one, _ in sites}
    }
    logs, sampled, error = [], [], []
    for changes, n in sites:
        of_grid = TrainingModel(shared if n > 1 else unshared, changes)  # one worker shares nothing
        model = TrainingModel(alone, changes)
        logs.append(np.log(of_grid.drawn(np.array([n]))[0]))
        sampled.append(np.log(model.drawn(np.array([n]))[0]))
        error.append(float(model.own_error(np.array([n]), saturation[changes])[0]))
    every, share = np.array(logs).T, weights / weights.sum()
    varied = np.sqrt(share @ (every - share @ every) ** 2)
    return Thought(
        contention,
        worker,
        Ensemble.before(
            every,
            weights,
            error=np.sqrt(np.maximum(np.square(error) - varied**2, np.square(error) / 4)),
            noise=np.array([TWO_WORKERS_ERROR if n == 2 else THROUGHPUT_ERROR for _, n in sites]),
            correlation=_correlation(sites, doubling("mva")),
            own=np.atleast_2d(np.cov(sampled)),
        ),
    )


def _of_throughputs(fitted: Fitted, sites: Sequence[Site]) -> Ensemble:
    """The draws of a fit of throughputs alone."""
    logs, error = [], []
    for changes, n in sites:
        model = TrainingModel(fitted, changes)
        drawn = np.log(model.drawn(np.array([n]))[0])
        logs.append(drawn[np.linspace(0, len(drawn) - 1, min(DRAWS, len(drawn))).astype(int)])
        error.append(_own_error(model, n, drawn))
    return Ensemble.before(
        np.array(logs).T,
        np.ones(len(logs[0])),
        error=np.array(error),
        noise=np.full(len(sites), THROUGHPUT_ERROR),
        correlation=_correlation(sites, DRIFTING),
    )


def _correlation(sites: Sequence[Site], apart: float) -> np.ndarray:
    """Of the errors at the sites, shape (P, P)."""
    alike = np.array([[one == other for one, _ in sites] for other, _ in sites])
    return workers_correlation(np.array([n for _, n in sites]), apart) * np.where(alike, 1.0, OTHER_MACHINES)


def _own_error(model: TrainingModel, workers: int, drawn: np.ndarray) -> float:
    """Relative standard error of the model itself: what its interval has beyond that of logarithms of draws (B,)."""
    curve = model.throughput([workers], confidence=CONFIDENCE)
    whole, sampled = np.log(curve.upper[0]), np.quantile(drawn, 0.5 + CONFIDENCE / 2)
    middle = np.log(curve.steps_per_second[0])
    return float(np.sqrt(max((whole - middle) ** 2 - (sampled - middle) ** 2, 0.0))) / normal_quantile(CONFIDENCE)
