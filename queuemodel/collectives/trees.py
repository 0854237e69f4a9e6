"""All-reduce along trees: sums go up, the total comes down."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..checks import require_count
from .link import Link, Size
from .schedule import Schedule, Transfer


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

    def time(self, message_bytes: Size, nodes: int, link: Link) -> Size:
        """2 (h + k - 1) (α + V/(k B)) + V γ with k blocks and trees of height h = ⌊lg n⌋; n V/B on two and three nodes.

        With the best k that is 2 (α h + V/B + O(√(α h V/B))). Approximate: its schedule, in which one block comes down
        while the next goes up, takes 96 to 104 % of it with 24 blocks on 2 to 32 nodes.
        """
        if nodes == 1:
            return 0.0 * message_bytes
        h = nodes.bit_length() - 1
        transit = min(nodes / 4, 1.0) * message_bytes / link.bandwidth  # no node of few has two children and a parent
        adding = message_bytes * link.reduction_time
        if link.latency == 0 and not self.blocks:
            return 2 * transit + adding
        k = self.blocks or np.maximum(1.0, np.sqrt((h - 1) * transit / link.latency))
        return 2 * ((h + k - 1) * link.latency + (1 + (h - 1) / k) * transit) + adding

    def schedule(self, nodes: int) -> Schedule:
        """Half of the pieces for each tree (16 blocks unless `blocks` says more or less)."""
        n, k = require_count(nodes, "double binary tree: nodes"), self.blocks or 16
        up: list[list[Transfer]] = [[] for _ in range(n.bit_length())]
        down: list[list[Transfer]] = [[] for _ in range(n.bit_length())]
        for tree, parents in enumerate(two_trees(n)):
            for node, parent in enumerate(parents):
                if parent is None:
                    continue
                depth = depth_of(parents, node)
                for block in range(tree * k, (tree + 1) * k):
                    up[-depth].append(one := Transfer(node, parent, range(block, block + 1), True))
                    down[depth - 1].append(one.back)
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


def depth_of(parents: list[int | None], node: int) -> int:
    """How far a node is from the root."""
    depth, parent = 0, parents[node]
    while parent is not None:
        depth, parent = depth + 1, parents[parent]
    return depth
