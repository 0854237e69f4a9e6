"""What one training step needs of each machine, and the stations of the servers that serve it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ...base.errors import ModelError
from ...profile.scenario import Scenario

Form = Literal["links", "single"]

#: What each form of the network has as stations, and which demands each serves.
FORMS: dict[str, dict[str, tuple[str, ...]]] = {
    "links": {"transmit link": ("fetch",), "receive link": ("push",), "server update": ("update",)},
    "single": {"parameter server": ("fetch", "push", "update")},
}


@dataclass(frozen=True, slots=True, eq=False)
class Demands:
    """Service demands of one worker's step, as if it were alone in the cluster: seconds, arrays of one shape (...)."""

    fetch: np.ndarray  # fetch, push, update: On the server's transmit link, its receive link and its update processor
    push: np.ndarray
    update: np.ndarray
    #: Of the worker alone, already corrected for overlap; where workers differ with a last axis, one for each
    worker: np.ndarray

    def __post_init__(self) -> None:
        for name in self.__slots__:
            array = np.array(getattr(self, name), dtype=float)
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @property
    def server(self) -> np.ndarray:
        """Seconds of a step at the servers."""
        return self.fetch + self.push + self.update

    @property
    def total(self) -> np.ndarray:
        """Seconds that a step takes one worker."""
        return self.server + self.worker

    def scaled(self, *, server: np.ndarray | float, worker: np.ndarray | float) -> Demands:
        """Factors on everything at the servers, and on the worker's own time."""
        return Demands(self.fetch * server, self.push * server, self.update * server, self.worker * worker)

    def with_worker(self, worker: np.ndarray) -> Demands:
        """Another time of the worker alone; overlap can use up all of it, but no more."""
        return replace(self, worker=np.maximum(worker, 0.0))


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers' stations: of what form, and which share of the parameters each server has."""

    form: Form = "links"
    shards: tuple[float, ...] = (1.0,)

    @property
    def count(self) -> int:
        """How many servers share the parameters."""
        return len(self.shards)

    def changed(self, scenario: Scenario, tensor_bytes: tuple[int, ...] = ()) -> Servers:
        """These, or those specified instead, to which tensors are dealt round robin."""
        if scenario.shards is not None:
            return replace(self, shards=scenario.shards)
        count = scenario.parameter_servers
        if count in (None, self.count):
            return self
        if not tensor_bytes:
            return replace(self, shards=uneven_shards(count))
        totals = [sum(tensor_bytes[server::count]) for server in range(count)]
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
        """Seconds per step at each station, shape (..., K)."""
        phases = [sum(getattr(demands, name) for name in served) for served in FORMS[self.form].values()]
        return np.concatenate([np.stack(phases, axis=-1) * share for share in self.shards], axis=-1)


def largest_share(servers: int) -> float:
    """Share of the busiest of P servers when tensor sizes are not known: P**-0.8, as tensors are uneven (assumed)."""
    return float(servers**-0.8)


def uneven_shards(servers: int) -> tuple[float, ...]:
    """Shares of several servers when tensor sizes are not known: the first is the largest, the others equal."""
    first = largest_share(servers)
    return (first, *[(1.0 - first) / max(servers - 1, 1)] * (servers - 1))
