"""Every figure: each function draws one result on an `Axes` and gives it back; nothing is shown, no global is changed.

Measured values are black markers with intervals, models solid lines with their band, bounds grey dashes; the profiled
range is shaded, so that everything right of it reads as extrapolation.
"""

from __future__ import annotations

import base64
import io
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import DataError, ModelError
from .files import write_atomically
from .network import Solution
from .solvers import asymptotic_bounds, balanced_job_bounds, saturation_population
from .training import ThroughputCurve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")

MODEL, MEASURED, BOUND, KNEE, PROFILED = "#0072b2", "black", "0.55", "#d55e00", "0.92"
#: Colors that people with any color vision tell apart (after Okabe and Ito, 2008); the worker's own time comes first.
COLORS = ("#999999", "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7f5539")

MARKERS = "osD^vPhXp<>*"

#: More bars than this melt into each other: an area is drawn instead.
MOST_BARS = 64


def plot_throughput(
    curve: ThroughputCurve,
    *,
    ax: Axes | None = None,
    measured: Sequence[Sequence[float]] = (),
    label: str = "",
    **style: Any,
) -> Axes:
    """Draw throughput against the number of workers.

    Parameters
    ----------
    curve : ThroughputCurve
    ax : Axes, optional
        Where to draw; a new figure unless given.
    measured : sequence of (workers, steps per second) or (workers, steps per second, lower, upper)
        Measurements besides those that the curve was fitted to.
    label : str
        Of the model's line; its method unless given.
    **style
        Passed to `Axes.plot` for the model's line.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import queuemodel as qm
    >>> model = qm.fit([qm.Throughput(workers=n, steps_per_second=x) for n, x in [(1, 2.0), (2, 3.9), (4, 6.8)]])
    >>> ax = plot_throughput(model.throughput(range(1, 17)))
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('workers', 'throughput (steps/s)')
    """
    ax = ax or new_axes()
    N, X = curve.workers, curve.steps_per_second
    points = [tuple(map(float, point)) for point in (*curve.measured, *measured)]
    for point in points:
        if len(point) not in (2, 4):
            raise ModelError(f"plot: measured needs (workers, value) or (workers, value, lower, upper), got {point!r}")
    _shade_profiled(ax, curve)
    if curve.bound_upper.size:
        ax.plot(N, curve.bound_upper, "--", color=BOUND, linewidth=1.2, label="asymptotic bounds")
        ax.plot(N, curve.bound_lower, "--", color=BOUND, linewidth=1.2)
    _model_line(ax, curve, X, curve.lower, curve.upper, label, style)
    _draw_measured(ax, points)
    ax.set_ylabel("throughput (steps/s)")
    ax.set_ylim(0, 1.1 * max(float(curve.upper.max()), *(max(point[1:]) for point in points), 0.0))
    _finish(ax, curve)
    if curve.batch_size > 1:
        right = ax.secondary_yaxis(
            "right", functions=(lambda x: np.multiply(x, curve.batch_size), lambda x: np.divide(x, curve.batch_size))
        )
        right.set_ylabel("throughput (examples/s)")
    return ax


def plot_comparison(curves: Mapping[str, ThroughputCurve], *, ax: Axes | None = None) -> Axes:
    """Draw several curves of one job, such as what-ifs, each with its band; the keys are their labels.

    Raises
    ------
    ModelError
        When there is no curve.
    """
    if not curves:
        raise ModelError("plot_comparison: at least one curve is needed, got none")
    ax = ax or new_axes()
    for index, (name, curve) in enumerate(curves.items()):
        color = COLORS[index % len(COLORS)]
        ax.fill_between(curve.workers, curve.lower, curve.upper, color=color, alpha=0.15, linewidth=0)
        ax.plot(curve.workers, curve.steps_per_second, color=color, label=name, **_points(len(curve.workers)))
    last = max(int(curve.workers[-1]) for curve in curves.values())
    ax.set_xlim(0, last + max(0.5, 0.02 * last))
    ax.set_ylim(0, None)
    ax.set_xlabel("workers")
    ax.set_ylabel("throughput (steps/s)")
    _whole_numbers(ax)
    _legend(ax)
    _tidy(ax)
    return ax


def plot_step_time(curve: ThroughputCurve, *, ax: Axes | None = None) -> Axes:
    """Draw where the time of one step goes as workers are added: the worker itself, then each station.

    The dark part of a station is service, the light part on top of it waiting: for other workers and, where operations
    were simulated, also for the computation between two of a worker's own transfers. Stations of the same kind on
    several servers are added up, what is thinner than a line is left out. A curve whose method has no stations is drawn
    as the step time alone.
    """
    ax = ax or new_axes()
    N = curve.workers
    for name, seconds, bottom, color, alpha in _layers(curve):
        if len(N) <= MOST_BARS:
            width = 0.8 * float(np.diff(N).min() if len(N) > 1 else 1)
            ax.bar(N, seconds, width, bottom, color=color, alpha=alpha, label=name, linewidth=0)
        else:
            ax.fill_between(N, bottom, bottom + seconds, color=color, alpha=alpha, label=name, linewidth=0)
    ax.set_ylabel("time of one step (s)")
    ax.set_ylim(0, None)
    _finish(ax, curve, legend_reversed=True)
    return ax


