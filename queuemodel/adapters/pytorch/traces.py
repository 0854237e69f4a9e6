"""What ``torch.profiler`` recorded of data-parallel training: folders of ranks' Chrome traces to a profile; no PyTorch.

Steps are ``ProfilerStep#i``, and become rounds. Buckets are handed over by ``c10d::allreduce_``; gloo runs them as
``gloo:all_reduce`` on threads of its own, NCCL as kernels whose arguments name the collective, its elements and their
type. PyTorch copies these from the program's record of the collective, and not in every version: then that record is
read, or the kernel's name, as in the traces of pytorch/pytorch#131462 (2024).

An accelerator computes behind the program. Kernels carry the ``correlation`` of the ``cuda_runtime`` (or
``cuda_driver``) call that launched them. What NCCL was given is ready when all that had been launched before is done,
since its stream waits for that.
"""

from __future__ import annotations

import math
import os
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import msgspec
from msgspec import structs

from ...base.errors import DataError
from ...base.files import read_bytes
from ...profile.job import Source
from ...profile.profile import Profile
from ...profile.records import Bucket, Gradient, Round
from .. import recordings
from ..recordings import RankTrace, StepClock, Unrecorded, constant, intersection, union

SUFFIXES = (".pt.trace.json", ".pt.trace.json.gz")

