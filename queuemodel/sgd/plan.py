"""What follows from comparisons: the cheapest way of training by a deadline, and a job for a cluster."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..base.checks import require_count, require_number, require_share
from ..base.errors import ModelError
from ..base.results import Result, finite
from ..scheduling.curves import StagedCurve, TableCurve
from ..scheduling.jobs import ClusterJob
from .loop import Descent
from .result import Compared, Comparison


@dataclass(frozen=True)
class StrategyChoice:
    """The answer to one question; without a strategy when nothing that was compared meets the goal."""

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
    digits = 3

    def to_rows(self) -> list[dict[str, Any]]:
        """A row for each choice; nothing is said of what is not known."""
        return [{name: finite(value) for name, value in vars(choice).items()} for choice in self.choices]

    def to_dict(self) -> dict[str, Any]:
        """The choices, and what their intervals are."""
        return {"confidence": self.confidence, "deadline": self.deadline, "choices": self.to_rows()}

    def shown_rows(self) -> list[dict[str, Any]]:
        """The rows, with what the probability is of."""
        of = "of arrival" if self.deadline is None else _within(self.deadline)
        return [
            {f"probability {of}" if name == "probability" else name: value for name, value in row.items()}
            for row in self.to_rows()
        ]

    def caption(self) -> str:
        return f"intervals of {self.confidence:.0%}"


def plan_strategies(
    comparisons: Comparison | Sequence[Comparison],
    *,
    deadline: float | None = None,
    price_per_node_hour: float | None = None,
    chance: float = 0.5,
) -> StrategyPlan:
    """
    Choose among everything that was compared: strategies, and numbers of workers.

    The fastest always gets a row. With a deadline (seconds), so does the one of fewest nodes that meets it with the
    probability ``chance``; with a price of a worker or a server, the cheapest; with both, the cheapest that meets the
    deadline. Times are medians over seeds and the error of the prediction. Comparisons are of different numbers of
    workers, to the same target.

    Examples
    --------
    >>> from queuemodel.sgd import compare, plan_strategies
    >>> from queuemodel.profile.examples import example_profile
    >>> from queuemodel.curves.convergence import fit_convergence
    >>> law, profile = fit_convergence([(32, [2e4, 2.1e4]), (256, [3e4])]), example_profile("ddp-alexnet-40")
    >>> compared = [compare(profile, workers=n, strategies=["sync"], convergence=law) for n in (1, 2, 4, 8)]
    >>> [choice.workers for choice in plan_strategies(compared, deadline=240, price_per_node_hour=1.0).choices]
    [8, 4, 1, 4]
    """
    given = [comparisons] if isinstance(comparisons, Comparison) else list(comparisons)
    for value, name in ((deadline, "deadline"), (price_per_node_hour, "price_per_node_hour")):
        if value is not None:
            require_number(value, f"plan_strategies: {name}", positive=True)
    require_share(chance, "plan_strategies: chance", open_ended=True)
    if not given or any(one.relative for one in given):
        raise ModelError(
            "plan_strategies: needs comparisons in seconds, got "
            + ("none" if not given else "one in times of one worker alone; give compare a problem or a convergence law")
        )
    if len({one.target for one in given}) > 1:
        raise ModelError(
            f"plan_strategies: comparisons must be to one target, got {sorted({str(one.target) for one in given})}; "
            "give compare the target"
        )
    ways = [way for comparison in given for way in _ways(comparison, deadline, price_per_node_hour)]
    if not ways:
        raise ModelError("plan_strategies: no time to a loss is known; give compare a problem or a convergence law")
    in_time = [way for way in ways if way[1].probability >= chance]
    within = _within(deadline or 0)
    asked: list[tuple[str, list[_Way], Callable[[_Way], tuple[float, float]]]] = [
        ("fastest", ways, lambda way: (way[1].seconds, way[0]))
    ]
    if deadline is not None:
        asked.append((f"fewest nodes {within}", in_time, lambda way: (way[0], way[1].seconds)))
    if price_per_node_hour is not None:
        asked.append(("cheapest", ways, lambda way: (way[1].cost, way[1].seconds)))
    if deadline is not None and price_per_node_hour is not None:
        asked.append((f"cheapest {within}", in_time, lambda way: (way[1].cost, way[1].seconds)))
    choices = []
    for goal, among, merit in asked:
        best = min((way for way in among if np.isfinite(way[1].seconds)), key=merit, default=None)
        choices.append(replace(best[1], goal=goal) if best else StrategyChoice(goal))
    return StrategyPlan(tuple(choices), given[0].confidence, deadline)


#: Nodes, and what to choose on so many workers.
_Way = tuple[int, StrategyChoice]


def _ways(comparison: Comparison, deadline: float | None, price: float | None) -> Iterator[_Way]:
    """Every strategy of which a time is known."""
    rate = math.nan if price is None else price * comparison.nodes / 3600
    for one, drawn, interval in zip(comparison.rows, comparison.seconds.T, comparison.interval.T, strict=True):
        if not np.isnan(drawn).any():
            low, median, high = interval.tolist()
            arrives = float(np.mean(drawn < np.inf if deadline is None else drawn <= deadline))
            costs = rate * median, rate * low, rate * high
            choice = StrategyChoice("", one.name, comparison.workers, median, low, high, *costs, arrives)
            yield comparison.nodes, choice


def _within(deadline: float) -> str:
    unit, seconds = next((u for u in (("h", 3600), ("min", 60)) if deadline >= u[1]), ("s", 1))
    return f"within {deadline / seconds:.4g} {unit}"


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

    Its work counts in steps of all workers, as they are on the fewest workers that were compared. Where the strategy
    was run on a problem, its way to the loss is divided into stretches between levels of the loss, which take equal
    times on those fewest workers; on other numbers of workers each takes the time that the run there took between
    the same levels, so that steps that become slower, or are worth less, are so here as well. Elsewhere the job has one
    speed for all of its work. A worker is a node; numbers of workers on which the strategy does not arrive (median over
    the seeds) are left out, and speeds between the others are linear. ``rest`` goes to `ClusterJob`.
    """
    require_count(stretches, "job_of: stretches", most=1000)
    given = [comparisons] if isinstance(comparisons, Comparison) else list(comparisons)
    found = {
        comparison.workers: (comparison, one) for comparison in given for one in comparison.rows if one.name == strategy
    }
    if not found:
        raise ModelError(f"job_of: strategy must be one that was compared, got {strategy!r}")
    if any(comparison.relative for comparison, _ in found.values()) or len({c.target for c, _ in found.values()}) > 1:
        raise ModelError(
            "job_of: needs comparisons in seconds, to one target; give compare a problem or a convergence law"
        )
    ways = {n: found[n][1] for n in sorted(found) if np.isfinite(np.median(found[n][1].seconds_to))}
    if not ways:
        raise ModelError(f"job_of: {strategy!r} is not known to reach the target on any number of workers")
    first = next(iter(ways.values()))
    work = float(np.median(first.steps_to))
    levels = _levels(first, stretches)
    took = {n: _seconds(one, levels) for n, one in ways.items()}
    share = took[min(ways)] / took[min(ways)].sum()
    table = {n: share * work / seconds for n, seconds in took.items()}
    curve = StagedCurve(
        [(part, TableCurve({n: speeds[k] for n, speeds in table.items()})) for k, part in enumerate(share.tolist())]
    )
    least, most = min(ways), max(ways)
    return ClusterJob(
        name, arrival_time=arrival_time, steps=work, curve=curve, least_nodes=least, most_nodes=most, **rest
    )


