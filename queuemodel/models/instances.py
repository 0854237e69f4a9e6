"""Which of several types of machine to rent, and how many: each type's curve, its price, and the plan that follows."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from ..base.checks import FASTEST_LINK, require_name, require_number
from ..base.errors import DataError, ModelError, QueueModelWarning
from ..base.files import count_in, parse_bandwidth, parse_latency, read_rows
from ..base.results import Result, percent
from ..curves.curve import ThroughputCurve
from ..curves.plan import Choice, plan
from ..profile.job import require_bandwidth
from ..profile.profile import Profile
from ..profile.scenario import FIELDS, KINDS, NUMBERS, Scenario
from ..profile.synchronization import SYNCHRONIZATIONS
from .predict import Data, PathName, as_data, load, predict


@dataclass(frozen=True, slots=True)
class Instance:
    """A type of machine to rent, relative to the profiled machines.

    Attributes
    ----------
    name : str
    price : float
        Per machine and hour, in any currency.
    bandwidth : float, optional
        Bytes per second of its link, nominal; as profiled unless given.
    accelerator_speed : float
        How many times as fast as the profiled machine it computes.
    latency : float, optional
        Seconds per message, for all-reduce; as profiled unless given.

    Raises
    ------
    ModelError
        When a number makes no sense.
    """

    name: str
    _: KW_ONLY
    price: float
    bandwidth: float | None = None
    accelerator_speed: float = 1.0
    latency: float | None = None

    def __post_init__(self) -> None:
        where = f"instance {require_name(self.name, 'instance')!r}"
        require_number(self.price, f"{where}: price", positive=True)
        require_number(self.accelerator_speed, f"{where}: accelerator_speed", positive=True)
        if self.bandwidth is not None:
            require_bandwidth(self.bandwidth, f"{where}: bandwidth", error=ModelError)
        if self.latency is not None:
            require_number(self.latency, f"{where}: latency", unit="seconds")


def read_instances(path: str | os.PathLike[str]) -> list[Instance]:
    """Read types of machine from a CSV with the columns ``name,price[,bandwidth,accelerator_speed,latency]``.

    Bandwidths and latencies have units: ``10Gbit/s``, ``50us``.

    Raises
    ------
    DataError
        One line that names the file, the line, the column and the value.
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
            bandwidth=row.quantity("bandwidth", _link, largest=FASTEST_LINK),
            accelerator_speed=row.number("accelerator_speed", 1.0, positive=True),
            latency=row.quantity("latency", parse_latency),
        )
    return list(found.values())


def _link(text: str) -> float:
    return require_bandwidth(parse_bandwidth(text))


@dataclass(frozen=True, slots=True)
class Offer:
    """What one type of machine comes to: its curve, and the answer on it."""

    instance: Instance
    curve: ThroughputCurve
    choice: Choice

    @property
    def hourly(self) -> float:
        """Price of all machines per hour; infinite where no number of them will do."""
        found = self.choice.workers
        if found is None:
            return math.inf
        return float(self.curve.nodes[self.curve.workers == found][0]) * self.instance.price

    def to_row(self) -> dict[str, Any]:
        """The offer as a row of a table (times in hours)."""
        c, curve = self.choice, self.curve
        at = None if c.workers is None else int((curve.workers == c.workers).argmax())
        speeds = (curve.steps_per_second, curve.lower, curve.upper)
        X, low, high = (None if at is None else float(speed[at]) * curve.batch_size for speed in speeds)
        row: dict[str, Any] = {
            "instance": self.instance.name,
            "workers": c.workers,
            "workers_interval": c.workers_interval,
            "machines": None if at is None else int(curve.nodes[at]),
            "examples_per_second": X,
            "examples_per_second_low": low,
            "examples_per_second_high": high,
            "price_per_hour": None if at is None else self.hourly,
        }
        return row | c.figures()


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
        """Costs where there is something to pay for, else throughput and what an hour of it costs."""
        timed = any(math.isfinite(offer.choice.cost) for offer in self.offers)
        left_out = ("machines", "examples", "price") if timed else ("hours", "cost")
        return [{name: value for name, value in row.items() if not name.startswith(left_out)} for row in self.to_rows()]

    def to_dict(self) -> dict[str, Any]:
        """The question, the cheapest and all others."""
        first = self.offers[0]
        return {
            "goal": first.choice.goal,
            "confidence": first.curve.confidence,
            "cheapest": self.cheapest.instance.name if self.cheapest else None,
            "offers": self.to_rows(),
        }

    def caption(self) -> str:
        """The question, and what the intervals are."""
        first, none = self.offers[0], "" if self.cheapest else "; no type of machine will do"
        goal = f"{first.choice.goal}, intervals of {percent(first.curve.confidence)}{none}"
        return "; ".join(filter(None, [first.curve.assumption, goal]))


def plan_instances(
    data: Data | PathName,
    instances: Iterable[Instance],
    *,
    workers: int | Iterable[int] = range(1, 33),
    epochs: float | None = None,
    dataset_size: int | None = None,
    deadline: float | None = None,
    throughput: float | None = None,
    **fields: Any,
) -> InstancePlan:
    """Choose a type of machine and how many of it.

    Each type's curve is predicted from the profile, with its bandwidth and accelerator. With a ``deadline`` the
    cheapest number of workers that meets it is taken, with a ``throughput`` the fewest that reach it, and without both
    the cheapest; parameter servers cost as much as workers. Intervals are each type's own; much of their errors is
    common to all types, so that these may differ in cost although their intervals overlap.

    Parameters
    ----------
    data : Profile, or sequence of Measurement
        As for `predict`.
    instances : iterable of Instance
        `read_instances` reads them.
    workers : iterable of int
        Numbers to choose from.
    epochs, dataset_size, deadline
        As for `plan`.
    throughput : float
        Examples per second, instead of a deadline.
    **fields
        As for `predict`.

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
    [('fast', 1), ('small', 6)]
    """
    data, counts = as_data(data), list(workers) if isinstance(workers, Iterable) else [workers]
    if own := [name for name in ("bandwidth", "accelerator_speed", "latency") if fields.get(name) is not None]:
        raise ModelError(f"plan_instances: each instance has its own {own[0]}; leave it out")
    if deadline is not None and throughput is not None:
        raise ModelError("plan_instances: deadline and throughput exclude each other; specify one")
    goal: dict[str, Any] = {"epochs": epochs, "dataset_size": dataset_size}
    goal |= {"deadline": deadline} if throughput is None else {"throughput": throughput}
    offers = []
    for one in instances:
        if not isinstance(one, Instance):
            raise ModelError(
                f"plan_instances: expected Instances, got {type(one).__name__}; `read_instances` reads them"
            )
        machine = {"bandwidth": one.bandwidth, "latency": one.latency}
        if one.accelerator_speed != 1.0:
            machine["accelerator_speed"] = one.accelerator_speed
        try:
            curve = predict(data, workers=counts, **fields | {k: v for k, v in machine.items() if v is not None})
        except ModelError as error:
            raise ModelError(f"instance {one.name!r}: {error}") from None
        price = one.price if throughput is None or epochs is not None else None
        *_, choice = plan(curve, price_per_node_hour=price, **goal).choices  # the last one answers all of the question
        offers.append(Offer(one, curve, choice))
    if not offers:
        raise ModelError("plan_instances: instances must name at least one type of machine, got none")
    by_time = throughput is None
    offers.sort(key=lambda o: (o.choice.workers is None, o.choice.cost if by_time else o.hourly))
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
