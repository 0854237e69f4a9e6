"""One live run: where it works, its child processes, and what they have told so far."""

from __future__ import annotations

import contextlib
import os
import queue
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import ProfilingError
from .interrupts import Interrupts
from .processes import Child
from .progress import Progress
from .scratch import empty_folder, scratch_folder

#: Seconds.
LONGEST_RUN = 7 * 24 * 3600.0


class Ground(NamedTuple):
    """What a run stands on: folders for what ends with it and for traces, what children say, and how far it is."""

    folder: Path
    traces: Path
    inbox: queue.SimpleQueue
    progress: Progress
    interrupts: Interrupts


@contextlib.contextmanager
def ground(
    steps: int,
    *,
    traces: str | os.PathLike[str] | None,
    progress: bool | None,
    on_step: Callable[[str, int, int], None] | None,
) -> Iterator[Ground]:
    """Within its block a run of so many steps can be done; other arguments are those of every ``profile_live``."""
    inbox: queue.SimpleQueue = queue.SimpleQueue()
    show = sys.stderr.isatty() if progress is None else progress
    with (
        Interrupts(wake=lambda: inbox.put((None, {}))) as interrupts,
        scratch_folder() as folder,
        Progress(steps, show=show, on_step=on_step) as bar,
    ):
        kept = empty_folder(traces) if traces is not None else Path(folder, "traces")
        yield Ground(Path(folder), kept, inbox, bar, interrupts)


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """Within its block an OSError is no room for logs, or no memory for processes (raises ProfilingError)."""
    try:
        yield
    except OSError as error:
        raise ProfilingError(f"{error.filename or 'a process'}: cannot be started: {error.strerror or error}") from None


class LiveRun:
    """Child processes of one run; to be extended by how they are followed.

    Attributes
    ----------
    children : list of Child
        In the order in which they were started.
    facts : dict
        What the trainer said of the job; empty until it has.
    """

    def __init__(self, ground: Ground) -> None:
        self.folder, self.traces, self.inbox, self.progress, self.interrupts = ground
        self.children: list[Child] = []
        self.facts: dict[str, Any] = {}

    def start(self, name: str, module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Child:
        """Start a module in a process of its own (raises OSError)."""
        child = Child(name, module, arguments, scratch=self.folder, inbox=self.inbox, environment=environment)
        self.children.append(child)
        return child

    def kill(self) -> None:
        """Leave no process behind."""
        for child in reversed(self.children):
            child.kill()
