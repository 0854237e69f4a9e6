"""What a simulation yields: one record per job, the figures that follow from them, and their pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.drawing import BOUND, COLORS, OTHERS, finish_axes, new_axes, require_style, styles
from ..base.errors import ModelError
from ..base.results import Result, rows_of
from .nodes import Nodes
from .policy import Policy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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

    _digits = 6

    policy: Policy
    nodes: Nodes
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    arrival: np.ndarray
    start: np.ndarray  #: The first one.
    end: np.ndarray
    attained_service: np.ndarray  #: Node-seconds held.
    useful_service: np.ndarray  #: Node-seconds that the work done takes at the efficiency of the least nodes.
    best_time: np.ndarray  #: Seconds of the job without others, on its fastest number of nodes.
    shared_time: np.ndarray  #: The same on an equal share of the cluster, by the mean number of jobs present.
    restarts: np.ndarray
    failures: np.ndarray
    early: np.ndarray  #: Whether it was terminated early.
    warmup: int  #: Jobs, first by arrival, left out of means and quantiles.
    seed: int
    history: np.ndarray | None  #: Time, job (position) and its new number of nodes, shape (changes, 3).
    events: int  #: How often the state changed.
    decisions: int  #: How often the policy was called.

    @property
    def response_time(self) -> np.ndarray:
        """From arrival to end, after the warm-up."""
        return (self.end - self.arrival)[self.warmup :]

    @property
    def slowdown(self) -> np.ndarray:
        """Response time over `best_time`, after the warm-up."""
        return self.response_time / self.best_time[self.warmup :]

    @property
    def fairness(self) -> np.ndarray:
        """Response over shared time, after the warm-up; 1 and less is fair (Mahajan et al., NSDI 2020)."""
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
        return float(self.attained_service.sum() / (self.makespan * self.nodes.count))

    @property
    def efficiency(self) -> float:
        """Useful over held node-seconds: speed per node against that on the least nodes; restarts lower it."""
        return float(self.useful_service.sum() / self.attained_service.sum())

    def summary(self) -> dict[str, float]:
        """The figures of `FIGURES` by name."""
        return {name: float(figure(self)) for name, figure in FIGURES.items()}

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per job, warm-up included."""
        return rows_of({
            "name": np.array(self.names, dtype=object),
            "kind": np.array(self.kinds, dtype=object),
            "arrival_time": self.arrival,
            "first_start": self.start,
            "end": self.end,
            "response_time": self.end - self.arrival,
            "mean_nodes": self.attained_service / np.maximum(self.end - self.start, 1e-300),
            "attained_service": self.attained_service,
            "restarts": self.restarts,
            "failures": self.failures,
            "early_end": self.early,
        })  # fmt: skip

    def _shown_rows(self) -> list[dict[str, Any]]:
        return [{"figure": name.replace("_", " "), "value": value} for name, value in self.summary().items()]

    def caption(self) -> str:
        return f"{self.policy.name}: {len(self.names)} jobs on {self.nodes.count} nodes"

    def to_dict(self) -> dict[str, Any]:
        """Plain values: the figures, how they were obtained, and the records of the jobs."""
        return {
            "policy": self.policy.name,
            "nodes": self.nodes.count,
            "jobs": len(self.names),
            "warmup_jobs": self.warmup,
            "seed": self.seed,
            **self.summary(),
            "records": self.to_rows(),
        }


FIGURE_SIZE = (7.6, 4.0)

#: By class of policy, the same in every figure; those of one colour are seldom compared.
FAMILIES = ("EqualShare", "SRPT", "ModelBased", "GreedyGain", "HeSRPT", "RankPriced", "Optimus", "FIFO")
POLICY_COLORS = dict(zip(FAMILIES, COLORS, strict=True)) | {"LeastAttainedService": COLORS[-1]}


def plot_nodes(schedule: Schedule, *, ax: Axes | None = None, **kwargs: Any) -> Axes:
    """Nodes over time as stacked areas; the jobs with most work in colours of their own, the others in grey.

    A job has the same colour under every policy. Needs ``schedule(..., history=True)``.
    """
    if schedule.history is None:
        raise ModelError("plot_nodes: the schedule has no history; schedule with history=True")
    kwargs = require_style(kwargs, "collections.PolyCollection", "ax", "baseline")
    ax = ax or new_axes(FIGURE_SIZE)
    times = np.unique(np.append(schedule.history[:, 0], schedule.arrival.min()))
    big = np.argsort(-schedule.useful_service, kind="stable")[: len(COLORS) - 1].tolist()  # the last one is grey
    levels = np.zeros((len(big) + 1, len(times)))
    for j in range(len(schedule.names)):  # each has a change: its start
        changes = schedule.history[schedule.history[:, 1] == j]
        at = np.searchsorted(changes[:, 0], times, side="right") - 1
        held = np.where(at >= 0, changes[np.maximum(at, 0), 2], 0.0)
        levels[big.index(j) if j in big else -1] += held
    order = [k for k in [*np.argsort(schedule.arrival[big], kind="stable"), len(big)] if levels[k].any()]
    names, colors = [*(schedule.names[j] for j in big), "other jobs"], [*COLORS[: len(big)], OTHERS]
    hours = times / 3600
    ax.stackplot(
        hours, levels[order], labels=[names[k] for k in order], colors=[colors[k] for k in order], step="post",
        linewidth=0, **kwargs,
    )  # fmt: skip
    count = schedule.nodes.count
    ax.axhline(count, color=BOUND, linestyle="--", linewidth=1.2)
    ax.set(xlabel="time (h)", ylabel="nodes held", ylim=(0, count * 1.04), xlim=(hours[0], hours[-1]))
    ax.set_title(schedule.policy.name, fontsize="medium")
    finish_axes(ax, legend="right", reverse=True)
    return ax


def plot_response_times(
    schedules: Sequence[Schedule], *, labels: Sequence[str] | None = None, ax: Axes | None = None, **kwargs: Any
) -> Axes:
    """Share of the jobs that were done within a response time, per schedule (logarithmic time)."""
    kwargs = require_style(kwargs, "lines.Line2D", "labels", "ax")
    ax = ax or new_axes(FIGURE_SIZE)
    names = labels or [schedule.policy.name for schedule in schedules]
    looks = styles(names, POLICY_COLORS)
    for schedule, name in zip(schedules, names, strict=True):
        T = np.sort(schedule.response_time)
        style = looks[name] | {"label": f"{name} (mean {T.mean():,.0f} s)"} | kwargs
        ax.step(T, np.arange(1, len(T) + 1) / len(T), where="post", **style)
    ax.set(xlabel="response time (s)", ylabel="share of the jobs done", ylim=(0, 1), xscale="log")
    finish_axes(ax)
    return ax
