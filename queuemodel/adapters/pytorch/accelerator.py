"""When an accelerator had done what the processor had handed over to it: it computes behind the program.

Kernels carry the ``correlation`` of the ``cuda_runtime`` (or ``cuda_driver``) call that launched them. What NCCL was
given is ready when all that had been launched before is done, since its stream waits for that.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise

from .events import Event

LAUNCHES = ("cuda_runtime", "cuda_driver")
DONE_THERE = ("kernel", "gpu_memcpy", "gpu_memset")


class Work:
    """What a trace's events did, by the clock of the program (all in microseconds)."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.calls = {e.correlation: e.ts for e in events if e.cat in LAUNCHES and e.correlation}
        there = [event for event in events if event.cat in DONE_THERE and not event.is_nccl]
        self.computing = sorted(there, key=self.handed_over)
        self.launched = [self.handed_over(event) for event in self.computing]
        self.done = list(accumulate((event.end for event in self.computing), max))

    def handed_over(self, event: Event) -> float:
        """When the program came to it: a kernel's launch, and the beginning of anything else."""
        return self.calls.get(event.correlation, event.ts) if event.cat in DONE_THERE else event.ts

    def finished(self, moment: float) -> float:
        """When all was done that the program had done or launched by then."""
        count = bisect_right(self.launched, moment)
        return max(moment, self.done[count - 1]) if count else moment

    def steps(self, marks: Sequence[Event]) -> list[tuple[float, float]]:
        """Start and end of each step where it is computed: with an accelerator, from its first kernel to the next's."""
        if not self.computing:
            return [(mark.ts, mark.end) for mark in marks]
        starts = []
        for mark in marks:
            first = bisect_left(self.launched, mark.ts)
            own = first < len(self.launched) and self.launched[first] < mark.end
            starts.append(max(mark.ts, self.computing[first].ts) if own else self.finished(mark.ts))
        last = max(starts[-1], self.finished(marks[-1].end))
        return list(pairwise([*starts, last]))
