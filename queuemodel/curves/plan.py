"""How many workers to pay for, in whole nodes: deadlines, prices, efficiency."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Unpack

import numpy as np

from ..base.errors import ModelError
from ..base.files import readable_duration
from ..base.results import Result, counted, finite, percent
from .curve import ThroughputCurve
from .figures import plot_cost
from .goals import GOALS, LIMITS, QUESTIONS, WORK, Asked, Limit, checked, named

#: Units of time, each from twice its length on.
UNITS = {"days": 86400, "h": 3600, "min": 60, "s": 1}


@dataclass(frozen=True, slots=True)
class Choice:
    """The answer to one question of capacity, in whole nodes."""

    goal: str  # The question, in words
    workers: int | None  # The recommended number; None when none on the curve meets the goal
    workers_point: int | None  # The answer by the point estimate
    #: workers_low, workers_high: Least and largest answers on the curve and both ends of its interval; None where the
    #: slower end has no answer: a deadline needs more workers than the curve has, an efficiency fewer.
    workers_low: int | None
    workers_high: int | None
    nodes: int | None  # Machines of `workers`, and the parameter servers
    #: With which `workers` meet the goal: that of the slower end of the interval, one-sided, 0.95 of 90 %; None where
    #: only the point estimate meets it, and for goals without a limit.
    probability: float | None
    time: float  # time, time_low, time_high: Seconds of training with `workers`, and its interval; NaN without work
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

    def _figures(self) -> dict[str, float | None]:
        """Hours and costs with their intervals, as columns of a table; None where there are none."""
        hours = {"hours": self.time / 3600, "hours_low": self.time_low / 3600, "hours_high": self.time_high / 3600}
        costs = {"cost": self.cost, "cost_low": self.cost_low, "cost_high": self.cost_high}
        return finite(hours | costs)

    @property
    def training(self) -> str:
        """The time and its interval in one unit: ``"119 min (117 to 123 min)"``; "" without work."""
        unit = next((unit for unit, length in UNITS.items() if self.time >= 2 * length), "s")
        time, low, high = (f"{end / UNITS[unit]:.3g}" for end in (self.time, self.time_low, self.time_high))
        return "" if math.isnan(self.time) else f"{time} {unit} ({low} to {high} {unit})"

    def _shown(self, curve: ThroughputCurve, currency: str, *, point: bool = False) -> dict[str, Any]:
        """Machines, time and cost as people read them, and the answer by the point estimate; None where unknown."""
        nodes = {"nodes": self.nodes, "GPUs": self.workers}
        ends = f"{money(self.cost_low)} to {money(self.cost_high)}"
        paid = {f"cost ({currency})" if currency else "cost": money(self.cost), percent(curve.confidence): ends}
        return {
            **(nodes if curve.workers_per_node > 1 else {"workers": self.workers}),
            **({"point estimate": self.workers_point} if point else {}),
            "time": self.training or None,
            **{name: None if math.isnan(self.cost) else text for name, text in paid.items()},
        }


def money(amount: float, currency: str = "") -> str:
    """Three digits, and all before the point: ``"1,234 EUR"``."""
    return f"{amount:{',.0f' if amount >= 999.5 else '.3g'}} {currency}".strip()


def in_use(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of choices, without times and costs if none is known."""
    kept = [name for i, name in enumerate(rows[0]) if i < 2 or any(row[name] is not None for row in rows)]
    return [{name: row[name] for name in kept} for row in rows]


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Result):
    """Choices of node counts, one per question, the one that answers most of them first."""

    choices: tuple[Choice, ...]
    curve: ThroughputCurve  # of whole nodes
    times: np.ndarray  # (3, n): seconds of the training on each number of workers, and their interval; NaN without work
    price: float | None = None  # per node and hour
    currency: str = ""  # of the price
    work: str = ""  # of the whole training, in words
    recommendation: str = ""  # the first choice, in words
    remarks: tuple[str, ...] = ()  # why a goal has no answer, and what it would need; answers that end with the curve
    _digits = 3
    plot = plot_cost

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per choice (times in hours)."""
        names = ("goal", "workers", "workers_point", "workers_interval", "nodes", "probability")
        return [{name: getattr(c, name) for name in names} | c._figures() for c in self.choices]

    def _shown_rows(self) -> list[dict[str, Any]]:
        """Goal, machines, time and cost; the answer by the point estimate where it is another."""
        other = any(c.workers_point != c.workers for c in self.choices)
        return in_use([{"goal": c.goal} | c._shown(self.curve, self.currency, point=other) for c in self.choices])

    def to_dict(self) -> dict[str, Any]:
        """The choices, times in seconds."""
        rows = [{k: finite(getattr(c, k)) for k in Choice.__slots__} for c in self.choices]
        return {
            "confidence": self.curve.confidence, "currency": self.currency or None, "answer": self.recommendation,
            "choices": rows, "note": "; ".join(filter(None, [self.curve.assumption, *self.remarks, self.assumed])),
        }  # fmt: skip

    def answer(self) -> str:
        """The recommendation of the first choice, in one sentence."""
        return self.recommendation

    def notes(self) -> list[str]:
        """Goals that are not met, the work and its price, and the curve's method."""
        return list(filter(None, [*self.remarks, self.assumed, *self.curve.notes()]))

    @property
    def assumed(self) -> str:
        """The work to train, and its price."""
        servers = self.curve.parameter_servers
        paid = f"workers and {counted(servers, 'parameter server')} are paid for" if servers else "workers are paid for"
        paid += f", {counted(self.curve.workers_per_node, 'worker')} to a node"
        paid += f", at {self.price or 0:,.6g} {self.currency}".rstrip() + " per node and hour"
        return "; ".join(filter(None, [self.work and f"{self.work} to train", paid if self.price else ""]))


