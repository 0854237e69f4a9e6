"""What a policy is shown: the jobs in the cluster as columns, and of each only what the policy declares to know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeAlias

import numpy as np

from ..errors import ModelError
from .curves import as_curve
from .speed_tables import SpeedTables

#: What a policy may declare to know beyond names, arrival times, limits and present nodes.
KNOWLEDGE = ("attained_service", "remaining", "curve", "end", "batch_sizes")


@dataclass(frozen=True, slots=True, eq=False)
class JobState:
    """One job at one instant, for calling a policy by hand.

    Parameters
    ----------
    name : str
    curve : SpeedCurve
        Steps per second against nodes, as the policy believes it.
    remaining : float
        Steps left, as the policy believes.
    arrival_time, attained_service : float
        Seconds; node-seconds.
    nodes : int
        Held now.
    least_nodes, most_nodes, requested_nodes : int
    """

    name: str
    _: KW_ONLY
    curve: Any = float
    remaining: float = 1.0
    arrival_time: float = 0.0
    attained_service: float = 0.0
    nodes: float = 0
    least_nodes: int = 1
    most_nodes: int | None = None
    requested_nodes: int | None = None


class ActiveJobs:
    """The jobs in the cluster in order of arrival, as columns of shape (jobs,).

    Columns that a policy has not declared in ``knows`` raise `ModelError` when it looks; ``gather`` gives each by its
    name, and is asked for it at most once.
    """

    __slots__ = ("_count", "_gather", "_knows", "_seen", "_who", "tables")

    def __init__(
        self,
        gather: Callable[[str], Any],
        count: int,
        tables: SpeedTables,
        *,
        knows: Iterable[str] = KNOWLEDGE,
        who: str = "policy",
    ) -> None:
        self._gather, self._count = gather, count
        self._seen: dict[str, Any] = {}
        self.tables = tables
        self._knows = knows
        self._who = who

    def names(self) -> list[str]:
        """Names of the jobs."""
        return self._column("names")

    def _column(self, name: str) -> Any:
        value = self._seen.get(name)
        if value is None:
            value = self._seen[name] = self._gather(name)
        return value

    def _known(self, what: str) -> None:
        if what not in self._knows:
            raise ModelError(f"{self._who}: looks at {what!r} but does not declare it; add it to its `knows`")

    def __len__(self) -> int:
        return self._count

    @property
    def arrival_time(self) -> np.ndarray:
        """Seconds."""
        return self._column("arrival_time")

    @property
    def least(self) -> np.ndarray:
        """Least nodes."""
        return self._column("least")

    @property
    def most(self) -> np.ndarray:
        """Most nodes, at most those of the cluster."""
        return self._column("most")

    @property
    def requested(self) -> np.ndarray:
        """Nodes that the users asked for."""
        return self._column("requested")

    @property
    def nodes(self) -> np.ndarray:
        """Nodes held now."""
        return self._column("nodes")

    @property
    def attained_service(self) -> np.ndarray:
        """Node-seconds held so far."""
        self._known("attained_service")
        return self._column("attained_service")

    @property
    def remaining(self) -> np.ndarray:
        """Steps left: of the declared work, or the true ones for a policy that knows the end."""
        self._known("remaining")
        return self._column("true_remaining" if "end" in self._knows else "remaining")

    @property
    def row(self) -> np.ndarray:
        """Row of each job's curve in ``tables``, as the policy believes it."""
        self._known("curve")
        return self._column("row")

    def per_curve(self, function: Callable[..., Any], *args: Any) -> np.ndarray:
        """``function(speed table, *args)`` of each job's curve, computed once per curve; shape (jobs, ...)."""
        return self.tables.derived(function, *args)[self.row]

    def speed(self, nodes: np.ndarray) -> np.ndarray:
        """Steps per second of each job on so many whole nodes."""
        return self.tables.speeds[self.row, nodes]

    @classmethod
    def of(cls, states: Sequence[JobState], nodes: int, *, knows: Iterable[str] = KNOWLEDGE) -> ActiveJobs:
        """Columns from single jobs, put in order of arrival (then of name)."""
        ordered = sorted(states, key=lambda state: (state.arrival_time, state.name))
        tables = SpeedTables(nodes)
        most = [min(nodes, state.most_nodes or nodes) for state in ordered]
        rows = [
            tables.acquire(as_curve(state.curve), state.least_nodes, top, f"job {state.name!r}")
            if "curve" in knows
            else 0
            for state, top in zip(ordered, most, strict=True)
        ]
        columns: dict[str, Any] = {
            "names": [state.name for state in ordered],
            "least": np.array([state.least_nodes for state in ordered], dtype=int),
            "most": np.array(most, dtype=int),
            "requested": np.array([state.requested_nodes or state.least_nodes for state in ordered], dtype=int),
            "row": np.array(rows, dtype=int),
        }
        for name in ("arrival_time", "attained_service", "remaining", "nodes"):
            columns[name] = np.array([float(getattr(state, name)) for state in ordered])
        columns["true_remaining"] = columns["remaining"]
        return cls(columns.__getitem__, len(ordered), tables, knows=knows)


Jobs: TypeAlias = ActiveJobs | Sequence[JobState]
