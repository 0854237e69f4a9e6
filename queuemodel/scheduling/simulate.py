"""The one verb: a workload, a policy and a cluster give a schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..checks import require_seed, require_share
from ..errors import ModelError
from .cluster import Cluster
from .jobs import Job, Workload
from .policies.base import Policy
from .schedule import Schedule


def simulate(
    workload: Workload | Sequence[Job],
    policy: Policy,
    *,
    nodes: int | None = None,
    cluster: Cluster | None = None,
    seed: int = 0,
    warmup: float = 0.0,
    history: bool = False,
    progress: Callable[[int], Any] | None = None,
) -> Schedule:
    """Run a workload under a policy.

    Event-driven and exact: between changes of its allocation a job progresses at the constant speed of its curve, so
    its end is solved for, not stepped to.

    The cluster is one of so many ``nodes`` without restart costs or failures, or a `Cluster`. ``seed`` is that of early
    ends (the same under every policy) and of failures. ``warmup`` is the share of the jobs, first by arrival, that
    means and quantiles leave out. With ``history`` every change of every allocation is kept, for plotting nodes over
    time. ``progress`` is called now and then with the number of jobs that have ended.

    Examples
    --------
    >>> from queuemodel.scheduling import FIFO, Job, simulate
    >>> jobs = [Job("a", arrival_time=0, steps=100, curve=lambda n: 2.0 * n, requested_nodes=2)]
    >>> simulate(jobs, FIFO(), nodes=4).mean_response_time
    25.0
    """
    if (nodes is None) == (cluster is None):
        raise ModelError("simulate: give either nodes or cluster")
    if not isinstance(policy, Policy):
        raise ModelError(f"simulate: policy must be a Policy, got {type(policy).__name__}")
    if require_share(warmup, "simulate: warmup") == 1:
        raise ModelError("simulate: warmup must be below 1, or no job would be left to average over, got 1")
    require_seed(seed, "simulate: seed")
    where = Cluster(nodes) if cluster is None else cluster  # type: ignore[arg-type]
    from .engine import Engine  # compiled loops: numba takes long to import

    jobs = workload if isinstance(workload, Workload) else Workload(workload)
    engine = Engine(jobs, policy, where, seed=seed, history=history)
    engine.run(progress)
    return engine.schedule(warmup=warmup, seed=seed)
