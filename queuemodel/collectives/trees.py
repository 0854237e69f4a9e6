"""All-reduce along trees: sums go up, the total comes down."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ..checks import require_count
from ..errors import ModelError
from .link import Link
from .schedule import Schedule, Transfer
from .topology import Topology


@dataclass(frozen=True, slots=True)
class DoubleBinaryTree:
    """Two binary trees, each for half of the data, in which no node is inside both (Sanders, Speck and Träff, 2009).

    Parameters
    ----------
    blocks : int, optional
        Of each half, which follow each other through the trees; the best number unless given.
    """

    blocks: int | None = None

    def __post_init__(self) -> None:
        if self.blocks is not None:
            require_count(self.blocks, "double binary tree: blocks")

    def time(self, message_bytes: float, nodes: int, link: Link) -> float:
        """2 (h + k - 1) (α + V/(k B)) + V γ with k blocks and trees of height h = ⌊lg n⌋.

        With the best k that is 2 (α h + V/B + O(√(α h V/B))). Approximate: its schedule, in which one block comes down
        while the next goes up, takes 97 to 101 % of it with 24 blocks on 4 to 32 nodes, less on fewer.
        """
        if nodes == 1:
            return 0.0
        h, transit = nodes.bit_length() - 1, message_bytes / link.bandwidth
        k: float = self.blocks or 0
        if not k:
            k = max(1.0, math.sqrt((h - 1) * transit / link.latency)) if link.latency > 0 else math.inf
        filled = (h + k - 1) * link.latency if k < math.inf else 0.0
        return 2 * (filled + (1 + (h - 1) / k) * transit) + message_bytes * link.reduction_time

    def schedule(self, nodes: int) -> Schedule:
        """Half of the pieces for each tree (16 blocks unless `blocks` says more or less)."""
        n, k = require_count(nodes, "double binary tree: nodes"), self.blocks or 16
        up: list[list[Transfer]] = [[] for _ in range(n.bit_length())]
        down: list[list[Transfer]] = [[] for _ in range(n.bit_length())]
        for tree, parents in enumerate(two_trees(n)):
            for node, parent in enumerate(parents):
                if parent is None:
                    continue
                depth = _depth(parents, node)
                for block in range(tree * k, (tree + 1) * k):
                    up[-depth].append(Transfer(node, parent, range(block, block + 1), True))
                    down[depth - 1].append(Transfer(parent, node, range(block, block + 1), False))
        rounds = [tuple(sorted(one, key=lambda t: t.pieces.start % k)) for one in up + down if one]
        return Schedule(n, n, (0.5 / k,) * (2 * k), tuple(rounds))


def two_trees(nodes: int) -> tuple[list[int | None], list[int | None]]:
    """Parents of each node in two binary trees; whoever is inside one is a leaf of the other."""
    first: list[int | None] = [None] * nodes
    for x in range(1, nodes + 1):  # in-order: as many levels above the leaves as x has trailing zeros
        half = (x & -x) >> 1
        while half:
            for child in (x - half, x + half):
                if child <= nodes and first[child - 1] is None and _is_child(x, child, nodes):
                    first[child - 1] = x - 1
            half >>= 1
    move = [(i + 1) % nodes if nodes % 2 else nodes - 1 - i for i in range(nodes)]  # shifted by one, or mirrored
    second: list[int | None] = [None] * nodes
    for node, parent in enumerate(first):
        second[move[node]] = None if parent is None else move[parent]
    return first, second


def _is_child(x: int, child: int, nodes: int) -> bool:
    half = (x & -x) >> 1
    if child < x:
        return child == x - half
    while x + half > nodes:  # the right half is cut off: its largest whole part hangs here
        half >>= 1
    return half > 0 and child == x + half


def _depth(parents: list[int | None], node: int) -> int:
    depth, parent = 0, parents[node]
    while parent is not None:
        depth, parent = depth + 1, parents[parent]
    return depth


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

    def time(self, message_bytes: float, nodes: int, link: Link) -> float:
        """2 S (α + V/(n B)) + (n-1)/n V γ; never below what its schedule takes on its topology.

        Raises
        ------
        ModelError
            When the topology has another number of nodes.
        """
        self._require(nodes)
        part = message_bytes / nodes
        adding = (nodes - 1) * part * link.reduction_time
        return 2 * self.steps * (link.latency + part / link.bandwidth) + adding

    def schedule(self, nodes: int) -> Schedule:
        """Piece i goes up tree i, whose joins run backwards, and down again."""
        self._require(nodes)
        down: list[list[Transfer]] = [[] for _ in range(self.steps)]
        for step, tree, parent, child in self.joins:
            down[step - 1].append(Transfer(parent, child, range(tree, tree + 1), False))
        up = [tuple(Transfer(t.destination, t.source, t.pieces, True) for t in one) for one in reversed(down)]
        return Schedule(nodes, nodes, (1 / nodes,) * nodes, (*up, *map(tuple, down)))

    def _require(self, nodes: int) -> None:
        if nodes != self.topology.nodes:
            raise ModelError(f"MultiTree: its topology has {self.topology.nodes} nodes, not {nodes}")


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


@dataclass(frozen=True, slots=True)
class Hoplite:
    """Reduce of objects in the order of their arrival, along a tree with chains below (Zhuang et al., SIGCOMM 2021).

    Small objects take a shallow tree, since latency counts; large ones a chain, whose links all carry the object once.
    The all-reduce reduces to one node, which then sends the sum down a binomial tree of receivers that pass on what
    they have got so far. The cost forms are ours, after the paper's L log n + d V/B of a tree of degree d.
    """

    def chain_cap(self, message_bytes: float, link: Link) -> int:
        """The most objects of a chain that is worth it: round(V / (B L)), very long without latency."""
        if link.latency == 0:
            return 1 << 40
        return round(message_bytes / (link.bandwidth * link.latency))

    def depth(self, message_bytes: float, objects: int, link: Link) -> int:
        """Depth of the binary tree above the chains for so many objects to be reduced to a receiver; 0: one chain."""
        m, k = objects + 1, self.chain_cap(message_bytes, link)
        return max(0, min(math.ceil(math.log2((m + 1) / (k + 1))), math.floor(math.log2(m + 1))))

    def reduce_time(self, message_bytes: float, nodes: int, link: Link) -> float:
        """(d + c - 1) α + V/B (2 V/B if d > 0) + V γ, with chains of c objects below a tree of depth d; approximate."""
        if nodes == 1:
            return 0.0
        d = self.depth(message_bytes, nodes - 1, link)
        chain = math.ceil((nodes - (2**d - 1)) / 2**d)
        hops = d + chain - 1
        transit = (2 if d else 1) * message_bytes / link.bandwidth
        return hops * link.latency + transit + message_bytes * link.reduction_time

    def broadcast_time(self, message_bytes: float, nodes: int, link: Link) -> float:
        """⌈lg n⌉ α + V/B: receivers pass on what they have got so far; approximate, a lower bound of any broadcast."""
        if nodes == 1:
            return 0.0
        return (nodes - 1).bit_length() * link.latency + message_bytes / link.bandwidth

    def time(self, message_bytes: float, nodes: int, link: Link) -> float:
        """A reduce, then a broadcast; approximate."""
        return self.reduce_time(message_bytes, nodes, link) + self.broadcast_time(message_bytes, nodes, link)

    def schedule(self, nodes: int, *, depth: int = 0, blocks: int = 64) -> Schedule:
        """A tree of ``depth`` with chains below up to node 0, and down a chain; ``blocks`` follow each other."""
        n = require_count(nodes, "Hoplite: nodes")
        parents = _tree_with_chains(n, depth)
        down: list[list[Transfer]] = []
        up: list[list[Transfer]] = [[] for _ in range(n)]
        for node in range(1, n):
            level = _depth(parents, node)
            up[-level] += [Transfer(node, parents[node] or 0, range(b, b + 1), True) for b in range(blocks)]
            down.append([Transfer(node - 1, node, range(b, b + 1), False) for b in range(blocks)])
        return Schedule(n, n, (1 / blocks,) * blocks, tuple(tuple(one) for one in up + down if one))


def _tree_with_chains(nodes: int, depth: int) -> list[int | None]:
    """Parents: a binary tree of 2**depth - 1 nodes from node 0, and equal chains below its leaves."""
    inner = min(2**depth - 1, nodes)
    parents: list[int | None] = [None if i == 0 else (i - 1) // 2 for i in range(inner)]
    if inner == 0:
        return [None, *range(nodes - 1)]
    ends = [(slot - 1) // 2 for slot in range(inner, 2 * inner + 1)]
    for node in range(inner, nodes):
        slot = (node - inner) % len(ends)
        parents.append(ends[slot])
        ends[slot] = node
    return parents
