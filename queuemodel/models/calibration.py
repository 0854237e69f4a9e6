"""From profiled steps, and throughputs measured besides, to the closed network.

Throughputs determine the cost of tracing, and contention between several workers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..base.errors import DataError
from ..base.estimates import Parameter, standard_errors
from ..base.files import constants
from ..base.results import counted
from ..profile.bandwidth import best_rates
from ..profile.job import Throughput
from ..profile.profile import Profile
from ..profile.scenario import Scenario
from ..profile.throughputs import doubt, on_profiled_links
from .closed_network import TrainingModel
from .demands import Demands, Form
from .ensemble import OTHER_MACHINES, Discrepancy, Ensemble, doubling, workers_correlation
from .rules import NOTHING
from .step_fit import CONTENTION, Fitted, fit_steps

#: Numbers of workers at which the discrepancy is computed; between them it is interpolated, beyond them it stays.
KNOTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64)

#: How many times the upper bound, or what its interval has, a throughput may be: tracing makes steps longer.
IMPOSSIBLE, UNLIKELY = 2.0, 1.5

#: Measured and assumed numbers, with their sources: constants.toml.
_NUMBERS = constants(__package__)["calibration"]
THROUGHPUT_ERROR, TWO_WORKERS_ERROR = _NUMBERS["throughput_error"], _NUMBERS["two_workers_error"]
CONTENTION_SCALE, CONTENTION_FREEDOM = _NUMBERS["contention_scale"], _NUMBERS["contention_freedom"]
WORKER_ERROR = _NUMBERS["worker_error"]

#: A number of workers on machines that differ from the fitted ones in this.
Site = tuple[Scenario, int]


@dataclass(frozen=True, eq=False)
class PriorPredictive:
    """Networks that may be, of one worker's steps: what they think of sites, before more workers were measured."""

    #: contention, worker: (M,): Logarithms of factors on the servers' demands while workers share them, and on the
    #: worker's own time
    contention: np.ndarray
    worker: np.ndarray
    ensemble: Ensemble


def fit_network(
    profile: Profile, *, throughputs: Sequence[Throughput] = (), form: Form = "links", seed: int = 0
) -> TrainingModel:
    """Fit the closed network of a profile with recorded steps.

    Each demand is the mean over the steps of the time in which the link, or the server, was busy with this worker. The
    worker's own time is what remains of the step: step time - fetch - push - update. TensorFlow overlaps computation
    with communication, so that this is less than the computation: only so does the model take as long for one worker
    as was measured (validation/notes/model). One worker's throughput gives the cost of tracing, those of more workers
    how contention changes the servers' demands, and how far the network itself errs there: they weigh all of these by
    likelihood, and estimate the curve's error (Kennedy and O'Hagan, 2001).

    Raises
    ------
    DataError
        For a throughput that the profile rules out.
    """
    measured = on_profiled_links([*profile.throughputs, *throughputs], profile)
    fitted = fit_steps(profile, form=form, seed=seed)
    against = contradicted(measured, fitted, held_up=best_rates(profile) is not None)
    fitted = without_tracing(replace(fitted, measured=tuple(measured), contradiction=against), seed=seed)
    return TrainingModel(calibrated(fitted, seed=seed) if goes_further(measured, fitted.servers.count) else fitted)


def contradicted(measured: Sequence[Throughput], fitted: Fitted, *, held_up: bool) -> str:
    """The note where most throughputs are far from the profile, by steps alone; empty for none.

    Raises
    ------
    DataError
        For one above the upper bound.
    """
    far, rounds, servers = [], True, fitted.servers.count
    faster = max((untraced_throughput(measured, servers) or 0.0) * float(fitted.demands.total), 1.0)  # untraced
    for point in measured:
        scenario, n = site_of(point)
        curve = TrainingModel(fitted, scenario=scenario).throughput([n])
        low, high, most = (float(end[0]) for end in (curve.lower, curve.upper, curve.bound_upper))
        low, high = low / UNLIKELY, UNLIKELY * high
        x, examples = point.steps_per_second, point.steps_per_second / fitted.job.batch_size
        as_examples = low <= examples <= high < x
        if x > IMPOSSIBLE * most * (1.0 if as_examples else faster) and not held_up:
            raise DataError(
                f"throughputs: {x:.4g} steps/s with {counted(n, 'worker')}, but the profile allows {most:.3g} at most; "
                + (f"{x:.4g} examples/s would be {examples:.3g} steps/s" if as_examples else "are they of another job?")
            )
        if not low <= x <= high and not held_up:
            far.append(point)
            rounds = rounds and low <= n * x <= high
    if 2 * len(far) <= len(measured):
        return ""
    named = ", ".join(f"{p.steps_per_second:.4g} steps/s with {counted(p.workers, 'worker')}" for p in far)
    unit = "as rounds per second, times the workers, they do not" if rounds else "are they of another job?"
    return f"the throughputs contradict the profile ({named}); {unit}"


