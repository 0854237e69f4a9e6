"""Reading `RunMetadata`: what `session.run` with FULL_TRACE recorded of one step on every task."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from ...errors import DataError
from ...files import read_bytes
from ..events import TracedOperation, TracedStep, Transfer
from ._imports import require_tensorflow

# what gathering a FULL_TRACE adds to the pause between two steps (us), measured on loopback (docs/explanation/phases)
COLLECTION = 1200
COLLECTION_PER_EVENT = 4.5

TASK = re.compile(r"/job:(?P<job>[^/]+)(/replica:\d+)?/task:(?P<task>\d+)")
# "[1.8MB] [36.189743Mb/s] edge_31_fc6_0/read from /job:ps/... to /job:worker/..."; from 1 Gb/s on "[12.1Gb/s]"
RECEIVED = re.compile(
    r"\[(?P<size>[\d.]+)(?P<unit>M?B)\] \[(?P<rate>\S+)(?P<scale>[MG])b/s\] (edge_\d+_)?(?P<tensor>.+) "
    r"from (?P<source>\S+) to (?P<destination>\S+)"
)
# "[mklcpu 1.8MB 1.8MB] Fill_2 = Fill(Fill_2/dims, ^mul_2)"
OPERATION = re.compile(r"(\[.*?\] ?)?(?P<name>\S+) = (?P<op>\w+)\((?P<inputs>.*)\)")


def read_run_metadata(folder: str | os.PathLike[str]) -> list[TracedStep]:
    """
    Read a folder of binary `RunMetadata` protos, one per step, ``*.pb`` or ``*.pb.gz``, in the order of their names.

    Raises
    ------
    DataError
        One line that names the file and what is wrong with it.
    MissingDependencyError
        Without TensorFlow.
    """
    paths = sorted(p for p in Path(folder).glob("*") if p.name.endswith((".pb", ".pb.gz")) and ".xplane." not in p.name)
    if not paths:
        raise DataError(f"{folder}: no RunMetadata traces (*.pb or *.pb.gz) in this folder")
    return [decode_run_metadata(read_bytes(path), where=str(path)) for path in paths]


def decode_run_metadata(content: bytes, *, where: str = "RunMetadata") -> TracedStep:
    """Decode one binary `RunMetadata`; ``where`` names it in messages."""
    require_tensorflow()
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import config_pb2

    try:
        metadata = config_pb2.RunMetadata.FromString(content)
    except DecodeError as error:
        raise DataError(f"{where}: not a RunMetadata proto, or truncated: {error}") from None
    if not any(device.node_stats for device in metadata.step_stats.dev_stats):
        raise DataError(f"{where}: no operations recorded; trace with RunOptions(trace_level=FULL_TRACE)")
    return _traced(metadata.step_stats, where)


def _traced(step_stats: Any, where: str) -> TracedStep:
    operations: dict[TracedOperation, None] = {}  # in order, each once
    transfers: dict[tuple[str, Transfer], None] = {}
    for device in step_stats.dev_stats:
        match = TASK.match(device.device)
        if not match or "/stream:" in device.device or "memcpy" in device.device:
            continue  # a GPU's own streams: their kernels lie within the operations that launched them
        task = f"{match['job']}:{match['task']}"
        for node in device.node_stats:
            start = node.all_start_micros
            end = start + max(node.all_end_rel_micros, node.op_end_rel_micros)
            if start <= 0 or end < start:
                raise DataError(f"{where}: operation {node.node_name!r} of {task} has no valid times; trace again")
            if received := RECEIVED.fullmatch(node.timeline_label):
                source = TASK.match(received["source"])
                if source is None or (sender := f"{source['job']}:{source['task']}") == task:
                    continue
                transfer = Transfer(received["tensor"], sender, task, start, end, _bytes(node, received))
                transfers[node.timeline_label, transfer] = None
            elif labelled := OPERATION.fullmatch(node.timeline_label):
                inputs = tuple(
                    text.removeprefix("^").partition(":")[0] for text in labelled["inputs"].split(", ") if text
                )
                operations[TracedOperation(task, node.node_name, labelled["op"], inputs, start, end)] = None
            elif node.node_name == "RecvTensor":
                raise DataError(f"{where}: a RecvTensor event of {task} has an unknown label: {node.timeline_label!r}")
            elif node.node_name not in ("_SOURCE", "_SINK"):
                operations[TracedOperation(task, node.node_name, "", (), start, end)] = None
    collection = COLLECTION + COLLECTION_PER_EVENT * (len(operations) + len(transfers))
    return TracedStep(where, list(operations), [transfer for _, transfer in transfers], collection)


def _bytes(node: Any, received: re.Match[str]) -> int:
    """
    Payload of a RecvTensor event.

    The allocation that TensorFlow notes with it is exact; so are sizes below 0.1 MB in the label. Above, the label is
    rounded; up to 1 Gb/s its rate, 8 bytes over the duration, is printed with six decimals: as good as exact.
    """
    for output in node.output:
        return output.tensor_description.allocation_description.requested_bytes
    if received["unit"] == "B":
        return int(float(received["size"]))
    if received["scale"] == "M":
        return 4 * round(float(received["rate"]) * node.all_end_rel_micros / 32)
    return 4 * round(float(received["size"]) * 2**20 / 4)