#: Bytes of an element, by its type's names in traces, without ``c10::``.
ELEMENT_BYTES = {
    "float": 4, "double": 8, "half": 2, "bfloat16": 2, "int": 4, "long int": 8, "long": 8, "short": 2, "char": 1,
    "byte": 1, "unsigned char": 1, "signed char": 1, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip

STEP = re.compile(r"ProfilerStep#\d{1,12}", re.ASCII)

RECORDED = ("record_param_comms", "nccl:all_reduce")  # by NCCL's process group, within `c10d::allreduce_`
GRADIENT = "torch::autograd::AccumulateGrad"  # is there; what hangs on it runs within the next
EVALUATED = "autograd::engine::evaluate_function"
HOOKS = f"{EVALUATED}: {GRADIENT}"
# DistributedDataParallel puts a gradient into its bucket, and takes it out when it has waited for the reduction
INTO_BUCKET = "torch::distributed::reducer::"
OUT_OF_BUCKET = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
FORWARD = "DistributedDataParallel.forward"  # a pass through the module
INPUT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"  # waits for processes that load ahead
NO_DESCRIPTION = b'"Process Group Description": ,'  # what PyTorch writes where nobody gave one; it is no JSON
LAUNCHES = ("cuda_runtime", "cuda_driver")
DONE_THERE = ("kernel", "gpu_memcpy", "gpu_memset")

MOST_OTHER = constant("most_other_communication")  # sums of losses and buffers, not parameters or activations
SAME_BYTES = constant("same_bytes")


class TraceEvent(msgspec.Struct):
    """A complete event of the trace (microseconds); other kinds have no ``dur``."""

    name: str = ""
    ph: str = ""
    ts: float = 0.0
    dur: float = -1.0
    cat: str = ""
    args: dict[str, Any] = {}

    @property
    def end(self) -> float:
        return self.ts + self.dur

    @property
    def correlation(self) -> int:
        """Number of the call that launched it, or of itself as a call; 0 without."""
        number = self.args.get("correlation")
        return number if type(number) is int else 0

    @property
    def is_nccl(self) -> bool:
        """Whether it communicates among accelerators."""
        return self.cat == "kernel" and "nccl" in self.name.lower()


class Trace(msgspec.Struct):
    """The file, as far as it is needed."""

    traceEvents: list[TraceEvent]
    distributedInfo: dict[str, Any] = {}


def read_pytorch(
    folders: Sequence[str | os.PathLike[str]],
    *,
    batch_size: int,
    progress: bool = False,
    **unrecorded: Unpack[Unrecorded],
) -> Profile:
    """Make a profile of data-parallel training from ``*.pt.trace.json[.gz]``, one file for each rank.

    Each folder is one run of the job: one node's shows the computation, two nodes' the network; the numbers of ranks
    are read from the files. ``batch_size`` counts examples per step and rank; what else traces do not record may be
    given by its name in `Job` or `Cluster`: ``name``, ``dataset_size``, ``bandwidth``, ``congestion_control``, or
    ``buffer``. Raises `DataError` when a folder has no such file, lacks a rank or has one twice, or runs are not of one
    job.
    """
    runs = [_read_run(Path(folder), progress) for folder in folders]
    recordings.ranks_of(folders, runs)
    reduced = _gradient_bytes(max(runs, key=lambda run: run[0].ranks))
    runs = [_each(run, lambda one: _last(one, reduced)) if run[0].ranks == 1 else run for run in runs]
    gradients = [_gradient_bytes(run) for run in runs]
    for folder, sizes in zip(folders, gradients, strict=True):
        if sizes != gradients[0]:
            raise DataError(
                f"{folder}: another job than {folders[0]}: {sum(sizes):,} bytes of gradients in {len(sizes)} tensors, "
                f"there {sum(gradients[0]):,} in {len(gradients[0])}"
            )
    # what the buckets carry: gradients of inputs are none of it
    carried = [one.buckets for run in runs for trace in run for one in trace.rounds if one.buckets]
    size = sum(bucket.bytes for bucket in carried[-1]) if carried else sum(gradients[0])
    backends = {trace.backend for run in runs for trace in run if trace.backend}
    source = Source(framework="pytorch", method="torch-profiler", style="/".join(sorted(backends)))
    job = {"batch_size": batch_size, "parameter_bytes": size, "tensors": len(gradients[0])}
    return recordings.profile_of_rounds(source, [_each(run, _as_sent) for run in runs], job, unrecorded)


def _read_run(folder: Path, progress: bool) -> list[RankTrace]:
    paths = sorted(p for p in folder.glob("*") if p.name.endswith(SUFFIXES) and not p.name.startswith("."))
    traces = recordings.read_files(folder, paths, _read_rank, names="*.pt.trace.json", progress=progress)
    return recordings.whole_run(folder, _joined(traces))


def _joined(traces: Sequence[RankTrace]) -> list[RankTrace]:
    """One trace of each rank: a schedule that repeats writes a file each time, with other steps."""
    joined: dict[tuple[int, int], RankTrace] = {}
    for trace in traces:
        if before := joined.get((trace.rank, trace.ranks)):
            if {one.number for one in before.rounds} & {one.number for one in trace.rounds}:
                return list(traces)
            trace = replace(before, rounds=[*before.rounds, *trace.rounds])
        joined[trace.rank, trace.ranks] = trace
    return list(joined.values())


def _each(run: Sequence[RankTrace], change: Callable[[Round], Round]) -> list[RankTrace]:
    return [replace(trace, rounds=list(map(change, trace.rounds))) for trace in run]


def _last(one: Round, reduced: Sequence[int]) -> Round:
    """The last gradients of each size that are reduced: a single rank marks neither passes nor other gradients."""
    missing, found = Counter(reduced), []
    for gradient in reversed(one.gradients):
        if missing[gradient.bytes]:
            missing[gradient.bytes] -= 1
            found.append(gradient)
    return one if missing.total() else structs.replace(one, gradients=found[::-1])


def _as_sent(one: Round) -> Round:
    """Gradients with the bytes that are sent of them, where a hook casts or compresses them."""
    sent, made = (sum(part.bytes for part in parts) for parts in (one.buckets, one.gradients))
    if not sent or math.isclose(sent, made, rel_tol=SAME_BYTES):
        return one
    return structs.replace(
        one, gradients=[structs.replace(g, bytes=max(1, round(g.bytes * sent / made))) for g in one.gradients]
    )


def _gradient_bytes(run: Sequence[RankTrace]) -> tuple[int, ...]:
    """Sizes of a step's gradients; the same in every step of every rank."""
    sizes = {tuple(sorted(g.bytes for g in one.gradients)) for trace in run for one in trace.rounds}
    if len(sizes) > 1:
        raise DataError(
            f"{run[0].where}: the steps have different gradients; only steps that all train the same parameters can be "
            "predicted"
        )
    (own,) = sizes
    if not own:
        raise DataError(f"{run[0].where}: no AccumulateGrad with sizes in it; record with record_shapes=True")
    return own


def _read_rank(path: Path) -> RankTrace:
    """One rank's file (raises DataError: what it lacks, or which event makes no sense)."""
    content = read_bytes(path).replace(NO_DESCRIPTION, NO_DESCRIPTION.replace(b",", b'"",'))
    try:
        trace = msgspec.json.decode(content, type=Trace)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not a Chrome trace of torch.profiler: {error}") from None
    info = trace.distributedInfo
    rank, ranks = info.get("rank", 0), info.get("world_size", 1)
    if not (type(rank) is int and type(ranks) is int and 0 <= rank < ranks):
        raise DataError(f"{path}: distributedInfo must name a rank below its world_size, got {rank!r} of {ranks!r}")
    groups = info.get("pg_config")
    parts = groups if isinstance(groups, list) else []
    divided = any(isinstance(part, dict) and part.get("pg_size", ranks) != ranks for part in parts)
    events = [event for event in trace.traceEvents if event.ph == "X" and event.dur >= 0]
    marks = (e for e in events if STEP.fullmatch(e.name) and e.cat != "gpu_user_annotation")
    steps = sorted(marks, key=lambda e: e.ts)
    if not steps:
        raise DataError(f"{path}: no ProfilerStep#i in it; call profiler.step() after each step while recording")
    work = AcceleratorWork(events)
    rank_file = _RankFile(str(path), rank, ranks, divided, work)
    waits = union((work.finished(e.ts), e.end) for e in events if e.name == INPUT and work.finished(e.ts) < e.end)
    handed = sorted(events, key=work.handed_over)
    inside = recordings.by_step(handed, [(step.ts, step.end) for step in steps], work.handed_over)
    try:
        rounds = [
            _Step(step, own, StepClock(*span, intersection(waits, [span]), 1e-6), rank_file).round()
            for step, span, own in zip(steps, work.steps(steps), inside, strict=True)
        ]
    except DataError as error:
        raise DataError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from None
    idle = [one.number for one in rounds if not one.buckets]
    if ranks > 1 and len(idle) == len(rounds):
        raise DataError(
            f"{path}: {ranks} ranks, but no all-reduce in any step; train by the DistributedDataParallel, which a live "
            "profile's step is given, not by the module inside"
        )
    if ranks > 1 and idle:
        raise DataError(
            f"{path}: step {idle[0]} reduces no gradients, others do; call profiler.step() once for each reduction, "
            "after all steps that are accumulated, and give the examples of all as batch size"
        )
    return RankTrace(str(path), rank, ranks, str(info.get("backend", "")), rounds)


class AcceleratorWork:
    """What a trace's events did, by the clock of the program (all in microseconds)."""

    def __init__(self, events: Sequence[TraceEvent]) -> None:
        self.calls = {e.correlation: e.ts for e in events if e.cat in LAUNCHES and e.correlation}
        there = [event for event in events if event.cat in DONE_THERE and not event.is_nccl]
        self.computing = sorted(there, key=self.handed_over)
        self.launched = [self.handed_over(event) for event in self.computing]
        self.done = list(accumulate((event.end for event in self.computing), max))

    def handed_over(self, event: TraceEvent) -> float:
        """When the program came to it: a kernel's launch, and the beginning of anything else."""
        return self.calls.get(event.correlation, event.ts) if event.cat in DONE_THERE else event.ts

    def finished(self, moment: float) -> float:
        """When all was done that the program had done or launched by then."""
        count = bisect_right(self.launched, moment)
        return max(moment, self.done[count - 1]) if count else moment

    def steps(self, marks: Sequence[TraceEvent]) -> list[tuple[float, float]]:
        """Start and end of each step where it is computed: with an accelerator, from its first kernel to the next's."""
        if not self.computing:
            return [(mark.ts, mark.end) for mark in marks]
        starts = []
        for mark in marks:
            first = bisect_left(self.launched, mark.ts)
            own = first < len(self.launched) and self.launched[first] < mark.end
            starts.append(max(mark.ts, self.computing[first].ts) if own else self.finished(mark.ts))
        last = max(starts[-1], self.finished(marks[-1].end))
        return list(pairwise([*starts, last]))


class _RankFile(NamedTuple):
    """Whose file it is: a rank of so many, and whether these have groups of fewer ranks too."""

    where: str
    rank: int
    ranks: int
    divided: bool
    work: AcceleratorWork


class _Step:
    """One step's events, in the order in which the program came to them."""

    def __init__(self, mark: TraceEvent, events: list[TraceEvent], clock: StepClock, file: _RankFile) -> None:
        self.where, self.number = f"{file.where}: {mark.name}", int(mark.name.removeprefix("ProfilerStep#"))
        self.events, self.clock, self.since, self.file = events, clock, clock.since, file
        self.finished = file.work.finished
        # the forward pass whose gradients are reduced: the last of those that are accumulated
        last = max((one.ts for one in self.named(GRADIENT)), default=0.0)
        self.forward = max((one.ts for one in self.named(FORWARD) if one.ts < last), default=0.0)
        self.gradients = self._gradients()

    def named(self, name: str) -> list[TraceEvent]:
        """The events of this name."""
        return [event for event in self.events if event.name == name]

    def round(self) -> Round:
        """The step in seconds (raises DataError)."""
        file, since = self.file, self.since
        buckets = self._buckets() if file.ranks > 1 else []
        reduced = min((since(event.ts) for event in self.named(OUT_OF_BUCKET)), default=math.inf)
        reduced = min(reduced, max((bucket.end for bucket in buckets), default=math.inf))
        # a checkpoint that computes again may wait for the reduction amid the backward pass, and go on
        backward = [event for event in self.events if event.name.startswith(EVALUATED) and since(event.ts) < reduced]
        if not backward:
            raise DataError(f"{self.where}: no backward pass in it; record training steps with CPU activity")
        computed = since(self.finished(max(backward, key=lambda event: event.ts).end))
        # what is handed over later waits for what was handed over before, not for gradients
        buckets = [structs.replace(bucket, ready=min(bucket.ready, computed)) for bucket in buckets]
        sizes = [_bytes(one, self.where) for one in self.gradients]
        sized = [Gradient(n, since(self.finished(g.end))) for n, g in zip(sizes, self.gradients, strict=True) if n]
        return Round(
            rank=file.rank,
            ranks=file.ranks,
            number=self.number,
            computed=computed,
            gradients=sorted(sized, key=lambda one: one.ready),
            buckets=buckets,
            **self.clock.times,
        )

    def _gradients(self) -> list[TraceEvent]:
        """Those that go into buckets; where nothing says so, all since the last forward pass began."""
        names = (GRADIENT, INTO_BUCKET)
        every = [event for event in self.events if event.ts >= self.forward and event.name.startswith(names)]
        reduced = [one for one, other in pairwise(every) if one.name == GRADIENT != other.name]
        return reduced or [event for event in every if event.name == GRADIENT]

    def _buckets(self) -> list[Bucket]:
        """All-reduces of gradients in the order in which they were handed over, each with when it ran."""
        where, ranks, handed = self.where, self.file.ranks, self.named("c10d::allreduce_")
        ran = [event for event in self.events if _is_all_reduce(event)]
        hooks = self.named(HOOKS)
        hooked = [one for one in handed if any(hook.ts <= one.ts <= hook.end for hook in hooks)]
        first = min((event.ts for event in self.gradients), default=math.inf)
        own = hooked or [one for one in handed if one.ts >= first]  # by DistributedDataParallel, or by the program
        if handed or ran:  # gloo scatters what it reduced as an all-reduce
            self._require_one_reduction(own)
        made, reduced = (sum(map(_elements, some)) for some in (self.gradients, own))
        if hooked and reduced < (1 - MOST_OTHER) * made and not any(event.is_nccl for event in ran):
            raise DataError(
                f"{where}: {made:,} elements of gradients, and all-reduces of {reduced:,}; what a communication hook "
                "sends after that, as PowerSGD does, gloo's traces do not show"
            )
        if self.named("gloo:sparse_all_reduce"):
            raise DataError(
                f"{where}: every rank gathers the sparse gradients of all; only dense ones can be predicted"
            )
        if len(handed) != len(ran):
            raise DataError(
                f"{where}: {len(handed)} all-reduces were handed over in a step and {len(ran)} ran in it; "
                "record whole steps, with CPU (and CUDA) activity"
            )
        buckets = []
        for one in handed:  # gloo's threads may begin the later of two first
            other = next((event for event in ran if _elements(event) == _elements(one)), ran[0])
            ran.remove(other)
            if one not in own:
                continue
            within = (event for event in self.events if event.name in RECORDED and one.ts <= event.ts <= one.end)
            recorded = [other, *within]
            group = next((size for event in recorded if (size := event.args.get("Group size"))), None)
            if (group or ranks) != ranks or (self.file.divided and not group):
                raise DataError(
                    f"{where}: gradients are reduced among {group or 'an unknown number'} of {ranks} ranks; all must "
                    "reduce together, and over gloo, which does not tell, the job must have no groups of fewer"
                )
            size = next(filter(None, (_bytes(event, where) for event in recorded)), 0)
            ready = self.since(self.finished(one.ts))
            if not size:
                raise DataError(f"{where}: the size of {other.name!r} is not in it; record with record_shapes=True")
            buckets.append(Bucket(size, ready, self.since(other.ts), max(ready, self.since(other.end))))
        return buckets

    def _require_one_reduction(self, own: Sequence[TraceEvent]) -> None:
        """Refuse steps that wait for the reduction and compute again, and those that communicate much else."""
        if own and own[0].ts < self.forward:
            where = self.where
            raise DataError(f"{where}: gradients are reduced more than once; call profiler.step() after each reduction")
        others = [event for event in self.events if event.name.startswith("c10d::") and event not in own]
        moved, reduced = (sum(map(_elements, some)) for some in (others, own))
        if moved > MOST_OTHER * reduced:
            raise DataError(
                f"{self.where}: {max(others, key=_elements).name} and the like move {moved:,} elements beside the "
                f"{reduced:,} of the gradients' all-reduces; only training that moves nothing but gradients can be "
                "predicted"
            )


def _is_all_reduce(event: TraceEvent) -> bool:
    if event.is_nccl:  # older traces say which collective it is by the kernel's name alone
        collective = event.args.get("Collective name")
        return collective == "allreduce" if collective else "allreduce" in event.name.lower()
    return event.name == "gloo:all_reduce"


def _bytes(event: TraceEvent, where: str) -> int:
    """Bytes of an event's first tensor (or list of tensors); 0 where it does not say."""
    elements, kinds = event.args.get("In msg nelems"), event.args.get("dtype")
    if elements is None:
        types = event.args.get("Input type")
        elements, kinds = _elements(event), types[0] if isinstance(types, list) and types else None
    if type(elements) is not int or elements < 0:
        raise DataError(f"{where}: {event.name!r}: elements must be a whole number >= 0, got {elements!r}")
    if not elements or kinds in ("TensorList", "", None):
        return 0
    size = ELEMENT_BYTES.get(str(kinds).lower().removeprefix("c10::"))
    if size is None:
        raise DataError(f"{where}: {event.name!r}: the type {kinds!r} of its elements is not known")
    return elements * size


def _elements(event: TraceEvent) -> int:
    """Elements of an event's first tensor (or list of tensors); 0 where it does not say."""
    shapes = event.args.get("Input Dims")
    first = shapes[0] if isinstance(shapes, list) and shapes else None
    if not isinstance(first, list):
        return 0
    several = first if first and isinstance(first[0], list) else [first]
    return sum(math.prod(shape) for shape in several if all(type(n) is int and n >= 0 for n in shape))
