"""How long a synchronous round takes, for many rounds and ranks at once; and messages that are late in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...base.checks import FASTEST_LINK
from ...base.files import constants
from ...profile.bandwidth import transfer_time
from ...profile.job import Job
from ...profile.records import Round
from ...transport.collectives import NCCL, Algorithm, Link, Ring
from ...transport.sharing import ring_lateness


def round_time(
    ready: np.ndarray, computed: np.ndarray, work: np.ndarray, latency: np.ndarray, *, at_once: int = 1
) -> np.ndarray:
    """Seconds from the start of a round until all its buckets are reduced and all computation is done.

    What `graph.end_times` gives where no computation waits for a collective, and 12 times as fast for 160 buckets.
    Buckets go through the network in their order. The network works on one after the other as long as any is there, as
    a queue with one server does whatever its discipline; a bucket needs `work` of it and, beside that, `latency`. With
    ``at_once`` buckets under way, the latency of one passes while others are worked on, so that in a row each takes
    max(work, (work + latency) / at_once). Exact max-plus recursion for one bucket at a time, and for more where no
    bucket's work is less than its share (work + latency) / at_once; elsewhere that share is a mean rate.
    ``ready`` (..., b) is increasing, ``computed`` has shape (...), ``work`` and ``latency`` (b,); all are seconds.
    """
    if ready.shape[-1] == 0:
        return np.array(computed, dtype=float)
    alone = work + latency
    service = np.maximum(work, alone / at_once)
    # S_j = s_0 + ... + s_j: bucket j ends at max over i <= j of ready_i + S_j - S_(i-1) + its latency
    served = np.cumsum(service)
    # from when bucket i is ready: the longest, over j >= i, of service_i + ... + service_j and the rest of j's latency
    behind = np.maximum.accumulate((served + alone - service)[::-1])[::-1] - (served - service)
    return np.maximum((ready + behind).max(axis=-1), computed)


def slowest_of(
    rounds: np.ndarray,
    ranks: Sequence[int],
    *,
    samples: int,
    seed: int,
    relative_compute_times: Sequence[float] | np.ndarray = (),
) -> Iterator[np.ndarray]:
    """When the slowest of n ranks has each bucket: for each n of ``ranks`` (increasing), shape (samples, b).

    Ranks are drawn from the recorded rows with a smooth spread around each (a smoothed bootstrap that keeps mean and
    variance, Silverman and Young, 1987), so that the slowest of many can be slower than any recorded. The draws of few
    ranks are among those of more.
    ``rounds`` (m, b) are recorded times of one rank, increasing; ``relative_compute_times`` are those of the
    first ranks, 1 of the others.
    """
    rng, draw = np.random.default_rng(seed), sampler(rounds)
    slowest, n = np.full((samples, rounds.shape[1]), -np.inf), 0
    for wanted in ranks:
        while n < wanted:
            rows = draw(rng, samples)
            own = relative_compute_times[n] if n < len(relative_compute_times) else 1.0
            np.maximum(slowest, rows if own == 1 else own * rows, out=slowest)
            n += 1
        yield slowest.copy()


def sampler(rounds: np.ndarray) -> Callable[[np.random.Generator, int], np.ndarray]:
    """Draws from recorded rows (m, b), increasing, with a smooth spread around each that keeps mean and variance."""
    rounds = np.maximum.accumulate(rounds, axis=1)
    mean, last = rounds.mean(axis=0), rounds[:, -1]
    # h = 0.9 sigma m^(-1/5) (Silverman, 1986), relative to the mean
    spread = last.std() / last.mean() if len(last) > 1 and last.mean() > 0 else 0.0
    width = 0.9 * spread * len(rounds) ** -0.2
    # x = mean + k (row (1 + h z) - mean), where k^2 (1 + h^2 / spread^2) = 1 keeps the variance
    keep = 1.0 / np.hypot(1.0, width / spread) if spread > 0 else 1.0

    def draw(rng: np.random.Generator, samples: int) -> np.ndarray:
        rows = rounds[rng.integers(len(rounds), size=samples)]
        rows *= keep * np.maximum(1 + width * rng.standard_normal((samples, 1)), 0.0)
        rows += (1 - keep) * mean
        return rows

    return draw


#: Measured and assumed numbers, with their sources: constants.toml.
_NUMBERS = constants(__package__)["times"]
LATENCY = _NUMBERS["latency"]
LATENCY_FACTOR = _NUMBERS["latency_factor"]

LEAST_NOISE = _NUMBERS["least_noise"]


class Library(NamedTuple):
    """How a communication library reduces, before anything is measured."""

    collective: Algorithm
    latency: float  # Seconds per message, likely within `LATENCY_FACTOR`
    #: slower, slower_error: What bandwidth loses at each doubling of the ranks beyond the recorded ones (logarithm)
    slower: float = 0.0
    slower_error: float = 0.0
    single: bool = True  # Each message goes over one TCP connection to a neighbour


GLOO = Library(Ring(), LATENCY)  # and TensorFlow's ring
NVIDIA = Library(NCCL(), _NUMBERS["nccl_latency"], _NUMBERS["nccl_slower"], _NUMBERS["nccl_slower_error"], single=False)


class NodeLink(NamedTuple):
    """What a node's link carries: bytes per second, seconds per message, and a buffer's seconds (`lateness`)."""

    bandwidth: float
    latency: float
    buffer: float = 0.0


def link_at_bandwidth(link: NodeLink, nominal: float | None, bandwidth: float | None) -> NodeLink:
    """The link when its nominal bandwidth, bytes per second, is another; None: as it is."""
    if bandwidth in (None, nominal):
        return link
    seconds = transfer_time(np.array(1.0 / link.bandwidth), 1.0, nominal=nominal, bandwidth=bandwidth)
    return link._replace(bandwidth=1.0 / float(seconds))


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedRanks:
    """What recorded rounds determine of a job, however it reduces."""

    job: Job
    computed: np.ndarray  # (m,): Seconds that one rank of the typical pace computed, m times
    common_compute_error: float = (
        0.0  # Standard error of the part of ``computed`` by which all ranks were late at once (s)
    )
    single_rank_round_time: (
        float  # Seconds of a round of one rank without communication; unless recorded, of computation and tail
    )
    tail: float  # Seconds of a round beside its computation and collectives
    covariance: np.ndarray  # (2, 2): Of the logarithms of a node's bandwidth and latency
    latency_known: bool  # Whether the rounds say more of the latency than what was assumed
    nominal: float | None  # Bytes per second of the links, as recorded
    ranks: int  # Most ranks in a recorded round
    unrecorded: int = 0  # Ranks of the largest group without a record: how they differ from the others is not known
    #: How many times as long each recorded rank computes as the typical one; empty where all are alike
    relative_compute_times: tuple[float, ...] = ()
    congestion_control: str = "unknown"  # TCP's, as recorded
    library: Library = GLOO  # That moved the data

    def link_at(self, ranks: int) -> NodeLink:
        """What a node's link carried among so many ranks."""
        raise NotImplementedError


