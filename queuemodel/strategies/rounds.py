"""How long a synchronous round takes, for many rounds and ranks at once; and messages that are late in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np


def round_time(
    ready: np.ndarray, computed: np.ndarray, work: np.ndarray, latency: np.ndarray, *, at_once: int = 1
) -> np.ndarray:
    """Seconds from the start of a round until all its buckets are reduced and all computation is done.

    Buckets go through the network in their order. The network works on one after the other as long as any is there, as
    a queue with one server does whatever its discipline; a bucket needs `work` of it and, beside that, `latency`. With
    ``at_once`` buckets under way, the latency of one passes while others are worked on, so that in a row each takes
    max(work, (work + latency) / at_once); the last one's latency remains. Exact max-plus recursion for one bucket at a
    time, and for more where no bucket's work is less than its share of latency.
    ``ready`` (..., b) is increasing, ``computed`` has shape (...), ``work`` and ``latency`` (b,); all are seconds.
    """
    if ready.shape[-1] == 0:
        return np.array(computed, dtype=float)
    alone = work + latency
    service = np.maximum(work, alone / at_once)
    behind = np.cumsum(service[::-1])[::-1] + (alone - service)[-1]  # a bucket and all after it
    return np.maximum((ready + np.maximum(behind, alone)).max(axis=-1), computed)


def slowest_of(
    rounds: np.ndarray, ranks: Sequence[int], *, samples: int, seed: int, paces: Sequence[float] = ()
) -> Iterator[np.ndarray]:
    """When the slowest of n ranks has each bucket: for each n of ``ranks`` (increasing), shape (samples, b).

    Ranks are drawn from the recorded rows with a smooth spread around each (a smoothed bootstrap that keeps mean and
    variance, Silverman and Young, 1987), so that the slowest of many can be slower than any recorded. The draws of few
    ranks are among those of more.
    ``rounds`` (m, b) are recorded times of one rank, increasing; ``paces`` are those of the first ranks, 1 of the
    others.
    """
    rng, draw = np.random.default_rng(seed), sampler(rounds)
    slowest, n = np.full((samples, rounds.shape[1]), -np.inf), 0
    for wanted in ranks:
        while n < wanted:
            rows = draw(rng, samples)
            np.maximum(slowest, paces[n] * rows if n < len(paces) else rows, out=slowest)
            n += 1
        yield slowest.copy()


def sampler(rounds: np.ndarray) -> Callable[[np.random.Generator, int], np.ndarray]:
    """Draws from recorded rows (m, b), increasing, with a smooth spread around each that keeps mean and variance."""
    rounds = np.maximum.accumulate(rounds, axis=1)
    mean, last = rounds.mean(axis=0), rounds[:, -1]
    spread = last.std() / last.mean() if len(last) > 1 and last.mean() > 0 else 0.0
    width = 0.9 * spread * len(rounds) ** -0.2
    keep = 1.0 / np.hypot(1.0, width / spread) if spread > 0 else 1.0

    def draw(rng: np.random.Generator, samples: int) -> np.ndarray:
        rows = rounds[rng.integers(len(rounds), size=samples)]
        rows *= keep * np.maximum(1 + width * rng.standard_normal((samples, 1)), 0.0)
        rows += (1 - keep) * mean
        return rows

    return draw


#: Bytes under way, 90 packets in the median at 60 Mbit/s, without 11 that a token bucket passes at once: a buffer that
#: holds more loses nothing.
WINDOW = 79 * 1448

#: How many times what the buffer holds a message is long when it surely loses a last packet, among two ranks and among
#: more. Two always send at the same time: acknowledgements wait behind data, and half a window stands in each buffer.
SURELY = {2: 19.0}
SURELY_AMONG_MORE = 3.8


def late(message_bytes: np.ndarray, ranks: int, *, bandwidth: float, buffer: float) -> np.ndarray:
    """
    Mean seconds by which messages come later than their bytes allow.

    What overflows is sent again, and a message has arrived when its last hole is filled: that takes one more round
    trip, through a full buffer. It befalls a message the likelier the longer it is; how likely was measured with rings
    of plain sockets, 68 to 770 kB (docs/explanation/all-reduce; not exact).

    Examples
    --------
    >>> late(np.array([90e3, 900e3]), 4, bandwidth=7.5e6, buffer=0.012).round(4)
    array([0.0032, 0.012 ])
    """
    held = bandwidth * buffer
    if not 0 < held < WINDOW:
        return np.zeros_like(message_bytes, dtype=float)
    return np.asarray(buffer * np.minimum(1.0, message_bytes / held / SURELY.get(ranks, SURELY_AMONG_MORE)))


def late_rounds(sizes: np.ndarray, ranks: int, *, bandwidth: float, buffer: float) -> np.ndarray:
    """The same of the 2 (n - 1) messages of a ring that reduces so many bytes."""
    return 2 * (ranks - 1) * late(np.asarray(sizes) / ranks, ranks, bandwidth=bandwidth, buffer=buffer)
