"""Estimates with their intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...network import Solution
from ...results import Result


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SimulationResult(Result):
    """Estimates with their intervals; `solution` holds the means in the form of every other solver.

    Attributes
    ----------
    solution : Solution
    confidence : float
    throughput_interval : tuple of float
        Lower and upper end for the throughput of all customers; NaN when the run was too short to tell.
    queue_length_interval : ndarray, shape (2, K)
        The same for the queue lengths.
    replications : int
    warm_up : float
        Part of each replication that was left out at its beginning.
    events : int
        Departures simulated in all.
    replicated_throughputs : ndarray, shape (replications,)
    too_short : str
        What still depends on the start, and therefore has no interval; empty when nothing does.
    """

    solution: Solution
    confidence: float
    throughput_interval: tuple[float, float]
    queue_length_interval: np.ndarray
    replications: int
    warm_up: float
    events: int
    replicated_throughputs: np.ndarray
    too_short: str = ""

    @property
    def throughput(self) -> float:
        """Cycles per second, the mean over replications."""
        return self.solution.throughput

    def caption(self) -> str:
        """The estimate of the throughput, and how it was got."""
        low, high = self.throughput_interval
        known = "no interval: " + self.too_short if self.too_short else f"{low:.6g} to {high:.6g}"
        return (
            f"{self.solution.network.name or 'network'}: population {self.solution.population}, throughput "
            f"{self.throughput:.6g} /s ({known}), {self.confidence:.0%} confidence, {self.solution.solver}"
        )

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per station: utilization, and queue length with its interval."""
        s = self.solution
        measures = zip(s.network.names, s.utilization, s.queue_length, *self.queue_length_interval, strict=True)
        return [
            {"station": name}
            | {
                what: None if math.isnan(value) else float(value)
                for what, value in zip(("utilization", "queue_length", "lower", "upper"), values, strict=True)
            }
            for name, *values in measures
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `to_json` writes them."""
        low, high = (None if math.isnan(end) else end for end in self.throughput_interval)
        return {
            "solution": self.solution.to_dict(),
            "confidence": self.confidence,
            "throughput_interval": [low, high],
            "stations": self.to_rows(),
            "too_short": self.too_short,
        }
