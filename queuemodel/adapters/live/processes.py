"""Child processes that cannot outlive their parent, and what interrupts them."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .child import SCRATCH, be

GRACE = 5.0  # seconds for an orderly end
NOISE = ("I0000", "W0000", "WARNING: All log", "To enable the following", "[W")  # of TensorFlow and PyTorch


class Child:
    """A process that runs a module's ``main`` with these settings, in a session and with a log of its own.

    Its messages arrive in ``inbox``, at last ``(child, None)`` when it has ended. Its temporary files go to
    ``scratch``, which ends with the run; ``environment`` is added to our own.
    """

    def __init__(
        self,
        name: str,
        module: str,
        settings: Mapping[str, Any],
        *,
        scratch: Path,
        inbox: queue.SimpleQueue,
        environment: Mapping[str, str],
    ) -> None:
        self.name, self.log = name, scratch / f"{name.replace(' ', '-')}.log"
        own = {"PYTHONUNBUFFERED": "1", "TMPDIR": str(scratch), SCRATCH: str(scratch)}
        with self.log.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", f"from {be.__module__} import be; be()", module, json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **own, **environment},
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


@contextlib.contextmanager
def signals_noted(note: Callable[[int], None]) -> Iterator[None]:
    """Within its block Ctrl-C, SIGTERM and SIGHUP are noted and nothing more: what is recorded must be saved first."""
    previous: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():  # elsewhere no signal arrives
        for caught in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(caught) not in (signal.SIG_IGN, None):  # nohup stays nohup
                previous[caught] = signal.signal(caught, lambda number, _: note(number))
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
