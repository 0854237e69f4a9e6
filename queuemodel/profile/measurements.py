"""Measurements of a training job: a table of sizes and rates, whatever its synchronization."""

from __future__ import annotations

import msgspec

from ..base.checks import MOST_EXAMPLES, require_count, require_number
from ..base.errors import DataError
from .job import MOST_WORKERS, require_bandwidth, require_counts
from .records import MOST_SERVERS


class Measurement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A measured rate of a training job, or a step time.

    Attributes
    ----------
    workers : int
        GPUs, ranks or workers of all nodes together.
    steps_per_second : float
        Of all workers; of synchronous training ``workers`` times the iterations per second.
    nodes : int or None
        Nodes of a data-parallel job; None: one worker on each.
    gpus_per_node : int or None
        On the node that has most of them; as even as can be, unless given.
    batch_size : int or None
        Of one worker and step, in ``unit``; None where it is not known.
    unit : str
        Of the work: ``"examples"``, ``"tokens"``, ...
    parameter_servers : int
    standard_error : float or None
        Of `steps_per_second`, where it is known better than from a minute's run.
    bandwidth : float or None
        Nominal bytes per second of each host's link, where it was not as profiled; without a profile, the same for all.
    """

    workers: int
    steps_per_second: float
    nodes: int | None = None
    gpus_per_node: int | None = None
    batch_size: int | None = None
    unit: str = "examples"
    parameter_servers: int = 1
    standard_error: float | None = None
    bandwidth: float | None = None

    def __post_init__(self) -> None:
        require_counts(
            self, workers=(1, MOST_WORKERS), batch_size=(1, MOST_EXAMPLES), parameter_servers=(1, MOST_SERVERS)
        )
        speed = require_number(self.steps_per_second, "steps_per_second", positive=True, error=DataError)
        if self.standard_error is not None:
            require_number(self.standard_error, "standard_error", positive=True, largest=speed, error=DataError)
        if self.bandwidth is not None:
            require_bandwidth(self.bandwidth)
        if self.nodes is not None:
            require_count(self.nodes, "nodes", most=self.workers, error=DataError)
        if self.gpus_per_node is not None:
            nodes = self.nodes or self.workers
            even, most = -(-self.workers // nodes), self.workers - nodes + 1  # every node has one at least
            require_count(self.gpus_per_node, "gpus_per_node", least=even, most=most, error=DataError)

    @property
    def step_time(self) -> float:
        """Seconds of an iteration of synchronous workers, or of one asynchronous worker's step."""
        return self.workers / self.steps_per_second

    @property
    def fullest_node(self) -> int:
        """Workers on the node that has most of them."""
        return self.gpus_per_node or -(-self.workers // (self.nodes or self.workers))

    def relative_error(self, usual: float) -> float:
        """Standard error relative to the rate; ``usual`` where it is not known."""
        return usual if self.standard_error is None else self.standard_error / self.steps_per_second
