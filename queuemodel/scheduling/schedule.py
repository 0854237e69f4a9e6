"""What a simulation yields: one record per job, and the figures that follow from them."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..files import write_atomically
from ..tables import html_table, text_table
from .cluster import Cluster
from .policies.base import Policy

if TYPE_CHECKING:
    import pandas

    from .engine import Engine

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


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
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

    @classmethod
    def of(cls, engine: Engine, *, warmup: float, seed: int) -> Schedule:
        """From a finished run."""
        jobs = engine.jobs
        stay = np.maximum(engine.end - engine.arrival, 1e-300)
        met = np.maximum((engine.crowd[1] - engine.crowd[0]) / stay, 1.0)
        share = np.clip(engine.cluster.nodes / met, engine.least, engine.most)
        shared = np.empty(len(jobs))
        for j, job in enumerate(jobs):
            shared[j] = engine.true[j] / _between(job.curve, float(share[j]), int(engine.most[j]))
        schedule = cls(
            policy=engine.policy,
            cluster=engine.cluster,
            names=tuple(engine.names),
            kinds=tuple(job.kind for job in jobs),
            arrival=engine.arrival,
            start=engine.start,
            end=engine.end,
            attained_service=engine.attained,
            useful_service=engine.useful,
            best_time=engine.true / engine.fastest,
            shared_time=shared,
            restarts=engine.restarts,
            failures=engine.failures,
            early=engine.share < 1,
            warmup=min(math.floor(warmup * len(jobs)), len(jobs) - 1),
            seed=seed,
            history=None if engine.history is None else np.array(engine.history, dtype=float).reshape(-1, 3),
            events=engine.events,
            decisions=engine.decisions,
        )
        for value in (getattr(schedule, name) for name in cls.__slots__):
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
        return schedule

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

    def to_frame(self) -> pandas.DataFrame:
        """The rows as a DataFrame."""
        import pandas

        return pandas.DataFrame(self.to_rows())

    def to_dict(self, *, jobs: bool = False) -> dict[str, Any]:
        """Plain values: the summary and how it was obtained, with the records when ``jobs``."""
        document: dict[str, Any] = {
            "policy": self.policy.name,
            "nodes": self.cluster.nodes,
            "jobs": len(self.names),
            "warmup_jobs": self.warmup,
            "seed": self.seed,
            **self.summary(),
        }
        if jobs:
            document["records"] = self.to_rows()
        return document

    def to_json(self, path: str | os.PathLike[str] | None = None, *, jobs: bool = True) -> str:
        """JSON of `to_dict`; also written to ``path`` when one is given."""
        text = json.dumps(self.to_dict(jobs=jobs), indent=1)
        if path is not None:
            write_atomically(path, text + "\n")
        return text

    def _summary_rows(self) -> list[dict[str, Any]]:
        return [{"figure": name.replace("_", " "), "value": value} for name, value in self.summary().items()]

    def _caption(self) -> str:
        return f"{self.policy.name}: {len(self.names)} jobs on {self.cluster.nodes} nodes"

    def __repr__(self) -> str:
        return f"{self._caption()}\n{text_table(self._summary_rows(), digits=6)}"

    def _repr_html_(self) -> str:
        return html_table(self._summary_rows(), caption=self._caption(), digits=6)


def _between(curve: Any, nodes: float, most: int) -> float:
    """Speed on an average number of nodes: linear between whole ones."""
    low = math.floor(nodes)
    if low >= most or nodes == low:
        return float(curve(min(nodes, most)))
    return float(curve(low) + (nodes - low) * (curve(low + 1) - curve(low)))