def untraced_throughput(measured: Sequence[Throughput], servers: int) -> float | None:
    """Mean measured steps per second of one worker, which tracing did not slow; None where there is none."""
    alone = [point.steps_per_second for point in measured if is_untraced(point, servers)]
    return float(np.mean(alone)) if alone else None


def goes_further(measured: Sequence[Throughput], servers: int) -> bool:
    """Whether anything was measured but one worker on the profiled machines."""
    return not all(is_untraced(point, servers) for point in measured)


def without_tracing(fitted: Fitted, *, seed: int) -> Fitted:
    """Take off the worker's own time what tracing cost, known from one worker's throughput: links do not trace."""
    untraced, recorded = untraced_throughput(fitted.measured, fitted.servers.count), fitted.recorded
    if untraced is None:
        return fitted
    # The steps determine the links' demands, the throughput a step's length.
    errors = [p.relative_error(THROUGHPUT_ERROR) for p in fitted.measured if is_untraced(p, fitted.servers.count)]
    error = math.hypot(*errors) / len(errors)
    length = np.exp(error * np.random.default_rng(seed).standard_normal(len(fitted.draws.worker)))
    saved = float(fitted.demands.total) - 1.0 / untraced
    return replace(
        fitted,
        demands=_lasting(fitted.demands, np.array(1.0 / untraced)),
        draws=_lasting(fitted.draws, length / untraced),
        recorded=replace(recorded, compute=max(recorded.compute - saved, 0.0)),
        others=(
            *fitted.others,
            Parameter(
                "tracing overhead", saved * untraced + 1.0, "", standard_error=error * (saved * untraced + 1.0),
                note="traced over untraced step time; the difference is taken off the worker's own time",
            ),
        ),
    )  # fmt: skip


def _lasting(demands: Demands, seconds: np.ndarray) -> Demands:
    """Demands that add up to so many seconds: the worker's own time gives way, the servers' only when it is used up."""
    share = np.minimum(seconds / np.maximum(demands.server, NOTHING), 1.0)
    return demands.scaled(server=share, worker=1.0).with_worker(seconds - share * demands.server)


def calibrated(fitted: Fitted, *, seed: int) -> Fitted:
    """
    Fit the network to measured throughputs, as far as its own error, and theirs, make that likely.

    The servers' demands may be longer while workers share them, the worker's time may be another one, and the network
    errs whatever these are: most near saturation, hardly alike at half or twice as many workers. A measurement is
    weighed against all of these by likelihood (Kennedy and O'Hagan, 2001): it moves the demands, and bends the curve
    of the machines that were measured where they were, by the correlation of errors elsewhere.
    """
    points = beyond_one(fitted)
    measured = [p.workers for p in points if site_of(p)[0] == _here(fitted)]
    at = np.array(sorted({*KNOTS, *measured}))
    prior = of_steps(fitted, [*map(site_of, points), *((_here(fitted), n) for n in at.tolist())])
    after, wrong = prior.ensemble.conditioned(points, range(len(points)))
    contention, worker, error, before = _moments(prior, after.models)
    count = len(fitted.draws.worker)
    drawn = np.minimum(
        np.searchsorted(np.cumsum(after.models), (np.arange(count) + 0.5) / count), len(after.models) - 1
    )
    drawn = np.random.default_rng(seed).permutation(drawn)
    demands = fitted.demands.scaled(server=math.exp(contention), worker=math.exp(worker))
    here = TrainingModel(replace(fitted, demands=demands))
    places = range(len(points), len(points) + len(at))
    return replace(
        fitted,
        demands=demands,
        draws=fitted.draws.scaled(server=np.exp(prior.contention[drawn]), worker=np.exp(prior.worker[drawn])),
        few_flows_if_bbr=None,  # as far as it slows workers, the measurements have it
        discrepancy=Discrepancy(at, np.log(here.pace(at).X), after.at(places), range(len(at))),
        others=(
            *(p for p in fitted.others if p.name != CONTENTION.name),
            Parameter(
                CONTENTION.name, math.exp(contention), "", standard_error=math.exp(contention) * error,
                origin="measured", identified=error < 0.7 * before,
                note="factor on the servers' demands against one worker's profile",
            ),
        ),
        note=doubt(wrong, "the profile and the other measurements") if wrong else "",
    )  # fmt: skip


