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
        """2 (α + max(n/s, 1) V/B) + n/s V γ: all push, then all fetch; exact for its schedule."""
        per_server = nodes / self.servers
        V = message_bytes
        return 2 * (link.latency + max(per_server, 1.0) * V / link.bandwidth) + per_server * V * link.reduction_time

    def schedule(self, nodes: int) -> Schedule:
        """Workers are the first ``nodes`` nodes, servers those after them."""
        n, s = require_count(nodes, "parameter servers: nodes"), self.servers
        push = tuple(Transfer(i, n + k, range(k, k + 1), True) for i in range(n) for k in range(s))
        fetch = tuple(t.back for t in push)
        return Schedule(n + s, n, (1 / s,) * s, (push, fetch))


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

    def extra_share(self, nodes: int) -> float:
        """Share of the data on the extra servers: 2 k (n-1) / (n² + k n - 2 k)."""
        n, k = nodes, self.extra
        return 2 * k * (n - 1) / (n * n + k * n - 2 * k) if k else 0.0

    def time(self, message_bytes: Size, nodes: int, link: Link) -> Size:
        """2 n (n-1) / (n² + k n - 2 k) V/B, with latency for a push and a fetch; what pipelining tends to.

        For more extra servers than workers the workers' own links limit: V/B.
        """
        n, k = nodes, min(self.extra, nodes)
        if n == 1:
            return 0.0 * message_bytes
        volume = 2 * n * (n - 1) / (n * n + k * n - 2 * k)
        share = max((n - 1) * (1 - self.extra_share(n)) / n, n * self.extra_share(n) / max(self.extra, 1))
        adding = share * message_bytes * link.reduction_time
        return 2 * link.latency + max(volume, 1.0) * message_bytes / link.bandwidth + adding

    def schedule(self, nodes: int) -> Schedule:
        """Workers, each with a server, are the first ``nodes`` nodes, the extra servers those after them."""
        n, k, m = require_count(nodes, "split servers: nodes"), self.extra, self.blocks
        x = self.extra_share(n)
        sizes = [(1 - x) / n / m] * (n * m) + [x / max(k, 1) / m] * (k * m)
        rounds: list[tuple[Transfer, ...]] = []
        for block in range(m):
            push = tuple(
                Transfer(i, server, range(server * m + block, server * m + block + 1), True)
                for i in range(n)
                for server in range(n + k)
                if server != i
            )
            rounds.append(push)
        rounds += [tuple(t.back for t in push) for push in rounds]
        return Schedule(n + k, n, tuple(sizes), tuple(rounds))
