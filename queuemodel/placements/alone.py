"""Steps on one GPU: the computation that every placement repeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import FitError
from .measured import PlacedStep


@dataclass(frozen=True, eq=False)
class Alone:
    """Steps on one GPU, shape (n,), by increasing batch size; linear between them."""

    batch_size: np.ndarray
    step_time: np.ndarray

    @property
    def span(self) -> str:
        """The batch sizes, for messages."""
        first, last = self.batch_size[[0, -1]]
        return f"{first}" if first == last else f"{first} to {last}"

    def covers(self, batch_size: int) -> bool:
        """Whether it lies among those measured."""
        return bool(self.batch_size[0] <= batch_size <= self.batch_size[-1])

    def at(self, batch_size: np.ndarray | int) -> np.ndarray:
        """Seconds."""
        return np.asarray(np.interp(batch_size, self.batch_size, self.step_time))


def steps_alone(points: Sequence[PlacedStep]) -> Alone:
    """What was measured on one GPU; repeated measurements count by their geometric mean (raises FitError)."""
    times: dict[int, list[float]] = {}
    for point in points:
        if point.gpus == 1:
            times.setdefault(point.batch_size, []).append(point.step_time)
    if not times:
        raise FitError("fit_placements: at least one step on one GPU must be measured, got none")
    sizes = sorted(times)
    return Alone(np.array(sizes), np.array([np.exp(np.log(times[size]).mean()) for size in sizes]))
