"""Reading ``*.xplane.pb``: what `tf.profiler` recorded of a worker and of its servers while they ran steps.

Found by experiment with TensorFlow 2.21 (host_tracer_level 2, the default), on workers and servers:

- ``NAME:TYPE`` on a thread: a kernel ran; it lies within an ``ExecutorState::Process`` whose ``id`` is the step's, the
  same number on every task;
- ``ExecutorState::ProcessAsync::Start`` and ``::Done`` with ``name``, ``kernel_type`` and ``step_id``: an asynchronous
  kernel; a ``_Recv`` (or ``_HostRecv``, for what is used in the host's memory) asks for its tensor at Start and has it
  at Done;
- ``NAME:_Send`` with ``key`` (source device; incarnation; destination device; edge; frame) and ``to``, one consumer;
- ``MemoryAllocation`` without ``tf_op`` just before a Done on the same thread: the received tensor's buffer, with its
  exact size; only for large ones (256 KiB and more).

What a kernel waits for on its own task is not recorded.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tqdm import tqdm

from ....errors import DataError
from ...events import TracedOperation, TracedStep, Transfer
from ...phases import READS
from .messages import ALLOCATION, DONE, KERNEL, PROCESS, START, Event, read_events
from .run_metadata import TASK
from .tensor_sizes import Noted, Send, transfer_sizes

SENDS, RECEIVES = ("_Send", "_HostSend"), ("_Recv", "_HostRecv")
NODE = re.compile(r"(?P<tensor>.+)(?P<mark>_S|/_)(?P<number>\d+)")  # of a Send or Recv


def read_xplane(folder: Path, paths: Sequence[Path], noted: Noted, *, progress: bool) -> list[TracedStep]:
    """Read the files of a folder: one per task, of one or more recordings (a folder each)."""
    recordings: dict[Path, list[Path]] = defaultdict(list)
    for path in paths:
        recordings[path.parent].append(path)
    steps = [step for paths in recordings.values() for step in _steps(paths, noted, progress)]
    if not steps:
        raise DataError(
            f"{folder}: no tensor sent to another task is recorded in its *.xplane.pb files; trace a worker and a "
            "parameter server while they train, with host_tracer_level=2 (what a coordinator records of itself does "
            "not tell), or give the run of two data-parallel ranks besides that of one"
        )
    return steps


@dataclass
class _Step:
    """One step on all tasks; what servers send is known of workers as well that recorded nothing."""

    parts: dict[str, TaskStep]
    sends: list[Send]
    fetched: dict[str, set[str]]

    def missing(self) -> Counter[tuple[str, str]]:
        """Arrivals that should be recorded and are not, by Recv and task."""
        return _sent(self.sends) - self._received()

    def whole(self) -> bool:
        """Whether every tensor sent has arrived, and every one that arrived was sent."""
        return bool(self.sends) and _sent(self.sends) == self._received()

    def shape(self) -> frozenset[tuple[str, str]]:
        return frozenset((s.receiver, s.source) for s in self.sends)

    def _received(self) -> Counter[tuple[str, str]]:
        return Counter(
            {(name, task): len(times) for task, part in self.parts.items() for name, times in part.received.items()}
        )


def _fetched(sends: list[Send]) -> dict[str, set[str]]:
    """The tensors that servers send, by the worker."""
    fetched: dict[str, set[str]] = defaultdict(set)
    for s in sends:
        if s.source.startswith("ps:") and not s.destination.startswith("ps:"):
            fetched[s.destination].add(s.tensor)
    return fetched


def _sent(sends: list[Send]) -> Counter[tuple[str, str]]:
    return Counter((s.receiver, s.destination) for s in sends)


def _steps(paths: list[Path], noted: Noted, progress: bool) -> list[TracedStep]:
    """The training steps of one recording; none where only tasks recorded that sent nothing."""
    where = str(paths[0].parent)
    files = tqdm(paths, "reading", unit="file", disable=not progress, leave=False)
    recordings = _by_task([one for one in map(TaskRecording, files) if one.task], where)
    if not recordings:
        return []
    steps = []
    for number in sorted({n for recording in recordings.values() for n in recording.steps}):
        parts = {task: recording.steps[number] for task, recording in recordings.items() if number in recording.steps}
        sends = sorted((send for part in parts.values() for send in part.sends), key=lambda s: s.start)
        steps.append(_Step(parts, [s for s in sends if s.destination in recordings], _fetched(sends)))
    whole = [step for step in steps if step.whole()]
    if not whole:
        raise DataError(f"{where}: no step is recorded whole on all tasks ({', '.join(recordings)}); {_why(steps)}")
    # steps differ in what they send; the training step is the one that moves most in all
    shapes = Counter(step.shape() for step in whole)
    usual = max(shapes, key=lambda shape: (shapes[shape] * len(shape), sorted(shape)))
    chosen = [step for step in whole if step.shape() == usual]
    one = chosen[0]
    pushed = Counter(s.receiver for s in one.sends if s.destination.startswith("ps:") and s.source in one.fetched)
    if min(pushed.values(), default=1) > 1:
        raise DataError(
            f"{where}: each step pushes all its gradients several times: training steps in a loop; trace with one "
            "for each call (steps_per_execution=1)"
        )
    sizes = transfer_sizes(
        one.sends,
        received={(name, r.task): counts for r in recordings.values() for name, counts in r.sizes.items()},
        noted=noted,
        where=where,
        rows=_rows(one),
    )
    workers = {task for step in steps for task, tensors in step.fetched.items() if tensors in one.fetched.values()}
    return [replace(_traced(where, step, sizes), workers=frozenset(workers)) for step in chosen]


def _rows(step: _Step) -> set[tuple[str, str]]:
    """What servers send and do not read as it is, by Recv and task."""
    made = {(o.name, o.task): o.op for part in step.parts.values() for o in part.operations}
    return {(s.receiver, s.destination) for s in step.sends if made.get((s.tensor, s.source), READS[0]) not in READS}


def _by_task(recordings: list[TaskRecording], where: str) -> dict[str, TaskRecording]:
    tasks: dict[str, TaskRecording] = {}
    for recording in recordings:
        if (other := tasks.setdefault(recording.task, recording)) is not recording:
            raise DataError(
                f"{recording.path}: a recording of {recording.task}, as {other.path.name} is; "
                "one file for each task: remove the copy, or give the other job a folder of its own"
            )
    if len(tasks) == 1:
        raise DataError(
            f"{where}: a trace of only one task ({', '.join(tasks)}); expected a worker and a parameter server: trace "
            "both, as tf.profiler.experimental.client.trace('grpc://WORKER,grpc://SERVER', ...) does"
        )
    return tasks


def _why(steps: list[_Step]) -> str:
    """Why none of them is whole, and what helps."""
    begun = [step for step in steps if step.sends]
    missing = Counter(key for step in begun for key in step.missing())
    for (name, task), count in missing.most_common(1):
        if count > max(2, len(begun) // 2):
            return (
                f"in {count} of {len(begun)} the arrival of {name!r} at {task} is not recorded, so a longer trace will "
                "not help: profile in graph style, or trace with RunMetadata"
            )
    return f"of {len(begun)} only parts are; trace for longer than two steps"


def _traced(where: str, step: _Step, sizes: Mapping[tuple[str, str], int]) -> TracedStep:
    transfers = []
    turn: Counter[tuple[str, str]] = Counter()  # loops send one tensor many times
    for s in step.sends:
        key = s.receiver, s.destination
        part = step.parts[s.destination]
        requested, received = part.requested[s.receiver][turn[key]], part.received[s.receiver][turn[key]]
        turn[key] += 1
        transfers.append(Transfer(s.tensor, s.source, s.destination, s.start, received, sizes[key], requested))
    operations = []
    for task, part in step.parts.items():
        arrivals = [(part.received[s.receiver][0], s) for s in step.sends if s.destination == task]
        made = {o.name for o in part.operations}
        # One operation may send several tensors under its name: it was there before the first left.
        latest_first = sorted(step.sends, key=lambda s: -s.start)
        unseen = {s.tensor: s.start for s in latest_first if s.source == task and s.tensor not in made}
        sending = [TracedOperation(task, name, "NoOp", (), start, start) for name, start in unseen.items()]
        operations += _in_order([*part.operations, *sending], arrivals, server=task.startswith("ps:"))
    return TracedStep(where, operations, transfers)


def _in_order(
    operations: list[TracedOperation], arrivals: list[tuple[int, Send]], *, server: bool
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


@dataclass
class TaskStep:
    """One task's part of one step; when each Recv asked for its tensor, and when it had it (us), in order."""

    operations: list[TracedOperation] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    requested: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    received: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))


