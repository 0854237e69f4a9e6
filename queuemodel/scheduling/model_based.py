"""Policies that use the predicted curve: node by node where it is worth most, up to corners of its concave majorant.

`ModelBased` and `GreedyGain` reconstruct the abstract of Lin, Paolieri, Chou and Golubchik (MASCOTS 2018).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..base.checks import require_choice, require_number, require_share
from .policy import ActiveJobs, Policy, SizeAware, in_turn, require_exponent
from .state import hand_out

#: Seconds per step of a job that does not run: finite, so that weights put such jobs in order.
_NEVER = 1e200


def corners(speeds: np.ndarray, floor: float = 0.0) -> np.ndarray:
    """Rising node counts on the least concave majorant of a speed table, of an efficiency of at least ``floor``."""
    allowed = np.flatnonzero(speeds > 0)
    if not allowed.size:
        return allowed
    least = allowed[0]
    efficient = speeds[allowed] * least >= floor * (1 - 1e-12) * allowed * speeds[least]
    usable = allowed[efficient | (allowed == least)]
    usable = usable[usable <= usable[np.argmax(speeds[usable])]]
    at = np.append(0, usable)
    slopes = np.diff(speeds[at]) / np.diff(at)
    if not (np.diff(slopes) > 1e-12 * slopes[:-1]).any():  # concave already
        return usable
    hull = [(0, 0.0)]
    for n, speed in zip(usable.tolist(), speeds[usable].tolist(), strict=True):
        while len(hull) > 1:
            (a, u), (b, v) = hull[-2], hull[-1]
            if (v - u) * (n - b) >= (speed - v) * (b - a):
                break
            hull.pop()
        hull.append((n, speed))
    return np.array([n for n, _ in hull[1:]])


def increments(speeds: np.ndarray, floor: float, unit: str) -> np.ndarray:
    """What each further node gains, averaged between corners, shape (nodes,); 0 where no node is useful.

    In units of ``"speed"`` (steps per second) or of ``"time"`` (seconds per step; the first corner gains `_NEVER`).
    """
    at = np.append(0, corners(speeds, floor))
    slopes = np.diff(speeds[at]) / np.diff(at)
    if unit == "time":
        slopes[:1], slopes[1:] = _NEVER, -np.diff(1 / speeds[at[1:]]) / np.diff(at[1:])
    gained = np.zeros(len(speeds) - 1)
    gained[: at[-1]] = np.repeat(np.minimum.accumulate(slopes), np.diff(at))
    return gained


def next_corner(speeds: np.ndarray, floor: float) -> np.ndarray:
    """The first corner after each of 0 to ``nodes`` nodes; 0 where there is none."""
    at = corners(speeds, floor)
    return np.append(at, 0)[np.searchsorted(at, np.arange(len(speeds)), side="right")]


def greedy(
    jobs: ActiveJobs, weigh: Callable[[np.ndarray], np.ndarray], nodes: int, floor: float = 0.0, unit: str = "speed"
) -> np.ndarray:
    """Nodes per job by the greedy choice: `increments` of its curve times a weight > 0, made of the first node's."""
    gained, following = jobs.tables.derived(increments, floor, unit), jobs.tables.derived(next_corner, floor)
    return hand_out(gained, following, jobs.row, weigh(gained[jobs.row, 0]), nodes)


def marginal_nodes(speeds: np.ndarray, threshold: float) -> int:
    """Most nodes whose last one, on the majorant, adds at least ``threshold`` of the speed per node on the least."""
    at = corners(speeds)
    gained = increments(speeds, 0.0, "speed")
    worth = np.count_nonzero(gained >= threshold * (1 - 1e-12) * speeds[at[0]] / at[0])
    return int(at[at <= worth].max(initial=at[0]))


_GRANTS: dict[str, Callable[[np.ndarray, float], int]] = {
    "useful": lambda speeds, threshold: int(np.argmax(speeds)),
    "efficient": lambda speeds, threshold: int(corners(speeds, threshold).max(initial=0)),
    "marginal": marginal_nodes,
}


