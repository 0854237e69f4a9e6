"""The figure of predictions held against measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from queuemodel.base.drawing import BOUND, COLORS, PROFILED, SMALL, finish_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = "osD^vPhXp<>*"


def plot_validation(rows: Sequence[dict[str, Any]]) -> Axes:
    """Draw predicted against measured throughput, one panel per ``group`` of rows, one look per ``label``.

    ``measured`` and ``predicted`` are numbers or arrays, in the row's ``unit``, which a group has in common.
    """
    from matplotlib.figure import Figure

    groups = list(dict.fromkeys(row["group"] for row in rows))
    labels = list(dict.fromkeys(row["label"] for row in rows))
    looks = {label: {"color": COLORS[i % len(COLORS)], "marker": MARKERS[i]} for i, label in enumerate(labels)}
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
    figure.legend(known.values(), known.keys(), loc="outside lower center", ncols=4, fontsize=SMALL, frameon=False)
    return panels[0]


def _draw(ax: Axes, rows: Sequence[dict[str, Any]], looks: dict[str, dict[str, Any]]) -> None:
    measured, predicted = (
        np.concatenate([np.atleast_1d(row[key]) for row in rows]) for key in ("measured", "predicted")
    )
    low, high = min(measured.min(), predicted.min()), max(measured.max(), predicted.max())
    ends = [0.0, 1.1 * high]
    if high > 20 * low:
        ax.set(xscale="log", yscale="log")
        ends = [low / 1.3, 1.3 * high]
    ax.fill_between(ends, [0.9 * end for end in ends], [1.1 * end for end in ends], color=PROFILED, linewidth=0,
                    label="within 10 %")  # fmt: skip
    ax.plot(ends, ends, "--", color=BOUND, linewidth=1.2)
    for label, look in looks.items():
        for i, row in enumerate([row for row in rows if row["label"] == label]):
            ax.plot(
                row["measured"], row["predicted"], linestyle="", markersize=4, alpha=0.7,
                label="" if i else label, **look,
            )  # fmt: skip
    unit = rows[0]["unit"]
    ax.set(xlim=ends, ylim=ends, aspect="equal", xlabel=f"measured ({unit})", ylabel=f"predicted ({unit})")
    finish_axes(ax, legend=None)
