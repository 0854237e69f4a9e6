"""What decides in the artifact's simulator: a rule, and any policy of the package as one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from queuemodel.scheduling import ActiveJobs, Policy, TableCurve
from queuemodel.scheduling.view import Columns, SpeedTables
from queuemodel.scheduling.workloads.pollux_application import Application

from .state import RunningJob


class Rule(Protocol):
    """What decides: GPUs per job, or None when nothing can have changed since the last answer."""

    def allocate(self, jobs: Sequence[RunningJob], gpus: int, now: int, changed: bool) -> dict[str, int] | None:
        """GPUs per job at a step's end; ``changed``: whether a job arrived or ended in the step."""


class PolicyRule:
    """Asks a policy whenever a job has arrived or ended, at the end of the step.

    Parameters
    ----------
    policy : Policy
    jobs : sequence of RunningJob
    gpus : int
    curves : callable, default `Application.curve`
        What the policy believes: ``curves(application, batch_size)``.
    every : int, optional
        Ask also after so many steps without an event.
    """

    def __init__(
        self,
        policy: Policy,
        jobs: Sequence[RunningJob],
        *,
        gpus: int,
        curves: Callable[[Application, int], TableCurve] = Application.curve,
        every: int | None = None,
    ) -> None:
        self.policy = policy
        self.every = every
        self.asked = 0
        self.review = math.inf
        self.tables = SpeedTables(gpus)
        known: dict[tuple[str, int], tuple[int, int]] = {}
        self.rows: dict[str, tuple[int, int]] = {}
        self.left: dict[tuple[str, int], np.ndarray] = {}
        for job in jobs:
            key = (job.application.name, job.batch_size)
            if key not in known:
                curve = curves(job.application, job.batch_size)
                most = min(int(curve.points[-1][0]), gpus)
                known[key] = (self.tables.acquire(curve, 1, most, f"job {job.name!r}"), most)
            self.rows[job.name] = known[key]

    def allocate(self, jobs: Sequence[RunningJob], gpus: int, now: int, changed: bool) -> dict[str, int] | None:
        """See `Rule`."""
        due = now >= self.review or (self.every is not None and now >= self.asked + 60 * self.every)
        if not (changed or due):
            return None
        self.asked = now
        shown = self._shown(jobs)
        granted = self.policy.grants(shown, gpus, float(now))
        self.review = self.policy.review(shown, granted, float(now))
        grants = {job.name: int(n) for job, n in zip(jobs, granted.tolist(), strict=True) if n > 0}
        return dict(sorted(grants.items(), key=lambda item: item[1]))

    def _shown(self, jobs: Sequence[RunningJob]) -> ActiveJobs:
        most = [self.rows[job.name][1] for job in jobs]
        requested = [min(job.requested, top) for job, top in zip(jobs, most, strict=True)]
        left = np.array([self._updates_left(job) for job in jobs])
        columns = {
            "arrival_time": np.array([float(job.submitted) for job in jobs]),
            "attained_service": np.array([float(job.attained) for job in jobs]),
            "remaining": left,
            "true_remaining": left,
            "nodes": np.array([float(len(job.machines)) for job in jobs]),
            "least": np.ones(len(jobs), dtype=int),
            "most": np.array(most, dtype=int),
            "requested": np.array(requested, dtype=int),
            "row": np.array([self.rows[job.name][0] for job in jobs], dtype=int),
        }
        return ActiveJobs(
            Columns([job.name for job in jobs], columns), self.tables, knows=self.policy.knows, who=self.policy.name
        )

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