#: Seconds; no message takes longer.
LONGEST_MESSAGE = 1e9


def align_clocks(group: Sequence[Round]) -> tuple[np.ndarray, np.ndarray]:
    """When the slowest rank had each bucket, and when all before and it were reduced, by the first rank's clock, (b,).

    An all-reduce ends everywhere at once, but for a message's time: that puts the ranks' clocks on top of each other.
    """
    ends = np.array([[bucket.end for bucket in one.buckets] for one in group])
    # least squares of ends that are the same moment
    offset = np.mean(ends[0] - ends, axis=1)
    ready = np.array([[bucket.ready for bucket in one.buckets] for one in group]) + offset[:, None]
    over = (ends + offset[:, None]).max(axis=0)
    return np.maximum.accumulate(ready.max(axis=0)), np.maximum.accumulate(over)


def max_concurrent_collectives(one: Round) -> int:
    """Most all-reduces of a round that were under way together."""
    begun = np.sort([bucket.begin for bucket in one.buckets])
    ended = np.sort([bucket.end for bucket in one.buckets])
    return max(int(i + 1 - np.searchsorted(ended, t, side="right")) for i, t in enumerate(begun))


def estimate_network(
    slowest: np.ndarray,
    ends: np.ndarray,
    bucket_bytes: np.ndarray,
    ranks: int,
    at_once: int,
    buffer: float = 0.0,
    *,
    library: Library = GLOO,
) -> tuple[float, float, np.ndarray]:
    """Bandwidth, latency and the covariance of their logarithms.

    They are estimated from the ends of busy periods: the last bucket's, and those of buckets with nothing under way
    until the next is ready. Between these ends only the network's discipline determines which bucket is reduced first.
    ``slowest`` and ``ends`` (m, b): when the slowest rank had each bucket, and when all before and it were reduced.
    """
    from scipy.optimize import least_squares

    # a ring's all-reduce: each rank sends 2 (n-1)/n V bytes
    carried = 2 * (ranks - 1) / ranks * bucket_bytes.sum()
    start = np.log([carried / max(float(np.median(ends[:, -1] - slowest[:, 0])), 1e-9), library.latency])
    nothing = np.full(len(slowest), 0.0)
    # a busy period ends with bucket b where the next is ready only after it: r_(b+1) >= e_b
    idle = np.column_stack([slowest[:, 1:] >= ends[:, :-1], np.ones(len(ends), dtype=bool)])
    last = [b for b in range(len(bucket_bytes)) if idle[:, b].any()]

    def errors(logs: np.ndarray) -> np.ndarray:
        bandwidth, message = np.minimum(np.exp(logs), [FASTEST_LINK, LONGEST_MESSAGE])
        work, latency = message_costs(bucket_bytes, library.collective, ranks, NodeLink(bandwidth, message, buffer))
        times = [
            round_time(slowest[:, : b + 1], nothing, work[: b + 1], latency[: b + 1], at_once=at_once) for b in last
        ]
        return ((np.transpose(times) - ends[:, last]) / ends[:, -1:])[idle[:, last]]

    noise = LEAST_NOISE
    for _ in range(3):  # the noise is what the fit leaves

        def residuals(logs: np.ndarray, noise: float = noise) -> np.ndarray:
            # log-normal prior of the latency
            assumed = (logs[1] - np.log(library.latency)) / np.log(LATENCY_FACTOR)
            return np.append(errors(logs) / noise, assumed)

        found = least_squares(residuals, start)
        noise = max(LEAST_NOISE, float(np.sqrt(np.mean(errors(found.x) ** 2))))
    # Laplace: the inverse of J'J, in units of the noise
    covariance = np.linalg.pinv(found.jac.T @ found.jac)
    return min(float(np.exp(found.x[0])), FASTEST_LINK), float(np.exp(found.x[1])), covariance


def message_costs(
    sizes: np.ndarray, collective: Algorithm, ranks: int, link: NodeLink
) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of each message's reduction that need bandwidth, and that do not."""
    work = collective.time(sizes, ranks, Link(link.bandwidth))
    both = collective.time(sizes, ranks, Link(link.bandwidth, latency=link.latency))
    # messages that wait for a buffer to drain are late beside latency
    late = ring_lateness(sizes, ranks, bandwidth=link.bandwidth, buffer=link.buffer)
    return work, np.maximum(both - work, 0.0) + late