def plan(
    curve: ThroughputCurve, *, dataset_size: int | None = None, currency: str | None = None, **requested: Unpack[Asked]
) -> Plan:
    """Choose numbers of workers from a throughput curve.

    Each question gets a row: the cheapest number of workers that meets ``deadline``; the fastest within ``budget``; the
    smallest that meets ``deadline``; the smallest with at least ``throughput``; the cheapest; the largest with at least
    ``min_efficiency``; the largest whose last worker still adds ``min_marginal_speedup``. What needs a price is asked
    with one. Only the curve's own numbers of workers are considered, and of those on several nodes the ones that fill
    whole nodes.

    A recommended number meets its limit at the slower end of the curve's interval: with a probability of 95 % where the
    interval has 90 %, one-sided. Where none does, it is that of the point estimate, and has no probability. Marginal
    speedups, whose interval the curve does not have, and what is cheapest are those of the point estimate.

    Parameters
    ----------
    curve : ThroughputCurve
    epochs, steps, examples, tokens : float
        The training, needed for times and costs; one of these. Passes over the data set; steps of each worker, which
        are the iterations of a synchronous job; examples, or tokens where the curve counts these.
    dataset_size : int
        Examples per epoch, unless recorded in the curve.
    deadline : float, str or timedelta
        Seconds, or like ``"12h"``.
    price_per_node_hour : float
        Of a worker's node or a server.
    currency : str
        Of the price, like ``"EUR"``.
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
        When a value is out of range, no question is put, one lacks the work or the data set's size, the curve does not
        count such work, fills no whole node, or is something else, such as a profile.
    """
    if not isinstance(curve, ThroughputCurve):
        raise ModelError(
            f"plan: curve must be a ThroughputCurve, got {type(curve).__name__}; predict gives one of a profile"
        )
    given = checked(requested, "plan", dataset_size=dataset_size, currency=currency)
    size = dataset_size if dataset_size is not None else curve.dataset_size
    if given.keys() & {"deadline", "price_per_node_hour", "budget"}:
        _require_work(given, size)
    whole, price = in_whole_nodes(curve), given.get("price_per_node_hour")
    amount, per_step, words = _work(whole, given, size)
    job = _Job(whole, amount, per_step, math.nan if price is None else price, currency or "")
    asked_for = [question for question in QUESTIONS if given.keys() >= set(question[0])]
    if not asked_for:
        raise ModelError(f"plan: specify at least one of {', '.join(GOALS)}")
    questions = [_Question(job, goals[0], given[goals[0]], *about) for goals, *about in asked_for]
    choices = [question.choose() for question in questions]
    remarks = [text for question, choice in zip(questions, choices, strict=True) for text in question.remarks(choice)]
    said = questions[0].answer(choices[0])
    remarks = [text for text in dict.fromkeys(remarks) if text != said]
    times = np.array([job.measure("time", x) for x in (whole.steps_per_second, whole.upper, whole.lower)])
    return Plan(tuple(choices), whole, times, price, currency or "", words, said, tuple(remarks))


