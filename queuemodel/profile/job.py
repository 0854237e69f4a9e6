"""What a profile is of: its source, its machines, its job, and throughputs measured besides."""

from __future__ import annotations

from typing import Any

import msgspec

from ..base.checks import FASTEST_LINK, MOST_EXAMPLES, SLOWEST_LINK, require_choice, require_count, require_number
from ..base.errors import DataError, QueueModelError
from ..transport.sharing import CONGESTION_CONTROLS, require_network
from .records import MOST_BYTES, MOST_SERVERS

SHORTEST_STEP = 1e-6  # seconds
MOST_WORKERS = 10_000
#: Known network parameters besides the bandwidth, and their sources.
KNOWN, ORIGINS = ("congestion_control", "buffer"), ("recorded", "given")


def require_counts(value: Any, **bounds: tuple[int, int]) -> None:
    """Refuse a field outside its bounds (raises DataError, which the decoder places in its file)."""
    for field, (least, most) in bounds.items():
        if getattr(value, field) is not None:
            require_count(getattr(value, field), field, least=least, most=most, error=DataError)


def require_bandwidth(bandwidth: Any, what: str = "bandwidth", *, error: type[QueueModelError] = DataError) -> float:
    """A link's bandwidth in bytes per second, or an ``error`` that names it."""
    value = require_number(bandwidth, what, unit="bytes per second", positive=True, largest=FASTEST_LINK, error=error)
    if value < SLOWEST_LINK:
        raise error(
            f"{what} must be at least {SLOWEST_LINK:g} bytes per second, got {bandwidth!r}; 10 Gbit/s are 1.25e9"
        )
    return value


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where and how a profile was taken."""

    framework: str
    framework_version: str = ""
    method: str = ""  # What recorded it: "run-metadata", "xplane", or another tool's name
    style: str = ""  # "graph" of sessions of TensorFlow 1, "parameter-server-strategy" of TensorFlow 2, or ""
    taken_at: str = ""  # ISO 8601, or "" when not known
    hosts: dict[str, str] = {}  # Task ("worker:0", "ps:0") to host name or address


class Cluster(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The machines that were profiled."""

    workers: int = 1
    parameter_servers: int = 1
    bandwidth: float | None = None  # Nominal bytes per second of each host's link, one direction; None when not known
    congestion_control: str = "unknown"  # TCP's in the hosts: "unknown", "cubic", "reno" or "bbr"
    #: Seconds that a packet waits at a full link, 0 where each connection has a queue of its own; None when not known
    buffer: float | None = None
    origins: dict[str, str] = {}  # Sources of these two, by name: "recorded" (from a host) or "given" (from the user)

    def __post_init__(self) -> None:
        require_counts(self, workers=(1, MOST_WORKERS), parameter_servers=(1, MOST_SERVERS))
        require_choice(self.congestion_control, "congestion_control", CONGESTION_CONTROLS, error=DataError)
        require_network(buffer=self.buffer, error=DataError)
        for name, origin in self.origins.items():
            require_choice(name, "origins: name", KNOWN, error=DataError)
            require_choice(origin, f"origins: {name}", ORIGINS, error=DataError)
        if self.bandwidth is not None:
            require_bandwidth(self.bandwidth)


def specified_network(**network: Any) -> dict[str, Any]:
    """Fields of a `Cluster` whose network the user describes; None is not known."""
    known = {field: value for field, value in network.items() if value is not None}
    return known | {"origins": dict.fromkeys(known, "given")}


class Job(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The training job, independent of its machines."""

    name: str = ""
    batch_size: int  # Examples per step and worker
    parameter_bytes: int  # All parameters together
    tensors: int  # How many tensors they are
    dataset_size: int | None = None  # Examples per epoch, when known
    shard_bytes: list[int] = []  # Parameter bytes on each server, in order; empty when not known

    def __post_init__(self) -> None:
        require_counts(
            self, batch_size=(1, MOST_EXAMPLES), parameter_bytes=(0, MOST_BYTES), tensors=(0, 10**9),
            dataset_size=(1, MOST_EXAMPLES),
        )  # fmt: skip
        for size in self.shard_bytes:
            require_count(size, "shard_bytes", least=0, most=MOST_BYTES, error=DataError)
