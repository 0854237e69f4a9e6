"""What readers of traces hand over, and the arithmetic of intervals; no file format, no TensorFlow."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Interval = tuple[float, float]

#: A received tensor's name, as an operation's input.
RECEIVED = re.compile(r"(?P<tensor>.+?)(_S\d+|/_\d+)$")


@dataclass(frozen=True, slots=True)
class TracedOperation:
    """One operation of the graph, executed on ``task`` (``"worker:0"``) from ``start`` to ``end``."""

    task: str
    name: str
    op: str
    inputs: tuple[str, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """A tensor sent from one task to another; ``start`` is by the sender's clock, all else by the receiver's.

    Without ``requested`` (when the receiver asked for it), start is as TensorFlow's RecvTensor has it: max(request,
    start of sending) of the two clocks, but at most 1 us before the end.
    """

    tensor: str
    source: str
    destination: str
    start: int
    end: int
    bytes: int
    requested: int | None = None


@dataclass(frozen=True)
class TracedStep:
    """What was recorded of one step; ``where`` names the file in messages."""

    where: str
    operations: list[TracedOperation]
    transfers: list[Transfer]
    collection: float = 0  # how long the recorder may have held up the next step (us)
    workers: frozenset[str] = frozenset()  # that trained meanwhile, whether or not their steps were recorded

    @property
    def span(self) -> tuple[int, int]:
        events: list[TracedOperation | Transfer] = [*self.operations, *self.transfers]
        return min(e.start for e in events), max(e.end for e in events)


# interval arithmetic: sorted, disjoint lists of (start, end)


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The points covered by any of ``intervals``."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def intersection(a: Sequence[Interval], b: Sequence[Interval]) -> list[Interval]:
    """The points covered by both of two unions."""
    both, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        start, end = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if start < end:
            both.append((start, end))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return both


def length(intervals: Iterable[Interval]) -> float:
    """Total length of a union."""
    return sum(end - start for start, end in intervals)
