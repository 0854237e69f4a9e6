"""An accelerator emulated on the CPU: streams and events order work as CUDA's do, and engines do it.

`torch.cpu` has streams and events that do nothing, so that code for accelerators runs on it without any overlap.
`install` puts these in their place.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Any

import torch


class Work:
    """
    What an engine does once the work that it waits for is over.

    Parameters
    ----------
    name : str
    run : callable
    after : iterable of Work
    stream : int
        Number of the stream that it belongs to.
    details : dict
        What a trace says of it besides.

    Attributes
    ----------
    issued, start, end : int
        Nanoseconds since the epoch.
    """

    def __init__(
        self, name: str, run: Callable[[], Any], after: Iterable[Work], stream: int, details: dict[str, Any]
    ) -> None:
        self.name, self.run, self.stream, self.details = name, run, stream, details
        self.after = [work for work in after if not work.over.is_set()]
        self.over = threading.Event()
        self.issued, self.start, self.end = time.time_ns(), 0, 0

    def do(self) -> None:
        for work in self.after:
            work.over.wait()
        self.start = time.time_ns()
        self.run()
        self.end = time.time_ns()
        self.after, self.run = [], _nothing  # their tensors would stay
        self.over.set()


def _nothing() -> None:
    pass


class Engine:
    """Does one work at a time, in the order of issue: as a device that a kernel fills, or a communicator."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[Work] = SimpleQueue()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        try:
            while True:
                self.queue.get().do()
        except BaseException:  # else whoever waits for this work waits for ever
            traceback.print_exc()
            os._exit(1)


class Stream:
    """Work of a stream is done in its order; what another stream does is waited for only where the program says so."""

    numbers = itertools.count(7)  # as PyTorch's profiler shows the default stream

    def __init__(self, priority: int = 0) -> None:
        self.number = next(Stream.numbers)
        self.pending: set[Work] = set()

    def issue(self, engine: Engine, name: str, run: Callable[[], Any], **details: Any) -> Work:
        """Hand work to an engine; it starts when this stream's earlier work, and what it waits for, is over."""
        work = Work(name, run, self.pending, self.number, details)
        self.pending = {work}
        engine.queue.put(work)
        return work

    def wait_event(self, event: Event | None) -> None:
        if event is not None:
            self._wait_for(event.pending)

    def wait_stream(self, stream: Stream) -> None:
        self._wait_for(stream.pending)

    def _wait_for(self, others: set[Work]) -> None:
        self.pending = {work for work in self.pending | others if not work.over.is_set()}

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def query(self) -> bool:
        return all(work.over.is_set() for work in self.pending)

    def synchronize(self) -> None:
        for work in self.pending:
            work.over.wait()


class Event:
    """What a stream had to do when the event was recorded; nothing before."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.pending: set[Work] = set()

    def record(self, stream: Stream | None = None) -> None:
        self.pending = set((stream or torch.cpu.current_stream()).pending)

    def wait(self, stream: Stream | None = None) -> None:
        (stream or torch.cpu.current_stream()).wait_event(self)

    query, synchronize = Stream.query, Stream.synchronize


def install() -> None:
    """Give `torch.cpu` streams and events that order work, and a current stream of them."""
    first = Stream()
    ours = {"Stream": Stream, "Event": Event, "_default_cpu_stream": first, "_current_stream": first}
    for name, value in ours.items():
        setattr(torch.cpu, name, value)
