"""What-ifs: other machines for the same job, all told against the machines of the profile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..checks import require_count, require_number
from ..errors import ModelError
from .demands import Demands, Servers, uneven_shards
from .parameters import Recorded

#: Share of a link's nominal bandwidth that carries tensors: what is left of 1514 bytes on the wire after Ethernet, IP,
#: TCP (with timestamps) and gRPC headers.
LINK_EFFICIENCY = 0.95

#: More servers, and bytes per second, than these are typing mistakes.
MOST_SERVERS, MOST_BANDWIDTH = 1000, 1e15


@dataclass(frozen=True, slots=True)
class Changes:
    """What a cluster has that the profiled one had not (None, 1 and empty: as profiled); see `TrainingModel.what_if`.

    Each is told against the profile, so that their order does not matter.
    """

    bandwidth: float | None = None
    parameter_servers: int | None = None
    shards: tuple[float, ...] = ()
    batch_size: int | None = None
    accelerator_speed: float = 1.0
    worker_speeds: tuple[float, ...] = ()

    def and_also(
        self,
        *,
        bandwidth: float | None,
        parameter_servers: int | None,
        shards: Iterable[float] | None,
        batch_size: int | None,
        accelerator_speed: float | None,
        worker_speeds: Iterable[float] | None,
    ) -> Changes:
        """These changes with others; factors of the accelerator's speed multiply, everything else replaces."""
        asked: dict[str, Any] = {}
        if bandwidth is not None:
            asked["bandwidth"] = _positive(bandwidth, "bandwidth", unit="bytes per second", largest=MOST_BANDWIDTH)
        if batch_size is not None:
            asked["batch_size"] = require_count(batch_size, "what_if: batch_size", most=2**62)
        if accelerator_speed is not None:
            asked["accelerator_speed"] = self.accelerator_speed * _positive(accelerator_speed, "accelerator_speed")
        if worker_speeds is not None:
            asked["worker_speeds"] = _all_positive(worker_speeds, "worker_speeds")
        if parameter_servers is not None:
            count = require_count(parameter_servers, "what_if: parameter_servers", most=MOST_SERVERS)
            asked |= {"parameter_servers": count, "shards": ()}
        if shards is not None:
            weights = _all_positive(shards, "shards")
            if parameter_servers not in (None, len(weights)):
                raise ModelError(f"what_if: {len(weights)} shards do not fit {parameter_servers} parameter_servers")
            asked |= {"parameter_servers": None, "shards": tuple(w / sum(weights) for w in weights)}
        return replace(self, **asked)

    def servers(self, profiled: Servers, tensor_bytes: tuple[int, ...]) -> Servers:
        """The servers after the change."""
        if self.shards:
            return replace(profiled, shards=self.shards)
        if self.parameter_servers in (None, profiled.count):
            return profiled
        return replace(profiled, shards=_dealt(tensor_bytes, int(self.parameter_servers or 1)))

    def compute_factor(self, batch_size: int) -> float:
        """How much longer computation takes than with the profile's batch size and accelerator."""
        return (self.batch_size or batch_size) / batch_size / self.accelerator_speed


def with_bandwidth(demands: Demands, bandwidth: float, recorded: Recorded) -> Demands:
    """Demands when each host's link has another nominal bandwidth, in bytes per second.

    The part of the profiled transfer time that the profiled link explains is replaced, the rest is kept. Each second of
    transfer hides as much computation as before: a faster link hides less.
    """

    def transfer(old: np.ndarray, size: float) -> np.ndarray:
        link = size / LINK_EFFICIENCY
        # all of the measured time is taken as the link's where its bandwidth is not known
        host = 0.0 * old if recorded.bandwidth is None else np.maximum(old - link / recorded.bandwidth, 0.0)
        return host + link / bandwidth

    fetch, push = (transfer(d, s) for d, s in zip((demands.fetch, demands.push), recorded.transferred, strict=True))
    before, after = demands.fetch + demands.push, fetch + push
    longer = np.where(before > 0, after / np.where(before > 0, before, 1.0), 1.0)
    hidden = np.maximum(recorded.compute - demands.worker, 0.0)
    return replace(demands, fetch=fetch, push=push).with_worker(demands.worker + hidden * (1.0 - longer))


def _dealt(tensor_bytes: tuple[int, ...], servers: int) -> tuple[float, ...]:
    """Shares of servers that tensors are dealt to round robin; without tensor sizes, a typical unevenness."""
    if not tensor_bytes:
        return uneven_shards(servers)
    totals = [sum(tensor_bytes[server::servers]) for server in range(servers)]
    if not all(totals):
        raise ModelError(
            f"what_if: parameter_servers must be at most the number of tensors, {len(tensor_bytes)}, got {servers}"
        )
    return tuple(total / sum(totals) for total in totals)


def _positive(value: Any, what: str, **limits: Any) -> float:
    return require_number(value, f"what_if: {what}", positive=True, **limits)


def _all_positive(values: Iterable[float], what: str) -> tuple[float, ...]:
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes)):
        raise ModelError(f"what_if: {what} must be a list of numbers, got {values!r}")
    numbers = tuple(_positive(value, what) for value in values)
    if not numbers:
        raise ModelError(f"what_if: {what} must be one number or more, got none")
    return numbers
