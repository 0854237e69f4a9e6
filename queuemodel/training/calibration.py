"""What measured throughputs add to profiled steps: the cost of tracing, and contention between several workers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .changes import Changes
from .demands import Demands
from .ensemble import Bend
from .fitted import Fitted
from .job import Throughput
from .model import TrainingModel
from .pace import NOTHING
from .parameters import Parameter
from .predictive import THROUGHPUT_ERROR, Thought, beyond_one, doubted, given, is_untraced, of_steps, site_of
from .step_fit import CONTENTION
from .throughputs import doubt

#: Numbers of workers at which the curve is bent to what was measured; between them the bend is interpolated, and beyond
#: them it stays.
KNOTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64)


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
    if untraced is None or recorded is None:
        return fitted
    # The steps tell what links demand, the throughput tells a step's length.
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


def calibrate(fitted: Fitted, *, seed: int) -> Fitted:
    """
    Have the network meet measured throughputs, as far as its own error, and theirs, make that likely.

    The servers' demands may be longer while workers share them, the worker's time may be another one, and the network
    errs whatever these are: most near the knee, hardly alike at half or twice as many workers. A measurement is weighed
    against all of these by likelihood (Kennedy and O'Hagan, 2001): it moves the demands, and bends the curve of the
    machines that were measured where they were, by the correlation of errors elsewhere.
    """
    points = beyond_one(fitted)
    measured = [p.workers for p in points if site_of(p)[0] == _here(fitted)]
    at = np.array(sorted({*KNOTS, *measured}))
    thought = of_steps(fitted, [*map(site_of, points), *((_here(fitted), n) for n in at.tolist())])
    after = given(thought.ensemble, points)
    contention, worker, error, before = _moments(thought, after.models)
    count = len(fitted.draws.worker)
    drawn = np.minimum(
        np.searchsorted(np.cumsum(after.models), (np.arange(count) + 0.5) / count), len(after.models) - 1
    )
    drawn = np.random.default_rng(seed).permutation(drawn)
    demands = fitted.demands.scaled(server=math.exp(contention), worker=math.exp(worker))
    here = TrainingModel(replace(fitted, demands=demands))
    wrong = doubted(thought.ensemble, points)
    return replace(
        fitted,
        demands=demands,
        draws=fitted.draws.scaled(server=np.exp(thought.contention[drawn]), worker=np.exp(thought.worker[drawn])),
        doubted=None,  # as far as it slows workers, the measurements have it
        uncalibrated=fitted,
        bend=Bend(at, np.log(here.pace(at).X), after.at(range(len(points), len(points) + len(at)))),
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


def _here(fitted: Fitted) -> Changes:
    return Changes(parameter_servers=fitted.servers.count)


def _moments(thought: Thought, weights: np.ndarray) -> tuple[float, float, float, float]:
    """Means of the logarithms of both factors, and the standard deviation of contention's: now, and before."""
    contention, worker = float(weights @ thought.contention), float(weights @ thought.worker)
    now, before = (
        math.sqrt(share @ (thought.contention - share @ thought.contention) ** 2)
        for share in (weights, thought.ensemble.models)
    )
    return contention, worker, now, before
