"""What the network carried in recorded rounds: bandwidth and latency, from the ends of the group's rounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..checks import FASTEST_LINK
from ..collectives import Link, Ring
from ..training.rounds import Round
from .rounds import late_rounds, round_time

#: Seconds per message before anything is known, and the factor that covers two thirds of networks.
LATENCY, LATENCY_FACTOR = 100e-6, 4.0

#: Relative error of a round's end that is never thought smaller.
LEAST_NOISE = 0.003


def aligned(group: Sequence[Round]) -> tuple[np.ndarray, np.ndarray]:
    """When the slowest rank had each bucket, and when all before and it were reduced, by the first rank's clock, (b,).

    An all-reduce ends everywhere at once, but for a message's time: that puts the ranks' clocks on top of each other.
    """
    ends = np.array([[bucket.end for bucket in one.buckets] for one in group])
    offset = np.mean(ends[0] - ends, axis=1)
    ready = np.array([[bucket.ready for bucket in one.buckets] for one in group]) + offset[:, None]
    over = (ends + offset[:, None]).max(axis=0)
    return np.maximum.accumulate(ready.max(axis=0)), np.maximum.accumulate(over)


def at_once_in(one: Round) -> int:
    """Most all-reduces of a round that were under way together."""
    begun = np.sort([bucket.begin for bucket in one.buckets])
    ended = np.sort([bucket.end for bucket in one.buckets])
    return max(int(i + 1 - np.searchsorted(ended, t, side="right")) for i, t in enumerate(begun))


def estimate_network(
    slowest: np.ndarray, ends: np.ndarray, bucket_bytes: np.ndarray, ranks: int, at_once: int, buffer: float = 0.0
) -> tuple[float, float, np.ndarray]:
    """Bandwidth, latency and the covariance of their logarithms.

    Rounds tell them by the ends of their busy periods: the last bucket's, and those of buckets with nothing under way
    until the next is ready. Between these ends only the network's discipline says which bucket is reduced first.
    ``slowest`` and ``ends`` (m, b): when the slowest rank had each bucket, and when all before and it were reduced.
    """
    from scipy.optimize import least_squares

    carried = 2 * (ranks - 1) / ranks * bucket_bytes.sum()
    start = np.log([carried / max(float(np.median(ends[:, -1] - slowest[:, 0])), 1e-9), LATENCY])
    nothing = np.full(len(slowest), 0.0)
    idle = np.column_stack([slowest[:, 1:] >= ends[:, :-1], np.ones(len(ends), dtype=bool)])
    last = [b for b in range(len(bucket_bytes)) if idle[:, b].any()]

    def errors(logs: np.ndarray) -> np.ndarray:
        bandwidth, message = np.exp(logs)
        work, latency = ring_costs(bucket_bytes, ranks, bandwidth, message, buffer)
        times = [
            round_time(slowest[:, : b + 1], nothing, work[: b + 1], latency[: b + 1], at_once=at_once) for b in last
        ]
        return ((np.transpose(times) - ends[:, last]) / ends[:, -1:])[idle[:, last]]

    noise = LEAST_NOISE
    for _ in range(3):  # the noise is what the fit leaves

        def residuals(logs: np.ndarray, noise: float = noise) -> np.ndarray:
            assumed = (logs[1] - np.log(LATENCY)) / np.log(LATENCY_FACTOR)
            return np.append(errors(logs) / noise, assumed)

        found = least_squares(residuals, start)
        noise = max(LEAST_NOISE, float(np.sqrt(np.mean(errors(found.x) ** 2))))
    covariance = np.linalg.pinv(found.jac.T @ found.jac)
    return min(float(np.exp(found.x[0])), FASTEST_LINK), float(np.exp(found.x[1])), covariance


def ring_costs(
    bucket_bytes: np.ndarray, ranks: int, bandwidth: float, latency: float, buffer: float
) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of each bucket's ring that need bandwidth, and that do not."""
    ring, wire = Ring(), Link(bandwidth)
    work = np.array([ring.time(size, ranks, wire) for size in bucket_bytes])
    messages = ring.time(0.0, ranks, Link(bandwidth, latency=latency))
    return work, messages + late_rounds(bucket_bytes, ranks, bandwidth=bandwidth, buffer=buffer)
