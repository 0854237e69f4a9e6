"""How far a live run is, for a terminal and for the caller."""

from __future__ import annotations

import sys
from collections.abc import Callable

from tqdm import tqdm

KINDS = {
    "warmup": "warming up",
    "traced": "tracing",
    "untraced": "timing without traces",
    "noise": "measuring gradients",
}


class Progress:
    """A bar on standard error (``show``), and calls of ``on_step`` with what is going on, the steps done and all."""

    def __init__(self, total: int, *, show: bool, on_step: Callable[[str, int, int], None] | None) -> None:
        self.total, self.on_step, self.done = total, on_step, 0
        self.bar = tqdm(total=total, unit="step", disable=not show, file=sys.stderr, leave=False)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def say(self, doing: str) -> None:
        """What is going on between the steps."""
        self.bar.set_description(doing)

    def step(self, kind: str) -> None:
        """One more step is done."""
        self.done = min(self.done + 1, self.total)
        self.bar.set_description(KINDS[kind], refresh=False)
        self.bar.update(self.done - self.bar.n)
        if self.on_step is not None:
            self.on_step(kind, self.done, self.total)
