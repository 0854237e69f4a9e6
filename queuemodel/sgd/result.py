"""The comparison: a table of strategies, the probability that each is the best, its pictures and its page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.drawing import COLORS, finish_axes, new_axes, nth_style
from ..base.estimates import normal_quantile
from ..base.results import Result, finite
from ..report import report_page
from .loop import Descent

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    finish_axes(ax, legend="right")
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
    finish_axes(ax, legend=None)
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
    finish_axes(ax, legend="right")
    return ax


#: Points of each strategy's losses: as many as a screen shows.
POINTS = 100


def comparison_data(comparison: Comparison) -> dict[str, Any]:
    """Plain values of everything that the page of a comparison shows."""
    on = f" on {comparison.problem}, which stands in for the job" if comparison.problem else ""
    return {
        "title": f"Ways of training on {comparison.workers} workers",
        "caption": comparison.caption(),
        "nodes": comparison.nodes,
        "target": comparison.target,
        "price_per_node_hour": comparison.price_per_node_hour,
        "confidence": comparison.confidence,
        "relative": comparison.relative,
        "note": comparison.note,
        "headline": f"Most probably first{on}: {comparison.best.name}." if comparison.best is not None else "",
        "rows": comparison.to_rows(),
        "losses": [
            {"strategy": one.name, **_losses(one.descent)} for one in comparison.rows if one.descent is not None
        ],
    }


def _losses(run: Descent) -> dict[str, list[float]]:
    """Mean seconds, and mean, least and largest loss over the seeds: what is drawn, to five digits."""
    rows = run.to_rows()
    shown = np.unique(np.geomspace(1, len(rows) - 1, POINTS).astype(int))  # the start has no logarithm
    columns = {"seconds": "seconds", "mean": "loss", "least": "least", "largest": "largest"}
    return {name: [float(f"{rows[i][column]:.5g}") for i in shown] for name, column in columns.items()}


#: Draws of the error of the predicted times, and of a seed.
DRAWS = 4000


@dataclass(frozen=True, eq=False)
class Compared:
    """What one strategy does; steps are those of all workers, a gradient of one worker is one."""

    name: str
    steps_per_second: float
    bytes_per_step: float  #: that a worker sends and receives for each
    steps_to: np.ndarray  #: to the target, shape (S,), by seed; infinite where it was not reached, NaN where unknown
    seconds_to: np.ndarray
    spread: float  #: standard error of the logarithm of the predicted times
    learning_rate: float = float("nan")  #: the best of those tried; NaN without training
    descent: Descent | None = None  #: the runs, their times as predicted

    @property
    def late(self) -> bool:
        """Whether half of the runs or more do not reach the target."""
        return bool(np.isinf(np.median(self.seconds_to)))


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Result):
    """Strategies by the time to a loss."""

    rows: tuple[Compared, ...]
    workers: int
    nodes: int  #: machines, the servers' too
    target: float | None = None  #: loss to reach
    price_per_node_hour: float | None = None
    confidence: float = 0.9
    note: str = ""  #: what to know before trusting it
    relative: bool = False  #: steps and times to the target are in those of one worker alone
    problem: str = ""  #: what was trained in the job's stead; empty for the job itself
    digits = 3

    @cached_property
    def seconds(self) -> np.ndarray:
        """Drawn seconds to the target, shape (DRAWS, strategies): a seed each, and one error of the predicted times."""
        rng = np.random.default_rng(0)
        error = rng.normal(size=DRAWS)
        u = rng.random(DRAWS)
        columns = [
            one.seconds_to[(u * len(one.seconds_to)).astype(int)] * np.exp(error * one.spread) for one in self.rows
        ]
        return np.stack(columns, axis=1)

    @cached_property
    def interval(self) -> np.ndarray:
        """Seconds to the target, shape (3, strategies): their interval's lower end, median and upper end."""
        tail = (1 - self.confidence) / 2
        with np.errstate(invalid="ignore"):
            ends = np.quantile(self.seconds, [tail, 0.5, 1 - tail], axis=0, method="inverted_cdf")
        ends[1:, [one.late for one in self.rows]] = np.inf
        return ends

    @property
    def probability_best(self) -> np.ndarray:
        """Share of the draws in which each is the first, shape (strategies,), of those that are not `late`."""
        seconds = np.where(np.isnan(self.seconds) | [one.late for one in self.rows], np.inf, self.seconds)
        arrives = np.isfinite(seconds).any(axis=1)
        return np.bincount(seconds[arrives].argmin(axis=1), minlength=len(self.rows)) / len(seconds)

    @property
    def best(self) -> Compared | None:
        """The one that is most probably first; None where no time is known."""
        chances = self.probability_best
        return self.rows[int(chances.argmax())] if chances.any() else None

    def to_rows(self) -> list[dict[str, Any]]:
        """A row for each strategy, the fastest first; nothing is said of what is not known."""
        reach = normal_quantile(self.confidence)
        low, middle, high = self.interval.tolist()
        steps, time = ("steps_vs_one", "time_vs_one") if self.relative else ("steps_to_target", "seconds")
        rows = []
        for i, one in enumerate(self.rows):
            row: dict[str, Any] = {
                "strategy": one.name,
                "steps_per_second": one.steps_per_second,
                "steps_per_second_low": one.steps_per_second * float(np.exp(-reach * one.spread)),
                "steps_per_second_high": one.steps_per_second * float(np.exp(reach * one.spread)),
                "bytes_per_step": one.bytes_per_step,
                steps: finite(float(np.median(one.steps_to))),
                time: finite(middle[i]),
                f"{time}_low": finite(low[i]),
                f"{time}_high": finite(high[i]),
            }
            if self.price_per_node_hour is not None and not self.relative:
                row["cost"] = finite(middle[i] * self.nodes * self.price_per_node_hour / 3600)
            chance = None if np.isnan(one.seconds_to).any() else float(self.probability_best[i])
            rows.append(row | {"probability_best": chance})
        order = sorted(range(len(rows)), key=lambda i: (rows[i][time] is None, rows[i][time] or 0.0))
        return [rows[i] for i in order]

    def shown_rows(self) -> list[dict[str, Any]]:
        """The rows without the interval of the rate, and without columns of which nothing is known."""
        rows = self.to_rows()
        known = [name for name in rows[0] if any(row[name] is not None for row in rows)]
        hidden = {"steps_per_second_low", "steps_per_second_high"} | (
            {"probability_best"} if self.best is None else set()
        )
        return [{name: row[name] for name in known if name not in hidden} for row in rows]

    def to_dict(self) -> dict[str, Any]:
        """The rows, and what they are of."""
        about = {"workers": self.workers, "nodes": self.nodes, "target": self.target, "problem": self.problem}
        return about | {"confidence": self.confidence, "note": self.note, "rows": self.to_rows()}

    def caption(self) -> str:
        to = f" to a loss of {self.target:.4g}" if self.target is not None else ""
        of = f" of a stand-in, {self.problem}" if self.problem else ""
        said = f"{self.workers} workers{to}{of}; intervals of {self.confidence:.0%}"
        return f"{said}; {self.note}" if self.note else said

    def report(self, path: str | os.PathLike[str] | None = None) -> str:
        """One HTML file with the losses, the times to the target and their probabilities, which needs nothing else.

        The page recomputes costs for another price, and says who arrives by a deadline. It is written to the ``path``
        (.html), too, whole or not at all.
        """
        return report_page("comparison", comparison_data(self), path=path)

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Loss against time, a line for each strategy with its range over the seeds."""
        return plot_losses(self, ax=ax)
