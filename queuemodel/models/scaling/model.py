"""A job known by a table of measurements: rates or step times by workers, nodes and batch size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mode
from typing import Any, Literal

import msgspec
import numpy as np

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
from .law import Sizes, asynchronous, hiding, passes, server_load
from .prior import PRIOR_NUMBERS, Prior, of_gathers

Strategy = Literal["all-reduce", "sync-ps", "async-ps", "fsdp", "hsdp", "zero-1"]

MOST_NAMED = 3  #: Measurements that the note names, the furthest from the fit.
#: Numbers of nodes among which a knee is looked for.
KNEE_POINTS = 120
#: What sharded jobs send during the forward pass, and during the backward pass.
SENT = ("gathers", "reductions")


@dataclass(frozen=True, eq=False, repr=False)
class ScalingModel(Model):
    """How a job's rate depends on workers, nodes and batch size; made by `fit` or `fit_scaling`.

    Attributes
    ----------
    strategy : {"all-reduce", "sync-ps", "async-ps", "fsdp", "hsdp", "zero-1"}
    table : ScalingData
        The measurements, and the prior.
    coordinates, levels : ndarray, shapes (B, d), (B, batch sizes)
        Equally likely draws: the prior's coordinates, and log step times of the smallest group by its batch sizes.
    effective_draws : float
        How many independent draws these are worth, by the lineages of their sampling.
    """

    strategy: Strategy
    table: ScalingData
    coordinates: np.ndarray
    levels: np.ndarray
    effective_draws: float
    known_job: Job | None = None
    assumption: str = ""
    changes = ("batch_size", "gpus_per_node", "parameter_servers", "shards")
    kind = "of a table of measurements"

    @property
    def job(self) -> Job:
        """Its batch size is the specified one; it may be left out where only one was measured, or none."""
        sizes = sorted({m.batch_size or 1 for m in self.table.measured})
        if self.scenario.batch_size is None and len(sizes) > 1:
            raise ModelError(
                f"throughput: batch_size must be given, since {len(sizes)} were measured ({sizes[0]} to {sizes[-1]})"
            )
        job = self.known_job or Job(batch_size=sizes[0], parameter_bytes=0, tensors=0)
        return msgspec.structs.replace(job, batch_size=self.scenario.batch_size or job.batch_size)

    @property
    def unit(self) -> str:
        """See `Model`."""
        sizes = [m for m in self.table.measured if m.batch_size]
        return sizes[0].unit if sizes else "examples" if self.job.batch_size > 1 else ""

    @property
    def sequence_length(self) -> int | None:
        """See `Model`."""
        return self.table.measured[0].sequence_length

    @property
    def base_workers(self) -> int:
        """See `Model`: the smallest measured group."""
        return self.base.workers

    @property
    def servers(self) -> Servers:
        """Parameter servers, as specified."""
        count = mode([m.parameter_servers for m in self.table.measured])
        return Servers("single", uneven_shards(count)).changed(self.scenario)

    def check(self) -> None:
        """See `Model`: only tables of several batch sizes determine the effect of another one."""
        known, asynchronous = self.table.batches[0], self.strategy == "async-ps"
        wrong = {
            "batch_size": asynchronous or not any(m.batch_size for m in self.table.measured),
            "gpus_per_node": self.strategy.endswith("ps"), "parameter_servers": not asynchronous,
            "shards": not asynchronous,
        }  # fmt: skip
        for name in self.scenario.specified:
            if wrong[name]:
                raise ModelError(
                    f"{name} requires a profile with recorded steps: such a table does not determine its effect"
                )
        size = self.scenario.batch_size
        if size and len(known) > 1 and not known[0] / 8 <= size <= 8 * known[-1]:
            raise ModelError(f"batch_size: {known[0]:g} to {known[-1]:g} were measured, got {size}; measure it too")

    def sizes(self, workers: np.ndarray) -> Sizes:
        """Groups (n,) on as few nodes as they fit; nodes have as many as the fullest measured one, unless specified."""
        g, n = self.workers_per_node, np.asarray(workers, float)
        share = max(self.servers.shards) if self.strategy == "async-ps" else 1.0
        size = float(self.scenario.batch_size or self.base.batch_size or 1)
        return Sizes(n, -(-n // g), np.minimum(n, g), np.full(len(n), size), np.full(len(n), share))

    @property
    def workers_per_node(self) -> int:
        """GPUs of a node; 1 of workers that have a node each."""
        return self.scenario.gpus_per_node or max(m.fullest_node for m in self.table.measured)

    def outcome(self, workers: np.ndarray, *, seed: int = 0) -> Outcome:
        """The posterior's draws, and the law's error beside them."""
        sizes, g, servers = self.sizes(workers), self.workers_per_node, self.servers
        draws = self.draws(sizes)
        free, size = self.strategy == "async-ps", int(sizes.batch_size[0])
        alike = [
            m
            for m in sorted(self.table.measured, key=lambda m: m.workers)
            if (m.nodes or m.workers, m.fullest_node) == (-(-m.workers // g), min(m.workers, g))
            and (m.batch_size or 1) == size
            and (not free or (m.parameter_servers == servers.count and not self.scenario.shards))
        ]
        on_nodes = f" on nodes of {counted(g, 'GPU')}" if g > 1 else ""
        return Outcome(
            workers=workers,
            throughput=np.exp(self.point(draws)),
            prediction=Prediction.drawn(
                workers,
                draws,
                error=self.error(sizes, np.random.default_rng(seed)),
                correlation=math.sqrt(0.5),  # errors drift with the doublings: half of the variance of twice as many
            ),
            noise=PRIOR_NUMBERS["noise"],
            breakdown=lambda X: self._stations(sizes, X) if free else self._sent(sizes, X),
            method=f"{self.strategy}{on_nodes} (fitted table)",
            remarks=self.remarks,
            assumption=self.assumption,
            parameter_servers=servers.count if self.strategy.endswith("ps") else 0,
            workers_per_node=g,
            profiled_workers=max((m.workers for m in alike), default=0),
            measured=tuple((m.workers, m.steps_per_second) for m in alike),
            synchronous=not free,
        )

    def _stations(self, sizes: Sizes, X: np.ndarray) -> Breakdown:
        """Of asynchronous workers: where a step's time goes, by the medians of computation and servers' load."""
        v, n = self.table.values(self.coordinates), sizes.workers
        scale = np.exp(self.draws(sizes).T) * asynchronous(v, sizes, self.table.compute(v, sizes)) / n  # 1/s, of a step
        busy = np.median(np.minimum(np.exp(self.draws(sizes).T) * server_load(v, sizes) / scale / n, 1.0), axis=0)
        compute = np.median(self.table.compute(v, sizes) / scale, axis=0)
        shards = np.array(self.servers.shards) / max(self.servers.shards)
        lower, upper = (np.exp(self.point(bound)) for bound in self.bounds(sizes))
        return Breakdown(
            stations=self.servers.stations,
            utilization=busy[:, None] * shards,
            residence_time=np.maximum(n / X - compute, 0.0)[:, None] * shards / shards.sum(),
            think_time=np.minimum(compute, n / X),
            bound_lower=np.minimum(lower, X),
            bound_upper=np.maximum(upper, X),
            saturation_workers=float(np.median(self.saturation_workers)),
            bottleneck=self.servers.stations[int(shards.argmax())],
        )

    def _sent(self, sizes: Sizes, X: np.ndarray) -> Breakdown:
        """Of sharded jobs: what gathers and reductions (with their gathers) add to a step, and how long they take."""
        if not self.sharded:
            return Breakdown()
        v = self.table.values(self.coordinates)
        parts = passes(v, sizes, self.table.compute(v, sizes), self.strategy)
        time, whole = sizes.workers / X, sum(hiding(c, m) for c, m in parts)
        added, busy = (
            np.column_stack([np.median(some(c, m) / whole, axis=0) for c, m in parts])
            for some in (lambda c, m: hiding(c, m) - c, lambda c, m: m)
        )
        most = int(added[-1].argmax())
        return Breakdown(
            stations=SENT,
            utilization=np.minimum(busy, 1.0),
            residence_time=added * time[:, None],
            think_time=(1.0 - added.sum(axis=1)) * time,
            bottleneck=SENT[most] if added[-1, most] > LOST else "",
        )

    def caption(self) -> str:
        """What was measured, and what the fit does not determine."""
        nodes = counted(int(self.table.sizes.nodes.max()), "node")
        what = f"{self.strategy}, {counted(len(self.table.measured), 'measurement')} on at most {nodes}"
        return "; ".join(filter(None, [self.assumption, what, self.note]))

    @property
    def base(self) -> Measurement:
        """The smallest measured group: what speedup and efficiency relate to."""
        return self.table.groups[0][0]

    def draws(self, sizes: Sizes) -> np.ndarray:
        """Log steps per second of all workers, shape (n, B)."""
        level = self.levels @ self.table.weights(sizes).T
        return (np.log(sizes.workers) - level - self.table.relative(self.coordinates, sizes)).T

    def error(self, sizes: Sizes, rng: np.random.Generator) -> np.ndarray:
        """Standard deviation (n, B) of a measurement's logarithm from each draw; its size drawn, hence Student's t."""
        n, misfit = sizes.workers, self.table.values(self.coordinates)["misfit"][:, 0]
        doublings = np.log2(np.maximum(np.maximum(n / self._largest, self.base.workers / n), 1.0))[:, None]
        size = np.sqrt(PRIOR_NUMBERS["freedom"] / rng.chisquare(PRIOR_NUMBERS["freedom"], len(misfit)))
        beyond = misfit**2 * (1.0 + self.table.prior.drift**2 * doublings)
        return np.asarray(np.sqrt(beyond + PRIOR_NUMBERS["noise"] ** 2) * size)

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
        """What this job shows of its cluster, for `gathers` of another: as `Prior.cluster`."""
        prior, v = self.table.prior, self.table.values(self.coordinates)
        found = dict(prior.cluster)
        for name, size in (("gather", prior.bytes), ("latency", prior.layers)):
            if size:
                cost = np.log(v[name] * self.table.reference / size)
                found[name] = float(np.median(cost)), float(np.hypot(cost.std(), PRIOR_NUMBERS["other_job"]))
        return found

    def bounds(self, sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
        """Log asymptotic bounds (n, B) of draws of asynchronous workers: computation and load in turn, or at once."""
        v = self.table.values(self.coordinates)
        compute, load = self.table.compute(v, sizes), server_load(v, sizes)
        rate = self.draws(sizes).T + np.log(asynchronous(v, sizes, compute))
        return (rate - np.log(compute + load)).T, (rate - np.log(np.maximum(compute, load))).T

    @property
    def saturation_workers(self) -> np.ndarray:
        """N* (B,) of asynchronous workers: computation and the busiest server's load are equal."""
        v = self.table.values(self.coordinates)
        share = self.sizes(np.ones(1)).server_share[0]
        return np.asarray(((v["demand"] * share) ** (-1.0 / v["growth"]))[:, 0])

    @cached_property
    def _off(self) -> np.ndarray:
        """Log rates of the measured groups over those of the draws, shape (B, groups)."""
        return np.asarray(np.log(self.table.sizes.workers) - self.table.log_time - self.draws(self.table.sizes).T)

    @property
    def misfits(self) -> tuple[tuple[Measurement, float], ...]:
        """Measurements that the fit misses by more than their noise, and their relative differences from its median."""
        off = np.median(self._off, axis=0)
        missed = np.abs(off) > np.maximum(PRIOR_NUMBERS["missed"], PRIOR_NUMBERS["missed_errors"] * self.table.noise)
        return tuple((self.table.groups[i][0], float(np.expm1(off[i]))) for i in np.flatnonzero(missed))

    @property
    def outliers(self) -> tuple[Measurement, ...]:
        """Measurements far from most draws that four or more others contradict: three points contradict no law."""
        far = (np.abs(self._off) > PRIOR_NUMBERS["outlier"] * self.table.scale(self.coordinates)).mean(axis=0) > 0.5
        few = len(self.table.groups) > max(3, 3 * far.sum())
        return tuple(self.table.groups[i][0] for i in np.flatnonzero(far)) if few else ()

    @property
    def _parameters(self) -> tuple[Parameter, ...]:
        """What was fitted, with its uncertainty; measured where a measurement depends on it and narrows it."""
        step, v = np.exp(self.levels[:, 0]), self.table.values(self.coordinates)
        note = f"of {counted(self.base.workers, 'worker')}, the smallest measured group"
        found = [Parameter("step", float(np.median(step)), "s", standard_error=float(standard_errors(step)), note=note)]
        for (name, _, unit, note), measured in zip(self.table.prior.coordinates, self._measured, strict=True):
            draws = v[name][:, 0] * (self.table.reference if unit else 1.0)
            found.append(
                Parameter(
                    name, float(np.median(draws)), "s" if unit else "", standard_error=float(standard_errors(draws)),
                    origin="measured" if measured else "assumed", identified=bool(measured), note=note,
                )
            )  # fmt: skip
        if self.sharded:
            found.append(knee_parameter(self.knee, float(self.table.sizes.nodes.max())))
        return tuple(found)

    def _of_knee(self) -> Iterator[Note]:
        """Where a sharded job loses, and what that depends on."""
        yield Note(knee_note(self.knee), "assumed")
        if np.log(self.table.values(self.coordinates)["latency"]).std() > PRIOR_NUMBERS["open"]:
            yield Note(
                "the latency of gathers is not identified; measured all-gathers (--gathers), or a table of another job "
                "there on more nodes, narrow the knee",
                "narrow",
            )

    @property
    def remarks(self) -> tuple[Note, ...]:
        """What measurements leave open, or contradict: all outliers, and of those that are only unlike, the first."""
        found: list[Note] = []
        misfits, unlike = sorted(self.misfits, key=lambda one: -abs(one[1])), False
        for m, off in misfits[:MOST_NAMED]:
            batch = f", batch {m.batch_size}" if m.batch_size else ""
            wrong = m in self.outliers
            what = "an outlier" if wrong else "unlike published jobs"
            kind: Literal["doubt", "other"] = "doubt" if wrong or not unlike else "other"
            unlike = unlike or not wrong
            found.append(Note(f"{m.group}{batch}: {100 * off:+.0f} % off the fit, {what}", kind))
        if more := misfits[MOST_NAMED:]:
            found.append(Note(f"{counted(len(more), 'more measurement')} off by up to {100 * abs(more[0][1]):.0f} %"))
        nodes = self.table.sizes.nodes
        if self.strategy == "async-ps":
            if not self._measured[0]:
                basis = "the parameters' bytes" if self.table.prior.bytes else "published jobs"
                unseen = f"no saturation up to {counted(self._largest, 'worker')}: estimated from {basis}"
                found.append(Note(unseen, "assumed"))
        elif self.sharded:
            found += self._of_knee()
        elif nodes.max() <= 2:
            beyond = "two nodes" if nodes.max() == 2 else "one node"
            found.append(Note(f"growth beyond {beyond} is estimated from published jobs", "assumed"))
        elif max(self._mean("growth"), self._mean("latency")) > PRIOR_NUMBERS["surprise"]:
            found.append(Note("rounds grow faster than in most published jobs"))
        if self.base.workers > 1:
            found.append(Note(f"speedup and efficiency relate to {self.base.group}, the smallest measured group"))
        if self.effective_draws < PRIOR_NUMBERS["effective"]:
            found.append(Note(f"few draws fit ({self.effective_draws:.0f} lineages), so that intervals are rough"))
        known = self.table.batches[0]
        if self.scenario.batch_size and not known[0] <= self.scenario.batch_size <= known[-1]:
            unseen = f"no batch of {self.scenario.batch_size} was measured, only {known[0]:g} to {known[-1]:g}"
            found.append(Note(unseen))
        return tuple(found)

    @property
    def _largest(self) -> int:
        return max(m.workers for m in self.table.measured)

    def _mean(self, name: str) -> float:
        """Mean of a coordinate, in standard deviations of its prior."""
        names = [one.name for one in self.table.prior.coordinates]
        return float(self.coordinates[:, names.index(name)].mean())

    @cached_property
    def _measured(self) -> np.ndarray:
        return self.table.depends(self.coordinates) & (self.coordinates.std(axis=0) < PRIOR_NUMBERS["narrowed"])


