"""Traces of parameter servers to a `Profile`: a session's `RunMetadata`, or ``*.xplane.pb`` of `tf.profiler`."""

# The latter (validation/notes/phases, xplane), found by experiment with TensorFlow 2.21: a thread's events lie within
# an ``ExecutorState::Process`` whose ``id`` is the step's; ``MemoryAllocation`` without ``tf_op`` just before a Done on
# the same thread is the received tensor's buffer, of its exact size.

from __future__ import annotations

import heapq
import os
import re
import warnings
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Unpack

from ...base.checks import require_count
from ...base.errors import DataError, QueueModelWarning
from ...base.results import percent
from ...profile.job import Source
from ...profile.profile import Profile
from ..phases import derive
from ..recordings import TracedOperation, TracedStep, Transfer, Unrecorded, constant, job_and_cluster, read_files
from . import protos
from .protos import ALLOCATION, DONE, PROCESS, RUN_METADATA, START, XPLANE, HostEvent, recorded_files, task_of

MOST_INPUT = constant("most_input")

SENDS, RECEIVES = ("_Send", "_HostSend"), ("_Recv", "_HostRecv")
NODE = re.compile(r"(?P<tensor>.+)(?P<mark>_S|/_)(?P<number>\d+)")  # of a Send or Recv
READS = ("ReadVariableOp", "Identity")  # send a parameter as it is
FOLDED = "ConstantFolding"  # waits for a tensor without using its values
CONTROL = re.compile(  # carry nothing
    r"GroupCrossDeviceControlEdges.*|.*/pivot_[tf]/_\d+|(.*/)?(LoopCond|LoopExecuted|loop_body_control)/_\d+"
)
SMALL_BYTES = 2**18 - 1  # bytes: TensorFlow records how much was allocated from 256 KiB on

Key = tuple[str, str]  # of a tensor that travels: the operation that receives it, and its task


def read_tensorflow(
    folder: str | os.PathLike[str],
    *,
    batch_size: int,
    parameter_bytes: int | None = None,
    workers: int | None = None,
    progress: bool = False,
    **unrecorded: Unpack[Unrecorded],
) -> Profile:
    """Read recorded traces of one worker and its parameter servers, all of one job (raises DataError).

    The folder holds `RunMetadata` protos (``*.pb`` or ``*.pb.gz``, one per step), or is the log directory of
    `tf.profiler` (``*.xplane.pb``, one per task, in it or below it). The latter lack the sizes of small tensors and
    need ``parameter_bytes``, of all parameters together. ``workers`` trained meanwhile; by default as many as the
    traces show. Unrecorded fields of `Job` and `Cluster` are keywords: ``name``, ``dataset_size``, ``bandwidth``,
    ``congestion_control``, ``buffer``. Warns when steps wait for their data set.
    """
    if not Path(folder).is_dir():
        raise DataError(f"{folder}: not a folder of traces")
    protos.require_parameter_bytes(parameter_bytes)
    profiler, sessions = recorded_files(folder, XPLANE), recorded_files(folder, RUN_METADATA)
    if profiler and sessions:
        raise DataError(
            f"{folder}: holds RunMetadata ({sessions[0].name}) and tf.profiler's recordings ({profiler[0].name}); "
            "give each a folder of its own"
        )
    if profiler:
        method, style = "xplane", "parameter-server-strategy"
        steps = _read_xplane(Path(folder), profiler, parameter_bytes, progress=progress)
    elif sessions:
        method, style = "run-metadata", "graph"
        steps = read_files(Path(folder), sessions, protos.read_run_metadata, progress=progress)
    else:
        raise DataError(f"{folder}: no RunMetadata traces (*.pb or *.pb.gz) in this folder")
    derived = derive(steps, progress=progress)
    if derived.input > MOST_INPUT:
        warnings.warn(
            f"{folder}: {percent(derived.input)} of the steps is waiting for the data set, counted as computation: a "
            "faster accelerator would only wait longer, and workers that wait for servers meanwhile less; load more "
            "ahead, or with more threads, and trace again",
            QueueModelWarning,
            stacklevel=2,
        )
    if workers is not None:
        require_count(workers, "workers (the traces show so many)", least=derived.workers, error=DataError)
    cluster = {"workers": workers or derived.workers, "parameter_servers": len(derived.servers)}
    job = {
        "batch_size": batch_size,
        "parameter_bytes": sum(derived.shard_bytes) if parameter_bytes is None else parameter_bytes,
        "tensors": derived.tensors,
        "shard_bytes": derived.shard_bytes,
    }
    source = Source(framework="tensorflow", method=method, style=style)
    return Profile(source=source, steps=derived.steps, **job_and_cluster(job, cluster, unrecorded))


