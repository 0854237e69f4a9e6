"""Figures of throughput curves."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..base.drawing import (
    BOUND,
    COLORS,
    PLACES,
    PROFILED,
    WAITING,
    band,
    bound_lines,
    dots,
    finish_axes,
    label_ends,
    mark_at,
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

#: Curves, plans and ratios, which draw themselves with these functions and so are imported after them.
ThroughputCurve: TypeAlias = Any
Plan: TypeAlias = Any
Ratio: TypeAlias = Any

CURVE = "curve"  # names the lines of models
EDGE = 1.3  # room beside the ends of a logarithmic axis
MOST_BARS = 64  # more melt into each other: an area is drawn instead


def plot_throughput(
    curve: ThroughputCurve,
    *,
    ax: Axes | None = None,
    measured: Sequence[Sequence[float]] = (),
    label: str = "",
    ideal: bool = False,
    log: bool | None = None,
    **style: Any,
) -> Axes:
    """Draw throughput against the number of workers, or of nodes of several GPUs.

    On the axes of another curve it is a further line with a colour of its own, beside which bounds, the profiled range
    and the axis of examples are left out.

    Parameters
    ----------
    curve : ThroughputCurve
    ax : Axes, optional
        Where to draw; by default a new figure.
    measured : sequence of (workers, steps per second) or (workers, steps per second, lower, upper)
        Measurements besides those that the curve was fitted to.
    label : str
        Of the model's line; by default "predicted".
    ideal : bool
        Draw the base's throughput per worker times the workers, too.
    log : bool, optional
        Logarithmic axes (base 2); by default where four numbers or more are all powers of two.
    **style
        Passed to `Axes.plot` for the model's line.

    Raises
    ------
    ModelError
        For measurements of another form, an unknown style, or axes that show something else.

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
    options = {"label": label, "log": log, "ideal": ideal, "measured": measured}
    points = [(n, *(x / per for x in values)) for n, *values in points]
    first, log = _draw(ax, curve, per, name, points, options, style)
    if log:
        ax.set_yscale("log", base=2)
    else:
        most = max(float((curve.upper / per).max()), *(max(point[1:]) for point in points), 0.0)
        ax.set_ylim(0, max(1.1 * most, 0.0 if first else ax.get_ylim()[1]))
    _finish(ax, curve, first=first, log=log)
    for repeated in () if first else list(ax.child_axes):
        repeated.remove()
    if first and curve.unit and curve.batch_size > 1 and not curve.in_rounds:
        right = ax.secondary_yaxis(
            "right", functions=(lambda x: np.multiply(x, curve.batch_size), lambda x: np.divide(x, curve.batch_size))
        )
        right.set_ylabel(f"throughput ({curve.unit}/s)")
    return ax


def plot_comparison(curves: Mapping[str, ThroughputCurve], *, ax: Axes | None = None) -> Axes:
    """Draw several curves of one job, such as what-ifs, each with its band; keys are labels (`ModelError` for none)."""
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
    log = all(powers_of_two(one.workers / each) for one in curves.values())
    for (name, curve), style, (per, _) in zip(curves.items(), styles(curves).values(), rates, strict=True):
        x = curve.workers / each
        band(ax, x, curve.lower / per, curve.upper / per, style["color"])
        lines += ax.plot(x, curve.steps_per_second / per, label=name, gid=CURVE, **style, **dots(len(x)))
    ends = [float(end) / each for curve in curves.values() for end in curve.workers[[0, -1]]]
    ax.set(xlabel=label, ylabel=rates[0][1])
    if log:
        ax.set_yscale("log", base=2)
    else:
        ax.set_ylim(0, None)
    limit_sizes(ax, min(ends), max(ends), log=log)
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
    size, each = size_axis(curve)
    N = curve.workers / each
    for name, seconds, bottom, color, alpha in _layers(curve):
        if len(N) <= MOST_BARS:
            width = 0.45 * N if powers_of_two(N) else 0.8 * float(np.diff(N).min() if len(N) > 1 else 1)
            ax.bar(N, seconds, width, bottom, color=color, alpha=alpha, label=name, linewidth=0)
        else:
            ax.fill_between(N, bottom, bottom + seconds, color=color, alpha=alpha, label=name, linewidth=0)
    ax.set(ylabel="time of one step (s)", xlabel=size, ylim=(0, None))
    _finish(ax, curve, log=powers_of_two(N), reverse=True)
    return ax


