"""The comparison of strategies: table, figures and page, plans from it, and a job for a cluster."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.checks import by_keyword, require_count, require_number, require_share
from ..base.drawing import COLORS, SMALL, finish_axes, new_axes, styles
from ..base.errors import ModelError
from ..base.estimates import normal_quantile
from ..base.files import duration_in, readable_duration
from ..base.results import Result, counted, finite, percent, rows_of
from ..curves.plan import in_use
from ..report import report_page
from ..scheduling.curves import StagedCurve, TableCurve
from ..scheduling.jobs import ClusterJob
from .loop import Descent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Of what is often compared; the same in every figure.
OFTEN = ("local-sgd", "adacomm", "overlap-local-sgd", "top-k", "block-sign", "block-sign-local", "adaquant", "sync")
STRATEGY_COLORS = dict(zip(OFTEN, COLORS, strict=True))


def plot_losses(comparison: Comparison, *, ax: Axes | None = None) -> Axes:
    """Loss against wall-clock time: means over the seeds, and their range; without training, steps per second."""
    shown = [(one, one.descent) for one in comparison.rows if one.descent is not None]
    if not shown:
        return _plot_rates(comparison, ax)
    ax = ax or new_axes((7.2, 4.6))
    looks = styles([one.name for one, _ in shown], STRATEGY_COLORS)
    for one, run in shown:
        style, time, losses = looks[one.name], run.times.mean(axis=0)[1:], run.losses[:, 1:]
        ax.plot(time, losses.mean(axis=0), label=one.name, lw=1.8, **style)
        ax.fill_between(time, losses.min(axis=0), losses.max(axis=0), color=style["color"], alpha=0.15, lw=0)
    if comparison.target is not None:
        ax.axhline(comparison.target, color="black", lw=0.8, ls=":")
        where: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "bottom", "fontsize": SMALL}
        ax.annotate("target", (0.01, comparison.target), **where)
    ax.set(xlabel="time (s)", ylabel="loss", xscale="log", yscale="log")
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
    ax.set(xlabel="throughput of all workers (steps/s)", xlim=(0, None))
    finish_axes(ax, legend=None)
    return ax


def plot_time_to_target(comparisons: Sequence[Comparison], *, ax: Axes | None = None) -> Axes:
    """Median seconds to the target against the number of workers, a line for each strategy."""
    ax = ax or new_axes((7.2, 4.6))
    points: dict[str, list[tuple[int, float]]] = {}
    for comparison in comparisons:
        for one in comparison.rows:
            points.setdefault(one.name, []).append((comparison.workers, float(np.median(one.seconds_to))))
    looks = styles(points, STRATEGY_COLORS)
    for name, own in points.items():
        if known := [point for point in own if np.isfinite(point[1])]:
            ax.plot(*zip(*known, strict=True), marker="o", ms=3, label=name, **looks[name])
    ax.set(xlabel="workers", ylabel="time to the target (s)", yscale="log")
    finish_axes(ax, legend="right")
    return ax


def _losses(run: Descent) -> dict[str, list[float]]:
    """Mean seconds, and mean, least and largest loss over the seeds, to five digits, at most 100 points."""
    rows = run.to_rows()
    shown = np.unique(np.geomspace(1, len(rows) - 1, 100).astype(int))  # the start has no logarithm
    columns = {"seconds": "seconds", "mean": "loss", "least": "least", "largest": "largest"}
    return {name: [float(f"{rows[i][column]:.5g}") for i in shown] for name, column in columns.items()}


#: Draws of the error of the predicted times, and of a seed.
TIME_DRAWS = 4000


@dataclass(frozen=True, eq=False)
class Compared:
    """One strategy's steps and seconds; steps count single workers' gradients."""

    name: str
    steps_per_second: float
    bytes_per_step: float  #: that a worker sends and receives for each
    steps_to: np.ndarray  #: to the target, shape (S,), by seed; infinite where it was not reached, NaN where unknown
    seconds_to: np.ndarray
    spread: float  #: standard error of the logarithm of the predicted times
    learning_rate: float = float("nan")  #: the best of those tried; NaN without training
    descent: Descent | None = None  #: the runs, their times as predicted

    @property
    def unreached(self) -> bool:
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
    remarks: tuple[str, ...] = ()  #: what to know before trusting it
    relative: bool = False  #: steps and times to the target are in those of a single worker
    problem: str = ""  #: what was trained instead of the job; empty for the job itself
    _digits = 3

    @cached_property
    def seconds(self) -> np.ndarray:
        """Draws (TIME_DRAWS, strategies) of seconds to the target: a seed each, and one error of predicted times."""
        rng = np.random.default_rng(0)
        error, u = rng.normal(size=TIME_DRAWS), rng.random(TIME_DRAWS)
        draws = [(one.seconds_to[(u * len(one.seconds_to)).astype(int)], one.spread) for one in self.rows]
        return np.stack([seconds * np.exp(error * spread) for seconds, spread in draws], axis=1)

    @cached_property
    def interval(self) -> np.ndarray:
        """Seconds to the target, shape (3, strategies): their interval's lower end, median and upper end."""
        tail = (1 - self.confidence) / 2
        with np.errstate(invalid="ignore"):
            ends = np.quantile(self.seconds, [tail, 0.5, 1 - tail], axis=0, method="inverted_cdf")
        ends[1:, [one.unreached for one in self.rows]] = np.inf
        return ends

    @property
    def probability_best(self) -> np.ndarray:
        """Share of the draws in which each is the first, shape (strategies,), of those that are not `unreached`."""
        seconds = np.where(np.isnan(self.seconds) | [one.unreached for one in self.rows], np.inf, self.seconds)
        arrives = np.isfinite(seconds).any(axis=1)
        return np.bincount(seconds[arrives].argmin(axis=1), minlength=len(self.rows)) / len(seconds)

    @property
    def best(self) -> Compared | None:
        """The most probably first; None where no time is known."""
        chances = self.probability_best
        return self.rows[int(chances.argmax())] if chances.any() else None

    def to_rows(self) -> list[dict[str, Any]]:
        """A row for each strategy, the fastest first; None where unknown."""
        rates, spreads, sent = np.array([(r.steps_per_second, r.spread, r.bytes_per_step) for r in self.rows]).T
        error, (low, middle, high) = normal_quantile(self.confidence) * spreads, self.interval
        steps, time = ("steps_vs_one", "time_vs_one") if self.relative else ("steps_to_target", "seconds")
        price = None if self.relative else self.price_per_node_hour
        unknown = [np.isnan(row.seconds_to).any() for row in self.rows]
        columns = {
            "strategy": np.array([row.name for row in self.rows]), "steps_per_second": rates,
            "steps_per_second_low": rates * np.exp(-error), "steps_per_second_high": rates * np.exp(error),
            "bytes_per_step": sent, steps: np.array([np.median(row.steps_to) for row in self.rows]), time: middle,
            f"{time}_low": low, f"{time}_high": high,
            **({} if price is None else {"cost": middle * self.nodes * price / 3600}),
            "probability_best": np.where(unknown, np.nan, self.probability_best),
        }  # fmt: skip
        rows = finite(rows_of(columns))
        return sorted(rows, key=lambda row: (row[time] is None, row[time] or 0.0))

    def _shown_rows(self) -> list[dict[str, Any]]:
        """The rows without the interval of the rate, and without columns of which nothing is known."""
        hidden = {"steps_per_second_low", "steps_per_second_high"} | ({"probability_best"} if not self.best else set())
        return in_use([{name: value for name, value in row.items() if name not in hidden} for row in self.to_rows()])

    def to_dict(self) -> dict[str, Any]:
        about = {"workers": self.workers, "nodes": self.nodes, "target": self.target, "problem": self.problem}
        return about | {"confidence": self.confidence, "note": "; ".join(self.remarks), "rows": self.to_rows()}

    def answer(self) -> str:
        """Which strategy is most probably first, and when."""
        to = "" if self.target is None else f" to a loss of {self.target:.4g}"
        what = f"{counted(self.workers, 'worker')}{to}"
        if self.best is None:
            return f"{what}: no strategy is known to arrive"
        first = [one.name for one in self.rows].index(self.best.name)
        unit = "times as long as one worker" if self.relative else ""
        low, middle, high = (f"{x:.3g}" if unit else readable_duration(x, 3) for x in self.interval[:, first].tolist())
        when = f"{' '.join(filter(None, [middle, unit]))} ({low} to {high})"
        chance = percent(float(self.probability_best[first]))
        found = f"{what}: {self.best.name} is first with {chance} probability, after {when}"
        return f"{found}; {percent(self.confidence)} intervals"

    def notes(self) -> list[str]:
        """The problem that stands in for the job, and limits of the answer."""
        return [*([f"trained on a stand-in, {self.problem}"] if self.problem else []), *self.remarks]

    def report(self, path: str | os.PathLike[str] | None = None) -> str:
        """One self-contained HTML file with the losses, the times to the target and their probabilities.

        The page recomputes costs for another price, and shows which strategies meet a deadline. It is also written to
        the ``path`` (.html), whole or not at all.
        """
        on = f" on {self.problem}, which stands in for the job" if self.problem else ""
        runs = [(one.name, one.descent) for one in self.rows if one.descent is not None]
        page = self.to_dict() | {
            "price_per_node_hour": self.price_per_node_hour,
            "relative": self.relative,
            "title": f"Ways of training on {counted(self.workers, 'worker')}",
            "caption": self.caption(),
            "headline": f"Most probably first{on}: {self.best.name}." if self.best is not None else "",
            "losses": [{"strategy": name, **_losses(run)} for name, run in runs],
        }
        return report_page("comparison", page, path=path)

    plot = plot_losses


