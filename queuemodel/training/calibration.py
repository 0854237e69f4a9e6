"""What measured throughputs add to profiled steps: the cost of tracing, and contention between several workers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .demands import Demands
from .fitted import Fitted
from .job import Throughput
from .model import TrainingModel
from .model_error import REGIONS, model_error
from .pace import NOTHING
from .parameters import Parameter, spread
from .step_fit import CONTENTION
from .throughputs import doubt

#: Relative standard error of one measured throughput (2 to 4 % in a minute's run).
THROUGHPUT_ERROR = 0.03

#: Degrees of freedom of Student's law for the logarithm of what contention makes of the servers' demands, against one
#: worker's profile: as wide as the model errs beyond the knee, mostly little, but now and then a lot (assumed).
CONTENTION_FREEDOM = 3.0

#: A measured throughput that is off by more than this many errors is wrong.
DOUBTFUL = 3.0

#: Sharing a link does not speed it up: how far the profile's demands may have been too long.
RELIEF_SPREAD = 0.05


def untraced_throughput(measured: Sequence[Throughput], servers: int) -> float | None:
    """Mean measured steps per second of one worker, which tracing did not slow; None where there is none."""
    alone = [point.steps_per_second for point in measured if _untraced(point, servers)]
    return float(np.mean(alone)) if alone else None


def _untraced(point: Throughput, servers: int) -> bool:
    return (point.workers, point.parameter_servers, point.bandwidth) == (1, servers, None)


def goes_further(measured: Sequence[Throughput], servers: int) -> bool:
    """Whether anything was measured but one worker on the profiled machines."""
    return not all(_untraced(point, servers) for point in measured)


def without_tracing(fitted: Fitted, *, seed: int) -> Fitted:
    """Take off the worker's own time what tracing cost, known from one worker's throughput: links do not trace."""
    untraced, recorded = untraced_throughput(fitted.measured, fitted.servers.count), fitted.recorded
    if untraced is None or recorded is None:
        return fitted
    # The steps tell what links demand, the throughput tells a step's length.
    errors = [p.relative_error(THROUGHPUT_ERROR) for p in fitted.measured if _untraced(p, fitted.servers.count)]
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
    """Scale the servers' demands and the worker's time to meet measured throughputs as well."""
    from scipy.optimize import least_squares

    points = sorted(fitted.measured, key=_machines)
    groups = {machines: list(group) for machines, group in itertools.groupby(points, key=_machines)}
    worker = float(fitted.demands.worker)
    uncertain = min(spread(fitted.draws.worker) / max(worker, 1e-12), 1.0)  # no time of its own: no factor on it
    usual, own = float(model_error("mva", np.array([REGIONS["beyond"]]))[0]), math.hypot(0.05, uncertain)

    def scaled(logs: np.ndarray) -> Fitted:
        return replace(fitted, demands=fitted.demands.scaled(server=np.exp(logs[0]), worker=np.exp(logs[1])))

    def differences(logs: np.ndarray) -> np.ndarray:
        model = TrainingModel(scaled(logs))
        parts = []
        for (servers, bandwidth), group in groups.items():
            workers, at = np.unique([p.workers for p in group], return_inverse=True)
            X = model.what_if(parameter_servers=servers, bandwidth=bandwidth or None).pace(workers).X
            parts.append(np.log(X[at] / [p.steps_per_second for p in group]))
        return np.concatenate(parts)

    # Around the knee the model itself errs, whatever its parameters: no point is trusted beyond that.
    beyond = np.array([not _untraced(p, fitted.servers.count) for p in points])
    noise = [p.relative_error(THROUGHPUT_ERROR) for p in points]
    saturation = TrainingModel(fitted).throughput([1]).saturation_workers
    models_own = model_error("mva", np.array([p.workers for p in points]) / saturation)
    trusted = np.hypot(noise, np.where(beyond, models_own, 0.0))

    def residuals(logs: np.ndarray) -> np.ndarray:
        contended = math.sqrt((CONTENTION_FREEDOM + 1) * math.log1p((logs[0] / usual) ** 2 / CONTENTION_FREEDOM))
        prior = [contended if logs[0] > 0 else logs[0] / RELIEF_SPREAD, logs[1] / own]
        return np.concatenate([prior, _bounded(differences(logs) / trusted)])

    found = least_squares(residuals, np.zeros(2))
    # intervals have the model's own error besides: the draws vary as measurements do
    slopes = found.jac[2:] * (trusted / np.array(noise))[:, None]
    covariance = np.linalg.inv(found.jac[:2].T @ found.jac[:2] + slopes.T @ slopes)
    logs = np.random.default_rng(seed).multivariate_normal(found.x, covariance, len(fitted.draws.worker))
    contention, error = math.exp(found.x[0]), math.sqrt(covariance[0, 0])
    off = differences(found.x)
    sound = np.abs(off / trusted) <= DOUBTFUL
    doubted = [point for point, good in zip(points, sound, strict=True) if not good]
    return replace(
        scaled(found.x),
        draws=_mean(fitted.draws).scaled(server=np.exp(logs[:, 0]), worker=np.exp(logs[:, 1])),
        misfit=float(np.sqrt(np.mean(off[sound] ** 2))) if sound.any() else float(models_own.max()),
        others=(
            *(p for p in fitted.others if p.name != CONTENTION.name),
            Parameter(
                CONTENTION.name, contention, "", standard_error=contention * error, origin="measured",
                identified=error < 0.7 * usual,  # 0.87 without a measurement
                note="factor on the servers' demands against one worker's profile",
            ),
        ),
        note=doubt(doubted, "the profile and the other measurements") if doubted else "",
    )  # fmt: skip


def _machines(point: Throughput) -> tuple[int, float]:
    """On which servers and links it was measured; 0: links as profiled."""
    return point.parameter_servers, point.bandwidth or 0.0


def _bounded(residuals: np.ndarray) -> np.ndarray:
    """Residuals whose squares grow like a logarithm beyond `DOUBTFUL`, so that one wrong point does not take over."""
    size = np.maximum(np.abs(residuals) / DOUBTFUL, 1.0)
    return np.where(size > 1.0, np.sign(residuals) * DOUBTFUL * np.sqrt(1.0 + 2.0 * np.log(size)), residuals)


def _mean(draws: Demands) -> Demands:
    return Demands(draws.fetch.mean(), draws.push.mean(), draws.update.mean(), draws.worker.mean())
