"""Policies that need no curve, or little of it: requested nodes, attained service, equal and theoretical shares."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...checks import require_choice, require_count, require_number, require_share
from ...errors import ModelError
from ..speed_tables import fitted_exponent
from ..view import ActiveJobs
from .base import Policy, in_turn, pass_over
from .model_based import useful_nodes


@dataclass(frozen=True)
class FIFO(Policy):
    """First come, first served with the nodes requested; a job that does not fit holds up those behind it.

    Parameters
    ----------
    fixed : int, optional
        Give every job so many nodes instead, within its limits.
    """

    fixed: int | None = None

    def __post_init__(self) -> None:
        if self.fixed is not None:
            require_count(self.fixed, "FIFO: fixed (nodes)")

    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        """See `Policy`."""
        wanted = jobs.requested if self.fixed is None else np.clip(self.fixed, jobs.least, jobs.most)
        return wanted * (wanted.cumsum() <= nodes)


@dataclass(frozen=True)
class ShortestJobFirst(Policy):
    """Shortest service time on the requested nodes first, never preempted; a job that does not fit is passed over."""

    knows: ClassVar[frozenset[str]] = frozenset({"remaining", "curve"})

    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        """See `Policy`."""
        wanted = np.where(jobs.nodes > 0, jobs.nodes, jobs.requested).astype(int)
        service = np.where(jobs.nodes > 0, -1.0, jobs.remaining / jobs.speed(wanted))
        return pass_over(np.argsort(service, kind="stable"), wanted, nodes)


@dataclass(frozen=True)
class Backfill(Policy):
    """First come, first served; later jobs may start in between when they do not delay the first that waits.

    EASY backfilling (Lifka, 1995) with predicted service times instead of the users' estimates.
    """

    knows: ClassVar[frozenset[str]] = frozenset({"remaining", "curve"})

    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        """See `Policy`."""
        runs = jobs.nodes > 0
        granted = np.where(runs, jobs.nodes, 0).astype(int)
        wanted = jobs.requested
        left = nodes - int(granted.sum())
        waiting = np.flatnonzero(~runs).tolist()
        while waiting and wanted[waiting[0]] <= left:
            head = waiting.pop(0)
            granted[head] = wanted[head]
            left -= int(wanted[head])
        if not waiting or left == 0:
            return granted
        service = jobs.remaining / jobs.speed(np.where(granted > 0, granted, wanted))
        shadow, spare = _reservation(granted, service, left, int(wanted[waiting[0]]))
        for job in waiting[1:]:
            need = int(wanted[job])
            if need > left:
                continue
            in_time = service[job] <= shadow * (1 + 1e-12)
            if in_time or need <= spare:
                granted[job] = need
                left -= need
                spare -= 0 if in_time else need
                if not left:
                    break
        return granted


def _reservation(granted: np.ndarray, service: np.ndarray, left: int, need: int) -> tuple[float, int]:
    """When the first waiting job can start at the latest, from now, and the nodes to spare then."""
    running = np.flatnonzero(granted)
    running = running[np.argsort(service[running], kind="stable")]
    free = left + np.cumsum(granted[running])
    first = int(np.searchsorted(free, need))
    return float(service[running[first]]), int(free[first]) - need


@dataclass(frozen=True)
class LeastAttainedService(Policy):
    """Tiresias' discretized two-dimensional LAS (Gu et al., NSDI 2019): queues by node-seconds received.

    Jobs get the nodes requested. They start in the first queue and fall into the next at each threshold; queues are
    served in order and first come, first served within; a job that does not fit is passed over.

    Parameters
    ----------
    thresholds : tuple of float, or float, default (57600,)
        Node-seconds, rising; 16 node-hours unless given.
    """

    thresholds: tuple[float, ...] = (57600.0,)

    knows: ClassVar[frozenset[str]] = frozenset({"attained_service"})

    def __post_init__(self) -> None:
        given: Any = self.thresholds
        several = given if isinstance(given, (tuple, list)) else (given,)
        what = "LeastAttainedService: thresholds"
        rising = tuple(require_number(one, what, unit="node-seconds", positive=True, largest=1e15) for one in several)
        if any(before >= after for before, after in itertools.pairwise(rising)):
            raise ModelError(f"{what} must rise, got {given!r}")
        object.__setattr__(self, "thresholds", rising)

    def _queue(self, attained: np.ndarray) -> np.ndarray:
        return np.searchsorted(np.array(self.thresholds) * (1 - 1e-9), attained, side="right")

    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        """See `Policy`."""
        order = np.argsort(self._queue(jobs.attained_service), kind="stable")
        return pass_over(order, jobs.requested, nodes)

    def review(self, jobs: ActiveJobs, grants: np.ndarray, now: float) -> float:
        """When the next running job falls into another queue."""
        limits = np.append(np.array(self.thresholds), math.inf)
        running = np.flatnonzero(grants > 0)
        if not running.size:
            return math.inf
        attained = jobs.attained_service[running]
        ahead = limits[self._queue(attained)] - attained
        return now + float((ahead / grants[running]).min())


@dataclass(frozen=True)
class EqualShare(Policy):
    """EQUI: the same number of nodes for every job, within its limits; optimal for exponential sizes of one speedup.

    Berg, Dorsman and Harchol-Balter (2018). In whole nodes the earliest jobs get the odd ones, and when there are more
    jobs than nodes the earliest run.

    Parameters
    ----------
    divisible : bool, default False
        Grant fractions of a node: with linear speedup this is processor sharing. Limits of the jobs are then ignored.
    """

    divisible: bool = False

    def __post_init__(self) -> None:
        require_choice(self.divisible, "EQUI: divisible", (False, True))

    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        """See `Policy`."""
        n = len(jobs)
        if self.divisible:
            return np.full(n, nodes / n)
        granted = in_turn(np.arange(n), jobs.least, jobs.least, nodes)
        left = nodes - int(granted.sum())
        room = np.where(granted > 0, jobs.most - granted, 0)
        while left > 0 and room.any():
            # Raise the lowest to a common level, then round by round.
            level = granted[room > 0].min()
            lowest = np.flatnonzero((room > 0) & (granted == level))
            above = granted[(room > 0) & (granted > level)]
            rise = min(int(above.min()) - level if above.size else left, int(room[lowest].min()), left // len(lowest))
            if rise == 0:
                granted[lowest[:left]] += 1
                break
            granted[lowest] += rise
            room[lowest] -= rise
            left -= rise * len(lowest)
        return granted


@dataclass(frozen=True)
class SRPT(Policy):
    """Shortest remaining time first, each with every node that still helps; optimal for one node per job.

    On one node this is Schrage's (1968) policy.
    """

    knows: ClassVar[frozenset[str]] = frozenset({"remaining", "curve"})

    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        """See `Policy`."""
        wanted = jobs.per_curve(useful_nodes).astype(int)
        order = np.argsort(jobs.remaining / jobs.speed(wanted), kind="stable")
        return in_turn(order, jobs.least, wanted, nodes)


@dataclass(frozen=True)
class HeSRPT(Policy):
    """heSRPT: optimal for jobs present at once with speedup k^p (Berg, Vesilo and Harchol-Balter, 2020).

    Of m jobs the k-th largest gets the share (k / m)^q - ((k - 1) / m)^q, q = 1 / (1 - p): the smallest the most, all
    something.

    Parameters
    ----------
    exponent : float, optional
        p; unless given, the mean of the exponents fitted to the jobs' curves, so that the shares stay in order.
    divisible : bool, default False
        Grant fractions of a node (exact heSRPT). Otherwise shares are rounded down within the limits and the rest goes
        to the smallest jobs, which is an approximation.
    """

    exponent: float | None = None
    divisible: bool = False

    knows: ClassVar[frozenset[str]] = frozenset({"remaining", "curve"})

    def __post_init__(self) -> None:
        if self.exponent is not None and require_share(self.exponent, "heSRPT: exponent") == 1:
            raise ModelError("heSRPT: exponent must be below 1, got 1; use SRPT for linear speedup")
        require_choice(self.divisible, "heSRPT: divisible", (False, True))

    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        """See `Policy`."""
        n = len(jobs)
        p = float(jobs.per_curve(fitted_exponent).mean()) if self.exponent is None else self.exponent
        alone = jobs.remaining if self.divisible else jobs.remaining / jobs.speed(jobs.least)
        largest_first = np.argsort(-alone, kind="stable")
        edges = (np.arange(n + 1) / n) ** (1 / (1 - p))
        share = np.empty(n)
        share[largest_first] = np.diff(edges) * nodes
        if self.divisible:
            return share
        smallest_first = largest_first[::-1]
        best = np.minimum(jobs.per_curve(useful_nodes).astype(int), jobs.most)
        wanted = np.clip(np.floor(share + 1e-9).astype(int), jobs.least, np.maximum(best, jobs.least))
        granted = in_turn(smallest_first, jobs.least, wanted, nodes)
        left = nodes - int(granted.sum())
        for job in smallest_first[granted[smallest_first] > 0]:
            more = min(left, max(int(best[job] - granted[job]), 0))
            granted[job] += more
            left -= more
            if not left:
                break
        return granted