def plot_efficiency(
    curve: ThroughputCurve, *, ax: Axes | None = None, label: str = "", log: bool | None = None, **style: Any
) -> Axes:
    """Draw efficiency over the curve's base against the number of workers, with the curve's interval as a band.

    ``label``, ``log`` (of the numbers of workers) and ``style`` are those of `plot_throughput`.
    """
    from matplotlib.ticker import PercentFormatter

    ax = ax or new_axes()
    unit = curve.workers * curve.single
    lower, upper = (unit * curve._efficiency_of(end) for end in (curve.lower, curve.upper))
    over = f" over {curve.base}" if curve.base else ""
    drawn = replace(curve, lower=lower, upper=upper)
    points = [(n, x / (n * curve.single)) for n, x in curve.measured]
    first, log = _draw(ax, drawn, unit, f"efficiency{over} (%)", points, {"label": label, "log": log}, style)
    ax.set_ylim(0, 1.1)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
    _finish(ax, curve, first=first, log=log)
    return ax


def plot_cost(plan: Plan, *, ax: Axes | None = None, label: str = "", **style: Any) -> Axes:
    """Draw the cost of a plan's training against the nodes, its interval as a band, and the recommended number.

    Without a price it is the time; without work, throughput. ``label`` and ``style`` are those of `plot_throughput`.
    """
    ax, curve, choice = ax or new_axes(), plan.curve, plan.choices[0]
    each, hours = size_axis(curve)[1], plan.times / 3600
    if np.isnan(hours).any():
        plot_throughput(curve, ax=ax, label=label, **style)
    else:
        name = (f"cost ({plan.currency})" if plan.currency else "cost") if plan.price else "time (h)"
        ends, names = hours * plan.price * curve.nodes if plan.price else hours, (name, size_axis(curve)[0])
        first, log = _line(ax, curve.workers / each, ends, names, curve.confidence, {"label": label}, style)
        ax.set_ylim(0, max(1.1 * float(ends[2].max()), 0.0 if first else ax.get_ylim()[1]))
        _finish(ax, curve, first=first, log=log, profiled=False)
    if choice.workers is not None and len(_curves(ax)) == 1:
        mark_at(ax, choice.workers / each, choice.goal)
    return ax


def plot_ratio(ratio: Ratio, *, ax: Axes | None = None, label: str = "", **style: Any) -> Axes:
    """Draw the ratio of two curves with its interval, a further line on the axes of another ratio; 1 is grey."""
    ax, x, ends = ax or new_axes(), ratio.workers, (ratio.value, ratio.lower, ratio.upper)
    names = "ratio of throughputs", "workers"
    first, log = _line(ax, x, ends, names, ratio.confidence, {"label": label or "ratio"}, style)
    if first:
        ax.axhline(1.0, color=BOUND, linewidth=1.2, linestyle="--")
    ax.set_ylim(0, max(1.1 * float(ratio.upper.max()), ax.get_ylim()[1]))
    limit_sizes(ax, float(x[0]), float(x[-1]), log=log, first=first)
    finish_axes(ax)
    return ax


def powers_of_two(counts: np.ndarray) -> bool:
    """Whether four numbers or more are all powers of two."""
    octaves = np.log2(counts)
    return len(counts) >= 4 and bool(np.all(octaves == np.round(octaves)))


def _curves(ax: Axes) -> list[Any]:
    """Lines of models on these axes."""
    return [line for line in ax.get_lines() if line.get_gid() == CURVE]


