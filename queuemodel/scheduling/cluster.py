"""The cluster that jobs run on: its nodes and what changing an allocation costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from ..base.checks import require_count, require_number
from ..base.errors import ModelError
from .curves import MOST_NODES, SpeedTables
from .jobs import Job


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes, and what the simulation charges (times in seconds)."""

    nodes: int
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
        require_count(self.nodes, "cluster: nodes", most=MOST_NODES)
        require_number(self.restart_seconds, "cluster: restart_seconds", unit="seconds")
        require_number(self.start_seconds, "cluster: start_seconds", unit="seconds")
        for field in ("mean_time_to_failure", "checkpoint_seconds"):
            value = getattr(self, field)
            if value != math.inf:
                require_number(value, f"cluster: {field}", unit="seconds", positive=True)
        if self.nodes_per_machine is not None:
            require_count(self.nodes_per_machine, "cluster: nodes_per_machine", most=self.nodes)
        require_number(self.spread_speed, "cluster: spread_speed", positive=True, largest=1)

    @property
    def placed(self) -> bool:
        """Whether it matters where a job's nodes stand."""
        return self.nodes_per_machine is not None and self.spread_speed < 1


class Placement:
    """Which machines hold which job's nodes; a job whose number does not change stays where it is."""

    def __init__(self, cluster: Cluster) -> None:
        self.spread_speed = cluster.spread_speed
        size = self.size = cluster.nodes_per_machine or cluster.nodes
        full, rest = divmod(cluster.nodes, size)
        self.free = np.array([size] * full + ([rest] if rest else []))
        self.held: dict[int, list[tuple[int, int]]] = {}

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
        for machine, count in self.held.pop(job, ()):
            self.free[machine] += count

    def _enter(self, job: int, nodes: int) -> bool:
        """Place a job: into the fullest machine that takes it whole, else over the emptiest; True when packed."""
        taken = self.held[job] = []
        left = nodes
        while left:
            fits = np.flatnonzero(self.free >= nodes)
            machine = int(fits[np.argmin(self.free[fits])] if fits.size else np.argmax(self.free))
            count = min(left, int(self.free[machine]))
            taken.append((machine, count))
            self.free[machine] -= count
            left -= count
        return len(taken) <= -(-nodes // self.size)


#: Columns, and what a policy must declare in its ``knows`` to look at them (nothing for what everybody knows).
COLUMNS = {
    "names": "",
    "arrival_time": "",  # seconds
    "least": "",  # nodes
    "most": "",  # nodes, at most those of the cluster
    "requested": "",  # nodes that the users asked for
    "nodes": "",  # held now
    "attained_service": "attained_service",  # node-seconds held so far
    "remaining": "remaining",  # steps left: of the declared work, or the true ones for a policy that knows the end
    "row": "curve",  # of each job's curve in ``tables``, as the policy believes it
}


class ActiveJobs:
    """The jobs in the cluster in order of arrival, as columns of shape (jobs,): those of `COLUMNS`.

    Columns that a policy has not declared in ``knows`` raise `ModelError` when it looks; ``gather`` gives each by its
    name, and is asked for it at most once.
    """

    def __init__(
        self, gather: Callable[[str], Any], count: int, tables: SpeedTables, *, knows: Iterable[str], who: str
    ) -> None:
        self._gather, self._count, self._knows, self._who = gather, count, knows, who
        self.tables = tables

    def __len__(self) -> int:
        return self._count

    def __getattr__(self, column: str) -> Any:
        if column not in COLUMNS:
            raise AttributeError(column)
        needed = COLUMNS[column]
        if needed and needed not in self._knows:
            raise ModelError(f"{self._who}: looks at {needed!r} but does not declare it; add it to its `knows`")
        told = "true_remaining" if column == "remaining" and "end" in self._knows else column
        value = self.__dict__[column] = self._gather(told)
        return value

    def per_curve(self, function: Callable[..., Any], *args: Any) -> np.ndarray:
        """``function(speed table, *args)`` of each job's curve, computed once per curve; shape (jobs, ...)."""
        return self.tables.derived(function, *args)[self.row]

    def speed(self, nodes: np.ndarray) -> np.ndarray:
        """Steps per second of each job on so many whole nodes."""
        return self.tables.speeds[self.row, nodes]

    @classmethod
    def of(cls, jobs: Sequence[Job], nodes: int, *, knows: Iterable[str], who: str) -> ActiveJobs:
        """Jobs as they arrive, put in order of arrival (then of name)."""
        ordered = sorted(jobs, key=lambda job: (job.arrival_time, job.name))
        tables = SpeedTables(nodes)
        most = [min(nodes, job.most_nodes or nodes) for job in ordered]
        rows = [
            tables.acquire(job.predicted or job.curve, job.least_nodes, top, f"job {job.name!r}")
            for job, top in zip(ordered, most, strict=True)
            if "curve" in knows
        ]
        steps = np.array([job.steps for job in ordered])
        columns: dict[str, Any] = {
            "names": [job.name for job in ordered],
            "arrival_time": np.array([job.arrival_time for job in ordered]),
            "least": np.array([job.least_nodes for job in ordered], dtype=int),
            "most": np.array(most, dtype=int),
            "requested": np.array([job.requested for job in ordered], dtype=int),
            "nodes": np.zeros(len(ordered)),
            "attained_service": np.zeros(len(ordered)),
            "remaining": steps,
            "true_remaining": steps,
            "row": np.array(rows, dtype=int),
        }
        return cls(columns.__getitem__, len(ordered), tables, knows=knows, who=who)
