"""What connections under BBR have under way, and why a link then serves few of them slower than many."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .pace import NOTHING

#: What a connection under BBR has under way: bytes, or seconds of its link where that is more. Plain sockets'
#: congestion windows (validation/testbed: takeover), medians: 24 packets at 20, 26 at 60, 63 at 150 Mbit/s.
FLIGHT, FLIGHT_TIME = 24 * 1448.0, 0.005

#: Seconds that a packet waits at a full link where nobody says: what most of the testbed's buffers hold.
BUFFER = 0.012

#: Numbers of workers at a link for which its rate is told, at most.
MOST_LEVELS = 40


@dataclass(frozen=True, slots=True)
class Flights:
    """Workers at the two links of one server, or of several alike, on connections under BBR.

    BBR keeps a window W under way (`FLIGHT`), however long the round trip. Where K connections send the other way, K of
    their windows stand before that link, as far as its buffer holds them, and acknowledgements wait there too. A
    connection gets its window per round trip, 1 / K of its link, or W over the buffer where that is more: who is alone
    on a link does not fill it, and j workers use min(1, j max(1 / K, W / buffer)) of it. One connection alone is paced
    and leaves no queue: K = 1 holds nobody back.

    Attributes
    ----------
    sizes : tuple of float
        Bytes of a step from the servers and to them.
    buffer : float
        Seconds that a packet waits at most before a link.
    """

    sizes: tuple[float, float]
    buffer: float

    def least_share(self, D: np.ndarray) -> np.ndarray:
        """Share of a link (..., 2) that one connection has, whoever sends the other way; D: seconds of the sizes."""
        return np.minimum(np.maximum(FLIGHT * D / self.sizes, FLIGHT_TIME) / self.buffer, 1.0)

    def rates(self, least: np.ndarray, Q: np.ndarray, *, workers: int, levels: int) -> np.ndarray:
        """Mean share of a link (levels, ..., 2) that 1, 2, ... of the workers use.

        The others are in the other direction independently of each other, each as likely as it is on average.

        Parameters
        ----------
        least : ndarray, shape (..., 2)
            See `least_share`.
        Q : ndarray, shape (..., 2)
            Mean numbers of all workers but one in both directions.
        workers, levels : int
        """
        here = np.arange(1, levels + 1).reshape(-1, *[1] * Q.ndim)
        others = np.maximum(workers - here, 0)
        p = np.clip(Q[..., ::-1] / np.maximum(workers - 1 - Q, NOTHING), 0.0, 1.0 - 1e-9)
        exactly = (1.0 - p) ** others
        used, more = np.zeros(np.broadcast_shapes(here.shape, Q.shape)), np.ones(1)
        for K in range(min(levels + 1, workers) + 1):
            used = used + exactly * np.minimum(here * (np.maximum(1.0 / K, least) if K > 1 else 1.0), 1.0)
            more = more - exactly
            exactly = exactly * (p / (1.0 - p)) * (np.maximum(others - K, 0) / (K + 1))
        last = np.maximum(1.0 / np.maximum(others, 1), least)  # beyond that many it is the buffer that limits queues
        return used + np.maximum(more, 0.0) * np.minimum(here * last, 1.0)
