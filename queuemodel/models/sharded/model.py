"""Sharded training (FSDP, ZeRO, HSDP): rounds of computations, gathers of parameters and reductions of gradients."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from ...base.errors import ModelError
from ...base.estimates import Parameter
from ...base.files import constants
from ...base.results import Note, counted, percent
from ...curves.prediction import Prediction
from ...profile.bandwidth import contradiction, hardly_used
from ...profile.measurements import Measurement
from ...profile.profile import Profile
from ...profile.scenario import GRADIENT_PRECISIONS, SHARDED, Scenario
from ...profile.throughputs import on_profiled_links
from ...transport.collectives import Link
from ...transport.sharing import CONTROLS
from ...transport.trees import algorithm_of, name_of
from ..model import OTHER_DATA, Breakdown, Data, Outcome, changes_of, strategy_of
from ..rounds.base import RankModel
from ..rounds.graph import ACROSS
from ..rounds.group import LEAST, MOST, other_ranks_error
from ..rounds.model import ERROR_PER_DOUBLING, ROUND_NOISE
from ..rounds.times import NodeLink, link_at_bandwidth, sampler
from .fit import FittedShards, fit_shards
from .placement import SHARD_KINDS, RankPlacement, TimedTask, round_times
from .rewritings import accumulated, in_copies, without_resharding

#: Measured and assumed numbers, with their sources: constants.toml.
_NUMBERS = constants(__package__)["model"]
MODEL_ERROR, RECORDED_ERROR, PAIR_ERROR, PAIR_ERROR_BBR, UNRECORDED = (
    _NUMBERS[name] for name in ("error", "recorded_error", "pair_error", "pair_error_bbr", "unrecorded")
)

#: Ranks in all drawn rounds together, and the least and most rounds; numbers of ranks, of many, that are computed.
DRAWN, FEWEST, SAMPLES, GRID = 12_800, 12, 200, 24
#: Accumulated steps, each of which is a part of the graph.
MOST_ACCUMULATED = 64
PLACES = ("gathers", "reductions", "stragglers")
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


@dataclass(frozen=True, eq=False, repr=False)
class ShardedModel(RankModel):
    """Synchronous training whose ranks share the parameters, gather them unit by unit and scatter their gradients.

    Made of what `fit_shards` found; changed by `what_if`; solved by `throughput`, whose workers are ranks.
    """

    fitted: FittedShards
    changes = (
        "bandwidth", "accelerator_speed", "batch_size", "latency", "collective", "gpus_per_node", "inside_bandwidth",
        "shard_group", "reshard", "accumulation", "gradient_precision", "worker_speeds",
    )  # fmt: skip
    kind = "of sharded training"

    @property
    def recorded(self) -> dict[str, Any]:
        """See `RankModel`."""
        placement = self.fitted.run.placement
        return {
            "latency": self.fitted.link.latency, "collective": placement.collective, "reshard": self._reshards,
            "gpus_per_node": placement.per_node, "shard_group": placement.shards,
        }  # fmt: skip

    @property
    def _reshards(self) -> bool:
        """Whether the recorded backward pass gathers parameters again."""
        return len(without_resharding(self.fitted.run.steps)) < len(self.fitted.run.steps)

    def check(self) -> None:
        """See `Model`: refuse what the profile does not determine."""
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
        if self._shards:
            steps = in_copies(steps)
        smaller = GRADIENT_PRECISIONS.get(self.scenario.gradient_precision or "", 1.0)
        steps = [
            replace(one, task=replace(one.task, bytes=smaller * one.task.bytes), seconds=smaller * one.seconds)
            for one in steps
        ]
        return accumulated(steps, self.steps_per_round) if self.steps_per_round > 1 else steps

    def slower(self, ranks: int) -> np.ndarray:
        """See `RankModel`; with ranks that fill a last node, (padded,)."""
        return np.append(super().slower(ranks), np.ones(self.placement(ranks).padded - ranks))

    @property
    def _shards(self) -> int:
        wanted = self.scenario.shard_group
        return self.fitted.run.placement.shards if wanted is None else wanted

    def placement(self, ranks: int) -> RankPlacement:
        """Where so many ranks are."""
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

    def link_at(self, ranks: int) -> NodeLink:
        """What a node's link carries among so many ranks."""
        fitted, wanted = self.fitted, self.scenario
        found = link_at_bandwidth(fitted.link, fitted.nominal, wanted.bandwidth)
        slower = math.exp(-fitted.library.slower * self._doublings(ranks))
        latency = found.latency if wanted.latency is None else wanted.latency
        return NodeLink(found.bandwidth * slower, latency)

    def _errors(self, ranks: int) -> np.ndarray:
        """Standard errors of the logarithms of bandwidth and latency among so many ranks, (2,)."""
        fitted, known = self.fitted, self.scenario.latency is not None
        control = CONTROLS.get(fitted.congestion_control)
        pair = PAIR_ERROR if control and control.fills else PAIR_ERROR_BBR
        pair *= fitted.ranks == 2 < ranks and fitted.run.placement.pair_loss > 0
        unsteady = other_ranks_error(fitted.congestion_control, fitted.library) if ranks > fitted.ranks else 0.0
        slower = fitted.library.slower_error * self._doublings(ranks)
        bandwidth, latency = np.sqrt(np.diag(fitted.covariance))
        return np.array([float(np.linalg.norm([bandwidth, pair, unsteady, slower])), 0.0 if known else latency])

    def drawn(self, ranks: int, seed: int) -> Drawn:
        """Rounds of so many ranks, fewer of many: their slowest varies little."""
        placement = self.placement(ranks)
        n, k = placement.padded, self.steps_per_round
        samples = min(SAMPLES, max(FEWEST, DRAWN // (n * k)))
        draw = sampler(np.cumsum(self.slowness * self.fitted.rows, axis=1))
        rows = draw(np.random.default_rng(seed), k * samples * n).reshape(k, samples, n, -1)
        rows *= (np.append(self.fitted.paces[:ranks], np.ones(n))[:n] * self.slower(ranks))[:, None]
        each = np.maximum(np.diff(rows, axis=-1, prepend=0.0), 0.0)
        first = not self.fitted.run.steps[0].task.kind  # a round begins with a computation that steps do not repeat
        parts = [each[0, ..., :first], *(one[..., first:-1] for one in each), each[-1, ..., -1:]]
        return Drawn(self.steps, placement, np.concatenate(parts, axis=-1))

    def outcome(self, workers: np.ndarray, *, seed: int = 0) -> Outcome:
        """Groups drawn from the recorded ranks, their rounds timed by `round_times`; smooth between a grid of ranks.

        Errors: the sampling of rounds, bandwidth and latency, and the model where nothing was recorded.
        """
        fitted = self.fitted
        grid = np.unique(
            np.concatenate([workers[:8], workers[np.unique(np.geomspace(1, len(workers), GRID).astype(int) - 1)]])
        )
        parts = np.array([self._parts(n, seed) for n in grid.tolist()])
        T, gathers, reductions, stragglers, gathering, reducing, *effects = np.array(
            [np.interp(np.log(workers), np.log(grid), one) for one in parts.T]
        )
        k = self.steps_per_round
        compute = k * float(fitted.rows.sum(axis=1).mean()) * self.slowness
        other = (workers > fitted.ranks) | self.other_machines
        least = np.minimum(np.maximum(compute, np.maximum(gathering, reducing)), T)
        here = [point for point in self.measured if self.is_here(point)]
        added = np.stack([gathers, reductions, stragglers], axis=-1)
        busy = np.stack([gathering, reducing, stragglers], axis=-1)
        shares = dict(zip(PLACES, added[-1].tolist(), strict=True), compute=compute)
        return Outcome(
            workers=workers,
            throughput=k * workers / T,
            prediction=Prediction(
                workers=workers,
                mean=np.log(k * workers / T)[:, None],
                weights=np.ones(1),
                kind=np.zeros(1, int),
                error=np.where(other, MODEL_ERROR, RECORDED_ERROR)[:, None],
                noise=np.zeros(len(workers)),
                spread=np.column_stack(effects),
                correlation=ERROR_PER_DOUBLING,
            ),
            noise=ROUND_NOISE,
            breakdown=lambda X: Breakdown(
                stations=PLACES,
                utilization=np.minimum(busy / T[:, None], 1.0),
                residence_time=added / k,
                think_time=(T - added.sum(axis=-1)) / k,
                bound_lower=np.minimum(k * workers / (T + gathering + reducing), X),
                bound_upper=np.maximum(k * workers / least, X),
                bottleneck=max(shares, key=shares.__getitem__),
            ),
            method=f"sharded ({name_of(self.placement(2).collective)}, max-plus recursion over recorded rounds)",
            remarks=self.remarks,
            workers_per_node=self.placement(1).per_node,
            profiled_workers=max(0 if self.other_machines else fitted.ranks, *(p.workers for p in here), 0),
            measured=tuple((p.workers, p.steps_per_second) for p in here),
            synchronous=True,
            steps_per_round=k * workers if k > 1 else np.empty(0),
        )

    def _parts(self, ranks: int, seed: int) -> list[float]:
        """Seconds of a round, what gathers, reductions and stragglers add, collectives alone, and errors by cause.

        The errors are of the logarithm of the round's time: of computation, bandwidth and latency.
        """
        drawn, link, rows = self.drawn(ranks, seed), self.link_at(ranks), self.fitted.rows
        compute = float(drawn.computed.sum(axis=-1).mean())
        beside = self.fitted.tail if ranks > 1 else self._alone
        alone = drawn.mean_time(link, without=(*SHARD_KINDS, *REDUCTIONS))
        reduced = drawn.mean_time(link, without=("all-gather",))
        time = drawn.mean_time(link)

        def half(change: tuple[float, float], slower: float) -> float:
            ends = []
            for sign in (1.0, -1.0):
                bandwidth, latency = np.clip(link[:2] * np.exp(sign * np.array(change)), LEAST, MOST)
                moved = NodeLink(bandwidth, latency)
                ends.append(drawn.mean_time(moved, slower=math.exp(sign * slower)))
            return math.log((ends[0] + beside) / (ends[1] + beside)) / 2

        total = rows.sum(axis=1)
        m, spread = len(total), float(total.std() / total.mean())
        few = (2 * max(m - 1, 1)) ** -0.5 * (alone / compute - 1)  # relative, of a standard deviation
        unlike = UNRECORDED if self.fitted.unrecorded and ranks > 1 else 0.0
        sampling = float(np.linalg.norm([spread / m**0.5, few, unlike]))
        sd = self._errors(ranks)
        errors = [half((0.0, 0.0), sampling), half((sd[0], 0.0), 0.0), half((0.0, sd[1]), 0.0)]
        added = [max(time - reduced, 0.0), max(reduced - alone, 0.0), max(alone - compute, 0.0)]
        busy = [drawn.busy(link, ("all-gather",)), drawn.busy(link, REDUCTIONS)]
        return [time + beside, *added, *busy, *errors]

    @property
    def _alone(self) -> float:
        """Seconds of a round of one rank beyond its computation."""
        return (self.fitted.alone - float(self.fitted.rows.sum(axis=1).mean())) * self.slowness

    @property
    def remarks(self) -> tuple[Note, ...]:
        """What the profile does not determine."""
        fitted = self.fitted
        notes: list[Note] = []
        if not fitted.latency_known and self.scenario.latency is None:
            notes.append(Note("latency is assumed: hardly identifiable from two nodes", "assumed"))
        if fitted.unrecorded:
            notes.append(Note(
                f"{fitted.ranks - fitted.unrecorded} of {fitted.ranks} ranks recorded: differences between ranks are "
                f"unknown, the interval allows {percent(UNRECORDED)} of computation for them"
            ))  # fmt: skip
        if fitted.ranks == 2 and fitted.library.single and fitted.congestion_control == "unknown":
            notes.append(Note(
                "two ranks send both ways over one connection: specify congestion control (--congestion-control), or "
                "record three ranks",
                "narrow",
            ))  # fmt: skip
        if fitted.paces:
            slow = int(np.argmax(np.abs(np.log(fitted.paces))))
            notes.append(Note(f"rank {slow} takes {fitted.paces[slow]:.3g} times as long as assumed of others"))
        notes += [Note(check(fitted.link.bandwidth, fitted.nominal), "doubt") for check in (contradiction, hardly_used)]
        if abs(fitted.missed) > RECORDED_ERROR:
            notes.append(Note(f"recorded rounds replay only within {percent(abs(fitted.missed))}"))
        return tuple(notes)

    @property
    def _parameters(self) -> tuple[Parameter, ...]:
        """What was fitted, with its uncertainty."""
        fitted, link = self.fitted, self.link_at(self.fitted.ranks)
        total = self.slowness * fitted.rows.sum(axis=1)
        spread = np.sqrt(np.diag(fitted.covariance))
        m = len(total)
        return (
            Parameter("computation", float(total.mean()), "s", standard_error=float(total.std() / m**0.5)),
            Parameter(
                "straggler spread", float(total.std() / total.mean()), "-", identified=m > 1 and not fitted.unrecorded,
                note="standard deviation of a rank's computation over its mean",
            ),
            Parameter("effective bandwidth", link.bandwidth, "B/s", standard_error=link.bandwidth * float(spread[0])),
            Parameter(
                "latency", link.latency, "s/message", standard_error=link.latency * float(spread[1]),
                origin="measured" if fitted.latency_known else "assumed", identified=fitted.latency_known,
                note="" if fitted.latency_known else "hardly identifiable from two nodes",
            ),
        )  # fmt: skip

    def caption(self) -> str:
        """Job, collectives, and what the fit does not determine."""
        kinds = [one.task.kind for one in self.steps]
        each = ", ".join(counted(kinds.count(kind), kind) for kind in ("all-gather", *REDUCTIONS) if kind in kinds)
        size, shards = self.job.parameter_bytes / 1e6, self._shards
        who = f"each {shards} ranks share" if shards else "all ranks share"
        return f"{self.job.name or 'job'}, {who} {size:.3g} MB: {each} a round; {self.note}"
