"""Loss against time, and time against the number of workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..drawing import COLORS, LINES, finish, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .result import Comparison


def plot_losses(comparison: Comparison, axes: Axes | None = None) -> Axes:
    """Loss against wall-clock time: means over the seeds, and their range; without training, steps per second."""
    shown = [(one, one.descent) for one in comparison.rows if one.descent is not None]
    if not shown:
        return _plot_rates(comparison, axes)
    axes = axes or new_axes((7.2, 4.6))
    for i, (one, run) in enumerate(shown):
        color, line = COLORS[i % len(COLORS)], LINES[i // len(COLORS) % len(LINES)]
        time = run.times.mean(axis=0)
        axes.plot(time[1:], run.losses.mean(axis=0)[1:], line, color=color, label=one.name, lw=1.4)
        axes.fill_between(
            time[1:], run.losses.min(axis=0)[1:], run.losses.max(axis=0)[1:], color=color, alpha=0.15, lw=0
        )
    if comparison.target is not None:
        axes.axhline(comparison.target, color="black", lw=0.8, ls=":")
        axes.annotate("target", (0.01, comparison.target), xycoords=("axes fraction", "data"), ha="left", va="bottom")
    axes.set(xlabel="seconds", ylabel="loss", xscale="log", yscale="log")
    finish(axes, legend="right")
    return axes


def _plot_rates(comparison: Comparison, axes: Axes | None) -> Axes:
    """Steps per second of each strategy, with their intervals."""
    rows = comparison.to_rows()
    axes = axes or new_axes((7.2, 0.9 + 0.3 * len(rows)))
    rates = np.array([row["steps_per_second"] for row in rows])
    ends = np.array([[row["steps_per_second_low"], row["steps_per_second_high"]] for row in rows]).T
    axes.barh([row["strategy"] for row in rows], rates, xerr=np.abs(ends - rates), color=COLORS[0], alpha=0.7)
    axes.invert_yaxis()
    axes.set(xlabel="steps of all workers per second", xlim=(0, None))
    finish(axes, legend=None)
    return axes


def plot_time_to_target(comparisons: Sequence[Comparison], axes: Axes | None = None) -> Axes:
    """Median seconds to the target against the number of workers, a line for each strategy."""
    axes = axes or new_axes((7.2, 4.6))
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
            line = LINES[i // len(COLORS) % len(LINES)]
            axes.plot(*zip(*known, strict=True), line, marker="o", ms=3, color=COLORS[i % len(COLORS)], label=name)
    axes.set(xlabel="workers", ylabel="seconds to the target", yscale="log")
    finish(axes, legend="right")
    return axes
