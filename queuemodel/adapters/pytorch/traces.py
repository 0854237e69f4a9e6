"""What ``torch.profiler`` recorded of data-parallel training: folders of ranks' Chrome traces to a profile; no PyTorch.

Steps are ``ProfilerStep#i``, and become rounds; what an accelerator did belongs to the step whose program launched it.
Of what ranks did together, the all-reduces of gradients are its buckets: those of `DistributedDataParallel`, or a
program's own; other communication must be little. What is not recorded is left empty: single gradients, without shapes;
how ranks differ, in the file of one.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Unpack

from msgspec import structs

from ...base.errors import DataError
from ...base.recognition import TIMES
from ...base.results import counted, percent
from ...profile.job import Source
from ...profile.profile import Profile
from ...profile.records import Bucket, Gradient, Round
from .. import recordings
from ..recordings import RankTrace, StepClock, Unrecorded, clipped, constant, union
from . import sharded
from .events import (
    ALL_REDUCE,
    DONE_THERE,
    REDUCED,
    REDUCED_BY_GLOO,
    AcceleratorWork,
    Collective,
    TraceEvent,
    collectives,
    read_trace,
)

TRACE_SUFFIXES = (".pt.trace.json", ".pt.trace.json.gz")

STEP = re.compile(r"ProfilerStep#\d{1,12}", re.ASCII)

GRADIENT = "torch::autograd::AccumulateGrad"  # is there; what hangs on it runs within the next
EVALUATED = "autograd::engine::evaluate_function"
HOOKS = f"{EVALUATED}: {GRADIENT}"
# DistributedDataParallel puts a gradient into its bucket, and takes it out when it has waited for the reduction
INTO_BUCKET = "torch::distributed::reducer::"
OUT_OF_BUCKET = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
FORWARD = "DistributedDataParallel.forward"  # a pass through the module
INPUT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"  # waits for processes that load ahead
WITH_SHAPES = "record with record_shapes=True"
MOST_OTHER = constant("most_other_communication")  # sums of losses and buffers, not parameters or activations
SAME_BYTES = constant("same_bytes")


def read_pytorch(
    folders: Sequence[str | os.PathLike[str]],
    *,
    batch_size: int,
    progress: bool = False,
    say: Callable[[str], object] = lambda _: None,
    **unrecorded: Unpack[Unrecorded],
) -> Profile:
    """Make a profile of data-parallel training from ``*.pt.trace.json[.gz]``, one file for each rank.

    Each folder is one run of the job: one node's shows the computation, two nodes' the network; the numbers of ranks
    are read from the files. Of a run the file of one rank is enough, though it does not show how ranks differ; single
    gradients are known where their shapes were recorded (``record_shapes=True``). ``batch_size`` counts examples per
    step and rank; what else traces do not record may be given by its name in `Job` or `Cluster`: ``name``,
    ``dataset_size``, ``bandwidth``, ``congestion_control``, or ``buffer``. ``say`` receives two lines on what of the
    files is used, and what is not. Raises `DataError` when a folder has no such file, or has that of a rank twice, or
    runs are not of one job.
    """
    runs = [_read_run(Path(folder), progress) for folder in folders]
    recordings.ranks_of(folders, runs)
    ignored = sum((Counter(trace.ignored) for run in runs for trace in run), Counter[str]())
    shards = any(one.operations for run in runs for trace in run for one in trace.rounds)
    runs, job, words = sharded.of_job(runs) if shards else _of_job(folders, runs)
    say(f"used {', '.join(map(recordings.recorded, runs))}{words}")
    say("ignored " + (", ".join(f"{what}: {count:,}" for what, count in ignored.items()) or "nothing"))
    backends = {trace.backend for run in runs for trace in run if trace.backend}
    source = Source(framework="pytorch", method="torch-profiler", style="/".join(sorted(backends)))
    return recordings.profile_of_rounds(source, runs, {"batch_size": batch_size, **job}, unrecorded)


def _of_job(
    folders: Sequence[object], runs: list[list[RankTrace]]
) -> tuple[list[list[RankTrace]], dict[str, int], str]:
    """Runs of one data-parallel job, with what is sent; fields of `Job`; and what is reduced, in words."""
    largest = max(runs, key=lambda run: run[0].ranks)
    reduced = _gradient_bytes(largest)
    runs = [_each(run, lambda one: _last(one, reduced)) if run[0].ranks == 1 else run for run in runs]
    known = {str(folder): sizes for folder, run in zip(folders, runs, strict=True) if (sizes := _gradient_bytes(run))}
    first, own = next(iter(known.items()), ("", ()))
    for folder, sizes in known.items():
        if sizes != own:
            raise DataError(
                f"{folder}: another job than {first}: {sum(sizes):,} bytes of gradients in {len(sizes)} tensors, "
                f"there {sum(own):,} in {len(own)}"
            )
    # what the buckets carry: gradients of inputs are none of it
    carried = [one.buckets for run in runs for trace in run for one in trace.rounds if one.buckets]
    size = sum(bucket.bytes for bucket in carried[-1]) if carried else sum(own) or runs[0][0].sent
    tensors = len(own) or largest[0].tensors
    sent = counted(len(carried[-1]), "all-reduce") if carried else "no all-reduce"
    words = f": {size:,} bytes of {tensors} gradients in {sent} a step"
    return [_each(run, _as_sent) for run in runs], {"parameter_bytes": size, "tensors": tensors}, words


def _read_run(folder: Path, progress: bool) -> list[RankTrace]:
    paths = sorted(p for p in folder.glob("*") if p.name.endswith(TRACE_SUFFIXES) and not p.name.startswith("."))
    traces = recordings.read_files(folder, paths, _read_rank, names="*.pt.trace.json", progress=progress)
    return recordings.whole_run(folder, _joined(traces))


def _joined(traces: Sequence[RankTrace]) -> list[RankTrace]:
    """One trace of each rank: a schedule that repeats writes a file each time, with other steps."""
    joined: dict[tuple[int, int], RankTrace] = {}
    for trace in traces:
        if before := joined.get((trace.rank, trace.ranks)):
            if {one.number for one in before.rounds} & {one.number for one in trace.rounds}:
                return list(traces)
            ignored = Counter(before.ignored) + Counter(trace.ignored)
            trace = replace(before, rounds=[*before.rounds, *trace.rounds], ignored=ignored)
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
    """Sizes of a step's gradients, the same in every step of every rank; none where they are not recorded."""
    sizes = {tuple(sorted(g.bytes for g in one.gradients)) for trace in run for one in trace.rounds} - {()}
    if len(sizes) > 1:
        raise DataError(
            f"{run[0].where}: the steps have different gradients; only steps that all train the same parameters can be "
            "predicted"
        )
    return next(iter(sizes), ())


