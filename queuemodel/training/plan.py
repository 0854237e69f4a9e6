"""How many workers to pay for: deadlines, prices, efficiency."""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ModelError
from ..tables import html_table, text_table
from .curve import ThroughputCurve

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True)
class Choice:
    """The answer to one question of capacity.

    Attributes
    ----------
    goal : str
        The question, in words.
    workers : int or None
        None when no number of workers on the curve meets the goal.
    workers_low, workers_high : int or None
        The answers on the upper and the lower end of the curve's interval, in increasing order; None where an end has
        no answer.
    time, time_low, time_high : float
        Seconds of training with `workers`, and its interval; NaN without epochs.
    cost, cost_low, cost_high : float
        Price of all nodes for that time, and its interval; NaN without a price.
    """

    goal: str
    workers: int | None
    workers_low: int | None
    workers_high: int | None
    time: float
    time_low: float
    time_high: float
    cost: float
    cost_low: float
    cost_high: float


@dataclass(frozen=True, eq=False)
class Plan:
    """Choices of node counts, one per question asked."""

    choices: tuple[Choice, ...]
    curve: ThroughputCurve

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per choice (times in hours)."""
        return [
            {
                "goal": c.goal,
                "workers": c.workers,
                "workers_interval": f"{_shown(c.workers_low)} to {_shown(c.workers_high)}",
                "hours": _finite(c.time / 3600),
                "hours_low": _finite(c.time_low / 3600),
                "hours_high": _finite(c.time_high / 3600),
                "cost": _finite(c.cost),
                "cost_low": _finite(c.cost_low),
                "cost_high": _finite(c.cost_high),
            }
            for c in self.choices
        ]

    def to_frame(self) -> pandas.DataFrame:
        """One row per choice."""
        import pandas

        return pandas.DataFrame(self.to_rows())

    def to_json(self) -> str:
        """JSON of the choices, times in seconds."""
        rows = [{k: _finite(getattr(c, k)) for k in Choice.__slots__} for c in self.choices]
        return json.dumps({"confidence": self.curve.confidence, "choices": rows}, indent=1)

    def __repr__(self) -> str:
        return text_table(self.to_rows())

    def _repr_html_(self) -> str:
        return html_table(self.to_rows(), caption=f"intervals of {self.curve.confidence:.0%}")


def plan(
    curve: ThroughputCurve,
    *,
    epochs: float | None = None,
    dataset_size: int | None = None,
    deadline: float | None = None,
    price_per_node_hour: float | None = None,
    min_efficiency: float | None = None,
    min_marginal_speedup: float | None = None,
) -> Plan:
    """Choose numbers of workers from a throughput curve.

    Each question that is asked gets a row: the smallest number of workers that meets ``deadline``; the cheapest (whose
    nodes are its workers and the parameter servers); the largest with at least ``min_efficiency``; the largest whose
    last worker still adds ``min_marginal_speedup``. A deadline and a price together also give the cheapest that meets
    the deadline. Only the curve's own numbers of workers are considered.

    Parameters
    ----------
    curve : ThroughputCurve
    epochs : float
        How often training passes over the data set; needed for times and costs.
    dataset_size : int
        Examples per epoch, unless the curve knows it.
    deadline : float
        Seconds.
    price_per_node_hour : float
        Of a worker or a server.
    min_efficiency : float
        X(N) / (N X(1)), 0 to 1.
    min_marginal_speedup : float
        Speedup per added worker, 0 to 1.

    Raises
    ------
    ModelError
        When a value is out of range, nothing is asked, or a question lacks ``epochs`` or the data set's size.
    """
    for name, value in (("epochs", epochs), ("deadline", deadline), ("price_per_node_hour", price_per_node_hour)):
        _require(name, value, math.inf)
    for name, value in (("min_efficiency", min_efficiency), ("min_marginal_speedup", min_marginal_speedup)):
        _require(name, value, 1.0)
    size = dataset_size if dataset_size is not None else curve.dataset_size
    if size is not None and (not isinstance(size, numbers.Integral) or isinstance(size, bool) or size < 1):
        raise ModelError(f"plan: dataset_size must be a whole number of examples, at least 1, got {size!r}")
    if (deadline is not None or price_per_node_hour is not None) and (epochs is None or size is None):
        raise ModelError("plan: a deadline or a price needs epochs and dataset_size; give both")
    examples = math.nan if epochs is None or size is None else epochs * size
    price = math.nan if price_per_node_hour is None else price_per_node_hour

    def time(x: np.ndarray) -> np.ndarray:
        return examples / (x * curve.batch_size)

    def cost(x: np.ndarray) -> np.ndarray:
        return time(x) / 3600 * price * (curve.workers + curve.parameter_servers)

    goals: list[tuple[str, Callable[[np.ndarray], int | None]]] = []
    if deadline is not None:
        goals.append((f"smallest within {deadline / 3600:.4g} h", lambda x: _first(time(x) <= deadline)))
    if price_per_node_hour is not None:
        goals.append(("cheapest", lambda x: int(np.argmin(cost(x)))))
    if deadline is not None and price_per_node_hour is not None:
        goals.append(
            (
                f"cheapest within {deadline / 3600:.4g} h",
                lambda x: _cheapest(np.where(time(x) <= deadline, cost(x), np.inf)),
            )
        )
    if min_efficiency is not None:
        goals.append(
            (f"efficiency >= {min_efficiency:g}", lambda x: _last(x / (curve.workers * curve.single) >= min_efficiency))
        )
    if min_marginal_speedup is not None:
        goals.append(
            (
                f"marginal speedup >= {min_marginal_speedup:g}",
                lambda x: _run(_marginal(curve, x) >= min_marginal_speedup),
            )
        )
    if not goals:
        raise ModelError(
            "plan: ask for at least one of deadline, price_per_node_hour, min_efficiency, min_marginal_speedup"
        )
    return Plan(tuple(_choose(curve, goal, rule, time, cost) for goal, rule in goals), curve)


def _choose(
    curve: ThroughputCurve,
    goal: str,
    rule: Callable[[np.ndarray], int | None],
    time: Callable[[np.ndarray], np.ndarray],
    cost: Callable[[np.ndarray], np.ndarray],
) -> Choice:
    X, low, high = curve.steps_per_second, curve.lower, curve.upper
    found = rule(X)
    ends = [rule(low), rule(high)]
    known = sorted(int(curve.workers[i]) for i in ends if i is not None)
    if found is not None:
        known = sorted([*known, int(curve.workers[found])])
    # An end without an answer leaves that side open: slower than needed means more workers than the curve has.
    workers_low = known[0] if known else None
    workers_high = known[-1] if known and ends[0] is not None else None
    if found is None:
        return Choice(goal, None, workers_low, workers_high, *[math.nan] * 6)
    at = [float(f(x)[found]) for f in (time, cost) for x in (X, high, low)]
    return Choice(goal, int(curve.workers[found]), workers_low, workers_high, *at)


def _first(good: np.ndarray) -> int | None:
    return int(np.argmax(good)) if good.any() else None


def _last(good: np.ndarray) -> int | None:
    return int(len(good) - 1 - np.argmax(good[::-1])) if good.any() else None


def _run(good: np.ndarray) -> int | None:
    """Index of the last of the leading True values."""
    return _last(np.logical_and.accumulate(good))


def _cheapest(cost: np.ndarray) -> int | None:
    return int(np.argmin(cost)) if np.isfinite(cost).any() else None


def _marginal(curve: ThroughputCurve, x: np.ndarray) -> np.ndarray:
    return np.diff(x / curve.single, prepend=0.0) / np.diff(curve.workers, prepend=0)


def _require(name: str, value: float | None, most: float) -> None:
    if value is None:
        return
    good = isinstance(value, numbers.Real) and not isinstance(value, bool) and 0 < value <= most and value < math.inf
    if not good:
        limits = "finite and > 0" if most == math.inf else f"> 0 and at most {most:g}"
        raise ModelError(f"plan: {name} must be {limits}, got {value!r}")


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _shown(workers: int | None) -> str:
    return "?" if workers is None else str(workers)
