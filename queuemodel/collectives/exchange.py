"""All-reduce among equals: each node exchanges pieces with others, nobody is special."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..checks import require_count
from .link import Link, Size
from .schedule import Algorithm, Schedule, Transfer

Rounds = tuple[tuple[Transfer, ...], ...]


@dataclass(frozen=True, slots=True)
class Ring:
    """Reduce-scatter, then all-gather, around a ring: least bytes, most messages (Patarasuk and Yuan, 2009)."""

    def time(self, message_bytes: Size, nodes: int, link: Link) -> Size:
        """2 (n-1) α + 2 (n-1)/n V/B + (n-1)/n V γ; exact for its schedule."""
        n, share = nodes, (nodes - 1) / nodes * message_bytes
        return 2 * (n - 1) * link.latency + 2 * share / link.bandwidth + share * link.reduction_time

    def schedule(self, nodes: int) -> Schedule:
        """n pieces; each goes once around to be summed and once more to be known."""
        n = require_count(nodes, "ring: nodes")
        pieces = [range(i, i + 1) for i in range(n)]
        return Schedule(n, n, (1 / n,) * n, _around(range(n), pieces, reduce=True) + _around(range(n), pieces))


@dataclass(frozen=True, slots=True)
class RecursiveDoubling:
    """Everything to a partner at doubled distance each time: fewest messages, most bytes.

    Thakur, Rabenseifner and Gropp (2005); for n that are no power of two in the order of Bar-Noy, Kipnis and Schieber
    (1993), which needs no more rounds: a node keeps the sum of the k nodes before it with and without its own part, and
    sends the one or the other so that k goes through the leading bits of n - 1.
    """

    def time(self, message_bytes: Size, nodes: int, link: Link) -> Size:
        """⌈lg n⌉ (α + V/B + V γ); exact for its schedule."""
        seconds = link.latency + message_bytes / link.bandwidth + message_bytes * link.reduction_time
        return (nodes - 1).bit_length() * seconds

    def schedule(self, nodes: int) -> Schedule:
        """Piece 0 is the sum with the node's own part, piece 1 without."""
        n, k, rounds = require_count(nodes, "recursive doubling: nodes"), 0, []
        for bit in f"{n - 1:b}" if n > 1 else "":
            own = bit == "1"
            piece, distance = (range(1), k + 1) if own else (range(1, 2), k)
            rounds.append(tuple(Transfer(i, (i + distance) % n, piece, True, (0, 1)) for i in range(n)))
            k = 2 * k + own
        return Schedule(n, n, (1.0, 1.0), tuple(rounds), result=1, blocking=True)


@dataclass(frozen=True, slots=True)
class HalvingDoubling:
    """Reduce-scatter by halving, all-gather by doubling (Rabenseifner, 2004): few messages and least bytes.

    Of n nodes that are no power of two, as many as are too many give their data to a neighbour before and get the sum
    after it.
    """

    def time(self, message_bytes: Size, nodes: int, link: Link) -> Size:
        """2 lg n α + 2 (n-1)/n V/B + (n-1)/n V γ for n = 2^k, else 2 messages, 2 V/B and V γ more; exact."""
        p = 1 << (nodes.bit_length() - 1)
        V, share = message_bytes, (p - 1) / p * message_bytes
        seconds = 2 * (p.bit_length() - 1) * link.latency + 2 * share / link.bandwidth + share * link.reduction_time
        return seconds + (p < nodes) * (2 * (link.latency + V / link.bandwidth) + V * link.reduction_time)

    def schedule(self, nodes: int) -> Schedule:
        """As many pieces as the largest power of two in n."""
        n = require_count(nodes, "halving-doubling: nodes")
        p = 1 << (n.bit_length() - 1)
        extra, every = n - p, range(p)
        at = [2 * i if i < extra else i + extra for i in range(p)]
        halving, distance = [], p // 2
        while distance:
            one = []
            for i in range(p):
                first = (i ^ distance) // distance * distance  # the half that the partner keeps
                one.append(Transfer(at[i], at[i ^ distance], range(first, first + distance), True))
            halving.append(tuple(one))
            distance //= 2
        doubling = [tuple(t.back for t in one) for one in reversed(halving)]
        fold = tuple(Transfer(2 * i + 1, 2 * i, every, True) for i in range(extra))
        unfold = tuple(t.back for t in fold)
        rounds = [one for one in (fold, *halving, *doubling, unfold) if one]
        return Schedule(n, n, (1 / p,) * p, tuple(rounds), blocking=True)


@dataclass(frozen=True, slots=True)
class Hierarchical:
    """Ranks on nodes: rings inside the nodes, an algorithm between them on the share that each rank then holds.

    With rings between the nodes, it is Horovod's hierarchical all-reduce. A last node that is not full is treated like
    a full one, in the schedule too.

    Parameters
    ----------
    ranks_per_node : int
    inside : Link
        Costs between two ranks of a node.
    between : Algorithm, default Ring()
        Between the nodes; their ranks' shares go through it at the same time.
    cards : int, default 1
        Network cards of a node, shared by its ranks.
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
        shared = Link(link.bandwidth * self.cards / g, latency=link.latency, reduction_time=link.reduction_time)
        between = self.between.time(message_bytes / g, self.machines(nodes), shared)
        return Ring().time(message_bytes, g, self.inside) + between

    def schedule(self, nodes: int) -> Schedule:
        """Ranks are numbered node by node, servers come after all of them."""
        g = min(require_count(nodes, "hierarchical: nodes"), self.ranks_per_node)
        N = self.machines(nodes)
        between = self.between.schedule(N)
        R, own = between.result, range(len(between.sizes))

        def moved(t: Transfer, rank: int) -> Transfer:
            """A transfer of the share of which this rank of each node holds the sum."""
            share = (rank + 1) % g
            places = [share * R + piece if piece < R else (g - 1) * R + share * (len(own) - R) + piece for piece in own]
            first = places[t.pieces.start]
            pieces, into = range(first, first + len(t.pieces)), tuple(places[piece] for piece in t.into)
            start, end = (node * g + rank if node < N else N * (g - 1) + node for node in (t.source, t.destination))
            return Transfer(start, end, pieces, t.reduce, into)

        shares = [range(i * R, (i + 1) * R) for i in range(g)]
        inside = [range(node * g, (node + 1) * g) for node in range(N)]
        scatter = _together([_around(ranks, shares, reduce=True) for ranks in inside])
        gather = _together([_around(ranks, shares) for ranks in inside])
        rings = tuple(tuple(moved(t, rank) for rank in range(g) for t in one) for one in between.rounds)
        sizes = tuple(size / g for of in (between.sizes[:R] * g, between.sizes[R:] * g) for size in of)
        servers = between.nodes - N
        return Schedule(N * g + servers, N * g, sizes, scatter + rings + gather, R * g, between.blocking)


def _around(ranks: Sequence[int], pieces: Sequence[range], *, reduce: bool = False) -> Rounds:
    """n - 1 rounds of a ring: rank i comes to have the sum of piece i + 1 (``reduce``), or from there all pieces."""
    n, ahead = len(ranks), 0 if reduce else 1
    return tuple(
        tuple(Transfer(ranks[i], ranks[(i + 1) % n], pieces[(i + ahead - step) % n], reduce) for i in range(n))
        for step in range(n - 1)
    )


def _together(parts: Sequence[Rounds]) -> Rounds:
    """Several sequences of rounds at the same time."""
    return tuple(tuple(t for one in together for t in one) for together in zip(*parts, strict=True))