def _require_work(given: Mapping[str, float], size: int | None) -> None:
    """Refuse times and costs of unknown work."""
    known = given.keys() & {"steps", "examples", "tokens"}
    needed = {"epochs": known or "epochs" in given, "dataset_size": known or size is not None}
    needed["price_per_node_hour"] = "budget" not in given or "price_per_node_hour" in given
    if missing := [name for name, has in needed.items() if not has]:
        instead = "; steps, examples or tokens may stand for epochs" if "epochs" in missing else ""
        raise ModelError(f"plan: give {' and '.join(missing)} too, for a deadline, a price or a budget{instead}")


def _work(curve: ThroughputCurve, given: Mapping[str, float], size: int | None) -> tuple[float, Any, str]:
    """The work, how much of it a step is (n,), and its words; NaN for none."""
    name = next((name for name in WORK if name in given), "epochs")
    amount = given.get(name, math.nan) * ((size or math.nan) if name == "epochs" else 1)
    if name == "steps":
        each = curve.steps_per_round if len(curve.steps_per_round) else curve.workers
        return amount, 1 / each, f"{amount:,.0f} {'iterations' if curve.in_rounds else 'steps of each worker'}"
    if name in given and not curve.work:
        raise ModelError(
            f"plan: {name} needs batch_size, which the curve lacks; give it to predict, or give steps here"
        )
    unit = "tokens" if name == "tokens" else curve.unit
    if name != "epochs" and (unit not in curve.work or (name == "examples" and unit == "tokens")):
        other = "tokens" if name == "examples" else "examples"
        raise ModelError(f"plan: the curve counts {curve.unit}, not {name}; give {other} or steps")
    return amount, curve.work.get(unit, 1), "" if math.isnan(amount) else f"{amount:,.0f} {unit}"


def in_whole_nodes(curve: ThroughputCurve) -> ThroughputCurve:
    """The curve of those numbers of workers that fill nodes, or are on a part of one."""
    each = curve.workers_per_node
    whole = (curve.workers % each == 0) | (curve.workers < each)
    if not whole.any():
        raise ModelError(f"plan: no number of workers on the curve fills nodes of {each}; predict multiples of {each}")
    arrays = {one.name: value for one in fields(curve) if isinstance(value := getattr(curve, one.name), np.ndarray)}
    return replace(curve, **{name: x[whole] for name, x in arrays.items() if len(x) == len(whole)})


@dataclass(frozen=True, slots=True)
class _Job:
    """What is trained, and its measures: of steps per second on each number of workers, both (n,)."""

    curve: ThroughputCurve
    work: float
    per_step: Any  # work of a step of all workers
    price: float
    currency: str

    def measure(self, name: str, x: np.ndarray) -> np.ndarray:
        """What a goal limits, or an answer has least of, at steps per second x."""
        return np.asarray(MEASURES[name](self, x))


MEASURES: dict[str, Callable[[_Job, np.ndarray], Any]] = {
    "time": lambda job, x: job.work / (x * job.per_step),
    "cost": lambda job, x: job.work / (x * job.per_step) / 3600 * job.price * job.curve.nodes,
    "rate": lambda job, x: x * job.curve.batch_size,
    "efficiency": lambda job, x: job.curve._efficiency_of(x),
    "marginal": lambda job, x: np.minimum.accumulate(  # the least of all up to there
        np.diff(x / job.curve.single, prepend=0.0) / np.diff(job.curve.workers, prepend=0)
    ),
    "fewest": lambda job, x: job.curve.workers,
    "most": lambda job, x: -job.curve.workers,
    "none": lambda job, x: np.zeros(len(x)),
}


