"""TensorFlow's recordings, read by protobuf only.

`MESSAGES` has names and numbers of ``step_stats.proto`` and ``xplane.proto`` (2.16 to 2.21), which never change.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ...base.checks import extra, require_count
from ...base.errors import DataError
from ...base.files import read_bytes
from ...profile.records import MOST_BYTES
from ..recordings import TracedOperation, TracedStep, Transfer, constant

RUN_METADATA = (".pb", ".pb.gz")
XPLANE = (".xplane.pb", ".xplane.pb.gz")

PROCESS = "ExecutorState::Process"
START, DONE = "ExecutorState::ProcessAsync::Start", "ExecutorState::ProcessAsync::Done"
ALLOCATION = "MemoryAllocation"
# "[1.8MB] [36.189743Mb/s] edge_31_fc6_0/read from /job:ps/... to /job:worker/..."; from 1 Gb/s on "[12.1Gb/s]"
RECEIVED_FIELD = re.compile(
    r"\[(?P<size>\d+(?:\.\d+)?)(?P<unit>M?B)\] \[(?P<rate>\d+(?:\.\d+)?|inf)(?P<scale>[MG])b/s\] "
    r"(edge_\d+_)?(?P<tensor>.+) from (?P<source>\S+) to (?P<destination>\S+)"
)
# "[mklcpu 1.8MB 1.8MB] Fill_2 = Fill(Fill_2/dims, ^mul_2)"
OPERATION = re.compile(r"(\[.*?\] ?)?(?P<name>\S+) = (?P<op>\w+)\((?P<inputs>.*)\)")
TASK = re.compile(r"/job:(?P<job>[^/]+)(/replica:\d+)?/task:(?P<task>\d+)")
KERNEL = re.compile(r"(?P<name>[\w.\-/]+):(?P<op>_?[A-Z]\w*)")

COLLECTION, COLLECTION_PER_EVENT = constant("collection"), constant("collection_per_event")

#: Message to its fields: name, number, type; ``*`` stands before what is repeated.
MESSAGES = {
    "RunMetadata": "step_stats 1 StepStats",
    "StepStats": "dev_stats 1 *DeviceStepStats",
    "DeviceStepStats": "device 1 string, node_stats 2 *NodeExecStats",
    "NodeExecStats": "node_name 1 string, all_start_micros 2 int64, op_end_rel_micros 4 int64,"
    "all_end_rel_micros 5 int64, output 7 *NodeOutput, timeline_label 8 string",
    "NodeOutput": "tensor_description 3 TensorDescription",
    "TensorDescription": "allocation_description 4 AllocationDescription",
    "AllocationDescription": "requested_bytes 1 int64",
    "XSpace": "planes 1 *XPlane",
    "XPlane": "name 2 string, lines 3 *XLine, event_metadata 4 *XName, stat_metadata 5 *XName, stats 6 *XStat",
    "XName": "key 1 int64, value 2 XMetadata",
    "XMetadata": "name 2 string",
    "XLine": "id 1 int64, timestamp_ns 3 int64, events 4 *XEvent",
    "XEvent": "metadata_id 1 int64, offset_ps 2 int64, duration_ps 3 int64, stats 4 *XStat",
    "XStat": "metadata_id 1 int64, uint64_value 3 uint64, int64_value 4 int64, str_value 5 string, ref_value 7 uint64",
}


def require_parameter_bytes(size: int | None) -> None:
    if size is not None:
        require_count(size, "parameter_bytes", most=MOST_BYTES, error=DataError)


def recorded_files(folder: str | os.PathLike[str], kind: tuple[str, ...]) -> list[Path]:
    """The `RUN_METADATA` files in a folder, or the `XPLANE` files in and below it, without hidden ones."""
    paths = Path(folder).rglob("*") if kind == XPLANE else Path(folder).glob("*")
    paths = (p for p in paths if p.name.endswith(kind) and p.name.endswith(XPLANE) == (kind == XPLANE))
    visible = sorted(p for p in paths if not any(part.startswith(".") for part in p.relative_to(folder).parts))
    for path in visible:
        if (packed := Path(f"{path}.gz")) in visible:
            raise DataError(f"{path}: the same recording as {packed.name} beside it; remove one of them")
    return visible


def decode(name: str, path: Path) -> Any:
    """A file's message (raises `DataError`, without protobuf `MissingDependencyError`)."""
    content = read_bytes(path)
    DecodeError = extra("google.protobuf.message", "traces", what=f"{path}: a trace of TensorFlow").DecodeError
    try:
        return _classes()[name].FromString(content)
    except DecodeError as error:
        raise DataError(f"{path}: no {name} proto, or truncated: {error}") from None


