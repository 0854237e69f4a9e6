"""The emulated accelerator: computation is a timed wait."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field


@dataclass
class Lateness:
    """How much longer the emulated computations took than they should have (seconds); ``cut`` ends all that wait."""

    waits: list[float] = field(default_factory=list)
    cut: threading.Event = field(default_factory=threading.Event)

    def wait(self, seconds: float) -> None:
        start = time.perf_counter()
        if not self.cut.wait(seconds):
            self.waits.append(time.perf_counter() - start - seconds)