@dataclass(frozen=True, slots=True)
class _Question:
    """Which of the numbers of workers within a limit is best."""

    job: _Job
    goal: str
    value: float  # of the limit
    name: str
    does: str
    least: str

    @property
    def limit(self) -> Limit:
        return LIMITS[self.goal]

    @property
    def words(self) -> tuple[str, str]:
        """The limit and its value in words."""
        value = self.shown(self.value, exact=True)
        return self.limit.words.format(value), value

    @property
    def probability(self) -> float:
        """With which throughput exceeds the slower end of its interval."""
        return (1 + self.job.curve.confidence) / 2

    @property
    def chance(self) -> str:
        """The probability in words."""
        return f"{100 * self.probability:.4g} % probability"

    def best(self, met: np.ndarray, at: np.ndarray) -> int | None:
        """Index of the best at some steps per second, of those that meet the limit at others; both (n,)."""
        good = self.limit.sign * self.job.measure(self.limit.measure, met) <= self.limit.sign * self.value
        return int(np.argmin(np.where(good, self.job.measure(self.least, at), math.inf))) if good.any() else None

    def choose(self) -> Choice:
        """The answer at the slower end of the interval, else at the curve; and those at the curve and both ends."""
        curve, fewer = self.job.curve, self.limit.fewer
        X, low, high = curve.steps_per_second, curve.lower, curve.upper
        point, slow, quick = (self.best(x, x) for x in (X, low, high))
        sure = self.best(low, X) if self.limit.certain else None
        known = [int(curve.workers[i]) for i in (point, slow, quick, sure) if i is not None]
        ends = (
            None if slow is None and fewer else min(known, default=None),
            None if slow is None and not fewer else max(known, default=None),
        )
        goal = self.name.format(*self.words)
        if point is None:
            return Choice(goal, None, None, *ends, None, None, *[math.nan] * 6)
        found = point if sure is None else sure
        at = [float(self.job.measure(name, x)[found]) for name in ("time", "cost") for x in (X, high, low)]
        workers = int(curve.workers[found]), int(curve.workers[point])
        return Choice(goal, *workers, *ends, int(curve.nodes[found]), None if sure is None else self.probability, *at)

    def shown(self, value: float, *, exact: bool = False) -> str:
        """A value of what is limited, with its unit."""
        curve = self.job.curve
        if self.goal == "deadline":
            return readable_duration(value, 4 if exact else 3)
        units = {"budget": self.job.currency, "throughput": f"{curve.unit or 'steps'}/s"}
        over = f"over {curve.base}" if self.goal == "min_efficiency" and curve.base else ""
        return f"{f'{value:,.10g}' if exact else money(value)} {units.get(self.goal, over)}".strip()

    def answer(self, choice: Choice) -> str:
        """The choice in one sentence."""
        if choice.workers is None or choice.workers_point is None:
            return self.unmet()
        curve, currency, said = self.job.curve, self.job.currency, self.does.format(*self.words)
        if self.limit.certain:
            said += f" with {self.chance}" if choice.probability else " by the point estimate only"
        text = named(curve, choice.workers, said)
        if choice.workers_point != choice.workers:
            text += f", {named(curve, choice.workers_point)} by the point estimate"
        ends = f"{money(choice.cost_low)} to {money(choice.cost_high, currency)}"
        paid = "" if math.isnan(choice.cost) else f"{money(choice.cost, currency)} ({ends})"
        figures = ", ".join(filter(None, [choice.training, paid]))
        return f"{text}: {figures}; {percent(curve.confidence)} intervals" if figures else text

    def unmet(self) -> str:
        """What comes nearest to the limit, and what is missing."""
        curve, sign = self.job.curve, self.limit.sign
        measured = self.job.measure(self.limit.measure, curve.steps_per_second)
        near = int(np.argmin(sign * measured))
        nearest = named(curve, int(curve.workers[near]), f"come nearest, to {self.shown(measured[near])}")
        factor = (measured[near] / self.value) ** sign
        needed = "" if self.limit.fewer else f"; it needs {factor:.3g} times the throughput"
        return f"{self.words[0]} is not met: {nearest}{needed}"

    def remarks(self, choice: Choice) -> list[str]:
        """Why there is no answer or no probability, and whether the answer ends with the curve."""
        curve, limit = self.job.curve, self.limit
        if choice.workers is None:
            return [self.unmet()]
        found = []
        if limit.certain and choice.probability is None:
            found.append(f"{self.words[0]}: no number of workers on the curve has {self.chance}")
        if limit.fewer and choice.workers == curve.workers[-1] > 1:
            found.append(f"{choice.goal}: {named(curve, choice.workers)} are the most on the curve; predict more")
        return found