@dataclass(frozen=True)
class ModelBased(SizeAware):
    """Jobs in an order, each granted the number of nodes that its predicted curve justifies."""

    order: str = "shortest"  #: Remaining time on the granted nodes; "arrival"; "gain": speed per step left and node.
    #: Nodes that keep the efficiency X(n) / (n X(1)) or the "marginal" speedup above the threshold, or all "useful".
    grant: str = "efficient"
    threshold: float = 0.5  #: The knob: 1 is frugal, 0 is the same as "useful".

    def __post_init__(self) -> None:
        require_choice(self.order, "model-based policy: order", ("arrival", "shortest", "gain"))
        require_choice(self.grant, "model-based policy: grant", _GRANTS)
        require_share(self.threshold, "model-based policy: threshold")

    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        wanted = jobs.per_curve(_GRANTS[self.grant], float(self.threshold))
        service = jobs.remaining / jobs.speed(wanted)
        keys = {"arrival": jobs.arrival_time, "shortest": service, "gain": service * wanted}
        return in_turn(np.argsort(keys[self.order], kind="stable"), jobs.least, wanted, nodes)


@dataclass(frozen=True)
class SRPT(SizeAware):
    """Shortest remaining time first (Schrage, 1968), each with every useful node; optimal for one node per job."""

    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        return ModelBased("shortest", "useful").grants(jobs, nodes, now)


@dataclass(frozen=True)
class Optimus(SizeAware):
    """The least nodes to each, then one more wherever it shortens the time left most (Peng et al., EuroSys 2018)."""

    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        return _least_first(jobs, jobs.remaining, nodes)


@dataclass(frozen=True)
class FitnessMaximization(Policy):
    """Pollux' fitness without its tuning of batch sizes (Qiao et al., OSDI 2021): the harmonic mean of speedups.

    Speedups are over an equal share of the cluster. The greedy choice is optimal for concave curves without restarts.
    """

    knows = frozenset({"curve"})

    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        share = np.clip(nodes // len(jobs), jobs.least, jobs.most)
        return _least_first(jobs, jobs.speed(share), nodes)


def _least_first(jobs: ActiveJobs, weight: np.ndarray, nodes: int) -> np.ndarray:
    """The least to each job, by arrival, then the greedy choice by time saved."""
    if jobs.least.sum() >= nodes:
        return in_turn(np.arange(len(jobs)), jobs.least, jobs.least, nodes)
    return greedy(jobs, lambda first: weight, nodes, unit="time")


@dataclass(frozen=True)
class GreedyGain(SizeAware):
    """Node by node to the job whose rate of ending rises most: marginal speed over the steps left.

    For one job size and concave curves this drains work fastest; dividing by the steps left favours short jobs.
    """

    floor: float = 0.5  #: Nodes that would lower the efficiency X(n) / (n X(1)) below it stay idle.
    power: float = 1.0  #: Weight of the steps left, at most 10; 0: total speed, relative to each job's on one node.

    def __post_init__(self) -> None:
        require_share(self.floor, "greedy gain: floor")
        require_number(self.power, "greedy gain: power", largest=10)

    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        return greedy(jobs, lambda first: (first / jobs.remaining) ** self.power / first, nodes, float(self.floor))


@dataclass(frozen=True)
class RankPriced(SizeAware):
    """Node by node to the job where it is worth most: speed gained, times the price of that job's work.

    The prices are heSRPT's: of the k-th largest job by the time left on the least nodes (k^q - (k-1)^q)^(1/q), with
    q = 1 / (1 - p). The gains are those of each job's predicted curve. With one power law it is heSRPT in whole nodes,
    else a heuristic.
    """

    #: Speedup exponent p of the prices, 0 (all the same: fastest total progress) to below 1 (the smallest first).
    exponent: float = 0.5
    floor: float = 0.0  #: Nodes that would lower the efficiency X(n) / (n X(1)) below it stay idle.

    def __post_init__(self) -> None:
        require_exponent(self.exponent, "rank-priced")
        require_share(self.floor, "rank-priced: floor")

    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        k, q = np.arange(1.0, len(jobs) + 1), 1 / (1 - self.exponent)
        with np.errstate(divide="ignore"):  # (k^q - (k - 1)^q)^(1/q), whose powers would overflow near p = 1
            prices = k * (-np.expm1(q * np.log1p(-1 / k))) ** (1 / q)

        def weigh(first: np.ndarray) -> np.ndarray:
            weight = np.empty(len(jobs))
            weight[np.argsort(-jobs.remaining / first, kind="stable")] = prices
            return weight / first

        return greedy(jobs, weigh, nodes, float(self.floor))


@dataclass(frozen=True)
class Goodput(RankPriced):
    """`RankPriced` on curves of goodput: each job runs at the batch size that is best on the nodes it gets.

    Goodput is throughput times statistical efficiency (Qiao et al., OSDI 2021), of jobs with `BatchSizes` at the
    current noise scale, whose changes are neither foreseen nor trigger a decision. A change of the batch size only
    costs no restart. Other jobs are as for `RankPriced`.
    """

    knows = RankPriced.knows | {"batch_sizes"}
