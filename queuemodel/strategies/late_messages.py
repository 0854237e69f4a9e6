"""Messages of a ring that go one at a time, under BBR, into a buffer that is shorter than its window."""

from __future__ import annotations

import numpy as np

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

    Parameters
    ----------
    message_bytes : ndarray
    ranks : int
    bandwidth : float
        Bytes per second of a link.
    buffer : float
        Seconds that a packet waits at a full link; 0: not known, or not under BBR.

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
