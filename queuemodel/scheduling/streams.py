"""Streams of jobs: kinds of job, arrival processes at a given load, and mixes of kinds, seeded."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from ..base.checks import require_choice, require_count, require_name, require_number, require_seed
from ..base.errors import ModelError
from ..models.calibration import fit_network
from ..models.growth import fit_throughputs
from ..profile.examples import example_profile, example_throughputs
from ..profile.job import Job as TrainingJob
from ..queueing.network import Network
from ..queueing.solve import solve
from ..queueing.stations import Station
from .curves import TableCurve, as_curve, speed_at
from .jobs import Job, Workload, training_steps


@dataclass(frozen=True, slots=True)
class JobKind:
    """One kind of job in a mix."""

    name: str
    _: KW_ONLY
    curve: Any  #: Steps per second against nodes, as of `Job`.
    steps: float  #: Mean work.
    variation: float = 1.0  #: Coefficient of variation of the work: 0 all the same, 1 exponential, else lognormal.
    requested_nodes: int = 1
    least_nodes: int = 1
    most_nodes: int | None = None  #: The largest node count of a table, or `ThroughputCurve`, unless given.
    weight: float = 1.0  #: Share of the jobs, relative to the other kinds.
    end_probability: float = 0.0  #: As of `Job`.

    def __post_init__(self) -> None:
        require_name(self.name, "kind")
        what = f"kind {self.name!r}"
        require_number(self.steps, f"{what}: steps", positive=True)
        require_number(self.variation, f"{what}: variation", largest=1000)
        require_number(self.weight, f"{what}: weight", positive=True)
        require_count(self.requested_nodes, f"{what}: requested_nodes")
        object.__setattr__(self, "curve", as_curve(self.curve))
        if self.most_nodes is None and isinstance(self.curve, TableCurve):
            object.__setattr__(self, "most_nodes", self.curve.most)
        speed_at(self.curve, self.requested_nodes, what)

    @classmethod
    def training(cls, name: str, *, epochs: float, dataset_size: int, batch_size: int, **rest: Any) -> JobKind:
        """A kind whose jobs pass over a data set so many times on average; a step treats ``batch_size`` examples."""
        return cls(name, steps=training_steps(epochs, dataset_size, batch_size, f"kind {name!r}"), **rest)

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


#: Examples per epoch of CIFAR-10, which the packaged cloud measurements trained on.
CIFAR10 = 50_000

#: Times between arrivals, in units of their mean.
_GAPS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "poisson": lambda rng, n: rng.exponential(1.0, n),
    "bursty": lambda rng, n: rng.gamma(1 / 9, 9.0, n),
    "regular": lambda rng, n: np.ones(n),
    "at-once": lambda rng, n: np.zeros(n),
}


@dataclass(frozen=True, slots=True)
class Stream:
    """A random workload.

    Times between arrivals are exponential (``"poisson"``), gamma of coefficient of variation 3 (``"bursty"``) or
    constant (``"regular"``), or all jobs arrive at time 0 (``"at-once"``).

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
    #: Arrival rate times mean node-seconds on the requested nodes, over the nodes. What a policy makes of a job's curve
    #: may need more or fewer node-seconds, so 1 is no limit of stability.
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
            jobs.append(
                Job(
                    f"{kind.name}-{number}",
                    arrival_time=time,
                    steps=max(kind.sample(work_rng), 1e-9 * kind.steps),
                    curve=kind.curve,
                    least_nodes=kind.least_nodes,
                    most_nodes=kind.most_nodes,
                    requested_nodes=kind.requested_nodes,
                    end_probability=kind.end_probability,
                    kind=kind.name,
                )
            )
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
        speeds = solve(network, population=most).throughputs.tolist()
        curve = TableCurve(enumerate(speeds, start=1))
        asked = min(requested, most)
        kinds.append(JobKind(name, curve=curve, steps=steps, variation=1.5, requested_nodes=asked, weight=weight))
    return tuple(kinds)


def measured_kinds(*, most: int = 32) -> tuple[JobKind, ...]:
    """A mix of the package's own measured jobs: two profiled on a testbed, and one from throughputs in a cloud.

    Each is fitted and predicted up to ``most`` workers (`fit`); a job passes over its data set about ten times, and
    asks for as many nodes as its curve's knee.
    """
    models: dict[str, Any] = {name: fit_network(example_profile(name)) for name in ("alexnet-60", "resnet50-60")}
    models["shakesmall-p100"] = fit_throughputs(
        example_throughputs("shakesmall-p100"),
        job=TrainingJob(batch_size=128, parameter_bytes=0, tensors=0),
        strategy="async-ps",
    )
    kinds = []
    for name, model in models.items():
        curve = model.throughput(range(1, most + 1))
        kinds.append(
            JobKind.training(
                name,
                epochs=10.0,
                dataset_size=curve.dataset_size or CIFAR10,
                batch_size=curve.batch_size,
                curve=curve,
                variation=1.5,
                requested_nodes=max(1, min(most, int(curve.saturation_workers))),
            )
        )
    return tuple(kinds)
