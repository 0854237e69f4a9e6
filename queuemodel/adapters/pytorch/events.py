"""What a Chrome trace consists of."""

from __future__ import annotations

from typing import Any

import msgspec


class Event(msgspec.Struct):
    """A complete event of the trace (microseconds); other kinds have no ``dur``."""

    name: str = ""
    ph: str = ""
    ts: float = 0.0
    dur: float = -1.0
    cat: str = ""
    args: dict[str, Any] = {}

    @property
    def end(self) -> float:
        """Microseconds."""
        return self.ts + self.dur

    @property
    def correlation(self) -> int:
        """Number of the call that launched it, or that it is; 0 without."""
        number = self.args.get("correlation")
        return number if type(number) is int else 0

    @property
    def is_nccl(self) -> bool:
        """Whether it communicates among accelerators."""
        return self.cat == "kernel" and "nccl" in self.name.lower()
