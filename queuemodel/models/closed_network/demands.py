"""Service demands of a training step, and the servers' stations that they are served at."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ...base.errors import ModelError
from ...profile.scenario import Scenario

Form = Literal["links", "single"]

#: Stations of each form of the network, and the demands that each serves.
FORMS: dict[str, dict[str, tuple[str, ...]]] = {
    "links": {"transmit link": ("fetch",), "receive link": ("push",), "server update": ("update",)},
    "single": {"parameter server": ("fetch", "push", "update")},
}


@dataclass(frozen=True, slots=True, eq=False)
class Demands:
    """Service demands per step, without contention: seconds, arrays of one shape (...)."""

    fetch: np.ndarray  # On the server's transmit link
    push: np.ndarray  # On its receive link
    update: np.ndarray  # On its update processor
    worker: np.ndarray  # Of the worker alone, less overlap; where workers differ with a last axis, one for each

    def __post_init__(self) -> None:
        for name in self.__slots__:
            array = np.array(getattr(self, name), dtype=float)
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @property
    def server(self) -> np.ndarray:
        """Demand at all servers."""
        return self.fetch + self.push + self.update

    @property
    def total(self) -> np.ndarray:
        """Step time of one worker."""
        return self.server + self.worker

    def with_worker(self, worker: np.ndarray) -> Demands:
        """Demands with another worker time, at least 0."""
        return replace(self, worker=np.maximum(worker, 0.0))  # overlap uses up all of it at most


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers' stations: their form, and the share of the parameters on each server."""

    form: Form = "links"
    shards: tuple[float, ...] = (1.0,)

    @property
    def count(self) -> int:
        """Number of servers that share the parameters."""
        return len(self.shards)

    def changed(self, scenario: Scenario, tensor_bytes: tuple[int, ...] = ()) -> Servers:
        """The servers of a scenario; tensors are dealt round robin."""
        if scenario.shards is not None:
            return replace(self, shards=scenario.shards)
        count = scenario.parameter_servers
        if count in (None, self.count):
            return self
        if not tensor_bytes:
            return replace(self, shards=uneven_shards(count))
        totals = [sum(tensor_bytes[server::count]) for server in range(count)]  # tensor i on server i mod P
        if not all(totals):
            raise ModelError(
                f"parameter_servers must be at most the number of tensors, {len(tensor_bytes)}, got {count}"
            )
        return replace(self, shards=tuple(total / sum(totals) for total in totals))

    @property
    def stations(self) -> tuple[str, ...]:
        """K names, one server's after the other's."""
        names = FORMS[self.form]
        if self.count == 1:
            return tuple(names)
        return tuple(f"{name} {server}" for server in range(self.count) for name in names)

    def service_demand(self, demands: Demands) -> np.ndarray:
        """Demand at each station, shape (..., K)."""
        phases = [sum(getattr(demands, name) for name in served) for served in FORMS[self.form].values()]
        return np.concatenate([np.stack(phases, axis=-1) * share for share in self.shards], axis=-1)


def largest_share(servers: int) -> float:
    """Share of the busiest of P servers when tensor sizes are not known: P**-0.8 (assumed)."""
    return float(servers**-0.8)  # more than 1 / P: tensors are uneven


def uneven_shards(servers: int) -> tuple[float, ...]:
    """Shares of several servers when tensor sizes are not known: the first is the largest, the others equal."""
    first = largest_share(servers)
    return (first, *[(1.0 - first) / max(servers - 1, 1)] * (servers - 1))