def _read_rank(path: Path) -> RankTrace:
    """One rank's file (raises DataError: what it lacks, or which event makes no sense)."""
    events, info = read_trace(path)
    steps = sorted((event for event in events if STEP.fullmatch(event.name)), key=lambda event: event.ts)
    if not steps:
        raise DataError(f"{path}: no ProfilerStep#i among {len(events):,} events; call profiler.step() after each step")
    numbers = [int(step.name.removeprefix("ProfilerStep#")) for step in steps]
    work, trace = AcceleratorWork(events), _rank_file(path, info, events)
    handed = sorted(events, key=lambda event: (work.handed_over(event), event.cat in DONE_THERE))
    inside = recordings.by_step(handed, [(step.ts, step.end) for step in steps], work.handed_over)
    together = [list(collectives(own, work)) for own in inside]
    earlier = [e.end for e in events if e.cat in DONE_THERE and work.handed_over(e) < steps[0].ts]
    if any(map(sharded.is_sharded, together)):
        own_steps = zip(numbers, inside, together, strict=True)
        return sharded.read_rank(trace, own_steps, max([steps[0].ts, *earlier]), work)
    waits = union((work.finished(e.ts), e.end) for e in events if e.name == INPUT and work.finished(e.ts) < e.end)
    rounds, cut, made, ignored, wrong = (
        dict[int, Round](),
        dict[int, _Incomplete](),
        list[_Step](),
        Counter[str](),
        None,
    )
    for index, (number, span, own, done) in enumerate(zip(numbers, work.steps(steps), inside, together, strict=True)):
        try:
            clock = StepClock(*span, clipped(waits, *span), 1e-6)
            made.append(step := _Step(number, own, done, clock, trace, work.finished))
            rounds[index] = step.round()
            ignored.update(one.kind for one in step.others if trace.ranks > 1)
            last = step
        except DataError as error:
            placed = type(error)(f"{path}: ProfilerStep#{number}: {error}")
            if isinstance(placed, _Incomplete):
                cut[index] = placed
            else:
                wrong = wrong or placed
    if trace.ranks > 1:
        _require_gradients_alone(path, [step for step in made if step.backward])
    if wrong:
        raise wrong
    if amid := [error for index, error in cut.items() if not rounds or min(rounds) < index < max(rounds)]:
        raise amid[0]
    idle = [one.number for one in rounds.values() if not one.buckets]
    if trace.ranks > 1 and idle:
        raise DataError(
            f"{path}: step {idle[0]} reduces no gradients, others do; call profiler.step() once for each reduction, "
            "after all steps that are accumulated, and give the examples of all as batch size"
        )
    ignored.update({"incomplete steps": len(cut), "kernels of an earlier step": len(earlier)})
    sent = sum(one.bytes for one in last.own)  # by a single rank, too
    return replace(trace, rounds=[*rounds.values()], tensors=len(last.gradients), sent=sent, ignored=+ignored)