class TaskRecording:
    """What one task recorded: its steps, and the sizes that it allocated for received tensors."""

    def __init__(self, path: Path) -> None:
        threads: dict[int, list[Event]] = defaultdict(list)
        for event in read_events(path):
            threads[event.thread].append(event)
        self.path = path
        self.task = _task(event for events in threads.values() for event in events)
        self.steps: dict[int, TaskStep] = defaultdict(TaskStep)
        self.sizes: dict[str, Counter[int]] = defaultdict(Counter)
        self._began: dict[tuple[int, str], list[int]] = defaultdict(list)  # of asynchronous kernels, in order
        done: list[Event] = []
        for events in threads.values():
            done += self._thread(sorted(events, key=lambda e: (e.start, -e.end)))
        for starts in self._began.values():
            starts.sort(reverse=True)
        for event in sorted(done, key=lambda e: e.start):
            self._done(event)

    def _thread(self, events: Iterable[Event]) -> list[Event]:
        """Note what one thread did, in order of time; return the ends of asynchronous kernels."""
        processing, allocated = Event(0, 0, 0, "", {}), 0
        done = []
        for event in events:
            if event.name == PROCESS:
                processing = event
            elif event.name == ALLOCATION:
                if not event.stats.get("tf_op"):
                    allocated = event.number("requested_bytes")
            elif event.name == START:
                self._began[event.number("step_id"), event.text("name")].append(event.start)
            elif event.name == DONE:
                done.append(event)
                if event.text("kernel_type") in RECEIVES:
                    self.sizes[event.text("name")][allocated] += 1
                    allocated = 0
            elif event.start < processing.end:
                self._kernel(event, self.steps[processing.number("id")])
        return done

    def _kernel(self, event: Event, step: TaskStep) -> None:
        match = KERNEL.fullmatch(event.name)
        assert match  # or it were not among the events
        if match["op"] in SENDS:
            source, destination, edge = _ends(event)
            if source and destination and source != destination:
                step.sends.append(
                    Send(
                        tensor=re.sub(r"^edge_\d+_", "", edge),
                        source=source,
                        destination=destination,
                        receiver=_receiver(match["name"]),
                        consumer=event.text("to"),
                        start=event.start // 1000,
                    )
                )
        elif match["op"] not in RECEIVES:
            step.operations.append(
                TracedOperation(self.task, match["name"], match["op"], (), event.start // 1000, event.end // 1000)
            )

    def _done(self, event: Event) -> None:
        """An asynchronous kernel has ended: a tensor has arrived, or an operation is over."""
        number, name, kind = event.number("step_id"), event.text("name"), event.text("kernel_type")
        began, step = self._began[number, name], self.steps[number]
        start = began.pop() // 1000 if began else None
        if kind in RECEIVES:
            step.received[name].append(event.start // 1000)
            step.requested[name].append(event.start // 1000 if start is None else start)
        elif start is not None:
            step.operations.append(TracedOperation(self.task, name, kind, (), start, max(start, event.end // 1000)))


def _task(events: Iterable[Event]) -> str:
    """The task that sent tensors to others; "" where nothing was sent, as by a coordinator."""
    for event in events:
        if event.name.endswith(tuple(f":{op}" for op in SENDS)) and (source := _ends(event)[0]):
            return source
    return ""


def _ends(event: Event) -> tuple[str, str, str]:
    """Source and destination of a Send ("" where they are no tasks), and the edge between them."""
    source, _, destination, edge, *_ = [*event.text("key").split(";"), "", "", "", ""]
    ends = [f"{m['job']}:{m['task']}" if (m := TASK.match(end)) else "" for end in (source, destination)]
    return ends[0], ends[1], edge


def _receiver(send: str) -> str:
    """TensorFlow numbers the pair one after the other: what ``w/_1`` sends, ``w/_2`` receives."""
    match = NODE.fullmatch(send)
    return f"{match['tensor']}{match['mark']}{int(match['number']) + 1}" if match else send
