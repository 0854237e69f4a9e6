"""Reading ``*.xplane.pb``: what `tf.profiler` recorded of a worker and of its servers while they ran steps.

Found by experiment with TensorFlow 2.21 (host_tracer_level 2, the default), on both tasks:

- ``NAME:TYPE`` on a thread: a kernel ran; it lies within an ``ExecutorState::Process`` whose ``id`` is the step's, the
  same number on every task;
- ``ExecutorState::ProcessAsync::Start`` and ``::Done`` with ``name``, ``kernel_type`` and ``step_id``: an asynchronous
  kernel; a ``_Recv`` asks for its tensor at Start and has it at Done;
- ``NAME:_Send`` with ``key`` (source device; incarnation; destination device; edge; frame) and ``to``, one consumer;
- ``MemoryAllocation`` without ``tf_op`` just before a Done on the same thread: the received tensor's buffer, with its
  exact size; only for large ones (256 KiB and more).

What a kernel waits for on its own task is not recorded.
"""

from __future__ import annotations

import heapq
import importlib
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import DataError, MissingDependencyError
from ...files import read_bytes
from ..events import TracedOperation, TracedStep, Transfer
from ._imports import require_tensorflow
from .run_metadata import TASK

PROTO_MODULES = (
    "tensorflow.tsl.profiler.protobuf.xplane_pb2",
    "tensorflow.core.profiler.protobuf.xplane_pb2",
    "tsl.profiler.protobuf.xplane_pb2",
    "xprof.protobuf.xplane_pb2",
)
KERNEL = re.compile(r"(?P<name>[\w.\-/]+):(?P<op>_?[A-Z]\w*)")
NODE = re.compile(r"(?P<tensor>.+)(?P<mark>_S|/_)(?P<number>\d+)")  # of a Send or Recv
FOLDED = "ConstantFolding"  # waits for a tensor without using its values
CONTROL = "GroupCrossDeviceControlEdges"  # says "done" and carries nothing


class _Event(NamedTuple):
    start: int  # ns
    end: int
    thread: int
    name: str
    stats: dict[str, Any]


@dataclass
class _Send:
    tensor: str
    source: str
    destination: str
    receiver: str  # name of the Recv
    consumer: str
    start: int


@dataclass
class _TaskStep:
    """One task's part of one step."""

    operations: list[TracedOperation] = field(default_factory=list)
    sends: list[_Send] = field(default_factory=list)
    requested: dict[str, int] = field(default_factory=dict)  # name of the Recv: us
    received: dict[str, int] = field(default_factory=dict)


def read_xplane(folder: str | os.PathLike[str], *, parameter_bytes: int | None = None) -> list[TracedStep]:
    """
    Read the ``*.xplane.pb`` files below a folder: one per task, of one or more recordings (a folder each).

    Parameters
    ----------
    folder : path
        The log directory given to `tf.profiler`, or the one below it that holds the files.
    parameter_bytes : int, optional
        All parameters together. Needed where the trace does not hold the sizes of all tensors: those that it lacks
        (small ones) share the rest equally.

    Raises
    ------
    DataError
        One line that names the file or the folder and what is wrong with it.
    MissingDependencyError
        Without TensorFlow.
    """
    recordings: dict[Path, list[Path]] = defaultdict(list)
    for path in sorted(xplane_files(folder)):
        recordings[path.parent].append(path)
    if not recordings:
        raise DataError(f"{folder}: no *.xplane.pb files in this folder or below it")
    return [step for paths in recordings.values() for step in _steps(paths, parameter_bytes)]


def xplane_files(folder: str | os.PathLike[str]) -> list[Path]:
    """The ``*.xplane.pb`` and ``*.xplane.pb.gz`` files in a folder and below it."""
    return [p for p in Path(folder).rglob("*") if p.name.endswith((".xplane.pb", ".xplane.pb.gz"))]


def _decode(path: Path) -> Any:
    require_tensorflow()
    from google.protobuf.message import DecodeError

    for name in PROTO_MODULES:
        try:
            XSpace = importlib.import_module(name).XSpace
            break
        except ImportError:
            continue
    else:
        raise MissingDependencyError(
            "this TensorFlow has no xplane_pb2 where queuemodel looks for it: pip install 'queuemodel[tensorflow]'"
        )
    try:
        return XSpace.FromString(read_bytes(path))
    except DecodeError as error:
        raise DataError(f"{path}: not an XSpace proto, or truncated: {error}") from None