def _way(run: Descent, end: float) -> tuple[np.ndarray, np.ndarray]:
    """Seconds, and the least loss so far, means over the seeds; from the start to the arrival."""
    times = run.times.mean(axis=0)
    losses = np.minimum.accumulate(np.where(np.isfinite(run.losses), run.losses, run.losses[:, :1]).mean(axis=0))
    before = times < end
    return np.append(times[before], end), np.append(losses[before], losses[-1])


def _levels(one: Compared, stretches: int) -> np.ndarray:
    """Losses between stretches of equal time, from high to low; none without a run."""
    if one.descent is None:
        return np.empty(0)
    times, losses = _way(one.descent, float(np.median(one.seconds_to)))
    levels = np.interp(times[-1] * np.arange(1, stretches) / stretches, times, losses)
    return np.unique(levels[(levels < losses[0]) & (levels > losses[-1])])[::-1]


def _seconds(one: Compared, levels: np.ndarray) -> np.ndarray:
    """Seconds of the stretches between the levels, all above 0, that add up to the time to the target."""
    end = float(np.median(one.seconds_to))
    if one.descent is None:
        return np.array([end])
    times, losses = _way(one.descent, end)
    at = np.interp(-levels, -losses, times)
    took = np.maximum(np.diff(at, prepend=0.0, append=end), 1e-3 * end / (len(levels) + 1))
    return took * end / took.sum()
