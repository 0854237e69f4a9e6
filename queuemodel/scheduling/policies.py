"""Policies that need no curve, or little of it, and the names of all policies on the command line."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

import numpy as np

from ..base.checks import nearest, require_choice, require_count, require_number
from ..base.errors import ModelError
from .model_based import SRPT, FitnessMaximization, Goodput, GreedyGain, ModelBased, Optimus, RankPriced
from .policy import ActiveJobs, Policy, SizeAware, in_turn, require_exponent


@dataclass(frozen=True)
class FIFO(Policy):
    """First come, first served with the nodes requested; a job that does not fit holds up those behind it."""

    fixed: int | None = None  #: Give every job so many nodes instead, within its limits.

    def __post_init__(self) -> None:
        if self.fixed is not None:
            require_count(self.fixed, "FIFO: fixed (nodes)")

    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        wanted = jobs.requested if self.fixed is None else np.clip(self.fixed, jobs.least, jobs.most)
        return wanted * (wanted.cumsum() <= nodes)


@dataclass(frozen=True)
class LeastAttainedService(Policy):
    """Tiresias' discretized two-dimensional LAS (Gu et al., NSDI 2019): queues by node-seconds received.

    Jobs get the nodes requested. They start in the first queue and fall into the next at each threshold; queues are
    served in order and first come, first served within; a job that does not fit is passed over.
    """

    thresholds: tuple[float, ...] = (57600.0,)  #: Node-seconds, rising; by default 16 node-hours.

    knows = frozenset({"attained_service"})

    def __post_init__(self) -> None:
        values: Any = self.thresholds
        several = values if isinstance(values, (tuple, list)) else (values,)
        what = "LeastAttainedService: thresholds"
        rising = tuple(require_number(x, what, unit="node-seconds", positive=True, largest=1e15) for x in several)
        if any(before >= after for before, after in itertools.pairwise(rising)):
            raise ModelError(f"{what} must rise, got {values!r}")
        object.__setattr__(self, "thresholds", rising)

    def _queue(self, attained: np.ndarray) -> np.ndarray:
        return np.searchsorted(np.array(self.thresholds) * (1 - 1e-9), attained, side="right")

    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        order = np.argsort(self._queue(jobs.attained_service), kind="stable")
        return in_turn(order, jobs.requested, jobs.requested, nodes)

    def review(self, jobs: ActiveJobs, grants: np.ndarray, now: float) -> float:
        """When the next running job falls into another queue."""
        limits = np.append(np.array(self.thresholds), math.inf)
        running = np.flatnonzero(grants > 0)
        attained = jobs.attained_service[running]
        ahead = limits[self._queue(attained)] - attained
        return now + float((ahead / grants[running]).min(initial=math.inf))


@dataclass(frozen=True)
class EqualShare(Policy):
    """EQUI: the same number of nodes for every job, within its limits; optimal for exponential sizes of one speedup.

    Berg, Dorsman and Harchol-Balter (2018). In whole nodes the earliest jobs run and get the odd ones.
    """

    divisible: bool = False  #: Grant fractions of a node: with linear speedup this is processor sharing.

    def __post_init__(self) -> None:
        require_choice(self.divisible, "EQUI: divisible", (False, True))

    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        n = len(jobs)
        if self.divisible:
            return np.full(n, nodes / n)
        runs = in_turn(np.arange(n), jobs.least, jobs.least, nodes) > 0
        least, most = jobs.least * runs, jobs.most * runs
        level = bisect.bisect(range(nodes + 1), nodes, key=lambda share: int(np.clip(share, least, most).sum())) - 1
        granted = np.clip(level, least, most)
        odd = np.flatnonzero((least <= level) & (level < most))[: nodes - int(granted.sum())]
        granted[odd] += 1
        return granted


@dataclass(frozen=True)
class ShortestJobFirst(SizeAware):
    """Shortest service time on the requested nodes first, never preempted; a job that does not fit is passed over."""

    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        wanted = np.where(jobs.nodes > 0, jobs.nodes, jobs.requested).astype(int)
        service = np.where(jobs.nodes > 0, -1.0, jobs.remaining / jobs.speed(wanted))
        return in_turn(np.argsort(service, kind="stable"), wanted, wanted, nodes)


@dataclass(frozen=True)
class Backfill(SizeAware):
    """First come, first served; later jobs may start in between when they do not delay the first that waits.

    EASY backfilling (Lifka, 1995) with predicted service times instead of the users' estimates.
    """

    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        granted, wanted = jobs.nodes.astype(int), jobs.requested
        left = nodes - int(granted.sum())
        waiting = np.flatnonzero(granted == 0).tolist()
        while waiting and wanted[waiting[0]] <= left:
            head = waiting.pop(0)
            granted[head] = wanted[head]
            left -= int(wanted[head])
        if not waiting or left == 0:
            return granted
        end = jobs.pause + jobs.remaining / jobs.speed(np.where(granted > 0, granted, wanted))
        # When the first that waits can start at the latest, from now, and the nodes to spare when all have ended then.
        running = np.flatnonzero(granted)
        running = running[np.argsort(end[running], kind="stable")]
        free = left + np.cumsum(granted[running])
        shadow = end[running[np.searchsorted(free, wanted[waiting[0]])]] * (1 + 1e-12)
        spare = free[end[running] <= shadow][-1] - wanted[waiting[0]]
        for job in waiting[1:]:
            need, in_time = wanted[job], end[job] <= shadow
            if need <= left and (in_time or need <= spare):
                granted[job] = need
                left -= need
                spare -= 0 if in_time else need
        return granted


def fitted_exponent(speeds: np.ndarray) -> float:
    """Exponent, 0.01 to 0.99, of the power law fitted to the logs of a speed table up to its fastest node count."""
    nodes = np.flatnonzero(speeds[: int(np.argmax(speeds)) + 1])
    if nodes.size < 2:
        return 0.01
    return float(np.clip(np.polyfit(np.log(nodes), np.log(speeds[nodes]), 1)[0], 0.01, 0.99))


@dataclass(frozen=True)
class HeSRPT(SizeAware):
    """heSRPT: optimal for jobs present at once with speedup k^p (Berg, Vesilo and Harchol-Balter, 2020).

    Of m jobs the k-th largest gets the share (k / m)^q - ((k - 1) / m)^q, q = 1 / (1 - p). In whole nodes, an
    approximation, shares are rounded down within the limits and the rest goes to the smallest jobs.
    """

    #: p; by default the mean of the exponents fitted to the jobs' curves, so that the shares stay in order.
    exponent: float | None = None
    divisible: bool = False  #: Grant fractions of a node (exact heSRPT).

    def __post_init__(self) -> None:
        if self.exponent is not None:
            require_exponent(self.exponent, "heSRPT")
        require_choice(self.divisible, "heSRPT: divisible", (False, True))

    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        n = len(jobs)
        p = float(jobs.per_curve(fitted_exponent).mean()) if self.exponent is None else self.exponent
        size = jobs.remaining if self.divisible else jobs.remaining / jobs.speed(jobs.least)
        largest_first = np.argsort(-size, kind="stable")
        edges = (np.arange(n + 1) / n) ** (1 / (1 - p))
        share = np.empty(n)
        share[largest_first] = np.diff(edges) * nodes
        if self.divisible:
            return share
        smallest_first = largest_first[::-1]
        best = jobs.per_curve(np.argmax)
        wanted = np.clip(np.floor(share + 1e-9).astype(int), jobs.least, best)
        granted = in_turn(smallest_first, jobs.least, wanted, nodes)
        room = np.where(granted > 0, best - granted, 0)[smallest_first]
        granted[smallest_first] += np.diff(np.minimum(room.cumsum(), nodes - granted.sum()), prepend=0)
        return granted


#: Short names of the policies; each takes its own knobs.
POLICIES: Mapping[str, Callable[..., Policy]] = MappingProxyType({
    "fifo": FIFO, "sjf": ShortestJobFirst, "backfill": Backfill, "las": LeastAttainedService,
    "tiresias": LeastAttainedService, "equi": EqualShare, "srpt": SRPT, "hesrpt": HeSRPT, "model": ModelBased,
    "greedy": GreedyGain, "rank-priced": RankPriced, "goodput": Goodput, "optimus": Optimus,
    "fitness": FitnessMaximization,
})  # fmt: skip


def policy_named(text: str) -> Policy:
    """A policy from ``name`` or ``name:knob=value,knob=value``.

    Examples
    --------
    >>> policy_named("greedy:floor=0.7")
    GreedyGain(floor=0.7, power=1.0)
    """
    name, _, rest = text.partition(":")
    make = POLICIES[require_choice(name.strip(), "policy:", POLICIES)]
    knobs = {field.name for field in fields(make)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in rest.split(","))):
        knob, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or knob not in knobs:
            allowed = ", ".join(f"{k}=..." for k in sorted(knobs)) or "no knobs"
            meant = "" if knob in knobs else nearest(knob, knobs)
            raise ModelError(f"policy {name!r}: takes {allowed}, got {part!r}{meant}")
        if knob in values:
            raise ModelError(f"policy {name!r}: {knob} is given twice")
        values[knob] = _value(value)
    return make(**values)


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    if "+" in text:
        return tuple(_value(part) for part in text.split("+"))
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)
