"""Loss against time, and time against the number of workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..drawing import COLORS, finish, new_axes, nth_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .result import Comparison


def plot_losses(comparison: Comparison, *, ax: Axes | None = None) -> Axes:
    """Loss against wall-clock time: means over the seeds, and their range; without training, steps per second."""
    shown = [(one, one.descent) for one in comparison.rows if one.descent is not None]
    if not shown:
        return _plot_rates(comparison, ax)
    ax = ax or new_axes((7.2, 4.6))
    for i, (one, run) in enumerate(shown):
        style = nth_style(i)
        time = run.times.mean(axis=0)
        ax.plot(time[1:], run.losses.mean(axis=0)[1:], label=one.name, lw=1.4, **style)
        ax.fill_between(
            time[1:], run.losses.min(axis=0)[1:], run.losses.max(axis=0)[1:], color=style["color"], alpha=0.15, lw=0
        )
    if comparison.target is not None:
        ax.axhline(comparison.target, color="black", lw=0.8, ls=":")
        ax.annotate("target", (0.01, comparison.target), xycoords=("axes fraction", "data"), ha="left", va="bottom")
    ax.set(xlabel="seconds", ylabel="loss", xscale="log", yscale="log")
    finish(ax, legend="right")
    return ax


def _plot_rates(comparison: Comparison, ax: Axes | None) -> Axes:
    """Steps per second of each strategy, with their intervals."""
    rows = comparison.to_rows()
    ax = ax or new_axes((7.2, 0.9 + 0.3 * len(rows)))
    rates = np.array([row["steps_per_second"] for row in rows])
    ends = np.array([[row["steps_per_second_low"], row["steps_per_second_high"]] for row in rows]).T
    ax.barh([row["strategy"] for row in rows], rates, xerr=np.abs(ends - rates), color=COLORS[0], alpha=0.7)
    ax.invert_yaxis()
    ax.set(xlabel="steps of all workers per second", xlim=(0, None))
    finish(ax, legend=None)
    return ax


def plot_time_to_target(comparisons: Sequence[Comparison], *, ax: Axes | None = None) -> Axes:
    """Median seconds to the target against the number of workers, a line for each strategy."""
    ax = ax or new_axes((7.2, 4.6))
    names = list(dict.fromkeys(one.name for comparison in comparisons for one in comparison.rows))
    for i, name in enumerate(names):
        points = [
            (comparison.workers, float(np.median(one.seconds_to)))
            for comparison in comparisons
            for one in comparison.rows
            if one.name == name
        ]
        known = [point for point in points if np.isfinite(point[1])]
        if known:
            ax.plot(*zip(*known, strict=True), marker="o", ms=3, label=name, **nth_style(i))
    ax.set(xlabel="workers", ylabel="seconds to the target", yscale="log")
    finish(ax, legend="right")
    return ax
