"""A live run of data-parallel ranks: one alone, then two together and more, on this machine or each on its own."""

from __future__ import annotations

import contextlib
import json
import queue
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import ProfilingError
from .interrupts import Interrupted
from .processes import Child
from .run import Ground, LiveRun, starting

NEWS = 1.0  # seconds to wait for the cause, where one rank's failure may be due to another's end


class RanksRun(LiveRun):
    """Starts the ranks of this machine, each the module ``rank`` with ``settings``, and follows them.

    Attributes
    ----------
    untraced : dict
        Seconds of a round without tracing, by the number of ranks; the first one's on this machine.
    gradient_norms : list of dict
        Of all ranks' gradients and their mean, by step.
    """

    def __init__(self, rank: str, settings: dict[str, Any], ground: Ground) -> None:
        super().__init__(ground)
        self.rank, self.settings = rank, settings
        self.untraced: dict[int, float] = {}
        self.gradient_norms: list[dict[str, Any]] = []
        self.doing = "starting"

    def train(self, ranks: Sequence[int], environment: Mapping[str, str], **settings: Any) -> None:
        """Start the processes, follow them to the end, and leave none behind (raises ProfilingError, Interrupted).

        ``environment`` is added to their own, ``settings`` to those of the run.
        """
        try:
            self.progress.say(self.doing)
            with starting():
                for rank in ranks:
                    own = {**self.settings, **settings, "rank": rank, "traces": str(self.traces.resolve())}
                    self.start(f"rank {rank}", self.rank, [json.dumps(own)], environment)
            self._follow()
        except KeyboardInterrupt:
            signals = self.interrupts.received
            status = 128 + signals[0] if signals else 130
            raise Interrupted("interrupted; nothing is saved", None, status=status) from None
        finally:
            self.kill()
            self.children.clear()

    def _follow(self) -> None:
        running = set(self.children)  # a rank that is done may stay, where the others need it until they are
        while running:
            if self.interrupts.received:
                raise KeyboardInterrupt
            left = self.settings["until"] - time.monotonic()  # however much there still is to read
            try:
                if left <= 0:
                    raise queue.Empty
                child, message = self.inbox.get(timeout=left)
            except queue.Empty:
                raise ProfilingError(f"time_limit: it was over while {self.doing}; give more seconds") from None
            if child not in self.children:  # of an earlier start, killed since
                continue
            if message is None:
                if child.process.returncode:
                    raise ProfilingError(child.epitaph())
                running.discard(child)
            elif "done" in message:
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
        if "untraced" in message:
            self.untraced[message["ranks"]] = message["untraced"]
        if "gradient_norms" in message:
            self.gradient_norms = message["gradient_norms"]

    def _failure(self, child: Child, said: str) -> ProfilingError:
        """Where the other rank was killed, that is the cause and not what this one says about it."""
        with contextlib.suppress(queue.Empty):
            while True:
                other, message = self.inbox.get(timeout=NEWS)
                if other and message is None and other.process.returncode < 0:
                    return ProfilingError(other.epitaph())
        return ProfilingError(said)
