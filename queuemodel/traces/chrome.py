"""Simulated steps in the Chrome trace format, which ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..training.profile import Profile
from .graph import arrival_order
from .kernel.state import BEGIN, END, READY

LANES = {"fetch": "receive link", "compute": "processor", "push": "transmit link", "update": "server"}


def chrome_trace(profile: Profile, workers: int, log: np.ndarray, log_times: np.ndarray) -> dict[str, Any]:
    """
    Logged operations as Chrome trace events; `log` and `log_times` are those of a `SimulatedRun`.

    A process per worker, with lanes for its links, its processor and the servers. What overlaps (connections to several
    servers, tensors that take turns on one) gets lanes of its own, since viewers drop events that overlap in a lane. A
    transfer's event begins when its first byte is sent, and ``args.waited`` says how many seconds it had been queued
    until then.
    """
    order = [arrival_order(step.operations) for step in profile.steps]
    lanes: dict[tuple[int, str], list[int]] = {}  # per worker and kind, when each lane falls free (nanoseconds)
    events: list[dict[str, Any]] = []
    for row in np.lexsort((log_times[:, END], log_times[:, BEGIN])).tolist():
        w, number, record, i = log[row].tolist()
        times = log_times[row].tolist()
        operation = profile.steps[record].operations[order[record][i]]
        begin, end = round(1e9 * times[BEGIN]), round(1e9 * times[END])
        free = lanes.setdefault((w, operation.kind), [])
        lane = next((lane for lane, until in enumerate(free) if until <= begin), len(free))
        free[lane : lane + 1] = [end]
        args = {
            "step": number,
            "bytes": operation.bytes,
            "server": operation.server,
            "waited": times[BEGIN] - times[READY],
        }
        events.append(
            {"ph": "X", "pid": w, "tid": _lane(operation.kind, lane), "name": operation.name, "cat": operation.kind}
            | {"ts": begin / 1000, "dur": (end - begin) / 1000, "args": args}
        )
    names = [{"ph": "M", "pid": w, "name": "process_name", "args": {"name": f"worker {w}"}} for w in range(workers)] + [
        {"ph": "M", "pid": w, "tid": _lane(kind, lane), "name": "thread_name"}
        | {"args": {"name": LANES[kind] + (f" ({lane + 1})" if lane else "")}}
        for (w, kind), free in sorted(lanes.items())
        for lane in range(len(free))
    ]
    return {"traceEvents": names + events, "displayTimeUnit": "ms"}


def _lane(kind: str, lane: int) -> int:
    """Number of a lane, so that those of a kind stand together."""
    return 1000 * list(LANES).index(kind) + lane
