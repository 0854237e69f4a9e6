"""Plans over types of machine to rent: each type's curve, its price, and how many of which type to take."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Unpack

from ..base.checks import FASTEST_LINK, require_name, require_number
from ..base.errors import DataError, ModelError
from ..base.files import parse_bandwidth, parse_latency, read_rows
from ..base.results import Result, finite
from ..curves.curve import ThroughputCurve
from ..curves.figures import plot_cost
from ..curves.goals import WORK, Asked
from ..curves.plan import Choice, Plan, in_use, plan
from ..profile.job import require_bandwidth
from .predict import Data, PathName, PredictionSettings, as_data, predict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SPECIFIED = ("bandwidth", "accelerator_speed", "latency")  #: Fields of a scenario that each type of machine has.


@dataclass(frozen=True, slots=True)
class Instance:
    """A type of machine to rent, relative to the profiled machines (`ModelError` for numbers that make no sense).

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

    Bandwidths and latencies have units: ``10Gbit/s``, ``50us``. A `DataError` names file, line, column and value.
    """
    instances: dict[str, Instance] = {}
    for row in read_rows(path, required=("name", "price"), optional=SPECIFIED, what="instances"):
        name = row.text("name")
        if name in instances:  # a plan names types, not lines
            raise DataError(f"{row.where}: name {name!r} stands twice; leave one")
        instances[name] = Instance(
            name,
            price=row.number("price", positive=True),
            bandwidth=row.quantity("bandwidth", lambda x: require_bandwidth(parse_bandwidth(x)), largest=FASTEST_LINK),
            accelerator_speed=row.number("accelerator_speed", 1.0, positive=True),
            latency=row.quantity("latency", parse_latency),
        )
    return list(instances.values())


@dataclass(frozen=True, slots=True)
class Offer:
    """A type of machine, and the plan on it."""

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
        rates = {"": curve.steps_per_second, "_low": curve.lower, "_high": curve.upper}
        chosen = {end: (x * curve.batch_size)[curve.workers == c.workers].tolist() for end, x in rates.items()}
        return {
            "instance": self.instance.name,
            **{name: getattr(c, name) for name in ("workers", "workers_point", "workers_interval", "probability")},
            "machines": c.nodes,
            **{f"examples_per_second{end}": x[0] if x else None for end, x in chosen.items()},
            "price_per_hour": finite(self.hourly),
        } | c._figures()


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
        paid = any(math.isfinite(offer.choice.cost) for offer in self.offers)
        point = any(offer.choice.workers_point != offer.choice.workers for offer in self.offers)
        return in_use([
            {"instance": row["instance"]}
            | offer.choice._shown(offer.curve, self.currency, point=point)
            | {name: value for name, value in row.items() if not paid and name.startswith(("examples", "price"))}
            for offer, row in zip(self.offers, self.to_rows(), strict=True)
        ])  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """The question, the cheapest and all others."""
        cheapest, first = self.cheapest and self.cheapest.instance.name, self.offers[0]
        about = {"goal": first.choice.goal, "confidence": first.curve.confidence, "cheapest": cheapest}
        return about | {"offers": self.to_rows()}

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


class Requested(PredictionSettings, Asked, total=False):
    """What `predict` and `plan` take."""


def plan_instances(
    data: Data | PathName,
    instances: Iterable[Instance],
    *,
    workers: int | Iterable[int] = range(1, 33),
    dataset_size: int | None = None,
    currency: str | None = None,
    **requested: Unpack[Requested],
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
    dataset_size, currency
        As for `plan`.
    **requested
        ``epochs``, ``steps``, ``examples``, ``tokens``, ``deadline`` and ``throughput`` as for `plan`, of the last two
        one; all else as for `predict`.

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
    fields: dict[str, Any] = {"workers": list(workers) if isinstance(workers, Iterable) else workers, **requested}
    if of_instances := [name for name in SPECIFIED if fields.get(name) is not None]:
        raise ModelError(f"plan_instances: each instance has its own {of_instances[0]}; leave it out")
    goal = {name: fields.pop(name, None) for name in (*WORK, "deadline", "throughput")}
    if None not in (goal["deadline"], goal["throughput"]):
        raise ModelError("plan_instances: deadline and throughput exclude each other; specify one")
    paid = goal["throughput"] is None or any(goal[name] is not None for name in WORK)  # else an hour has a price alone
    goal |= {"dataset_size": dataset_size, "currency": currency}
    data, offers = as_data(data), list[Offer]()
    for instance in instances:
        curve = _curve_on(instance, data, fields)
        offers.append(Offer(instance, plan(curve, price_per_node_hour=instance.price if paid else None, **goal)))
    if not offers:
        raise ModelError("plan_instances: instances must name at least one type of machine, got none")
    money = attrgetter("choice.cost" if goal["throughput"] is None else "hourly")
    # those that meet the goal, then those that do by the point estimate only, then the others; each the cheapest first
    offers.sort(key=lambda o: (o.choice.workers is None, o.choice.probability is None, money(o)))
    return InstancePlan(tuple(offers), currency or "")


def _curve_on(instance: Instance, data: Any, fields: dict[str, Any]) -> ThroughputCurve:
    """Throughput on a type of machine."""
    if not isinstance(instance, Instance):
        kind = type(instance).__name__
        raise ModelError(f"plan_instances: expected Instances, got {kind}; `read_instances` reads them")
    machine = {name: getattr(instance, name) for name in SPECIFIED}
    if instance.accelerator_speed == 1.0:  # tables do not answer another one
        del machine["accelerator_speed"]
    try:
        return predict(data, **fields, **machine)
    except ModelError as error:
        raise ModelError(f"instance {instance.name!r}: {error}") from None
