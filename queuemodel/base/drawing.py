"""The look of every figure: measurements are black markers with intervals, models solid lines with their band, bounds
grey dashes; the profiled range is shaded. Figures are at most 8 inches wide and no text is below 9 points, so that they
can be read at half their size; the background is white, also on a dark page. Nothing is shown and no global setting is
changed.
"""

from __future__ import annotations

import base64
import io
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .checks import extra, require_known
from .errors import DataError
from .files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

FORMATS = (".png", ".svg", ".pdf")
MODEL, MEASURED, BOUND, KNEE, PROFILED, OTHERS = "#0072b2", "black", "0.55", "#d55e00", "0.92", "0.8"

#: For what has no colour of its own, distinct in any colour vision (after Okabe and Ito, 2008).
COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7f5539", "#999999")

#: By place in a step.
PLACES = {
    "worker": "#999999", "transmit link": "#0072b2", "receive link": "#e69f00", "server update": "#009e73",
    "parameter server": "#0072b2", "network": "#0072b2", "latency": "#cc79a7", "stragglers": "#7f5539",
}  # fmt: skip

WAITING = 0.4  #: Opacity of what only waits for a place.
SMALL = 9  #: Points: the text of legends and labels.

LINES = ("-", "--", ":", "-.")


def new_axes(size: tuple[float, float] = (6.4, 4.2)) -> Axes:
    """Axes of a new figure (size in inches), outside pyplot's list of figures."""
    Figure = extra("matplotlib.figure", "plots", what="a figure").Figure
    return Figure(figsize=size, layout="constrained").subplots()


def require_style(style: dict[str, Any], artist: str, *arguments: str) -> dict[str, Any]:
    """The style, lw as linewidth; refuses what is neither an argument nor such an artist's (raises `ModelError`)."""
    module, kind = artist.split(".")
    drawn = getattr(extra(f"matplotlib.{module}", "plots", what="a figure"), kind)
    require_known(style, [*arguments, *(name[4:] for name in dir(drawn) if name.startswith("set_"))], "plot")
    normalized: dict[str, Any] = extra("matplotlib.cbook", "plots", what="a figure").normalize_kwargs(style, drawn)
    return normalized


