"""What was compared, as a job for a cluster: its way to the loss on any number of nodes, stretch by stretch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..checks import require_count
from ..descent import Descent
from ..errors import ModelError
from ..scheduling import Job, StagedCurve, TableCurve
from .result import Compared, Comparison


def job_of(
    comparisons: Comparison | Sequence[Comparison],
    strategy: str,
    *,
    name: str,
    arrival_time: float,
    stretches: int = 10,
    **rest: Any,
) -> Job:
    """
    A job that trains by one strategy until the target, for `queuemodel.scheduling`.

    Its work counts in steps of all workers, as they are on the fewest workers that were compared. Where the strategy
    was run on a problem, its way to the loss is divided into stretches between levels of the loss, which take equal
    times on those fewest workers; on other numbers of workers each takes the time that the run there took between
    the same levels, so that steps that become slower, or are worth less, are so here as well. Elsewhere the job has one
    speed for all of its work. A worker is a node.

    Parameters
    ----------
    comparisons : Comparison or sequence of Comparison
        To the same target, on different numbers of workers; those on which the strategy does not arrive (median over
        the seeds) are left out, and speeds between the others are linear.
    strategy : str
        Its name in the comparisons.
    name : str
        Of the job.
    arrival_time : float
        Seconds.
    stretches : int
    **rest
        Further arguments of `Job`.

    Raises
    ------
    ModelError
        When the strategy was not compared, or its time is not known on any number of workers.
    """
    require_count(stretches, "job_of: stretches", most=1000)
    given = [comparisons] if isinstance(comparisons, Comparison) else list(comparisons)
    found = {
        comparison.workers: (comparison, one) for comparison in given for one in comparison.rows if one.name == strategy
    }
    if not found:
        raise ModelError(f"job_of: strategy must be one that was compared, got {strategy!r}")
    if any(comparison.relative for comparison, _ in found.values()) or len({c.target for c, _ in found.values()}) > 1:
        raise ModelError(
            "job_of: needs comparisons in seconds, to one target; give compare a problem or a convergence law"
        )
    ways = {n: found[n][1] for n in sorted(found) if np.isfinite(np.median(found[n][1].seconds_to))}
    if not ways:
        raise ModelError(f"job_of: {strategy!r} is not known to reach the target on any number of workers")
    first = next(iter(ways.values()))
    work = float(np.median(first.steps_to))
    levels = _levels(first, stretches)
    took = {n: _seconds(one, levels) for n, one in ways.items()}
    share = took[min(ways)] / took[min(ways)].sum()
    table = {n: share * work / seconds for n, seconds in took.items()}
    curve = StagedCurve(
        [(part, TableCurve({n: speeds[k] for n, speeds in table.items()})) for k, part in enumerate(share.tolist())]
    )
    least, most = min(ways), max(ways)
    return Job(name, arrival_time=arrival_time, steps=work, curve=curve, least_nodes=least, most_nodes=most, **rest)


def _way(run: Descent, end: float) -> tuple[np.ndarray, np.ndarray]:
    """Seconds, and the least loss so far, means over the seeds; from the start to the arrival."""
    times = run.times.mean(axis=0)
    losses = np.minimum.accumulate(np.where(np.isfinite(run.losses), run.losses, run.losses[:, :1]).mean(axis=0))
    before = times < end
    return np.append(times[before], end), np.append(losses[before], losses[-1])


def _levels(one: Compared, stretches: int) -> np.ndarray:
    """Losses between stretches of equal time, from high to low; none without a run."""
    if one.descent is None:
        return np.empty(0)
    times, losses = _way(one.descent, float(np.median(one.seconds_to)))
    levels = np.interp(times[-1] * np.arange(1, stretches) / stretches, times, losses)
    return np.unique(levels[(levels < losses[0]) & (levels > losses[-1])])[::-1]


def _seconds(one: Compared, levels: np.ndarray) -> np.ndarray:
    """Seconds of the stretches between the levels, all above 0, that add up to the time to the target."""
    end = float(np.median(one.seconds_to))
    if one.descent is None:
        return np.array([end])
    times, losses = _way(one.descent, end)
    at = np.interp(-levels, -losses, times)
    took = np.maximum(np.diff(at, prepend=0.0, append=end), 1e-3 * end / (len(levels) + 1))
    return took * end / took.sum()
