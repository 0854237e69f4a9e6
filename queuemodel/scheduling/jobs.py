"""Jobs and workloads: what arrives at the cluster, when, and how it ends."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..base.checks import (
    MOST_EXAMPLES,
    require_choice,
    require_count,
    require_name,
    require_number,
    require_seed,
    require_share,
)
from ..base.errors import ModelError, QueueModelError
from .curves import Curve, as_curve, distorted
from .phases import BatchSizes


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A training job as the scheduler meets it; its curve is checked when a simulation starts."""

    name: str  #: Unique within its workload.
    _: KW_ONLY
    arrival_time: float  #: Seconds, >= 0.
    steps: float  #: Work in steps, the unit of the curve.
    #: Steps per second against nodes, the truth that runs: a callable, mapping or `ThroughputCurve`.
    curve: Curve
    least_nodes: int = 1  #: It runs on no fewer.
    most_nodes: int | None = None  #: And on no more; None: as many as the cluster has.
    #: What the user asked for, used by rigid policies; ``least_nodes`` unless given.
    requested_nodes: int | None = None
    end_probability: float = 0.0  #: That it is terminated early, uniformly over its work, as users kill runs.
    predicted: Curve | None = None  #: What a policy sees instead of the true curve.
    kind: str = ""  #: Label for grouping.
    #: What it may be trained with instead, for policies that choose; the work in all else is that at the user's batch
    #: size (`Job.adaptive` counts it).
    batch_sizes: BatchSizes | None = None

    def __post_init__(self) -> None:
        require_name(self.name, "job")
        what = f"job {self.name!r}"
        require_number(self.arrival_time, f"{what}: arrival_time", unit="seconds")
        require_number(self.steps, f"{what}: steps", unit="steps (a job needs work)", positive=True)
        require_share(self.end_probability, f"{what}: end_probability")
        require_count(self.least_nodes, f"{what}: least_nodes")
        if self.most_nodes is not None:
            require_count(self.most_nodes, f"{what}: most_nodes")
            if self.most_nodes < self.least_nodes:
                raise ModelError(
                    f"{what}: least_nodes ({self.least_nodes}) must not exceed most_nodes ({self.most_nodes})"
                )
        if self.requested_nodes is not None:
            require_count(self.requested_nodes, f"{what}: requested_nodes")
            if not self.least_nodes <= self.requested_nodes <= (self.most_nodes or math.inf):
                raise ModelError(
                    f"{what}: requested_nodes must be within least_nodes and most_nodes, got {self.requested_nodes}"
                )
        if self.batch_sizes is not None and not isinstance(self.batch_sizes, BatchSizes):
            raise ModelError(f"{what}: batch_sizes must be a BatchSizes, got {self.batch_sizes!r}")
        try:
            object.__setattr__(self, "curve", as_curve(self.curve))
            if self.predicted is not None:
                object.__setattr__(self, "predicted", as_curve(self.predicted))
        except ModelError as error:
            raise ModelError(f"{what}: {error}") from None

    @classmethod
    def adaptive(cls, name: str, *, batch_sizes: BatchSizes, batch_size: int, **rest: Any) -> Job:
        """A job whose user would train it at one of its batch sizes.

        Examples
        --------
        >>> from queuemodel.scheduling import BatchSizes, Job
        >>> sizes = BatchSizes({32: {1: 4.0}, 64: {1: 2.2}}, [(300, 32.0)])
        >>> Job.adaptive("a", batch_sizes=sizes, batch_size=64, arrival_time=0).steps
        225.0
        """
        require_choice(batch_size, f"job {name!r}: batch_size", batch_sizes.curves)
        seen = None if batch_sizes.predicted is None else batch_sizes.predicted[batch_size]
        steps, curve = batch_sizes.steps(batch_size), batch_sizes.curves[batch_size]
        return cls(name, steps=steps, curve=curve, predicted=seen, batch_sizes=batch_sizes, **rest)

    @property
    def requested(self) -> int:
        """The nodes asked for, ``least_nodes`` when nothing was."""
        return self.least_nodes if self.requested_nodes is None else self.requested_nodes

    def require_room(self, nodes: int, *, where: str, error: type[QueueModelError] = ModelError) -> None:
        """Raise an ``error`` when a cluster of so many nodes has fewer than the job needs or requests."""
        name, wanted = "least_nodes", self.least_nodes
        if wanted <= nodes:
            name, wanted = "requested_nodes", self.requested
        if wanted > nodes:
            raise error(
                f"{where}: {name} must be at most the cluster's {nodes} nodes, got {wanted}; lower it or take a larger "
                "cluster"
            )


