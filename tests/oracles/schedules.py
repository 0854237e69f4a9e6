"""Collectives as schedules: who sends which piece to whom; proven on numbers, timed on links shared max-min fairly."""

from typing import NamedTuple

import numpy as np

from queuemodel import transport as qc


class Transfer(NamedTuple):
    """Pieces that travel together, and are added at the destination or replace what is there, ``into`` other places."""

    source: int
    destination: int
    pieces: range | list
    reduce: bool
    into: range | list | None = None

    @property
    def places(self):
        return self.pieces if self.into is None else self.into

    @property
    def back(self):
        return Transfer(self.destination, self.source, self.pieces, False)


class Schedule(NamedTuple):
    """Rounds of transfers between nodes, workers first; the first ``result`` pieces are the data, others sums."""

    nodes: int
    workers: int
    sizes: list
    rounds: list
    result: int
    blocking: bool = False  # a node ends each round before it begins its next

    @property
    def transfers(self):
        return [t for one in self.rounds for t in one]

    def share(self, transfer):
        return sum(self.sizes[piece] for piece in transfer.pieces)

    def combine(self, values):
        """What each worker has at the end, when it starts with its row of values."""
        held = np.zeros((self.nodes, len(self.sizes)), dtype=values.dtype)
        held[: self.workers, : self.result] = values
        for one in self.rounds:
            sent = [held[t.source, list(t.pieces)] for t in one]
            for t, value in zip(one, sent, strict=True):
                held[t.destination, list(t.places)] = value + held[t.destination, list(t.places)] * t.reduce
        return held[: self.workers, : self.result]

    def after(self):
        """For each transfer, those whose end it waits for: what brought its pieces, and the one before on its way."""
        brought, way, turn, after = {}, {}, {}, []
        for one in self.rounds:
            first, mine = len(after), {}
            for t in one:
                needs = {i for piece in t.pieces for i in brought.get((t.source, piece), ())}
                needs |= set(way.get(t[:2], ())) | {i for node in t[:2] for i in turn.get(node, ())}
                way[t[:2]] = [len(after)]
                after.append(needs)
            for i, t in enumerate(one, first):
                for piece in t.places:
                    brought[t.destination, piece] = [*(brought.get((t.destination, piece), ()) if t.reduce else ()), i]
                for node in t[:2]:
                    mine.setdefault(node, []).append(i)
            turn |= mine if self.blocking else {}
        return after


def one(piece):
    return range(piece, piece + 1)


def around(ranks, pieces, *, reduce):
    """n - 1 rounds of a ring: rank i comes to have the sum of piece i + 1 (``reduce``), or from there all pieces."""
    n, ahead = len(ranks), 0 if reduce else 1
    steps = range(n - 1)
    return [
        [Transfer(ranks[i], ranks[(i + 1) % n], pieces[(i + ahead - s) % n], reduce) for i in range(n)] for s in steps
    ]


