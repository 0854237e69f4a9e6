"""Simulated and recorded steps in the Chrome trace format, which ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .graph import arrival_order
from .state import BEGIN, END, READY

if TYPE_CHECKING:
    from .result import SimulatedRun

LANES = {"fetch": "receive link", "compute": "processor", "push": "transmit link", "update": "server"}


def chrome_trace(run: SimulatedRun) -> dict[str, Any]:
    """
    The steps that a simulation kept (``simulate(..., trace_steps=n)``) as Chrome trace events.

    A process per worker with a lane per link, processor and server; a transfer's event begins when its first byte is
    sent, and ``args.waited`` says how many seconds it had been queued until then.
    """
    order = [arrival_order(step.operations) for step in run.profile.steps]
    events: list[dict[str, Any]] = []
    for w in range(run.workers):
        events.append({"ph": "M", "pid": w, "name": "process_name", "args": {"name": f"worker {w}"}})
        for lane, name in enumerate(LANES.values()):
            events.append({"ph": "M", "pid": w, "tid": lane, "name": "thread_name", "args": {"name": name}})
    for (w, number, record, i), times in zip(run.log.tolist(), run.log_times.tolist(), strict=True):
        operation = run.profile.steps[record].operations[order[record][i]]
        events.append(
            {
                "ph": "X",
                "pid": w,
                "tid": list(LANES).index(operation.kind),
                "name": operation.name,
                "cat": operation.kind,
                "ts": 1e6 * times[BEGIN],
                "dur": 1e6 * (times[END] - times[BEGIN]),
                "args": {"step": number, "bytes": operation.bytes, "waited": times[BEGIN] - times[READY]},
            }
        )
    return {"traceEvents": events, "displayTimeUnit": "ms"}
