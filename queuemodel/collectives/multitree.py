"""Spanning trees from every node, built together for the links of a topology."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import ModelError
from .link import Link, Size
from .schedule import Schedule, Transfer
from .topology import Topology


@dataclass(frozen=True, eq=False)
class MultiTree:
    """A spanning tree from every node, built together so that all links are busy (Huang et al., ISCA 2021).

    Parameters
    ----------
    topology : Topology
        Whose links join the nodes directly, without switches.

    Attributes
    ----------
    steps : int
        In which the trees are built, and so in which each half of the all-reduce runs.
    joins : tuple of (step, tree, parent, child)

    Raises
    ------
    ModelError
        When some node cannot reach another without a switch.
    """

    topology: Topology
    steps: int = field(init=False)
    joins: tuple[tuple[int, int, int, int], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        joins = tuple(_grow(self.topology))
        object.__setattr__(self, "joins", joins)
        object.__setattr__(self, "steps", max((join[0] for join in joins), default=0))

    def time(self, message_bytes: Size, nodes: int, link: Link) -> Size:
        """2 S (α + V/(n B)) + (n-1)/n V γ; never below what its schedule takes on its topology. One node: nothing.

        Raises
        ------
        ModelError
            When the topology has another number of nodes.
        """
        steps = self._steps(nodes)
        part = message_bytes / nodes
        adding = (nodes - 1) * part * link.reduction_time
        return 2 * steps * (link.latency + part / link.bandwidth) + adding

    def schedule(self, nodes: int) -> Schedule:
        """Piece i goes up tree i, whose joins run backwards, and down again."""
        up: list[list[Transfer]] = [[] for _ in range(self._steps(nodes))]
        for step, tree, parent, child in self.joins if up else ():
            up[-step].append(Transfer(child, parent, range(tree, tree + 1), True))
        down = [tuple(t.back for t in one) for one in reversed(up)]
        return Schedule(nodes, nodes, (1 / nodes,) * nodes, (*map(tuple, up), *down))

    def _steps(self, nodes: int) -> int:
        if nodes not in (1, self.topology.nodes):
            raise ModelError(f"MultiTree: its topology has {self.topology.nodes} nodes, not {nodes}")
        return self.steps if nodes > 1 else 0


def _grow(topology: Topology) -> list[tuple[int, int, int, int]]:
    """Joins (step, tree, parent, child): in each step trees take turns to add one child over a link still free."""
    n = topology.nodes
    out: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    for index, (a, b) in enumerate(topology.links):
        if a < n and b < n:
            out[a].append((b, index))
    joined: list[dict[int, int]] = [{root: 0} for root in range(n)]  # node to step, in the order of joining
    joins: list[tuple[int, int, int, int]] = []
    step = 0
    while any(len(tree) < n for tree in joined):
        step += 1
        free, before = set(range(len(topology.links))), len(joins)
        added = True
        while added:
            added = False
            for root, tree in enumerate(joined):
                found = next(
                    (
                        (parent, child, index)
                        for parent, when in tree.items()
                        if when < step
                        for child, index in out[parent]
                        if child not in tree and index in free
                    ),
                    None,
                )
                if found is not None:
                    parent, child, index = found
                    tree[child] = step
                    free.remove(index)
                    joins.append((step, root, parent, child))
                    added = True
        if len(joins) == before:
            raise ModelError(f"MultiTree: {topology.name}: some nodes cannot reach each other without a switch")
    return joins
