"""Data-parallel training: every round ends in an all-reduce of all gradients, bucket by bucket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import exp, log
from typing import Any, ClassVar, cast

import numpy as np

from ...base.errors import ModelError
from ...base.estimates import Parameter
from ...base.files import constants
from ...base.results import counted
from ...profile.measurements import Measurement
from ...profile.profile import Profile
from ...profile.scenario import Scenario, of_group
from ...profile.throughputs import on_profiled_links
from ...transport.collectives import Algorithm, Hierarchical, InRacks, Link, Ring
from ...transport.sharing import CONTROLS
from ...transport.trees import algorithm_of, name_of
from ..model import OTHER_DATA, Data, changes_of, strategy_of
from .base import CONTRADICTION_NOTES, RECORDED_NOTES, DrawnRounds, NoteRows, RoundModel, RoundTimes
from .fit import FittedRounds, fit_rounds, rounds_of_steps
from .loading import BATCHES_AHEAD
from .ranks import Group, Parts, Ranks
from .schemes import SCHEMES, Buckets, Scheme, Slices
from .times import NodeLink, sampler, slowest_of

#: Fewer recorded computations than this leave their spread open by a quarter.
FEW_ROUNDS = 9

#: Measured and assumed numbers, with their sources: constants.toml.
_NUMBERS = constants(__package__)["model"]
MAX_COMPUTE_RATIO, UNRECORDED_NETWORK = _NUMBERS["unlike"], _NUMBERS["unrecorded_network"]
ALL_REDUCE_ERROR, TRACING_ERROR, AHEAD_ERROR = (_NUMBERS[f"{name}_error"] for name in ("model", "tracing", "ahead"))
SINGLE_MESSAGE_ERROR, SINGLE_MESSAGE_ERROR_FROM_THREE = (
    _NUMBERS["single_message_error"],
    _NUMBERS["single_message_from_three"],
)
SINGLE_MESSAGE_ERROR_KNOWN_BUFFER, SINGLE_MESSAGE_ERROR_LOSS_BASED = (
    _NUMBERS["single_message_known_buffer"],
    _NUMBERS["single_message_loss_based"],
)

#: Groups drawn for a prediction.
GROUP_SAMPLES = 200

#: Numbers of ranks, of many, for which is computed what is smooth between them: errors, and waits for input.
ERROR_GRID_POINTS, INPUT_GRID_POINTS = 40, 12

#: Rounds drawn where several steps make one.
ACCUMULATION_SAMPLES = 240

#: Successive rounds in which ranks wait for their input, and runs of a group of at most so few ranks.
INPUT_ROUNDS, INPUT_RUNS, INPUT_RANKS = 20, 64, 32


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


#: Notes on data-parallel rounds.
ALL_REDUCE_NOTES: NoteRows = (
    *RECORDED_NOTES,
    (lambda m: len(m.fitted.computed) < FEW_ROUNDS and not m.fitted.unrecorded,
     "{m.fitted.computed.size} recorded rounds per rank hardly determine the delay of stragglers", "other"),
    (lambda m: m._single_message and m._buffer,
     "single messages under BBR are assumed to lose packets in such buffers as plain sockets do", "assumed"),
    (lambda m: m._single_message and not m._buffer,
     "with one message at a time links idle, and carry less with more ranks on some networks{m._few_ranks}", "other"),
    (lambda m: m._unlike,
     "a rank computes for {m.fitted.single_rank_round_time:.3g} s alone, for {m._computed:.3g} s among "
     "{m.fitted.ranks}: other batches, or ranks that share a processor", "other"),
    (lambda m: m.loading, "ranks waited for their input, which takes {m.input:.3g} s a round, and more will", "other"),
    *CONTRADICTION_NOTES,
    (lambda m: m.fitted.ranks == 0,
     "no round was recorded: computation and links are those of steps on parameter servers", "other"),
    (lambda m: m.fitted.ranks > 0 and m.scenario.oversubscription is None,
     "{m.fitted.ranks} nodes do not identify oversubscription of the network's core", "other"),
)  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class AllReduceModel(RoundModel):
    """Synchronous data-parallel training with one all-reduce for each bucket of gradients.

    Made of what `fit_rounds` found; changed by `what_if`; solved by `throughput`, whose workers are ranks, one on each
    node unless ``gpus_per_node`` is specified, given throughputs ``measured`` on such machines. Of accumulated
    steps (`no_sync`) the computation of the first is that of the last.
    """

    fitted: FittedRounds
    changes = (*of_group("rounds"), "bandwidth", "other_traffic", "accelerator_speed", "worker_speeds", "batch_size")
    kind = "of all-reduce"
    note_rows = ALL_REDUCE_NOTES
    places: ClassVar[tuple[str, ...]] = ("network", "latency", "stragglers")

    def link_at(self, ranks: int) -> NodeLink:
        """See `RoundModel`; messages of a ring are late (`lateness`) where they are sent one at a time."""
        link = super().link_at(ranks)
        return link if self._single_message and isinstance(self.collective, Ring) else link._replace(buffer=0.0)

    @property
    def recorded(self) -> dict[str, Any]:
        """See `RoundModel`."""
        return {"collective": self.fitted.library.collective, "gpus_per_node": 1, "batches_ahead": BATCHES_AHEAD}

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
    def _tensors(self) -> tuple[np.ndarray, np.ndarray]:
        """Bytes of what the scheme is given, (p,), and when one rank had it, (m, p): buckets, or gradients."""
        if not self._in_gradients:
            return self.fitted.bucket_bytes * self.precision, self.fitted.ready
        sizes, moments = self.fitted.gradients
        return sizes * self.precision, moments * (self.fitted.computed / self.fitted.computed.mean())[:, None]

    @property
    def _algorithm_without_topology(self) -> Algorithm:
        wanted = self.scenario.collective
        return algorithm_of(wanted) if wanted else self.fitted.library.collective

    @cached_property
    def collective(self) -> Algorithm:
        """How ranks combine them, where they stand."""
        algorithm, wanted = self._algorithm_without_topology, self.scenario
        self.require_inside()
        if wanted.gpus_per_node is not None and wanted.inside_bandwidth is not None:
            algorithm = Hierarchical(wanted.gpus_per_node, Link(wanted.inside_bandwidth), algorithm)
        if wanted.nodes_per_rack is not None:
            algorithm = InRacks(algorithm, wanted.nodes_per_rack, wanted.oversubscription or 1.0)
        return algorithm

    @property
    def loading(self) -> list[np.ndarray]:
        """Seconds that batches take to load, by recorded rank."""
        return [times * (self.job.batch_size / self.fitted.job.batch_size) for times in self.fitted.loading]

    @property
    def input(self) -> float:
        """Mean seconds in which the slowest loader makes the batches of a round; 0 where no rank waited for any."""
        return max((float(times.mean()) * self.steps_per_round for times in self.loading), default=0.0)

    @property
    def batches_ahead(self) -> int:
        """Batches that a rank's loader keeps ready."""
        return self.scenario.batches_ahead or BATCHES_AHEAD

    def tensors(self, steps: int = 1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Bytes (p,) of the scheme's tensors, and rows (m, p + 2) of one rank, for `Scheme.time`.

        The gradients are those of the last of the steps.
        """
        sizes, ready = self._tensors
        rows = np.column_stack([ready, self.fitted.computed]) * self.slowness
        return sizes, _accumulated(np.column_stack([rows[:, 0], rows]), steps, seed)

    def group(self, ranks: int, sizes: np.ndarray, slowest: np.ndarray) -> Group:
        """Rounds whose slowest rank had these pieces, and had computed, at such seconds (samples, p + 2)."""
        return Group(ranks, sizes, slowest, self.collective, self.scheme, self.fitted.tail)

    def rounds(self, workers: np.ndarray, *, seed: int) -> RoundTimes:
        """Groups drawn from the recorded ranks, their rounds timed by `round_time`; the same draws for every number."""
        k = self.steps_per_round
        # mean over the first n ranks; one alone computes as it did
        mean = np.cumsum(self.slower(workers[-1]))[workers - 1] / workers
        mean = np.where(workers > 1, mean, self.relative_compute_times(1))
        compute = float(self.fitted.computed.mean() * self.slowness * k) * mean
        parts, effects = self._drawn(workers, compute, seed)
        waited, longer, ahead = self._waited(workers, parts[0], seed)
        T, network, latency, stragglers, wire, messages = parts
        T = T + waited
        return RoundTimes(
            time=T,
            compute=compute,
            added=np.stack([network, latency, stragglers], axis=-1),
            busy=np.stack([wire, messages, stragglers], axis=-1),
            least=np.where(workers > 1, np.maximum(self._time_to_first_bucket(compute) + wire, compute), T),
            effects=np.column_stack([effects, longer]),
            waited=waited,
            ahead=ahead,
        )

    def _model_error(self, workers: np.ndarray) -> np.ndarray:
        """See `RoundModel`."""
        error = np.where((workers > self.fitted.ranks) | self.other_machines, ALL_REDUCE_ERROR, TRACING_ERROR)
        return np.where((workers > max(2, self.fitted.ranks)) & self._single_message, self._single_message_error, error)

    @property
    def _method(self) -> str:
        """See `RoundModel`."""
        return f"all-reduce ({name_of(self._algorithm_without_topology)}"

    @property
    def _servers(self) -> int:
        """See `RoundModel`."""
        return getattr(self.collective, "servers", 0)

    @property
    def _ranks_per_node(self) -> int:
        return getattr(self.collective, "ranks_per_node", 1)

    @property
    def _single_message(self) -> bool:
        """Whether one message is under way at a time, on one connection, which pauses in between."""
        one = isinstance(self.scheme, Buckets) and (self.scheme.at_once or 1) == 1
        return one and self.fitted.library.single

    @property
    def _buffer(self) -> float:
        """Seconds of a buffer that single messages overflow."""
        return self.link_at(self.fitted.ranks).buffer

    @property
    def _single_message_error(self) -> float:
        """Relative error among more ranks than recorded, one message at a time."""
        control = CONTROLS.get(self.fitted.congestion_control)
        if control and control.loss_based:
            return SINGLE_MESSAGE_ERROR_LOSS_BASED
        if self._buffer:
            return SINGLE_MESSAGE_ERROR_KNOWN_BUFFER
        return SINGLE_MESSAGE_ERROR_FROM_THREE if self.fitted.ranks > 2 else SINGLE_MESSAGE_ERROR

    def _time_to_first_bucket(self, compute: np.ndarray) -> np.ndarray:
        """Seconds of a round before the network can have anything to do."""
        ready, k = self._tensors[1], self.steps_per_round
        forward = (
            0.0
            if self.scheme.overlaps_next_round or not ready.size
            else ready[:, 0].mean() / self.fitted.computed.mean()
        )
        return np.asarray(compute * (1 - (1 - forward) / k))

    def _drawn(self, ranks: np.ndarray, compute: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """`Parts` of a round, each an array over numbers of ranks (n,), and its errors by cause (n, 3)."""
        sizes, rows = self.tensors(self.steps_per_round, seed)
        typical = float(self.fitted.computed.mean() * self.slowness * self.steps_per_round)
        sure = ranks[np.unique(np.geomspace(1, len(ranks), ERROR_GRID_POINTS).astype(int) - 1)].tolist()
        found, effects = [], []
        drawn = slowest_of(
            rows,
            ranks.tolist(),
            samples=GROUP_SAMPLES,
            seed=seed,
            relative_compute_times=self.relative_compute_times(ranks[-1]),
        )
        for slowest, n, own in zip(drawn, ranks.tolist(), compute.tolist(), strict=True):
            group, link = self.group(n, sizes, slowest), self.link_at(n)
            alone = Parts(own + self.non_compute_time, 0.0, 0.0, 0.0, 0.0, 0.0)
            found.append(alone if n == 1 else group.parts(link, own))
            if n in sure:
                slowest_own = typical * self.slower(n).max()
                # by how much chance makes the slowest later than its own mean
                late = max((found[-1].stragglers + own) / slowest_own - 1, 0.0)
                effects.append(self.effects(group.mean_time, n, self.computation_error(late, n)))
        # errors are smooth in log n
        every = [np.interp(np.log(ranks), np.log(sure), one) for one in zip(*effects, strict=True)]
        return np.transpose(found), np.column_stack(every)

    def _bandwidth_error(self, ranks: int) -> float:
        """See `RoundModel`."""
        unsteady = 0.0 if self._single_message else self.bandwidth_extrapolation_error(ranks)
        unlike = self.fitted.unrecorded and (ranks != self.fitted.ranks or self.other_machines)
        return float(np.hypot(unsteady, UNRECORDED_NETWORK if unlike else 0.0))

    def _waited(self, ranks: np.ndarray, times: np.ndarray, seed: int) -> np.ndarray:
        """Mean seconds by which waits for input make rounds longer, and their errors: by sampling, of the model."""
        if not self.loading:
            return np.zeros((3, len(ranks)))
        recorded = np.concatenate(self.loading)
        variation = float(recorded.std() / recorded.mean())
        sampling, loading = exp(variation / len(recorded) ** 0.5), self.fitted.loading
        ways = [(), loading, tuple(sampling * own for own in loading)]
        models = [replace(self, fitted=replace(self.fitted, loading=way)) for way in ways]
        some = np.unique(np.geomspace(1, len(ranks), INPUT_GRID_POINTS).astype(int) - 1)
        found = []
        for n, time in zip(ranks[some].tolist(), times[some], strict=True):
            without, mean, more = (model.mean_round(n, seed) for model in models)
            waited = max(mean - without, 0.0)
            longer = log(max(more / mean, 1.0))
            found.append((waited, longer, AHEAD_ERROR * min(variation, 1.0) * waited / (time + waited)))
        return np.array([np.interp(np.log(ranks), np.log(ranks[some]), one) for one in zip(*found, strict=True)])

    def mean_round(self, ranks: int, seed: int) -> float:
        """Mean seconds of successive rounds, in which ranks wait for their input."""
        runs = max(INPUT_RUNS * INPUT_RANKS // max(ranks, INPUT_RANKS), 4)
        group = Ranks(self, ranks, [np.random.default_rng(seed)], runs=runs)
        return float(np.mean([group.round()[2] for _ in range(INPUT_ROUNDS)]))

    def simulated(self, ranks: int, rounds: int, seed: int) -> DrawnRounds:
        """See `RoundModel`."""
        sizes, own = self.tensors(self.steps_per_round, seed)
        rng, link = np.random.default_rng(seed), self.link_at(ranks)
        if self.loading:
            running = Ranks(self, ranks, [rng])
            rows, waits, times = map(np.concatenate, zip(*(running.round() for _ in range(rounds)), strict=True))
        else:
            rows = (
                sampler(own)(rng, rounds * ranks).reshape(rounds, ranks, -1)
                * self.relative_compute_times(ranks)[:, None]
            )
            rows, waits = np.maximum.accumulate(rows, axis=-1), np.zeros((rounds, ranks))
        group = self.group(ranks, sizes, rows.max(axis=1))
        begin = end = group.rows[:, 1:-1]
        if ranks > 1:
            begin, end = self.scheme.schedule(sizes, begin, group.cost(link))
        if not self.loading:
            times = group.times(link) if ranks > 1 else group.rows[:, -1] + self.non_compute_time
        sent = np.broadcast_to(np.stack([begin, end], axis=-1)[:, None], (rounds, ranks, len(sizes), 2))
        computing = np.stack([waits, rows[..., -1]], axis=-1)[:, :, None]
        return DrawnRounds(["all-reduce"] * len(sizes), sizes, rows[..., 1:-1], sent, computing, times, waits)

    def check(self) -> None:
        """See `Model`: refuse changes that the profile does not determine or that contradict each other."""
        _ = self.scheme, self.collective

    @property
    def _few_ranks(self) -> str:
        """What two ranks leave open of single messages, and what would tell."""
        if self.fitted.ranks != 2 or self._single_message_error <= SINGLE_MESSAGE_ERROR_FROM_THREE:
            return ""
        network = "specify congestion control and buffers (--congestion-control, --buffer), or "
        return f": {network * (self.fitted.congestion_control == 'unknown')}record three ranks"

    @property
    def _unlike(self) -> bool:
        """Whether one rank alone computes much longer than among others, or much shorter."""
        alone, computed = self.fitted.single_rank_round_time, self._computed
        return alone > MAX_COMPUTE_RATIO * (computed + self.fitted.tail) or computed > MAX_COMPUTE_RATIO * alone

    @property
    def _computed(self) -> float:
        return float(self.fitted.computed.mean())

    @property
    def _parameters(self) -> tuple[Parameter, ...]:
        """See `RoundModel`."""
        racks = self.scenario.oversubscription or 1.0
        core = Parameter("oversubscription", racks, "-", origin="assumed", identified=False, note="needs several racks")
        return (*super()._parameters, core)

    def caption(self) -> str:
        """Job, buckets, and unidentified parameters."""
        sizes = self.scheme.units(self._tensors[0])
        at_once = f", {self.scheme.at_once} at once" if isinstance(self.scheme, Buckets) else ""
        buckets = f"{counted(len(sizes), 'bucket')}{at_once}"
        return f"{self.job.name or 'job'}, all-reduce of {sizes.sum() / 1e6:.3g} MB in {buckets}; {self.note}"


def _accumulated(rows: np.ndarray, steps: int, seed: int) -> np.ndarray:
    """Rows (m, p + 2) of a rank's last step, after ``steps`` - 1 steps of its own."""
    if steps == 1:
        return rows
    rng = np.random.default_rng(seed)
    before = rows[rng.integers(len(rows), size=(ACCUMULATION_SAMPLES, steps - 1)), -1].sum(axis=1)
    rows = rows[np.arange(ACCUMULATION_SAMPLES) % len(rows)]
    rows[:, 1:] += before[:, None]
    return rows
