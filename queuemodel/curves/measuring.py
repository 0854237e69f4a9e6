"""What to measure next: the cheap run that narrows the interval of a curve's largest number of workers most."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.errors import ModelError
from ..base.files import constants
from ..base.results import Result, counted, percent

#: Curves, whose captions call these functions and so import them.
ThroughputCurve = Any

_NUMBERS = constants(__package__)["measuring"]
CHEAP_NODES, MIN_NARROWING, ENOUGH = (_NUMBERS[name] for name in ("cheap_nodes", "min_narrowing", "enough"))
MOST_CANDIDATES = 12


@dataclass(frozen=True, repr=False)
class NextMeasurement(Result):
    """Which number of workers to measure next, and why."""

    workers: int | None  #: None where no cheap run is more informative than what was measured.
    reason: str
    nodes: int | None = None  #: Where workers are GPUs of whole nodes.

    def to_rows(self) -> list[dict[str, Any]]:
        nodes = {} if self.nodes is None else {"nodes": self.nodes}
        return [{"workers": self.workers, **nodes, "reason": self.reason}]

    @property
    def run(self) -> str:
        """Its size in words; "" for none."""
        if not self.workers or not self.nodes:
            return counted(self.workers, "worker") if self.workers else ""
        return f"{counted(self.nodes, 'node')} ({counted(self.workers, 'GPU')})"

    def caption(self) -> str:
        what = f"{self.run} for a minute" if self.workers else "nothing"
        return f"measure next: {what} ({self.reason})"

    def _shown_rows(self) -> list[dict[str, Any]]:
        return []  # nothing beside the caption


def next_measurement(curve: ThroughputCurve) -> NextMeasurement:
    """
    Choose the number of workers to measure next for a minute, on the measured machines.

    Of runs larger than those measured and on at most half of the curve's nodes, it is the smallest that narrows the
    interval at the curve's largest number of workers nearly as much as the best one
    (`queuemodel.curves.prediction.Prediction.expected_deviation`).

    Parameters
    ----------
    curve : ThroughputCurve
        Of a profile or a table of measurements, from `predict` or a model's `throughput`; without its model a
        `ModelError`.

    Examples
    --------
    >>> import queuemodel as qm
    >>> rows = [qm.Measurement(workers=8 * n, nodes=n, steps_per_second=x) for n, x in [(1, 50.0), (2, 82.0)]]
    >>> print(qm.next_measurement(qm.fit(rows).throughput([128])).caption())
    measure next: 7 nodes (56 GPUs) for a minute (narrows the interval of 128 workers by about 56 %)
    """
    if curve.model is None:
        raise ModelError("next_measurement: the curve has no model; give one of predict, as it was predicted")
    most, each = int(curve.workers[-1]), curve.workers_per_node
    if curve.profiled_workers == 0:
        return NextMeasurement(None, "not measured on such machines")
    measured, asked = curve.profiled_workers // each, math.ceil(most / each)
    largest = max(math.ceil(asked / 2), min(CHEAP_NODES, asked))
    if measured >= largest:
        return NextMeasurement(None, f"{counted(curve.profiled_workers, 'worker')} were measured")
    nodes = np.unique(np.geomspace(measured + 1, largest, MOST_CANDIDATES).round().astype(int))
    gain = _narrowing(curve, np.minimum(nodes * each, most))
    if gain.max() < MIN_NARROWING:
        runs = f"runs of up to {counted(min(largest * each, most), 'worker')}"
        return NextMeasurement(None, f"{runs} narrow the interval of {most} workers by {percent(gain.max())} at most")
    best = int(np.argmax(gain >= ENOUGH * gain.max()))
    reason = f"narrows the interval of {most} workers by about {percent(round(gain[best], 2))}"
    return NextMeasurement(int(min(nodes[best] * each, most)), reason, int(nodes[best]) if each > 1 else None)


def _narrowing(curve: ThroughputCurve, runs: np.ndarray) -> np.ndarray:
    """By what share (n,) a measurement of each run is expected to narrow the interval of the largest number."""
    outcome = curve.model.posterior(np.union1d(runs, curve.workers[-1:]))
    place = int(np.searchsorted(outcome.workers, curve.workers[-1]))
    before, after = outcome.prediction.expected_deviation(place, outcome.noise)
    return np.asarray(1.0 - after[np.searchsorted(outcome.workers, runs)] / before)
