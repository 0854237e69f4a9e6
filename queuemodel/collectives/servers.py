"""All-reduce through servers: workers push their data, servers add and give the sum back."""

from __future__ import annotations

from dataclasses import dataclass

from ..checks import require_count
from .link import Link, Size
from .schedule import Schedule, Transfer


@dataclass(frozen=True, slots=True)
class ParameterServers:
    """Servers on nodes of their own, each with an equal share of the data (Li et al., 2014).

    Parameters
    ----------
    servers : int, default 1
    """

    servers: int = 1

    def __post_init__(self) -> None:
        require_count(self.servers, "parameter servers: servers")

    def time(self, message_bytes: Size, nodes: int, link: Link) -> Size:
        """2 (α + max(n/s, 1) V/B) + n/s V γ: all push, then all fetch; exact for its schedule. One node: nothing."""
        if nodes == 1:
            return 0.0 * message_bytes
        per_server = nodes / self.servers
        V = message_bytes
        return 2 * (link.latency + max(per_server, 1.0) * V / link.bandwidth) + per_server * V * link.reduction_time

    def schedule(self, nodes: int) -> Schedule:
        """Workers are the first ``nodes`` nodes, servers those after them."""
        n, s = require_count(nodes, "parameter servers: nodes"), self.servers
        push = tuple(Transfer(i, n + k, range(k, k + 1), True) for i in range(n) for k in range(s))
        fetch = tuple(t.back for t in push)
        return Schedule(n + s, n, (1 / s,) * s, (push, fetch) if n > 1 else ())


@dataclass(frozen=True, slots=True)
class SplitServers:
    """A server beside every worker and ``extra`` ones on nodes of their own, loaded so that all links are equally busy.

    The split of BytePS (Jiang et al., OSDI 2020). Without extra servers it moves as many bytes as a ring; with as many
    as workers, half of them.

    Parameters
    ----------
    extra : int, default 0
    blocks : int, default 16
        Of each server's share, which follow each other through the links, in the schedule.
    """

    extra: int = 0
    blocks: int = 16

    def __post_init__(self) -> None:
        require_count(self.extra, "split servers: extra", least=0)
        require_count(self.blocks, "split servers: blocks")

    @property
    def servers(self) -> int:
        """Nodes beside those of the workers."""
        return self.extra

    def extra_share(self, nodes: int) -> float:
        """Share of the data on the extra servers: 2 k (n-1) / (n² + k n - 2 k), all of it for k >= n."""
        n, k = nodes, self.extra
        return 2 * k * (n - 1) / (n * n + k * n - 2 * k) if k < n else 1.0

    def time(self, message_bytes: Size, nodes: int, link: Link) -> Size:
        """2 n (n-1) / (n² + k n - 2 k) V/B, with latency for a push and a fetch; what small blocks tend to.

        For more extra servers than workers the workers' own links limit: V/B. Its schedule takes 1/(2 blocks) longer
        (with almost as many extra servers as workers 2 % more), and a latency for each of its rounds.
        """
        n, k = nodes, min(self.extra, nodes)
        if n == 1:
            return 0.0 * message_bytes
        volume = 2 * n * (n - 1) / (n * n + k * n - 2 * k)
        share = max((n - 1) * (1 - self.extra_share(n)) / n, n * self.extra_share(n) / max(self.extra, 1))
        adding = share * message_bytes * link.reduction_time
        return 2 * link.latency + max(volume, 1.0) * message_bytes / link.bandwidth + adding

    def schedule(self, nodes: int) -> Schedule:
        """Workers, each with a server, are the first ``nodes`` nodes, the extra servers those after them.

        A worker exchanges with n - k others at a time, and always with all extra servers: n flows, which share its link
        as n workers share those of an extra server. (With n/16 others where that is more, so that turns stay few.)
        """
        n, k, m = require_count(nodes, "split servers: nodes"), self.extra, self.blocks
        if n == 1:
            return Schedule(1 + k, 1, (1.0,), ())
        at_once, own = (max(n - k, n // 16), n * m) if k < n else (n, 0)  # own: pieces on servers beside workers
        turns = [range(first, min(first + at_once, n)) for first in range(1, n, at_once)]  # whose server: so far ahead
        x, later, parts = self.extra_share(n), len(turns), 2 * m * len(turns)
        sizes = [(1 - x) / n / m] * own
        sizes += [x / max(k, 1) / m * len(turn) / (2 * (n - 1)) for turn in turns] * (2 * m * k)
        rounds: list[list[Transfer]] = [[] for _ in range(parts + later)]
        for part in range(parts):
            block, turn = divmod(part, 2 * later)
            for i in range(n):
                to = [(n + j, own + j * parts + part) for j in range(k)]
                if own and turn < later:
                    to += [(server := (i + ahead) % n, server * m + block) for ahead in turns[turn]]
                pushes = [Transfer(i, server, range(piece, piece + 1), True) for server, piece in to]
                rounds[part] += pushes
                rounds[part + later] += [push.back for push in pushes]
        return Schedule(n + k, n, tuple(sizes), tuple(tuple(one) for one in rounds if one), blocking=True)