def _rank_file(path: Path, info: dict[str, Any], events: Sequence[TraceEvent]) -> RankTrace:
    """Whose file it is, as recorded; else a rank of the largest group that communicates (raises DataError)."""
    ranks = info.get("world_size")
    if ranks is None:
        together = [event for event in events if event.is_nccl or event.name == REDUCED_BY_GLOO]
        ranks = max((event.args.group for event in events if type(event.args.group) is int), default=1 - len(together))
        if ranks < 1:
            raise DataError(
                f"{path}: {len(together)} collectives like {together[0].name!r}, and neither distributedInfo nor "
                "'Group size' records the number of ranks; record by torch.distributed, or add "
                '"distributedInfo": {"rank": 0, "world_size": 8} to the file'
            )
    rank = info.get("rank", 0)
    if not (type(rank) is int and type(ranks) is int and 0 <= rank < ranks):
        raise DataError(f"{path}: distributedInfo must name a rank below its world_size, got {rank!r} of {ranks!r}")
    groups = info.get("pg_config")
    parts = groups if isinstance(groups, list) else []
    divided = any(isinstance(part, dict) and part.get("pg_size", ranks) != ranks for part in parts)
    return RankTrace(str(path), rank, ranks, str(info.get("backend", "")), [], divided=divided)


class _Incomplete(DataError):
    """A step of which something was not recorded, as at the ends of a recording."""


