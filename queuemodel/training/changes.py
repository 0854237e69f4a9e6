"""What-ifs: other machines for the same job, all told against the machines of the profile."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from ..checks import require_count, require_number
from ..errors import ModelError
from .bandwidth import transfer_time
from .demands import Demands, Servers, uneven_shards
from .fitted import Fitted, Recorded
from .job import require_bandwidth

#: More servers than these are typing mistakes.
MOST_SERVERS = 1000

#: More different workers than these take minutes.
MOST_SPEEDS = 2000


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
        bandwidth: float | None = None,
        parameter_servers: int | None = None,
        shards: Iterable[float] | None = None,
        batch_size: int | None = None,
        accelerator_speed: float | None = None,
        worker_speeds: Iterable[float] | None = None,
    ) -> Changes:
        """These changes with others; factors of the accelerator's speed multiply, everything else replaces."""
        asked: dict[str, Any] = {}
        if bandwidth is not None:
            asked["bandwidth"] = require_bandwidth(bandwidth, "what_if: bandwidth", error=ModelError)
        if batch_size is not None:
            asked["batch_size"] = require_count(batch_size, "what_if: batch_size", most=2**62)
        if accelerator_speed is not None:
            speed = self.accelerator_speed * _positive(accelerator_speed, "accelerator_speed")
            asked["accelerator_speed"] = 1.0 if math.isclose(speed, 1.0) else speed  # a factor undone, but for rounding
        if worker_speeds is not None:
            asked["worker_speeds"] = _all_positive(worker_speeds, "worker_speeds", most=MOST_SPEEDS)
        if parameter_servers is not None:
            count = require_count(parameter_servers, "what_if: parameter_servers", most=MOST_SERVERS)
            asked |= {"parameter_servers": count, "shards": ()}
        if shards is not None:
            weights = _all_positive(shards, "shards", most=MOST_SERVERS)
            if parameter_servers not in (None, len(weights)):
                raise ModelError(f"what_if: {len(weights)} shards do not fit {parameter_servers} parameter_servers")
            asked |= {"parameter_servers": None, "shards": tuple(w / sum(weights) for w in weights)}
        return replace(self, **asked)

    @property
    def unequal(self) -> bool:
        """Whether workers differ."""
        return len(set(self.worker_speeds)) > 1

    def other_machines(self, fitted: Fitted) -> list[str]:
        """What differs from the profile but the number of servers; empty for nothing."""
        different = {
            "bandwidth": self._bandwidth(fitted) is not None,
            "batch_size": self.batch_size not in (None, fitted.job.batch_size),
            "accelerator_speed": self.accelerator_speed != 1.0,
            "worker_speeds": any(speed != 1.0 for speed in self.worker_speeds),
            "shards": bool(self.shards) and self.servers(fitted.servers) != fitted.servers,
        }
        return [name for name, differs in different.items() if differs]

    def require_known(self, fitted: Fitted) -> None:
        """Refuse changes whose effect the data do not tell."""
        if not any(fitted.recorded.transferred) and "bandwidth" in self.other_machines(fitted):
            raise ModelError("what_if: bandwidth needs the bytes per step, which the profile's steps do not have")

    def servers(self, own: Servers, tensor_bytes: tuple[int, ...] = ()) -> Servers:
        """The servers after the change of one's own."""
        if self.shards:
            return replace(own, shards=self.shards)
        if self.parameter_servers is None or self.parameter_servers == own.count:
            return own
        return replace(own, shards=_dealt(tensor_bytes, self.parameter_servers))

    def demands(self, fitted: Fitted, demands: Demands, *, together: int = 1) -> Demands:
        """What demands of the fit, or draws of them, become on the changed machines, on which so many fetch at once."""
        recorded, bandwidth = fitted.recorded, self._bandwidth(fitted)
        if bandwidth is not None:
            demands = with_bandwidth(demands, bandwidth, recorded, together=together)
        worker = demands.worker[..., None] if self.unequal else demands.worker
        speed = np.array(self.worker_speeds) if self.unequal else (*self.worker_speeds, 1.0)[0]
        return demands.with_worker(worker + recorded.compute * (self.compute_factor(fitted) / speed - 1.0))

    def _bandwidth(self, fitted: Fitted) -> float | None:
        """Bytes per second of each host's link, where they are not the profile's."""
        return None if self.bandwidth == fitted.recorded.bandwidth else self.bandwidth

    def compute_factor(self, fitted: Fitted) -> float:
        """How much longer computation takes than with the profile's batch size and accelerator."""
        return (self.batch_size or fitted.job.batch_size) / fitted.job.batch_size / self.accelerator_speed


def with_bandwidth(demands: Demands, bandwidth: float, recorded: Recorded, *, together: int = 1) -> Demands:
    """Demands when each host's link has another nominal bandwidth, in bytes per second.

    Transfers change as `transfer_time` says. Each second of transfer hides as much computation as before: a faster link
    hides less, unless several workers who transfer ``together`` share it: then at most as much as before.
    """
    fetch, push = (
        transfer_time(seconds, size, nominal=recorded.bandwidth, bandwidth=bandwidth)
        for seconds, size in zip((demands.fetch, demands.push), recorded.transferred, strict=True)
    )
    before, after = demands.fetch + demands.push, fetch + push
    longer = np.where(before > 0, after / np.where(before > 0, before, 1.0), 1.0)
    longer = np.maximum(longer, np.minimum(together * longer, 1.0))
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


def _positive(value: Any, what: str) -> float:
    return require_number(value, f"what_if: {what}", positive=True)


def _all_positive(values: Iterable[float], what: str, *, most: int) -> tuple[float, ...]:
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes)):
        raise ModelError(f"what_if: {what} must be a list of numbers, got {values!r}")
    numbers = tuple(_positive(value, what) for value in islice(values, most + 1))
    if not 1 <= len(numbers) <= most:
        raise ModelError(f"what_if: {what} must be 1 to {most:,} numbers, got {'more' if numbers else 'none'}")
    return numbers
