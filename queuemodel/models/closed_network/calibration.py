"""From profiled steps and measured throughputs to the closed network of a question, and why it has none.

Throughputs of one worker determine the cost of tracing; those of several condition predictions (`Model.throughput`).
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
from .model import THROUGHPUT_ERROR, ClosedNetworkModel
from .rules import NOTHING

METHOD, NEEDS = "mva", "a profile with recorded steps; import or record one"
#: Throughput over its upper bound, or outside its interval, that contradicts a profile: tracing makes steps longer.
IMPOSSIBLE, UNLIKELY = 2.0, 1.5


def refuses(data: Data, question: Scenario) -> str:
    """See `ModelKind`."""
    if not isinstance(data, Profile) or not data.steps or strategy_of(data, question) == "all-reduce":
        return OTHER_DATA
    return "" if question.synchronization.solvable else "has no closed network"


def of(data: Data, question: Scenario, measured: Sequence[Measurement], *, seed: int) -> ClosedNetworkModel:
    """See `ModelKind`; workers who wait for each other are conditioned by throughputs of the same synchronization."""
    profile, question = question.on(cast(Profile, data))
    waiting, synchronized = question.synchronization, list[Measurement]()
    if waiting != Synchronization():  # one worker waits for nobody: its throughput is of any synchronization
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
    worker time is what remains of the step: step time - fetch - push - update. TensorFlow overlaps computation with
    communication, so that this is less than the computation: only so does the model of one worker take the measured
    step time (validation/notes/model). One worker's throughput gives the cost of tracing; those of more workers
    condition predictions (`queuemodel.curves.prediction`). A throughput that the profile rules out is a `DataError`.
    """
    measured = on_profiled_links([*profile.throughputs, *throughputs], profile)
    fitted = fit_steps(profile, form=form, seed=seed)
    against = contradicted(measured, fitted, link_not_filled=best_rates(profile) is not None)
    fitted = replace(fitted, measured=tuple(measured), contradiction=against)
    return ClosedNetworkModel(without_tracing(fitted, seed=seed))


def contradicted(measured: Sequence[Measurement], fitted: Fitted, *, link_not_filled: bool) -> str:
    """Note where most throughputs are far from what steps alone predict, or ""; one above its bound is refused."""
    if link_not_filled:  # links carry more than one worker shows: nothing is ruled out
        return ""
    contradicting, rounds, servers = list[str](), True, fitted.servers.count
    speedup = max((untraced_throughput(measured, servers) or 0.0) * float(fitted.demands.total), 1.0)  # untraced/traced
    for point in measured:
        n, machines = point.workers, Scenario(bandwidth=point.bandwidth, parameter_servers=point.parameter_servers)
        curve = ClosedNetworkModel(fitted, scenario=machines).throughput([n])
        lower, upper, bound = (float(end[0]) for end in (curve.lower, curve.upper, curve.bound_upper))
        lower, upper = lower / UNLIKELY, UNLIKELY * upper
        x, examples = point.steps_per_second, point.steps_per_second / fitted.job.batch_size
        where = f"{x:.4g} steps/s with {counted(n, 'worker')}"
        as_examples = lower <= examples <= upper < x  # examples per second, where steps are asked for
        if x > IMPOSSIBLE * bound * (1.0 if as_examples else speedup):
            raise DataError(
                f"throughputs: {where}, but the profile allows {bound:.3g} at most; "
                + (f"{x:.4g} examples/s would be {examples:.3g} steps/s" if as_examples else "are they of another job?")
            )
        if not lower <= x <= upper:
            contradicting.append(where)
            rounds = rounds and lower <= n * x <= upper  # rounds per second: a step of each worker
    if 2 * len(contradicting) <= len(measured):
        return ""
    unit = "as rounds per second, times the workers, they do not" if rounds else "are they of another job?"
    return f"the throughputs contradict the profile ({', '.join(contradicting)}): {unit}"


def untraced_throughput(measured: Sequence[Measurement], servers: int) -> float | None:
    """Mean measured steps per second of one worker, which tracing did not slow; None where there is none."""
    points = _untraced(measured, servers)
    return float(np.mean([point.steps_per_second for point in points])) if points else None


def without_tracing(fitted: Fitted, *, seed: int) -> Fitted:
    """Take the cost of tracing, known from one worker's throughput, off the worker time: links do not trace."""
    untraced, recorded = untraced_throughput(fitted.measured, fitted.servers.count), fitted.recorded
    if untraced is None:
        return fitted
    # steps determine the links' demands, the throughput the step time 1 / X(1)
    errors = [p.relative_error(THROUGHPUT_ERROR) for p in _untraced(fitted.measured, fitted.servers.count)]
    error = math.hypot(*errors) / len(errors)  # of the mean of independent measurements
    factors = np.exp(error * np.random.default_rng(seed).standard_normal(len(fitted.draws.worker)))
    cost = float(fitted.demands.total) - 1.0 / untraced
    overhead = cost * untraced + 1.0  # traced over untraced step time
    note = "traced over untraced step time; the difference is taken off the worker's own time"
    parameter = Parameter("tracing overhead", overhead, "", standard_error=error * overhead, note=note)
    return replace(
        fitted,
        demands=_with_total(fitted.demands, np.array(1.0 / untraced)),
        draws=_with_total(fitted.draws, factors / untraced),
        recorded=replace(recorded, compute=max(recorded.compute - cost, 0.0)),
        others=(*fitted.others, parameter),
    )


def _with_total(demands: Demands, seconds: np.ndarray) -> Demands:
    """Demands that add up to ``seconds``: the worker time gives way, the servers' only when it is used up."""
    share = np.minimum(seconds / np.maximum(demands.server, NOTHING), 1.0)
    served = (demands.fetch * share, demands.push * share, demands.update * share)
    return Demands(*served, np.maximum(seconds - share * demands.server, 0.0))


def _untraced(measured: Sequence[Measurement], servers: int) -> list[Measurement]:
    """Measurements of one worker on the profiled machines and this number of servers."""
    return [p for p in measured if (p.workers, p.parameter_servers, p.bandwidth) == (1, servers, None)]