def fit_scaling(
    measured: Iterable[Measurement],
    *,
    strategy: Strategy,
    sparse_gradients: bool = False,
    parameter_bytes: float | None = None,
    link: float | None = None,
    parameters: float | None = None,
    layers: int | None = None,
    precision: str | None = None,
    gathers: Sequence[Gather] | ScalingModel = (),
    prior: Prior | None = None,
    seed: int = 0,
) -> ScalingModel:
    """Fit how a job's rate depends on workers, nodes and batch size.

    Parameters
    ----------
    measured : iterable of Measurement
        Of one group or more, whatever its size.
    strategy : {"all-reduce", "sync-ps", "async-ps", "fsdp", "hsdp", "zero-1"}
    sparse_gradients : bool
        Whether most parameters of a synchronous job are embeddings.
    parameter_bytes, link : float, optional
        Bytes of the parameters, and bytes per second of each asynchronous server's link.
    parameters, layers, precision : optional
        Of sharded jobs: number of parameters, of layers gathered one after the other, and what a parameter is gathered
        as. Without them, only the measurements tell of gathers.
    gathers : sequence of Gather, or ScalingModel
        All-gathers measured on the cluster of a sharded job, or the model of another job there.
    prior : Prior, optional
        In place of the one learnt from all published jobs.
    seed : int

    Raises
    ------
    FitError
        When nothing was measured.
    """
    if not (rows := tuple(measured)):
        raise FitError("fit: at least one measurement is needed, got none")
    if strategy == "async-ps":
        prior = prior or Prior.of(strategy, bytes=parameter_bytes, link=link)
    if strategy in SHARDED:
        costs = _cluster(rows, gathers)
        prior = prior or Prior.sharded(
            strategy, parameters=parameters, layers=layers, precision=precision, cluster=costs
        )
    table = ScalingData(rows, prior or Prior.of("sparse gradients" if sparse_gradients else strategy))
    return ScalingModel(strategy, table, *table.draw(np.random.default_rng(seed)))


def _cluster(rows: Sequence[Measurement], gathers: Sequence[Gather] | ScalingModel) -> dict[str, Any] | None:
    """What is known of gathers on the cluster of these measurements."""
    if isinstance(gathers, ScalingModel):
        if not (gathers.sharded and gathers.table.prior.bytes):
            raise ModelError("gathers: the other job must be sharded, and fitted with its parameters")
        return gathers.cluster
    return of_gathers(gathers, max(m.fullest_node for m in rows)) if gathers else None
