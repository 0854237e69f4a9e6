"""One run of the compatibility mode by the name of its policy, and what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ModelError
from ..policies.base import Policy
from ..policies.named import policy_named
from . import policies
from .predict import predicted_curve
from .rule import PolicyRule, measured_curve
from .simulate import Rule, run
from .state import RunningJob

CURVES = {"true": measured_curve, "predicted": predicted_curve}


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """Jobs of a finished run."""

    jobs: tuple[RunningJob, ...]
    gpus: int

    @property
    def response_time(self) -> np.ndarray:
        """Seconds from submission to the end, shape (jobs,)."""
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


def run_named(jobs: Sequence[RunningJob], policy: str | Policy, *, gpus: int, curves: str = "true") -> Outcome:
    """Run jobs in the compatibility mode.

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
    rule: Rule
    for job in jobs:
        if policy == "tiresias" and job.requested > gpus:
            raise ModelError(f"job {job.name!r}: num_replicas must be at most the {gpus} GPUs, got {job.requested}")
    if policy == "tiresias":
        rule = policies.Tiresias()
    elif policy == "optimus":
        rule = policies.Optimus()
    else:
        if curves not in CURVES:
            raise ModelError(f"pollux: curves must be one of {', '.join(CURVES)}, got {curves!r}")
        value = policy_named(policy) if isinstance(policy, str) else policy
        if value.divisible:
            raise ModelError(f"pollux: {value.name} grants fractions of a GPU; leave divisible out")
        rule = PolicyRule(value, jobs, gpus=gpus, curves=CURVES[curves])
    return Outcome(tuple(run(jobs, rule, gpus=gpus)), gpus)
