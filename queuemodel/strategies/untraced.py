"""What the rates of untraced rounds say beside recorded ones: tracing makes rounds longer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..training.rounds import Round
from .fitted_rounds import FittedRounds
from .round_network import ring_costs
from .rounds import round_time, slowest_of

#: Groups drawn.
SAMPLES = 2000


def without_tracing(fitted: FittedRounds, rounds: Sequence[Round], seconds: Mapping[int, float]) -> FittedRounds:
    """Correct what was fitted to recorded rounds by the mean time of untraced ones.

    Tracing is taken to make the computation of one rank and of more longer by the same factor, which the rounds of one
    rank tell. What then is left at the most recorded ranks lies beside computation and network (what frameworks do
    between rounds, copies, waits for a processor): the same in every round, whatever the number of ranks.

    Parameters
    ----------
    fitted : FittedRounds
    rounds : sequence of Round
        As recorded.
    seconds : dict
        Of an untraced round, by the number of ranks; others than one and the most recorded ones are not used.
    """
    alone = [one.round_time for one in rounds if one.ranks == 1]
    if 1 in seconds and alone:
        factor = seconds[1] / float(np.mean(alone))
        sizes, moments = fitted.gradients
        fitted = replace(
            fitted,
            ready=factor * fitted.ready,
            computed=factor * fitted.computed,
            gradients=(sizes, factor * moments),
            alone=seconds[1],
        )
    if fitted.ranks in seconds:
        rows = np.column_stack([fitted.ready, fitted.computed])
        (slowest,) = slowest_of(rows, [fitted.ranks], samples=SAMPLES, seed=0, paces=fitted.paces)
        work, latency = ring_costs(fitted.bucket_bytes, fitted.ranks, fitted.bandwidth, fitted.latency, fitted.buffer)
        ends = round_time(slowest[:, :-1], slowest[:, -1], work, latency, at_once=fitted.at_once)
        fitted = replace(fitted, tail=max(0.0, seconds[fitted.ranks] - float(ends.mean())))
    return fitted