def _events(space: Any) -> Iterator[_Event]:
    """The host's events, times absolute where the file says when it was started."""
    began = 0
    for plane in space.planes:
        names = {key: value.name for key, value in plane.stat_metadata.items()}
        for stat in plane.stats:
            if names.get(stat.metadata_id) == "profile_start_time":
                began = stat.uint64_value or stat.int64_value
    for plane in space.planes:
        if not plane.name.startswith("/host:CPU"):
            continue
        stat_names = {key: value.name for key, value in plane.stat_metadata.items()}
        event_names = {key: value.name for key, value in plane.event_metadata.items()}

        def value(stat: Any, stat_names: dict[int, str] = stat_names) -> Any:
            kind = stat.WhichOneof("value")
            return stat_names.get(stat.ref_value, "") if kind == "ref_value" else kind and getattr(stat, kind)

        for line in plane.lines:
            for event in line.events:
                start = line.timestamp_ns * 1000 + event.offset_ps  # since the recording began, or since 1970
                absolute = start // 1000 + (began if line.timestamp_ns < began else 0)
                yield _Event(
                    absolute,
                    absolute + event.duration_ps // 1000,
                    line.id,
                    event_names.get(event.metadata_id, ""),
                    {stat_names.get(stat.metadata_id, ""): value(stat) for stat in event.stats},
                )


