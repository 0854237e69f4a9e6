"""From recorded rounds: how long ranks compute, how much that varies, and what the network carries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..collectives import Link, Ring
from ..errors import FitError
from ..training import Profile
from ..training.job import Job
from ..training.rounds import Round
from .rounds import round_time

#: Seconds per message before anything is known, and the factor that covers two thirds of networks.
LATENCY, LATENCY_FACTOR = 100e-6, 4.0

#: Relative error of a round's end that is never thought smaller.
LEAST_NOISE = 0.003


@dataclass(frozen=True, eq=False)
class FittedRounds:
    """What recorded rounds tell of a data-parallel job.

    Attributes
    ----------
    job : Job
    ready : ndarray, shape (m, b)
        When one rank had each bucket (s), m times.
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
        Bytes per second that a node's link carried, and seconds per message.
    covariance : ndarray, shape (2, 2)
        Of the logarithms of the two.
    latency_known : bool
        Whether the rounds say more of the latency than what was assumed.
    nominal : float or None
        Bytes per second of the links, as the profile says.
    ranks : int
        Most ranks in a recorded round.
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


def fit_rounds(profile: Profile) -> FittedRounds:
    """Fit the recorded rounds of a data-parallel job.

    Computation and its spread come from each rank's record. What the network carries comes from the ends of the group's
    rounds, by maximum a posteriori (normal approximation) under the ring's time; two nodes hardly tell latency from
    bandwidth, so that an assumed latency with a wide spread helps out.

    Raises
    ------
    FitError
        When no round of two or more ranks is there, or a step's buckets change.
    """
    most = max((one.ranks for one in profile.rounds), default=0)
    if most < 2:
        raise FitError(
            "strategy all-reduce needs recorded rounds of two nodes or more; import the traces of two nodes besides: "
            "queuemodel import-trace trace_n1 trace_n2"
        )
    grouped = [one for one in profile.rounds if one.ranks == most and one.buckets]
    sizes = {tuple(bucket.bytes for bucket in one.buckets) for one in grouped}
    if len(sizes) > 1:  # the first rounds, before the buckets are made anew in the order of arrival
        common = max(sizes, key=lambda size: sum(tuple(b.bytes for b in one.buckets) == size for one in grouped))
        grouped = [one for one in grouped if tuple(b.bytes for b in one.buckets) == common]
    bucket_bytes = np.array([bucket.bytes for bucket in grouped[0].buckets], dtype=float)
    groups = [group for group in _by_number(grouped).values() if len(group) == most]
    if not groups:
        raise FitError("strategy all-reduce: no round was recorded by all its ranks; profile whole rounds")
    slowest, ends = map(np.array, zip(*map(_aligned, groups), strict=True))
    at_once = max(_at_once(one) for one in grouped)
    bandwidth, latency, covariance = _network(slowest, ends, bucket_bytes, most, at_once)
    alone = [one.round_time for one in profile.rounds if one.ranks == 1] or [one.computed for one in grouped]
    recorded = [one for one in grouped if one.gradients]
    gradients = (
        np.array([g.bytes for g in recorded[0].gradients] if recorded else [], dtype=float),
        np.mean([[g.ready for g in one.gradients] for one in recorded], axis=0) if recorded else np.empty(0),
    )
    return FittedRounds(
        job=profile.job,
        ready=np.array([[bucket.ready for bucket in one.buckets] for one in grouped]),
        computed=np.array([one.computed for one in grouped]),
        tail=float(np.mean([max(0.0, one.round_time - max(one.computed, _end(one))) for one in grouped])),
        alone=float(np.mean(alone)),
        bucket_bytes=bucket_bytes,
        gradients=gradients,
        at_once=at_once,
        bandwidth=bandwidth,
        latency=latency,
        covariance=covariance,
        latency_known=bool(covariance[1, 1] < 0.25 * np.log(LATENCY_FACTOR) ** 2),
        nominal=profile.cluster.bandwidth,
        ranks=most,
    )


def _by_number(rounds: Sequence[Round]) -> dict[int, list[Round]]:
    groups: dict[int, list[Round]] = {}
    for one in rounds:
        groups.setdefault(one.number, []).append(one)
    return groups


def _end(one: Round) -> float:
    return max(bucket.end for bucket in one.buckets)


def _aligned(group: Sequence[Round]) -> tuple[np.ndarray, float]:
    """When the slowest rank had each bucket, and the end of the last, by the first rank's clock.

    An all-reduce ends everywhere at once, but for a message's time: that puts the ranks' clocks on top of each other.
    """
    ends = np.array([[bucket.end for bucket in one.buckets] for one in group])
    offset = np.mean(ends[0] - ends, axis=1)
    ready = np.array([[bucket.ready for bucket in one.buckets] for one in group]) + offset[:, None]
    return np.maximum.accumulate(ready.max(axis=0)), float((ends + offset[:, None]).max())


def _at_once(one: Round) -> int:
    """Most all-reduces of a round that were under way together."""
    begun = np.sort([bucket.begin for bucket in one.buckets])
    ended = np.sort([bucket.end for bucket in one.buckets])
    return max(int(i + 1 - np.searchsorted(ended, t, side="right")) for i, t in enumerate(begun))


def _network(
    slowest: np.ndarray, ends: np.ndarray, bucket_bytes: np.ndarray, ranks: int, at_once: int
) -> tuple[float, float, np.ndarray]:
    """Bandwidth, latency and the covariance of their logarithms, from the ends (m,) of rounds."""
    from scipy.optimize import least_squares

    carried = 2 * (ranks - 1) / ranks * bucket_bytes.sum()
    start = np.log([carried / max(float(np.median(ends - slowest[:, 0])), 1e-9), LATENCY])
    nothing = np.full(len(slowest), 0.0)

    def errors(logs: np.ndarray) -> np.ndarray:
        work, latency = ring_costs(bucket_bytes, ranks, *np.exp(logs))
        return np.log(round_time(slowest, nothing, work, latency, at_once=at_once) / ends)

    noise = LEAST_NOISE
    for _ in range(3):  # the noise is what the fit leaves

        def residuals(logs: np.ndarray, noise: float = noise) -> np.ndarray:
            assumed = (logs[1] - np.log(LATENCY)) / np.log(LATENCY_FACTOR)
            return np.append(errors(logs) / noise, assumed)

        found = least_squares(residuals, start)
        noise = max(LEAST_NOISE, float(np.sqrt(np.mean(errors(found.x) ** 2))))
    covariance = np.linalg.pinv(found.jac.T @ found.jac)
    return float(np.exp(found.x[0])), float(np.exp(found.x[1])), covariance


def ring_costs(bucket_bytes: np.ndarray, ranks: int, bandwidth: float, latency: float) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of each bucket's ring that need bandwidth, and that do not."""
    ring, wire = Ring(), Link(bandwidth)
    work = np.array([ring.time(size, ranks, wire) for size in bucket_bytes])
    return work, np.full(len(bucket_bytes), ring.time(0.0, ranks, Link(bandwidth, latency=latency)))