@dataclass(frozen=True)
class StrategyChoice:
    """The answer to one question; without a strategy when none of those compared meets the goal."""

    goal: str
    strategy: str | None = None
    workers: int | None = None
    seconds: float = math.nan  #: to the target, and the comparison's interval
    seconds_low: float = math.nan
    seconds_high: float = math.nan
    cost: float = math.nan  #: price of all nodes, servers' too, for that time; NaN without a price
    cost_low: float = math.nan
    cost_high: float = math.nan
    probability: float = math.nan  #: that it ends by the deadline; without one, that it ends


@dataclass(frozen=True, eq=False, repr=False)
class StrategyPlan(Result):
    """Choices of a strategy and a number of workers: one for each question."""

    choices: tuple[StrategyChoice, ...]
    confidence: float  #: of their intervals
    deadline: float | None = None  #: seconds; what the probability is of, in every row
    _digits = 3

    def to_rows(self) -> list[dict[str, Any]]:
        """A row for each choice; None where unknown."""
        return finite([vars(choice) for choice in self.choices])

    def to_dict(self) -> dict[str, Any]:
        return {"confidence": self.confidence, "deadline": self.deadline, "choices": self.to_rows()}

    def _shown_rows(self) -> list[dict[str, Any]]:
        """The rows, with what the probability is of."""
        of = "of arrival" if self.deadline is None else f"within {readable_duration(self.deadline)}"
        return [
            {f"probability {of}" if name == "probability" else name: value for name, value in row.items()}
            for row in self.to_rows()
        ]

    def caption(self) -> str:
        first = self.choices[-1]  # which answers most of what was asked
        if first.strategy is None or first.workers is None:
            return f"{first.goal}: no strategy that was compared"
        ends = readable_duration(first.seconds_low, 3), readable_duration(first.seconds_high, 3)
        when = f"{readable_duration(first.seconds, 3)} ({' to '.join(ends)})"
        found = f"{first.goal}: {first.strategy} on {counted(first.workers, 'worker')}, {when}"
        return f"{found}; {percent(self.confidence)} intervals"


