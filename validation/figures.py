"""The figure of predictions held against measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from queuemodel.base.drawing import BOUND, COLORS, MARKERS, PROFILED, finish_axes, new_axes
from queuemodel.base.errors import ModelError

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_validation(rows: Sequence[dict[str, Any]], *, ax: Axes | None = None, unit: str = "steps/s") -> Axes:
    """Draw predicted against measured throughput, one marker per row, one kind of marker per series.

    Parameters
    ----------
    rows : sequence of dict
        Each with ``series``, ``measured`` and ``predicted``; optionally ``lower`` and ``upper`` of the prediction, and
        ``group``, such as the method: on a new figure each group gets a panel of its own.
    ax : Axes, optional
    unit : str
        Of both.

    Returns
    -------
    Axes
        The first, when there are several panels.

    Raises
    ------
    ModelError
        When there is no row, or one lacks a value > 0.
    """
    for row in rows:
        if "series" not in row or not all(0 < row.get(key, 0) < math.inf for key in ("measured", "predicted")):
            raise ModelError(f"plot_validation: rows need series, and measured and predicted > 0, got {row!r}")
    if not rows:
        raise ModelError("plot_validation: at least one row is needed, got none")
    groups = list(dict.fromkeys(row.get("group", "") for row in rows))
    if ax is not None or len(groups) == 1:
        return _validation_panel(rows, ax or new_axes(), unit)
    from matplotlib.figure import Figure

    high = math.ceil(len(groups) / 2)
    panels = list(Figure(figsize=(8.8, 5.4 * high), layout="constrained").subplots(high, 2, squeeze=False).flat)
    for group, panel in zip(groups, panels, strict=False):
        _validation_panel([row for row in rows if row.get("group", "") == group], panel, unit).set_title(str(group))
    for panel in panels[len(groups) :]:
        panel.remove()
    return panels[0]


def _validation_panel(rows: Sequence[dict[str, Any]], ax: Axes, unit: str) -> Axes:
    values = [row[key] for row in rows for key in ("measured", "predicted")]
    least, most = min(values) / 1.3, max(values) * 1.15
    if wide := max(values) > 20 * min(values):
        ax.set_xscale("log")
        ax.set_yscale("log")
    line = np.array([least if wide else 0.0, most])
    ax.fill_between(line, 0.9 * line, 1.1 * line, color=PROFILED, linewidth=0, label="within 10 %")
    ax.plot(line, line, "--", color=BOUND, linewidth=1.2)
    for index, name in enumerate(dict.fromkeys(row["series"] for row in rows)):
        color, marker = COLORS[index % len(COLORS)], MARKERS[index % len(MARKERS)]
        own = [row for row in rows if row["series"] == name]
        for row in own:
            if row.get("lower") is not None and row.get("upper") is not None:
                ax.plot([row["measured"]] * 2, [row["lower"], row["upper"]], color=color, alpha=0.4, linewidth=1.0)
        x, y = [row["measured"] for row in own], [row["predicted"] for row in own]
        ax.plot(x, y, marker, color=color, markersize=5, label=str(name))
    ax.set_xlim(line[0], line[1])
    ax.set_ylim(line[0], line[1])
    ax.set_aspect("equal", anchor="N")
    ax.set_xlabel(f"measured throughput ({unit})")
    ax.set_ylabel(f"predicted throughput ({unit})")
    finish_axes(ax, legend=None)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, fontsize=6, frameon=False)  # hides no point
    return ax
