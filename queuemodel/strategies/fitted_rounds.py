"""What recorded rounds told of a data-parallel job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ..training.job import Job


@dataclass(frozen=True, eq=False)
class FittedRounds:
    """What recorded rounds tell of a data-parallel job.

    Attributes
    ----------
    job : Job
    ready : ndarray, shape (m, b)
        When one rank of the typical pace had each bucket (s), m times.
    computed : ndarray, shape (m,)
        When it had computed.
    tail : float
        Seconds from there, and from the end of the last all-reduce, to the end of the round.
    alone : float
        Seconds of a round of one rank without communication.
    bucket_bytes : ndarray, shape (b,)
    gradients : tuple of ndarray
        Bytes of each gradient and mean seconds until it was ready, in that order.
    at_once : int
        Most all-reduces that were under way together.
    bandwidth, latency : float
        Bytes per second that a node's link carried among the most recorded ranks, and seconds per message.
    covariance : ndarray, shape (2, 2)
        Of the logarithms of the two.
    latency_known : bool
        Whether the rounds say more of the latency than what was assumed.
    nominal : float or None
        Bytes per second of the links, as the profile says.
    ranks : int
        Most ranks in a recorded round.
    paces : tuple of float
        How many times as long each recorded rank computes as the typical one; empty where all are alike.
    fewer : dict
        Bandwidth and latency that groups of fewer ranks showed, by their number.
    congestion_control : str
        TCP's, as the profile says.
    buffer : float
        Seconds of a buffer that single messages under BBR overflow (`late_messages`); 0 where none is known.
    loading : tuple of ndarray
        Seconds in which batches were loaded ahead, by rank, as far as these waited for them (`loading`); often none.
    shared_error : float
        Standard error of the part of ``computed`` by which all ranks were late at once (s).
    """

    job: Job
    ready: np.ndarray
    computed: np.ndarray
    tail: float
    alone: float
    bucket_bytes: np.ndarray
    gradients: tuple[np.ndarray, np.ndarray]
    at_once: int
    bandwidth: float
    latency: float
    covariance: np.ndarray
    latency_known: bool
    nominal: float | None
    ranks: int
    paces: tuple[float, ...] = ()
    fewer: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    congestion_control: str = "unknown"
    buffer: float = 0.0
    loading: tuple[np.ndarray, ...] = ()
    shared_error: float = 0.0

    def carried(self, ranks: int) -> tuple[float, float]:
        """Bandwidth and latency among so many ranks: what the largest recorded group that is no larger showed.

        How well messages fill a link depends on how many ranks wait for each other, so that each number tells its own.
        """
        recorded = [n for n in self.fewer if n <= ranks]
        return self.fewer[max(recorded)] if recorded and ranks < self.ranks else (self.bandwidth, self.latency)
