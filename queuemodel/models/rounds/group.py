"""A group of ranks that sends gradients by a scheme: what its rounds take, and where the time goes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from ...transport.collectives import Algorithm
from .schemes import Cost, Scheme
from .times import NodeLink, message_costs


class Parts(NamedTuple):
    """Mean seconds of a round, and of what makes it up (see `Group.parts`)."""

    time: float
    network: float
    latency: float
    stragglers: float
    wire: float
    messages: float


@dataclass(frozen=True, eq=False)
class Group:
    """Drawn rounds of n ranks."""

    ranks: int
    sizes: np.ndarray  # (p,): Bytes of the pieces that the scheme is given: buckets as recorded, or gradients
    rows: np.ndarray  # (samples, p + 2): See `Scheme.time`; of the slowest rank (s)
    collective: Algorithm
    scheme: Scheme
    tail: float  # Seconds after the last of it

    def cost(self, link: NodeLink) -> Cost:
        """Seconds of messages that need bandwidth, and that do not."""
        return partial(message_costs, collective=self.collective, ranks=self.ranks, link=link)

    def times(self, link: NodeLink, *, slower: float = 1.0) -> np.ndarray:
        """Seconds of each round when computation takes ``slower`` times as long."""
        rows = self.rows if slower == 1.0 else slower * self.rows
        return np.asarray(self.scheme.time(self.sizes, rows, self.cost(link)) + self.tail)

    def mean_time(self, link: NodeLink, slower: float = 1.0) -> float:
        """Mean seconds of the rounds."""
        return float(self.times(link, slower=slower).mean())

    def parts(self, link: NodeLink, compute: float) -> Parts:
        """What bandwidth, latency and waiting for the slowest add to a mean rank's computation.

        ``wire`` and ``messages`` are what the network and its latency would take if nothing overlapped.
        """
        time, at_best = map(self.mean_time, (link, link._replace(latency=0.0, buffer=0.0)))
        # T = slowest + bandwidth's part (no latency) + latency's part + tail
        slowest = float(self.rows[:, -1].mean())
        work, wait = self.cost(link)(self.scheme.units(self.sizes))
        return Parts(
            time,
            max(at_best - slowest - self.tail, 0.0),
            max(time - at_best, 0.0),
            max(slowest - compute, 0.0),
            float(work.sum()),
            float(wait.sum()),
        )
