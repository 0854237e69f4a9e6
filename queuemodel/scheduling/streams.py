"""Streams of jobs: kinds of job, arrival processes at a given load, and mixes of kinds, seeded."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from ..checks import require_choice, require_count, require_name, require_number, require_seed
from ..data import example_profile, example_throughputs
from ..errors import ModelError
from ..network import Network, Station
from ..solvers import solve
from ..training import fit
from .curves import TableCurve, as_curve, speed_at
from .jobs import Job, Workload, training_steps


@dataclass(frozen=True, slots=True)
class JobKind:
    """One kind of job in a mix.

    Parameters
    ----------
    name : str
    curve : callable, mapping or ThroughputCurve
        Steps per second against nodes.
    steps : float
        Mean work.
    variation : float, default 1
        Coefficient of variation of the work, at most 1000: 0 all the same, 1 exponential, else lognormal.
    requested_nodes, least_nodes, most_nodes : int
        A table's, or `ThroughputCurve`'s, largest node count is the most unless one is given.
    weight : float, default 1
        Share of the jobs, relative to the other kinds.
    end_probability : float, default 0
        As of `Job`.
    """

    name: str
    _: KW_ONLY
    curve: Any
    steps: float
    variation: float = 1.0
    requested_nodes: int = 1
    least_nodes: int = 1
    most_nodes: int | None = None
    weight: float = 1.0
    end_probability: float = 0.0

    def __post_init__(self) -> None:
        require_name(self.name, "kind")
        what = f"kind {self.name!r}"
        require_number(self.steps, f"{what}: steps", positive=True)
        require_number(self.variation, f"{what}: variation", largest=1000)
        require_number(self.weight, f"{what}: weight", positive=True)
        require_count(self.requested_nodes, f"{what}: requested_nodes")
        object.__setattr__(self, "curve", as_curve(self.curve))
        if self.most_nodes is None and isinstance(self.curve, TableCurve):
            object.__setattr__(self, "most_nodes", int(self.curve.points[-1][0]))
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

    Parameters
    ----------
    kinds : sequence of JobKind
    jobs : int
        Length.
    nodes : int
        Of the cluster that ``load`` is about.
    load : float
        Arrival rate times mean node-seconds on the requested nodes, over the nodes. What a policy makes of a job's
        curve may need more or fewer node-seconds, so 1 is no limit of stability.
    arrivals : {"poisson", "bursty", "regular", "at-once"}
        Exponential, gamma (of coefficient of variation 3) or constant times between arrivals, or all at time 0.

    Examples
    --------
    >>> stream = Stream([JobKind("a", curve=float, steps=60.0)], jobs=3, nodes=4, load=0.5)
    >>> len(stream.workload(seed=1))
    3
    """

    kinds: tuple[JobKind, ...]
    _: KW_ONLY
    jobs: int
    nodes: int
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

    @property
    def rate(self) -> float:
        """Arrivals per second."""
        weight = np.array([kind.weight for kind in self.kinds])
        service = np.array([kind.service for kind in self.kinds])
        return self.load * self.nodes / float((weight / weight.sum()) @ service)

    def workload(self, seed: int) -> Workload:
        """One sample; kinds, work and arrivals come from separate generators, so a change of one keeps the others."""
        sequences = np.random.SeedSequence(require_seed(seed)).spawn(3)
        kinds_rng, work_rng, time_rng = (np.random.default_rng(one) for one in sequences)
        weight = np.array([kind.weight for kind in self.kinds])
        chosen = kinds_rng.choice(len(self.kinds), self.jobs, p=weight / weight.sum())
        gaps = _GAPS[self.arrivals](time_rng, self.jobs) / self.rate
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


def network_curve(network: Network, *, most: int) -> TableCurve:
    """Steps per second of a training job from its closed network, one customer per worker node (exact MVA)."""
    speeds = solve(network, population=most).throughputs
    return TableCurve(tuple(zip(range(1, most + 1), speeds.tolist(), strict=True)))


def example_kinds(*, most: int = 64) -> tuple[JobKind, ...]:
    """A mix of four kinds of asynchronous training job with one parameter server, for studies without data.

    The curves are those of the package's own model: a worker computes (think time), and its parameters and gradients
    queue at the server. The kinds saturate at about 4, 10, 25 and 80 workers; sizes are lognormal, the large ones rare.
    """
    mix = (
        # name, compute s, server s, steps, requested, weight
        ("embedding", 0.06, 0.02, 40_000.0, 2, 5.0),
        ("small-image", 0.18, 0.02, 60_000.0, 4, 3.0),
        ("speech", 0.48, 0.02, 100_000.0, 8, 1.5),
        ("large-image", 1.58, 0.02, 300_000.0, 16, 0.5),
    )
    return tuple(
        JobKind(
            name,
            curve=network_curve(Network((Station("server", service_time=server),), think_time=compute), most=most),
            steps=steps,
            variation=1.5,
            requested_nodes=min(requested, most),
            most_nodes=most,
            weight=weight,
        )
        for name, compute, server, steps, requested, weight in mix
    )


def measured_kinds(*, most: int = 32) -> tuple[JobKind, ...]:
    """A mix of the package's own measured jobs: two profiled on a testbed, and one from throughputs in a cloud.

    Each is fitted and predicted up to ``most`` workers (`fit`); a job passes over its data set about ten times, and
    asks for as many nodes as its curve's knee.
    """
    models = {name: fit(example_profile(name)) for name in ("alexnet-60", "resnet50-60")}
    models["shakesmall-p100"] = fit(example_throughputs("shakesmall-p100"), batch_size=128)
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