def plot_efficiency(curve: ThroughputCurve, *, ax: Axes | None = None, label: str = "", **style: Any) -> Axes:
    """Draw efficiency, X(N) / (N X(1)), against the number of workers, with the curve's interval as a band.

    ``label`` and ``style`` are those of `plot_throughput`.
    """
    from matplotlib.ticker import PercentFormatter

    ax = ax or new_axes()
    alone = curve.workers * curve.single
    _shade_profiled(ax, curve)
    if curve.bound_upper.size:
        ax.plot(curve.workers, curve.bound_upper / alone, "--", color=BOUND, linewidth=1.2, label="asymptotic bounds")
        ax.plot(curve.workers, curve.bound_lower / alone, "--", color=BOUND, linewidth=1.2)
    _model_line(ax, curve, curve.efficiency, curve.lower / alone, curve.upper / alone, label, style)
    _draw_measured(ax, [(n, x / (n * curve.single)) for n, x in curve.measured])
    ax.set_ylabel("efficiency, X(N) / (N X(1))")
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.set_ylim(0, 1.1)
    _finish(ax, curve)
    return ax


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

    panels = Figure(figsize=(4.4 * len(groups), 4.6), layout="constrained").subplots(1, len(groups))
    for group, panel in zip(groups, panels, strict=True):
        _validation_panel([row for row in rows if row.get("group", "") == group], panel, unit).set_title(str(group))
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
        color, marker = COLORS[1:][index % (len(COLORS) - 1)], MARKERS[index % len(MARKERS)]
        own = [row for row in rows if row["series"] == name]
        for row in own:
            if row.get("lower") is not None and row.get("upper") is not None:
                ax.plot([row["measured"]] * 2, [row["lower"], row["upper"]], color=color, alpha=0.4, linewidth=1.0)
        x, y = [row["measured"] for row in own], [row["predicted"] for row in own]
        ax.plot(x, y, marker, color=color, markersize=5, label=str(name))
    ax.set_xlim(line[0], line[1])
    ax.set_ylim(line[0], line[1])
    ax.set_aspect("equal")
    ax.set_xlabel(f"measured throughput ({unit})")
    ax.set_ylabel(f"predicted throughput ({unit})")
    ax.legend(loc="upper left", fontsize="x-small", framealpha=0.85, edgecolor="none")
    _tidy(ax)
    return ax


def plot_network_solution(solution: Solution, *, ax: Axes | None = None) -> Axes:
    """Draw a network's throughput against its population, with asymptotic and balanced-job bounds."""
    ax = ax or new_axes()
    network, X = solution.network, solution.throughputs
    N = np.arange(1, solution.population + 1)
    loose, tight = asymptotic_bounds(network, N), balanced_job_bounds(network, N)
    ax.plot(N, loose.upper, "--", color=BOUND, linewidth=1.2, label="asymptotic bounds")
    ax.plot(N, loose.lower, "--", color=BOUND, linewidth=1.2)
    if solution.exact:  # balanced-job bounds hold for product form only
        ax.fill_between(N, tight.lower, tight.upper, color=BOUND, alpha=0.25, linewidth=0, label="balanced-job bounds")
    ax.plot(N, X, color=MODEL, label=solution.solver, **_points(len(N)))
    ax.set_ylim(0, 1.15 * float(X.max()))
    ax.set_xlim(0, 1.02 * solution.population + 0.5)
    ax.set_xlabel("population (customers)")
    ax.set_ylabel("throughput (cycles/s)")
    _mark_knee(ax, saturation_population(network), solution.bottleneck or "", "N*")
    _whole_numbers(ax)
    _legend(ax)
    _tidy(ax)
    return ax


def svg_image(draw: Callable[[], Axes]) -> str:
    """An HTML image of what ``draw`` draws on a new figure: what Jupyter shows below a result's table.

    Examples
    --------
    >>> svg_image(new_axes)[:36]
    '<img alt="plot" src="data:image/svg+'
    """
    data = base64.b64encode(_render(draw(), ".svg")).decode()
    return f'<img alt="plot" src="data:image/svg+xml;base64,{data}"/>'


def save_figure(axes: Axes, path: str | os.PathLike[str]) -> None:
    """Write the figure of ``axes`` as .png, .svg or .pdf, all of it or nothing.

    Raises
    ------
    DataError
        For another file name extension, or a path that cannot be written; what was there stays.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise DataError(f"{path}: a picture's file name must end in one of {', '.join(FORMATS)}, got {suffix!r}")
    write_atomically(path, _render(axes, suffix))


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


def new_axes() -> Axes:
    """Axes of a new figure of the usual size, outside pyplot's list of figures."""
    from matplotlib.figure import Figure

    return Figure(figsize=(6.4, 4.2), layout="constrained").subplots()


