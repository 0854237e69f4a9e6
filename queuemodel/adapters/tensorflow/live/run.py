"""One live run: its child processes, what they have told so far, and their end."""

from __future__ import annotations

import contextlib
import json
import queue
import sys
import time
import uuid
from typing import Any

from ....errors import ProfilingError
from ...live.addresses import own_addresses
from ...live.processes import GRACE, Child
from ...live.run import Ground, LiveRun, starting
from ..addresses import require_answer
from ..environment import child_environment
from ..reading.traces import READING_SPEED
from .plan import STYLES, Plan

CHILDREN = f"{__package__.rpartition('.')[0]}.children"
WATCH = 2.0  # seconds without news after which servers elsewhere are asked whether they still live

JOBS = {"ps": "parameter server", "worker": "worker"}


class OutOfTimeError(ProfilingError):
    """The run took all its time."""


class Run(LiveRun):
    """Starts the processes that the plan needs and follows them.

    Attributes
    ----------
    untraced : list of float
        Seconds of each step timed without traces.
    """

    def __init__(self, plan: Plan, ground: Ground) -> None:
        super().__init__(ground)
        self.plan = plan
        self.untraced: list[float] = []
        self.traced_bytes = 0

    def train(self) -> BaseException | None:
        """Start the processes, follow them to the end, and leave none behind; return what ended the run early."""
        try:
            with own_addresses(len(JOBS)) as addresses:
                with starting():
                    trainer = self._start_all(self.plan.elsewhere or dict(zip(JOBS, addresses, strict=True)))
                self._follow(trainer)
        except (ProfilingError, KeyboardInterrupt) as error:
            return error
        finally:
            self._end()
        return None

    def _start_all(self, addresses: dict[str, str]) -> Child:
        self.progress.say("starting TensorFlow")
        self.traces.mkdir(exist_ok=True)
        module, _ = STYLES[self.plan.style]
        here = [] if self.plan.elsewhere else ["ps"] if self.plan.style == "graph" else JOBS
        for job in here:
            options = [f"--job={job}", f"--ps={addresses['ps']}", f"--worker={addresses['worker']}", "--follow"]
            self.start(JOBS[job], f"{CHILDREN}.serve", options, child_environment(gpu=job == "worker"))
        settings = {
            **addresses,
            "model": self.plan.model,
            "batch_size": self.plan.batch_size,
            "warmup": self.plan.warmup,
            "steps": self.plan.steps,
            "untraced_steps": self.plan.untraced_steps,
            "until": self.plan.until,
            "own_server": not self.plan.elsewhere,
            "run": f"queuemodel-{uuid.uuid4().hex}",
            "traces": str(self.traces.resolve()),
            "path": sys.path,
        }
        computes = self.plan.style == "graph" and not self.plan.elsewhere
        name = "worker" if computes else "coordinator"
        return self.start(name, f"{CHILDREN}.{module}", [json.dumps(settings)], child_environment(gpu=computes))

    def _left(self) -> float:
        """Seconds for training, so that its end and reading the traces are over by the deadline."""
        return self.plan.until - self.traced_bytes / READING_SPEED - time.monotonic()

    def _follow(self, trainer: Child) -> None:
        while True:
            if self.interrupts.received:
                raise KeyboardInterrupt
            if (left := self._left()) <= 0:
                raise OutOfTimeError("time_limit: it was over before any step was recorded; give more seconds")
            try:
                child, message = self.inbox.get(timeout=min(WATCH, left))
            except queue.Empty:
                self._watch_elsewhere()
                continue
            if message is None:
                if child is trainer and child.process.returncode == 0:
                    return
                raise self._failure(child, child.epitaph())
            if "failed" in message:
                raise self._failure(child, message["failed"])
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        if "doing" in message:
            self.progress.say(message["doing"])
        if "job" in message:
            self.facts = message
        self.traced_bytes += message.get("traced_bytes", 0)
        if "step" in message:
            if message["step"] == "untraced":
                self.untraced.append(message["seconds"])
            self.progress.step(message["step"])

    def _watch_elsewhere(self) -> None:
        for job, address in (self.plan.elsewhere or {}).items():
            try:
                require_answer(job, address, seconds=WATCH)
            except ProfilingError:
                raise ProfilingError(f"{job} {address}: no longer answers") from None

    def _failure(self, child: Child, said: str) -> ProfilingError:
        """Where a server has ended too, that is the cause and not what the other process says about it."""
        deadline = time.monotonic() + 1.0
        while child not in self.children[:-1] and (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                other, message = self.inbox.get(timeout=left)
                if message is None and other is not child:
                    return ProfilingError(other.epitaph())
        return ProfilingError(said)

    def _end(self) -> None:
        """Let the step in progress end, unless asked once more or too late, and kill what is left."""
        asked = len(self.interrupts.received)
        patience = min(time.monotonic() + GRACE, self.plan.deadline)
        for child in self.children[-1:] if self.progress.done else []:
            child.ask_to_stop()
            while not child.wait(0.05) and time.monotonic() < patience and len(self.interrupts.received) == asked:
                pass
        self.kill()
        with contextlib.suppress(queue.Empty):
            while True:
                _, message = self.inbox.get_nowait()
                self._note(message or {})
