"""Rounds in the Chrome trace format, which ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .figures import RankView

#: Lanes of a rank, and the number of the first of each kind: overlapping events have lanes of their own.
LANES = {"computation": 0, "waiting": 1000, "in transit": 2000}


def round_events(views: Sequence[Sequence[RankView]], starts: Sequence[float]) -> list[dict[str, Any]]:
    """Events of rounds that begin at these seconds, for each rank its view of each round."""
    events: list[dict[str, Any]] = []
    for rank, rounds in enumerate(views):
        free: dict[str, list[float]] = {name: [] for name in LANES}
        for one, start in zip(rounds, starts, strict=True):
            spans = [("computation", f"round {one.number}", 0.0, one.computed, 0)]
            for b, bucket in enumerate(one.buckets):
                spans += [
                    ("waiting", f"bucket {b}", bucket.ready, bucket.begin, bucket.bytes),
                    ("in transit", f"bucket {b}", max(bucket.begin, bucket.ready), bucket.end, bucket.bytes),
                ]
            for kind, name, begin, end, size in spans:
                if end <= begin:
                    continue
                lanes = free[kind]
                lane = next((i for i, until in enumerate(lanes) if until <= start + begin), len(lanes))
                lanes[lane : lane + 1] = [start + end]
                events.append(
                    {"ph": "X", "pid": rank, "tid": LANES[kind] + lane, "name": name, "cat": kind}
                    | {"ts": 1e6 * (start + begin), "dur": 1e6 * (end - begin)}
                    | {"args": {"round": one.number, "bytes": size}}
                )
        names = [{"ph": "M", "pid": rank, "name": "process_name", "args": {"name": f"rank {rank}"}}]
        for kind, lanes in free.items():
            names += [
                {"ph": "M", "pid": rank, "tid": LANES[kind] + lane, "name": "thread_name"}
                | {"args": {"name": kind + (f" ({lane + 1})" if lane else "")}}
                for lane in range(len(lanes))
            ]
        events += names
    return events
