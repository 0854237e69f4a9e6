"""Traces of ``torch.profiler`` with only the events and arguments that the reader looks at, of a few steps.

python -m testbed.rounds.reduced FOLDER TARGET --steps 5
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from queuemodel.adapters.pytorch.events import DONE_THERE, RECORDS

Event = dict[str, Any]
#: Events of the program.
MARKS = (
    *RECORDS,
    "ProfilerStep#",
    "torch::autograd::Acc",
    "torch::distributed::",
    "torch.distributed.ddp",
    "Distributed",
)
ARGUMENTS = {
    "correlation", "device", "stream", "Collective name", "In msg nelems", "dtype", "Group size", "Process Group Name",
    "Process Group Ranks", "Input Dims", "Input type",
}  # fmt: skip
EVALUATED = "autograd::engine::evaluate_function: "


def kept(events: list[Event], steps: int) -> Iterator[Event]:
    """What the reader looks at; kernels but NCCL's, and calls, lose their names."""
    marks = sorted((e for e in events if e["name"].startswith("ProfilerStep#")), key=lambda e: e["ts"])[:steps]
    start, end = marks[0]["ts"], marks[-1]["ts"] + marks[-1]["dur"]
    there = [e for e in events if e["cat"] in DONE_THERE]
    calls = {e["args"]["correlation"]: e for e in events if e["cat"].startswith("cuda_") and "correlation" in e["args"]}
    earlier: dict[int, Event] = {}  # the last of each stream that was launched before these steps
    for number, e in enumerate(sorted(there, key=lambda e: e["ts"])):
        call = calls.get(e["args"]["correlation"])
        if call is None or call["ts"] < start:
            earlier[e["args"]["stream"]] = e | {"name": "kernel"}
        elif call["ts"] < end:
            name = e["name"].split("(")[0] if "nccl" in e["name"].lower() else "kernel"
            args = e["args"] | {"correlation": number}
            yield e | {"name": name, "args": args}
            yield call | {"name": "launch", "dur": 1, "args": {"correlation": number}}
    yield from earlier.values()
    for e in events:
        if not start <= e["ts"] < end or e["cat"] in DONE_THERE or e["cat"].startswith("cuda_"):
            continue
        if e["name"].startswith(EVALUATED):
            hooks = "AccumulateGrad" in e["name"]
            yield e | {"name": EVALUATED + ("torch::autograd::AccumulateGrad" if hooks else "Backward"), "args": {}}
        elif e["name"].startswith(MARKS):
            yield e


def reduced(trace: Event, steps: int) -> Event:
    """The same trace, times in microseconds since its first kept event."""
    events = [
        {"cat": "", "args": {}} | e
        for e in trace["traceEvents"]
        if e.get("ph") == "X" and e.get("cat") != "gpu_user_annotation"
    ]
    some = sorted(kept(events, steps), key=lambda e: e["ts"])
    first = some[0]["ts"]
    info = {name: trace["distributedInfo"][name] for name in ("backend", "rank", "world_size", "pg_config")}
    return {
        "distributedInfo": info,
        "traceEvents": [
            {
                "ph": "X",
                "cat": e["cat"],
                "name": e["name"],
                "ts": round(e["ts"] - first, 1),
                "dur": round(e["dur"], 1),
                "args": {name: value for name, value in e["args"].items() if name in ARGUMENTS},
            }
            for e in some
        ],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    for file in sorted(options.folder.rglob("*.pt.trace.json")):
        target = options.target / file.relative_to(options.folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(reduced(json.loads(file.read_text()), options.steps), separators=(",", ":")))
