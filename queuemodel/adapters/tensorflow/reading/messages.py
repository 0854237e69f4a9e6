"""
The messages in which TensorFlow records what it did, as far as they are read here.

So that reading needs neither TensorFlow nor the seconds that it takes to import, their fields are listed here, with the
names and numbers that they have in TensorFlow's ``step_stats.proto`` and ``xplane.proto`` (2.16 to 2.21); the
format keeps numbers for ever (Protocol Buffers, Updating A Message Type). What is not listed is passed over.
"""

from __future__ import annotations

import functools
from typing import Any

from ....errors import DataError
from ....extras import extra

#: Message to its fields: name, number, type; ``*`` stands before what is repeated, `value` behind what excludes others.
MESSAGES = {
    "RunMetadata": ("step_stats 1 StepStats",),
    "StepStats": ("dev_stats 1 *DeviceStepStats",),
    "DeviceStepStats": ("device 1 string", "node_stats 2 *NodeExecStats"),
    "NodeExecStats": (
        "node_name 1 string",
        "all_start_micros 2 int64",
        "op_end_rel_micros 4 int64",
        "all_end_rel_micros 5 int64",
        "output 7 *NodeOutput",
        "timeline_label 8 string",
    ),
    "NodeOutput": ("tensor_description 3 TensorDescription",),
    "TensorDescription": ("allocation_description 4 AllocationDescription",),
    "AllocationDescription": ("requested_bytes 1 int64",),
    "XSpace": ("planes 1 *XPlane",),
    "XPlane": (
        "name 2 string",
        "lines 3 *XLine",
        "event_metadata 4 *XEventName",
        "stat_metadata 5 *XStatName",
        "stats 6 *XStat",
    ),
    "XEventName": ("key 1 int64", "value 2 XEventMetadata"),
    "XEventMetadata": ("name 2 string",),
    "XStatName": ("key 1 int64", "value 2 XStatMetadata"),
    "XStatMetadata": ("name 2 string",),
    "XLine": ("id 1 int64", "timestamp_ns 3 int64", "events 4 *XEvent"),
    "XEvent": ("metadata_id 1 int64", "offset_ps 2 int64", "duration_ps 3 int64", "stats 4 *XStat"),
    "XStat": (
        "metadata_id 1 int64",
        "double_value 2 double value",
        "uint64_value 3 uint64 value",
        "int64_value 4 int64 value",
        "str_value 5 string value",
        "bytes_value 6 bytes value",
        "ref_value 7 uint64 value",
    ),
}


def decode(name: str, content: bytes, *, where: str) -> Any:
    """
    Decode a message; ``where`` names it in errors.

    Raises
    ------
    DataError
        When it is not such a message, or damaged.
    MissingDependencyError
        Without protobuf.
    """
    DecodeError = extra("google.protobuf.message", "traces", what=f"{where}: a trace of TensorFlow").DecodeError
    try:
        return _classes()[name].FromString(content)
    except DecodeError as error:
        raise DataError(f"{where}: no {name} proto, or truncated: {error}") from None


@functools.cache
def _classes() -> dict[str, Any]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    Field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="read.proto", package="read", syntax="proto3")
    for message, fields in MESSAGES.items():
        described = file.message_type.add(name=message)
        for name, number, kind, *exclusive in map(str.split, fields):
            field = described.field.add(name=name, number=int(number), label=Field.LABEL_OPTIONAL)
            if kind.startswith("*"):
                field.label = Field.LABEL_REPEATED
            if (kind := kind.removeprefix("*")) in MESSAGES:
                field.type, field.type_name = Field.TYPE_MESSAGE, f".read.{kind}"
            else:
                field.type = Field.Type.Value(f"TYPE_{kind.upper()}")
            if exclusive:
                field.oneof_index = 0
                if not described.oneof_decl:
                    described.oneof_decl.add(name=exclusive[0])
    pool = descriptor_pool.DescriptorPool()  # of our own, beside TensorFlow's where that is loaded as well
    pool.AddSerializedFile(file.SerializeToString())
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"read.{name}")) for name in MESSAGES}
