"""Figures of throughput curves."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.drawing import (
    COLORS,
    MODEL,
    PLACES,
    PROFILED,
    WAITING,
    band,
    bound_lines,
    dots,
    finish_axes,
    label_ends,
    mark_saturation,
    measured_points,
    new_axes,
    require_style,
    styles,
    whole_numbers,
)
from ..base.errors import ModelError
from ..base.results import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Curves, which draw themselves with these functions and so are imported after them.
ThroughputCurve = Any

MOST_BARS = 64  # more melt into each other: an area is drawn instead


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
        Where to draw; by default a new figure.
    measured : sequence of (workers, steps per second) or (workers, steps per second, lower, upper)
        Measurements besides those that the curve was fitted to.
    label : str
        Of the model's line; by default "predicted".
    **style
        Passed to `Axes.plot` for the model's line.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import queuemodel as qm
    >>> model = qm.fit([qm.Measurement(workers=n, steps_per_second=x) for n, x in [(1, 2.0), (2, 3.9), (4, 6.8)]])
    >>> ax = plot_throughput(model.throughput(range(1, 17)))
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('workers', 'throughput (steps/s)')
    """
    ax = ax or new_axes()
    points = [tuple(map(float, point)) for point in (*curve.measured, *measured)]
    for point in points:
        if len(point) not in (2, 4):
            raise ModelError(f"plot: measured needs (workers, value) or (workers, value, lower, upper), got {point!r}")
    per, name = rate_axis(curve)
    _draw(ax, curve, per, label, style)
    points = [(n, *(x / per for x in values)) for n, *values in points]
    _measured(ax, curve, points)
    most = max(float((curve.upper / per).max()), *(max(point[1:]) for point in points), 0.0)
    ax.set(ylabel=name, ylim=(0, 1.1 * most))
    _finish(ax, curve)
    if curve.unit and curve.batch_size > 1 and not curve.of_ranks:
        right = ax.secondary_yaxis(
            "right", functions=(lambda x: np.multiply(x, curve.batch_size), lambda x: np.divide(x, curve.batch_size))
        )
        right.set_ylabel(f"throughput ({curve.unit}/s)")
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
    ax = ax or new_axes((7.6, 4.2))
    lines = []
    rates, sizes = [rate_axis(one) for one in curves.values()], {size_axis(one) for one in curves.values()}
    if len({label for _, label in rates}) > 1:
        rates = [(1.0, "throughput (steps/s)")] * len(rates)
    elif "speedup" in rates[0][1]:  # of all over the first one's base
        rates = rates[:1] * len(rates)
    label, each = sizes.pop() if len(sizes) == 1 else ("workers", 1)
    for (name, curve), style, (per, _) in zip(curves.items(), styles(curves).values(), rates, strict=True):
        x = curve.workers / each
        band(ax, x, curve.lower / per, curve.upper / per, style["color"])
        lines += ax.plot(x, curve.steps_per_second / per, label=name, **style, **dots(len(x)))
    last = max(int(curve.workers[-1]) for curve in curves.values()) / each
    ax.set(xlabel=label, ylabel=rates[0][1], xlim=(0, last + max(0.5, 0.02 * last)), ylim=(0, None))
    whole_numbers(ax)
    finish_axes(ax, legend=None)
    label_ends(ax, lines)
    return ax


def plot_step_time(curve: ThroughputCurve, *, ax: Axes | None = None) -> Axes:
    """Draw where the time of one step goes as workers are added: the worker itself, then each station.

    Dark is service, light is waiting: for other workers and, where operations were simulated, for the computation
    between two of a worker's own transfers. Stations of one kind on several servers are added up. Synchronous rounds
    show the computation of a mean rank and what network and stragglers add to it; without stations the step is one
    layer.
    """
    ax = ax or new_axes()
    N = curve.workers / size_axis(curve)[1]
    for name, seconds, bottom, color, alpha in _layers(curve):
        if len(N) <= MOST_BARS:
            width = 0.8 * float(np.diff(N).min() if len(N) > 1 else 1)
            ax.bar(N, seconds, width, bottom, color=color, alpha=alpha, label=name, linewidth=0)
        else:
            ax.fill_between(N, bottom, bottom + seconds, color=color, alpha=alpha, label=name, linewidth=0)
    ax.set(ylabel="time of one step (s)", ylim=(0, None))
    _finish(ax, curve, reverse=True)
    return ax


