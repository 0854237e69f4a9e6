"""Reduce and broadcast of objects that arrive one by one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..checks import require_count
from .link import Link, Size
from .schedule import Schedule, Transfer
from .trees import depth_of


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
        """⌈lg n⌉ α + V/B: receivers pass on what they have got so far; approximate, a lower bound of any broadcast."""
        if nodes == 1:
            return 0.0
        return (nodes - 1).bit_length() * link.latency + message_bytes / link.bandwidth

    def time(self, message_bytes: Size, nodes: int, link: Link) -> Size:
        """A reduce, then a broadcast, which two nodes do at once, on links of two directions; approximate."""
        if isinstance(message_bytes, np.ndarray):
            return np.array([self.time(float(size), nodes, link) for size in message_bytes])
        sent = message_bytes if nodes > 2 else 0.0
        return self.reduce_time(message_bytes, nodes, link) + self.broadcast_time(sent, nodes, link)

    def schedule(self, nodes: int, *, depth: int = 0, blocks: int = 64) -> Schedule:
        """A tree of ``depth`` with chains below up to node 0, and down a chain; ``blocks`` follow each other."""
        n = require_count(nodes, "Hoplite: nodes")
        parents = _tree_with_chains(n, depth)
        down: list[list[Transfer]] = []
        up: list[list[Transfer]] = [[] for _ in range(n)]
        for node in range(1, n):
            level = depth_of(parents, node)
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
