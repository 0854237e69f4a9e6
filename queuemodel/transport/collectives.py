"""Collectives, kind by algorithm: their time, and what travels between which nodes; of several ranks, and in racks.

Bytes are always those of the whole data: what an all-reduce sums, a reduce-scatter is given, an all-gather gives, one
node of an all-to-all deals out, a broadcast brings to all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from ..base.checks import FASTEST_LINK, require_count, require_number
from ..base.errors import ModelError

#: Bytes of one message, or of many, and the seconds that they take.
Size = TypeVar("Size", float, np.ndarray)

#: For each part of an all-reduce, rows of (source, destination, share of the data).
Traffic = list[np.ndarray]


@dataclass(frozen=True, slots=True)
class Link:
    """Costs of a message between two nodes whose links have the same bandwidth in each direction."""

    bandwidth: float  #: bytes per second of a node's link, each direction
    _: KW_ONLY
    latency: float = 0.0  #: seconds per message, whatever its size
    reduction_time: float = 0.0  #: seconds per byte that is added to what a node has

    def __post_init__(self) -> None:
        require_number(self.bandwidth, "link: bandwidth", unit="bytes per second", positive=True, largest=FASTEST_LINK)
        require_number(self.latency, "link: latency", unit="seconds")
        require_number(self.reduction_time, "link: reduction_time", unit="seconds per byte")


#: All-reduces consist of the two others: of each, how often data travel and are added, in units of (n-1)/n of them.
HALVES = {"all-reduce": (2, 1), "reduce-scatter": (1, 1), "all-gather": (1, 0)}


class Algorithm(Protocol):
    """An algorithm of collectives, by default of all-reduces."""

    def time(self, message_bytes: Size, nodes: int, link: Link, *, kind: str = "all-reduce") -> Size:
        """Seconds until all ``nodes`` have the result of a collective of ``message_bytes`` bytes (arrays too).

        Raises
        ------
        ModelError
            For a kind of collective that the algorithm has not.
        """

    def traffic(self, nodes: int) -> Traffic:
        """Who sends how much to whom; a list of parts that follow each other, each with all that travels in it."""


def require_kind(kind: str, known: Iterable[str], algorithm: object) -> None:
    """Refuse a kind of collective that an algorithm has not (raises ModelError)."""
    if kind not in known:
        raise ModelError(f"{type(algorithm).__name__} has no {kind}, only {', '.join(known)}; Ring has more")


@dataclass(frozen=True, slots=True)
class Ring:
    """Reduce-scatter, then all-gather, around a ring: least bytes, most messages (Patarasuk and Yuan, 2009)."""

    def time(self, message_bytes: Size, nodes: int, link: Link, *, kind: str = "all-reduce") -> Size:
        """2 (n-1) α + 2 (n-1)/n V/B + (n-1)/n V γ; exact for its schedule.

        Half of α and 1/B for a reduce-scatter, for an all-gather without γ. The same for an all-to-all, in which each
        node sends to one after the other: exact where the network between them is not full.
        """
        require_kind(kind, (*HALVES, "all-to-all"), self)
        n, share = nodes, (nodes - 1) / nodes * message_bytes
        travels, added = HALVES.get(kind, (1, 0))
        return travels * ((n - 1) * link.latency + share / link.bandwidth) + added * share * link.reduction_time

    def traffic(self, nodes: int) -> Traffic:
        """Each piece of 1/n goes once around to be summed and once more to be known."""
        i = np.arange(nodes)
        return [_rows(i, (i + 1) % nodes, 2 * (nodes - 1) / nodes)] if nodes > 1 else []


@dataclass(frozen=True, slots=True)
class RecursiveDoubling:
    """Everything to a partner at doubled distance each time: fewest messages, most bytes.

    Thakur, Rabenseifner and Gropp (2005); for n that are no power of two in the order of Bar-Noy, Kipnis and Schieber
    (1993), which needs no more rounds: a node keeps the sum of the k nodes before it with and without its own part, and
    sends the one or the other so that k goes through the leading bits of n - 1.
    """

    def time(self, message_bytes: Size, nodes: int, link: Link, *, kind: str = "all-reduce") -> Size:
        """⌈lg n⌉ (α + V/B + V γ); exact for its schedule."""
        require_kind(kind, ["all-reduce"], self)
        seconds = link.latency + message_bytes / link.bandwidth + message_bytes * link.reduction_time
        return (nodes - 1).bit_length() * seconds

    def distances(self, nodes: int) -> list[tuple[int, bool]]:
        """How far ahead each round's partner is, and whether a node's own part is in the sum that it sends."""
        k, found = 0, []
        for bit in f"{nodes - 1:b}" if nodes > 1 else "":
            own = bit == "1"
            found.append((k + own, own))
            k = 2 * k + own
        return found

    def traffic(self, nodes: int) -> Traffic:
        """All the data in each round."""
        i = np.arange(nodes)
        return [_rows(i, (i + distance) % nodes, 1.0) for distance, _ in self.distances(nodes)]


@dataclass(frozen=True, slots=True)
class HalvingDoubling:
    """Reduce-scatter by halving, all-gather by doubling (Rabenseifner, 2004): few messages and least bytes.

    Of n nodes that are no power of two, as many as are too many give their data to a neighbour before and get the sum
    after it.
    """

    def time(self, message_bytes: Size, nodes: int, link: Link, *, kind: str = "all-reduce") -> Size:
        """2 lg n α + 2 (n-1)/n V/B + (n-1)/n V γ for n = 2^k, else 2 messages, 2 V/B and V γ more; exact.

        Half of α and 1/B for a reduce-scatter, for an all-gather without γ; then neighbours share a piece of 1/2^k, so
        that of the two more messages one has V, the other half a piece.
        """
        require_kind(kind, HALVES, self)
        p, (travels, added) = 1 << (nodes.bit_length() - 1), HALVES[kind]
        V, share = message_bytes, (p - 1) / p * message_bytes
        message = (p.bit_length() - 1) * link.latency + share / link.bandwidth
        seconds = travels * message + added * share * link.reduction_time
        sent = 2.0 if kind == "all-reduce" else 1 + 1 / (2 * p)
        return seconds + (p < nodes) * (2 * link.latency + sent * V / link.bandwidth + added * V * link.reduction_time)

    def traffic(self, nodes: int) -> Traffic:
        """A half, a quarter, ... of the data to partners at half, a quarter, ... of the nodes, and back."""
        p = 1 << (nodes.bit_length() - 1)
        i, extra = np.arange(p), nodes - p
        at = np.where(i < extra, 2 * i, i + extra)
        halving = [_rows(at, at[i ^ (p >> s)], 0.5**s) for s in range(1, p.bit_length())]
        odd = 2 * np.arange(extra) + 1
        around = [_rows(odd, odd - 1, 1.0), _rows(odd - 1, odd, 1.0)] if extra else []
        return around + 2 * halving


@dataclass(frozen=True, slots=True)
class DoubleBinaryTree:
    """Two binary trees, each for half of the data, in which no node is inside both (Sanders, Speck and Träff, 2009).

    Of each half ``blocks`` follow each other through the trees; the best number unless given.
    """

    blocks: int | None = None

    def __post_init__(self) -> None:
        if self.blocks is not None:
            require_count(self.blocks, "double binary tree: blocks")

    def time(self, message_bytes: Size, nodes: int, link: Link, *, kind: str = "all-reduce") -> Size:
        """2 (h + k - 1) (α + V/(k B)) + V γ with k blocks and trees of height h = ⌊lg n⌋; n V/B on two and three nodes.

        With the best k that is 2 (α h + V/B + O(√(α h V/B))). Approximate: its schedule, in which one block comes down
        while the next goes up, takes 96 to 104 % of it with 24 blocks on 2 to 32 nodes.
        """
        require_kind(kind, ["all-reduce"], self)
        if nodes == 1:
            return 0.0 * message_bytes
        h = nodes.bit_length() - 1
        transit = min(nodes / 4, 1.0) * message_bytes / link.bandwidth  # no node of few has two children and a parent
        adding = message_bytes * link.reduction_time
        if link.latency == 0 and not self.blocks:
            return 2 * transit + adding
        k = self.blocks or np.maximum(1.0, np.sqrt((h - 1) * transit / link.latency))
        return 2 * ((h + k - 1) * link.latency + (1 + (h - 1) / k) * transit) + adding

    def trees(self, nodes: int) -> tuple[list[int | None], list[int | None]]:
        """Parents of each node in the two trees; a node inside one is a leaf of the other."""
        first: list[int | None] = [None] * nodes
        for x in range(1, nodes + 1):  # in-order: as many levels above the leaves as x has trailing zeros
            half = (x & -x) >> 1
            if half:
                first[x - half - 1] = x - 1
            while half and x + half > nodes:  # the right half is cut off: its largest whole part hangs here
                half >>= 1
            if half:
                first[x + half - 1] = x - 1
        move = [(i + 1) % nodes if nodes % 2 else nodes - 1 - i for i in range(nodes)]  # shifted by one, or mirrored
        second: list[int | None] = [None] * nodes
        for node, parent in enumerate(first):
            second[move[node]] = None if parent is None else move[parent]
        return first, second

    def traffic(self, nodes: int) -> Traffic:
        """Half of the data up and down each tree, however many blocks."""
        pairs = [(i, up) for tree in self.trees(nodes) for i, up in enumerate(tree) if up is not None]
        child, parent = np.array(pairs).reshape(-1, 2).T
        return [np.vstack([_rows(child, parent, 0.5), _rows(parent, child, 0.5)])] if pairs else []


@dataclass(frozen=True, slots=True)
class NCCL:
    """As NCCL does it: by trees where messages are small, by rings where they are large.

    An approximation of its many protocols, which needs no table of them. Between 64 kB and 4 MB it takes two to five
    times as long.
    """

    def time(self, message_bytes: Size, nodes: int, link: Link, *, kind: str = "all-reduce") -> Size:
        """(1 + 2 lg n) α + 2 (n-1)/n V/B + (n-1)/n V γ: a tree's latency, a ring's bytes. One node: nothing.

        All else goes around a ring.
        """
        if kind != "all-reduce":
            return Ring().time(message_bytes, nodes, link, kind=kind)
        share = (nodes - 1) / nodes * message_bytes
        latency = (nodes > 1) * (1 + 2 * math.log2(nodes)) * link.latency
        return latency + 2 * share / link.bandwidth + share * link.reduction_time

    def traffic(self, nodes: int) -> Traffic:
        """A ring's."""
        return Ring().traffic(nodes)


