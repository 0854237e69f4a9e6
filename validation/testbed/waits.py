"""The emulated accelerator: computation is a timed wait."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class Lateness:
    """How much longer the emulated computations took than they should have (seconds)."""

    waits: list[float] = field(default_factory=list)

    def wait(self, seconds: float) -> None:
        start = time.perf_counter()
        time.sleep(seconds)
        self.waits.append(time.perf_counter() - start - seconds)
