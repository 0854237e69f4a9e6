"""Data-parallel training: every round ends in an all-reduce of all gradients, bucket by bucket."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
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
from ...profile.scenario import GRADIENT_PRECISIONS, Scenario, of_group
from ...profile.throughputs import on_profiled_links
from ...transport.collectives import Algorithm, Hierarchical, InRacks, Link, Ring
from ...transport.trees import algorithm_of, name_of
from ..model import OTHER_DATA, Breakdown, Data, Outcome, changes_of, strategy_of
from .base import RankModel
from .fit import FittedRounds, fit_rounds, rounds_of_steps
from .group import (
    AHEAD_ERROR,
    IN_TURN_FROM_THREE,
    MODEL_ERROR,
    TRACING_ERROR,
    UNRECORDED,
    UNRECORDED_NETWORK,
    Group,
    Parts,
    computation_error,
    in_turn_error,
    other_ranks_error,
)
from .ranks import Ranks
from .schemes import SCHEMES, Buckets, Scheme, Slices
from .times import NodeLink, link_at_bandwidth, slowest_of

#: Fewer recorded computations than this leave their spread open by a quarter.
FEW_ROUNDS = 9

#: Measured and assumed numbers, with their sources: constants.toml.
_NUMBERS = constants(__package__)["model"]
UNLIKE = _NUMBERS["unlike"]
ERROR_PER_DOUBLING, ROUND_NOISE = _NUMBERS["error_per_doubling"], _NUMBERS["round_noise"]

#: Groups drawn for a prediction.
SAMPLES = 200

#: Numbers of ranks, of many, for which is computed what is smooth between them: errors, and waits for input.
SMOOTH, WAITS = 40, 12

#: Rounds drawn where several steps make one.
ACCUMULATED = 240

#: Successive rounds in which ranks wait for their input, and runs of a group of at most so few ranks.
SUCCESSIVE, RUNS, FEW_RANKS = 20, 64, 32

#: More batches may be loaded ahead than is assumed, which makes rounds shorter, never longer: half of a normal law.
LOADED_AHEAD = np.maximum([NormalDist().inv_cdf((i + 0.5) / 32) for i in range(32)], 0.0)

#: Where a round's time goes beside the computation of a mean rank.
PLACES = ("network", "latency", "stragglers")


METHOD, NEEDS = "", "a profile with recorded rounds, or steps with operations"


def refuses(data: Data, question: Scenario) -> str:
    """See `ModelKind`."""
    if not isinstance(data, Profile) or not (data.steps or data.rounds) or data.strategy:
        return OTHER_DATA
    if strategy_of(data, question) == "all-reduce":
        return ""
    return OTHER_DATA if data.steps else "needs recorded steps; the profile has synchronous rounds only (all-reduce)"


def of(data: Data, question: Scenario, measured: Sequence[Measurement], *, seed: int) -> AllReduceModel:
    """See `ModelKind`."""
    profile, question = question.on(cast(Profile, data))
    if question.form:
        raise ModelError("form applies to steps on parameter servers alone; leave it out")
    fitted = fit_rounds(profile) if profile.rounds else rounds_of_steps(profile)
    model = AllReduceModel(fitted, measured=tuple(on_profiled_links(measured, profile)))
    return model.what_if(**changes_of(question))


@dataclass(frozen=True, eq=False, repr=False)
class AllReduceModel(RankModel):
    """Synchronous data-parallel training with one all-reduce for each bucket of gradients.

    Made of what `fit_rounds` found; changed by `what_if`; solved by `throughput`, whose workers are ranks, one on each
    node unless ``gpus_per_node`` is specified, given throughputs ``measured`` on such machines. Of accumulated
    steps (`no_sync`) the computation of the first is that of the last.
    """

    fitted: FittedRounds
    changes = (*of_group("rounds"), "bandwidth", "accelerator_speed", "worker_speeds", "batch_size")
    kind = "of all-reduce"

    @cached_property
    def network(self) -> NodeLink:
        """What a node's link carries among the most recorded ranks, and more."""
        return self.among(self.fitted.ranks)

    def among(self, ranks: int) -> NodeLink:
        """What a node's link carries among so many ranks."""
        carried, latency = self.fitted.carried(ranks)
        carried *= math.exp(-self.fitted.library.slower * self._doublings(ranks))
        alone = self._in_turn and isinstance(self.collective, Ring)
        wanted = self.scenario.latency
        link = NodeLink(carried, latency if wanted is None else wanted, self.fitted.buffer if alone else 0.0)
        return link_at_bandwidth(link, self.fitted.nominal, self.scenario.bandwidth)

    @property
    def recorded(self) -> dict[str, Any]:
        """See `RankModel`."""
        fitted = self.fitted
        return {"latency": fitted.latency, "collective": fitted.library.collective, "gpus_per_node": 1}

    @cached_property
    def scheme(self) -> Scheme:
        """How gradients are put together and sent: as recorded, unless otherwise specified.

        Raises
        ------
        ModelError
            When that needs gradients, which the profile has not.
        """
        wanted, cap = self.scenario.scheme, self.scenario.bucket_bytes
        if not self._in_gradients:
            return Buckets(cap=0, at_once=self.fitted.at_once)
        if not self.fitted.gradients[0].size:
            name = "bucket_bytes" if wanted is None else "scheme"
            raise ModelError(
                f"{name} needs recorded gradients; record PyTorch with record_shapes=True, TensorFlow with "
                "'queuemodel profile'"
            )
        scheme: Any = SCHEMES[wanted] if isinstance(wanted, str) else wanted or Buckets()
        if cap is not None:
            credit = {"credit": scheme.credit / scheme.cap * cap} if isinstance(scheme, Slices) else {}
            scheme = replace(scheme, cap=cap, **credit)
        if isinstance(scheme, Buckets) and scheme.at_once is None:
            scheme = replace(scheme, at_once=self.fitted.at_once)
        return scheme

    @property
    def _in_gradients(self) -> bool:
        return self.scenario.scheme is not None or self.scenario.bucket_bytes is not None

    @property
    def _sent(self) -> tuple[np.ndarray, np.ndarray]:
        """Bytes of what the scheme is given, (p,), and when one rank had it, (m, p): buckets, or gradients."""
        if not self._in_gradients:
            return self.fitted.bucket_bytes * self.precision, self.fitted.ready
        sizes, moments = self.fitted.gradients
        return sizes * self.precision, moments * (self.fitted.computed / self.fitted.computed.mean())[:, None]

    @property
    def precision(self) -> float:
        """Bytes of a gradient over those that were recorded."""
        return GRADIENT_PRECISIONS.get(self.scenario.gradient_precision or "", 1.0)

    @property
    def _combined(self) -> Algorithm:
        wanted = self.scenario.collective
        return algorithm_of(wanted) if wanted else self.fitted.library.collective

    @cached_property
    def collective(self) -> Algorithm:
        """How ranks combine them, where they stand."""
        algorithm, wanted = self._combined, self.scenario
        self.require_inside()
        if wanted.gpus_per_node is not None and wanted.inside_bandwidth is not None:
            algorithm = Hierarchical(wanted.gpus_per_node, Link(wanted.inside_bandwidth), algorithm)
        if wanted.nodes_per_rack is not None:
            algorithm = InRacks(algorithm, wanted.nodes_per_rack, wanted.oversubscription or 1.0)
        return algorithm

    @property
    def beyond(self) -> float:
        """Seconds of a round of one rank alone beyond its computation; where it takes less, in proportion to that."""
        seconds = self.fitted.alone - float(self.fitted.computed.mean())
        by = self.slowness * self.steps_per_round * float(self.slower(1)[0])
        return seconds if seconds > 0 else seconds * by

    @property
    def loading(self) -> list[np.ndarray]:
        """Seconds that batches take to load, by recorded rank."""
        return [times * (self.job.batch_size / self.fitted.job.batch_size) for times in self.fitted.loading]

    @property
    def input(self) -> float:
        """Mean seconds in which the slowest loader makes the batches of a round; 0 where no rank waited for any."""
        return max((float(times.mean()) * self.steps_per_round for times in self.loading), default=0.0)

    def paces(self, ranks: int) -> np.ndarray:
        """How many times as long each rank computes as the typical recorded one; alone, as it did, (ranks,)."""
        recorded = self.fitted.paces if ranks > 1 else ()
        return np.append(recorded, np.ones(ranks))[:ranks] * self.slower(ranks)

    def pieces(self, steps: int = 1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Bytes (p,) of what the scheme is given, and rows (m, p + 2) of one rank, as `Scheme.time` gets them.

        The gradients are those of the last of the steps.
        """
        sizes, ready = self._sent
        rows = np.column_stack([ready, self.fitted.computed]) * self.slowness
        return sizes, _accumulated(np.column_stack([rows[:, 0], rows]), steps, seed)

    def group(self, ranks: int, sizes: np.ndarray, slowest: np.ndarray) -> Group:
        """Rounds whose slowest rank had these pieces, and had computed, at such seconds (samples, p + 2)."""
        return Group(ranks, sizes, slowest, self.collective, self.scheme, self.fitted.tail)

    def outcome(self, workers: np.ndarray, *, seed: int = 0) -> Outcome:
        """Groups drawn from the recorded ranks, their rounds timed by `round_time`; the same draws for every number.

        Errors: the sampling of rounds, bandwidth and latency, and the model where nothing was recorded.
        """
        k, fitted = self.steps_per_round, self.fitted
        mean = np.cumsum(self.slower(workers[-1]))[workers - 1] / workers
        compute = float(fitted.computed.mean() * self.slowness * k) * mean
        parts, effects = self._rounds(workers, compute, seed)
        waited, longer, ahead = self._waited(workers, parts[0], seed)
        T, network, latency, stragglers, wire, messages = parts
        T = T + waited
        other = (workers > fitted.ranks) | self.other_machines
        error = np.where(other, MODEL_ERROR, TRACING_ERROR)
        error = np.where((workers > max(2, fitted.ranks)) & self._in_turn, self._in_turn_error, error)
        added = np.stack([network, latency, stragglers], axis=-1)
        busy = np.stack([wire, np.minimum(messages, T), stragglers], axis=-1)
        least = np.where(workers > 1, np.maximum(self._first(compute) + wire, compute), T)
        most = T[0] + wire + messages + stragglers
        here = [point for point in self.measured if self.is_here(point)]
        behind = self.input > T[-1] - waited[-1]
        shares = dict(zip(PLACES, added[-1], strict=True), compute=compute[-1])
        shares["input"] = math.inf if behind else waited[-1]
        return Outcome(
            workers=workers,
            throughput=k * workers / T,
            prediction=Prediction(
                workers=workers,
                mean=np.log(k * workers / T)[:, None] + ahead[:, None] * LOADED_AHEAD,
                weights=np.full(len(LOADED_AHEAD), 1.0 / len(LOADED_AHEAD)),
                kind=np.zeros(len(LOADED_AHEAD), int),
                error=error[:, None],
                noise=np.zeros(len(workers)),
                spread=np.column_stack([effects, longer]),
                correlation=ERROR_PER_DOUBLING,
            ),
            noise=ROUND_NOISE,
            breakdown=lambda X: Breakdown(
                stations=PLACES,
                utilization=np.minimum(busy / T[:, None], 1.0),
                residence_time=added / k,
                think_time=(T - added.sum(axis=-1)) / k,
                bound_lower=np.minimum(k * workers / most, X),
                bound_upper=np.maximum(k * workers / least, X),
                bottleneck=max(shares, key=shares.__getitem__),
            ),
            method=f"all-reduce ({self._algorithm}, max-plus recursion over recorded rounds)",
            remarks=self.remarks,
            parameter_servers=getattr(self.collective, "servers", 0),
            workers_per_node=getattr(self.collective, "ranks_per_node", 1),
            profiled_workers=max(0 if self.other_machines else fitted.ranks, *(p.workers for p in here), 0),
            measured=tuple((p.workers, p.steps_per_second) for p in here),
            synchronous=True,
            steps_per_round=k * workers if k > 1 else np.empty(0),
        )

    @property
    def _in_turn(self) -> bool:
        """Whether one message is under way at a time, on one connection, which pauses in between."""
        one = isinstance(self.scheme, Buckets) and (self.scheme.at_once or 1) == 1
        return one and self.fitted.library.single

    @property
    def _in_turn_error(self) -> float:
        return in_turn_error(self.fitted, late=self.network.buffer > 0)

    @property
    def _algorithm(self) -> str:
        return name_of(self._combined)

    def _first(self, compute: np.ndarray) -> np.ndarray:
        """Seconds of a round before the network can have anything to do."""
        ready, k = self._sent[1], self.steps_per_round
        forward = 0.0 if self.scheme.crosses or not ready.size else ready[:, 0].mean() / self.fitted.computed.mean()
        return np.asarray(compute * (1 - (1 - forward) / k))

    def _rounds(self, ranks: np.ndarray, compute: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """`Parts` of a round, each an array over numbers of ranks (n,), and its errors by cause (n, 3)."""
        sizes, rows = self.pieces(self.steps_per_round, seed)
        typical = float(self.fitted.computed.mean() * self.slowness * self.steps_per_round)
        sure = ranks[np.unique(np.geomspace(1, len(ranks), SMOOTH).astype(int) - 1)].tolist()
        found, effects = [], []
        drawn = slowest_of(rows, ranks.tolist(), samples=SAMPLES, seed=seed, paces=self.paces(ranks[-1]))
        for slowest, n, own in zip(drawn, ranks.tolist(), compute.tolist(), strict=True):
            group, link = self.group(n, sizes, slowest), self.among(n)
            alone = Parts(own + self.beyond, 0.0, 0.0, 0.0, 0.0, 0.0)
            found.append(alone if n == 1 else group.parts(link, own))
            if n in sure:
                slowest_own = typical * self.slower(n).max()
                late = max((found[-1].stragglers + own) / slowest_own - 1, 0.0)
                sampling = computation_error(self.fitted, late, n)
                effects.append(group.effects(link, self._covariance(n), sampling))
        every = [np.interp(np.log(ranks), np.log(sure), one) for one in zip(*effects, strict=True)]
        return np.transpose(found), np.column_stack(every)

    def _covariance(self, ranks: int) -> np.ndarray:
        """Of the logarithms of bandwidth and latency; one rank's record hardly separates waiting from sending."""
        doublings = self._doublings(ranks)
        unsteady = (
            0.0
            if self._in_turn or not doublings
            else other_ranks_error(self.fitted.congestion_control, self.fitted.library)
        )
        other = self.fitted.library.slower_error * doublings, unsteady
        covariance = self.fitted.covariance + np.diag([np.dot(other, other), 0.0])
        if self.fitted.unrecorded and (ranks != self.fitted.ranks or self.other_machines):
            covariance = covariance + np.diag([UNRECORDED_NETWORK**2, 0.0])
        return covariance if self.scenario.latency is None else covariance * np.diag([1.0, 0.0])  # it has no error

    def _waited(self, ranks: np.ndarray, times: np.ndarray, seed: int) -> np.ndarray:
        """Mean seconds by which waits for input make rounds longer, and their errors: by sampling, of the model."""
        if not self.loading:
            return np.zeros((3, len(ranks)))
        recorded = np.concatenate(self.loading)
        variation = float(recorded.std() / recorded.mean())
        sampling, loading = math.exp(variation / len(recorded) ** 0.5), self.fitted.loading
        ways = [(), loading, tuple(sampling * own for own in loading)]
        models = [replace(self, fitted=replace(self.fitted, loading=way)) for way in ways]
        some = np.unique(np.geomspace(1, len(ranks), WAITS).astype(int) - 1)
        found = []
        for n, time in zip(ranks[some].tolist(), times[some], strict=True):
            without, mean, more = (model.mean_round(n, seed) for model in models)
            waited = max(mean - without, 0.0)
            longer = math.log(max(more / mean, 1.0))
            found.append((waited, longer, AHEAD_ERROR * min(variation, 1.0) * waited / (time + waited)))
        return np.array([np.interp(np.log(ranks), np.log(ranks[some]), one) for one in zip(*found, strict=True)])

    def mean_round(self, ranks: int, seed: int) -> float:
        """Mean seconds of successive rounds, in which ranks wait for their input."""
        runs = max(RUNS * FEW_RANKS // max(ranks, FEW_RANKS), 4)
        group = Ranks(self, ranks, [np.random.default_rng(seed)], runs=runs)
        return float(np.mean([group.round()[2] for _ in range(SUCCESSIVE)]))

    def check(self) -> None:
        """See `Model`: refuse what the profile does not determine, and what does not fit together."""
        _ = self.scheme, self.collective

    @property
    def remarks(self) -> tuple[Note, ...]:
        """What the profile does not determine."""
        notes: list[Note] = []
        if not self.fitted.latency_known and self.scenario.latency is None:
            notes.append(Note("latency is assumed: hardly identifiable from two nodes", "assumed"))
        if self.fitted.unrecorded:
            recorded = self.fitted.ranks - self.fitted.unrecorded
            notes.append(Note(
                f"{recorded} of {self.fitted.ranks} ranks recorded: differences between ranks are unknown, the "
                f"interval allows {percent(UNRECORDED)} of computation for them"
            ))  # fmt: skip
        elif len(self.fitted.computed) < FEW_ROUNDS:
            few = f"{len(self.fitted.computed)} recorded rounds per rank hardly determine the delay of stragglers"
            notes.append(Note(few))
        if self._in_turn:
            idle = "with one message at a time links idle, and carry less with more ranks on some networks"
            if self.network.buffer:
                idle = "single messages under BBR are assumed to lose packets in such buffers as plain sockets do"
            elif self.fitted.ranks == 2 and self._in_turn_error > IN_TURN_FROM_THREE:
                network = "specify congestion control and buffers (--congestion-control, --buffer), or "
                idle += f": {network * (self.fitted.congestion_control == 'unknown')}record three ranks"
            notes.append(Note(idle, "assumed" if self.network.buffer else "other"))
        computed = float(self.fitted.computed.mean())
        if self.fitted.alone > UNLIKE * (computed + self.fitted.tail) or computed > UNLIKE * self.fitted.alone:
            notes.append(Note(
                f"a rank computes for {self.fitted.alone:.3g} s alone, for {computed:.3g} s among "
                f"{self.fitted.ranks}: other batches, or ranks that share a processor"
            ))  # fmt: skip
        if self.loading:
            notes.append(Note(f"ranks waited for their input, which takes {self.input:.3g} s a round, and more will"))
        if self.fitted.paces:
            slow = int(np.argmax(np.abs(np.log(self.fitted.paces))))
            notes.append(Note(f"rank {slow} takes {self.fitted.paces[slow]:.3g} times as long as assumed of others"))
        checks = (contradiction, hardly_used)
        notes += [Note(check(self.fitted.bandwidth, self.fitted.nominal), "doubt") for check in checks]
        if self.fitted.ranks == 0:
            notes.append(Note("no round was recorded: computation and links are those of steps on parameter servers"))
        elif self.scenario.oversubscription is None:
            notes.append(Note(f"{self.fitted.ranks} nodes do not identify oversubscription of the network's core"))
        return tuple(notes)

    @property
    def _parameters(self) -> tuple[Parameter, ...]:
        """What was fitted, with its uncertainty."""
        fitted, slower, (bandwidth, latency, _) = self.fitted, self.slowness, self.network
        spread = np.sqrt(np.diag(self._covariance(0)))
        computed = fitted.computed * slower
        few = len(computed) < 2
        return (
            Parameter(
                "computation", float(computed.mean()), "s",
                standard_error=math.nan if few else float(computed.std(ddof=1) / len(computed) ** 0.5),
            ),
            Parameter(
                "straggler spread", 0.0 if few else float(computed.std(ddof=1) / computed.mean()), "-",
                identified=not (few or fitted.unrecorded),
                note="standard deviation of a rank's computation over its mean",
            ),
            Parameter("effective bandwidth", bandwidth, "B/s", standard_error=bandwidth * float(spread[0])),
            Parameter(
                "latency", latency, "s/message", standard_error=latency * float(spread[1]),
                origin="measured" if fitted.latency_known else "assumed", identified=fitted.latency_known,
                note="" if fitted.latency_known else "hardly identifiable from two nodes",
            ),
            Parameter(
                "oversubscription", self.scenario.oversubscription or 1.0, "-", origin="assumed", identified=False,
                note="needs several racks",
            ),
        )  # fmt: skip

    def caption(self) -> str:
        """Job, buckets, and what the fit does not determine."""
        sizes = self.scheme.units(self._sent[0])
        at_once = f", {self.scheme.at_once} at once" if isinstance(self.scheme, Buckets) else ""
        buckets = f"{counted(len(sizes), 'bucket')}{at_once}"
        return f"{self.job.name or 'job'}, all-reduce of {sizes.sum() / 1e6:.3g} MB in {buckets}; {self.note}"


def _accumulated(rows: np.ndarray, steps: int, seed: int) -> np.ndarray:
    """Rows (m, p + 2) of a rank's last step, after ``steps`` - 1 steps of its own."""
    if steps == 1:
        return rows
    rng = np.random.default_rng(seed)
    before = rows[rng.integers(len(rows), size=(ACCUMULATED, steps - 1)), -1].sum(axis=1)
    rows = rows[np.arange(ACCUMULATED) % len(rows)]
    rows[:, 1:] += before[:, None]
    return rows
