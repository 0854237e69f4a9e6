"""Which of several types of machine to rent, and how many: each type's curve, its price, and the plan that follows."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from ..base.checks import FASTEST_LINK, require_name, require_number
from ..base.errors import DataError, ModelError, QueueModelWarning
from ..base.files import count_in, parse_bandwidth, parse_latency, read_rows
from ..base.results import Result, finite, percent
from ..curves.curve import ThroughputCurve
from ..curves.goals import WORK
from ..curves.plan import Choice, Plan, in_use, plan
from ..profile.job import require_bandwidth
from ..profile.profile import Profile
from ..profile.scenario import FIELDS, KINDS, NUMBERS, Scenario
from ..profile.synchronization import SYNCHRONIZATIONS
from .predict import Data, PathName, as_data, load, predict


@dataclass(frozen=True, slots=True)
class Instance:
    """A type of machine to rent, relative to the profiled machines (raises `ModelError`)."""

    name: str
    _: KW_ONLY
    price: float  #: Per machine and hour, in any currency.
    bandwidth: float | None = None  #: Bytes per second of its link, nominal; None: as profiled.
    accelerator_speed: float = 1.0  #: How many times as fast it computes.
    latency: float | None = None  #: Seconds per message, for all-reduce; None: as profiled.

    def __post_init__(self) -> None:
        where = f"instance {require_name(self.name, 'instance')!r}"
        require_number(self.price, f"{where}: price", positive=True)
        require_number(self.accelerator_speed, f"{where}: accelerator_speed", positive=True)
        if self.bandwidth is not None:
            require_bandwidth(self.bandwidth, f"{where}: bandwidth", error=ModelError)
        if self.latency is not None:
            require_number(self.latency, f"{where}: latency", unit="seconds")

    @property
    def changes(self) -> dict[str, float]:
        """What differs from the profiled machines, as arguments of `predict`."""
        speed = None if self.accelerator_speed == 1.0 else self.accelerator_speed
        machine = {"bandwidth": self.bandwidth, "latency": self.latency, "accelerator_speed": speed}
        return {name: value for name, value in machine.items() if value is not None}


def read_instances(path: str | os.PathLike[str]) -> list[Instance]:
    """Read types of machine from a CSV with the columns ``name,price[,bandwidth,accelerator_speed,latency]``.

    Bandwidths and latencies have units: ``10Gbit/s``, ``50us``. Raises `DataError`, one line that names the file, the
    line, the column and the value.
    """
    found: dict[str, Instance] = {}
    optional = ("bandwidth", "accelerator_speed", "latency")
    for row in read_rows(path, required=("name", "price"), optional=optional, what="instances"):
        name = row.text("name")
        if name in found:
            raise DataError(f"{row.where}: name {name!r} stands twice; leave one")
        found[name] = Instance(
            name,
            price=row.number("price", positive=True),
            bandwidth=row.quantity(
                "bandwidth", lambda text: require_bandwidth(parse_bandwidth(text)), largest=FASTEST_LINK
            ),
            accelerator_speed=row.number("accelerator_speed", 1.0, positive=True),
            latency=row.quantity("latency", parse_latency),
        )
    return list(found.values())


def _link(text: str) -> float:
    return require_bandwidth(parse_bandwidth(text))


@dataclass(frozen=True, slots=True)
class Offer:
    """What one type of machine comes to: its plan, and the choice in it."""

    instance: Instance
    plan: Plan

    @property
    def choice(self) -> Choice:
        """The answer to the first question, which has all goals."""
        return self.plan.choices[0]

    @property
    def curve(self) -> ThroughputCurve:
        """Throughput on machines of this type."""
        return self.plan.curve

    @property
    def hourly(self) -> float:
        """Price of all machines per hour; infinite where no number of them will do."""
        return math.inf if self.choice.nodes is None else self.choice.nodes * self.instance.price

    def to_row(self) -> dict[str, Any]:
        """The offer as a row of a table (times in hours)."""
        c, curve = self.choice, self.curve
        names = ("examples_per_second", "examples_per_second_low", "examples_per_second_high")
        at = np.flatnonzero(curve.workers == c.workers)  # none where no number will do
        speeds = [x[at] * curve.batch_size for x in (curve.steps_per_second, curve.lower, curve.upper)]
        about = {name: getattr(c, name) for name in ("workers", "workers_point", "workers_interval", "probability")}
        row = {"instance": self.instance.name} | about | {"machines": c.nodes}
        row |= {name: float(x[0]) if len(at) else None for name, x in zip(names, speeds, strict=True)}
        return row | {"price_per_hour": finite(self.hourly)} | c.figures()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class InstancePlan(Result):
    """Types of machine with how many of each, the cheapest first and those that will not do last."""

    offers: tuple[Offer, ...]
    digits = 3

    @property
    def cheapest(self) -> Offer | None:
        """The one to take; None where no type will do."""
        return self.offers[0] if self.offers[0].choice.workers is not None else None

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per type of machine."""
        return [offer.to_row() for offer in self.offers]

    def shown_rows(self) -> list[dict[str, Any]]:
        """Times and costs where there is something to pay for, else throughput and what an hour of it costs."""
        paid = any(math.isfinite(offer.choice.cost) for offer in self.offers)
        point = any(offer.choice.workers_point != offer.choice.workers for offer in self.offers)
        rows = []
        for offer in self.offers:
            shown = offer.choice.shown(offer.curve, offer.plan.currency, point=point)
            others = {name: x for name, x in offer.to_row().items() if name.startswith(("examples", "price"))}
            rows.append({"instance": offer.instance.name} | shown | ({} if paid else others))
        return in_use(rows)

    def to_dict(self) -> dict[str, Any]:
        """The question, the cheapest and all others."""
        first, name = self.offers[0], self.cheapest.instance.name if self.cheapest else None
        about = {"goal": first.choice.goal, "confidence": first.curve.confidence, "cheapest": name}
        return about | {"offers": self.to_rows()}

    def caption(self) -> str:
        """The question, its probability, and what the intervals are."""
        first, none = self.offers[0], "" if self.cheapest else "; no type of machine will do"
        chance = first.choice.probability
        sure = f" with {100 * chance:.4g} % probability" if chance else ""
        goal = f"{first.choice.goal}{sure}, intervals of {percent(first.curve.confidence)}{none}"
        unsure = [o.instance.name for o in self.offers if chance and o.choice.workers and not o.choice.probability]
        less = f"{', '.join(unsure)}: by the point estimate only" if unsure else ""
        return "; ".join(filter(None, [first.curve.assumption, goal, less]))


