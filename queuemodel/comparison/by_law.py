"""What can be told of a strategy without training: the time of a step and, by the law of batch sizes, the steps."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..convergence import Convergence, NoiseScale, relative_convergence
from ..descent import ServerSGD, SynchronousSGD, make_problem
from ..descent.compressors import WORD
from .by_training import by_training
from .candidates import Candidate
from .result import Compared
from .timing import Timing

#: What is trained to see what a strategy sends; the timing is that of as many parameters.
TRIAL = make_problem("logistic", features=50)

#: Quantiles of the law that stand for all, of equal weight.
LEVELS = (np.arange(41) + 0.5) / 41


@dataclass(frozen=True, eq=False)
class Law:
    """Examples until the target by batch size, told in steps of one worker's batch.

    Attributes
    ----------
    convergence : Convergence
    step : float
        Of what the law tells, in one step.
    second : float
        Seconds in the unit of time that is told.
    """

    convergence: Convergence
    step: float
    second: float = 1.0

    def steps(self, batch_size: int) -> np.ndarray:
        """Steps to the target at the batch size of an update: quantiles of equal weight, shape (levels,)."""
        return np.array(self.convergence.quantiles(batch_size, LEVELS)) / self.step


def absolute(convergence: Convergence, timing: Timing) -> Law:
    """The job's own law, in steps and seconds."""
    return Law(convergence, timing.batch_size)


def relative(noise: NoiseScale, timing: Timing) -> Law:
    """The law of the gradients' noise, in steps and seconds of one worker alone."""
    alone = replace(timing, workers=1).together.steps_per_second
    return Law(relative_convergence(timing.batch_size, noise), 1.0, alone)


def by_law(one: Candidate, timing: Timing, law: Law | None) -> Compared:
    """The time of a step and, where an update averages gradients of the same parameters, the steps."""
    pace = timing.pace(**one.asks) if one.asks else timing.together
    steps_per_second, sent = pace.steps_per_second, 2 * WORD / 8 * timing.dimension * timing.scale
    averaged = _averaged(one, timing.workers)
    if not averaged and not one.asks:
        trial = replace(TRIAL, batch_size=len(TRIAL.targets)) if one.descent.exact else TRIAL  # a batch is all there is
        run = by_training(one, timing, trial, -1.0, 200, range(2), (0.01,))
        steps_per_second, sent = run.steps_per_second, run.bytes_per_step
    steps = np.full(1, np.nan)
    if law is not None and averaged:
        steps = law.steps(averaged * timing.batch_size)
    return Compared(
        name=one.name,
        steps_per_second=steps_per_second,
        bytes_per_step=sent,
        steps_to=steps,
        seconds_to=steps / steps_per_second * (law.second if law else 1.0),
        spread=pace.spread,
    )


def _averaged(one: Candidate, workers: int) -> int:
    """Workers whose gradients, all of the same parameters, make an update; 0 where some are older, or changed."""
    if isinstance(one.descent, ServerSGD):
        return one.descent.k if one.descent.name in ("k-sync", "k-batch-sync") else 0
    return workers if isinstance(one.descent, SynchronousSGD) else 0
