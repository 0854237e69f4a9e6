"""What a simulation yields: one record per job, and the figures that follow from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.results import Result, rows_of
from .cluster import Cluster
from .policies.base import Policy

#: The figures of a summary, in the order of tables; times in seconds.
FIGURES: dict[str, Callable[[Schedule], float]] = {
    "mean_response_time": lambda run: run.mean_response_time,
    "median_response_time": lambda run: np.median(run.response_time),
    "p95_response_time": lambda run: np.quantile(run.response_time, 0.95),
    "p99_response_time": lambda run: np.quantile(run.response_time, 0.99),
    "mean_slowdown": lambda run: run.slowdown.mean(),
    "p95_slowdown": lambda run: np.quantile(run.slowdown, 0.95),
    "mean_queueing_delay": lambda run: (run.start - run.arrival)[run.warmup :].mean(),
    "utilization": lambda run: run.utilization,
    "efficiency": lambda run: run.efficiency,
    "mean_restarts": lambda run: run.restarts[run.warmup :].mean(),
    "makespan": lambda run: run.makespan,
    "worst_fairness": lambda run: run.fairness.max(),
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Schedule(Result):
    """Records of the jobs of one run, each an array of shape (jobs,) in order of arrival; times in seconds."""

    digits = 6

    policy: Policy
    cluster: Cluster
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    arrival: np.ndarray
    start: np.ndarray  #: The first one.
    end: np.ndarray
    attained_service: np.ndarray  #: Node-seconds held.
    useful_service: np.ndarray  #: Node-seconds that the work done takes at the efficiency of the least nodes.
    best_time: np.ndarray  #: Seconds that the job takes alone on its fastest number of nodes.
    shared_time: np.ndarray  #: The same on an equal share of the cluster among the jobs met on average.
    restarts: np.ndarray
    failures: np.ndarray
    early: np.ndarray  #: Whether it was terminated early.
    warmup: int  #: Jobs, first by arrival, left out of means and quantiles.
    seed: int
    history: np.ndarray | None  #: Time, job (position) and its new number of nodes, shape (changes, 3).
    events: int  #: How often the state changed.
    decisions: int  #: How often the policy was asked.

    @property
    def response_time(self) -> np.ndarray:
        """From arrival to end, after the warm-up."""
        return (self.end - self.arrival)[self.warmup :]

    @property
    def slowdown(self) -> np.ndarray:
        """Response time over that alone on the fastest number of nodes, after the warm-up."""
        return self.response_time / self.best_time[self.warmup :]

    @property
    def fairness(self) -> np.ndarray:
        """Finish-time fairness (Mahajan et al., NSDI 2020), after the warm-up: 1 and less is fair.

        Response time over the time on an equal share of the cluster among the jobs met on average.
        """
        return self.response_time / self.shared_time[self.warmup :]

    @property
    def mean_response_time(self) -> float:
        """Seconds, after the warm-up."""
        return float(self.response_time.mean())

    @property
    def makespan(self) -> float:
        """From the first arrival to the last end."""
        return float(self.end.max() - self.arrival.min())

    @property
    def utilization(self) -> float:
        """Share of all node-seconds of the makespan that were held by jobs."""
        return float(self.attained_service.sum() / (self.makespan * self.cluster.nodes))

    @property
    def efficiency(self) -> float:
        """Useful over held node-seconds: speed per node against that on the least nodes; restarts lower it."""
        return float(self.useful_service.sum() / self.attained_service.sum())

    def summary(self) -> dict[str, float]:
        """The figures of `FIGURES` by name."""
        return {name: float(figure(self)) for name, figure in FIGURES.items()}

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per job, warm-up included."""
        columns: dict[str, Any] = {
            "name": self.names,
            "kind": self.kinds,
            "arrival_time": self.arrival,
            "first_start": self.start,
            "end": self.end,
            "response_time": self.end - self.arrival,
            "mean_nodes": self.attained_service / np.maximum(self.end - self.start, 1e-300),
            "attained_service": self.attained_service,
            "restarts": self.restarts,
            "failures": self.failures,
            "early_end": self.early,
        }
        return rows_of(columns)

    def shown_rows(self) -> list[dict[str, Any]]:
        """The figures."""
        return [{"figure": name.replace("_", " "), "value": value} for name, value in self.summary().items()]

    def caption(self) -> str:
        """Policy, jobs and nodes."""
        return f"{self.policy.name}: {len(self.names)} jobs on {self.cluster.nodes} nodes"

    def to_dict(self) -> dict[str, Any]:
        """Plain values: the figures, how they were obtained, and the records of the jobs."""
        return {
            "policy": self.policy.name,
            "nodes": self.cluster.nodes,
            "jobs": len(self.names),
            "warmup_jobs": self.warmup,
            "seed": self.seed,
            **self.summary(),
            "records": self.to_rows(),
        }
