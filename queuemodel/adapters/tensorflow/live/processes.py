"""Child processes that cannot outlive their parent, and what they say."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ....errors import ProfilingError
from ..children.parent import SCRATCH

Message = dict[str, Any]
CHILDREN = f"{__package__.rpartition('.')[0]}.children"
GRACE = 5.0  # seconds for an orderly end
NOISE = ("I0000", "W0000", "WARNING: All log", "To enable the following")  # TensorFlow's start-up messages


class Child:
    """A module of `children` in a process, session and log of its own; its messages arrive in ``inbox``.

    Its temporary files go to ``scratch``, which ends with the run.

    The last entry of a child that has ended is ``(child, None)``.
    """

    def __init__(
        self, name: str, module: str, arguments: Sequence[str], *, scratch: Path, inbox: queue.SimpleQueue, gpu: bool
    ) -> None:
        self.name, self.log = name, scratch / f"{name.replace(' ', '-')}.log"
        with self.log.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", f"{CHILDREN}.{module}", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=_environment(gpu, scratch),
                start_new_session=True,  # Ctrl-C is for the parent, which then ends the children
            )
        self.listener = threading.Thread(target=self._listen, args=(inbox,), daemon=True)
        self.listener.start()

    def _listen(self, inbox: queue.SimpleQueue) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as messages:
            for line in messages:
                with contextlib.suppress(json.JSONDecodeError):  # the last line of a killed process
                    inbox.put((self, json.loads(line)))
        self.process.wait()
        inbox.put((self, None))

    def ask_to_stop(self) -> None:
        """Ask for an orderly end after the current step."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.write(b"stop\n")
            self.process.stdin.flush()

    def wait(self, seconds: float) -> bool:
        """Whether it ended within ``seconds``."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.poll() is not None

    def kill(self) -> None:
        """Kill it and every process that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.listener.join(1.0)
        with contextlib.suppress(OSError):
            assert self.process.stdin is not None
            self.process.stdin.close()

    def epitaph(self) -> str:
        """Why it ended: the signal or exit status, and its own last line."""
        code = self.process.wait()
        if code == -signal.SIGKILL:
            return f"the {self.name} was killed by SIGKILL (was memory short?)"
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit status {code}"
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines()]
        said = [line for line in lines if line and not line.startswith(NOISE)]
        return f"the {self.name} {how}" + (f"; its last line: {said[-1][:300]}" if said else "")


def _environment(gpu: bool, scratch: Path) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    environment["KERAS_BACKEND"] = "tensorflow"
    environment["PYTHONUNBUFFERED"] = "1"
    environment["TMPDIR"] = environment[SCRATCH] = str(scratch)
    for name in ("no_proxy", "NO_PROXY"):  # gRPC would ask a proxy for the loopback address
        environment[name] = ",".join(filter(None, [environment.get(name), "127.0.0.1,localhost"]))
    if not gpu:
        environment["CUDA_VISIBLE_DEVICES"] = "-1"
    return environment


def free_addresses(count: int) -> list[str]:
    """Addresses on the loopback interface that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]


def require_answer(job: str, address: str, *, seconds: float) -> None:
    """Refuse to start with a server that nobody answers for (raises ProfilingError)."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(
                (host.strip("[]"), int(port)), timeout=max(0.1, deadline - time.monotonic())
            ).close()
            return
        except OSError as error:
            reason = error.strerror or str(error)
        if time.monotonic() > deadline - 0.5:
            raise ProfilingError(
                f"{job} {address}: no answer within {seconds:g} s ({reason}); start it there with "
                f"'queuemodel serve --job {job} --ps HOST:PORT --worker HOST:PORT'"
            )
        time.sleep(0.25)