def plan_strategies(
    comparisons: Comparison | Sequence[Comparison],
    *,
    deadline: float | str | timedelta | None = None,
    price_per_node_hour: float | None = None,
    chance: float = 0.5,
) -> StrategyPlan:
    """
    Choose a strategy and a number of workers from comparisons.

    The fastest always gets a row. With a deadline (seconds, or like ``"12h"``), so does the one of fewest nodes that
    meets it with the probability ``chance``; with a price of a worker or a server, the cheapest; with both, the
    cheapest that meets the deadline. Times are medians over seeds and the error of the prediction. Comparisons are of
    different numbers of workers, to the same target.

    Examples
    --------
    >>> from queuemodel.sgd import compare, plan_strategies
    >>> from queuemodel import example_profile
    >>> from queuemodel.curves import fit_convergence
    >>> law, profile = fit_convergence([(32, [2e4, 2.1e4]), (256, [3e4])]), example_profile("ddp-alexnet-40")
    >>> compared = [compare(profile, workers=n, strategies=["sync"], convergence=law) for n in (1, 2, 4, 8)]
    >>> [choice.workers for choice in plan_strategies(compared, deadline=240, price_per_node_hour=1.0).choices]
    [8, 4, 1, 4]
    """
    compared = _in_seconds(comparisons, "plan_strategies")
    until = duration_in(deadline, "plan_strategies: deadline")
    for value, name in ((until, "deadline"), (price_per_node_hour, "price_per_node_hour")):
        if value is not None:
            require_number(value, f"plan_strategies: {name}", positive=True)
    require_share(chance, "plan_strategies: chance", open_ended=True)
    ways = [way for comparison in compared for way in _ways(comparison, until, price_per_node_hour)]
    if not ways:
        raise ModelError("plan_strategies: no time to a loss is known; give compare a problem or a convergence law")
    in_time = [way for way in ways if way[1].probability >= chance]
    within = f"within {readable_duration(until or 0)}"
    late, paid = until is not None, price_per_node_hour is not None
    questions: list[tuple[bool, str, list[_Way], Callable[[_Way], tuple[float, float]]]] = [
        (True, "fastest", ways, lambda way: (way[1].seconds, way[0])),
        (late, f"fewest nodes {within}", in_time, lambda way: (way[0], way[1].seconds)),
        (paid, "cheapest", ways, lambda way: (way[1].cost, way[1].seconds)),
        (late and paid, f"cheapest {within}", in_time, lambda way: (way[1].cost, way[1].seconds)),
    ]
    choices = []
    for asked, goal, possible, merit in questions:
        if asked:
            best = min((way for way in possible if np.isfinite(way[1].seconds)), key=merit, default=None)
            choices.append(replace(best[1], goal=goal) if best else StrategyChoice(goal))
    return StrategyPlan(tuple(choices), compared[0].confidence, until)


