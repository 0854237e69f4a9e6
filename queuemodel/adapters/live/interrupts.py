"""Signals that ask for an end, and the end itself."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

from ...training.profile import Profile


class Interrupts:
    """Within its block Ctrl-C, SIGTERM and SIGHUP are noted and nothing more: what is recorded must be saved first."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self, wake: Callable[[], object]) -> None:
        self.received: list[int] = []
        self.wake = wake
        self.previous: dict[int, object] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():  # elsewhere no signal arrives
            for number in self.SIGNALS:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):  # nohup stays nohup
                    self.previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, _: object) -> None:
        self.received.append(number)
        self.wake()


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, SIGTERM or SIGHUP; `profile` holds the steps recorded until then, or is None.

    `status` is the exit status by which a shell knows the signal.
    """

    def __init__(self, message: str, profile: Profile | None, status: int = 130) -> None:
        super().__init__(message)
        self.profile, self.status = profile, status