def _task_steps(path: Path, sizes: dict[tuple[str, str], Counter[int]]) -> tuple[str, dict[int, _TaskStep]]:
    """A file's task and its part of each step; notes the sizes of received tensors, by tensor and receiver."""
    threads: dict[int, list[_Event]] = defaultdict(list)
    for event in _events(_decode(path)):
        threads[event.thread].append(event)
    task = ""
    for event in (e for events in threads.values() for e in events if e.name.endswith(":_Send")):
        if match := TASK.match(event.stats.get("key") or ""):
            task = f"{match['job']}:{match['task']}"
            break
    if not task:
        raise DataError(
            f"{path}: no tensor sent to another task is recorded, so the file's task and steps are not known; trace a "
            "worker and a parameter server while they train, with host_tracer_level=2"
        )
    steps: dict[int, _TaskStep] = defaultdict(_TaskStep)
    asynchronous: dict[tuple[int, str], int] = {}
    done: list[tuple[_Event, int]] = []
    for events in threads.values():
        events.sort(key=lambda e: (e.start, -e.end))
        processing, allocated = _Event(0, 0, 0, "", {}), 0
        for e in events:
            if e.name == "ExecutorState::Process":
                processing = e
            elif e.name == "MemoryAllocation" and not e.stats.get("tf_op"):
                allocated = e.stats.get("requested_bytes") or 0
            elif e.name.startswith("ExecutorState::ProcessAsync::"):
                name, step = e.stats.get("name", ""), e.stats.get("step_id", 0)
                if e.name.endswith("Done"):
                    done.append((e, step))
                    if e.stats.get("kernel_type") == "_Recv":
                        sizes[name, task][allocated] += 1
                        allocated = 0
                else:
                    asynchronous[step, name] = e.start
            elif (match := KERNEL.fullmatch(e.name)) and e.start < processing.end:
                part = steps[processing.stats.get("id", 0)]
                if match["op"] == "_Send":
                    source, _, destination, edge = (e.stats.get("key") or ";;;").split(";")[:4]
                    ends = TASK.match(source), TASK.match(destination)
                    if ends[0] and ends[1] and ends[0].groups() != ends[1].groups():
                        sender, receiver = (f"{end['job']}:{end['task']}" for end in ends if end)
                        tensor = re.sub(r"^edge_\d+_", "", edge)
                        consumer = e.stats.get("to") or ""
                        part.sends.append(
                            _Send(tensor, sender, receiver, _receiver(match["name"]), consumer, e.start // 1000)
                        )
                elif match["op"] != "_Recv":
                    part.operations.append(
                        TracedOperation(task, match["name"], match["op"], (), e.start // 1000, e.end // 1000)
                    )
    for e, step in done:
        name, kernel = e.stats.get("name", ""), e.stats.get("kernel_type", "")
        began = asynchronous.get((step, name))
        if kernel == "_Recv":
            steps[step].received[name] = e.start // 1000
            if began is not None:
                steps[step].requested[name] = began // 1000
        elif began is not None:
            steps[step].operations.append(
                TracedOperation(task, name, kernel, (), began // 1000, max(e.end, began) // 1000)
            )
    return task, steps


def _receiver(send: str) -> str:
    """TensorFlow numbers the pair one after the other: what ``w/_1`` sends, ``w/_2`` receives."""
    match = NODE.fullmatch(send)
    return f"{match['tensor']}{match['mark']}{int(match['number']) + 1}" if match else send


def _steps(paths: list[Path], parameter_bytes: int | None) -> list[TracedStep]:
    allocated: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    tasks = {}
    for path in paths:
        task, steps = _task_steps(path, allocated)
        tasks[task] = steps
    where = str(paths[0].parent)
    if len(tasks) < 2:
        raise DataError(
            f"{where}: a trace of only one task ({', '.join(tasks)}); expected a worker and a parameter server: trace "
            "both, as tf.profiler.experimental.client.trace('grpc://WORKER,grpc://SERVER', ...) does"
        )
    found = {}
    for number in sorted({n for steps in tasks.values() for n in steps}):
        parts = {task: steps[number] for task, steps in tasks.items() if number in steps}
        sends = [send for part in parts.values() for send in part.sends if send.destination in tasks]
        complete = sends and all(s.receiver in parts.get(s.destination, _TaskStep()).received for s in sends)
        if complete and sum(len(part.received) for part in parts.values()) == len(sends):
            found[number] = (parts, sends)
    shapes = Counter(frozenset((s.receiver, s.source) for s in sends) for _, sends in found.values())
    if not shapes:
        raise DataError(
            f"{where}: no step is recorded whole on all tasks ({', '.join(tasks)}); trace for longer than two steps"
        )
    # steps differ in what they send; the training step is the one that moves most in all
    usual = max(shapes, key=lambda shape: (shapes[shape] * len(shape), sorted(shape)))
    chosen = [step for step in found.values() if frozenset((s.receiver, s.source) for s in step[1]) == usual]
    sizes = {key: size for key, counts in allocated.items() if (size := counts.most_common(1)[0][0])}
    sizes = _completed(sizes, chosen[0][1], parameter_bytes, where)
    return [_traced(where, parts, sends, sizes) for parts, sends in chosen]


def _completed(
    sizes: dict[tuple[str, str], int], sends: list[_Send], parameter_bytes: int | None, where: str
) -> dict[tuple[str, str], int]:
    """Sizes of all tensors: those that the trace lacks share what is left of ``parameter_bytes`` equally."""
    sizes = dict(sizes)
    for route in ((True, False), (False, True), (True, True)):
        some = [s for s in sends if (s.source.startswith("ps:"), s.destination.startswith("ps:")) == route]
        moved = {(s.receiver, s.destination) for s in some}
        data: dict[tuple[str, str], str] = {}  # sent twice from one operation: the second is a control message
        for s in sorted(some, key=lambda s: (s.consumer.startswith(FOLDED), len(s.receiver), s.receiver)):
            data.setdefault((s.tensor, s.destination), s.receiver)
        control = {key for key in moved if CONTROL in key[0] or all(route)}  # servers send each other small change
        control |= moved - {(receiver, destination) for (_, destination), receiver in data.items()}
        sizes |= {key: 0 for key in control if key not in sizes}
        unknown = sorted(moved - set(sizes))
        if unknown and parameter_bytes is None:
            raise DataError(
                f"{where}: the sizes of {len(unknown)} of {len(moved)} tensors are not in the trace (first: "
                f"{unknown[0][0]!r}); give parameter_bytes, the size of all parameters together"
            )
        left = max((parameter_bytes or 0) - sum(sizes[key] for key in moved & set(sizes)), 0)
        for i, key in enumerate(unknown):
            sizes[key] = left * (i + 1) // len(unknown) - left * i // len(unknown)
    return sizes


def _traced(
    where: str, parts: dict[str, _TaskStep], sends: list[_Send], sizes: dict[tuple[str, str], int]
) -> TracedStep:
    transfers, operations = [], []
    for s in sends:
        part = parts[s.destination]
        transfers.append(
            Transfer(
                s.tensor,
                s.source,
                s.destination,
                s.start,
                part.received[s.receiver],
                sizes[s.receiver, s.destination],
                part.requested.get(s.receiver, s.start),
            )
        )
    for task, part in parts.items():
        arrivals = [(part.received[s.receiver], s) for s in sends if s.destination == task]
        made = {o.name for o in part.operations}
        # One operation may send several tensors under its name: it was there before the first left.
        latest_first = sorted(sends, key=lambda s: -s.start)
        unseen = {s.tensor: s.start for s in latest_first if s.source == task and s.tensor not in made}
        sending = [TracedOperation(task, name, "NoOp", (), start, start) for name, start in unseen.items()]
        operations += _in_order([*part.operations, *sending], arrivals, server=task.startswith("ps:"))
    return TracedStep(where, operations, transfers)


def _in_order(
    operations: list[TracedOperation], arrivals: list[tuple[int, _Send]], *, server: bool
) -> list[TracedOperation]:
    """
    Operations with inputs: the tensors that they are recorded to consume, and, for what is not recorded, their order.

    A worker's operation waits for those that had ended when it started; a server's for those that had ended since the
    first gradient arrived, and for that gradient: what runs before serves parameters.
    """
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