@dataclass
class _Step:
    """One step's events, and what ranks did together, in the order in which the program came to them."""

    number: int
    events: list[TraceEvent]
    together: list[Collective]
    clock: StepClock
    file: RankTrace
    finished: Callable[[float], float]

    def __post_init__(self) -> None:
        # the forward pass whose gradients are reduced: the last of those that are accumulated
        last = max((one.ts for one in self.named(GRADIENT)), default=0.0)
        self.forward = max((one.ts for one in self.named(FORWARD) if one.ts < last), default=0.0)
        self.gradients = self._gradients()
        self.made = sum(event.elements for event in self.gradients)
        self.backward = [event for event in self.events if event.name.startswith(EVALUATED)]
        self.together.sort(key=lambda one: one.handed)
        self.own = self._of_gradients()
        self.others = [one for one in self.together if one not in self.own]

    def named(self, name: str) -> list[TraceEvent]:
        """The events of this name."""
        return [event for event in self.events if event.name == name]

    def round(self) -> Round:
        """The step in seconds (raises DataError)."""
        file, since = self.file, self.clock.since
        if not self.backward and self.named(GRADIENT):
            raise DataError(f"{GRADIENT} without evaluate_function around it; record with PyTorch 1.10 or newer")
        if not self.backward:
            raise _Incomplete("no backward pass in it; record training steps with CPU activity")
        buckets = self._buckets() if file.ranks > 1 else []
        reduced = min((since(event.ts) for event in self.named(OUT_OF_BUCKET)), default=math.inf)
        reduced = min(reduced, max((bucket.end for bucket in buckets), default=math.inf))
        # a checkpoint that computes again may wait for the reduction amid the backward pass, and go on
        backward = [event for event in self.backward if since(event.ts) < reduced] or self.backward
        computed = since(self.finished(max(backward, key=lambda event: event.ts).end))
        # what is handed over later waits for what was handed over before, not for gradients
        buckets = [structs.replace(bucket, ready=min(bucket.ready, computed)) for bucket in buckets]
        sized = [Gradient(size, since(self.finished(g.end))) for g in self.gradients if (size := g.bytes)]
        sized.sort(key=lambda one: one.ready)
        known = {"rank": file.rank, "ranks": file.ranks, "number": self.number, "computed": computed}
        return self.clock.round(gradients=sized, buckets=buckets, **known)

    def _gradients(self) -> list[TraceEvent]:
        """Those that go into buckets; if unmarked, all since the last forward pass began."""
        names = (GRADIENT, INTO_BUCKET)
        every = [event for event in self.events if event.ts >= self.forward and event.name.startswith(names)]
        reduced = [one for one, other in pairwise(every) if one.name == GRADIENT != other.name]
        return reduced or [event for event in every if event.name == GRADIENT]

    def _of_gradients(self) -> list[Collective]:
        """By DistributedDataParallel; else by the program once gradients are there, or amid the backward pass."""
        hooks, reductions = self.named(HOOKS), [one for one in self.together if one.kind == REDUCED]
        if hooked := [one for one in reductions if any(hook.ts <= one.handed <= hook.end for hook in hooks)]:
            return hooked
        first = min((event.ts for event in self.gradients), default=math.inf)
        if own := [one for one in reductions if one.handed >= first]:
            return own
        begun = min((event.ts for event in self.backward if event.ts >= self.forward), default=math.inf)
        own = [one for one in reductions if one.handed >= begun]
        return own if sum(one.elements for one in own) >= (1 - MOST_OTHER) * self.made else []

    def _buckets(self) -> list[Bucket]:
        """All-reduces of gradients in the order in which they were handed over, each with when it ran."""
        own, ranks, since = self.own, self.file.ranks, self.clock.since
        scattered, reduced = self.named(REDUCED_BY_GLOO), sum(one.elements for one in own)
        if own and own[0].handed < self.forward:
            raise DataError("gradients are reduced more than once; call profiler.step() after each reduction")
        if scattered and own and reduced < (1 - MOST_OTHER) * self.made:
            raise DataError(
                f"{self.made:,} elements of gradients, and all-reduces of {reduced:,}; what a communication hook sends "
                "after that, as PowerSGD does, gloo's traces do not show"
            )
        lost = any(one.ran.name == ALL_REDUCE for one in own)
        if lost or len(scattered) > sum(one.ran.name == REDUCED_BY_GLOO for one in self.together):
            ran = len(scattered) + sum(one.ran.is_nccl and one.kind == REDUCED for one in self.together)
            raise _Incomplete(
                f"{len(self.named(ALL_REDUCE))} all-reduces were handed over in a step and {ran} ran in it; record "
                "whole steps, with CPU (and CUDA) activity"
            )
        buckets = []
        for one in own:
            if (one.group or ranks) != ranks or (self.file.divided and not one.group):
                raise DataError(
                    f"gradients are reduced among {one.group or 'an unknown number'} of {ranks} ranks; all must reduce "
                    "together; gloo records no groups, so over it the job must have none of fewer"
                )
            ready, size = since(self.finished(one.handed)), one.bytes
            if not size:
                name = one.ran.name
                raise DataError(f"neither {name!r} nor the records around its launch give its size; {WITH_SHAPES}")
            buckets.append(Bucket(size, ready, since(one.ran.ts), max(ready, since(one.ran.end))))
        return buckets


def _require_gradients_alone(path: Path, steps: Sequence[_Step]) -> None:
    """Refuse much other communication, by its share of the time, hidden or not; over gloo, of gradients' elements."""
    own = [one for step in steps for one in step.own]
    others = [one for step in steps for one in step.others if one.kind != "barrier"]
    time = recordings.length(union((one.ran.ts, one.ran.end) for one in others if one.ran.is_nccl))
    share = time / max(1.0, sum(step.clock.end - step.clock.start for step in steps))
    moved = sum(one.elements for one in others if not one.ran.is_nccl) / max(1, sum(one.elements for one in own))
    if any(step.named("gloo:sparse_all_reduce") for step in steps):
        raise DataError(f"{path}: every rank gathers the sparse gradients of all; only dense ones can be predicted")
    if not steps or (own and max(share, moved) <= MOST_OTHER):
        return
    kinds = Counter(one.kind for one in others)
    most = max(others, key=lambda one: (one.ran.dur * one.ran.is_nccl, one.elements), default=None)
    amount = f"take {percent(share)} of the steps" if share > MOST_OTHER else f"move {percent(moved)} as many elements"
    what = f"{most.name} and the like {amount}" if most and own else "no data-parallel reduction of gradients in it"
    if most and (most.kind in ("allgather", "reducescatter") or {"reduce", "allgather"} <= {*kinds}):
        what = "parameters are sharded, as by FSDP or ZeRO"
    found = ", ".join(f"{kind}: {n:,}" for kind, n in kinds.items()) or "call DistributedDataParallel, not its module"
    raise DataError(f"{path}: {what} ({found}); only all-reduces of gradients can be predicted; {TIMES}")
