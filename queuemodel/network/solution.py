"""What solving a closed network yields: measures for every population up to the one asked for."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ModelError
from ..files import write_atomically
from ..tables import html_table, text_table
from .network import Network

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """Steady-state measures of a network with populations 1 to `population`.

    Only throughputs and residence times are stored; everything else follows from them by Little's law.

    Attributes
    ----------
    network : Network
    population : int
        The population asked for: the measures without an *s* are those of this population.
    throughputs : ndarray, shape (population,)
        Cycles per second at populations 1, 2, ..., `population`.
    residence_times : ndarray, shape (population, K)
        Seconds per cycle at each station, waiting and in service.
    solver : str
        The solver's name, with its parameters.
    exact : bool
        Whether the answer is exact for a product-form network (up to rounding), or an approximation.
    """

    network: Network
    population: int
    throughputs: np.ndarray
    residence_times: np.ndarray
    solver: str
    exact: bool

    def __post_init__(self) -> None:
        for array in (self.throughputs, self.residence_times):
            array.flags.writeable = False

    @property
    def throughput(self) -> float:
        """Cycles per second."""
        return float(self.throughputs[-1])

    @property
    def residence_time(self) -> np.ndarray:
        """Seconds per cycle at each station, shape (K,)."""
        return self.residence_times[-1]

    @property
    def response_time(self) -> float:
        """Seconds per cycle at all stations together."""
        return float(self.residence_time.sum())

    @property
    def cycle_time(self) -> float:
        """Seconds per cycle: response time and think time."""
        return self.response_time + self.network.think_time

    @property
    def queue_length(self) -> np.ndarray:
        """Mean customers waiting and in service at each station, shape (K,); X R_k by Little's law."""
        return self.throughput * self.residence_time

    @property
    def utilization(self) -> np.ndarray:
        """Busy share of each station's server, shape (K,), X D_k; for a delay station the mean number in service."""
        return self.throughput * self.network.service_demand

    @property
    def bottleneck(self) -> str | None:
        """The queueing station with the largest service demand; None when nobody queues anywhere."""
        demand = np.where(self.network.is_delay, 0.0, self.network.service_demand)
        return self.network.names[int(demand.argmax())] if demand.any() else None

    def at(self, population: int) -> Solution:
        """The same solution at a smaller population, without solving again."""
        if not 1 <= population <= self.population:
            raise ModelError(f"solution: population must be 1 to {self.population}, got {population!r}")
        return replace(
            self,
            population=population,
            throughputs=self.throughputs[:population],
            residence_times=self.residence_times[:population],
        )

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per station: the measures at `population`."""
        columns = zip(self.network.stations, self.utilization, self.queue_length, self.residence_time, strict=True)
        return [
            {
                "station": station.name,
                "service_demand": station.service_demand,
                "utilization": float(U),
                "queue_length": float(Q),
                "residence_time": float(R),
            }
            for station, U, Q, R in columns
        ]

    def to_frame(self) -> pandas.DataFrame:
        """One row per population: throughput, cycle time, and per station queue length and utilization."""
        import pandas

        X, R, D = self.throughputs, self.residence_times, self.network.service_demand
        columns: dict[str, Any] = {
            "population": np.arange(1, self.population + 1),
            "throughput": X,
            "cycle_time": R.sum(axis=1) + self.network.think_time,
        }
        for k, name in enumerate(self.network.names):
            columns[f"queue_length[{name}]"] = X * R[:, k]
            columns[f"utilization[{name}]"] = X * D[k]
        return pandas.DataFrame(columns)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `to_json` writes them."""
        return {
            "solver": self.solver,
            "exact": self.exact,
            "population": self.population,
            "throughput": self.throughput,
            "cycle_time": self.cycle_time,
            "bottleneck": self.bottleneck,
            "stations": self.to_rows(),
        }

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """JSON of the measures at `population`; also written to ``path`` when one is given."""
        text = json.dumps(self.to_dict(), indent=1)
        if path is not None:
            write_atomically(path, text + "\n")
        return text

    def _caption(self) -> str:
        return (
            f"{self.network.name or 'network'}: population {self.population}, throughput {self.throughput:.6g} /s, "
            f"cycle time {self.cycle_time:.6g} s ({self.solver}, {'exact' if self.exact else 'approximate'})"
        )

    def __repr__(self) -> str:
        return f"{self._caption()}\n{text_table(self.to_rows())}"

    def _repr_html_(self) -> str:
        return html_table(self.to_rows(), caption=self._caption())
