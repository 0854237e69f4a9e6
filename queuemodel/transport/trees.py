"""Algorithms that build trees: MultiTree for the links of a topology, Hoplite for objects that arrive one by one."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, cast

import numpy as np

from ..base.checks import require_count
from ..base.errors import ModelError
from .collectives import (
    NCCL,
    Algorithm,
    DoubleBinaryTree,
    HalvingDoubling,
    Link,
    ParameterServers,
    RecursiveDoubling,
    Ring,
    Size,
    SplitServers,
    Traffic,
    require_kind,
)


@dataclass(frozen=True, slots=True)
class Topology:
    """Nodes joined directly by links (from node to node, both directions listed) of the same bandwidth."""

    nodes: int
    links: tuple[tuple[int, int], ...]
    name: str = ""


def complete(nodes: int) -> Topology:
    """A link of its own between any two nodes."""
    n = require_count(nodes, "complete: nodes")
    return _undirected(n, list(itertools.combinations(range(n), 2)), f"complete graph of {n}")


def ring(nodes: int) -> Topology:
    """Each node linked to two neighbours, in both directions."""
    return replace(torus(1, require_count(nodes, "ring: nodes")), name=f"ring of {nodes}")


def mesh(rows: int, columns: int) -> Topology:
    """A grid."""
    return _grid(rows, columns, wrap=False)


def torus(rows: int, columns: int) -> Topology:
    """A grid whose rows and columns are closed to rings (those of two nodes have one link)."""
    return _grid(rows, columns, wrap=True)


def _grid(rows: int, columns: int, *, wrap: bool) -> Topology:
    R, C = require_count(rows, "grid: rows"), require_count(columns, "grid: columns")
    pairs = []
    for r, c in itertools.product(range(R), range(C)):
        if c + 1 < C or (wrap and C > 2):
            pairs.append((r * C + c, r * C + (c + 1) % C))
        if r + 1 < R or (wrap and R > 2):
            pairs.append((r * C + c, (r + 1) % R * C + c))
    return _undirected(R * C, pairs, f"{R}x{C} {'torus' if wrap else 'mesh'}")


def _undirected(nodes: int, pairs: list[tuple[int, int]], name: str) -> Topology:
    return Topology(nodes, tuple(link for a, b in pairs for link in ((a, b), (b, a))), name)


@dataclass(frozen=True, eq=False)
class MultiTree:
    """A spanning tree from every node, built together so that all links are busy (Huang et al., ISCA 2021)."""

    topology: Topology
    linked: ClassVar = True  # no racks around it
    joins: tuple[tuple[int, int, int, int], ...] = field(init=False, repr=False)  #: (step, tree, parent, child)

    def __post_init__(self) -> None:
        object.__setattr__(self, "joins", tuple(_grow(self.topology)))

    @property
    def steps(self) -> int:
        """In which the trees are built, and so in which each half of the all-reduce runs."""
        return max((join[0] for join in self.joins), default=0)

    def time(self, message_bytes: Size, nodes: int, link: Link, *, kind: str = "all-reduce") -> Size:
        """2 S (α + V/(n B)) + (n-1)/n V γ; never below its schedule's time on its topology. One node: nothing."""
        require_kind(kind, ["all-reduce"], self)
        if nodes not in (1, self.topology.nodes):
            raise ModelError(f"MultiTree: its topology has {self.topology.nodes} nodes, not {nodes}")
        steps, part = self.steps if nodes > 1 else 0, message_bytes / nodes
        adding = (nodes - 1) * part * link.reduction_time
        return 2 * steps * (link.latency + part / link.bandwidth) + adding

    def traffic(self, nodes: int) -> Traffic:
        """In each step 1/n of the data over the links that join there, up the trees and down."""
        steps = range(1, self.steps + 1) if nodes > 1 else ()
        joined = [np.array([(a, b, 1 / nodes) for at, _, a, b in self.joins if at == step]) for step in steps]
        return [rows[:, [1, 0, 2]] for rows in reversed(joined)] + joined


def _grow(topology: Topology) -> list[tuple[int, int, int, int]]:
    """Joins (step, tree, parent, child): in each step trees take turns to add one child over a link still free."""
    n, step = topology.nodes, 0
    joined = [{root: 0} for root in range(n)]  # node to step, in the order of joining
    joins: list[tuple[int, int, int, int]] = []
    out = [[link for link in topology.links if link[0] == node] for node in range(n)]
    while any(len(tree) < n for tree in joined):
        step += 1
        free, before, added = set(topology.links), len(joins), -1
        while added != len(joins):
            added = len(joins)
            for root, tree in enumerate(joined):
                near = (link for parent, when in tree.items() if when < step for link in out[parent])
                if link := next((link for link in near if link[1] not in tree and link in free), None):
                    tree[link[1]] = step
                    free.remove(link)
                    joins.append((step, root, *link))
        if len(joins) == before:
            raise ModelError(f"MultiTree: {topology.name}: some nodes cannot reach each other")
    return joins


