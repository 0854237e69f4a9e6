"""Nodes in racks under a core that carries less than all of them send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ..checks import require_count, require_number
from ..errors import ModelError
from .exchange import Hierarchical, Ring
from .link import Link, Size
from .multitree import MultiTree
from .schedule import Algorithm, Schedule, Transfer
from .servers import SplitServers
from .trees import DoubleBinaryTree


@dataclass(frozen=True, slots=True)
class InRacks:
    """An algorithm on nodes in racks, numbered rack by rack, whose links up carry less than their nodes send.

    Parameters
    ----------
    algorithm : Algorithm
    nodes_per_rack : int
    oversubscription : float, default 1
        Bandwidth of a rack's nodes over that of its link up.

    Raises
    ------
    ModelError
        When a number makes no sense, or the algorithm says already how nodes are linked.
    """

    algorithm: Algorithm
    nodes_per_rack: int
    oversubscription: float = 1.0

    def __post_init__(self) -> None:
        require_count(self.nodes_per_rack, "in racks: nodes_per_rack")
        require_number(self.oversubscription, "in racks: oversubscription", positive=True)
        if isinstance(self.algorithm, MultiTree | InRacks):
            name = type(self.algorithm).__name__
            raise ModelError(f"in racks: {name} says already how nodes are linked; leave one of both out")

    @property
    def servers(self) -> int:
        """Nodes beside those of the ranks."""
        return getattr(self.algorithm, "servers", 0)

    @property
    def ranks_per_node(self) -> int:
        """Ranks on each node."""
        return getattr(self.algorithm, "ranks_per_node", 1)

    def slowdown(self, nodes: int) -> float:
        """How much longer the busiest links need for the bytes than without racks.

        A ring crosses each rack's link once in each direction, whatever the rack's size. Others: by the bytes of their
        schedule on each link; algorithms that wait for each other's messages, in each round. Ranks on nodes: as the
        algorithm between these.
        """
        if isinstance(self.algorithm, Hierarchical):
            return replace(self, algorithm=self.algorithm.between).slowdown(self.algorithm.machines(nodes))
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
    in_rounds = schedule.blocking and not isinstance(
        algorithm, SplitServers
    )  # whose rounds have all kinds of transfers
    rounds = schedule.rounds if in_rounds else (schedule.transfers,)
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