@dataclass(frozen=True, slots=True)
class ParameterServers:
    """Servers on nodes of their own, each with an equal share of the data (Li et al., 2014)."""

    servers: int = 1

    def __post_init__(self) -> None:
        require_count(self.servers, "parameter servers: servers")

    def time(self, message_bytes: Size, nodes: int, link: Link, *, kind: str = "all-reduce") -> Size:
        """2 (α + max(n/s, 1) V/B) + n/s V γ: all push, then all fetch; exact for its schedule. One node: nothing."""
        require_kind(kind, ["all-reduce"], self)
        if nodes == 1:
            return 0.0 * message_bytes
        per_server = nodes / self.servers
        V = message_bytes
        return 2 * (link.latency + max(per_server, 1.0) * V / link.bandwidth) + per_server * V * link.reduction_time

    def traffic(self, nodes: int) -> Traffic:
        """Workers are the first ``nodes`` nodes, servers those after them."""
        worker, server = np.divmod(np.arange(nodes * self.servers), self.servers)
        share = 1 / self.servers
        both = [_rows(worker, nodes + server, share), _rows(nodes + server, worker, share)]
        return [np.vstack(both)] if nodes > 1 else []


@dataclass(frozen=True, slots=True)
class SplitServers:
    """A server beside every worker and ``extra`` ones on nodes of their own, loaded so that all links are equally busy.

    The split of BytePS (Jiang et al., OSDI 2020). Without extra servers it moves as many bytes as a ring; with as many
    as workers, half of them.
    """

    extra: int = 0

    def __post_init__(self) -> None:
        require_count(self.extra, "split servers: extra", least=0)

    @property
    def servers(self) -> int:
        """Nodes beside those of the workers."""
        return self.extra

    def extra_share(self, nodes: int) -> float:
        """Share of the data on the extra servers: 2 k (n-1) / (n² + k n - 2 k), all of it for k >= n."""
        n, k = nodes, self.extra
        return 2 * k * (n - 1) / (n * n + k * n - 2 * k) if k < n else 1.0

    def time(self, message_bytes: Size, nodes: int, link: Link, *, kind: str = "all-reduce") -> Size:
        """2 n (n-1) / (n² + k n - 2 k) V/B, with latency for a push and a fetch; the limit of small blocks.

        For more extra servers than workers the workers' own links limit: V/B. A schedule of k blocks takes 1/(2 k)
        longer (with almost as many extra servers as workers 2 % more), and a latency for each of its rounds.
        """
        require_kind(kind, ["all-reduce"], self)
        n, k = nodes, min(self.extra, nodes)
        if n == 1:
            return 0.0 * message_bytes
        volume = 2 * n * (n - 1) / (n * n + k * n - 2 * k)
        share = max((n - 1) * (1 - self.extra_share(n)) / n, n * self.extra_share(n) / max(self.extra, 1))
        adding = share * message_bytes * link.reduction_time
        return 2 * link.latency + max(volume, 1.0) * message_bytes / link.bandwidth + adding

    def traffic(self, nodes: int) -> Traffic:
        """Workers, each with a server, are the first ``nodes`` nodes, the extra servers those after them."""
        if nodes == 1:
            return []
        n, x = nodes, self.extra_share(nodes)
        worker, server = np.divmod(np.arange(n * (n + self.extra)), n + self.extra)
        share = np.where(server < n, (1 - x) / n, x / max(self.extra, 1))
        push = _rows(worker, server, share)[worker != server]
        return [np.vstack([push, push[:, [1, 0, 2]]])]