def _here(fitted: Fitted) -> Scenario:
    return Scenario(parameter_servers=fitted.servers.count)


def _moments(prior: PriorPredictive, weights: np.ndarray) -> tuple[float, float, float, float]:
    """Means of the logarithms of both factors, and the standard deviation of contention's: now, and before."""
    contention, worker = float(weights @ prior.contention), float(weights @ prior.worker)
    now, before = (
        math.sqrt(share @ (prior.contention - share @ prior.contention) ** 2)
        for share in (weights, prior.ensemble.models)
    )
    return contention, worker, now, before


def beyond_one(fitted: Fitted) -> list[Throughput]:
    """What was measured but one worker on the profiled machines, which sets the length of a step."""
    return [p for p in fitted.measured if not is_untraced(p, fitted.servers.count)]


def is_untraced(point: Throughput, servers: int) -> bool:
    """Whether it is of one worker on the profiled machines, on so many servers."""
    return (point.workers, point.parameter_servers, point.bandwidth) == (1, servers, None)


def site_of(point: Throughput) -> Site:
    """Where it was measured."""
    return Scenario(bandwidth=point.bandwidth, parameter_servers=point.parameter_servers), point.workers


def of_steps(fitted: Fitted, sites: Sequence[Site]) -> PriorPredictive:
    """Networks on a grid of contention and the worker's time, the model's own errors, the steps' sampling."""
    sampling = float(standard_errors(fitted.draws.worker)) / max(float(fitted.demands.worker), 1e-12)
    own = np.hypot(WORKER_ERROR, min(sampling, 1.0))
    reach = np.linspace(-np.arcsinh(5.0), np.arcsinh(100.0), 41)  # up to four and a half times the demands
    z = np.sinh(reach)
    tails = np.where(z > 0, (1 + z**2 / CONTENTION_FREEDOM) ** (-(CONTENTION_FREEDOM + 1) / 2), np.exp(-(z**2) / 2))
    times = np.linspace(-3.0, 3.0, 7)
    contention, worker = (grid.ravel() for grid in np.meshgrid(CONTENTION_SCALE * z, own * times, indexing="ij"))
    weights = np.outer(tails * np.cosh(reach), np.exp(-(times**2) / 2)).ravel()
    alone = replace(fitted, measured=tuple(p for p in fitted.measured if is_untraced(p, fitted.servers.count)))
    shared, unshared = (
        replace(alone, draws=alone.demands.scaled(server=np.exp(factor), worker=np.exp(worker)))
        for factor in (contention, 0.0 * contention)
    )
    saturation = {
        scenario: TrainingModel(alone, scenario=scenario).throughput([1]).saturation_workers
        for scenario in {one for one, _ in sites}
    }
    logs, sampled, error = [], [], []
    for scenario, n in sites:
        of_grid = TrainingModel(shared if n > 1 else unshared, scenario=scenario)  # one worker shares nothing
        model = TrainingModel(alone, scenario=scenario)
        logs.append(np.log(of_grid.drawn(np.array([n]))[0]))
        sampled.append(np.log(model.drawn(np.array([n]))[0]))
        error.append(float(model.own_error(np.array([n]), saturation[scenario])[0]))
    every, share = np.array(logs).T, weights / weights.sum()
    varied = np.sqrt(share @ (every - share @ every) ** 2)
    return PriorPredictive(
        contention,
        worker,
        Ensemble.before(
            every,
            weights,
            error=np.sqrt(np.maximum(np.square(error) - varied**2, np.square(error) / 4)),
            noise=np.array([TWO_WORKERS_ERROR if n == 2 else THROUGHPUT_ERROR for _, n in sites]),
            correlation=_correlation(sites),
            own=np.atleast_2d(np.cov(sampled)),
        ),
    )


def _correlation(sites: Sequence[Site]) -> np.ndarray:
    """Of the errors at the sites, shape (P, P)."""
    alike = np.array([[one == other for one, _ in sites] for other, _ in sites])
    return workers_correlation(np.array([n for _, n in sites]), doubling("mva")) * np.where(alike, 1.0, OTHER_MACHINES)
