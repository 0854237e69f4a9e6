"""From one long simulated run to a steady-state estimate: where the transient ends, and how sure the rest is."""

from __future__ import annotations

import numpy as np


def mser5(values: np.ndarray) -> int:
    """
    How many of the first values belong to the transient, by MSER-5 (White, Cobb and Spratt, 2000).

    Values are averaged in fives; the cut is where the rest's variance over its squared length is least, and lies in
    the first half.

    Examples
    --------
    >>> import numpy as np
    >>> level = np.tile([1.0, 1.1, 0.9, 1.0, 1.0], 40)
    >>> level[:30] += 3
    >>> mser5(level)
    30
    """
    fives = values[: len(values) // 5 * 5].reshape(-1, 5).mean(axis=1)
    n = len(fives)
    if n < 4:
        return 0
    left = np.arange(n, 0, -1)
    mean = np.cumsum(fives[::-1])[::-1] / left
    square = np.cumsum(fives[::-1] ** 2)[::-1] / left
    score = (square - mean**2) / left
    return 5 * int(np.argmin(score[: n // 2 + 1]))


def batch_means(durations: np.ndarray, *, confidence: float, batches: int = 20) -> tuple[float, float, float]:
    """
    Rate at which intervals of these durations follow each other, with an interval from batch means.

    Parameters
    ----------
    durations : ndarray, shape (n,)
        Seconds, in order; autocorrelated.
    confidence : float
        Probability that the interval covers the steady-state rate.
    batches : int
        Long batches are nearly independent (Law, 2015, section 9.5.3).

    Returns
    -------
    rate, lower, upper : float
        Intervals per second; the bounds are 0 and infinity with fewer than two durations.
    """
    from scipy.special import stdtrit

    rate = len(durations) / durations.sum()
    batches = min(batches, len(durations))
    if batches < 2:
        return rate, 0.0, np.inf
    length = len(durations) // batches
    means = durations[len(durations) - batches * length :].reshape(batches, length).mean(axis=1)
    half = stdtrit(batches - 1, (1 + confidence) / 2) * means.std(ddof=1) / batches**0.5
    return rate, 1 / (1 / rate + half), 1 / (1 / rate - half) if half * rate < 1 else np.inf
