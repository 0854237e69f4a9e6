"""How many workers to pay for: deadlines, prices, efficiency."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

import numpy as np

from ..base.checks import LARGEST, MOST_EXAMPLES, require_choice, require_count, require_number
from ..base.errors import ModelError
from ..base.files import readable_duration
from ..base.results import Result, counted, finite
from .curve import ThroughputCurve

#: From numbers of steps per second to the index of the answer.
Rule = Callable[[np.ndarray], int | None]
Measure = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, slots=True)
class Choice:
    """The answer to one question of capacity."""

    goal: str  # The question, in words
    workers: int | None  # None when no number of workers on the curve meets the goal
    #: workers_low, workers_high: Least and largest answers on the curve and both ends of its interval; None where the
    #: slower end has no answer: a deadline needs more workers than the curve has, an efficiency fewer.
    workers_low: int | None
    workers_high: int | None
    time: float  # time, time_low, time_high: Seconds of training with `workers`, and its interval; NaN without epochs
    time_low: float
    time_high: float
    cost: float  # cost, cost_low, cost_high: Price of all nodes for that time, and its interval; NaN without a price
    cost_low: float
    cost_high: float

    @property
    def workers_interval(self) -> str:
        """The interval in words; ``?`` where it is open."""
        low, high = ("?" if end is None else end for end in (self.workers_low, self.workers_high))
        return f"{low} to {high}"

    def figures(self) -> dict[str, float | None]:
        """Hours and costs with their intervals, as columns of a table; None where there are none."""
        hours = {"hours": self.time / 3600, "hours_low": self.time_low / 3600, "hours_high": self.time_high / 3600}
        costs = {"cost": self.cost, "cost_low": self.cost_low, "cost_high": self.cost_high}
        return {name: finite(value) for name, value in (hours | costs).items()}


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Result):
    """Choices of node counts, one per question."""

    choices: tuple[Choice, ...]
    curve: ThroughputCurve
    price: float | None = None  # per node and hour
    examples: float | None = None  # of the whole training
    remarks: tuple[str, ...] = ()  # why a goal has no answer, and what it would need; answers that end with the curve
    digits = 3

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per choice (times in hours)."""
        return [
            {"goal": c.goal, "workers": c.workers, "workers_interval": c.workers_interval, **c.figures()}
            for c in self.choices
        ]

    def to_dict(self) -> dict[str, Any]:
        """The choices, times in seconds."""
        rows = [{k: finite(getattr(c, k)) for k in Choice.__slots__} for c in self.choices]
        return {"confidence": self.curve.confidence, "choices": rows, "note": "; ".join([self.assumed, *self.remarks])}

    def caption(self) -> str:
        """What is assumed, how the curve was predicted, and why a goal is not met."""
        return "; ".join([self.assumed, self.curve.basis, *self.remarks])

    @property
    def assumed(self) -> str:
        """What is paid for, and what the job trains."""
        servers = self.curve.parameter_servers
        paid = f"workers and {counted(servers, 'parameter server')} are paid for" if servers else "workers are paid for"
        paid += f", {counted(self.curve.workers_per_node, 'worker')} to a node"
        price = "" if self.price is None else f", at {self.price:.6g} per node and hour"
        trained = "" if self.examples is None else f"{self.examples:,.0f} examples to train"
        return "; ".join(filter(None, [self.curve.assumption, trained, paid + price]))


#: Goals, with their largest values.
GOALS = {
    "deadline": LARGEST,
    "price_per_node_hour": LARGEST,
    "budget": LARGEST,
    "throughput": MOST_EXAMPLES,
    "min_efficiency": 1.0,
    "min_marginal_speedup": 1.0,
}


class Goals(TypedDict, total=False):
    """The goals of `plan`, by keyword."""

    deadline: float | None
    price_per_node_hour: float | None
    budget: float | None
    throughput: float | None
    min_efficiency: float | None
    min_marginal_speedup: float | None


