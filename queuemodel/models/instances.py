"""Plans over types of machine to rent: each type's curve, its price, and how many of which type to take."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

from ..base.checks import FASTEST_LINK, require_name, require_number
from ..base.errors import DataError, ModelError, QueueModelWarning
from ..base.files import count_in, parse_bandwidth, parse_latency, read_rows
from ..base.results import Result
from ..curves.curve import ThroughputCurve
from ..curves.figures import plot_cost
from ..curves.plan import Choice, Plan, in_use, plan
from ..profile.job import require_bandwidth
from ..profile.profile import Profile
from ..profile.scenario import FIELD_KINDS, FIELDS, NUMBERS, Scenario
from ..profile.synchronization import SYNCHRONIZATIONS
from .predict import Data, PathName, PredictionSettings, as_data, load, predict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Settings of `predict` that are no fields of `Scenario`, and how each is read from text.
INSTANCE_SETTINGS: dict[str, Callable[[str], Any]] = {"method": str, "seed": count_in}


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
    instances: dict[str, Instance] = {}
    optional = ("bandwidth", "accelerator_speed", "latency")
    for row in read_rows(path, required=("name", "price"), optional=optional, what="instances"):
        name = row.text("name")
        if name in instances:  # a plan names types, not lines
            raise DataError(f"{row.where}: name {name!r} stands twice; leave one")
        instances[name] = Instance(
            name,
            price=row.number("price", positive=True),
            bandwidth=row.quantity("bandwidth", _link, largest=FASTEST_LINK),
            accelerator_speed=row.number("accelerator_speed", 1.0, positive=True),
            latency=row.quantity("latency", parse_latency),
        )
    return list(instances.values())


def _link(text: str) -> float:
    return require_bandwidth(parse_bandwidth(text))


@dataclass(frozen=True, slots=True)
class Offer:
    """A type of machine with its curve, and the plan on it."""

    instance: Instance
    plan: Plan

    @property
    def curve(self) -> ThroughputCurve:
        """Throughput on whole machines."""
        return self.plan.curve

    @property
    def choice(self) -> Choice:
        """The choice that meets all goals of the question."""
        return self.plan.choices[0]

    @property
    def hourly(self) -> float:
        """Price of all machines per hour; infinite where no number of them will do."""
        return math.inf if self.choice.nodes is None else self.choice.nodes * self.instance.price

    def _to_row(self) -> dict[str, Any]:
        """The offer as a row of a table (times in hours)."""
        c, curve = self.choice, self.curve
        at = None if c.workers is None else int((curve.workers == c.workers).argmax())
        ends = (curve.steps_per_second, curve.lower, curve.upper)
        X, low, high = (None if at is None else float(end[at]) * curve.batch_size for end in ends)  # examples/s
        row: dict[str, Any] = {
            "instance": self.instance.name,
            "workers": c.workers,
            "workers_point": c.workers_point,
            "workers_interval": c.workers_interval,
            "probability": c.probability,
            "machines": c.nodes,
            "examples_per_second": X,
            "examples_per_second_low": low,
            "examples_per_second_high": high,
            "price_per_hour": None if at is None else self.hourly,
        }
        return row | c._figures()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class InstancePlan(Result):
    """Offers of types of machine, the cheapest first and those that miss the goal last."""

    offers: tuple[Offer, ...]
    currency: str = ""
    _digits = 3

    @property
    def cheapest(self) -> Offer | None:
        """The recommended offer; None where no type meets the goal."""
        return self.offers[0] if self.offers[0].choice.workers is not None else None

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per type of machine."""
        return [offer._to_row() for offer in self.offers]

    def _shown_rows(self) -> list[dict[str, Any]]:
        """Times and costs where there is something to pay for, else throughput and the price of an hour."""
        hourly = () if any(math.isfinite(offer.choice.cost) for offer in self.offers) else ("examples", "price")
        point = any(offer.choice.workers_point != offer.choice.workers for offer in self.offers)
        return in_use([
            {"instance": offer.instance.name}
            | offer.choice._shown(offer.curve, self.currency, point=point)
            | {name: value for name, value in offer._to_row().items() if hourly and name.startswith(hourly)}
            for offer in self.offers
        ])  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """The question, the cheapest and all others."""
        first = self.offers[0]
        return {
            "goal": first.choice.goal,
            "confidence": first.curve.confidence,
            "cheapest": self.cheapest.instance.name if self.cheapest else None,
            "offers": self.to_rows(),
        }

    def answer(self) -> str:
        """The cheapest type, how many of it, and its time and cost."""
        if self.cheapest is None:
            return f"no type of machine will do: {self.offers[0].choice.goal} is not met"
        return f"{self.cheapest.instance.name}: {self.cheapest.plan.answer()}"

    def notes(self) -> list[str]:
        """Types that meet the goal by the point estimate only, the work, and the curve's notes."""
        first = self.offers[0]
        offers = self.offers if first.choice.probability else ()  # without one, the goal is met by point estimates only
        by_estimate = [o.instance.name for o in offers if o.choice.workers and not o.choice.probability]
        by_point = f"{', '.join(by_estimate)}: by the point estimate only" if by_estimate else ""
        work = f"{first.plan.work} to train" if first.plan.work else ""
        return list(filter(None, [by_point, work, *first.curve.notes()]))

    def caption(self) -> str:
        """The answer, after an assumed strategy."""
        return "; ".join(filter(None, [self.offers[0].curve.assumption, self.answer()]))

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw each type's cost against its number, or its time or throughput (`plot_cost`)."""
        for offer in self.offers:
            ax = plot_cost(offer.plan, ax=ax, label=offer.instance.name)
        assert ax is not None  # there is an offer
        return ax


