"""From profiled steps, and throughputs measured besides, to the closed network, where there is one.

Those of one worker determine the cost of tracing; those of several condition what is predicted (`Model.throughput`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import msgspec
import numpy as np

from ...base.errors import DataError
from ...base.estimates import Parameter
from ...base.files import constants
from ...base.results import counted
from ...profile.bandwidth import best_rates
from ...profile.measurements import Measurement
from ...profile.profile import Profile
from ...profile.scenario import Scenario
from ...profile.synchronization import Synchronization
from ...profile.throughputs import on_profiled_links
from ..model import OTHER_DATA, Data, changes_of, strategy_of
from .demands import Demands, Form
from .fit import Fitted, fit_steps, own_scv
from .model import ClosedNetworkModel
from .rules import NOTHING

#: How many times the upper bound, or what its interval has, a throughput may be: tracing makes steps longer.
IMPOSSIBLE, UNLIKELY = 2.0, 1.5

#: Measured and assumed numbers, with their sources: constants.toml.
_NUMBERS = constants(__package__)["calibration"]
ONE_WORKER_ERROR = _NUMBERS["throughput_error"]


METHOD, NEEDS = "mva", "a profile with recorded steps; import or record one"


def refuses(data: Data, question: Scenario) -> str:
    """See `ModelKind`."""
    if not isinstance(data, Profile) or not data.steps or strategy_of(data, question) == "all-reduce":
        return OTHER_DATA
    return "" if question.synchronization.solvable else "has no closed network"


def of(data: Data, question: Scenario, measured: Sequence[Measurement], *, seed: int) -> ClosedNetworkModel:
    """See `ModelKind`; workers who wait for each other are told by throughputs of their own kind alone."""
    profile, question = question.on(cast(Profile, data))
    waiting, synchronized = question.synchronization, list[Measurement]()
    if waiting != Synchronization():  # one worker waits for nobody
        synchronized = on_profiled_links([point for point in measured if point.workers > 1], profile)
        measured = [point for point in (*profile.throughputs, *measured) if point.workers == 1]
        profile = msgspec.structs.replace(profile, throughputs=[])
    network = fit_network(profile, throughputs=measured, form=cast(Form, question.form or "links"), seed=seed)
    return replace(
        network,
        compute_scv=own_scv(profile) if waiting.together else None,
        steps_per_round=0 if waiting.together else waiting.number,
        synchronized=tuple(synchronized),
    ).what_if(**changes_of(question))


def fit_network(
    profile: Profile, *, throughputs: Sequence[Measurement] = (), form: Form = "links", seed: int = 0
) -> ClosedNetworkModel:
    """Fit the closed network of a profile with recorded steps.

    Each demand is the mean over the steps of the time in which the link, or the server, was busy with this worker. The
    worker's own time is what remains of the step: step time - fetch - push - update. TensorFlow overlaps computation
    with communication, so that this is less than the computation: only so does the model take as long for one worker
    as was measured (validation/notes/model). One worker's throughput gives the cost of tracing; those of more workers
    condition what is predicted (`queuemodel.curves.prediction`).

    Raises
    ------
    DataError
        For a throughput that the profile rules out.
    """
    measured = on_profiled_links([*profile.throughputs, *throughputs], profile)
    fitted = fit_steps(profile, form=form, seed=seed)
    against = contradicted(measured, fitted, link_not_filled=best_rates(profile) is not None)
    return ClosedNetworkModel(
        without_tracing(replace(fitted, measured=tuple(measured), contradiction=against), seed=seed)
    )


def contradicted(measured: Sequence[Measurement], fitted: Fitted, *, link_not_filled: bool) -> str:
    """The note where most throughputs are far from the profile, by steps alone; empty for none.

    Raises
    ------
    DataError
        For one above the upper bound.
    """
    far, rounds, servers = [], True, fitted.servers.count
    faster = max((untraced_throughput(measured, servers) or 0.0) * float(fitted.demands.total), 1.0)  # untraced
    for point in measured:
        n, machines = point.workers, Scenario(bandwidth=point.bandwidth, parameter_servers=point.parameter_servers)
        curve = ClosedNetworkModel(fitted, scenario=machines).throughput([n])
        low, high, most = (float(end[0]) for end in (curve.lower, curve.upper, curve.bound_upper))
        low, high = low / UNLIKELY, UNLIKELY * high
        x, examples = point.steps_per_second, point.steps_per_second / fitted.job.batch_size
        as_examples = low <= examples <= high < x
        if x > IMPOSSIBLE * most * (1.0 if as_examples else faster) and not link_not_filled:
            raise DataError(
                f"throughputs: {x:.4g} steps/s with {counted(n, 'worker')}, but the profile allows {most:.3g} at most; "
                + (f"{x:.4g} examples/s would be {examples:.3g} steps/s" if as_examples else "are they of another job?")
            )
        if not low <= x <= high and not link_not_filled:
            far.append(point)
            rounds = rounds and low <= n * x <= high
    if 2 * len(far) <= len(measured):
        return ""
    named = ", ".join(f"{p.steps_per_second:.4g} steps/s with {counted(p.workers, 'worker')}" for p in far)
    unit = "as rounds per second, times the workers, they do not" if rounds else "are they of another job?"
    return f"the throughputs contradict the profile ({named}): {unit}"


def untraced_throughput(measured: Sequence[Measurement], servers: int) -> float | None:
    """Mean measured steps per second of one worker, which tracing did not slow; None where there is none."""
    alone = [point.steps_per_second for point in measured if is_untraced(point, servers)]
    return float(np.mean(alone)) if alone else None


def without_tracing(fitted: Fitted, *, seed: int) -> Fitted:
    """Take off the worker's own time what tracing cost, known from one worker's throughput: links do not trace."""
    untraced, recorded = untraced_throughput(fitted.measured, fitted.servers.count), fitted.recorded
    if untraced is None:
        return fitted
    # The steps determine the links' demands, the throughput a step's length.
    errors = [p.relative_error(ONE_WORKER_ERROR) for p in fitted.measured if is_untraced(p, fitted.servers.count)]
    error = math.hypot(*errors) / len(errors)
    length = np.exp(error * np.random.default_rng(seed).standard_normal(len(fitted.draws.worker)))
    saved = float(fitted.demands.total) - 1.0 / untraced
    return replace(
        fitted,
        demands=_with_total(fitted.demands, np.array(1.0 / untraced)),
        draws=_with_total(fitted.draws, length / untraced),
        recorded=replace(recorded, compute=max(recorded.compute - saved, 0.0)),
        others=(
            *fitted.others,
            Parameter(
                "tracing overhead", saved * untraced + 1.0, "", standard_error=error * (saved * untraced + 1.0),
                note="traced over untraced step time; the difference is taken off the worker's own time",
            ),
        ),
    )  # fmt: skip


def _with_total(demands: Demands, seconds: np.ndarray) -> Demands:
    """Demands that add up to so many seconds: the worker's own time gives way, the servers' only when it is used up."""
    share = np.minimum(seconds / np.maximum(demands.server, NOTHING), 1.0)
    return demands.scaled(server=share, worker=1.0).with_worker(seconds - share * demands.server)


def is_untraced(point: Measurement, servers: int) -> bool:
    """Whether it is of one worker on the profiled machines, on so many servers."""
    return (point.workers, point.parameter_servers, point.bandwidth) == (1, servers, None)
