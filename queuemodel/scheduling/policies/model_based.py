"""Policies that use the predicted curve: the families of the MASCOTS 2018 abstract, in our reconstruction.

Lin, Paolieri, Chou and Golubchik ("A model-based approach to streamlining distributed training for asynchronous SGD",
2018) describe heuristics that trade shorter service against efficiency, the speedup per additional node. The full text
was not at hand: orders, grants and knobs below are ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...checks import require_choice, require_number, require_share
from ..view import ActiveJobs
from .base import Policy, in_turn
from .increments import corners, greedy, last_corner, most_useful, speed_increments, time_increments


def useful_nodes(speeds: np.ndarray) -> int:
    """Nodes up to saturation: the least with the largest speed."""
    return int(np.argmax(speeds))


def marginal_nodes(speeds: np.ndarray, threshold: float) -> int:
    """Most nodes whose last one adds at least ``threshold`` of the speed per node on the least nodes.

    Counted on the concave majorant of the curve.
    """
    marks = corners(speeds)
    least = int(np.flatnonzero(marks)[0])
    worth = speed_increments(speeds) >= threshold * (1 - 1e-12) * speeds[least] / least
    return max(least, int(last_corner(speeds)[np.count_nonzero(worth)]))


_GRANTS: dict[str, Callable[..., int]] = {
    "useful": useful_nodes,
    "efficient": most_useful,
    "marginal": marginal_nodes,
}
_ORDERS = ("arrival", "shortest", "gain")


@dataclass(frozen=True)
class ModelBased(Policy):
    """Jobs in an order, each granted as many nodes as its predicted curve justifies.

    Parameters
    ----------
    order : {"shortest", "arrival", "gain"}
        Shortest remaining time on the granted nodes, first come, or largest gain (speed per step left and node).
    grant : {"efficient", "marginal", "useful"}
        As many nodes as keep the efficiency X(n) / (n X(1)) above the threshold, as keep the marginal speedup above
        it, or all up to saturation.
    threshold : float, default 0.5
        The knob: 1 is frugal, 0 is the same as ``"useful"``.
    """

    order: str = "shortest"
    grant: str = "efficient"
    threshold: float = 0.5

    knows: ClassVar[frozenset[str]] = frozenset({"remaining", "curve"})

    def __post_init__(self) -> None:
        require_choice(self.order, "model-based policy: order", _ORDERS)
        require_choice(self.grant, "model-based policy: grant", _GRANTS)
        require_share(self.threshold, "model-based policy: threshold")

    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        """See `Policy`."""
        if self.grant == "useful":
            wanted = jobs.per_curve(useful_nodes)
        else:
            wanted = jobs.per_curve(_GRANTS[self.grant], float(self.threshold))
        wanted = wanted.astype(int)
        if self.order == "arrival":
            order = np.arange(len(jobs))
        else:
            service = jobs.remaining / jobs.speed(wanted)
            order = np.argsort(service * wanted if self.order == "gain" else service, kind="stable")
        return in_turn(order, jobs.least, wanted, nodes)


@dataclass(frozen=True)
class GreedyGain(Policy):
    """Node by node to the job whose rate of ending rises most: marginal speed over the steps left.

    For one job size and concave curves this drains work as fast as can be; the division by the steps left favours
    short jobs as SRPT does. Nodes that would lower the efficiency X(n) / (n X(1)) below the floor stay idle.

    Parameters
    ----------
    floor : float, default 0.5
    power : float, default 1
        Weight of the steps left, at most 10: 0 maximizes the cluster's total speed, relative to each job's own on one
        node.
    """

    floor: float = 0.5
    power: float = 1.0

    knows: ClassVar[frozenset[str]] = frozenset({"remaining", "curve"})

    def __post_init__(self) -> None:
        require_share(self.floor, "greedy gain: floor")
        require_number(self.power, "greedy gain: power", largest=10)

    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        """See `Policy`."""
        alone = jobs.tables.derived(speed_increments, float(self.floor))[jobs.row, 0]
        weight = (alone / jobs.remaining) ** self.power / alone
        return greedy(jobs, speed_increments, float(self.floor), weight, nodes)


@dataclass(frozen=True)
class Optimus(Policy):
    """The least nodes to each, then one more wherever it shortens the time left most (Peng et al., EuroSys 2018)."""

    knows: ClassVar[frozenset[str]] = frozenset({"remaining", "curve"})

    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        """See `Policy`."""
        return _least_first(jobs, jobs.remaining, nodes)


@dataclass(frozen=True)
class FitnessMaximization(Policy):
    """Pollux' fitness without its tuning of batch sizes (Qiao et al., OSDI 2021): the harmonic mean of speedups.

    The speedup of a job is its speed over that on an equal share of the cluster; with the artifact's exponent of -1 the
    mean is separable and the greedy choice maximizes it for concave curves. Restarts are not weighed.
    """

    knows: ClassVar[frozenset[str]] = frozenset({"curve"})

    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        """See `Policy`."""
        share = np.clip(nodes // len(jobs), jobs.least, jobs.most)
        return _least_first(jobs, jobs.speed(share), nodes)


def _least_first(jobs: ActiveJobs, weight: np.ndarray, nodes: int) -> np.ndarray:
    """The least to each job, by arrival, then the greedy choice by time saved."""
    if jobs.least.sum() >= nodes:
        return in_turn(np.arange(len(jobs)), jobs.least, jobs.least, nodes)
    return greedy(jobs, time_increments, 0.0, weight, nodes)
