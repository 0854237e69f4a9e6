"""Recordings of `MultiWorkerMirroredStrategy` to a profile: folders of ranks' files, each folder one run of the job."""

# Found by experiment with TensorFlow 2.21 on CPUs, with the ring: a step is an event with ``step_num``
# (`tf.profiler.experimental.Trace`). A pack of gradients is one asynchronous ``CollectiveReduceV2``: `START` once its
# input is there, ``NAME:CollectiveReduceV2`` on its own thread while the ring runs, `DONE`. Its ``instance_key`` is
# the same on all ranks, where names may differ; each step has others, in the same order. Packs go one after the other:
# where the Start of one follows the Done of another at once, it had to wait, and was ready when the last operation of
# the backward pass had ended before that Done, at the latest. `ALLOCATION` on the ring's thread is a buffer for a chunk
# (of 256 KiB and more): over all ranks they sum to ``group_size - 1`` packs. `TAKEN` takes a batch; `ROUNDS_AHEAD`
# within it, on its thread, is the wait for it.

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import ChainMap, Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Annotated, NamedTuple, Unpack

import msgspec
from msgspec import structs

from ...base.errors import DataError
from ...base.files import read_bytes
from ...profile.job import Source
from ...profile.profile import Profile
from ...profile.records import MOST_BYTES, Bucket, Gradient, Round
from .. import recordings
from ..recordings import Interval, RankTrace, StepClock, Unrecorded, clipped, constant, length, union
from .protos import ALLOCATION, DONE, START, XPLANE, HostEvent, read_events, recorded_files, require_parameter_bytes

GROUP = "CollectiveExecutor::CompleteParams"
REDUCE = ("CollectiveReduceV2", "CollectiveReduce")
GATHER = ("CollectiveGatherV2", "CollectiveGather")
BACKWARD = "gradient_tape/"
TAKEN = re.compile(r"IteratorGetNext(AsOptional)?Op::DoCompute")
ROUNDS_AHEAD = re.compile(r"Iterator::Root(::\w+)*::(Prefetch|Parallel\w+|MapAndBatch\w*|DataService\w*)")
NAMED = re.compile("|".join([START, DONE, ALLOCATION, GROUP, TAKEN.pattern, ROUNDS_AHEAD.pattern]))
AT_ONCE, LONGEST_PAUSE = constant("at_once"), constant("longest_pause")


