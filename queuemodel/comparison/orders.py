"""Orders of completion from a simulated cluster, for strategies that apply gradients as they complete."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..descent import Order
from ..errors import ModelError
from ..traces import SimulatedRun


def simulated_order(run: SimulatedRun) -> Callable[[int, int, np.random.Generator], Order]:
    """
    The order in which the workers of a simulated cluster gave results that were used, as `ServerSGD` takes it.

    Each run of training begins at a random step of the simulated ones and goes round, so that it needs no more of them
    than were simulated, and seeds differ.

    Parameters
    ----------
    run : SimulatedRun
        With its steps kept: ``simulate(..., trace_steps=steps)``.

    Raises
    ------
    ModelError
        When too few steps were kept.

    Examples
    --------
    >>> from queuemodel.data import example_profile
    >>> from queuemodel.descent import ServerSGD, descend, make_problem
    >>> from queuemodel.traces import simulate
    >>> order = simulated_order(simulate(example_profile(), workers=4, steps=200, trace_steps=200))
    >>> done = descend(make_problem("logistic"), ServerSGD(order=order), workers=4, steps=400, learning_rate=0.1)
    >>> bool(abs(done.staleness.mean() - 3) < 0.2)
    True
    """
    who, when = run.log[::-1, 0], run.log_times[::-1, 2]
    result, last = np.unique(run.log_results[::-1], return_index=True)  # of each step its last operation
    last = last[result > 0]
    if len(last) < 10 * run.workers:
        raise ModelError(f"simulated_order: only {len(last)} steps were kept; simulate with trace_steps=steps")
    workers, ends = who[last], when[last]
    seen = ends >= max(when[who == w].min() for w in np.unique(who))  # of a fast worker, earlier steps are gone
    workers, ends = workers[seen], ends[seen]
    gaps = np.diff(ends, prepend=ends[0] - np.diff(ends).mean())

    def order(asked: int, gradients: int, rng: np.random.Generator) -> Order:
        if asked != run.workers:
            raise ModelError(f"simulated_order: {run.workers} workers were simulated, {asked} are asked for")
        chosen = (rng.integers(len(ends)) + np.arange(gradients)) % len(ends)
        return Order(gaps[chosen].cumsum(), workers[chosen])

    return order