def plan_instances(
    data: Data | PathName,
    instances: Iterable[Instance],
    *,
    workers: int | Iterable[int] = range(1, 33),
    epochs: float | None = None,
    steps: float | None = None,
    examples: float | None = None,
    tokens: float | None = None,
    dataset_size: int | None = None,
    deadline: float | str | timedelta | None = None,
    throughput: float | None = None,
    currency: str | None = None,
    **fields: Unpack[PredictionSettings],
) -> InstancePlan:
    """Choose a type of machine and how many of it.

    Each type's curve is predicted from the profile, with its bandwidth and accelerator. With a ``deadline`` the
    cheapest number of workers that meets it is taken, with a ``throughput`` the fewest that reach it, and without
    both the cheapest, as `plan` recommends. Types for which only the point estimate meets the goal follow the
    others. Parameter servers cost as much as workers. Intervals are each type's own; much of their errors is common
    to all types, so that these may differ in cost although their intervals overlap.

    Parameters
    ----------
    data : Profile, or sequence of Measurement
        As for `predict`.
    instances : iterable of Instance
        `read_instances` reads them.
    workers : iterable of int
        Numbers to choose from.
    epochs, steps, examples, tokens, dataset_size, deadline, currency
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
    >>> answer = plan_instances(example_profile("alexnet-60"), offers, method="mva", throughput=60.0)
    >>> [(offer.instance.name, offer.choice.workers) for offer in answer.offers]
    [('fast', 1), ('small', 8)]
    """
    data, counts = as_data(data), list(workers) if isinstance(workers, Iterable) else [workers]
    if of_instances := [name for name in ("bandwidth", "accelerator_speed", "latency") if fields.get(name) is not None]:
        raise ModelError(f"plan_instances: each instance has its own {of_instances[0]}; leave it out")
    if deadline is not None and throughput is not None:
        raise ModelError("plan_instances: deadline and throughput exclude each other; specify one")
    work = {"epochs": epochs, "steps": steps, "examples": examples, "tokens": tokens}
    goal: dict[str, Any] = work | {"dataset_size": dataset_size, "currency": currency}
    goal |= {"deadline": deadline} if throughput is None else {"throughput": throughput}
    paid = throughput is None or any(amount is not None for amount in work.values())  # else an hour has a price alone
    offers = []
    for instance in instances:
        curve = _curve_on(instance, data, counts, fields)
        offers.append(Offer(instance, plan(curve, price_per_node_hour=instance.price if paid else None, **goal)))
    if not offers:
        raise ModelError("plan_instances: instances must name at least one type of machine, got none")
    money = attrgetter("choice.cost" if throughput is None else "hourly")
    # those that meet the goal, then those that do by the point estimate only, then the others; each the cheapest first
    offers.sort(key=lambda o: (o.choice.workers is None, o.choice.probability is None, money(o)))
    return InstancePlan(tuple(offers), currency or "")


def _curve_on(instance: Instance, data: Any, workers: list[int], fields: PredictionSettings) -> ThroughputCurve:
    """Throughput on a type of machine."""
    if not isinstance(instance, Instance):
        kind = type(instance).__name__
        raise ModelError(f"plan_instances: expected Instances, got {kind}; `read_instances` reads them")
    machine: dict[str, Any] = {**fields, "bandwidth": instance.bandwidth, "latency": instance.latency}
    if instance.accelerator_speed != 1.0:  # tables do not answer another one
        machine["accelerator_speed"] = instance.accelerator_speed
    try:
        return predict(data, workers=workers, **machine)
    except ModelError as error:
        raise ModelError(f"instance {instance.name!r}: {error}") from None


def curve_of(path: Path, most: int, settings: dict[str, str]) -> ThroughputCurve:
    """Predict a job's speeds on 1 to ``most`` nodes, each worker or rank on one, from the data at ``path``.

    ``settings`` are those of `queuemodel.models.predict`, as text: ``{"strategy": "sync-ps", "bandwidth":
    "10Gbit/s"}``. Recorded steps are solved as a closed network, if that covers the strategy, unless ``method``
    specifies otherwise. An assumed strategy of throughputs is a warning.
    """
    fields: dict[str, Any] = {}
    for name, text in settings.items():
        if name not in INSTANCE_SETTINGS and name not in FIELDS:
            raise ModelError(
                f"{name} is not a setting of a prediction; specify some of {', '.join([*FIELDS, *INSTANCE_SETTINGS])}"
            )
        fields[name] = INSTANCE_SETTINGS[name](text) if name in INSTANCE_SETTINGS else FIELD_KINDS[name](text, name)
    data = load(path)
    min_workers = 1
    if isinstance(data, Profile) and data.steps and fields.get("strategy", "async-ps") in SYNCHRONIZATIONS:
        numbers = {name: value for name, value in fields.items() if name in ("strategy", *NUMBERS.values())}
        waiting = Scenario(**numbers).synchronization
        min_workers = waiting.least_workers  # a server that takes k gradients at once needs k workers
        if waiting.solvable:  # milliseconds a curve, where simulations take seconds
            fields.setdefault("method", "mva")
    curve = predict(cast(Data, data), workers=range(min_workers, most + 1), **fields)
    if curve.assumption:
        warnings.warn(f"{path}: {curve.assumption}", QueueModelWarning, stacklevel=2)
    return curve