@dataclass(frozen=True)
class Send:
    """A tensor on its way: from ``start`` (us) to the operation ``receiver``, used by ``consumer``."""

    tensor: str
    source: str
    destination: str
    receiver: str
    consumer: str
    start: int

    @property
    def key(self) -> Key:
        return self.receiver, self.destination

    @property
    def ends(self) -> tuple[bool, bool]:
        """Whether it comes from a server, and goes to one."""
        return self.source.startswith("ps:"), self.destination.startswith("ps:")


@dataclass
class RecordedStep:
    """What tasks recorded of one step; ``arrivals``: when each Recv asked and had its tensor (us), in order."""

    operations: list[TracedOperation] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    arrivals: dict[Key, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    #: Tensors sent by servers, also to workers without a recording
    fetched: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def whole(self) -> bool:
        """Whether the sent tensors are those that arrived."""
        received = {key: len(times) for key, times in self.arrivals.items()}
        return bool(self.sends) and Counter(s.key for s in self.sends) == received

    def shape(self) -> frozenset[tuple[str, str]]:
        return frozenset((s.receiver, s.source) for s in self.sends)


def _read_xplane(
    folder: Path, paths: Sequence[Path], parameter_bytes: int | None, *, progress: bool
) -> list[TracedStep]:
    """The steps of one or more recordings, each in a folder of its own, with a file of each task."""
    recordings: dict[Path, list[Path]] = defaultdict(list)
    for path in paths:
        recordings[path.parent].append(path)
    steps = [step for paths in recordings.values() for step in _steps(paths, parameter_bytes, progress)]
    if not steps:
        raise DataError(
            f"{folder}: no tensor sent to another task is recorded in its *.xplane.pb files; trace a worker and a "
            "parameter server while they train, with host_tracer_level=2 (a coordinator's own recording does "
            "not suffice), or give the run of two data-parallel ranks besides that of one"
        )
    return steps


def _steps(paths: list[Path], parameter_bytes: int | None, progress: bool) -> list[TracedStep]:
    """The training steps of one recording; none if no recorded task sent a tensor."""
    where = str(paths[0].parent)
    recordings: dict[str, TaskRecording] = {}
    recorded: dict[int, RecordedStep] = defaultdict(RecordedStep)
    for one in read_files(paths[0].parent, paths, partial(TaskRecording, steps=recorded), progress=progress):
        if one.task and (other := recordings.setdefault(one.task, one)) is not one:
            raise DataError(
                f"{one.path}: a recording of {one.task}, as {other.path.name} is; one file for each task: remove the "
                "copy, or give the other job a folder of its own"
            )
    if not recordings:
        return []
    if len(recordings) == 1:
        raise DataError(
            f"{where}: a trace of only one task ({', '.join(recordings)}); expected a worker and a parameter server: "
            "trace both, as tf.profiler.experimental.client.trace('grpc://WORKER,grpc://SERVER', ...) does"
        )
    steps = [recorded[number] for number in sorted(recorded)]
    for step in steps:
        step.sends = sorted((s for s in step.sends if s.destination in recordings), key=lambda s: s.start)
    whole = [step for step in steps if step.whole()]
    if not whole:
        begun = sum(bool(step.sends) for step in steps)
        raise DataError(
            f"{where}: no step is recorded whole on all tasks ({', '.join(recordings)}): of {begun} only parts are; "
            "trace for longer than two steps, or, where that does not help, with RunMetadata"
        )
    # steps differ in what they send; the training step is the one that moves most in all
    shapes = Counter(step.shape() for step in whole)
    usual = max(shapes, key=lambda shape: (shapes[shape] * len(shape), sorted(shape)))
    chosen = [step for step in whole if step.shape() == usual]
    step = chosen[0]
    pushed = Counter(s.receiver for s in step.sends if s.ends[1] and s.source in step.fetched)
    if min(pushed.values(), default=1) > 1:
        raise DataError(
            f"{where}: each step pushes all its gradients several times: training steps in a loop; trace with one "
            "for each call (steps_per_execution=1)"
        )
    noted = {(name, r.task): seen.most_common(1)[0][0] for r in recordings.values() for name, seen in r.sizes.items()}
    sizes = _sizes(step, {key: size for key, size in noted.items() if size}, parameter_bytes, where)
    workers = {task for s in steps for task, tensors in s.fetched.items() if tensors in step.fetched.values()}
    return [replace(_traced(where, one, recordings, sizes), workers=frozenset(workers)) for one in chosen]


def _sizes(step: RecordedStep, allocated: Mapping[Key, int], parameter_bytes: int | None, where: str) -> dict[Key, int]:
    """Bytes of every tensor sent, as the receiver allocated them, which is not recorded of small ones.

    Small fetched ones share the rest of the parameters' bytes equally; small pushed ones, or rows that a server looks
    up, are as large as these on average, a gradient being as large as its parameter.
    """
    sizes: dict[Key, int | None] = {}
    sent: set[Key] = set()
    for s in sorted(step.sends, key=lambda s: (s.consumer.startswith(FOLDED), len(s.receiver), s.receiver)):
        if s.key not in sizes:
            again = s.consumer.startswith(FOLDED) and (s.tensor, s.destination) in sent  # a control message
            nothing = CONTROL.fullmatch(s.tensor) or s.ends == (True, True)
            sizes[s.key] = 0 if again else allocated.get(s.key, 0 if nothing else None)
            sent.add((s.tensor, s.destination))
    unknown = sorted(key for key, size in sizes.items() if size is None)
    if unknown and parameter_bytes is None:
        raise DataError(
            f"{where}: the sizes of {len(unknown)} of {len(sizes)} tensors are not in the trace (first: "
            f"{unknown[0][0]!r}); give parameter_bytes, the size of all parameters together"
        )
    made = {(o.name, o.task): o.op for o in step.operations}
    fetched = {s.key: made.get((s.tensor, s.source), READS[0]) in READS for s in step.sends if s.ends == (True, False)}
    shared = [key for key in unknown if fetched.get(key)]
    seen = sum(sizes[key] or 0 for key, whole in fetched.items() if whole)
    left = max((parameter_bytes or 0) - seen, 0)
    if shared and left > len(shared) * SMALL_BYTES:
        raise DataError(
            f"{where}: parameter_bytes is {parameter_bytes:,}, but the parameters that are fetched have {seen:,} "
            f"and at most {SMALL_BYTES:,} in each of {len(shared)} small tensors; leave out what is not fetched "
            "whole, such as tables in which the servers look up rows"
        )
    for i, key in enumerate(shared):
        sizes[key] = left * (i + 1) // len(shared) - left * i // len(shared)
    small = [size for key in fetched if key not in allocated and (size := sizes[key])]
    usual = round(sum(small) / len(small)) if small else 0
    return {key: usual if size is None else size for key, size in sizes.items()}


def _traced(where: str, step: RecordedStep, tasks: Iterable[str], sizes: Mapping[Key, int]) -> TracedStep:
    transfers = []
    turn: Counter[Key] = Counter()  # loops send one tensor many times
    for s in step.sends:
        requested, received = step.arrivals[s.key][turn[s.key]]
        turn[s.key] += 1
        transfers.append(Transfer(s.tensor, s.source, s.destination, s.start, received, sizes[s.key], requested))
    operations = []
    for task in tasks:
        own = [o for o in step.operations if o.task == task]
        arrivals = [(step.arrivals[s.key][0][1], s) for s in step.sends if s.destination == task]
        made = {o.name for o in own}
        # One operation may send several tensors under its name: it was there before the first left.
        unseen = {s.tensor: s.start for s in reversed(step.sends) if s.source == task and s.tensor not in made}
        sending = [TracedOperation(task, name, "NoOp", (), start, start) for name, start in unseen.items()]
        operations += _in_order([*own, *sending], arrivals, server=task.startswith("ps:"))
    return TracedStep(where, operations, transfers)


def _in_order(
    operations: list[TracedOperation], arrivals: list[tuple[int, Send]], *, server: bool
) -> list[TracedOperation]:
    """Operations with inputs: received tensors, or what had ended before (on servers since the first gradient)."""
    consumed: dict[str, list[str]] = defaultdict(list)
    for _, s in arrivals:
        consumed[s.consumer].append(f"{s.tensor}/_0")
    first = min(arrivals, default=None, key=lambda arrival: arrival[0])
    running: list[tuple[int, int, str]] = []  # end, start, name
    last: list[tuple[int, int, str]] = []  # ended, and none began after they had
    result = []
    for o in sorted(operations, key=lambda o: (o.start, o.end)):
        while running and running[0][0] <= o.start:
            ended = heapq.heappop(running)
            last = [earlier for earlier in last if earlier[0] >= ended[1]] + [ended]
        inputs = list(consumed.get(o.name, []))
        if server and not inputs and not (first and o.start >= first[0]):
            result.append(o)
            continue
        if not (server and inputs):
            inputs += [name for _, _, name in last] or ([f"{first[1].tensor}/_0"] if server and first else [])
        heapq.heappush(running, (o.end, o.start, o.name))
        result.append(replace(o, inputs=tuple(inputs)))
    return result


class TaskRecording:
    """One task's part of ``steps``, which it adds there, and the sizes that it allocated for received tensors."""

    def __init__(self, path: Path, steps: dict[int, RecordedStep]) -> None:
        named = {PROCESS, START, DONE, ALLOCATION}.__contains__
        events = sorted(protos.read_events(path, named=named), key=lambda e: (e.start, -e.end))
        sources = (_ends(event)[0] for event in events if event.name.rpartition(":")[2] in SENDS)
        self.path, self.task = path, next(filter(None, sources), "")  # "" for a coordinator
        self.sizes: dict[str, Counter[int]] = defaultdict(Counter)
        processing: dict[int, HostEvent] = {}  # by thread, as the next
        allocated: dict[int, int] = {}
        began: dict[tuple[int, str], deque[int]] = defaultdict(deque)  # of asynchronous kernels
        for event in events:
            if event.name == PROCESS:
                processing[event.thread] = event
            elif event.name == ALLOCATION:
                if not event.stats.get("tf_op"):
                    allocated[event.thread] = event.number("requested_bytes")
            elif event.name == START:
                began[event.number("step_id"), event.text("name")].append(event.start)
            elif event.name == DONE:
                if event.text("kernel_type") in RECEIVES:
                    self.sizes[event.text("name")][allocated.pop(event.thread, 0)] += 1
                starts = began[event.number("step_id"), event.text("name")]
                self._done(event, starts.popleft() // 1000 if starts else None, steps[event.number("step_id")])
            elif event.thread in processing and event.start < processing[event.thread].end:
                self._kernel(event, steps[processing[event.thread].number("id")])

    def _kernel(self, event: HostEvent, step: RecordedStep) -> None:
        name, _, op = event.name.rpartition(":")
        start = event.start // 1000
        if op in SENDS:
            source, destination, edge = _ends(event)
            if source and destination and source != destination:
                tensor = re.sub(r"^edge_\d+_", "", edge)
                send = Send(tensor, source, destination, _receiver(name), event.text("to"), start)
                step.sends.append(send)
                if send.ends == (True, False):
                    step.fetched[destination].add(tensor)
        elif op not in RECEIVES:
            step.operations.append(TracedOperation(self.task, name, op, (), start, event.end // 1000))

    def _done(self, event: HostEvent, start: int | None, step: RecordedStep) -> None:
        """The end of an asynchronous kernel: a tensor arrives, or an operation ends."""
        name, kind = event.text("name"), event.text("kernel_type")
        if kind in RECEIVES:
            step.arrivals[name, self.task].append((start or 0, event.start // 1000))  # 0: before the recording began
        elif start is not None:
            step.operations.append(TracedOperation(self.task, name, kind, (), start, max(start, event.end // 1000)))


def _ends(event: HostEvent) -> tuple[str, str, str]:
    """Source and destination of a Send ("" if no tasks), and the edge between them."""
    source, _, destination, edge, *_ = [*event.text("key").split(";"), "", "", "", ""]
    return task_of(source), task_of(destination), edge


def _receiver(send: str) -> str:
    """TensorFlow numbers the pair one after the other: what ``w/_1`` sends, ``w/_2`` receives."""
    match = NODE.fullmatch(send)
    return f"{match['tensor']}{match['mark']}{int(match['number']) + 1}" if match else send