def _in_seconds(comparisons: Comparison | Sequence[Comparison], caller: str) -> list[Comparison]:
    """Comparisons of which one time to one loss is known; refuses others."""
    several = [comparisons] if isinstance(comparisons, Comparison) else list(comparisons)
    found = "one in times of one worker alone" if any(one.relative for one in several) else "" if several else "none"
    if len(targets := {str(one.target) for one in several}) > 1:
        found = f"targets {', '.join(sorted(targets))}"
    if found:
        needed = "comparisons in seconds, to one target"
        raise ModelError(f"{caller}: needs {needed}, got {found}; give compare a problem or a convergence law")
    return several


_Way = tuple[int, StrategyChoice]  # nodes, and the choice of so many workers


def _ways(comparison: Comparison, deadline: float | None, price: float | None) -> Iterator[_Way]:
    """Every strategy whose time is known."""
    rate = math.nan if price is None else price * comparison.nodes / 3600
    for one, drawn, interval in zip(comparison.rows, comparison.seconds.T, comparison.interval.T, strict=True):
        if not np.isnan(drawn).any():
            low, median, high = interval.tolist()
            arrives = float(np.mean(drawn < np.inf if deadline is None else drawn <= deadline))
            costs = rate * median, rate * low, rate * high
            choice = StrategyChoice("", one.name, comparison.workers, median, low, high, *costs, arrives)
            yield comparison.nodes, choice


