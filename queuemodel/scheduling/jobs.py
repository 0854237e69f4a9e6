"""Jobs and workloads: what arrives at the cluster, when, and how it ends; random streams of kinds of job."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..base.checks import (
    MOST_EXAMPLES,
    by_keyword,
    require_choice,
    require_count,
    require_name,
    require_number,
    require_seed,
    require_share,
)
from ..base.errors import ModelError
from ..models.predict import fit, predict
from ..profile.examples import example_profile, example_throughputs
from ..queueing.network import Network
from ..queueing.solve import solve
from ..queueing.stations import Station
from .curves import BatchSizes, Curve, TableCurve, as_curve, distorted, speed_at


@by_keyword
@dataclass(frozen=True, slots=True, eq=False)
class ClusterJob:
    """A training job as the scheduler meets it; its curve is checked when a simulation starts."""

    name: str  #: Unique within its workload.
    _: KW_ONLY
    arrival_time: float  #: Seconds, >= 0.
    steps: float  #: Work in steps, the unit of the curve.
    #: Steps per second against nodes, the truth that runs: a callable, mapping or `ThroughputCurve`.
    curve: Curve
    least_nodes: int = 1  #: It runs on no fewer.
    most_nodes: int | None = None  #: And on no more; None: as many as the cluster has.
    #: What the user requests, for rigid policies; ``least_nodes`` by default.
    requested_nodes: int | None = None
    end_probability: float = 0.0  #: That it is terminated early, uniformly over its work, as users kill runs.
    predicted: Curve | None = None  #: What a policy sees instead of the true curve.
    kind: str = ""  #: Label for grouping.
    #: For policies that choose a batch size; steps and curve are those at the user's (`ClusterJob.adaptive`).
    batch_sizes: BatchSizes | None = None

    def __post_init__(self) -> None:
        require_name(self.name, "job")
        what = f"job {self.name!r}"
        require_number(self.arrival_time, f"{what}: arrival_time", unit="seconds")
        require_number(self.steps, f"{what}: steps", unit="steps (a job needs work)", positive=True)
        require_share(self.end_probability, f"{what}: end_probability")
        for name in ("least_nodes", "most_nodes", "requested_nodes"):
            if (nodes := getattr(self, name)) is not None:
                require_count(nodes, f"{what}: {name}")
        most = self.most_nodes or math.inf
        if most < self.least_nodes:
            raise ModelError(f"{what}: least_nodes ({self.least_nodes}) must not exceed most_nodes ({self.most_nodes})")
        if not self.least_nodes <= self.requested <= most:
            raise ModelError(f"{what}: requested_nodes must be within least_nodes and most_nodes, got {self.requested}")
        if not isinstance(self.batch_sizes, BatchSizes | None):
            raise ModelError(f"{what}: batch_sizes must be a BatchSizes, got {self.batch_sizes!r}")
        object.__setattr__(self, "curve", as_curve(self.curve, what))
        if self.predicted is not None:
            object.__setattr__(self, "predicted", as_curve(self.predicted, what))

    @classmethod
    @by_keyword
    def adaptive(cls, name: str, *, batch_sizes: BatchSizes, batch_size: int, **rest: Any) -> ClusterJob:
        """A job whose user would train it at one of its batch sizes.

        Examples
        --------
        >>> from queuemodel.scheduling import BatchSizes, ClusterJob
        >>> sizes = BatchSizes({32: {1: 4.0}, 64: {1: 2.2}}, [(300, 32.0)])
        >>> ClusterJob.adaptive("a", batch_sizes=sizes, batch_size=64, arrival_time=0).steps
        225.0
        """
        require_choice(batch_size, f"job {name!r}: batch_size", batch_sizes.curves)
        seen = None if batch_sizes.predicted is None else batch_sizes.predicted[batch_size]
        steps, curve = batch_sizes.steps(batch_size), batch_sizes.curves[batch_size]
        return cls(name, steps=steps, curve=curve, predicted=seen, batch_sizes=batch_sizes, **rest)

    @property
    def requested(self) -> int:
        """``requested_nodes``, by default ``least_nodes``."""
        return self.least_nodes if self.requested_nodes is None else self.requested_nodes

    def require_room(self, nodes: int) -> None:
        """Refuse a cluster of n nodes, fewer than the job needs or requests (raises `ModelError`)."""
        for name, wanted in (("least_nodes", self.least_nodes), ("requested_nodes", self.requested)):
            if wanted > nodes:
                raise ModelError(
                    f"job {self.name!r}: {name} must be at most the cluster's {nodes} nodes, got {wanted}; lower it or "
                    "take a larger cluster"
                )


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Jobs in order of arrival, with names of their own."""

    jobs: tuple[ClusterJob, ...]
    name: str = ""

    def __init__(self, jobs: Iterable[ClusterJob], name: str = "") -> None:
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

    def __iter__(self) -> Iterator[ClusterJob]:
        return iter(self.jobs)

    def __repr__(self) -> str:
        span = self.jobs[-1].arrival_time - self.jobs[0].arrival_time
        kinds = sorted({job.kind for job in self.jobs if job.kind})
        label = f" of kinds {', '.join(kinds[:8])}" if kinds else ""
        return f"Workload {self.name!r}: {len(self)} jobs{label}, arriving within {span:g} s"

    def with_prediction_error(self, *, level: float = 0.0, scaling: float = 0.0, seed: int = 0) -> Workload:
        """The same jobs, seen by policies through wrong curves; the true ones run.

        ``level`` is the standard deviation of the log of a factor on the whole curve, ``scaling`` that of the error of
        its exponent, drawn once per job; both are at most 10.
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


@by_keyword
@dataclass(frozen=True, slots=True)
class JobKind:
    """One kind of job in a mix."""

    name: str
    _: KW_ONLY
    curve: Any  #: Steps per second against nodes, as of `ClusterJob`.
    steps: float  #: Mean work.
    variation: float = 1.0  #: Coefficient of variation of the work: 0 all the same, 1 exponential, else lognormal.
    requested_nodes: int = 1
    least_nodes: int = 1
    most_nodes: int | None = None  #: By default the largest node count of a table or `ThroughputCurve`.
    weight: float = 1.0  #: Share of the jobs, relative to the other kinds.
    end_probability: float = 0.0  #: As of `ClusterJob`.

    def __post_init__(self) -> None:
        require_name(self.name, "kind")
        what = f"kind {self.name!r}"
        require_number(self.steps, f"{what}: steps", positive=True)
        require_number(self.variation, f"{what}: variation", largest=1000)
        require_number(self.weight, f"{what}: weight", positive=True)
        require_count(self.requested_nodes, f"{what}: requested_nodes")
        object.__setattr__(self, "curve", as_curve(self.curve, what))
        if self.most_nodes is None and isinstance(self.curve, TableCurve):
            object.__setattr__(self, "most_nodes", self.curve.most)
        speed_at(self.curve, self.requested_nodes, what)

    @classmethod
    @by_keyword
    def training(cls, name: str, *, epochs: float, dataset_size: int, batch_size: int, **rest: Any) -> JobKind:
        """A kind whose jobs train ``epochs`` epochs on average; a step treats ``batch_size`` examples."""
        for value, field in ((epochs, "epochs"), (dataset_size, "dataset_size"), (batch_size, "batch_size")):
            require_number(value, f"kind {name!r}: {field}", positive=True, largest=MOST_EXAMPLES)
        return cls(name, steps=epochs * dataset_size / batch_size, **rest)

    @property
    def service(self) -> float:
        """Mean node-seconds on the requested nodes."""
        return self.requested_nodes * self.steps / float(self.curve(self.requested_nodes))

    def sample(self, rng: np.random.Generator) -> float:
        """Work of one job, in steps."""
        if self.variation == 0:
            return self.steps
        if self.variation == 1:
            return self.steps * float(rng.exponential())
        s2 = math.log1p(self.variation**2)
        return self.steps * float(rng.lognormal(-s2 / 2, math.sqrt(s2)))


#: Times between arrivals, in units of their mean.
_GAPS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "poisson": lambda rng, n: rng.exponential(1.0, n),
    "bursty": lambda rng, n: rng.gamma(1 / 9, 9.0, n),
    "regular": lambda rng, n: np.ones(n),
}


@dataclass(frozen=True, slots=True)
class Stream:
    """A random workload.

    Times between arrivals are exponential (``"poisson"``), gamma of coefficient of variation 3 (``"bursty"``) or
    constant (``"regular"``).

    Examples
    --------
    >>> stream = Stream([JobKind("a", curve=float, steps=60.0)], jobs=3, nodes=4, load=0.5)
    >>> len(stream.workload(seed=1))
    3
    """

    kinds: tuple[JobKind, ...]
    _: KW_ONLY
    jobs: int  #: Length.
    nodes: int  #: Of the cluster that ``load`` is about.
    #: Arrival rate times mean node-seconds on the requested nodes, over the nodes; no limit of stability at 1.
    load: float = 0.7
    arrivals: str = "poisson"

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", tuple(self.kinds))
        if not self.kinds:
            raise ModelError("stream: at least one kind of job is needed, got none")
        require_count(self.jobs, "stream: jobs")
        require_count(self.nodes, "stream: nodes")
        require_number(self.load, "stream: load", positive=True)
        require_choice(self.arrivals, "stream: arrivals", _GAPS)

    def workload(self, seed: int) -> Workload:
        """One sample; kinds, work and arrivals come from separate generators, so a change of one keeps the others."""
        sequences = np.random.SeedSequence(require_seed(seed)).spawn(3)
        kinds_rng, work_rng, time_rng = (np.random.default_rng(one) for one in sequences)
        weight, service = np.array([(kind.weight, kind.service) for kind in self.kinds]).T
        weight = weight / weight.sum()
        chosen = kinds_rng.choice(len(self.kinds), self.jobs, p=weight)
        gaps = _GAPS[self.arrivals](time_rng, self.jobs) / (self.load * self.nodes / float(weight @ service))
        jobs = []
        for number, (k, time) in enumerate(zip(chosen.tolist(), np.cumsum(gaps).tolist(), strict=True)):
            kind = self.kinds[k]
            names = ("curve", "least_nodes", "most_nodes", "requested_nodes", "end_probability")
            shared: dict[str, Any] = {name: getattr(kind, name) for name in names}
            steps = max(kind.sample(work_rng), 1e-9 * kind.steps)
            jobs.append(ClusterJob(f"{kind.name}-{number}", arrival_time=time, steps=steps, kind=kind.name, **shared))
        return Workload(jobs, f"load {self.load:g}, seed {seed}")


def example_kinds(*, most: int = 64) -> tuple[JobKind, ...]:
    """A mix of four kinds of asynchronous training job with one parameter server, for studies without data.

    The curves are those of the package's own model: a worker computes (think time), and its parameters and gradients
    queue at the server. The kinds saturate at about 4, 10, 25 and 80 workers; sizes are lognormal, the large ones rare.
    """
    mix = (
        # name, compute s, steps, requested, weight
        ("embedding", 0.06, 40_000.0, 2, 5.0),
        ("small-image", 0.18, 60_000.0, 4, 3.0),
        ("speech", 0.48, 100_000.0, 8, 1.5),
        ("large-image", 1.58, 300_000.0, 16, 0.5),
    )
    kinds = []
    for name, compute, steps, requested, weight in mix:
        network = Network((Station("server", service_time=0.02),), think_time=compute)
        curve = TableCurve(enumerate(solve(network, population=most).throughputs.tolist(), start=1))
        nodes = min(requested, most)
        kinds.append(JobKind(name, curve=curve, steps=steps, variation=1.5, requested_nodes=nodes, weight=weight))
    return tuple(kinds)


def measured_kinds(*, most: int = 32) -> tuple[JobKind, ...]:
    """A mix of the package's own measured jobs: two profiled on a testbed, and one from throughputs in a cloud.

    Each is fitted and predicted up to ``most`` workers; a job passes over its data set about ten times, and requests
    as many nodes as its curve's saturation point.
    """
    workers = range(1, most + 1)
    curves = {name: fit(example_profile(name)).throughput(workers) for name in ("alexnet-60", "resnet50-60")}
    cloud = example_throughputs("shakesmall-p100")
    curves["shakesmall-p100"] = predict(cloud, strategy="async-ps", batch_size=128, workers=workers)
    kinds = []
    for name, curve in curves.items():
        size = curve.dataset_size or 50_000  # of CIFAR-10, which the cloud measurements trained on
        knee = max(1, min(most, int(curve.saturation_workers)))
        passes: dict[str, Any] = {"epochs": 10.0, "dataset_size": size, "batch_size": curve.batch_size}
        kinds.append(JobKind.training(name, curve=curve, variation=1.5, requested_nodes=knee, **passes))
    return tuple(kinds)
