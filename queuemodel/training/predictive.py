"""What a fitted network thinks of throughput where it could be measured: its draws, with its own error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .calibration import THROUGHPUT_ERROR
from .changes import Changes
from .ensemble import OTHER_MACHINES, Ensemble, workers_correlation
from .model import TrainingModel
from .model_error import doubling
from .parameters import normal_quantile

#: Relative error of one measurement of two asynchronous workers, whose phases drift too slowly for its window: repeated
#: on the testbed, it differs by 8 %.
TWO_WORKERS_ERROR = 0.08

#: Correlation of the errors of fits of throughputs alone for each doubling of the workers (assumed).
DRIFTING = 0.75

CONFIDENCE = 0.9

#: Draws that are kept.
DRAWS = 100


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
    fitted = replace(model, changes=Changes())
    logs, error, noise = [], [], []
    sites = [(fitted.what_if(bandwidth=bandwidth), n) for n, bandwidth in places] + [(model, n) for n in asked]
    for machines, n in sites:
        drawn = np.log(machines.drawn(np.array([n]))[0])
        logs.append(drawn[np.linspace(0, len(drawn) - 1, min(DRAWS, len(drawn))).astype(int)])
        error.append(_own_error(machines, n, drawn))
        noise.append(TWO_WORKERS_ERROR if n == 2 and model.fitted.recorded else THROUGHPUT_ERROR)
    workers = np.array([n for _, n in sites])
    others = model.changes.other_machines(model.fitted) or model.servers != model.fitted.servers
    kinds = [*[bandwidth or 0.0 for _, bandwidth in places], *[-1.0 if others else 0.0] * len(asked)]
    apart = doubling("mva") if model.fitted.recorded else DRIFTING
    alike = np.equal.outer(kinds, kinds)
    return Ensemble.before(
        np.array(logs).T,
        np.ones(len(logs[0])),
        error=np.array(error),
        noise=np.array(noise),
        correlation=workers_correlation(workers, apart) * np.where(alike, 1.0, OTHER_MACHINES),
    )


def _own_error(model: TrainingModel, workers: int, drawn: np.ndarray) -> float:
    """Relative standard error of the model itself: what its interval has beyond that of logarithms of draws (B,)."""
    curve = model.throughput([workers], confidence=CONFIDENCE)
    whole, sampled = np.log(curve.upper[0]), np.quantile(drawn, 0.5 + CONFIDENCE / 2)
    middle = np.log(curve.steps_per_second[0])
    return float(np.sqrt(max((whole - middle) ** 2 - (sampled - middle) ** 2, 0.0))) / normal_quantile(CONFIDENCE)
