"""Many runs in parallel: every policy at every load, on the same replications of a stream."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..checks import require_count, require_seed
from ..errors import ModelError
from ..parallel import run_tasks
from .cluster import Cluster
from .jobs import Workload
from .policies.base import Policy
from .runs import Study
from .simulate import simulate
from .streams import Stream

#: More are a mistake.
MOST_PROCESSES = 1024


@dataclass(frozen=True, slots=True)
class Replication:
    """One run of a study: where its workload comes from, and under what it runs."""

    source: Stream | Workload
    policy: Policy
    cluster: Cluster
    seed: int
    varied: dict[str, Any]
    warmup: float = 0.1
    error: tuple[float, float] = (0.0, 0.0)

    def __call__(self) -> dict[str, Any]:
        """Simulate, and give the figures back."""
        workload = self.source.workload(self.seed) if isinstance(self.source, Stream) else self.source
        if any(self.error):
            level, scaling = self.error
            workload = workload.with_prediction_error(level=level, scaling=scaling, seed=self.seed)
        schedule = simulate(workload, self.policy, cluster=self.cluster, seed=self.seed, warmup=self.warmup)
        return self.varied | {"replication": self.seed} | schedule.summary()


def sweep(
    stream: Stream,
    policies: Sequence[Policy],
    *,
    loads: Iterable[float] | None = None,
    cluster: Cluster | None = None,
    replications: int = 5,
    seed: int = 0,
    warmup: float = 0.1,
    n_jobs: int = 1,
    backend: str | None = None,
    progress: bool = False,
) -> Study:
    """Every policy at every load, on the same replications of a stream.

    Parameters
    ----------
    stream : Stream
    policies : sequence of Policy
    loads : iterable of float, optional
        The stream's own unless given.
    cluster : Cluster, optional
        The stream's nodes without costs unless given.
    replications : int, default 5
    seed : int
        Of the first replication; the others follow.
    n_jobs, backend : int, str
        As joblib takes them (``"loky"``, ``"dask"``, ``"ray"``, ...; `queuemodel.parallel`); -1: all cores.
    progress : bool, default False
        Show a bar on stderr.

    Returns
    -------
    Study
        After Ctrl-C with what had ended by then.
    """
    require_count(replications, "study: replications")
    require_seed(require_seed(seed, "study: seed") + replications, "study: last seed")
    where = cluster or Cluster(stream.nodes)
    different = tuple(dict.fromkeys(policies))
    names = [policy.name for policy in different]
    for name in names:
        if names.count(name) > 1:
            raise ModelError(
                f"study: different policies are named {name!r}, so that their runs would be mixed; tell "
                "them apart by fields or by `name`"
            )
    points = [replace(stream, load=load) for load in dict.fromkeys(loads or [stream.load])]
    runs = [
        Replication(source, policy, where, seed + number, {"load": source.load, "policy": policy.name}, warmup)
        for source, number, policy in itertools.product(points, range(replications), different)
    ]
    return run_all(runs, n_jobs=n_jobs, backend=backend, progress=progress)


def run_all(
    runs: Sequence[Callable[[], dict[str, Any]]],
    *,
    n_jobs: int = 1,
    backend: str | None = None,
    progress: bool = False,
) -> Study:
    """Carry out runs in parallel; an interruption keeps those that have ended."""
    if not runs:
        raise ModelError("study: nothing to run; give at least one policy, load and replication")
    if n_jobs != -1:
        require_count(n_jobs, "study: processes (-1: all cores)", most=MOST_PROCESSES)
    from tqdm import tqdm

    done: dict[int, dict[str, Any]] = {}
    complete = True
    try:
        results = run_tasks(runs, n_jobs=n_jobs, backend=backend, what="study")
        for number, figures in tqdm(results, total=len(runs), disable=not progress, unit="run"):
            done[number] = figures
    except KeyboardInterrupt:
        complete = False
    varied = tuple(getattr(runs[0], "varied", {"policy": ""}))
    return Study(tuple(done[number] for number in sorted(done)), varied, complete)
