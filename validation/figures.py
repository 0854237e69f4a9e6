"""The figure of predictions held against measurements."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from queuemodel.base.drawing import BOUND, COLORS, MARKERS, PROFILED, SMALL, finish_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_validation(rows: Sequence[dict[str, Any]]) -> Axes:
    """Draw predicted against measured throughput, one panel per ``group`` of rows, one look per job.

    Each row has ``group``, ``series`` (named after its job), and ``measured`` and ``predicted`` steps per second.
    """
    from matplotlib.figure import Figure

    groups = list(dict.fromkeys(row["group"] for row in rows))
    jobs = list(dict.fromkeys(_job(row["series"]) for row in rows))
    looks = {job: {"color": COLORS[i % len(COLORS)], "marker": MARKERS[i]} for i, job in enumerate(jobs)}
    figure = Figure(figsize=(8, 3.2 * -(-len(groups) // 3)), layout="constrained")
    panels = list(figure.subplots(-(-len(groups) // 3), 3, squeeze=False).flat)
    for group, panel in zip(groups, panels, strict=False):
        _draw(panel, [row for row in rows if row["group"] == group], looks)
        panel.set_title(str(group).replace(", ", ",\n"), fontsize=SMALL)
    for panel in panels[len(groups) :]:
        panel.remove()
    known = {
        label: handle for panel in panels for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    figure.legend(known.values(), known.keys(), loc="outside lower center", ncols=5, fontsize=SMALL, frameon=False)
    return panels[0]


def _job(series: str) -> str:
    """That a series is named after: "alexnet" of "ddp-alexnet-40"."""
    return re.sub("^(ddp|mirrored)-", "", series).split("-")[0]


def _draw(ax: Axes, rows: Sequence[dict[str, Any]], looks: dict[str, dict[str, Any]]) -> None:
    values = [row[key] for row in rows for key in ("measured", "predicted")]
    ends = [0.0, 1.1 * max(values)]
    if max(values) > 20 * min(values):
        ax.set(xscale="log", yscale="log")
        ends[0] = min(values) / 1.3
    ax.fill_between(ends, [0.9 * end for end in ends], [1.1 * end for end in ends], color=PROFILED, linewidth=0,
                    label="within 10 %")  # fmt: skip
    ax.plot(ends, ends, "--", color=BOUND, linewidth=1.2)
    for job, look in looks.items():
        own = [(row["measured"], row["predicted"]) for row in rows if _job(row["series"]) == job]
        if own:
            ax.plot(*zip(*own, strict=True), linestyle="", markersize=4, label=job, **look)
    ax.set(xlim=ends, ylim=ends, aspect="equal", xlabel="measured (steps/s)", ylabel="predicted (steps/s)")
    finish_axes(ax, legend=None)
