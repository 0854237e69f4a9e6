"""The model of a table of measurements: rates or step times by workers, nodes and batch size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mode
from typing import Any, Literal, TypedDict, Unpack

import msgspec
import numpy as np

from ...base.checks import require_choice
from ...base.errors import FitError, ModelError
from ...base.estimates import Parameter, standard_errors
from ...base.results import Note, counted
from ...curves.prediction import Prediction
from ...profile.gathers import Gather
from ...profile.job import Job
from ...profile.measurements import Measurement
from ...profile.scenario import SHARDED
from ..closed_network.demands import Servers, uneven_shards
from ..knee import LOST, MOST_NODES, knee_note, knee_of, knee_parameter
from ..model import Breakdown, Model, Outcome
from .fit import ScalingData
from .law import Sizes, Values, asynchronous, hiding, passes, server_load
from .prior import PRIOR_NUMBERS, Prior, of_gathers

Strategy = Literal["all-reduce", "sync-ps", "async-ps", "fsdp", "hsdp", "zero-1"]

BEYOND = 8  #: Factor up to which batch sizes may be outside the measured ones.
MOST_NAMED = 3  #: Measurements that notes name, the furthest from the fit.
KNEE_POINTS = 120  #: Numbers of nodes among which a knee is looked for.
SENT = ("gathers", "reductions")  #: Collectives of the forward and of the backward pass of sharded jobs.
CORRELATION = math.sqrt(0.5)  #: Of errors at n and 2 n workers: they drift, half of the variance is in one doubling.

#: Notes on a fit, after those on misfits and the knee: where each applies, its sentence (of the model m) and kind.
NOTES: tuple[tuple[Callable[[ScalingModel], Any], str, Literal["assumed", "narrow", "other"]], ...] = (
    (lambda m: m._unsaturated and m.table.prior.bytes,
     "no saturation up to {m._range}: estimated from the parameters' bytes", "assumed"),
    (lambda m: m._unsaturated and not m.table.prior.bytes,
     "no saturation up to {m._range}: estimated from published jobs", "assumed"),
    (lambda m: m.sharded and np.log(m._values["latency"]).std() > PRIOR_NUMBERS["open"],
     "the latency of gathers is not identified; measured all-gathers (--gathers), or a table of another job there on "
     "more nodes, narrow the knee", "narrow"),
    (lambda m: m._reduces and m._nodes == 1, "growth beyond one node is estimated from published jobs", "assumed"),
    (lambda m: m._reduces and m._nodes == 2, "growth beyond two nodes is estimated from published jobs", "assumed"),
    (lambda m: m._reduces and m._nodes > 2 and max(map(m._mean, ("growth", "latency"))) > PRIOR_NUMBERS["surprise"],
     "rounds grow faster than in most published jobs", "other"),
    (lambda m: m.base.workers > 1,
     "speedup and efficiency relate to {m.base.group}, the smallest measured group", "other"),
    (lambda m: m.effective_draws < PRIOR_NUMBERS["effective"],
     "few draws fit ({m.effective_draws:.0f} lineages), so that intervals are rough", "other"),
    (lambda m: m.scenario.batch_size and not m._batch_sizes[0] <= m.scenario.batch_size <= m._batch_sizes[1],
     "no batch of {m.scenario.batch_size} was measured, only {m._batch_sizes[0]} to {m._batch_sizes[1]}", "other"),
)  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class ScalingModel(Model):
    """How a job's rate depends on workers, nodes and batch size; made by `fit` or `fit_scaling`."""

    strategy: Strategy
    table: ScalingData  # The measurements, and the prior
    coordinates: np.ndarray  # (B, d): Equally likely draws of the prior's coordinates
    levels: np.ndarray  # (B, batch sizes): And of log step times of the smallest group by its batch sizes
    effective_draws: float  # How many independent draws these are worth, by the lineages of their sampling
    known_job: Job | None = None
    assumption: str = ""
    changes = ("batch_size", "gpus_per_node", "parameter_servers", "shards")
    kind = "of a table of measurements"

    @property
    def job(self) -> Job:
        """The job, with the specified batch size; without it, with the only one that was measured, or 1."""
        sizes = sorted({m.batch_size or 1 for m in self.table.measured})
        if self.scenario.batch_size is None and len(sizes) > 1:
            raise ModelError(
                f"throughput: batch_size must be given, since {len(sizes)} were measured ({sizes[0]} to {sizes[-1]})"
            )
        job = self.known_job or Job(batch_size=sizes[0], parameter_bytes=0, tensors=0)
        return msgspec.structs.replace(job, batch_size=self.scenario.batch_size or job.batch_size)

    @property
    def unit(self) -> str:
        sizes = [m for m in self.table.measured if m.batch_size]
        return sizes[0].unit if sizes else "examples" if self.job.batch_size > 1 else ""

    @property
    def sequence_length(self) -> int | None:
        return self.table.measured[0].sequence_length

    @property
    def base_workers(self) -> int:
        return self.base.workers

    @property
    def servers(self) -> Servers:
        """Parameter servers, as specified."""
        count = mode([m.parameter_servers for m in self.table.measured])
        return Servers("single", uneven_shards(count)).changed(self.scenario)

    def check(self) -> None:
        """See `Model`: only tables of several batch sizes determine the effect of another one."""
        (low, high), asynchronous = self._batch_sizes, self.strategy == "async-ps"
        undetermined = {
            "batch_size": asynchronous or not any(m.batch_size for m in self.table.measured),
            "gpus_per_node": self.strategy.endswith("ps"), "parameter_servers": not asynchronous,
            "shards": not asynchronous,
        }  # fmt: skip
        if name := next((name for name in self.scenario.specified if undetermined[name]), ""):
            raise ModelError(
                f"{name} requires a profile with recorded steps: such a table does not determine its effect"
            )
        if (size := self.scenario.batch_size) and not low / BEYOND <= size <= BEYOND * high:
            least, most = math.ceil(low / BEYOND), BEYOND * high
            raise ModelError(
                f"batch_size must be {least} to {most}, a factor of {BEYOND} beyond the measured {low} to {high}, "
                f"got {size}; measure it too"
            )

    def sizes(self, workers: np.ndarray) -> Sizes:
        """Groups (n,) on as few nodes as hold them."""
        g, n = self.workers_per_node, np.asarray(workers, float)
        share = max(self.servers.shards) if self.strategy == "async-ps" else 1.0
        size = float(self.scenario.batch_size or self.base.batch_size or 1)
        return Sizes(n, -(-n // g), np.minimum(n, g), np.full(len(n), size), np.full(len(n), share))  # ceil(n / g)

    @property
    def workers_per_node(self) -> int:
        """GPUs of a node, those of the fullest measured one unless specified; 1 of workers that have a node each."""
        return self.scenario.gpus_per_node or max(m.fullest_node for m in self.table.measured)

    def outcome(self, workers: np.ndarray, *, seed: int = 0) -> Outcome:
        """The posterior's draws, and the law's error at these numbers of workers."""
        sizes, g, servers = self.sizes(workers), self.workers_per_node, self.servers
        draws, error = self.draws(sizes), self.error(sizes, np.random.default_rng(seed))
        free, size = self.strategy == "async-ps", int(sizes.batch_size[0])
        measured = [  # on such nodes, with this batch size and these servers
            m for m in sorted(self.table.measured, key=lambda m: m.workers)
            if (m.nodes or m.workers, m.fullest_node) == (-(-m.workers // g), min(m.workers, g))
            and (m.batch_size or 1) == size
            and (not free or (m.parameter_servers == servers.count and not self.scenario.shards))
        ]  # fmt: skip
        points = tuple((m.workers, m.steps_per_second) for m in measured)
        known = dict(points)
        peak = [  # rate of a worker in smaller groups: a round of more workers takes no less time
            math.inf if free or w in known else max((x / n for n, x in points if n < w), default=math.inf)
            for w in workers.tolist()
        ]
        noise = max((m.relative_error(PRIOR_NUMBERS["noise"]) for m in measured), default=0.0)
        ceiling: dict[str, Any] = {"ceiling": np.log(workers * peak), "ceiling_error": np.array(noise)}
        on_nodes = f" on nodes of {counted(g, 'GPU')}" if g > 1 else ""
        return Outcome(
            workers=workers,
            throughput=np.exp(self.point(draws)),
            prediction=Prediction.drawn(workers, draws, error=error, correlation=CORRELATION, **ceiling),
            noise=PRIOR_NUMBERS["noise"],
            breakdown=lambda X: self._stations(sizes, X) if free else self._sent(sizes, X),
            method=f"{self.strategy}{on_nodes} (fitted table)",
            remarks=self.remarks,
            assumption=self.assumption,
            parameter_servers=servers.count if self.strategy.endswith("ps") else 0,
            workers_per_node=g,
            profiled_workers=max((m.workers for m in measured), default=0),
            measured=points,
            synchronous=not free,
        )

    def _stations(self, sizes: Sizes, X: np.ndarray) -> Breakdown:
        """Breakdown for asynchronous workers, by the medians of computation and servers' load."""
        v, n = self._values, sizes.workers
        rate, relative_compute = np.exp(self.draws(sizes).T), self.table.compute(v, sizes)
        scale = rate * asynchronous(v, sizes, relative_compute) / n  # relative over absolute time (1/s): X T / n
        busy = np.median(np.minimum(rate * server_load(v, sizes) / scale / n, 1.0), axis=0)  # utilization law
        compute = np.median(relative_compute / scale, axis=0)
        shards = np.array(self.servers.shards) / max(self.servers.shards)
        lower, upper = (np.exp(self.point(bound)) for bound in self.bounds(sizes))
        return Breakdown(
            stations=self.servers.stations,
            utilization=busy[:, None] * shards,
            residence_time=np.maximum(n / X - compute, 0.0)[:, None] * shards / shards.sum(),  # R = n / X - Z
            think_time=np.minimum(compute, n / X),
            bound_lower=np.minimum(lower, X),
            bound_upper=np.maximum(upper, X),
            saturation_workers=float(np.median(self.saturation_workers)),
            bottleneck=self.servers.stations[int(shards.argmax())],
        )

    def _sent(self, sizes: Sizes, X: np.ndarray) -> Breakdown:
        """Breakdown for sharded jobs, by what gathers and reductions (with their gathers) add to a step."""
        if not self.sharded:
            return Breakdown()
        v, time = self._values, sizes.workers / X
        parts = passes(v, sizes, self.table.compute(v, sizes), self.strategy)
        total = sum(hiding(c, m) for c, m in parts)
        busy = np.column_stack([np.median(m / total, axis=0) for _, m in parts])
        exposed = np.column_stack([np.median((hiding(c, m) - c) / total, axis=0) for c, m in parts])  # c ⊕ m - c
        largest = int(exposed[-1].argmax())
        return Breakdown(
            stations=SENT,
            utilization=np.minimum(busy, 1.0),
            residence_time=exposed * time[:, None],
            think_time=(1.0 - exposed.sum(axis=1)) * time,
            bottleneck=SENT[largest] if exposed[-1, largest] > LOST else "",
        )

    def caption(self) -> str:
        """The measurements, and unidentified parameters."""
        measured = f"{self.strategy}, {counted(len(self.table.measured), 'measurement')} on at most "
        return "; ".join(filter(None, [self.assumption, measured + counted(self._nodes, "node"), self.note]))

    @property
    def base(self) -> Measurement:
        """The smallest measured group, the base of speedup and efficiency."""
        return self.table.groups[0][0]

    def draws(self, sizes: Sizes) -> np.ndarray:
        """Log steps per second of all workers, shape (n, B)."""
        level = self.levels @ self.table.weights(sizes).T
        return (np.log(sizes.workers) - level - self.table.relative(self._values, sizes)).T  # X = n / T

    def error(self, sizes: Sizes, rng: np.random.Generator) -> np.ndarray:
        """Standard deviation (n, B) of a measurement's logarithm from each draw; its size drawn, hence Student's t."""
        n, misfit, freedom = sizes.workers, self._values["misfit"][:, 0], PRIOR_NUMBERS["freedom"]
        doublings = np.log2(np.maximum(np.maximum(n / self._largest, self.base.workers / n), 1.0))[:, None]
        size = np.sqrt(freedom / rng.chisquare(freedom, len(misfit)))  # t_f = normal / sqrt(chi2_f / f)
        variance = misfit**2 * (1.0 + self.table.prior.drift**2 * doublings)  # a random walk beyond measured sizes
        return np.asarray(np.sqrt(variance + PRIOR_NUMBERS["noise"] ** 2) * size)

    def point(self, draws: np.ndarray) -> np.ndarray:
        """The point estimate (n,) of draws (n, B) of throughput or of its bounds: a quantile, which keeps their order.

        The median; of asynchronous workers and sharded jobs less, since above a measurement relative errors are larger
        (chosen on sources left out; Gneiting, "Making and evaluating point forecasts", 2011).
        """
        skewed = self.sharded or self.strategy == "async-ps"
        return np.asarray(np.quantile(draws, PRIOR_NUMBERS["quantile"] if skewed else 0.5, axis=1))

    @property
    def sharded(self) -> bool:
        """Whether workers keep shards of the parameters."""
        return self.strategy in SHARDED

    @cached_property
    def knee(self) -> np.ndarray:
        """Nodes (B,) on which a sharded job loses 10 % of its rate per GPU; inf: on none up to `MOST_NODES`."""
        nodes = np.unique(np.geomspace(self.base.nodes or self.base.workers, MOST_NODES, KNEE_POINTS).round())
        sizes = self.sizes(nodes * self.workers_per_node)
        return knee_of(nodes, self.draws(sizes) - np.log(sizes.workers)[:, None])

    @property
    def cluster(self) -> dict[str, tuple[float, float]]:
        """Costs of gathers on this job's cluster, for `gathers` of another job: as `Prior.cluster`."""
        prior, costs = self.table.prior, dict(self.table.prior.cluster)
        for name, size in (("gather", prior.bytes), ("latency", prior.layers)):
            if size:
                cost = np.log(self._values[name] * self.table.reference / size)  # s, of a byte or a message
                costs[name] = float(np.median(cost)), float(np.hypot(cost.std(), PRIOR_NUMBERS["other_job"]))
        return costs

    def bounds(self, sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
        """Log asymptotic bounds (n, B) of draws of asynchronous workers: computation and load in turn, or at once."""
        v = self._values
        compute, load = self.table.compute(v, sizes), server_load(v, sizes)
        rate = self.draws(sizes).T + np.log(asynchronous(v, sizes, compute))
        return (rate - np.log(compute + load)).T, (rate - np.log(np.maximum(compute, load))).T  # c + m >= T >= max

    @property
    def saturation_workers(self) -> np.ndarray:
        """N* (B,) of asynchronous workers: computation and the busiest server's load are equal."""
        v, share = self._values, self.sizes(np.ones(1)).server_share[0]
        return np.asarray(((v["demand"] * share) ** (-1.0 / v["growth"]))[:, 0])  # D n^p = 1

    @cached_property
    def _residuals(self) -> np.ndarray:
        """Log rates of the measured groups over those of the draws, shape (B, groups)."""
        return np.asarray(np.log(self.table.sizes.workers) - self.table.log_time - self.draws(self.table.sizes).T)

    @property
    def misfits(self) -> tuple[tuple[Measurement, float], ...]:
        """Measurements that the fit misses by more than their noise, and their relative differences from its median."""
        residual = np.median(self._residuals, axis=0)
        tolerance = np.maximum(PRIOR_NUMBERS["missed"], PRIOR_NUMBERS["missed_errors"] * self.table.noise)
        missed = np.flatnonzero(np.abs(residual) > tolerance)
        return tuple((self.table.groups[i][0], float(np.expm1(residual[i]))) for i in missed)

    @property
    def outliers(self) -> tuple[Measurement, ...]:
        """Measurements far from most draws that four or more others contradict: three points contradict no law."""
        scale = PRIOR_NUMBERS["outlier"] * self.table.scale(self._values)
        outlying = (np.abs(self._residuals) > scale).mean(axis=0) > 0.5
        contradicted = len(self.table.groups) > max(3, 3 * outlying.sum())
        return tuple(self.table.groups[i][0] for i in np.flatnonzero(outlying)) if contradicted else ()

    @property
    def _parameters(self) -> tuple[Parameter, ...]:
        """The step of the smallest group, the prior's coordinates, and the knee."""
        step, draws = np.exp(self.levels[:, 0]), self._values
        note = f"of {counted(self.base.workers, 'worker')}, the smallest measured group"
        rows = [Parameter("step", float(np.median(step)), "s", standard_error=float(standard_errors(step)), note=note)]
        for (name, _, unit, note), measured in zip(self.table.prior.coordinates, self._measured, strict=True):
            values = draws[name][:, 0] * (self.table.reference if unit else 1.0)
            value, error = float(np.median(values)), float(standard_errors(values))
            known: dict[str, Any] = {"origin": "measured" if measured else "assumed", "identified": bool(measured)}
            rows.append(Parameter(name, value, "s" if unit else "", standard_error=error, note=note, **known))
        return (*rows, knee_parameter(self.knee, self._nodes)) if self.sharded else tuple(rows)

    @property
    def remarks(self) -> tuple[Note, ...]:
        """Notes on misfits, on the knee, and those of `NOTES`."""
        notes, misfits = list[Note](), sorted(self.misfits, key=lambda misfit: -abs(misfit[1]))
        outliers, doubted = self.outliers, False  # of all that are only unlike published jobs, the first is a doubt
        for m, residual in misfits[:MOST_NAMED]:
            batch = f", batch {m.batch_size}" if m.batch_size else ""
            outlier = m in outliers
            cause = "an outlier" if outlier else "unlike published jobs"
            kind: Literal["doubt", "other"] = "doubt" if outlier or not doubted else "other"
            doubted = doubted or not outlier
            notes.append(Note(f"{m.group}{batch}: {100 * residual:+.0f} % off the fit, {cause}", kind))
        if more := misfits[MOST_NAMED:]:
            notes.append(Note(f"{counted(len(more), 'more measurement')} off by up to {100 * abs(more[0][1]):.0f} %"))
        if self.sharded:
            notes.append(Note(knee_note(self.knee), "assumed"))
        return (*notes, *(Note(sentence.format(m=self), kind) for applies, sentence, kind in NOTES if applies(self)))

    @property
    def _reduces(self) -> bool:
        """Whether gradients are reduced by all workers."""
        return self.strategy != "async-ps" and not self.sharded

    @property
    def _unsaturated(self) -> bool:
        """Whether no measurement determines the demand at asynchronous servers."""
        return self.strategy == "async-ps" and not self._measured[0]

    @property
    def _largest(self) -> int:
        return max(m.workers for m in self.table.measured)

    @property
    def _range(self) -> str:
        return counted(self._largest, "worker")

    @property
    def _nodes(self) -> int:
        return int(self.table.sizes.nodes.max())

    @property
    def _batch_sizes(self) -> tuple[int, int]:
        """The smallest and the largest measured batch size."""
        sizes = [m.batch_size or 1 for m in self.table.measured]
        return min(sizes), max(sizes)

    @cached_property
    def _values(self) -> Values:
        """Draws of the law's parameters, each (B, 1)."""
        return self.table.values(self.coordinates)

    def _mean(self, name: str) -> float:
        """Mean of a coordinate, in standard deviations of its prior."""
        names = [coordinate.name for coordinate in self.table.prior.coordinates]
        return float(self.coordinates[:, names.index(name)].mean())

    @cached_property
    def _measured(self) -> np.ndarray:
        """Of each coordinate, whether a measurement depends on it and narrows it."""
        return self.table.depends(self.coordinates) & (self.coordinates.std(axis=0) < PRIOR_NUMBERS["narrowed"])


class KnownServers(TypedDict, total=False):
    """What may be known of a job on servers."""

    bytes: float | None  # Of the parameters
    link: float | None  # Bytes per second of each


class KnownShards(TypedDict, total=False):
    """What may be known of a sharded job; without it, only the measurements tell of gathers."""

    parameters: float | None
    layers: float | None  # Gathered one after the other
    precision: str | None  # In which parameters are gathered


class KnownJob(KnownServers, KnownShards, total=False):
    """What may be known of a job besides its rates."""


def fit_scaling(
    measured: Iterable[Measurement],
    *,
    strategy: Strategy,
    sparse_gradients: bool = False,
    gathers: Sequence[Gather] | ScalingModel = (),
    prior: Prior | None = None,
    seed: int = 0,
    **known: Unpack[KnownJob],
) -> ScalingModel:
    """Fit how a job's rate depends on workers, nodes and batch size to measurements of one group or more.

    ``sparse_gradients``: most parameters of a synchronous job are embeddings. ``gathers`` are those measured on the
    cluster of a sharded job, or the model of another job there. ``prior`` is in place of that of all published jobs.
    ``known`` is a `KnownServers` or, of sharded jobs, a `KnownShards`. Raises `FitError` without measurements.
    """
    if not (rows := tuple(measured)):
        raise FitError("fit: at least one measurement is needed, got none")
    for name in known:
        may_be = KnownShards if strategy in SHARDED else KnownServers
        require_choice(name, f"fit_scaling: what is known of {strategy}", may_be.__annotations__)
    job: dict[str, Any] = {**known}
    if strategy in SHARDED:
        prior = prior or Prior.sharded(strategy, cluster=_cluster(rows, gathers), **job)
    table = ScalingData(rows, prior or Prior.of("sparse gradients" if sparse_gradients else strategy, **job))
    return ScalingModel(strategy, table, *table.draw(np.random.default_rng(seed)))


def _cluster(rows: Sequence[Measurement], gathers: Sequence[Gather] | ScalingModel) -> dict[str, Any] | None:
    """Costs of gathers on the cluster of these measurements, None where nothing was measured."""
    if isinstance(gathers, ScalingModel):
        if not (gathers.sharded and gathers.table.prior.bytes):
            raise ModelError("gathers: the other job must be sharded, and fitted with its parameters")
        return gathers.cluster
    return of_gathers(gathers, max(m.fullest_node for m in rows)) if gathers else None
