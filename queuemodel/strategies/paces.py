"""Whether recorded ranks compute at different paces: a straggler that is the same in every round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..training.rounds import Round

#: Ranks are alike unless they differ by more than this share, and by more than so many standard errors.
LEAST, SURE = 0.03, 4.0


def paces(rounds: Sequence[Round], ranks: int) -> tuple[float, ...]:
    """How many times as long each rank computes as the typical one; empty where all are alike.

    The typical one is the median, of two the faster: a rank that stands out is more often slow than fast.
    """
    computed = [np.array([one.computed for one in rounds if one.rank == rank]) for rank in range(ranks)]
    if min(map(len, computed)) < 2:
        return ()
    means = np.array([own.mean() for own in computed])
    errors = np.array([own.std(ddof=1) / len(own) ** 0.5 for own in computed]) / means
    typical = int(np.argsort(means)[(ranks - 1) // 2])
    ratio = means / means[typical]
    apart = np.abs(np.log(ratio)) > np.maximum(LEAST, SURE * np.hypot(errors, errors[typical]))
    return tuple(np.where(apart, ratio, 1.0).tolist()) if apart.any() else ()
