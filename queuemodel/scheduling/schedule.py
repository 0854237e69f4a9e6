"""What a simulation yields: one record per job, and the figures that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..results import Result
from .cluster import Cluster
from .policies.base import Policy

#: The figures of a summary, in the order of tables; times in seconds.
FIGURES = (
    "mean_response_time",
    "median_response_time",
    "p95_response_time",
    "p99_response_time",
    "mean_slowdown",
    "p95_slowdown",
    "mean_queueing_delay",
    "utilization",
    "efficiency",
    "mean_restarts",
    "makespan",
    "worst_fairness",
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Schedule(Result):
    """Records of the jobs of one run, each an array of shape (jobs,) in order of arrival; times in seconds.

    Attributes
    ----------
    policy : Policy
    cluster : Cluster
    names, kinds : tuple of str
    arrival, start, end : ndarray
        Arrival, first start, end.
    attained_service : ndarray
        Node-seconds held.
    useful_service : ndarray
        Node-seconds that the work done would have taken at the efficiency of the least nodes.
    best_time : ndarray
        Seconds that the job takes alone on its fastest number of nodes.
    shared_time : ndarray
        Seconds that it would have taken on an equal share of the cluster among the jobs met on average.
    restarts, failures : ndarray of int
    early : ndarray of bool
        Whether it was terminated early.
    warmup : int
        Jobs, first by arrival, left out of means and quantiles.
    seed : int
    history : ndarray, shape (changes, 3), or None
        Time, job (position) and its new number of nodes.
    events, decisions : int
        How often the state changed, and how often the policy was asked.
    """

    digits = 6

    policy: Policy
    cluster: Cluster
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    arrival: np.ndarray
    start: np.ndarray
    end: np.ndarray
    attained_service: np.ndarray
    useful_service: np.ndarray
    best_time: np.ndarray
    shared_time: np.ndarray
    restarts: np.ndarray
    failures: np.ndarray
    early: np.ndarray
    warmup: int
    seed: int
    history: np.ndarray | None
    events: int
    decisions: int

    @property
    def response_time(self) -> np.ndarray:
        """From arrival to end, after the warm-up."""
        return (self.end - self.arrival)[self.warmup :]

    @property
    def queueing_delay(self) -> np.ndarray:
        """From arrival to the first start, after the warm-up."""
        return (self.start - self.arrival)[self.warmup :]

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
        T, s = self.response_time, self.slowdown
        return {
            "mean_response_time": self.mean_response_time,
            "median_response_time": float(np.median(T)),
            "p95_response_time": float(np.quantile(T, 0.95)),
            "p99_response_time": float(np.quantile(T, 0.99)),
            "mean_slowdown": float(s.mean()),
            "p95_slowdown": float(np.quantile(s, 0.95)),
            "mean_queueing_delay": float(self.queueing_delay.mean()),
            "utilization": self.utilization,
            "efficiency": self.efficiency,
            "mean_restarts": float(self.restarts[self.warmup :].mean()),
            "makespan": self.makespan,
            "worst_fairness": float(self.fairness.max()),
        }

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per job, warm-up included."""
        held = self.attained_service / np.maximum(self.end - self.start, 1e-300)
        return [
            {
                "name": self.names[j],
                "kind": self.kinds[j],
                "arrival_time": float(self.arrival[j]),
                "first_start": float(self.start[j]),
                "end": float(self.end[j]),
                "response_time": float(self.end[j] - self.arrival[j]),
                "mean_nodes": float(held[j]),
                "attained_service": float(self.attained_service[j]),
                "restarts": int(self.restarts[j]),
                "failures": int(self.failures[j]),
                "early_end": bool(self.early[j]),
            }
            for j in range(len(self.names))
        ]

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