def plot_efficiency(curve: ThroughputCurve, *, ax: Axes | None = None, label: str = "", **style: Any) -> Axes:
    """Draw efficiency over the curve's base against the number of workers, with the curve's interval as a band.

    ``label`` and ``style`` are those of `plot_throughput`.
    """
    from matplotlib.ticker import PercentFormatter

    ax = ax or new_axes()
    unit = curve.workers * curve.single
    lower, upper = (unit * curve.efficiency_of(end) for end in (curve.lower, curve.upper))
    _draw(ax, replace(curve, lower=lower, upper=upper), unit, label, style)
    _measured(ax, curve, [(n, x / (n * curve.single)) for n, x in curve.measured])
    over = f" over {curve.base}" if curve.base else ""
    ax.set(ylabel=f"efficiency{over} (%)", ylim=(0, 1.1))
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
    _finish(ax, curve)
    return ax


def _draw(ax: Axes, curve: ThroughputCurve, unit: float | np.ndarray, label: str, style: dict[str, Any]) -> None:
    """The model's line and band, the bounds and the profiled range, all divided by ``unit``."""
    style = require_style(style, "lines.Line2D", "ax", "label", "measured")
    each = size_axis(curve)[1]
    N = curve.workers / each
    style = {"color": MODEL, "zorder": 3, **dots(len(N)), **style}
    ax.plot(N, curve.steps_per_second / unit, label=label or "predicted", **style)
    band(ax, N, curve.lower / unit, curve.upper / unit, style["color"], f"{percent(curve.confidence)} interval")
    if curve.bound_upper.size:
        bound_lines(ax, N, curve.bound_upper / unit, curve.bound_lower / unit)
    if curve.profiled_workers >= 1:
        ax.axvspan(0, curve.profiled_workers / each + 0.5, color=PROFILED, linewidth=0, zorder=0, label="profiled")


def rate_axis(curve: ThroughputCurve) -> tuple[float, str]:
    """Steps per second in 1 of the axis of rates, and its label: of ranks their work or, where unknown, speedup."""
    if not curve.of_ranks:
        return 1.0, "throughput (steps/s)"
    if curve.unit:
        return 1.0 / curve.batch_size, f"throughput ({curve.unit}/s)"
    return curve.single * curve.base_workers, f"speedup over {curve.base or '1 worker'}"


def size_axis(curve: ThroughputCurve) -> tuple[str, int]:
    """The label of the axis of sizes, and the workers in 1 of what it counts: nodes of several ranks, else workers."""
    if curve.of_ranks and curve.workers_per_node > 1:
        return f"nodes of {curve.workers_per_node} GPUs", curve.workers_per_node
    servers = curve.parameter_servers
    return "workers" if servers < 2 else f"workers (with {servers} parameter servers)", 1


def _measured(ax: Axes, curve: ThroughputCurve, points: Sequence[Sequence[float]]) -> None:
    measured_points(ax, [(n / size_axis(curve)[1], *values) for n, *values in points])


def _layers(curve: ThroughputCurve) -> list[tuple[str, np.ndarray, np.ndarray, str, float]]:
    """Label, seconds, bottom, color and opacity of each layer, from the axis up."""
    step = curve.workers / curve.steps_per_second
    bottom = np.zeros(len(step))
    if not curve.stations or not curve.residence_time.size:
        return [("step", step, bottom, PLACES["worker"], 1.0)]
    kinds: dict[str, list[int]] = {}
    for k, name in enumerate(curve.stations):
        kinds.setdefault(re.sub(r" \d+$", "", name), []).append(k)
    layers = [("worker", np.asarray(curve.think_time), bottom, PLACES["worker"], 1.0)]
    bottom = bottom + curve.think_time
    for index, (name, columns) in enumerate(kinds.items()):
        color = PLACES.get(name, COLORS[index % len(COLORS)])
        residence = curve.residence_time[:, columns].sum(axis=1)
        busy = (curve.utilization[:, columns] / curve.steps_per_second[:, None]).sum(axis=1)
        service = residence if curve.synchronous else np.minimum(busy, residence)
        layers.append((name, service, bottom, color, 1.0))
        layers.append((f"{name}, waiting", residence - service, bottom + service, color, WAITING))
        bottom = bottom + residence
    return [layer for layer in layers if layer[1].max() > 0.002 * step.max()]  # thinner than a line


def _finish(ax: Axes, curve: ThroughputCurve, *, reverse: bool = False) -> None:
    label, each = size_axis(curve)
    last = max(int(curve.workers[-1]), curve.profiled_workers) / each
    ax.set(xlabel=label, xlim=(0, last + max(0.5, 0.02 * last)))
    mark_saturation(ax, curve.saturation_workers, curve.bottleneck)
    whole_numbers(ax)
    finish_axes(ax, reverse=reverse)