@functools.cache
def _classes() -> dict[str, Any]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    Field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="read.proto", package="read", syntax="proto3")
    for message, fields in MESSAGES.items():
        described = file.message_type.add(name=message)
        for name, number, kind in map(str.split, fields.split(",")):
            repeated, kind = kind.startswith("*"), kind.removeprefix("*")
            label = Field.LABEL_REPEATED if repeated else Field.LABEL_OPTIONAL
            field = described.field.add(name=name, number=int(number), label=label)
            if kind in MESSAGES:
                field.type, field.type_name = Field.TYPE_MESSAGE, f".read.{kind}"
            else:
                field.type = Field.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()  # apart from TensorFlow's, which may be loaded too
    pool.AddSerializedFile(file.SerializeToString())
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"read.{name}")) for name in MESSAGES}


class HostEvent(NamedTuple):
    """An event of a thread, from ``start`` to ``end`` (ns since 1970)."""

    start: int
    end: int
    thread: int
    name: str
    stats: dict[str, int | str]

    def text(self, key: str) -> str:
        """A stat; "" if it is absent or no text."""
        value = self.stats.get(key)
        return value if isinstance(value, str) else ""

    def number(self, key: str) -> int:
        """A stat; 0 if it is absent or no whole number."""
        value = self.stats.get(key)
        return value if isinstance(value, int) else 0


def read_events(path: Path, *, named: Callable[[str], object], marks: str = "") -> Iterator[HostEvent]:
    """The host's kernels, its events with such names, and those with the stat ``marks`` (raises `DataError`)."""
    planes = [(one, {stat.key: stat.value.name for stat in one.stat_metadata}) for one in decode("XSpace", path).planes]
    marked = (_stats(plane, text).get("profile_start_time") for plane, text in planes)
    began = max((moment for moment in marked if isinstance(moment, int)), default=0)
    for plane, text in planes:
        names = {event.key: event.value.name for event in plane.event_metadata}
        wanted = {key for key, name in names.items() if named(name) or KERNEL.fullmatch(name)}
        marking = {key for key, name in text.items() if name == marks}
        for line in plane.lines if plane.name.startswith("/host:CPU") else ():
            for event in line.events:
                if event.metadata_id in wanted or any(stat.metadata_id in marking for stat in event.stats):
                    start = line.timestamp_ns * 1000 + event.offset_ps  # since the recording began, or since 1970
                    absolute = start // 1000 + (began if line.timestamp_ns < began else 0)
                    end = absolute + max(event.duration_ps, 0) // 1000
                    yield HostEvent(absolute, end, line.id, names[event.metadata_id], _stats(event, text))


def _stats(of: Any, text: dict[int, str]) -> dict[str, int | str]:
    """Of an event or a plane, by name; ``text``: names, and values that are one of them."""
    return {
        text.get(s.metadata_id, ""): text.get(s.ref_value, "") if s.ref_value
        else s.str_value or s.int64_value or s.uint64_value
        for s in of.stats
    }  # fmt: skip


def read_run_metadata(path: Path) -> TracedStep:
    """A step as `session.run` with FULL_TRACE records it (raises `DataError`)."""
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
            if received := RECEIVED_FIELD.fullmatch(node.timeline_label):
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
    """A device's task, such as ``"ps:0"``, or ""."""
    match = TASK.match(device)
    return f"{match['job']}:{match['task']}" if match else ""


def _bytes(node: Any, received: re.Match[str]) -> int:
    """Payload of a RecvTensor event, by its allocation or, exact below 0.1 MB or 1 Gb/s, by its label."""
    for output in node.output:
        return output.tensor_description.allocation_description.requested_bytes
    if received["unit"] == "B":
        return int(float(received["size"]))
    if received["scale"] == "M" and received["rate"] != "inf":
        return 4 * round(float(received["rate"]) * node.all_end_rel_micros / 32)
    return 4 * round(float(received["size"]) * 2**20 / 4)
