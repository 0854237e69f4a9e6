"""One run by the name of its policy, and what comes out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from queuemodel.base.checks import require_choice
from queuemodel.base.errors import DataError, ModelError
from queuemodel.base.results import Result
from queuemodel.scheduling import Policy, policy_named

from .artifact import Application, read_submissions
from .engine import advance_all
from .predict import predicted_curve
from .rivals import Optimus, Tiresias
from .rule import PolicyRule, Rule
from .state import RunningJob

#: Seconds; the simulator lives through every minute until then.
LATEST = 10_000_000

CURVES = {"true": Application.curve, "predicted": predicted_curve}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Replay(Result):
    """Jobs of a finished run; times in seconds."""

    jobs: tuple[RunningJob, ...]
    gpus: int

    @property
    def response_time(self) -> np.ndarray:
        """From submission to the end, shape (jobs,)."""
        return np.array([float((job.completed or 0) - job.submitted) for job in self.jobs])

    @property
    def mean_response_time(self) -> float:
        """Mean seconds from submission to the end."""
        return float(self.response_time.sum() / len(self.jobs))

    def summary(self) -> dict[str, Any]:
        """Figures of the run; times in seconds."""
        T = self.response_time
        first, last = min(job.submitted for job in self.jobs), max(job.completed or 0 for job in self.jobs)
        attained = sum(job.attained for job in self.jobs)
        return {
            "jobs": len(self.jobs),
            "mean_response_time": self.mean_response_time,
            "median_response_time": float(np.median(T)),
            "p95_response_time": float(np.quantile(T, 0.95)),
            "p99_response_time": float(np.quantile(T, 0.99)),
            "mean_queueing_delay": float(np.mean([(job.started or 0) - job.submitted for job in self.jobs])),
            "utilization": attained / (self.gpus * (last - first)),
            "mean_restarts": float(np.mean([job.restarts for job in self.jobs])),
            "makespan": last - first,
        }

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per job."""
        return [
            {
                "name": job.name,
                "kind": job.application.name,
                "arrival_time": job.submitted,
                "first_start": job.started,
                "end": job.completed,
                "response_time": (job.completed or 0) - job.submitted,
                "attained_service": job.attained,
                "restarts": job.restarts,
            }
            for job in self.jobs
        ]


def read_jobs(path: str | os.PathLike[str], traces: str | os.PathLike[str]) -> list[RunningJob]:
    """Jobs of a workload file of the artifact, ready to run; errors as of `read_pollux`."""
    rows = read_submissions(path, traces)
    if rows[-1].time > LATEST:
        raise DataError(
            f"{rows[-1].row.where}: time must be at most {LATEST} seconds from the stream's start, got {rows[-1].time}"
        )
    return [RunningJob(row.name, row.application, row.batch_size, row.requested, row.time) for row in rows]


def replay(jobs: Sequence[RunningJob], policy: str | Policy, *, gpus: int, curves: str = "true") -> Replay:
    """Run jobs as the artifact's simulator does.

    Parameters
    ----------
    jobs : sequence of RunningJob
        Fresh from `read_jobs`; the run changes them.
    policy : str or Policy
        ``"tiresias"`` and ``"optimus"`` are the artifact's own; any other name is `policy_named`'s.
    gpus : int
        A multiple of four.
    curves : {"true", "predicted"}
        What a policy of the package knows; the artifact's Optimus always knows the measured times.
    """
    require_choice(curves, "pollux: curves", CURVES)
    rule: Rule
    if policy == "tiresias":
        for job in jobs:
            if job.requested > gpus:
                raise ModelError(f"job {job.name!r}: num_replicas must be at most the {gpus} GPUs, got {job.requested}")
        rule = Tiresias()
    elif policy == "optimus":
        rule = Optimus()
    else:
        value = policy_named(policy) if isinstance(policy, str) else policy
        if value.divisible:
            raise ModelError(f"pollux: {value.name} grants fractions of a GPU; leave divisible out")
        rule = PolicyRule(value, jobs, gpus=gpus, curves=CURVES[curves])
    return Replay(tuple(advance_all(jobs, rule, gpus=gpus)), gpus)
