"""One clock for a step that several hosts recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..errors import DataError
from .events import TracedOperation, TracedStep

CLOCK_TOLERANCE = 200  # us; two clocks that agree this well are taken for one


def clock_offsets(traced: Sequence[TracedStep], worker: str, server: str) -> list[int]:
    """
    The server's clock less the worker's, for each step (us).

    No tensor arrives before it was made: every fetch bounds the offset from below, every push from above. Where 0 lies
    within the bounds the clocks are taken for one; else the middle of the narrowest bounds is taken (as NTP does).
    """
    bounds = []
    for step in traced:
        made = _made(step.operations)
        lows = [
            made[t.tensor, server] - t.end
            for t in step.transfers
            if t.source == server and t.destination == worker and (t.tensor, server) in made
        ]
        highs = [
            t.end - made[t.tensor, worker]
            for t in step.transfers
            if t.source == worker and t.destination == server and (t.tensor, worker) in made
        ]
        bounds.append((max(lows, default=None), min(highs, default=None)))
    low = max((b for b, _ in bounds if b is not None), default=None)
    high = min((b for _, b in bounds if b is not None), default=None)
    if low is None or high is None or low <= high + CLOCK_TOLERANCE:
        return [_offset_within(low, high)] * len(traced)
    for step, (low, high) in zip(traced, bounds, strict=True):  # the clocks drift
        if low is not None and high is not None and low > high + CLOCK_TOLERANCE:
            raise DataError(
                f"{step.where}: the clocks of {worker} and {server} do not match: tensors arrive up to "
                f"{(low - high) / 1e6:.6f} s before they were made whatever the offset; synchronize the "
                "hosts' clocks (NTP) and trace again"
            )
    return [_offset_within(*b) for b in bounds]


def _made(operations: Sequence[TracedOperation]) -> dict[tuple[str, str], int]:
    """When each operation had made its tensor, by name and task; in loops the first time."""
    return {(o.name, o.task): o.end for o in sorted(operations, key=lambda o: -o.end)}


def _offset_within(low: int | None, high: int | None) -> int:
    if (low is None or low <= CLOCK_TOLERANCE) and (high is None or high >= -CLOCK_TOLERANCE):
        return 0
    known = [bound for bound in (low, high) if bound is not None]
    return round(sum(known) / len(known))


def on_one_clock(step: TracedStep, offsets: dict[str, int]) -> TracedStep:
    """All times by the worker's clock; TensorFlow has mixed two in a transfer's start."""
    if not any(offsets.values()) and all(t.requested is None for t in step.transfers):
        return step
    operations = [
        replace(o, start=o.start - shift, end=o.end - shift) if (shift := offsets.get(o.task, 0)) else o
        for o in step.operations
    ]
    made = _made(operations)
    transfers = []
    for t in step.transfers:
        ahead, behind = offsets.get(t.source, 0), offsets.get(t.destination, 0)
        end = t.end - behind
        earliest = made.get((t.tensor, t.source), step.span[0] - max(ahead, behind))
        if t.requested is not None:
            start = max(t.start - ahead, t.requested - behind)
        elif ahead <= behind:
            start = t.start - behind
        elif t.start < t.end - 1:
            start = t.start - ahead
        else:
            start = earliest
        transfers.append(replace(t, start=min(max(start, earliest), end), end=end))
    return replace(step, operations=operations, transfers=transfers)
