"""Where ranks stand: several on a node, nodes in racks under a core that carries less than all of them send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ..checks import require_count, require_number
from .exchange import Hierarchical, Ring
from .link import Link, Size
from .schedule import Algorithm, Schedule, Transfer
from .servers import SplitServers
from .trees import DoubleBinaryTree


@dataclass(frozen=True, slots=True)
class OnNodes:
    """Any number of ranks, so many on each node: rings inside, an algorithm between the nodes (`Hierarchical`).

    A last node that is not full is timed like a full one.

    Parameters
    ----------
    ranks_per_node : int
    inside : Link
        Costs between two ranks of a node.
    between : Algorithm, default Ring()
    """

    ranks_per_node: int
    inside: Link
    between: Algorithm = field(default_factory=Ring)

    def __post_init__(self) -> None:
        require_count(self.ranks_per_node, "on nodes: ranks_per_node")

    def time(self, message_bytes: Size, nodes: int, link: Link) -> Size:
        """Of ``nodes`` ranks; ``link`` is that of a node."""
        return self._groups(nodes).time(message_bytes, -(-nodes // self.ranks_per_node), link)

    def schedule(self, nodes: int) -> Schedule:
        """As `Hierarchical.schedule`, on full nodes."""
        return self._groups(nodes).schedule(-(-nodes // self.ranks_per_node))

    def _groups(self, ranks: int) -> Hierarchical:
        return Hierarchical(min(ranks, self.ranks_per_node), self.inside, between=self.between)


@dataclass(frozen=True, slots=True)
class InRacks:
    """An algorithm on nodes in racks, numbered rack by rack, whose links up carry less than their nodes send.

    Parameters
    ----------
    algorithm : Algorithm
    nodes_per_rack : int
    oversubscription : float, default 1
        Bandwidth of a rack's nodes over that of its link up.
    """

    algorithm: Algorithm
    nodes_per_rack: int
    oversubscription: float = 1.0

    def __post_init__(self) -> None:
        require_count(self.nodes_per_rack, "in racks: nodes_per_rack")
        require_number(self.oversubscription, "in racks: oversubscription", positive=True)

    def slowdown(self, nodes: int) -> float:
        """How much longer the busiest links need for the bytes than without racks.

        A ring crosses each rack's link once in each direction, whatever the rack's size. Others: by the bytes of their
        schedule on each link; algorithms that wait for each other's messages, in each round.
        """
        if isinstance(self.algorithm, Ring):
            return max(1.0, self.oversubscription / self.nodes_per_rack) if nodes > self.nodes_per_rack else 1.0
        algorithm: Any = self.algorithm  # a frozen value
        if isinstance(algorithm, DoubleBinaryTree | SplitServers):
            algorithm = replace(algorithm, blocks=1)  # however many: the same bytes on each link
        return _slowdown(algorithm, nodes, self.nodes_per_rack, self.oversubscription)

    def time(self, message_bytes: Size, nodes: int, link: Link) -> Size:
        """The algorithm's, with each node's bandwidth divided by `slowdown`; approximate but for rings."""
        slower = link.bandwidth / self.slowdown(nodes)
        slowed = Link(slower, latency=link.latency, reduction_time=link.reduction_time)
        return self.algorithm.time(message_bytes, nodes, slowed)

    def schedule(self, nodes: int) -> Schedule:
        """The algorithm's; run it on `fat_tree`."""
        return self.algorithm.schedule(nodes)


@lru_cache(maxsize=4096)
def _slowdown(algorithm: Algorithm, nodes: int, nodes_per_rack: int, oversubscription: float) -> float:
    schedule = algorithm.schedule(nodes)
    with_core, without = 0.0, 0.0
    rounds = schedule.rounds if schedule.blocking else (schedule.transfers,)
    for one in rounds:
        if one:
            busiest, rack = _busiest(one, schedule, nodes_per_rack)
            without += busiest
            with_core += max(busiest, rack * oversubscription / nodes_per_rack)
    return with_core / without if without else 1.0


def _busiest(transfers: Sequence[Transfer], schedule: Schedule, nodes_per_rack: int) -> tuple[float, float]:
    """Most that a node's link carries in one direction, and that a rack's does, as shares of the data."""
    ends = np.array([(t.source, t.destination) for t in transfers])
    share = np.array([schedule.share(t) for t in transfers])
    racks = ends // nodes_per_rack
    crossing = np.where(racks[:, 0] != racks[:, 1], share, 0.0)
    loads = ((ends, share), (racks, crossing))
    node, rack = (max(np.bincount(at[:, side], weight).max() for side in (0, 1)) for at, weight in loads)
    return float(node), float(rack)