def plan(
    curve: ThroughputCurve,
    *,
    epochs: float | None = None,
    dataset_size: int | None = None,
    **goals: Unpack[Goals],
) -> Plan:
    """Choose numbers of workers from a throughput curve.

    Each question gets a row: the smallest number of workers that meets ``deadline``; the cheapest (whose nodes are its
    workers and the parameter servers); the smallest with at least ``throughput``; the largest with at
    least ``min_efficiency``; the largest whose last worker still adds ``min_marginal_speedup``. A deadline and a price
    together also give the cheapest that meets the deadline, a ``budget`` and a price the fastest within it. Only the
    curve's own numbers of workers are considered.

    Parameters
    ----------
    curve : ThroughputCurve
    epochs : float
        How often training passes over the data set; needed for times and costs.
    dataset_size : int
        Examples per epoch, unless recorded in the curve.
    deadline : float
        Seconds.
    price_per_node_hour : float
        Of a worker or a server.
    budget : float
        Largest cost of the training, in the price's currency.
    min_efficiency : float
        X(N) b / (N X(b)) over the curve's base b, 0 to 1.
    min_marginal_speedup : float
        Speedup per added worker, 0 to 1.
    throughput : float
        Examples per second, or what the curve counts.

    Raises
    ------
    ModelError
        When a value is out of range, no question is put, one lacks ``epochs`` or the data set's size, or the curve is
        something else, such as a profile.
    """
    if not isinstance(curve, ThroughputCurve):
        raise ModelError(
            f"plan: curve must be a ThroughputCurve, got {type(curve).__name__}; predict gives one of a profile"
        )
    for name, value in {"epochs": epochs, **goals}.items():
        require_choice(name, "plan: goal", ("epochs", *GOALS))
        if value is not None:
            require_number(value, f"plan: {name}", positive=True, largest=GOALS.get(name, LARGEST))
    deadline, throughput = goals.get("deadline"), goals.get("throughput")
    price_per_node_hour, budget = goals.get("price_per_node_hour"), goals.get("budget")
    min_efficiency, min_marginal_speedup = goals.get("min_efficiency"), goals.get("min_marginal_speedup")
    size = dataset_size if dataset_size is not None else curve.dataset_size
    if size is not None:
        require_count(size, "plan: dataset_size", most=MOST_EXAMPLES)
    if any(value is not None for value in (deadline, price_per_node_hour, budget)):
        needed = {"epochs": epochs, "dataset_size": size, "price_per_node_hour": budget is None or price_per_node_hour}
        if missing := [name for name, value in needed.items() if value is None]:
            raise ModelError(f"plan: give {' and '.join(missing)} too, for a deadline, a price or a budget")
    examples = math.nan if epochs is None or size is None else epochs * size
    price = math.nan if price_per_node_hour is None else price_per_node_hour

    def time(x: np.ndarray) -> np.ndarray:
        return examples / (x * curve.batch_size)

    def cost(x: np.ndarray) -> np.ndarray:
        return time(x) / 3600 * price * curve.nodes

    def marginal(x: np.ndarray) -> np.ndarray:
        return np.diff(x / curve.single, prepend=0.0) / np.diff(curve.workers, prepend=0)

    most: list[tuple[str, Rule]] = []  # the largest number that is still good enough: the slower, the fewer
    least: list[tuple[str, Rule]] = []  # the smallest number that is good enough: the slower, the more
    if deadline is not None:
        within = f"within {readable_duration(deadline)}"
        least.append((f"smallest {within}", lambda x: _first(time(x) <= deadline)))
    if price_per_node_hour is not None:
        least.append(("cheapest", lambda x: _least(cost(x))))
    if deadline is not None and price_per_node_hour is not None:
        least.append((f"cheapest {within}", lambda x: _least(np.where(time(x) <= deadline, cost(x), math.inf))))
    unit = f"{curve.unit or 'steps'}/s"
    if budget is not None:
        rule = lambda x: _least(np.where(cost(x) <= budget, time(x), math.inf))  # noqa: E731
        most.append((f"fastest within a budget of {budget:.6g}", rule))
    if throughput is not None:
        least.append((f"at least {throughput:.4g} {unit}", lambda x: _first(x * curve.batch_size >= throughput)))
    if min_efficiency is not None:
        name = f"efficiency >= {min_efficiency:g}" + (f" over {curve.base}" if curve.base else "")
        most.append((name, lambda x: _last(curve.efficiency_of(x) >= min_efficiency)))
    if min_marginal_speedup is not None:
        name = f"marginal speedup >= {min_marginal_speedup:g}"  # of each worker up to there
        most.append((name, lambda x: _last(np.logical_and.accumulate(marginal(x) >= min_marginal_speedup))))
    if not least and not most:
        raise ModelError(f"plan: specify at least one of {', '.join(GOALS)}")
    choices = [
        _choose(curve, goal, rule, open_below=open_below, time=time, cost=cost)
        for goals, open_below in ((least, False), (most, True))
        for goal, rule in goals
    ]
    seconds, spent = time(curve.steps_per_second), cost(curve.steps_per_second)
    examples_per_second = curve.steps_per_second * curve.batch_size
    quick, few = int(np.argmax(curve.steps_per_second)), int(np.argmin(spent))
    fastest = f"{curve.workers[quick]} workers, the fastest on the curve,"
    last = int(curve.workers[-1])
    remarks = [
        f"{choice.goal}: {last} workers are the most on the curve; predict more"
        for choice in choices[len(least) :]
        if choice.workers == last > 1
    ]
    if deadline is not None and not (seconds <= deadline).any():
        slower = f"it needs {seconds[quick] / deadline:.3g} times the throughput"
        remarks.append(f"{within} is not met: {fastest} take {readable_duration(seconds[quick], 3)}; {slower}")
    if budget is not None and not (spent <= budget).any():
        cheap = f"{curve.workers[few]} workers, the cheapest on the curve,"
        remarks.append(f"a budget of {budget:.6g} is not met: {cheap} cost {spent[few]:.3g}")
    if throughput is not None and not (examples_per_second >= throughput).any():
        reached = f"{examples_per_second[quick]:.4g} {unit}"
        remarks.append(f"{throughput:.4g} {unit} are not reached: {fastest} process {reached}")
    return Plan(tuple(choices), curve, price_per_node_hour, finite(examples), tuple(remarks))


def _choose(curve: ThroughputCurve, goal: str, rule: Rule, *, open_below: bool, time: Measure, cost: Measure) -> Choice:
    """The answer of a rule at the curve and at both ends of its interval."""
    X, low, high = curve.steps_per_second, curve.lower, curve.upper
    found, slow = rule(X), rule(low)
    known = [int(curve.workers[i]) for i in (found, slow, rule(high)) if i is not None]
    workers_low = None if slow is None and open_below else min(known, default=None)
    workers_high = None if slow is None and not open_below else max(known, default=None)
    if found is None:
        return Choice(goal, None, workers_low, workers_high, *[math.nan] * 6)
    at = [float(f(x)[found]) for f in (time, cost) for x in (X, high, low)]
    return Choice(goal, int(curve.workers[found]), workers_low, workers_high, *at)


def _first(good: np.ndarray) -> int | None:
    return int(np.argmax(good)) if good.any() else None


def _last(good: np.ndarray) -> int | None:
    return int(len(good) - 1 - np.argmax(good[::-1])) if good.any() else None


def _least(cost: np.ndarray) -> int | None:
    return int(np.argmin(cost)) if np.isfinite(cost).any() else None
