"""Where nodes stand: several ranks on a node, nodes in racks under a core that carries less than all of them send."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ..checks import require_count, require_number
from ..errors import ModelError
from .algorithms import Algorithm, Link, Ring, Size, Traffic
from .trees import MultiTree


@dataclass(frozen=True, slots=True)
class Hierarchical:
    """Ranks on nodes: rings inside the nodes, an algorithm between them on the share that each rank then holds.

    With rings between the nodes, it is Horovod's hierarchical all-reduce. A last node that is not full is treated like
    a full one. The ranks' shares go between the nodes at the same time, by ``cards`` network cards of each node.
    """

    ranks_per_node: int
    inside: Link
    between: Algorithm = field(default_factory=Ring)
    cards: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        require_count(self.ranks_per_node, "hierarchical: ranks_per_node")
        require_count(self.cards, "hierarchical: cards", most=self.ranks_per_node)

    @property
    def servers(self) -> int:
        """Nodes beside those of the ranks."""
        return getattr(self.between, "servers", 0)

    def machines(self, ranks: int) -> int:
        """Nodes of so many ranks."""
        return -(-ranks // self.ranks_per_node)

    def time(self, message_bytes: Size, nodes: int, link: Link) -> Size:
        """Of ``nodes`` ranks: a ring of V bytes inside a node, and ``between`` of V/g bytes for each of its g ranks."""
        g = min(nodes, self.ranks_per_node)
        shared = replace(link, bandwidth=link.bandwidth * self.cards / g)
        between = self.between.time(message_bytes / g, self.machines(nodes), shared)
        return Ring().time(message_bytes, g, self.inside) + between

    def traffic(self, nodes: int) -> Traffic:
        """Of ``nodes`` ranks: what their nodes send each other."""
        return self.between.traffic(self.machines(nodes))


@dataclass(frozen=True, slots=True)
class InRacks:
    """An algorithm on nodes in racks, numbered rack by rack, whose links up carry less than their nodes send."""

    algorithm: Algorithm
    nodes_per_rack: int
    oversubscription: float = 1.0  #: bandwidth of a rack's nodes over that of its link up

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
        """How much longer the busiest links need for the algorithm's bytes than without racks."""
        if isinstance(self.algorithm, Hierarchical):
            return replace(self, algorithm=self.algorithm.between).slowdown(self.algorithm.machines(nodes))
        algorithm: Any = self.algorithm  # a frozen value, which is hashable
        return _slowdown(algorithm, nodes, self.nodes_per_rack, self.oversubscription)

    def time(self, message_bytes: Size, nodes: int, link: Link) -> Size:
        """The algorithm's, with each node's bandwidth divided by `slowdown`; approximate but for rings."""
        slower = replace(link, bandwidth=link.bandwidth / self.slowdown(nodes))
        return self.algorithm.time(message_bytes, nodes, slower)

    def traffic(self, nodes: int) -> Traffic:
        """The algorithm's."""
        return self.algorithm.traffic(nodes)


@lru_cache(maxsize=4096)
def _slowdown(algorithm: Algorithm, nodes: int, nodes_per_rack: int, oversubscription: float) -> float:
    with_core, without = 0.0, 0.0
    for part in algorithm.traffic(nodes):
        ends, share = part[:, :2].astype(int), part[:, 2]
        racks = ends // nodes_per_rack
        node = _busiest(ends, share)
        rack = _busiest(racks, np.where(racks[:, 0] != racks[:, 1], share, 0.0))
        without += node
        with_core += max(node, rack * oversubscription / nodes_per_rack)
    return with_core / without if without else 1.0


def _busiest(ends: np.ndarray, share: np.ndarray) -> float:
    """The most that one of them sends or receives, as a share of the data."""
    return max(float(np.bincount(ends[:, side], share).max()) for side in (0, 1))