def training_steps(epochs: float, dataset_size: float, batch_size: float, what: str) -> float:
    """Steps of so many passes over a data set; a step treats ``batch_size`` examples."""
    for value, name in ((epochs, "epochs"), (dataset_size, "dataset_size"), (batch_size, "batch_size")):
        require_number(value, f"{what}: {name}", positive=True, largest=MOST_EXAMPLES)
    return epochs * dataset_size / batch_size


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Jobs in order of arrival, with names of their own."""

    jobs: tuple[Job, ...]
    name: str = ""

    def __init__(self, jobs: Iterable[Job], name: str = "") -> None:
        object.__setattr__(self, "jobs", tuple(jobs))
        object.__setattr__(self, "name", name)
        if not self.jobs:
            raise ModelError("workload: at least one job is needed, got none")
        seen: set[str] = set()
        for before, job in zip([self.jobs[0], *self.jobs], self.jobs, strict=False):
            if job.name in seen:
                raise ModelError(f"workload: two jobs are named {job.name!r}; names must be unique")
            seen.add(job.name)
            if job.arrival_time < before.arrival_time:
                raise ModelError(
                    f"workload: job {job.name!r} arrives at {job.arrival_time:g} s, after {before.name!r} at "
                    f"{before.arrival_time:g} s in the list; sort the jobs by arrival time"
                )

    def __len__(self) -> int:
        return len(self.jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(self.jobs)

    def __repr__(self) -> str:
        span = self.jobs[-1].arrival_time - self.jobs[0].arrival_time
        kinds = sorted({job.kind for job in self.jobs if job.kind})
        label = f" of kinds {', '.join(kinds[:8])}" if kinds else ""
        return f"Workload {self.name!r}: {len(self)} jobs{label}, arriving within {span:g} s"

    def with_prediction_error(self, *, level: float = 0.0, scaling: float = 0.0, seed: int = 0) -> Workload:
        """The same jobs, seen by policies through wrong curves; the truth is what runs.

        ``level`` is the standard deviation of the logarithm of a factor on the whole curve, ``scaling`` that of the
        error of the scaling exponent; both are drawn once per job, and at most 10.
        """
        for value, name in ((level, "level"), (scaling, "scaling")):
            require_number(value, f"prediction error: {name}", largest=10)
        errors = np.random.default_rng(require_seed(seed)).standard_normal((len(self), 2)) * (level, scaling)
        jobs = []
        for job, (factor, bend) in zip(self.jobs, errors.tolist(), strict=True):
            wrong = partial(distorted, factor=math.exp(factor), bend=bend)
            sizes = job.batch_sizes
            if sizes is not None:
                sizes = replace(sizes, predicted={size: wrong(curve) for size, curve in sizes.curves.items()})
            jobs.append(replace(job, predicted=wrong(job.curve), batch_sizes=sizes))
        return Workload(jobs, self.name)

    def shares(self, seed: int) -> np.ndarray:
        """Share of its work that each job really does, shape (jobs,): the same under every policy."""
        chances = np.array([job.end_probability for job in self.jobs])
        shares = np.ones(len(self))
        rng = np.random.default_rng([seed, 0x656E64])
        for j in np.flatnonzero(chances):
            chance, share = rng.random(), rng.beta(1.0, 1.0)  # both always, so that streams stay aligned
            if chance < chances[j]:
                shares[j] = max(share, 1e-9)
        return shares
