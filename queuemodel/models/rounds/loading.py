"""Input that is loaded ahead: how long batches took, and how long ranks wait for the next.

A rank's loader makes one batch after the other, and stops while `BATCHES_AHEAD` of them wait: a tandem queue with a
finite buffer (Dallery and Gershwin, 1992), many of which end in the ranks' barrier. While one rank waits for its batch,
the other ranks' loaders refill theirs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from ...profile.records import Round

#: Batches that are loaded ahead, as by PyTorch's DataLoader for each of its processes unless specified otherwise.
BATCHES_AHEAD = 2


def loading_times(rounds: Sequence[Round]) -> tuple[np.ndarray, ...]:
    """Seconds that batches took to load, an array for each rank of the run that waited most; none if no rank waited.

    A loader whose batches came late, no more than `BATCHES_AHEAD` apart, never stopped: it took for them the time
    between. One that comes late after more that were in time was begun when the `BATCHES_AHEAD`-th before it was taken,
    at the latest. What came in time gives a limit only; the law is the product-limit estimate from both (Kaplan and
    Meier, 1958, with time reversed), which leaves at 0 what is shorter than all that is known. Approximate where more
    are loaded ahead: among more ranks waits are then too long.
    """
    runs: dict[int, list[Round]] = defaultdict(list)
    for one in rounds:
        runs[one.ranks].append(one)
    if not any(one.waited for one in rounds):
        return ()
    most = max(runs.values(), key=lambda run: sum(one.waited for one in run) / sum(one.round_time for one in run))
    ranks = {one.rank for one in most}
    found = tuple(_of_rank([one for one in most if one.rank == rank]) for rank in sorted(ranks))
    return found if any(times.any() for times in found) else ()  # the first round alone waited


def _of_rank(rounds: list[Round]) -> np.ndarray:
    rounds = sorted(rounds, key=lambda one: one.number)
    times, waits = np.array([[one.round_time, one.waited] for one in rounds]).T
    if len(times) == 1:
        return np.where(waits > 0, times, 0.0)
    taken, late = np.cumsum(times) - times + waits, waits > 0
    seconds, before = np.zeros(len(times)), 0
    for k in range(1, len(times)):
        begun = max(before, k - BATCHES_AHEAD)
        seconds[k] = taken[k] - taken[begun]
        if late[k]:
            # k - before batches took the whole time between: each its share, exact
            if begun == before:
                seconds[before + 1 : k + 1], late[before + 1 : k + 1] = seconds[k] / (k - before), True
            before = k
    return _product_limit(seconds[1:], late[1:])  # the first was begun before the recording


def _product_limit(values: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """As many quantiles as values, of which those that are not exact are upper limits."""
    order = np.argsort(values)
    mass, left = np.zeros(len(values)), 1.0
    for i in reversed(np.flatnonzero(exact[order])):
        # Kaplan-Meier in reversed time: an exact value has 1 / (number of values up to it) of what is left
        mass[i] = left / (i + 1)
        left -= mass[i]
    at = np.searchsorted(np.cumsum([left, *mass]), (np.arange(len(values)) + 0.5) / len(values))
    return np.append(0.0, values[order])[at]
