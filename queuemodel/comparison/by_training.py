"""What a strategy does when it trains a problem: steps and seconds to the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..descent import Descent, Problem, ServerSGD, descend
from .candidates import Candidate
from .result import Compared
from .timing import Timing

#: Seeds on which learning rates are chosen, apart from those that are reported.
TRIALS = (10_001, 10_002)

#: Looks at the loss.
LOOKS = 200


def by_training(
    one: Candidate,
    timing: Timing,
    problem: Problem,
    target: float,
    steps: int,
    seeds: Sequence[int],
    rates: Sequence[float],
) -> Compared:
    """A strategy's run at its best learning rate, in predicted seconds."""
    pace = timing.pace(**one.asks) if one.asks else timing.together
    each = timing.workers if not isinstance(one.descent, ServerSGD) else 1
    clock = timing.alone if one.asks else timing.clock(one.descent, one.compression)
    length = steps if each > 1 or timing.workers == 1 else steps * timing.workers

    def run(rate: float, seeds: Sequence[int]) -> Descent:
        settings = {"workers": timing.workers, "steps": length, "clock": clock, "record": LOOKS + 1}
        return descend(problem, one.descent, learning_rate=rate, seeds=seeds, until=target, **settings)  # type: ignore[arg-type]

    def merit(rate: float) -> tuple[float, float]:
        tried = run(rate, TRIALS)
        return float(np.median(tried.steps_to(target))), float(tried.losses[:, -1].mean())

    best = rates[0] if len(rates) == 1 else min(rates, key=merit)
    done = run(best, seeds)
    if one.asks:  # its gradients come at the rate of its network
        done = replace(done, times=done.times * done.steps[-1] / pace.steps_per_second / done.times[:, -1:])
    seconds, taken = float(done.times[:, -1].mean()), int(done.steps[-1])
    sent = float((done.up_bits + done.down_bits)[:, -1].mean()) / 8 * timing.scale / taken
    sent *= timing.sizing(one.descent)
    return Compared(
        name=one.name,
        steps_per_second=each * taken / seconds,
        bytes_per_step=sent,
        steps_to=each * done.steps_to(target),
        seconds_to=done.time_to(target),
        spread=pace.spread,
        learning_rate=best,
        descent=done,
    )