def is_mirrored(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder, or one below it, holds ``*.xplane.pb`` files with an all-reduce in them."""
    return Path(folder).is_dir() and any(
        b"CollectiveReduce" in read_bytes(path) for path in recorded_files(folder, XPLANE)
    )


def read_mirrored(
    folders: Sequence[str | os.PathLike[str]],
    *,
    batch_size: int,
    parameter_bytes: int | None = None,
    progress: bool = False,
    **unrecorded: Unpack[Unrecorded],
) -> Profile:
    """Make a profile of data-parallel training from ``*.xplane.pb`` files, one for each rank, in or below a folder.

    As `read_pytorch`; ranks are numbered by file name. ``parameter_bytes``, of all parameters together, is needed where
    the sizes of small packs of gradients are recorded in no run of as many packs. These share the rest of the bytes in
    proportion to the time of their reduction.
    """
    require_parameter_bytes(parameter_bytes)
    recorded_runs = [_recordings(Path(folder), progress) for folder in folders]
    reduced = [_reductions(one) for one in recorded_runs]
    runs = []
    for folder, recorded, (times, _) in zip(folders, recorded_runs, reduced, strict=True):
        same = ChainMap(*(sizes for others, sizes in reduced if others.keys() == times.keys()))  # packs of the same job
        sizes, ranks = _sizes(times, same, parameter_bytes, folder), max(one.ranks for one in recorded)
        traces = [
            RankTrace(str(one.path), rank, ranks, "ring", [step.whole(rank, ranks, sizes) for step in one.steps])
            for rank, one in enumerate(recorded)
        ]
        runs.append(recordings.whole_run(Path(folder), traces))
    packs = [one.buckets for run in runs for trace in run for one in trace.rounds if one.buckets]
    if recordings.ranks_of(folders, runs) < 2 or not packs:
        raise DataError(f"{folders[-1]}: no all-reduce among two ranks or more; record a run on two nodes")
    size = parameter_bytes or sum(pack.bytes for pack in packs[-1])
    job = {"batch_size": batch_size, "parameter_bytes": size, "tensors": len(packs[-1])}
    source = Source(framework="tensorflow", method="xplane", style="multi-worker-mirrored-strategy")
    return recordings.profile_of_rounds(source, runs, job, unrecorded)


class Reduction(NamedTuple):
    """A pack's all-reduce (moments in ns)."""

    key: int  # counts the step's reductions, the same on all ranks and in all steps
    ready: int  # at the latest
    begin: int
    end: int
    buffers: int  # bytes


class RankStep(NamedTuple):
    """A round of a rank, for now without packs, and these."""

    round: Round
    clock: StepClock
    reductions: list[Reduction]

    def whole(self, rank: int, ranks: int, sizes: Mapping[int, int]) -> Round:
        """With packs, and bytes of these by key."""
        packs = [Bucket(sizes[key], *map(self.clock.since, moments)) for key, *moments, _ in self.reductions]
        return structs.replace(self.round, rank=rank, ranks=ranks, buckets=packs if ranks > 1 else [])


class RankRecording(NamedTuple):
    """What one rank recorded; ``ranks`` is 1 where its file does not name a group."""

    path: Path
    ranks: int
    steps: list[RankStep]


def _recordings(folder: Path, progress: bool) -> list[RankRecording]:
    paths = recorded_files(folder, XPLANE)
    found = recordings.read_files(folder, paths, _read_recording, names="*.xplane.pb", progress=progress)
    ranks = max(one.ranks for one in found)  # only one rank's file has the group's size
    single = ranks == 1 and any(step.reductions for one in found for step in one.steps)
    if len(found) != ranks or single:
        known = "more" if single else str(ranks)
        several = "; give each run a folder of its own" if len(found) > ranks else ""
        raise DataError(f"{folder}: a file of each rank is needed, got {len(found)} of {known}{several}")
    return found


def _reductions(run: Sequence[RankRecording]) -> tuple[dict[int, int], dict[int, int]]:
    """By key, the least time of each reduction, and the bytes of those with recorded buffers."""
    seen: dict[int, Counter[int]] = defaultdict(Counter)
    times: dict[int, list[int]] = defaultdict(list)
    for together in zip(*(one.steps for one in run), strict=False):
        buffers: dict[int, list[int]] = defaultdict(list)
        for one in (reduction for step in together for reduction in step.reductions):
            buffers[one.key].append(one.buffers)
            times[one.key].append(one.end - one.begin)
        for key, found in buffers.items():
            if len(found) == len(run) and all(found):
                seen[key][sum(found) // (len(run) - 1)] += 1
    sizes = {key: counts.most_common(1)[0][0] for key, counts in seen.items()}
    return {key: min(took) for key, took in times.items()}, sizes


def _sizes(
    times: Mapping[int, int], recorded: Mapping[int, int], parameter_bytes: int | None, folder: object
) -> dict[int, int]:
    """Bytes of each reduction by key, of those without recorded ones in proportion to their times."""
    sizes = {key: recorded[key] for key in times if key in recorded}
    unknown = {key: took for key, took in times.items() if key not in sizes}
    if not unknown:
        return sizes
    if parameter_bytes is None:
        raise DataError(
            f"{folder}: {len(unknown)} of {len(times)} packs are too small for their sizes to be recorded; "
            "give the parameters' bytes (--parameter-bytes)"
        )
    left = parameter_bytes - sum(sizes.values())
    if left < 0:  # none may be left for packs that hold a metric
        raise DataError(
            f"{folder}: parameter_bytes is {parameter_bytes:,}, but {len(sizes)} of {len(times)} packs have "
            f"{sum(sizes.values()):,} together; give the bytes of all trainable parameters"
        )
    whole = sum(unknown.values())
    return sizes | {key: max(1, round(left * time / whole)) for key, time in unknown.items()}


def gradients_file(path: Path) -> Path:
    """A live run's file of the gradients' bytes, by operation (JSON)."""
    return path.with_name(path.name.partition(".")[0] + ".gradients.json")


def _read_recording(path: Path) -> RankRecording:
    events = sorted(
        read_events(path, named=NAMED.fullmatch, marks="step_num"), key=lambda event: (event.start, -event.end)
    )
    marks = [event for event in events if "step_num" in event.stats]
    if not marks:
        raise DataError(
            f"{path}: no step is marked in it; train each step within "
            "tf.profiler.experimental.Trace('train', step_num=i, _r=1), as Keras' TensorBoard callback does with "
            "steps_per_execution=1"
        )
    if len({event.number("step_num") for event in marks}) < len(marks):
        raise DataError(f"{path}: two steps have the same step_num; give each step of the recording its own")
    if any(event.name.rpartition(":")[2] in GATHER for event in events):
        raise DataError(
            f"{path}: its ranks gather the gradients of looked-up rows (CollectiveGather), which is not read, beside "
            "reducing others; make these gradients dense, or train with parameter servers"
        )
    inside = recordings.by_step(events, [(mark.start, mark.end) for mark in marks], lambda event: event.start)
    sizes = {event.number("group_size") for event in events if event.name == GROUP}
    noted = _noted(gradients_file(path))
    waits = _waits(events)
    after = [*(max(mark.end, later.start) for mark, later in pairwise(marks)), marks[-1].end]
    idle = [length(clipped(waits, mark.end, end)) for mark, end in zip(marks, after, strict=True)]
    pauses = [end - mark.end - waited for mark, end, waited in zip(marks, after, idle, strict=True)]
    usual = round(median(pauses[:-1] or [0]))
    steps = []
    for mark, own, following, waited, pause in zip(marks, inside, after, idle, pauses, strict=True):
        # what comes now and then, as evaluation does, is no part of the step
        own_pause = usual if pause > usual + LONGEST_PAUSE * (mark.end - mark.start) else pause
        end = mark.end + waited + own_pause
        clock = StepClock(mark.start, end, clipped(waits, mark.start, following), 1e-9)
        steps.append(_step(mark, own, clock, noted, path))
    return RankRecording(path, max(sizes, default=1), steps)


def _waits(events: Sequence[HostEvent]) -> list[Interval]:
    """When the program waited for its prefetched batches (events in order of time)."""
    taken: dict[int, int] = {}
    waits: list[Interval] = []
    for event in events:
        if TAKEN.fullmatch(event.name):
            taken[event.thread] = event.end
        elif ROUNDS_AHEAD.fullmatch(event.name) and event.end <= taken.get(event.thread, 0):
            waits.append((event.start, event.end))
    return union(waits)


def _noted(path: Path) -> dict[str, int]:
    if not path.exists():
        return {}
    try:
        return msgspec.json.decode(read_bytes(path), type=dict[str, Annotated[int, msgspec.Meta(ge=1, le=MOST_BYTES)]])
    except msgspec.DecodeError as error:
        raise DataError(f"{path}: not what 'queuemodel profile' writes ({error}); remove it") from None


def _step(
    mark: HostEvent, events: Sequence[HostEvent], clock: StepClock, noted: Mapping[str, int], path: Path
) -> RankStep:
    reduced = Counter(event.name for event in events if event.name.rpartition(":")[2] in REDUCE)
    if max(reduced.values(), default=0) > 1:
        raise DataError(
            f"{path}: step {mark.number('step_num')} reduces the same gradients {max(reduced.values())} times; mark "
            "each training step by itself, not several that are executed together (steps_per_execution=1)"
        )
    backward = [event.end for event in events if event.name.startswith(BACKWARD)]
    kernels = backward or [event.end for event in events if _is_kernel(event)]
    reductions = _of_step(events, sorted(kernels)) if kernels else []
    computed = max(backward, default=0) or max((one.ready for one in reductions), default=mark.end)
    made = {event.name.rpartition(":")[0]: event.end for event in events if _is_kernel(event)}
    moments = [0]
    for name in noted:  # a bias' gradient may be fused into the kernel's, which stands before it
        moments.append(made.get(name, moments[-1]))
    gradients = sorted(zip(moments[1:], noted.values(), strict=True), key=lambda one: one[0])
    sized = [Gradient(size, clock.since(moment)) for moment, size in gradients if gradients[0][0]]
    number = mark.number("step_num")
    return RankStep(clock.round(number=number, computed=clock.since(computed), gradients=sized), clock, reductions)


def _is_kernel(event: HostEvent) -> bool:
    operation = event.name.rpartition(":")[2]
    return ":" in event.name and "::" not in event.name and operation not in REDUCE


def _of_step(events: Sequence[HostEvent], kernels: Sequence[int]) -> list[Reduction]:
    """All-reduces in the order of their requests; ``kernels``: when operations ended (increasing)."""
    begun: dict[str, list[int]] = defaultdict(list)
    ended: dict[str, list[int]] = defaultdict(list)
    ran: dict[str, list[HostEvent]] = defaultdict(list)
    for event in events:
        if event.name in (START, DONE) and event.text("kernel_type") in REDUCE:
            (begun if event.name == START else ended)[event.text("name")].append(event.start)
        elif event.name.rpartition(":")[2] in REDUCE:
            ran[event.name.rpartition(":")[0]].append(event)
    whole = [together for name in begun for together in zip(begun[name], ended[name], ran[name], strict=False)]
    keys = sorted(thread.number("instance_key") for *_, thread in whole)
    found: list[Reduction] = []
    for start, done, thread in sorted(whole, key=lambda one: one[:2]):
        before = max((one.end for one in found if one.end <= start), default=0)
        ready = start
        if 0 <= start - before < AT_ONCE:
            last = bisect_right(kernels, before)
            ready = max(kernels[last - 1] if last else start, found[-1].ready)
        buffers = sum(
            event.number("requested_bytes")
            for event in events
            if event.name == ALLOCATION and event.thread == thread.thread and thread.start <= event.start <= thread.end
        )
        found.append(Reduction(keys.index(thread.number("instance_key")), ready, thread.start, done, buffers))
    return found
