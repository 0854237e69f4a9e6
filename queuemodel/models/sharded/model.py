"""Sharded training (FSDP, ZeRO, HSDP): rounds of computations, gathers of parameters and reductions of gradients."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, ClassVar, cast

import numpy as np

from ...base.errors import ModelError
from ...base.estimates import Parameter
from ...base.files import constants
from ...base.results import counted, percent
from ...profile.measurements import Measurement
from ...profile.profile import Profile
from ...profile.scenario import SHARDED, Scenario
from ...profile.throughputs import on_profiled_links
from ...transport.collectives import Link
from ...transport.sharing import CONTROLS
from ...transport.trees import algorithm_of, name_of
from ..knee import knee_of, knee_parameter
from ..model import OTHER_DATA, Data, changes_of, strategy_of
from ..rounds.base import CONTRADICTION_NOTES, RECORDED_NOTES, DrawnRounds, NoteRows, RoundModel, RoundTimes
from ..rounds.graph import ACROSS, end_times
from ..rounds.times import NodeLink, sampler
from .fit import FittedShards, fit_shards
from .placement import SHARD_KINDS, RankPlacement, TimedTask, round_times, task_seconds
from .rewritings import accumulated, in_copies, prefetching, without_resharding

#: Measured and assumed numbers, with their sources: constants.toml.
_NUMBERS = constants(__package__)["model"]
SHARDED_ERROR, RECORDED_ERROR, PAIR_ERROR, PAIR_ERROR_BBR = (
    _NUMBERS[name] for name in ("error", "recorded_error", "pair_error", "pair_error_bbr")
)

#: Ranks in all drawn rounds together, and the least and most rounds; numbers of ranks, of many, that are computed.
DRAWN_RANKS, MIN_SAMPLES, MAX_SAMPLES, RANK_GRID_POINTS = 12_800, 12, 200, 24
#: Most ranks among which a knee is looked for, and at so many numbers of nodes.
KNEE_RANKS, KNEE_POINTS = 2048, 40
#: Accumulated steps, each of which is a part of the graph.
MOST_ACCUMULATED = 64
REDUCTIONS = ("reduce-scatter", "all-reduce")


METHOD, NEEDS = "", "a profile with recorded rounds of sharded training"


def refuses(data: Data, question: Scenario) -> str:
    """See `ModelKind`."""
    strategy = strategy_of(data, question)
    if not isinstance(data, Profile) or not (data.steps or data.rounds):
        return OTHER_DATA
    if strategy not in SHARDED:
        return f"is not how its rounds were recorded; leave it out ({data.strategy})" if data.strategy else OTHER_DATA
    return "" if data.strategy and strategy != "zero-1" else "needs recorded rounds of sharded training; record them"


def of(data: Data, question: Scenario, measured: Sequence[Measurement], *, seed: int) -> ShardedModel:
    """See `ModelKind`."""
    profile, question = question.on(cast(Profile, data))
    if question.form:
        raise ModelError("form applies to steps on parameter servers alone; leave it out")
    measured = on_profiled_links([*profile.throughputs, *measured], profile)
    return ShardedModel(fit_shards(profile), measured=tuple(measured)).what_if(**changes_of(question))


@dataclass(frozen=True, eq=False)
class Drawn:
    """Drawn rounds of n ranks: their computations, and how long the rounds take."""

    steps: list[TimedTask]
    placement: RankPlacement
    computed: np.ndarray  # (samples, ranks, computations): Seconds

    def mean_time(self, link: NodeLink, *, slower: float = 1.0, without: Collection[str] = ()) -> float:
        """Mean seconds of a round when computation takes ``slower`` times as long, and some kinds no time."""
        computed = self.computed if slower == 1.0 else slower * self.computed
        return float(round_times(self.steps, computed, self.placement, link, without=without).mean())

    def busy(self, link: NodeLink, kinds: Collection[str]) -> float:
        """Seconds of a round in which collectives of these kinds are under way, if none overlap."""
        return sum(self.placement.seconds(one, link) for one in self.steps if one.task.kind in kinds)


#: Notes on sharded rounds.
SHARDED_NOTES: NoteRows = (
    *RECORDED_NOTES,
    (lambda m: m.fitted.ranks == 2 and m.fitted.library.single and m.fitted.congestion_control == "unknown",
     "two ranks send both ways over one connection: specify congestion control (--congestion-control), or record three "
     "ranks", "narrow"),
    *CONTRADICTION_NOTES,
    (lambda m: abs(m.fitted.missed) > RECORDED_ERROR,
     "recorded rounds replay only within {m._missed}", "doubt"),
)  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class ShardedModel(RoundModel):
    """Synchronous training whose ranks share the parameters, gather them unit by unit and scatter their gradients.

    Made of what `fit_shards` found; changed by `what_if`; solved by `throughput`, whose workers are ranks.
    """

    fitted: FittedShards
    changes = (
        "bandwidth", "other_traffic", "accelerator_speed", "batch_size", "latency", "collective", "gpus_per_node",
        "inside_bandwidth", "shard_group", "reshard", "prefetch", "accumulation", "gradient_precision", "worker_speeds",
    )  # fmt: skip
    kind = "of sharded training"
    note_rows = SHARDED_NOTES
    places: ClassVar[tuple[str, ...]] = ("gathers", "reductions", "stragglers")

    @property
    def recorded(self) -> dict[str, Any]:
        """See `RoundModel`."""
        placement = self.fitted.run.placement
        return {
            "collective": placement.collective, "reshard": self._reshards, "gpus_per_node": placement.per_node,
            "shard_group": placement.shards,
        }  # fmt: skip

    @property
    def _reshards(self) -> bool:
        """Whether the recorded backward pass gathers parameters again."""
        return len(without_resharding(self.fitted.run.steps)) < len(self.fitted.run.steps)

    def check(self) -> None:
        """See `Model`: refuse changes that the profile does not determine."""
        wanted, recorded = self.scenario, self.fitted.run.placement
        if self.steps_per_round > MOST_ACCUMULATED:
            raise ModelError(f"accumulation must be at most {MOST_ACCUMULATED} steps of sharded training")
        kinds = {one.task.kind: one.task.group for one in self.fitted.run.steps if one.task.kind in SHARD_KINDS}
        if recorded.per_node == 1:
            self.require_inside()
        if wanted.shard_group is not None and any(group.startswith(ACROSS) for group in kinds.values()):
            raise ModelError("shard_group: parameters are shared by ranks of other nodes only; leave it out")
        if wanted.reshard and not self._reshards:
            raise ModelError(
                "reshard: the recorded steps gather parameters once; record a step that gathers them twice"
            )
        for kind in {one.task.kind for one in self.steps} - {""}:
            self.placement(2).collective.time(1.0, 2, Link(1.0), kind=kind)

    @cached_property
    def steps(self) -> list[TimedTask]:
        """The graph of a round, as changed."""
        steps = list(self.fitted.run.steps)
        if self.scenario.reshard is False:
            steps = without_resharding(steps)
        if self.scenario.prefetch is not None:
            steps = prefetching(steps, self.scenario.prefetch)
        if self._shards:
            steps = in_copies(steps)
        smaller = self.precision
        steps = [
            replace(one, task=replace(one.task, bytes=smaller * one.task.bytes), seconds=smaller * one.seconds)
            for one in steps
        ]
        return accumulated(steps, self.steps_per_round) if self.steps_per_round > 1 else steps

    def slower(self, ranks: int) -> np.ndarray:
        """See `RoundModel`; with ranks that fill a last node, (padded,)."""
        return np.append(super().slower(ranks), np.ones(self.placement(ranks).padded - ranks))

    @property
    def _shards(self) -> int:
        wanted = self.scenario.shard_group
        return self.fitted.run.placement.shards if wanted is None else wanted

    def placement(self, ranks: int) -> RankPlacement:
        """The placement of n ranks on nodes."""
        wanted, recorded = self.scenario, self.fitted.run.placement
        inside = None if wanted.inside_bandwidth is None else Link(wanted.inside_bandwidth)
        return replace(
            recorded,
            ranks=ranks,
            per_node=wanted.gpus_per_node or recorded.per_node,
            shards=self._shards,
            inside=inside,
            collective=algorithm_of(wanted.collective) if wanted.collective else recorded.collective,
        )

    def _bandwidth_error(self, ranks: int) -> float:
        """See `RoundModel`."""
        fitted, control = self.fitted, CONTROLS.get(self.fitted.congestion_control)
        pair = PAIR_ERROR if control and control.loss_based else PAIR_ERROR_BBR
        pair *= fitted.ranks == 2 < ranks and fitted.run.placement.pair_loss > 0
        return float(np.hypot(pair, self.bandwidth_extrapolation_error(ranks)))

    def drawn(self, ranks: int, seed: int, samples: int | None = None) -> Drawn:
        """Rounds of n ranks, fewer for many ranks unless given: their slowest varies little."""
        placement = self.placement(ranks)
        n, k = placement.padded, self.steps_per_round
        samples = samples or min(MAX_SAMPLES, max(MIN_SAMPLES, DRAWN_RANKS // (n * k)))
        draw = sampler(np.cumsum(self.slowness * self.fitted.rows, axis=1))
        rows = draw(np.random.default_rng(seed), k * samples * n).reshape(k, samples, n, -1)
        rows *= self.relative_compute_times(ranks)[:, None]
        # from moments back to durations
        each = np.maximum(np.diff(rows, axis=-1, prepend=0.0), 0.0)
        first = not self.fitted.run.steps[0].task.kind  # a round begins with a computation that steps do not repeat
        parts = [each[0, ..., :first], *(one[..., first:-1] for one in each), each[-1, ..., -1:]]
        return Drawn(self.steps, placement, np.concatenate(parts, axis=-1))

    def rounds(self, workers: np.ndarray, *, seed: int) -> RoundTimes:
        """Groups drawn from the recorded ranks, their rounds timed by `round_times`; smooth between a grid of ranks."""
        grid = np.unique(
            np.concatenate(
                [workers[:8], workers[np.unique(np.geomspace(1, len(workers), RANK_GRID_POINTS).astype(int) - 1)]]
            )
        )
        parts = np.array([self._parts(n, seed) for n in grid.tolist()])
        T, gathers, reductions, stragglers, gathering, reducing, *effects = np.array(
            [np.interp(np.log(workers), np.log(grid), one) for one in parts.T]
        )
        compute = np.full(len(workers), self.steps_per_round * float(self.fitted.computed.mean()) * self.slowness)
        return RoundTimes(
            time=T,
            compute=compute,
            added=np.stack([gathers, reductions, stragglers], axis=-1),
            busy=np.stack([gathering, reducing, stragglers], axis=-1),
            least=np.minimum(np.maximum(compute, np.maximum(gathering, reducing)), T),
            effects=np.column_stack(effects),
            waited=np.zeros(len(workers)),
            ahead=np.zeros(len(workers)),
        )

    def _parts(self, ranks: int, seed: int) -> list[float]:
        """Seconds of a round, what gathers, reductions and stragglers add, collectives alone, and errors by cause."""
        drawn, link = self.drawn(ranks, seed), self.link_at(ranks)
        compute = float(drawn.computed.sum(axis=-1).mean())
        beside = self._beside(ranks)
        # T = computation + stragglers + reductions + gathers, each by what its absence saves
        alone = drawn.mean_time(link, without=(*SHARD_KINDS, *REDUCTIONS))
        reduced = drawn.mean_time(link, without=("all-gather",))
        time = drawn.mean_time(link)
        effects = self.effects(
            lambda link, slower: drawn.mean_time(link, slower=slower) + beside,
            ranks,
            self.computation_error(alone / compute - 1, ranks),
        )
        added = [max(time - reduced, 0.0), max(reduced - alone, 0.0), max(alone - compute, 0.0)]
        busy = [drawn.busy(link, ("all-gather",)), drawn.busy(link, REDUCTIONS)]
        return [time + beside, *added, *busy, *effects.tolist()]

    def simulated(self, ranks: int, rounds: int, seed: int) -> DrawnRounds:
        """See `RoundModel`."""
        drawn, link, beside = self.drawn(ranks, seed, rounds), self.link_at(ranks), self._beside(ranks)
        shape, sent = (rounds, drawn.placement.padded), [one.task for one in self.steps if one.task.kind]
        seconds = task_seconds(self.steps, drawn.computed, drawn.placement, link)
        ends = end_times([drawn.placement.task(one) for one in self.steps], seconds, [np.zeros(1)] * len(seconds))
        spans = np.stack([np.broadcast_to(end, shape) for end in ends], axis=-1)
        spans = np.stack([spans - np.stack([np.broadcast_to(own, shape) for own in seconds], axis=-1), spans], axis=-1)
        zero = np.zeros(shape)
        ready = [reduce(np.maximum, [ends[i] for i in task.after], zero) for task in sent]
        collective = np.array([bool(one.task.kind) for one in self.steps])
        spans = spans[:, :ranks]
        return DrawnRounds(
            kinds=[task.kind for task in sent],
            sizes=np.array([task.bytes for task in sent]),
            ready=np.stack(ready, axis=-1)[:, :ranks],
            sent=spans[:, :, collective],
            computing=spans[:, :, ~collective],
            times=spans[..., 1].max(axis=(1, 2)) + beside,
            waits=np.zeros((rounds, ranks)),
        )

    def _beside(self, ranks: int) -> float:
        """Seconds of a round beside its graph."""
        return self.fitted.tail if ranks > 1 else self.non_compute_time

    def _model_error(self, workers: np.ndarray) -> np.ndarray:
        """See `RoundModel`."""
        return np.where((workers > self.fitted.ranks) | self.other_machines, SHARDED_ERROR, RECORDED_ERROR)

    @property
    def _method(self) -> str:
        """See `RoundModel`."""
        return f"sharded ({name_of(self.placement(2).collective)}"

    @property
    def _ranks_per_node(self) -> int:
        return self.placement(1).per_node

    @cached_property
    def knee(self) -> np.ndarray:
        """Nodes (B,) on which 10 % of the rate per rank is lost, for each draw of the parameters (`knee_of`)."""
        most = max(min(len(self.scenario.worker_speeds or ()) or KNEE_RANKS, KNEE_RANKS) // self._ranks_per_node, 1)
        nodes = np.unique(np.geomspace(1, most, KNEE_POINTS).round().astype(int))
        ranks = nodes * self._ranks_per_node
        prediction = self.posterior(ranks).prediction
        rate = prediction.sampled(MAX_SAMPLES)[np.searchsorted(prediction.workers, ranks)]
        return knee_of(nodes, rate - np.log(ranks)[:, None])

    @property
    def _parameters(self) -> tuple[Parameter, ...]:
        """See `RoundModel`."""
        return (*super()._parameters, knee_parameter(self.knee, self.fitted.ranks / self._ranks_per_node))

    @property
    def _missed(self) -> str:
        return percent(abs(self.fitted.missed))

    def caption(self) -> str:
        """Job, collectives, and unidentified parameters."""
        kinds = [one.task.kind for one in self.steps]
        each = ", ".join(counted(kinds.count(kind), kind) for kind in ("all-gather", *REDUCTIONS) if kind in kinds)
        size, shards = self.job.parameter_bytes / 1e6, self._shards
        who = f"each {shards} ranks share" if shards else "all ranks share"
        return f"{self.job.name or 'job'}, {who} {size:.3g} MB: {each} a round; {self.note}"
