"""Reading `RunMetadata`: what `session.run` with FULL_TRACE recorded of one step on every task."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ...base.errors import DataError
from ...profile.records import MOST_BYTES
from ..events import TracedOperation, TracedStep, Transfer
from .protos import decode

# what gathering a FULL_TRACE adds to the pause between two steps (us), measured on loopback (docs/explanation/phases)
COLLECTION = 1200
COLLECTION_PER_EVENT = 4.5

TASK = re.compile(r"/job:(?P<job>[^/]+)(/replica:\d+)?/task:(?P<task>\d+)")
# "[1.8MB] [36.189743Mb/s] edge_31_fc6_0/read from /job:ps/... to /job:worker/..."; from 1 Gb/s on "[12.1Gb/s]"
RECEIVED = re.compile(
    r"\[(?P<size>\d+(?:\.\d+)?)(?P<unit>M?B)\] \[(?P<rate>\d+(?:\.\d+)?|inf)(?P<scale>[MG])b/s\] "
    r"(edge_\d+_)?(?P<tensor>.+) from (?P<source>\S+) to (?P<destination>\S+)"
)
# "[mklcpu 1.8MB 1.8MB] Fill_2 = Fill(Fill_2/dims, ^mul_2)"
OPERATION = re.compile(r"(\[.*?\] ?)?(?P<name>\S+) = (?P<op>\w+)\((?P<inputs>.*)\)")


def read_run_metadata(folder: Path, paths: Sequence[Path], *, progress: bool) -> list[TracedStep]:
    """Read binary `RunMetadata` protos, one per step."""
    if not paths:
        raise DataError(f"{folder}: no RunMetadata traces (*.pb or *.pb.gz) in this folder")
    return [_traced(path) for path in tqdm(paths, "reading", unit="file", disable=not progress, leave=False)]


def _traced(path: Path) -> TracedStep:
    devices = decode("RunMetadata", path).step_stats.dev_stats
    if not any(device.node_stats for device in devices):
        raise DataError(f"{path}: no operations recorded; trace with RunOptions(trace_level=FULL_TRACE)")
    operations: dict[TracedOperation, None] = {}  # in order, each once
    transfers: dict[tuple[str, Transfer], None] = {}
    for device in devices:
        task = task_of(device.device)
        if not task or "/stream:" in device.device or "memcpy" in device.device:
            continue  # a GPU's own streams: their kernels lie within the operations that launched them
        for node in device.node_stats:
            start = node.all_start_micros
            end = start + max(node.all_end_rel_micros, node.op_end_rel_micros)
            if start <= 0 or end < start:
                raise DataError(f"{path}: operation {node.node_name!r} of {task} has no valid times; trace again")
            if received := RECEIVED.fullmatch(node.timeline_label):
                sender, size = task_of(received["source"]), _bytes(node, received)
                if not sender:
                    raise DataError(f"{path}: a RecvTensor event of {task} comes from {received['source']!r}, no task")
                if not 0 <= size <= MOST_BYTES:
                    raise DataError(f"{path}: tensor {received['tensor']!r} has {size} bytes; trace again")
                if sender != task:
                    transfer = Transfer(received["tensor"], sender, task, start, end, size)
                    transfers[node.timeline_label, transfer] = None
            elif node.node_name == "RecvTensor":
                raise DataError(f"{path}: a RecvTensor event of {task} has an unknown label: {node.timeline_label!r}")
            elif labelled := OPERATION.fullmatch(node.timeline_label):
                names = [text.removeprefix("^").partition(":")[0] for text in labelled["inputs"].split(", ") if text]
                operations[TracedOperation(task, node.node_name, labelled["op"], tuple(names), start, end)] = None
            elif node.node_name not in ("_SOURCE", "_SINK"):
                operations[TracedOperation(task, node.node_name, "", (), start, end)] = None
    collection = COLLECTION + COLLECTION_PER_EVENT * (len(operations) + len(transfers))
    return TracedStep(str(path), list(operations), [transfer for _, transfer in transfers], collection)


def task_of(device: str) -> str:
    """The task, such as ``"ps:0"``, of a device; "" where it is none's."""
    match = TASK.match(device)
    return f"{match['job']}:{match['task']}" if match else ""


def _bytes(node: Any, received: re.Match[str]) -> int:
    """Payload of a RecvTensor event.

    The allocation that TensorFlow notes with it is exact; so are sizes below 0.1 MB in the label. Above, the label is
    rounded; up to 1 Gb/s its rate, 8 bytes over the duration, is printed with six decimals: as good as exact.
    """
    for output in node.output:
        return output.tensor_description.allocation_description.requested_bytes
    if received["unit"] == "B":
        return int(float(received["size"]))
    if received["scale"] == "M" and received["rate"] != "inf":
        return 4 * round(float(received["rate"]) * node.all_end_rel_micros / 32)
    return 4 * round(float(received["size"]) * 2**20 / 4)