def save_figure(axes: Axes, path: str | os.PathLike[str]) -> None:
    """Write the figure of ``axes`` as .png, .svg or .pdf, whole or not at all.

    Raises `DataError` for other suffixes, and where the file cannot be written.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise DataError(f"{path}: a picture's file name must end in one of {', '.join(FORMATS)}, got {suffix!r}")
    write_atomically(path, _render(axes, suffix))


def svg_image(draw: Callable[[], Axes]) -> str:
    """What ``draw`` draws, as an image in HTML."""
    data = base64.b64encode(_render(draw(), ".svg")).decode()
    return f'<img alt="plot" src="data:image/svg+xml;base64,{data}"/>'


def _render(axes: Axes, suffix: str) -> bytes:
    from matplotlib import rc_context

    dated = {".svg": "Date", ".pdf": "CreationDate"}.get(suffix)
    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "queuemodel"}):  # the same figure gives the same file; no argument for it
        _figure(axes).savefig(buffer, format=suffix[1:], dpi=150, metadata={dated: None} if dated else None)
    return buffer.getvalue()


def _figure(axes: Axes) -> Figure:
    figure: Any = axes.figure
    while not hasattr(figure, "savefig"):  # a subfigure
        figure = figure.figure
    return figure


def styles(names: Iterable[str], colors: Mapping[str, str] | None = None) -> dict[str, dict[str, Any]]:
    """Look of the lines of these names; where colours repeat, the kind of line changes.

    ``colors`` are those of families, which are named up to the first bracket or blank, as in "RankPriced(floor=0.5)".
    """
    drawn: Counter[str] = Counter()
    looks = {}
    for index, name in enumerate(names):
        color = (colors or {}).get(re.split(r"[ (]", name)[0], COLORS[index % len(COLORS)])
        looks[name] = {"color": color, "linestyle": LINES[drawn[color] % len(LINES)]}
        drawn[color] += 1
    return looks


def dots(count: int) -> dict[str, Any]:
    """Look of a line over whole numbers: dots where they stay distinct."""
    return {"linewidth": 1.8, "marker": "." if count <= 40 else ""}


def band(ax: Axes, x: np.ndarray, lower: np.ndarray, upper: np.ndarray, color: Any, label: str = "") -> None:
    """An interval around a line, edged so that overlapping bands stay distinct."""
    if len(x) == 1:  # no area: a bar
        ax.vlines(x, lower, upper, color=color, alpha=0.3, linewidth=6, label=label or "_band")
        return
    ax.fill_between(x, lower, upper, color=color, alpha=0.15, linewidth=0, label=label or "_band")
    for edge in (lower, upper):
        ax.plot(x, edge, color=color, alpha=0.35, linewidth=0.8, label="_edge", zorder=1.5)


def bound_lines(ax: Axes, x: np.ndarray, upper: np.ndarray, lower: np.ndarray) -> None:
    """What no throughput can pass."""
    for bound, line, label in ((upper, "--", "upper bound"), (lower, "-.", "lower bound")):
        ax.plot(x, bound, line, color=BOUND, linewidth=1.2, label=label)


def measured_points(ax: Axes, points: Sequence[Sequence[float]], color: Any = "") -> None:
    """Black markers at (x, y), with bars where points are (x, y, lower, upper); in a ``color`` outside the legend."""
    if not points:
        return
    bars = [(max(y - ends[0], 0.0), max(ends[1] - y, 0.0)) if ends else (0.0, 0.0) for _, y, *ends in points]
    ends, label = np.transpose(bars) if np.any(bars) else None, "_measured" if color else "measured"
    ax.errorbar([point[0] for point in points], [point[1] for point in points], ends, fmt="o", color=color or MEASURED,
                markersize=5, linewidth=1.2, capsize=3, label=label, zorder=4)  # fmt: skip


def mark_at(ax: Axes, x: float, text: str, *, ha: str | None = None) -> None:
    """A dotted line at ``x``, behind all else, if it lies on the axes; its text above begins ("left") or ends there."""
    if not math.isfinite(x) or x > ax.get_xlim()[1]:
        return
    ax.axvline(x, color=KNEE, linewidth=1.0, linestyle=":", zorder=0.5)
    across = ax.transAxes.inverted().transform(ax.transData.transform((x, 0)))[0]
    where: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "ha": ha or ("left" if across < 0.5 else "right")}
    ax.annotate(text, (x, 1.01), color=KNEE, fontsize=SMALL, va="bottom", **where)


def mark_saturation(ax: Axes, population: float, station: str | None) -> None:
    """The saturation point, named with the station that saturates."""
    mark_at(ax, population, ", ".join(filter(None, [f"saturation point N* = {population:.3g}", station])))


def label_ends(ax: Axes, lines: Iterable[Line2D]) -> None:
    """Write each line's label at its right end, a shade darker, without overlaps; call it last."""
    from matplotlib.colors import to_rgb

    drawn = sorted(lines, key=lambda line: float(np.asarray(line.get_ydata())[-1]))
    gap = 12.0 / (ax.get_window_extent().height * 72 / _figure(ax).dpi)  # 12 points
    to_axes = ax.transAxes.inverted().transform
    ends = [float(to_axes(line.get_transform().transform(np.asarray(line.get_xydata())[-1]))[1]) for line in drawn]
    for line, height in zip(drawn, _apart(ends, gap), strict=True):
        where: dict[str, Any] = {"xycoords": "axes fraction", "xytext": (4, 0), "textcoords": "offset points"}
        dark = tuple(0.75 * part for part in to_rgb(line.get_color()))
        look: dict[str, Any] = {"va": "center", "color": dark, "fontsize": SMALL}
        ax.annotate(str(line.get_label()), (1.0, height), **where, **look)


def _apart(heights: Sequence[float], gap: float) -> list[float]:
    """Increasing heights moved as little as possible (least squares) so that neighbours are ``gap`` apart."""
    blocks: list[list[float]] = []  # isotonic regression of heights less their gaps: pool what violates the order
    for index, height in enumerate(heights):
        blocks.append([height - gap * index])
        while len(blocks) > 1 and np.mean(blocks[-2]) > np.mean(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    level = [float(np.mean(block)) for block in blocks for _ in block]
    return [one + gap * index for index, one in enumerate(level)]


def finish_axes(ax: Axes, *, legend: Any = "best", reverse: bool = False) -> None:
    """No frame, plain numbers; a legend at ``legend``, "right" of the axes, or none."""
    ax.spines[["top", "right"]].set_visible(False)
    for axis in (ax.xaxis, ax.yaxis):
        base = getattr(axis.get_transform(), "base", None)
        if base == 10:
            _plain_numbers(axis)
        elif base == 2:
            axis.set_major_formatter("{x:g}")
    if legend == "right":
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=SMALL, frameon=False, reverse=reverse)
    elif legend is not None:
        ax.legend(loc=legend, fontsize=SMALL, framealpha=0.85, edgecolor="none", reverse=reverse)


def _plain_numbers(axis: Axis) -> None:
    """0.3 on a logarithmic axis, not 3 × 10⁻¹; between powers of ten as many as there is room for."""

    def between(x: float, _: float) -> str:
        low, high = axis.get_view_interval()
        return f"{x:g}" if f"{x:e}"[0] in ("2346" if high < 20 * low else "3" if high < 200 * low else "") else ""

    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(between)


def whole_numbers(ax: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
