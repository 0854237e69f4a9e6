"""One rank's Chrome trace of ``torch.profiler``: its steps as rounds.

Steps are ``ProfilerStep#i``. Buckets are handed over by ``c10d::allreduce_``; gloo runs them as ``gloo:all_reduce`` on
threads of its own, NCCL as kernels whose arguments name the collective, its elements and their type. PyTorch copies
these from the program's record of the collective, and not in every version: then that record is read, or the kernel's
name, as in the traces of pytorch/pytorch#131462 (2024).
"""

from __future__ import annotations

import gzip
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...errors import DataError
from ...files import read_bytes
from ...training.rounds import Bucket, Gradient, Round
from ..runs import RankTrace
from .accelerator import Work
from .events import Event

#: Bytes of an element, by its type's names in traces.
ELEMENT_BYTES = {
    "float": 4, "double": 8, "c10::half": 2, "half": 2, "c10::bfloat16": 2, "bfloat16": 2, "int": 4, "long int": 8,
    "long": 8, "short": 2, "char": 1, "byte": 1, "unsigned char": 1, "signed char": 1, "bool": 1,
    "c10::float8_e4m3fn": 1, "float8_e4m3fn": 1, "c10::float8_e5m2": 1, "float8_e5m2": 1,
}  # fmt: skip

#: What NCCL's process group records while it is handed an all-reduce, within `c10d::allreduce_`.
RECORDED = ("record_param_comms", "nccl:all_reduce")

#: What PyTorch writes of a process group that nobody described; it is no JSON.
NO_DESCRIPTION = b'"Process Group Description": ,'

MICROSECOND = 1e-6


class Trace(msgspec.Struct):
    """The file, as far as it is needed."""

    traceEvents: list[Event]
    distributedInfo: dict[str, Any] = {}


def read_rank(path: Path) -> RankTrace:
    """Read one rank's file.

    Raises
    ------
    DataError
        One line that says what the file lacks, or which event makes no sense.
    """
    trace = _decode(path)
    info = trace.distributedInfo
    rank, ranks = info.get("rank", 0), info.get("world_size", 1)
    if not (type(rank) is int and type(ranks) is int and 0 <= rank < ranks):
        raise DataError(f"{path}: distributedInfo must name a rank below its world_size, got {rank!r} of {ranks!r}")
    events = [event for event in trace.traceEvents if event.ph == "X" and event.dur >= 0]
    marks = (e for e in events if e.name.startswith("ProfilerStep#") and e.cat != "gpu_user_annotation")
    steps = sorted(marks, key=lambda e: e.ts)
    if not steps:
        raise DataError(f"{path}: no ProfilerStep#i in it; call profiler.step() after each step while recording")
    starts, work = [step.ts for step in steps], Work(events)
    inside: list[list[Event]] = [[] for _ in steps]
    for event in sorted(events, key=work.handed_over):
        moment = work.handed_over(event)
        index = bisect_right(starts, moment) - 1
        if index >= 0 and moment < steps[index].end:
            inside[index].append(event)
    try:
        rounds = [
            _round(step, span, own, work, rank, ranks, str(path))
            for step, span, own in zip(steps, work.steps(steps), inside, strict=True)
        ]
    except DataError as error:
        raise DataError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from None
    if ranks > 1 and not any(one.buckets for one in rounds):
        raise DataError(
            f"{path}: {ranks} ranks, but no all-reduce in any step; record DistributedDataParallel training"
        )
    return RankTrace(str(path), rank, ranks, str(info.get("backend", "")), rounds)


def _decode(path: Path) -> Trace:
    content = read_bytes(path)
    try:
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        content = content.replace(NO_DESCRIPTION, NO_DESCRIPTION.replace(b",", b'"",'))
        return msgspec.json.decode(content, type=Trace)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: not a whole gzip file: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not a Chrome trace of torch.profiler: {error}") from None


