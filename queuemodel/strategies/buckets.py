"""Rules by which frameworks put gradients together."""

from __future__ import annotations

import numpy as np


def bucket_ends(sizes: np.ndarray, cap: float, *, first: float = 2.0**20) -> np.ndarray:
    """Index of the last gradient of each bucket, as DistributedDataParallel fills them: closed when the cap is reached.

    Parameters
    ----------
    sizes : ndarray
        Bytes of the gradients in the order in which they are ready.
    cap : float
        Bytes.
    first : float
        The first bucket's cap, where it is smaller.
    """
    ends, filled, limit = [], 0.0, min(cap, first)
    for index, size in enumerate(sizes):
        filled += size
        if filled >= limit:
            ends.append(index)
            filled, limit = 0.0, cap
    if not ends or ends[-1] != len(sizes) - 1:
        ends.append(len(sizes) - 1)
    return np.array(ends)
