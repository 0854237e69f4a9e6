"""One live run: this machine's ranks, what they have told so far, and their end."""

from __future__ import annotations

import contextlib
import json
import queue
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ....errors import ProfilingError
from ...live.interrupts import Interrupted, Interrupts
from ...live.processes import Child
from ...live.progress import Progress

NEWS = 1.0  # seconds to wait for the cause, where one rank's failure may be due to the other's end


class Run:
    """Starts the ranks and follows them.

    Attributes
    ----------
    facts : dict
        What rank 0 said of the job; empty until it has.
    """

    def __init__(
        self,
        settings: dict[str, Any],
        folder: Path,
        traces: Path,
        *,
        inbox: queue.SimpleQueue,
        progress: Progress,
        interrupts: Interrupts,
    ) -> None:
        self.settings, self.folder, self.traces = settings, folder, traces
        self.inbox, self.progress, self.interrupts = inbox, progress, interrupts
        self.children: list[Child] = []
        self.facts: dict[str, Any] = {}
        self.doing = "starting PyTorch"

    def train(self, ranks: Sequence[int], environment: Mapping[str, str]) -> None:
        """Start the processes, follow them to the end, and leave none behind (raises ProfilingError, Interrupted)."""
        try:
            self.progress.say(self.doing)
            for rank in ranks:
                self._start(rank, environment, self.traces if rank == ranks[0] else self.folder / "sent")
            self._follow()
        except OSError as error:  # no room for logs, no memory for processes
            raise ProfilingError(
                f"{error.filename or 'a process'}: cannot be started: {error.strerror or error}"
            ) from None
        except KeyboardInterrupt:
            signals = self.interrupts.received
            status = 128 + signals[0] if signals else 130
            raise Interrupted("interrupted; nothing is saved", None, status=status) from None
        finally:
            for child in reversed(self.children):
                child.kill()

    def _start(self, rank: int, environment: Mapping[str, str], traces: Path) -> None:
        settings = {**self.settings, "rank": rank, "traces": str(traces.resolve())}
        module, arguments = f"{__package__}.rank", [json.dumps(settings)]
        child = Child(f"rank {rank}", module, arguments, scratch=self.folder, inbox=self.inbox, environment=environment)
        self.children.append(child)

    def _follow(self) -> None:
        running = set(self.children)
        while running:
            if self.interrupts.received:
                raise KeyboardInterrupt
            left = self.settings["until"] - time.monotonic()
            try:
                child, message = self.inbox.get(timeout=max(0.0, left))
            except queue.Empty:
                raise ProfilingError(f"time_limit: it was over while {self.doing}; give more seconds") from None
            if message is None:
                if child.process.returncode:
                    raise ProfilingError(child.epitaph())
                running.remove(child)
            elif "failed" in message:
                raise self._failure(child, message["failed"])
            elif child is self.children[0]:
                self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        if "doing" in message:
            self.doing = message["doing"]
            self.progress.say(self.doing)
        if "step" in message:
            self.doing = "training"
            self.progress.step(message["step"])
        if "batch_size" in message:
            self.facts = message

    def _failure(self, child: Child, said: str) -> ProfilingError:
        """Where the other rank was killed, that is the cause and not what this one says about it."""
        with contextlib.suppress(queue.Empty):
            while True:
                other, message = self.inbox.get(timeout=NEWS)
                if other and message is None and other.process.returncode < 0:
                    return ProfilingError(other.epitaph())
        return ProfilingError(said)