def _round(
    step: Event, span: tuple[float, float], events: list[Event], work: Work, rank: int, ranks: int, where: str
) -> Round:
    start, end = span

    def since(moment: float) -> float:
        return round(max(0.0, min(moment, end) - start) * MICROSECOND, 7)

    gradients = [
        Gradient(size, since(work.finished(event.end)))
        for event in events
        if event.name == "torch::autograd::AccumulateGrad"
        for size in [_bytes(event, where)]
        if size
    ]
    backward = [event.end for event in events if event.name.startswith("autograd::engine::evaluate_function")]
    if not backward:
        raise DataError(f"{where}: {step.name}: no backward pass in it; record training steps with CPU activity")
    buckets = _buckets(events, work, since, where) if ranks > 1 else []
    return Round(
        rank=rank,
        ranks=ranks,
        number=_number(step, where),
        round_time=since(end),
        computed=since(work.finished(max(backward))),
        gradients=sorted(gradients, key=lambda one: one.ready),
        buckets=buckets,
    )


def _number(step: Event, where: str) -> int:
    digits = step.name.removeprefix("ProfilerStep#")
    if not digits.isdecimal() or len(digits) > 12:
        raise DataError(f"{where}: step {step.name[:40]!r} must be ProfilerStep# and a number")
    return int(digits)


def _buckets(events: Sequence[Event], work: Work, since: Callable[[float], float], where: str) -> list[Bucket]:
    """All-reduces in the order in which they were handed over, each with the interval in which it ran."""
    handed = [event for event in events if event.name == "c10d::allreduce_"]
    ran = [event for event in events if _is_all_reduce(event)]
    if len(handed) != len(ran):
        raise DataError(
            f"{where}: {len(handed)} all-reduces were handed over in a step and {len(ran)} ran in it; "
            "record whole steps, with CPU (and CUDA) activity"
        )
    buckets = []
    for one, other in zip(handed, ran, strict=True):
        recorded = [event for event in events if event.name in RECORDED and one.ts <= event.ts <= one.end]
        size = next(filter(None, (_bytes(event, where) for event in (other, *recorded))), 0)
        ready = since(work.finished(one.ts))
        if not size:
            raise DataError(f"{where}: the size of {other.name!r} is not in it; record with record_shapes=True")
        buckets.append(Bucket(size, ready, since(other.ts), max(ready, since(other.end))))
    return buckets


def _is_all_reduce(event: Event) -> bool:
    if event.is_nccl:  # older traces say which collective it is by the kernel's name alone
        collective = event.args.get("Collective name")
        return collective == "allreduce" if collective else "allreduce" in event.name.lower()
    return event.name == "gloo:all_reduce"


def _bytes(event: Event, where: str) -> int:
    """Bytes of an event's first tensor (or list of tensors); 0 where it does not say."""
    elements, kinds = event.args.get("In msg nelems"), event.args.get("dtype")
    if elements is None:
        shapes, types = event.args.get("Input Dims") or [], event.args.get("Input type") or []
        first = shapes[0] if isinstance(shapes, list) and shapes else None
        if not isinstance(first, list):
            return 0
        tensors = first if first and isinstance(first[0], list) else [first]
        elements = sum(_product(shape) for shape in tensors)
        kinds = types[0] if isinstance(types, list) and types else None
    if type(elements) is not int or elements < 0:
        raise DataError(f"{where}: {event.name!r}: elements must be a whole number >= 0, got {elements!r}")
    if kinds in ("TensorList", "", None):
        return 0
    if not isinstance(kinds, str) or kinds.lower() not in ELEMENT_BYTES:
        raise DataError(f"{where}: {event.name!r}: the type {kinds!r} of its elements is not known")
    return elements * ELEMENT_BYTES[kinds.lower()]


def _product(shape: Iterable[Any]) -> int:
    count = 1
    for length in shape:
        if type(length) is not int or length < 0:
            return 0
        count *= length
    return count
