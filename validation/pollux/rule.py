"""What decides in the artifact's simulator: a rule, and any policy of the package as one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from queuemodel.scheduling import ActiveJobs, Policy, SpeedTables, TableCurve

from .artifact import Application
from .batch_sizes import application_batch_sizes
from .state import RunningJob

Curves: TypeAlias = Callable[[Application, int], TableCurve]


class Rule(Protocol):
    """What decides: GPUs per job, or None when nothing can have changed since the last answer."""

    def allocate(self, jobs: Sequence[RunningJob], gpus: int, now: int, changed: bool) -> dict[str, int] | None:
        """GPUs per job at a step's end; ``changed``: whether a job arrived or ended in the step."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a policy sees of jobs of one kind: rows of their curves, one per epoch or one for all; the most GPUs."""

    rows: tuple[int, ...]
    most: int
    chosen: tuple[tuple[int, ...], ...] = ()

    def row(self, epoch: int) -> int:
        """Row in an epoch."""
        return self.rows[min(epoch, len(self.rows) - 1)]


class PolicyRule:
    """Asks a policy whenever a job has arrived or ended, at the end of the step, and when its `review` says.

    Parameters
    ----------
    policy : Policy
    jobs : sequence of RunningJob
    gpus : int
    curves : callable, default `Application.curve`
        What the policy believes: ``curves(application, batch_size)``. One that chooses batch sizes also knows the noise
        scale of the epoch under way, at each batch size as measured, or with other curves than the measured ones as
        measured at the smallest.
    """

    def __init__(
        self,
        policy: Policy,
        jobs: Sequence[RunningJob],
        *,
        gpus: int,
        curves: Curves = Application.curve,
    ) -> None:
        self.policy = policy
        self.review = math.inf
        self.tables = SpeedTables(gpus)
        self.adapts = "batch_sizes" in policy.knows
        known: dict[tuple[str, int], _Seen] = {}
        self.seen: dict[str, _Seen] = {}
        self.left: dict[tuple[str, int], np.ndarray] = {}
        for job in jobs:
            key = (job.application.name, 0 if self.adapts else job.batch_size)
            if key not in known:
                known[key] = self._adaptive(job, curves, gpus) if self.adapts else self._fixed(job, curves, gpus)
            self.seen[job.name] = known[key]
            job.chosen = known[key].chosen

    def _fixed(self, job: RunningJob, curves: Curves, gpus: int) -> _Seen:
        curve = curves(job.application, job.batch_size)
        most = min(int(curve.points[-1][0]), gpus)
        return _Seen((self.tables.acquire(curve, 1, most, f"job {job.name!r}"),), most)

    def _adaptive(self, job: RunningJob, curves: Curves, gpus: int) -> _Seen:
        what = f"job {job.name!r}"
        measured = curves is Application.curve
        sizes = application_batch_sizes(job.application, None if measured else curves, profiled=not measured)
        most = sizes.limit(gpus)
        phases = sizes.phases(1, most, what)
        rows = tuple(self.tables.add(phase.seen) for phase in phases)
        return _Seen(rows, most, tuple(tuple(phase.batch_size.tolist()) for phase in phases))

    def allocate(self, jobs: Sequence[RunningJob], gpus: int, now: int, changed: bool) -> dict[str, int] | None:
        """See `Rule`."""
        if not changed and now < self.review:
            return None
        shown = self._shown(jobs)
        granted = self.policy.grants(shown, gpus, float(now))
        self.review = self.policy.review(shown, granted, float(now))
        grants = {job.name: int(n) for job, n in zip(jobs, granted.tolist(), strict=True) if n > 0}
        return dict(sorted(grants.items(), key=lambda item: item[1]))

    def _shown(self, jobs: Sequence[RunningJob]) -> ActiveJobs:
        seen = [self.seen[job.name] for job in jobs]
        most = [one.most for one in seen]
        requested = [min(job.requested, top) for job, top in zip(jobs, most, strict=True)]
        left = np.array([self._progress_left(job) if self.adapts else self._updates_left(job) for job in jobs])
        columns: dict[str, Any] = {
            "arrival_time": np.array([float(job.submitted) for job in jobs]),
            "attained_service": np.array([float(job.attained) for job in jobs]),
            "remaining": left,
            "nodes": np.array([float(len(job.machines)) for job in jobs]),
            "least": np.ones(len(jobs), dtype=int),
            "most": np.array(most, dtype=int),
            "requested": np.array(requested, dtype=int),
            "row": np.array([one.row(job.epoch) for one, job in zip(seen, jobs, strict=True)], dtype=int),
        }
        return ActiveJobs(columns.__getitem__, len(jobs), self.tables, self.policy)

    @staticmethod
    def _progress_left(job: RunningJob) -> float:
        """Updates left at the smallest batch size."""
        return job.targets[-1] - job.progress

    def _updates_left(self, job: RunningJob) -> float:
        """Updates left of the whole run at the job's batch size (progress left over progress per update)."""
        application = job.application
        key = (application.name, job.batch_size)
        if key not in self.left:
            gains = application.gains(job.batch_size)
            spans = np.diff(application.progress, prepend=0.0) / gains
            after = np.append(np.cumsum(spans[::-1])[::-1], 0.0)
            self.left[key] = np.stack([after[1:], 1 / gains])
        after, per_progress = self.left[key]
        return float(after[job.epoch] + (job.targets[job.epoch] - job.progress) * per_progress[job.epoch])
