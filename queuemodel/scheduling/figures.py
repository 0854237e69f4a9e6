"""Figures of schedules and studies; matplotlib is imported inside functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..drawing import BOUND, COLORS, OTHERS, band, finish, label_ends, new_axes, nth_style
from ..errors import ModelError
from .schedule import Schedule
from .study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = (7.6, 4.0)


def plot_nodes(schedule: Schedule, *, ax: Axes | None = None, **kwargs: Any) -> Axes:
    """Nodes over time as stacked areas; the jobs with most node-seconds in colours of their own, the others in grey.

    Needs ``simulate(..., history=True)``.
    """
    if schedule.history is None:
        raise ModelError("plot_nodes: the schedule has no history; simulate with history=True")
    ax = ax or new_axes(SIZE)
    hours = 3600.0
    times = np.unique(np.append(schedule.history[:, 0], schedule.arrival.min()))
    big = np.argsort(-schedule.attained_service, kind="stable")[: len(COLORS) - 1]  # the last one is grey
    levels = np.zeros((len(big) + 1, len(times)))
    for j in range(len(schedule.names)):
        changes = schedule.history[schedule.history[:, 1] == j]
        if not len(changes):
            continue
        at = np.searchsorted(changes[:, 0], times, side="right") - 1
        held = np.where(at >= 0, changes[np.maximum(at, 0), 2], 0.0)
        own = np.flatnonzero(big == j)
        levels[own[0] if own.size else len(big)] += held
    order = [k for k in [*np.argsort(schedule.arrival[big], kind="stable"), len(big)] if levels[k].any()]
    ax.stackplot(
        times / hours,
        levels[order],
        labels=[schedule.names[big[k]] if k < len(big) else "other jobs" for k in order],
        colors=[COLORS[k] if k < len(big) else OTHERS for k in order],
        step="post",
        linewidth=0,
        **kwargs,
    )
    ax.axhline(schedule.cluster.nodes, color=BOUND, linestyle="--", linewidth=1.2)
    ax.set(
        xlabel="time (h)",
        ylabel="nodes (held)",
        ylim=(0, schedule.cluster.nodes * 1.04),
        xlim=(times[0] / hours, times[-1] / hours),
        title=schedule.policy.name,
    )
    finish(ax, legend="right", reverse=True)
    return ax


def plot_response_times(
    schedules: Sequence[Schedule], *, labels: Sequence[str] | None = None, ax: Axes | None = None, **kwargs: Any
) -> Axes:
    """Share of the jobs that were done within a response time, per schedule (logarithmic time)."""
    ax = ax or new_axes(SIZE)
    names = labels or [schedule.policy.name for schedule in schedules]
    for number, (schedule, name) in enumerate(zip(schedules, names, strict=True)):
        T = np.sort(schedule.response_time)
        style = nth_style(number) | {"label": f"{name} (mean {T.mean():,.0f} s)"} | kwargs
        ax.step(T, np.arange(1, len(T) + 1) / len(T), where="post", **style)
    ax.set(xlabel="response time (s)", ylabel="jobs done (share)", ylim=(0, 1), xscale="log")
    finish(ax)
    return ax


def plot_sweep(
    study: Study, *, figure: str = "mean_response_time", against: str = "load", ax: Axes | None = None, **kwargs: Any
) -> Axes:
    """A figure against what was varied, one line per policy, with its interval over replications as a band."""
    if against not in study.varied or "policy" not in study.varied:
        raise ModelError(f"plot_sweep: the study varied {', '.join(study.varied)}, not policy and {against!r}")
    ax = ax or new_axes(SIZE)
    rows = study.table(figure)
    lines = []
    for number, policy in enumerate(dict.fromkeys(row["policy"] for row in rows)):
        own = sorted((row for row in rows if row["policy"] == policy), key=lambda row: row[against])
        x = np.array([row[against] for row in own], dtype=float)
        y = np.array([row[figure] for row in own])
        half = np.nan_to_num([row[f"{figure}_half_width"] for row in own])
        style: dict[str, Any] = nth_style(number) | {"marker": "o", "markersize": 4} | kwargs
        lines += ax.plot(x, y, label=policy, **style)
        band(ax, x, np.maximum(y - half, 0), y + half, lines[-1].get_color())
    unit = " (s)" if figure.endswith(("time", "delay", "makespan")) else ""
    against = against.removesuffix("_seconds") + " (s)" if against.endswith("_seconds") else against
    ax.set(xlabel=against.replace("_", " "), ylabel=f"{figure.replace('_', ' ')}{unit}")
    ax.set_ylim(bottom=0)
    finish(ax, legend=None)
    label_ends(ax, lines)
    return ax