def _line(
    ax: Axes, x: np.ndarray, ends: Sequence[np.ndarray], names: tuple[str, str], confidence: float,
    options: dict[str, Any], style: dict[str, Any],
) -> tuple[bool, bool]:  # fmt: skip
    """A model's line and band in the next colour, on axes of these rates and sizes.

    Whether no other curve is on them, and whether they are logarithmic.
    """
    style = require_style(style, "lines.Line2D", "ax", *options)
    (rate, size), drawn, count = names, (ax.get_ylabel(), ax.get_xlabel()), len(_curves(ax))
    sort = size.partition(" (")[0]  # whatever the number of servers
    if count and (drawn[0], drawn[1].partition(" (")[0]) != (rate, sort):
        raise ModelError(f"plot: the axes show {' against '.join(drawn)}, not {rate} against {size}; take others")
    ax.set(ylabel=rate, xlabel=sort if count and drawn[1] != size else size)
    log = ax.get_xscale() == "log" if count else powers_of_two(x)
    style = {"color": COLORS[count % len(COLORS)], "zorder": 3, **dots(len(x)), **style}
    label = options["label"] or ("predicted" if not count else f"predicted {count + 1}")
    ax.plot(x, ends[0], label=label, gid=CURVE, **style)
    band(ax, x, ends[1], ends[2], style["color"], "" if count else f"{percent(confidence)} interval")
    return not count, log if options.get("log") is None else options["log"]


def _draw(
    ax: Axes, curve: ThroughputCurve, unit: float | np.ndarray, rate: str, points: Sequence[Sequence[float]],
    options: dict[str, Any], style: dict[str, Any],
) -> tuple[bool, bool]:  # fmt: skip
    """The model's line and band, bounds and the profiled range, in ``unit``, and measured points; as `_line`."""
    size, each = size_axis(curve)
    N, ends = curve.workers / each, [x / unit for x in (curve.steps_per_second, curve.lower, curve.upper)]
    first, log = _line(ax, N, ends, (rate, size), curve.confidence, options, style)
    if options.get("ideal"):
        ax.plot(N, curve.workers * curve.single / unit, ":", color=BOUND, linewidth=1.2, label="ideal" if first else "")
    if first and curve.bound_upper.size:
        bound_lines(ax, N, curve.bound_upper / unit, curve.bound_lower / unit)
    if first and curve.profiled_workers >= 1:
        start, end = (N[0] / EDGE if log else 0), curve.profiled_workers / each + (0 if log else 0.5)
        ax.axvspan(start, max(start, end), color=PROFILED, linewidth=0, zorder=0, label="profiled")
    measured_points(ax, [(n / each, *values) for n, *values in points], "" if first else _curves(ax)[-1].get_color())
    return first, log


def rate_axis(curve: ThroughputCurve) -> tuple[float, str]:
    """Steps per second in 1 of the axis of rates, and its label: of rounds their work or, where unknown, speedup."""
    if not curve.in_rounds:
        return 1.0, "throughput (steps/s)"
    if curve.unit:
        return 1.0 / curve.batch_size, f"throughput ({curve.unit}/s)"
    return curve.single * curve.base_workers, f"speedup over {curve.base or '1 worker'}"


def size_axis(curve: ThroughputCurve) -> tuple[str, int]:
    """The label of the axis of sizes, and the workers in 1 of what it counts: nodes of several GPUs, else workers."""
    if curve.workers_per_node > 1:
        return f"nodes of {curve.workers_per_node} GPUs", curve.workers_per_node
    servers = curve.parameter_servers
    return "workers" if servers < 2 else f"workers (with {servers} parameter servers)", 1


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


def _finish(
    ax: Axes, curve: ThroughputCurve, *, first: bool = True, log: bool = False, profiled: bool = True,
    reverse: bool = False,
) -> None:  # fmt: skip
    each = size_axis(curve)[1]
    last = max(int(curve.workers[-1]), curve.profiled_workers if profiled else 0) / each
    limit_sizes(ax, float(curve.workers[0]) / each, last, log=log, first=first)
    if first and profiled:
        mark_saturation(ax, curve.saturation_workers, curve.bottleneck)
    finish_axes(ax, reverse=reverse)


def limit_sizes(ax: Axes, least: float, most: float, *, log: bool, first: bool = True) -> None:
    """The axis of sizes, wide enough for what is drawn on it before."""
    low, high = (least / EDGE, most * EDGE) if log else (0.0, most + max(0.5, 0.02 * most))
    if log:
        ax.set_xscale("log", base=2)
    else:
        whole_numbers(ax)
    before = (low, high) if first else ax.get_xlim()
    ax.set_xlim(min(low, before[0]), max(high, before[1]))
