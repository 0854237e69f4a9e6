"""Policies that use the predicted curve: node by node where it is worth most, up to corners of its concave majorant.

`ModelBased` and `GreedyGain` reconstruct the abstract of Lin, Paolieri, Chou and Golubchik (MASCOTS 2018).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...base.checks import require_choice, require_number, require_share
from ...base.errors import ModelError
from ..state import hand_out
from .base import ActiveJobs, Policy, SizeAware, in_turn

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


def speed_increments(speeds: np.ndarray, floor: float = 0.0) -> np.ndarray:
    """Speed gained by each further node on the concave majorant, shape (nodes,); 0 where no node is useful."""
    at = np.append(0, corners(speeds, floor))
    gained = np.zeros(len(speeds) - 1)
    gained[: at[-1]] = np.repeat(np.minimum.accumulate(np.diff(speeds[at]) / np.diff(at)), np.diff(at))
    return gained


def time_increments(speeds: np.ndarray, floor: float = 0.0) -> np.ndarray:
    """Seconds per step saved by each further node, averaged between corners, shape (nodes,); by the first: `_NEVER`."""
    at = corners(speeds, floor)
    saved = np.zeros(len(speeds) - 1)
    if at.size:
        saved[: at[0]] = _NEVER
        slopes = np.minimum.accumulate(-np.diff(1 / speeds[at]) / np.diff(at))
        saved[at[0] : at[-1]] = np.repeat(np.maximum(slopes, 0.0), np.diff(at))
    return saved


def next_corner(speeds: np.ndarray, floor: float = 0.0) -> np.ndarray:
    """The first corner after each of 0 to ``nodes`` nodes; 0 where there is none."""
    at = corners(speeds, floor)
    return np.append(at, 0)[np.searchsorted(at, np.arange(len(speeds)), side="right")]


def most_useful(speeds: np.ndarray, floor: float = 0.0) -> int:
    """Most nodes, up to saturation, whose speed per node is at least ``floor`` of that on the least: last corner."""
    return int(corners(speeds, floor).max(initial=0))


def greedy(
    jobs: ActiveJobs, kind: Callable[..., np.ndarray], floor: float, weight: np.ndarray, nodes: int
) -> np.ndarray:
    """Nodes per job by the greedy choice: values of further nodes by ``kind``, times each job's weight > 0."""
    values, following = jobs.tables.derived(kind, floor), jobs.tables.derived(next_corner, floor)
    return hand_out(values, following, jobs.row, weight, nodes)


def marginal_nodes(speeds: np.ndarray, threshold: float) -> int:
    """Most nodes whose last one, on the majorant, adds at least ``threshold`` of the speed per node on the least."""
    at = corners(speeds)
    worth = np.count_nonzero(speed_increments(speeds) >= threshold * (1 - 1e-12) * speeds[at[0]] / at[0])
    return int(at[at <= worth].max(initial=at[0]))


_GRANTS: dict[str, Callable[[np.ndarray, float], int]] = {
    "useful": lambda speeds, threshold: int(np.argmax(speeds)),
    "efficient": most_useful,
    "marginal": marginal_nodes,
}
_ORDERS = ("arrival", "shortest", "gain")


@dataclass(frozen=True)
class ModelBased(SizeAware):
    """Jobs in an order, each granted the number of nodes that its predicted curve justifies."""

    order: str = "shortest"  #: Remaining time on the granted nodes; "arrival"; "gain": speed per step left and node.
    #: Nodes that keep the efficiency X(n) / (n X(1)) or the "marginal" speedup above the threshold, or all "useful".
    grant: str = "efficient"
    threshold: float = 0.5  #: The knob: 1 is frugal, 0 is the same as "useful".

    def __post_init__(self) -> None:
        require_choice(self.order, "model-based policy: order", _ORDERS)
        require_choice(self.grant, "model-based policy: grant", _GRANTS)
        require_share(self.threshold, "model-based policy: threshold")

    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        wanted = jobs.per_curve(_GRANTS[self.grant], float(self.threshold))
        if self.order == "arrival":
            order = np.arange(len(jobs))
        else:
            service = jobs.remaining / jobs.speed(wanted)
            order = np.argsort(service * wanted if self.order == "gain" else service, kind="stable")
        return in_turn(order, jobs.least, wanted, nodes)


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
        first = jobs.tables.derived(speed_increments, float(self.floor))[jobs.row, 0]
        weight = (first / jobs.remaining) ** self.power / first
        return greedy(jobs, speed_increments, float(self.floor), weight, nodes)


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
    return greedy(jobs, time_increments, 0.0, weight, nodes)


def rank_prices(jobs: int, exponent: float) -> np.ndarray:
    """heSRPT's price of the k-th largest job's work, (k^q - (k-1)^q)^(1/q), q = 1 / (1 - p), shape (jobs,)."""
    k, q = np.arange(1.0, jobs + 1), 1 / (1 - exponent)
    price = k.copy()
    # k (1 - (1 - 1/k)^q)^(1/q): the powers themselves would overflow near p = 1.
    price[1:] *= (-np.expm1(q * np.log1p(-1 / k[1:]))) ** (1 / q)
    return price


@dataclass(frozen=True)
class RankPriced(SizeAware):
    """Node by node to the job where it is worth most: speed gained, times the price of that job's work.

    The prices are heSRPT's, which depend only on the order of the jobs by size (time left on the least nodes), the
    gains those of each job's predicted curve. With one power law it is heSRPT in whole nodes, else a heuristic.
    """

    #: Speedup exponent p of the prices, 0 (all the same: fastest total progress) to below 1 (the smallest first).
    exponent: float = 0.5
    floor: float = 0.0  #: Nodes that would lower the efficiency X(n) / (n X(1)) below it stay idle.

    def __post_init__(self) -> None:
        if require_share(self.exponent, "rank-priced: exponent") == 1:
            raise ModelError("rank-priced: exponent must be below 1, got 1")
        require_share(self.floor, "rank-priced: floor")

    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        floor = float(self.floor)
        first = jobs.tables.derived(speed_increments, floor)[jobs.row, 0]
        order = np.argsort(-jobs.remaining / first, kind="stable")
        price = np.empty(len(order))
        price[order] = rank_prices(len(order), self.exponent)
        return greedy(jobs, speed_increments, floor, price / first, nodes)


@dataclass(frozen=True)
class Goodput(RankPriced):
    """`RankPriced` on curves of goodput: each job runs at the batch size that is best on the nodes it gets.

    Goodput is throughput times statistical efficiency (Qiao et al., OSDI 2021), of jobs with `BatchSizes` at the
    current noise scale, whose changes are neither foreseen nor trigger a decision. A change of the batch size only
    costs no restart. Other jobs are as for `RankPriced`.
    """

    knows = RankPriced.knows | {"batch_sizes"}
