"""Whether a simulation was long enough: judged from batches of several replications that began apart."""

from __future__ import annotations

import numpy as np

#: Groups of batches in each replication that are compared.
GROUPS = 20
#: Groups that follow each other may correlate by so much. A queue that forgets with time constant r correlates by 0.2
#: when a group lasts 3.3 r: the run is then 80 r long, and the warm-up leaves exp(-16) of the start.
CORRELATED = 0.2
#: The first group after the warm-up may be so many times more variable than the others.
UNSETTLED = 4.0
#: Visits that a class makes at each station in each replication; times the scv where service varies much.
VISITS = 100


def too_short(series: np.ndarray) -> np.ndarray:
    """Which measures of ``series``, shape (R, B, M), still depend on the start: shape (M,).

    Deviations are from the mean of all replications, which began at different places: where the runs are too short to
    forget that, each stays on its own side, and its groups of batches correlate (von Neumann, 1941, has the ratio).
    """
    R, B, M = series.shape
    groups = series.reshape(R, GROUPS, B // GROUPS, M).mean(axis=2)
    apart = groups - groups.mean(axis=(0, 1))
    spread = (apart**2).mean(axis=(0, 1))
    alike = spread <= 1e-24 * groups.mean(axis=(0, 1)) ** 2  # constant but for rounding
    spread = np.where(alike, 1.0, spread)
    correlation = (apart[:, :-1] * apart[:, 1:]).mean(axis=(0, 1)) / spread
    first = (apart[:, 0] ** 2).mean(axis=0) / spread
    return ~alike & ((correlation > CORRELATED) | (first > UNSETTLED))
