"""Which curves each job of a run goes by: its phases, and the speed tables that they need."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .cluster import Cluster
from .jobs import Job
from .phases import Phase
from .policies.base import Policy
from .speed_tables import SpeedTables, speed_at
from .stages import StagedCurve


class Progress:
    """The phases of all jobs under a policy: several of a staged curve, or where it chooses batch sizes; else one.

    Attributes
    ----------
    steps : ndarray, shape (jobs,)
        Declared work, in the steps of the job's curves.
    least, most : ndarray, shape (jobs,)
        Nodes that a job can use in this cluster.
    row, true_row : ndarray, shape (jobs,)
        Rows in ``tables`` of the curve that a policy sees, and of that which runs, in the present phase.
    """

    def __init__(self, jobs: Sequence[Job], policy: Policy, cluster: Cluster) -> None:
        self.jobs, self.nodes, self.divisible = jobs, cluster.nodes, policy.divisible
        self.seen = "curve" in policy.knows
        self.sizes = [job.batch_sizes if "batch_sizes" in policy.knows else None for job in jobs]
        self.least = np.array([job.least_nodes for job in jobs])
        self.most = np.array([self._most(j) for j in range(len(jobs))])
        self.steps = np.array([self._steps(j) for j in range(len(jobs))], dtype=float)
        self.tables = SpeedTables(cluster.nodes)
        self.row = np.zeros(len(jobs), dtype=int)
        self.true_row = np.zeros(len(jobs), dtype=int)
        self._made: dict[tuple[int, int, int], tuple[Phase, ...]] = {}
        self._at = np.zeros(len(jobs), dtype=int)

    def _most(self, j: int) -> int:
        sizes = self.sizes[j]
        return min(self.jobs[j].most_nodes or self.nodes, self.nodes) if sizes is None else sizes.limit(self.nodes)

    def _steps(self, j: int) -> float:
        sizes = self.sizes[j]
        return self.jobs[j].steps if sizes is None else sizes.steps(sizes.first)

    def changes(self) -> bool:
        """Whether any job's speed may change as it trains."""
        return any(len(self.phases(j)) > 1 for j in range(len(self.jobs)))

    def phases(self, j: int) -> tuple[Phase, ...]:
        """All of one job."""
        job, sizes = self.jobs[j], self.sizes[j]
        staged = isinstance(job.curve, StagedCurve) and not self.divisible
        if sizes is None and not staged:
            return (Phase(job.steps, job.curve, job.predicted or job.curve),)
        least, most, what = int(self.least[j]), int(self.most[j]), f"job {job.name!r}"
        key = (j, 0, 0) if sizes is None else (id(sizes), least, most)
        if key not in self._made:
            if sizes is not None:
                self._made[key] = sizes.phases(least, most, what)
            elif isinstance(job.curve, StagedCurve):
                self._made[key] = job.curve.phases(job.steps, least, most, what, job.predicted)
        return self._made[key]

    def enter(self, j: int) -> tuple[float, float]:
        """A job is at the start of its phase: steps at its end, and its speed per node on the least nodes."""
        phase, least, most = self.phases(j)[self._at[j]], int(self.least[j]), int(self.most[j])
        what = f"job {self.jobs[j].name!r}"
        if self.divisible:
            alone = speed_at(phase.curve, 1.0, what)
        else:
            self.true_row[j] = row = self.tables.acquire(phase.curve, least, most, what)
            alone = float(self.tables.speeds[row, least]) / least
        if self.seen:
            self.row[j] = self.tables.acquire(phase.seen, least, most, what)
        return phase.until, alone

    def leave(self, j: int) -> None:
        """A job is at the end of its phase."""
        if not self.divisible:
            self.tables.release(int(self.true_row[j]))
        if self.seen:
            self.tables.release(int(self.row[j]))
        self._at[j] += 1

    def fastest(self, j: int, steps: float) -> float:
        """Largest speed of a job that is in its first phase; the mean over its first ``steps``."""
        if self.divisible:
            return speed_at(self.jobs[j].curve, float(self.nodes), f"job {self.jobs[j].name!r}")
        if len(self.phases(j)) == 1:
            return float(self.tables.speeds[self.true_row[j]].max())
        return self.mean_speed(j, steps, lambda curve: max(speed for _, speed in curve.points))  # type: ignore[attr-defined]

    def mean_speed(self, j: int, steps: float, speed: Callable[[Callable[[float], float]], float]) -> float:
        """Steps per second of a job's first ``steps``, when each phase has the ``speed`` of its curve."""
        phases = self.phases(j)
        if len(phases) == 1:
            return speed(phases[0].curve)
        starts = [0.0, *(phase.until for phase in phases[:-1])]
        lengths = np.diff(np.minimum([*starts, np.inf], steps))
        return steps / sum(
            length / speed(phase.curve) for length, phase in zip(lengths.tolist(), phases, strict=True) if length
        )
