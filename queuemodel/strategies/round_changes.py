"""What-ifs of data-parallel training: other machines, networks and ways to send, all told against the profile."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ..checks import require_choice, require_count, require_number
from ..collectives import (
    Algorithm,
    DoubleBinaryTree,
    HalvingDoubling,
    Hierarchical,
    Hoplite,
    InRacks,
    Link,
    ParameterServers,
    RecursiveDoubling,
    Ring,
    SplitServers,
)
from ..errors import ModelError
from ..training.bandwidth import transfer_time
from ..training.job import require_bandwidth
from .group import NodeLink
from .round_fit import FittedRounds
from .schemes import SCHEMES, Buckets, Scheme, Slices

#: The algorithms of `queuemodel.collectives` that need nothing but their name.
COLLECTIVES: dict[str, Algorithm] = {
    "ring": Ring(),
    "recursive-doubling": RecursiveDoubling(),
    "halving-doubling": HalvingDoubling(),
    "double-binary-tree": DoubleBinaryTree(),
    "hoplite": Hoplite(),
    "parameter-servers": ParameterServers(),
    "split-servers": SplitServers(),
}

#: What only data-parallel training has.
OWN = frozenset(
    {"latency", "bucket_bytes", "scheme", "collective", "accumulation", "ranks_per_node", "inside_bandwidth",
     "nodes_per_rack", "oversubscription"}
)  # fmt: skip

#: What are links, what must be > 0 and what must be a count; everything else has a check of its own.
LINKS, POSITIVE = ("bandwidth", "inside_bandwidth"), ("bucket_bytes", "oversubscription")
COUNTS = {"batch_size": 2**62, "accumulation": 10_000, "ranks_per_node": 10_000, "nodes_per_rack": 1_000_000}


@dataclass(frozen=True, slots=True)
class RoundChanges:
    """What differs from the profiled machines (None and 1: as profiled); see `AllReduceModel.what_if`."""

    bandwidth: float | None = None
    latency: float | None = None
    batch_size: int | None = None
    accelerator_speed: float = 1.0
    bucket_bytes: float | None = None
    scheme: Scheme | None = None
    collective: Algorithm | None = None
    accumulation: int | None = None
    ranks_per_node: int | None = None
    inside_bandwidth: float | None = None
    nodes_per_rack: int | None = None
    oversubscription: float | None = None

    def and_also(self, **asked: Any) -> RoundChanges:
        """These changes with others: factors of the accelerator's speed multiply, everything else replaces.

        Raises
        ------
        ModelError
            When a value makes no sense, or does so only with another one.
        """
        checked: dict[str, Any] = {}
        for name, value in asked.items():
            what = f"what_if: {name}"
            if value is None:
                continue
            if name == "accelerator_speed":
                speed = self.accelerator_speed * require_number(value, what, positive=True, largest=1e15)
                checked[name] = 1.0 if math.isclose(speed, 1.0) else speed  # a factor undone, but for rounding
            elif name in LINKS:
                checked[name] = require_bandwidth(value, what, error=ModelError)
            elif name in POSITIVE:
                checked[name] = require_number(value, what, positive=True, largest=1e15)
            elif name in COUNTS:
                checked[name] = require_count(value, what, most=COUNTS[name])
            elif name == "latency":
                checked[name] = require_number(value, what, unit="seconds")
            elif name == "scheme":
                checked[name] = SCHEMES[require_choice(value, what, SCHEMES)] if isinstance(value, str) else value
            else:
                checked[name] = _collective(value)
        both = replace(self, **checked)
        if both.ranks_per_node is not None and both.ranks_per_node > 1 and both.inside_bandwidth is None:
            raise ModelError(
                "what_if: ranks_per_node needs inside_bandwidth, bytes per second between two ranks of a node: ranks "
                "on nodes of their own do not show it"
            )
        if both.inside_bandwidth is not None and both.ranks_per_node is None:
            raise ModelError("what_if: inside_bandwidth needs ranks_per_node; give both")
        if both.ranks_per_node is not None and getattr(both.collective, "ranks_per_node", 1) > 1:
            raise ModelError("what_if: collective says already how many ranks a node has; leave ranks_per_node out")
        if (both.nodes_per_rack is None) != (both.oversubscription is None):
            raise ModelError("what_if: a core needs both nodes_per_rack and oversubscription; give both")
        return both

    def other_machines(self, fitted: FittedRounds) -> bool:
        """Whether anything differs from what was profiled: naming its own machines asks for no others."""
        own = {
            "bandwidth": fitted.nominal, "latency": fitted.latency, "batch_size": fitted.job.batch_size,
            "accelerator_speed": 1.0, "collective": Ring(), "accumulation": 1, "ranks_per_node": 1,
            "inside_bandwidth": self.inside_bandwidth,
        }  # fmt: skip
        return any(getattr(self, one.name) not in (None, own.get(one.name)) for one in fields(self))

    def slowness(self, fitted: FittedRounds) -> float:
        """How much longer computation takes than when profiled."""
        return (self.batch_size or fitted.job.batch_size) / fitted.job.batch_size / self.accelerator_speed

    def link(self, fitted: FittedRounds, ranks: int) -> NodeLink:
        """What a node's link carries among so many ranks."""
        carried, latency = fitted.carried(ranks)
        latency = latency if self.latency is None else self.latency
        if self.bandwidth is None or self.bandwidth == fitted.nominal:
            return NodeLink(carried, latency, fitted.buffer)
        seconds = np.array(1.0 / carried)
        byte = float(transfer_time(seconds, 1.0, nominal=fitted.nominal, bandwidth=self.bandwidth))
        return NodeLink(1.0 / byte, latency, fitted.buffer)

    def covariance(self, fitted: FittedRounds) -> np.ndarray:
        """Of the logarithms of bandwidth and latency; a specified latency has no error."""
        return fitted.covariance if self.latency is None else fitted.covariance * np.diag([1.0, 0.0])

    def algorithm(self) -> Algorithm:
        """The collective, where the ranks stand."""
        algorithm: Algorithm = self.collective or Ring()
        if self.ranks_per_node is not None and self.inside_bandwidth is not None:
            algorithm = Hierarchical(self.ranks_per_node, Link(self.inside_bandwidth), algorithm)
        if self.nodes_per_rack is not None:
            algorithm = InRacks(algorithm, self.nodes_per_rack, self.oversubscription or 1.0)
        return algorithm

    def way(self, fitted: FittedRounds) -> Scheme:
        """How gradients are put together and sent: as recorded, unless something else is asked for.

        Raises
        ------
        ModelError
            When that needs gradients, which the profile has not.
        """
        if self.scheme is None and self.bucket_bytes is None:
            return Buckets(cap=0, at_once=fitted.at_once)
        if not fitted.gradients[0].size:
            name = "bucket_bytes" if self.scheme is None else "scheme"
            raise ModelError(
                f"what_if: {name} needs recorded gradients; record PyTorch with record_shapes=True, TensorFlow with "
                "'queuemodel profile'"
            )
        scheme: Any = self.scheme or Buckets()
        if self.bucket_bytes is not None:
            credit = {"credit": scheme.credit / scheme.cap * self.bucket_bytes} if isinstance(scheme, Slices) else {}
            scheme = replace(scheme, cap=self.bucket_bytes, **credit)
        if isinstance(scheme, Buckets) and scheme.at_once is None:
            scheme = replace(scheme, at_once=fitted.at_once)
        return scheme

    def pieces(self, fitted: FittedRounds) -> tuple[np.ndarray, np.ndarray]:
        """Bytes of what the scheme is given, (p,), and when one rank had it, (m, p): buckets, or gradients."""
        if self.scheme is None and self.bucket_bytes is None:
            return fitted.bucket_bytes, fitted.ready
        sizes, moments = fitted.gradients
        return sizes, moments * (fitted.computed / fitted.computed.mean())[:, None]


def _collective(value: Any) -> Algorithm:
    """An algorithm, or one by its name."""
    if isinstance(value, str):
        return COLLECTIVES[require_choice(value, "what_if: collective", COLLECTIVES)]
    if isinstance(value, type) or not callable(getattr(value, "time", None)):
        raise ModelError(f"what_if: collective must be one of {', '.join(COLLECTIVES)} or an algorithm, got {value!r}")
    algorithm: Algorithm = value
    return algorithm