@by_keyword
def job_of(
    comparisons: Comparison | Sequence[Comparison],
    strategy: str,
    *,
    name: str,
    arrival_time: float,
    stretches: int = 10,
    **rest: Any,
) -> ClusterJob:
    """
    A job that trains by one strategy until the target, for `queuemodel.scheduling`.

    Its work counts in steps of all workers on the fewest workers that were compared. Where the strategy was run on a
    problem, its work is divided into stretches between levels of the loss that take equal times on those; on other
    numbers of workers each takes the time of the run there between the same levels. Elsewhere the job has one speed. A
    worker is a node; numbers of workers on which the strategy does not arrive (median over the seeds) are left out, and
    speeds between the others are linear. ``rest`` goes to `ClusterJob`.
    """
    require_count(stretches, "job_of: stretches", most=1000)
    compared = _in_seconds(comparisons, "job_of")
    found = {each.workers: one for each in compared for one in each.rows if one.name == strategy}
    if not found:
        raise ModelError(f"job_of: strategy must be one that was compared, got {strategy!r}")
    ways = {n: one for n, one in found.items() if np.isfinite(np.median(one.seconds_to))}
    if not ways:
        raise ModelError(f"job_of: {strategy!r} is not known to reach the target on any number of workers")
    least, took = min(ways), _stretches(ways, stretches)
    work, share = float(np.median(ways[least].steps_to)), took[least] / took[least].sum()
    curves = [TableCurve({n: work * part / took[n][k] for n in ways}) for k, part in enumerate(share.tolist())]
    limits: dict[str, Any] = {"least_nodes": least, "most_nodes": max(ways)}
    curve = StagedCurve(list(zip(share.tolist(), curves, strict=True)))
    return ClusterJob(name, arrival_time=arrival_time, steps=work, curve=curve, **limits, **rest)


def _stretches(ways: dict[int, Compared], stretches: int) -> dict[int, np.ndarray]:
    """Seconds between common levels of the loss, all above 0, by workers; without runs those of the whole."""
    whole = {n: float(np.median(one.seconds_to)) for n, one in ways.items()}
    courses = {n: _course(one.descent, whole[n]) for n, one in ways.items() if one.descent is not None}
    if len(courses) < len(ways):
        return {n: np.array([end]) for n, end in whole.items()}
    times, losses = courses[min(ways)]
    levels = np.interp(times[-1] * np.arange(1, stretches) / stretches, times, losses)
    levels = np.unique(levels[(levels < losses[0]) & (levels > losses[-1])])[::-1]
    seconds = {}
    for n, (times, losses) in courses.items():
        ends = np.interp(-levels, -losses, times)
        took = np.maximum(np.diff(ends, prepend=0.0, append=whole[n]), 1e-3 * whole[n] / (len(levels) + 1))
        seconds[n] = took * whole[n] / took.sum()
    return seconds


def _course(run: Descent, end: float) -> tuple[np.ndarray, np.ndarray]:
    """Seconds, and the least loss so far, means over the seeds, from the start to ``end``."""
    times = run.times.mean(axis=0)
    losses = np.minimum.accumulate(np.where(np.isfinite(run.losses), run.losses, run.losses[:, :1]).mean(axis=0))
    return np.append(times[times < end], end), np.append(losses[times < end], losses[-1])
