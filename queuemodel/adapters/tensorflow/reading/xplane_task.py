"""One task's part of every step, from its ``*.xplane.pb`` file.

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

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ...events import TracedOperation
from .run_metadata import TASK
from .xplane_events import ALLOCATION, DONE, KERNEL, PROCESS, START, Event, read_events

SENDS, RECEIVES = ("_Send", "_HostSend"), ("_Recv", "_HostRecv")
NODE = re.compile(r"(?P<tensor>.+)(?P<mark>_S|/_)(?P<number>\d+)")  # of a Send or Recv


@dataclass(frozen=True)
class Send:
    """A tensor on its way: from ``start`` (us) to the operation ``receiver``, used by ``consumer``."""

    tensor: str
    source: str
    destination: str
    receiver: str
    consumer: str
    start: int


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