@dataclass(frozen=True, slots=True)
class Hoplite:
    """Reduce of objects in the order of their arrival, along a tree with chains below (Zhuang et al., SIGCOMM 2021).

    Small objects take a shallow tree, for latency; large ones a chain, whose links carry the object once. The sum then
    goes down a binomial tree of receivers that pass on what has arrived. The cost forms are ours, after the paper's
    L log n + d V/B of a tree of degree d.
    """

    def chain_cap(self, message_bytes: float, link: Link) -> int:
        """The most objects of a chain that is worth it: round(V / (B L)), very long without latency."""
        if link.latency == 0:
            return 1 << 40
        return round(message_bytes / (link.bandwidth * link.latency))

    def depth(self, message_bytes: float, objects: int, link: Link) -> int:
        """Depth of the binary tree above the chains to reduce n objects to a receiver; 0: one chain."""
        m, k = objects + 1, self.chain_cap(message_bytes, link)
        return max(0, min(math.ceil(math.log2((m + 1) / (k + 1))), math.floor(math.log2(m + 1))))

    def tree(self, nodes: int, depth: int) -> list[int | None]:
        """Parents: a binary tree of 2**depth - 1 nodes from node 0, and equal chains below its leaves."""
        inner = min(2**depth - 1, nodes)
        if inner == 0:
            return [None, *range(nodes - 1)]
        parents: list[int | None] = [None if i == 0 else (i - 1) // 2 for i in range(inner)]
        ends = [(slot - 1) // 2 for slot in range(inner, 2 * inner + 1)]
        for node in range(inner, nodes):
            slot = (node - inner) % len(ends)
            parents.append(ends[slot])
            ends[slot] = node
        return parents

    def reduce_time(self, message_bytes: float, nodes: int, link: Link) -> float:
        """(d + c - 1) α + V/B + V γ, with chains of c objects below a tree of depth d; approximate.

        2 V/B for d > 0 and more than two nodes: inside the tree two objects come through one link.
        """
        if nodes == 1:
            return 0.0
        d = self.depth(message_bytes, nodes - 1, link)
        chain = math.ceil((nodes - (2**d - 1)) / 2**d)
        hops = d + chain - 1
        transit = min(2 if d else 1, nodes - 1) * message_bytes / link.bandwidth
        return hops * link.latency + transit + message_bytes * link.reduction_time

    def broadcast_time(self, message_bytes: float, nodes: int, link: Link) -> float:
        """⌈lg n⌉ α + V/B: receivers pass on the blocks they have; approximate, a lower bound of any broadcast."""
        if nodes == 1:
            return 0.0
        return (nodes - 1).bit_length() * link.latency + message_bytes / link.bandwidth

    def time(self, message_bytes: Size, nodes: int, link: Link, *, kind: str = "all-reduce") -> Size:
        """A reduce, then a broadcast, which two nodes do at once, on links of two directions; approximate.

        Of a broadcast, `broadcast_time`.
        """
        require_kind(kind, ["all-reduce", "broadcast"], self)
        if isinstance(message_bytes, np.ndarray):
            return np.array([self.time(float(size), nodes, link, kind=kind) for size in message_bytes])
        if kind == "broadcast":
            return self.broadcast_time(message_bytes, nodes, link)
        sent = message_bytes if nodes > 2 else 0.0
        return self.reduce_time(message_bytes, nodes, link) + self.broadcast_time(sent, nodes, link)

    def traffic(self, nodes: int) -> Traffic:
        """All the data up and down one chain."""
        i = np.arange(1, nodes)
        up = np.column_stack([i, i - 1, np.ones(nodes - 1)])
        return [np.vstack([up, up[:, [1, 0, 2]]])] if nodes > 1 else []


#: Those that need nothing but their name.
COLLECTIVES: dict[str, Algorithm] = {
    "ring": Ring(), "recursive-doubling": RecursiveDoubling(), "halving-doubling": HalvingDoubling(),
    "double-binary-tree": DoubleBinaryTree(), "hoplite": Hoplite(), "nccl": NCCL(),
    "parameter-servers": ParameterServers(), "split-servers": SplitServers(),
}  # fmt: skip


def algorithm_of(wanted: str | object) -> Algorithm:
    """An algorithm, by its name or itself."""
    return COLLECTIVES[wanted] if isinstance(wanted, str) else cast("Algorithm", wanted)


def name_of(algorithm: Algorithm) -> str:
    """Its name, or that of its type."""
    own = type(algorithm)
    return next((name for name, one in COLLECTIVES.items() if type(one) is own), own.__name__)
