"""What a plan may be asked: `plan` answers it in Python, and report/plan.js on a page."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple, TypedDict

from ..base.checks import LARGEST_NUMBER, MOST_EXAMPLES, require_choice, require_count, require_name, require_number
from ..base.errors import ModelError
from ..base.files import duration_in
from ..base.results import counted


class Limit(NamedTuple):
    """What a goal limits."""

    measure: str  # of the throughput on each number of workers
    sign: int  # 1: at most, -1: at least
    fewer: bool  # whether fewer workers meet it where throughput is lower; else more do
    words: str
    certain: bool = True  # whether it is met with the probability of the curve's interval


LIMITS = {
    "deadline": Limit("time", 1, False, "within {0}"),
    "budget": Limit("cost", 1, True, "a budget of {0}"),
    "throughput": Limit("rate", -1, False, "at least {0}"),
    "price_per_node_hour": Limit("none", 1, False, "", certain=False),
    "min_efficiency": Limit("efficiency", -1, True, "efficiency >= {0}"),
    "min_marginal_speedup": Limit("marginal", -1, True, "marginal speedup >= {0}", certain=False),
}
#: Questions: the goals that put them, the limit first; their name; what the answer does; what it has least of.
QUESTIONS = (
    (("deadline", "price_per_node_hour"), "cheapest {0}", "cost least {0}", "cost"),
    (("budget", "price_per_node_hour"), "fastest within {0}", "train fastest within {0}", "time"),
    (("deadline",), "smallest {0}", "meet {1}", "fewest"),
    (("throughput",), "{0}", "train {0}", "fewest"),
    (("price_per_node_hour",), "cheapest", "cost least", "cost"),
    (("min_efficiency",), "{0}", "keep {0}", "most"),
    (("min_marginal_speedup",), "{0}", "keep {0}", "most"),
)
#: Work, one of these, and goals, with their largest values.
WORK = {"epochs": LARGEST_NUMBER, "steps": LARGEST_NUMBER, "examples": MOST_EXAMPLES, "tokens": MOST_EXAMPLES}
GOALS = {
    "deadline": LARGEST_NUMBER, "price_per_node_hour": LARGEST_NUMBER, "budget": LARGEST_NUMBER,
    "throughput": MOST_EXAMPLES, "min_efficiency": 1.0, "min_marginal_speedup": 1.0,
}  # fmt: skip


class PageGoals(TypedDict, total=False):
    """The work and the goals of a page, by keyword."""

    epochs: float | None
    steps: float | None
    examples: float | None
    tokens: float | None
    deadline: float | str | timedelta | None
    price_per_node_hour: float | None
    budget: float | None
    min_efficiency: float | None


class Asked(PageGoals, total=False):
    """The work and the goals of `plan`."""

    throughput: float | None
    min_marginal_speedup: float | None


class Shown(PageGoals, total=False):
    """What a page shows first."""

    workers: int | None
    dataset_size: int | None
    currency: str | None


def checked(asked: Mapping[str, Any], what: str, *, dataset_size: int | None, currency: str | None) -> dict[str, float]:
    """The numbers that are given, deadlines in seconds; refuses the unknown, what is out of range, and work twice."""
    found, known = {}, WORK | GOALS
    for name, value in asked.items():
        require_choice(name, f"{what}: goal", known)
        if value is not None:
            number = duration_in(value, f"{what}: {name}") if name == "deadline" else value
            found[name] = require_number(number, f"{what}: {name}", positive=True, largest=known[name])
    if len(given := [name for name in WORK if name in found]) > 1:
        raise ModelError(f"{what}: {' and '.join(given)} exclude each other; give one of {', '.join(WORK)}")
    if dataset_size is not None:
        require_count(dataset_size, f"{what}: dataset_size", most=MOST_EXAMPLES)
    if currency:
        require_name(currency, f"{what}: currency")
    return found


def named(curve: Any, workers: int, does: str = "") -> str:
    """Workers as their user counts them, and what they do: ``"4 nodes (32 GPUs) meet 12 h"``."""
    each = curve.workers_per_node
    nodes = -(-workers // each)
    who = f"{counted(nodes, 'node')} ({counted(workers, 'GPU')})" if each > 1 else counted(workers, "worker")
    verb, *rest = does.split(" ")
    return " ".join([who, verb if nodes > 1 else f"{verb}s", *rest] if does else [who])