def _model_line(
    ax: Axes,
    curve: ThroughputCurve,
    y: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    label: str,
    style: dict[str, Any],
) -> None:
    style = {"color": MODEL, **_points(len(y)), **style}
    band: dict[str, Any] = {"color": style["color"], "label": f"{curve.confidence:.0%} interval"}
    if len(y) > 1:
        ax.fill_between(curve.workers, lower, upper, alpha=0.2, linewidth=0, **band)
    else:  # no area: a bar
        ax.vlines(curve.workers, lower, upper, alpha=0.3, linewidth=6, **band)
    ax.plot(curve.workers, y, label=label or curve.method or "model", **style)


def _points(count: int) -> dict[str, Any]:
    """Dots mark whole numbers of machines, as long as they can be told apart."""
    return {"linewidth": 1.8, "marker": "." if count <= 40 else ""}


def _draw_measured(ax: Axes, points: Sequence[Sequence[float]]) -> None:
    if not points:
        return
    bars = [(max(y - ends[0], 0.0), max(ends[1] - y, 0.0)) if ends else (0.0, 0.0) for _, y, *ends in points]
    x, y = [point[0] for point in points], [point[1] for point in points]
    style: dict[str, Any] = {
        "color": MEASURED,
        "fmt": "o",
        "markersize": 5,
        "capsize": 3 if np.any(bars) else 0,
        "linewidth": 1.2,
    }
    ax.errorbar(x, y, np.transpose(bars), label="measured", zorder=4, **style)


def _shade_profiled(ax: Axes, curve: ThroughputCurve) -> None:
    most = curve.profiled_workers
    ax.axvspan(
        0, most + 0.5, color=PROFILED, linewidth=0, zorder=0, label=f"profiled, to {most} worker{'s'[: most > 1]}"
    )
    if curve.workers[-1] > 1.25 * (most + 0.5):
        ax.annotate(
            "extrapolated →",
            (most + 0.5, 0.015),
            xycoords=("data", "axes fraction"),
            xytext=(3, 0),
            textcoords="offset points",
            va="bottom",
            color="0.4",
            fontsize="small",
        )


def _mark_knee(ax: Axes, knee: float, station: str, symbol: str) -> None:
    if not math.isfinite(knee) or knee > ax.get_xlim()[1]:
        return
    ax.axvline(knee, color=KNEE, linewidth=1.0, linestyle=":", zorder=1)
    ax.annotate(
        f"{symbol} {knee:.3g}" + (f", {station}" if station else ""),
        (knee, 1.0),
        xycoords=("data", "axes fraction"),
        ha="center",
        va="bottom",
        color=KNEE,
        fontsize="small",
    )


def _layers(curve: ThroughputCurve) -> list[tuple[str, np.ndarray, np.ndarray, str, float]]:
    """Label, seconds, bottom, color and opacity of each layer, from the axis up."""
    step = curve.workers / curve.steps_per_second
    bottom = np.zeros(len(step))
    if not curve.stations or not curve.residence_time.size:
        return [("step", step, bottom, COLORS[0], 1.0)]
    kinds: dict[str, list[int]] = {}
    for k, name in enumerate(curve.stations):
        kinds.setdefault(re.sub(r" \d+$", "", name), []).append(k)
    layers = [("worker", np.asarray(curve.think_time), bottom, COLORS[0], 1.0)]
    bottom = bottom + curve.think_time
    for index, (name, columns) in enumerate(kinds.items(), 1):
        color = COLORS[index % len(COLORS)]
        residence = curve.residence_time[:, columns].sum(axis=1)
        service = np.minimum((curve.utilization[:, columns] / curve.steps_per_second[:, None]).sum(axis=1), residence)
        layers.append((name, service, bottom, color, 1.0))
        layers.append((f"{name}, waiting", residence - service, bottom + service, color, 0.4))
        bottom = bottom + residence
    return [layer for layer in layers if layer[1].max() > 0.002 * step.max()]  # thinner than a line


def _finish(ax: Axes, curve: ThroughputCurve, *, legend_reversed: bool = False) -> None:
    last = max(int(curve.workers[-1]), curve.profiled_workers)
    ax.set_xlim(0, last + max(0.5, 0.02 * last))
    servers = curve.parameter_servers
    ax.set_xlabel("workers" if servers == 1 else f"workers (with {servers} parameter servers)")
    _mark_knee(ax, curve.saturation_workers, curve.bottleneck, "knee")
    _whole_numbers(ax)
    _legend(ax, reverse=legend_reversed)
    _tidy(ax)


def _whole_numbers(ax: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _legend(ax: Axes, *, reverse: bool = False) -> None:
    ax.legend(fontsize="small", reverse=reverse, framealpha=0.85, edgecolor="none")


def _tidy(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
