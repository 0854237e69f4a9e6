"""The nodes that jobs run on: what a change of an allocation costs, where jobs stand on them, and when they fail."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass

import numpy as np

from ..base.checks import require_count, require_number
from .curves import MOST_NODES


@dataclass(frozen=True, slots=True)
class Nodes:
    """A cluster of n nodes, and the delays of the simulation (times in seconds)."""

    count: int
    _: KW_ONLY
    restart_seconds: float = 0.0  #: Without progress after each change of a job that has run.
    start_seconds: float = 0.0  #: Without progress at the first start.
    #: Of one node, exponential; a failed node is replaced at once, its job goes back to the last checkpoint.
    mean_time_to_failure: float = math.inf
    #: Running time between checkpoints, which cost nothing; a change of allocation is one too.
    checkpoint_seconds: float = math.inf
    nodes_per_machine: int | None = None  #: Nodes stand in machines of so many.
    spread_speed: float = 1.0  #: Speed of a job, relative to its curve, on more machines than it needs.

    def __post_init__(self) -> None:
        require_count(self.count, "cluster: nodes", most=MOST_NODES)
        for field in ("restart_seconds", "start_seconds", "mean_time_to_failure", "checkpoint_seconds"):
            value, positive = getattr(self, field), field in ("mean_time_to_failure", "checkpoint_seconds")
            if not (positive and value == math.inf):
                require_number(value, f"cluster: {field}", unit="seconds", positive=positive)
        if self.nodes_per_machine is not None:
            require_count(self.nodes_per_machine, "cluster: nodes_per_machine", most=self.count)
        require_number(self.spread_speed, "cluster: spread_speed", positive=True, largest=1)

    @property
    def placed(self) -> bool:
        """Whether it matters where a job's nodes stand."""
        return self.nodes_per_machine is not None and self.spread_speed < 1


class Placement:
    """On which machines each job's nodes stand; a job whose number does not change stays where it is."""

    def __init__(self, nodes: Nodes) -> None:
        self.spread_speed = nodes.spread_speed
        size = self.size = nodes.nodes_per_machine or nodes.count
        full, rest = divmod(nodes.count, size)
        self.free = np.array([size] * full + ([rest] if rest else []))
        self.stands: dict[int, list[tuple[int, int]]] = {}

    def move(self, jobs: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Place these jobs anew, the largest first; speeds relative to their curves, shape (jobs,)."""
        for j in jobs.tolist():
            self.leave(j)
        factor = np.ones(len(jobs))
        for k in np.argsort(-nodes, kind="stable").tolist():
            if nodes[k] > 0 and not self._enter(int(jobs[k]), int(nodes[k])):
                factor[k] = self.spread_speed
        return factor

    def leave(self, job: int) -> None:
        """Give a job's nodes back."""
        for machine, count in self.stands.pop(job, ()):
            self.free[machine] += count

    def _enter(self, job: int, nodes: int) -> bool:
        """Place a job: into the fullest machine that takes it whole, else over the emptiest; True when packed."""
        taken = self.stands[job] = []
        left = nodes
        while left:
            fits = np.flatnonzero(self.free >= nodes)
            machine = int(fits[np.argmin(self.free[fits])] if fits.size else np.argmax(self.free))
            count = min(left, int(self.free[machine]))
            taken.append((machine, count))
            self.free[machine] -= count
            left -= count
        return len(taken) <= -(-nodes // self.size)