def schedule(algorithm, nodes, *, blocks=16, depth=0):
    """The schedule of an algorithm on so many nodes; ``blocks`` and ``depth`` of those that are pipelined."""
    n = nodes
    match algorithm:
        case qc.Ring() | qc.NCCL():  # of large messages
            pieces = [one(i) for i in range(n)]
            rounds = [r for reduce in (True, False) for r in around(range(n), pieces, reduce=reduce)]
            return Schedule(n, n, [1 / n] * n, rounds, n)
        case qc.RecursiveDoubling():  # piece 0: the sum with the node's own part; piece 1: without
            rounds = [
                [Transfer(i, (i + distance) % n, one(0 if own else 1), True, range(2)) for i in range(n)]
                for distance, own in algorithm.distances(n)
            ]
            return Schedule(n, n, [1.0, 1.0], rounds, 1, blocking=True)
        case qc.HalvingDoubling():
            p = 1 << (n.bit_length() - 1)
            at = [2 * i if i < n - p else i + n - p for i in range(p)]
            half = {d: [(i ^ d) // d * d for i in range(p)] for s in range(1, p.bit_length()) if (d := p >> s)}
            halving = [  # to the partner the half that it keeps
                [Transfer(at[i], at[i ^ d], range(first, first + d), True) for i, first in enumerate(kept)]
                for d, kept in half.items()
            ]
            fold = [[Transfer(2 * i + 1, 2 * i, range(p), True) for i in range(n - p)]] * (n > p)
            up = fold + halving
            return Schedule(n, n, [1 / p] * p, up + [[t.back for t in r] for r in reversed(up)], p, blocking=True)
        case qc.DoubleBinaryTree():
            k, levels = algorithm.blocks or blocks, n.bit_length()
            up, down = [[] for _ in range(levels)], [[] for _ in range(levels)]
            for tree, parents in enumerate(algorithm.trees(n)):
                for node, parent in enumerate(parents):
                    if parent is not None:
                        sent = [Transfer(node, parent, one(b), True) for b in range(tree * k, (tree + 1) * k)]
                        up[-level(parents, node)] += sent
                        down[level(parents, node) - 1] += [t.back for t in sent]
            rounds = [sorted(r, key=lambda t: t.pieces.start % k) for r in up + down if r]
            return Schedule(n, n, [0.5 / k] * (2 * k), rounds, 2 * k)
        case qc.ParameterServers():
            s = algorithm.servers
            push = [Transfer(i, n + k, one(k), True) for i in range(n) for k in range(s)]
            return Schedule(n + s, n, [1 / s] * s, [push, [t.back for t in push]] if n > 1 else [], s)
        case qc.SplitServers():
            return split(algorithm, n, blocks)
        case qc.Hoplite():
            parents, k = algorithm.tree(n, depth), blocks
            up = [[] for _ in range(n)]
            for node in range(1, n):
                up[-level(parents, node)] += [Transfer(node, parents[node], one(b), True) for b in range(k)]
            down = [[Transfer(node - 1, node, one(b), False) for b in range(k)] for node in range(1, n)]
            return Schedule(n, n, [1 / k] * k, [r for r in up + down if r], k)
        case qc.MultiTree():
            up = [[] for _ in range(algorithm.steps)]
            for step, tree, parent, child in algorithm.joins:
                up[-step].append(Transfer(child, parent, one(tree), True))
            return Schedule(n, n, [1 / n] * n, up + [[t.back for t in r] for r in reversed(up)], n)
        case qc.Hierarchical():
            return placed(algorithm, n, blocks)


def part(kind, algorithm, nodes):
    """A reduce-scatter or an all-gather, and the pieces that each node has the sum of after the first of them."""
    whole, n = schedule(algorithm, nodes), nodes
    p = n if isinstance(algorithm, qc.Ring) else 1 << (n.bit_length() - 1)
    fold = p < n
    half = [n - 1, p.bit_length() - 1 + fold][isinstance(algorithm, qc.HalvingDoubling)]
    rounds = whole.rounds[:half] if kind == "reduce-scatter" else whole.rounds[half:]
    if not fold:
        return whole._replace(rounds=rounds)
    halves = whole._replace(sizes=[size / 2 for size in whole.sizes for _ in (0, 1)], result=2 * p)
    rounds = [[t._replace(pieces=[2 * i + k for i in t.pieces for k in (0, 1)]) for t in one] for one in rounds]
    pairs = [(2 * i, 2 * i + 1, [2 * i + 1]) for i in range(n - p)]  # a neighbour has half of the piece
    if kind == "reduce-scatter":
        return halves._replace(rounds=[*rounds, [Transfer(a, b, pieces, False) for a, b, pieces in pairs]])
    return halves._replace(rounds=[[Transfer(b, a, pieces, False) for a, b, pieces in pairs], *rounds])


def level(parents, node):
    return 0 if parents[node] is None else 1 + level(parents, parents[node])


def split(algorithm, n, m):
    """A worker exchanges with n - k others at a time (n/16 where that is more), and always with all extra servers."""
    k, x = algorithm.extra, algorithm.extra_share(n)
    at_once, own = (max(n - k, n // 16), n * m) if k < n else (n, 0)  # own: pieces on servers beside workers
    turns = [range(first, min(first + at_once, n)) for first in range(1, n, at_once)]  # whose server: so far ahead
    later, parts = len(turns), 2 * m * len(turns)
    sizes = [(1 - x) / n / m] * own + [x / max(k, 1) / m * len(t) / (2 * (n - 1)) for t in turns] * (2 * m * k)
    rounds = [[] for _ in range(parts + later)]
    for part in range(parts):
        block, turn = divmod(part, 2 * later)
        for i in range(n):
            to = [(n + j, own + j * parts + part) for j in range(k)]
            if own and turn < later:
                to += [(server := (i + ahead) % n, server * m + block) for ahead in turns[turn]]
            rounds[part] += (pushes := [Transfer(i, server, one(piece), True) for server, piece in to])
            rounds[part + later] += [push.back for push in pushes]
    return Schedule(n + k, n, sizes or [1.0], [r for r in rounds if r], len(sizes) or 1, blocking=True)


def placed(algorithm, ranks, blocks):
    """Rings inside the nodes, whose ranks then take their share of what is between them; servers are the last nodes."""
    g, N = min(ranks, algorithm.ranks_per_node), algorithm.machines(ranks)
    between = schedule(algorithm.between, N, blocks=blocks)
    R, more = between.result, len(between.sizes) - between.result

    def moved(t, rank):
        share = (rank + 1) % g

        def there(pieces):
            return [share * R + p if p < R else g * R + share * more + p - R for p in pieces]

        ends = (node * g + rank if node < N else N * (g - 1) + node for node in t[:2])
        return Transfer(*ends, there(t.pieces), t.reduce, there(t.places))

    shares = [range(i * R, (i + 1) * R) for i in range(g)]
    rings = [
        [[t for step in steps for t in step] for steps in zip(*inside, strict=True)]
        for inside in ([around(range(a * g, a * g + g), shares, reduce=r) for a in range(N)] for r in (True, False))
    ]
    middle = [[moved(t, rank) for rank in range(g) for t in r] for r in between.rounds]
    sizes = [size / g for of in (between.sizes[:R] * g, between.sizes[R:] * g) for size in of]
    return Schedule(N * (g - 1) + between.nodes, N * g, sizes, rings[0] + middle + rings[1], R * g, between.blocking)


def routes(whole, *, ranks=1, inside=1e15, per_rack=10**9, oversubscription=1.0):
    """Links that each transfer crosses, of ranks, nodes and racks, and what each carries over what a node's does."""

    def node(p):
        return p // ranks if p < whole.workers else whole.workers // ranks + p - whole.workers

    found, carries = [], {"rank": inside, "node": 1.0, "rack": per_rack / oversubscription}
    for t in whole.transfers:
        at = {"rank": t[:2], "node": [node(p) for p in t[:2]], "rack": [node(p) // per_rack for p in t[:2]]}
        different = {kind: ends for kind, ends in at.items() if ends[0] != ends[1]}
        found.append([(kind, end, side) for kind, ends in different.items() for side, end in enumerate(ends)])
    return found, {link: carries[link[0]] for way in found for link in way}


def direct(whole):
    """A link of its own between any two nodes."""
    return [[t[:2]] for t in whole.transfers], {t[:2]: 1.0 for t in whole.transfers}


def execute(whole, message_bytes, link, cluster=None):
    """Seconds; a message travels after the latency, and is added after those that came to the node before it."""
    ways, capacities = cluster or routes(whole)
    names = {name: i for i, name in enumerate(capacities)}
    on = np.zeros((len(names), len(ways)), dtype=bool)
    for flow, way in enumerate(ways):
        on[[names[name] for name in way], flow] = True
    transfers, after = whole.transfers, whole.after()
    left = np.array([message_bytes * whole.share(t) for t in transfers])
    open_needs, followers = [len(needs) for needs in after], [[] for _ in after]
    for j, needs in enumerate(after):
        for i in needs:
            followers[i].append(j)
    starts = {i: link.latency for i, needs in enumerate(after) if not needs}
    free, done, now, flowing = np.zeros(whole.nodes), {}, 0.0, []
    while starts or flowing:
        rates = link.bandwidth * max_min_rates(on[:, flowing], np.array([*capacities.values()]))
        needed = left[flowing] / rates
        passed = min([*needed, *(max(0.0, time - now) for time in starts.values())])
        left[flowing] -= rates * passed
        now += passed
        ended = {i for i, time in zip(flowing, needed, strict=True) if time <= passed * (1 + 1e-12)}
        flowing = [i for i in flowing if i not in ended]
        for i in sorted(ended):
            t, done[i] = transfers[i], now
            if t.reduce and link.reduction_time > 0:
                adding = link.reduction_time * message_bytes * whole.share(t)
                free[t.destination] = max(free[t.destination], now) + adding
                done[i] = free[t.destination]
            for j in followers[i]:
                open_needs[j] -= 1
                if not open_needs[j]:
                    starts[j] = max(done[k] for k in after[j]) + link.latency
        begun = [i for i, time in starts.items() if time <= now]
        flowing += begun
        starts = {i: time for i, time in starts.items() if i not in begun}
    return max(done.values(), default=0.0)


def max_min_rates(on, capacities):
    """Max-min fair rates of flows by the links (rows) that they cross: progressive filling (Bertsekas and Gallager)."""
    rates, left, growing = np.zeros(on.shape[1]), capacities.astype(float), np.ones(on.shape[1], dtype=bool)
    while growing.any():
        count = (on & growing).sum(axis=1)
        room = np.divide(left, count, out=np.full(len(left), np.inf), where=count > 0)
        least = max(room.min(), 0.0)
        rates[growing] += least
        left -= least * count
        growing &= ~on[(count > 0) & (room <= least * (1 + 1e-12))].any(axis=0)
    return rates