def plan_instances(
    data: Data | PathName,
    instances: Iterable[Instance],
    *,
    workers: int | Iterable[int] = range(1, 33),
    **asked: Any,
) -> InstancePlan:
    """Choose a type of machine and how many of it: `plan` on the curve of each type, the cheapest first.

    With a ``deadline`` the cheapest number of workers that meets it is taken, with a ``throughput`` the fewest that
    reach it, and without both the cheapest. Types for which only the point estimate meets the goal follow the others.
    Parameter servers cost as much as workers. Intervals are each type's own; much of their errors is common to all
    types, so that these may differ in cost although their intervals overlap.

    Parameters
    ----------
    data : Profile, or sequence of Measurement
        As for `predict`.
    instances : iterable of Instance
        `read_instances` reads them.
    workers : iterable of int
        Numbers to choose from.
    **asked
        The work, ``deadline`` or ``throughput``, ``dataset_size`` and ``currency`` as for `plan`; others as for
        `predict`, but for what each instance has of its own.

    Raises
    ------
    ModelError
        For no instance, two goals, what the instances specify themselves, or what the profile does not determine.

    Examples
    --------
    >>> from queuemodel import example_profile
    >>> offers = [Instance("small", price=0.5), Instance("fast", price=1.2, bandwidth=25e6, accelerator_speed=2.0)]
    >>> found = plan_instances(example_profile("alexnet-60"), offers, method="mva", throughput=60.0)
    >>> [(offer.instance.name, offer.choice.workers) for offer in found.offers]
    [('fast', 1), ('small', 8)]
    """
    data, counts = as_data(data), list(workers) if isinstance(workers, Iterable) else [workers]
    goals = (*WORK, "dataset_size", "currency", "deadline", "throughput")
    goal: dict[str, Any] = {name: asked.pop(name) for name in goals if name in asked}
    if own := [name for name in ("bandwidth", "accelerator_speed", "latency") if asked.get(name) is not None]:
        raise ModelError(f"plan_instances: each instance has its own {own[0]}; leave it out")
    hourly = goal.get("throughput") is not None
    if hourly and goal.get("deadline") is not None:
        raise ModelError("plan_instances: deadline and throughput exclude each other; specify one")
    paid = not hourly or any(goal.get(name) is not None for name in WORK)
    offers = []
    for one in instances:
        if not isinstance(one, Instance):
            raise ModelError(
                f"plan_instances: expected Instances, got {type(one).__name__}; `read_instances` reads them"
            )
        try:
            curve = predict(data, workers=counts, **asked | one.changes)
        except ModelError as error:
            raise ModelError(f"instance {one.name!r}: {error}") from None
        offers.append(Offer(one, plan(curve, price_per_node_hour=one.price if paid else None, **goal)))
    if not offers:
        raise ModelError("plan_instances: instances must name at least one type of machine, got none")
    money = attrgetter("hourly" if hourly else "choice.cost")
    offers.sort(key=lambda o: (o.choice.workers is None, o.choice.probability is None, money(o)))
    return InstancePlan(tuple(offers))


#: Settings of `predict` beside fields of `Scenario`.
SETTINGS: dict[str, Callable[[str], Any]] = {"method": str, "seed": count_in}


def curve_of(path: Path, most: int, settings: dict[str, str]) -> ThroughputCurve:
    """Predict a job's speeds on 1 to ``most`` nodes, each worker or rank on one, from what was measured at ``path``.

    ``settings`` are those of `queuemodel.models.predict`, as text: ``{"strategy": "sync-ps", "bandwidth":
    "10Gbit/s"}``. Recorded steps are solved as a closed network, if that covers the strategy, unless ``method``
    specifies otherwise. Throughputs for which no strategy is given warn of that which is assumed.
    """
    fields: dict[str, Any] = {}
    for name, text in settings.items():
        if name not in SETTINGS and name not in FIELDS:
            raise ModelError(
                f"{name} is not a setting of a prediction; specify some of {', '.join([*FIELDS, *SETTINGS])}"
            )
        fields[name] = SETTINGS[name](text) if name in SETTINGS else KINDS[name](text, name)
    data = load(path)
    least = 1
    if isinstance(data, Profile) and data.steps and fields.get("strategy", "async-ps") in SYNCHRONIZATIONS:
        numbers = {name: value for name, value in fields.items() if name in ("strategy", *NUMBERS.values())}
        waiting = Scenario(**numbers).synchronization
        least = waiting.least_workers
        if waiting.solvable:
            fields.setdefault("method", "mva")
    curve = predict(data, workers=range(least, most + 1), **fields)
    if curve.assumption:
        warnings.warn(f"{path}: {curve.assumption}", QueueModelWarning, stacklevel=2)
    return curve
