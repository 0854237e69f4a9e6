"""What a policy is shown: the jobs in the cluster as columns, and of each only what the policy declares to know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..errors import ModelError
from .curves import SpeedTables
from .jobs import Job

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