def _rows(source: np.ndarray, destination: np.ndarray, share: float | np.ndarray) -> np.ndarray:
    return np.column_stack([source, destination, np.broadcast_to(share, np.shape(source))])


def _time(algorithm: Algorithm, message_bytes: Size, nodes: int, link: Link, kind: str) -> Size:
    """An algorithm's time; one of your own may be of all-reduces alone."""
    kinds = {} if kind == "all-reduce" else {"kind": kind}
    return algorithm.time(message_bytes, nodes, link, **kinds)


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
        """Nodes of n ranks."""
        return -(-ranks // self.ranks_per_node)

    def time(self, message_bytes: Size, nodes: int, link: Link, *, kind: str = "all-reduce") -> Size:
        """Of ``nodes`` ranks: a ring of V bytes inside a node, and ``between`` of V/g bytes for each of its g ranks.

        So an all-gather over N nodes takes (N-1)/N V/B and N - 1 messages between them.
        """
        require_kind(kind, HALVES, self)
        g = min(nodes, self.ranks_per_node)
        shared = replace(link, bandwidth=link.bandwidth * self.cards / g)
        between = _time(self.between, message_bytes / g, self.machines(nodes), shared, kind)
        return Ring().time(message_bytes, g, self.inside, kind=kind) + between

    def traffic(self, nodes: int) -> Traffic:
        """Of ``nodes`` ranks: traffic between their nodes."""
        return self.between.traffic(self.machines(nodes))


@dataclass(frozen=True, slots=True)
class InRacks:
    """An algorithm on nodes in racks, numbered rack by rack, whose links up carry less than their nodes send."""

    algorithm: Algorithm
    nodes_per_rack: int
    linked: ClassVar = True
    oversubscription: float = 1.0  #: bandwidth of a rack's nodes over that of its link up

    def __post_init__(self) -> None:
        require_count(self.nodes_per_rack, "in racks: nodes_per_rack")
        require_number(self.oversubscription, "in racks: oversubscription", positive=True)
        if getattr(self.algorithm, "linked", False):
            name = type(self.algorithm).__name__
            raise ModelError(f"in racks: {name} already specifies the links; leave one of both out")

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

    def time(self, message_bytes: Size, nodes: int, link: Link, *, kind: str = "all-reduce") -> Size:
        """The algorithm's, with each node's bandwidth divided by `slowdown`; approximate but for rings."""
        slower = replace(link, bandwidth=link.bandwidth / self.slowdown(nodes))
        return _time(self.algorithm, message_bytes, nodes, slower, kind)

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


def exchange_time(algorithm: Any, partners: np.ndarray, message_bytes: Size, link: Link) -> Size:
    """Seconds in which every rank sends so much to each of its ``partners``, (n, n), where `algorithm` has the ranks.

    The latency of a rank's messages one after the other, and what the busiest link carries; exact if all send at once.
    """
    pairs = np.argwhere(partners & ~np.eye(len(partners), dtype=bool))
    if not len(pairs):
        return 0.0 * message_bytes
    placed = getattr(algorithm, "algorithm", algorithm)  # without racks
    nodes = pairs // getattr(placed, "ranks_per_node", 1)
    seconds = [_busiest(nodes, nodes[:, 0] != nodes[:, 1]) / link.bandwidth]
    if isinstance(algorithm, InRacks):
        racks, rate = nodes // algorithm.nodes_per_rack, link.bandwidth * algorithm.nodes_per_rack
        seconds.append(_busiest(racks, racks[:, 0] != racks[:, 1]) / rate * algorithm.oversubscription)
    if isinstance(placed, Hierarchical):
        seconds.append(_busiest(pairs, nodes[:, 0] == nodes[:, 1]) / placed.inside.bandwidth)
    return int(np.bincount(pairs[:, 0]).max()) * link.latency + max(seconds) * message_bytes


def _busiest(ends: np.ndarray, share: np.ndarray) -> float:
    """The most that one of them sends or receives, as a share of the data."""
    return max(float(np.bincount(ends[:, side], share).max()) for side in (0, 1))
