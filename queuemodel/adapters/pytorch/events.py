"""The events of a trace of ``torch.profiler``, what an accelerator did of them when, and what ranks did together.

An accelerator computes behind the program: kernels carry the ``correlation`` of the call that launched them, and a
stream runs them in the order of their calls. A collective is what ran: a kernel of NCCL, or gloo's event on a thread of
its own. Of which kind it was, among how many ranks and how large, the kernel's own arguments say, else the program's
records around its launch (``record_param_comms``, ``nccl:*``, ``c10d::*``) and their shapes; each of them is missing in
some version of PyTorch (pytorch/pytorch#131462, 2024). A kernel's name is the least
certain: some builds of NCCL run all by one.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import msgspec
from msgspec import field

from ...base.errors import DataError
from ...base.files import read_bytes
from ...base.recognition import TRACE, mistaken
from ..recordings import LEAST_WAIT

#: Bytes of an element, by its type's names in traces, without ``c10::``.
ELEMENT_BYTES = {
    "float": 4, "double": 8, "half": 2, "bfloat16": 2, "int": 4, "long int": 8, "long": 8, "short": 2, "char": 1,
    "byte": 1, "unsigned char": 1, "signed char": 1, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip

NO_TENSOR = ("TensorList", "Scalar", "", None)  # types of arguments that have no shape, or whose shapes are left out

RECORDS = ("c10d::", "nccl:", "record_param_comms")  # of the program, within which a collective is launched
KIND = re.compile(
    r"all_?reduce|reduce_?scatter|all_?gather|all_?to_?all|broadcast|send_?recv|reduce|gather|scatter", re.I
)
NO_DESCRIPTION = b'"Process Group Description": ,'  # what PyTorch writes without one; it is no JSON
DONE_THERE = ("kernel", "gpu_memcpy", "gpu_memset")
#: Categories of PyTorch 1.9 to 1.11, by which they are now.
CATEGORIES = {"Kernel": "kernel", "Memcpy": "gpu_memcpy", "Memset": "gpu_memset", "Runtime": "cuda_runtime"}

REDUCED, ALL_REDUCE, REDUCED_BY_GLOO = "allreduce", "c10d::allreduce_", "gloo:all_reduce"


class Arguments(msgspec.Struct, frozen=True):
    """Of an event, as far as they are needed; None where it has none."""

    correlation: Any = None
    device: Any = None
    stream: Any = None
    collective: Any = field(name="Collective name", default=None)
    elements: Any = field(name="In msg nelems", default=None)
    kind: Any = field(name="dtype", default=None)
    group: Any = field(name="Group size", default=None)
    group_name: Any = field(name="Process Group Name", default=None)
    members: Any = field(name="Process Group Ranks", default=None)
    shapes: Any = field(name="Input Dims", default=None)
    kinds: Any = field(name="Input type", default=None)


class TraceEvent(msgspec.Struct):
    """A complete event of the trace (microseconds); other kinds have no ``dur``."""

    name: str = ""
    ph: str = ""
    ts: float = 0.0
    dur: float = -1.0
    cat: str = ""
    args: Arguments = Arguments()

    @property
    def end(self) -> float:
        return self.ts + self.dur

    @property
    def correlation(self) -> int:
        """Number of the call that launched it, or of itself as a call; 0 without."""
        number = self.args.correlation
        return number if type(number) is int else 0

    @property
    def stream(self) -> str:
        """Of which device, where the accelerator works."""
        return f"{self.args.device}/{self.args.stream}"

    @property
    def is_nccl(self) -> bool:
        """Whether it communicates among accelerators."""
        return self.cat == "kernel" and "nccl" in self.name.lower()

    @property
    def members(self) -> tuple[int, ...]:
        """Ranks of a collective's group; none where they are not recorded, or shortened."""
        text = str(self.args.members or "")
        return tuple(map(int, re.findall(r"\d+", text))) if "..." not in text else ()

    @property
    def kind(self) -> str:
        """Type of what a collective is given, or of the first tensor, as PyTorch calls it; "" if unknown."""
        kinds = self.args.kinds
        first = kinds[0] if isinstance(kinds, list) and kinds else None
        kind = first if self.args.elements is None else self.args.kind
        return "" if kind in NO_TENSOR else str(kind)

    @property
    def elements(self) -> int:
        """Of what a collective is given, or of the first tensor (or list of tensors); 0 if unknown."""
        if (elements := self.args.elements) is not None:
            if type(elements) is not int or elements < 0:
                raise DataError(f"{self.name!r}: elements must be a whole number >= 0, got {elements!r}")
            return elements
        shapes = self.args.shapes
        first = shapes[0] if isinstance(shapes, list) and shapes else None
        if not isinstance(first, list) or not (first or self.kind):
            return 0
        several = first if first and isinstance(first[0], list) else [first]
        return sum(math.prod(shape) for shape in several if all(type(n) is int and n >= 0 for n in shape))

    @property
    def bytes(self) -> int:
        """Of these elements; 0 if their number or type is unknown."""
        if not (self.elements and self.kind):
            return 0
        size = ELEMENT_BYTES.get(self.kind.lower().removeprefix("c10::"))
        if size is None:
            raise DataError(f"{self.name!r}: the type {self.kind!r} of its elements is not known")
        return self.elements * size


class Trace(msgspec.Struct):
    """The file, as far as it is needed."""

    traceEvents: list[TraceEvent]
    distributedInfo: dict[str, Any] = {}


def read_trace(path: Path) -> tuple[list[TraceEvent], dict[str, Any]]:
    """The program's and the accelerator's events, and what the file records of the group (raises DataError)."""
    content = read_bytes(path).replace(NO_DESCRIPTION, NO_DESCRIPTION.replace(b",", b'"",'))
    try:
        trace = msgspec.json.decode(content, type=Trace)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: {mistaken(content, TRACE) or f'not a trace of torch.profiler: {error}'}") from None
    events = [e for e in trace.traceEvents if e.ph == "X" and e.dur >= 0 and e.cat != "gpu_user_annotation"]
    for event in events:
        event.cat = CATEGORIES.get(event.cat, event.cat)
    return events, trace.distributedInfo


class AcceleratorWork:
    """What a trace's events did, by the clock of the program (all in microseconds)."""

    def __init__(self, events: Sequence[TraceEvent]) -> None:
        calls = {e.correlation: e.ts for e in events if e.correlation and e.cat.endswith(("runtime", "driver"))}
        there = sorted((event for event in events if event.cat in DONE_THERE), key=lambda event: event.ts)
        self.launches: dict[int, float] = {}
        before: dict[str, float] = {}  # the last launch on each stream
        for event in there if calls else ():
            before[event.stream] = calls.get(event.correlation, before.get(event.stream, -math.inf))
            self.launches[id(event)] = before[event.stream]
        self.computing = sorted((event for event in there if not event.is_nccl), key=self.handed_over)
        self.launched = [self.handed_over(event) for event in self.computing]
        self.busy = defaultdict[str, float](float)  # by stream
        for event in self.computing:
            self.busy[event.stream] += event.dur
        most = max(self.busy, key=self.busy.__getitem__, default="")
        self.main = [event for event in self.computing if event.stream == most]
        self.done = list(accumulate((event.end for event in self.computing), max))

    def handed_over(self, event: TraceEvent) -> float:
        """When the program came to it: a kernel's launch, and the beginning of anything else.

        A kernel whose call is not recorded was launched after the one before it on its stream; without one, before the
        recording.
        """
        return self.launches.get(id(event), event.ts)

    def finished(self, moment: float) -> float:
        """When all was done that the program had done or launched by then."""
        count = bisect_right(self.launched, moment)
        return max(moment, self.done[count - 1]) if count else moment

    def steps(self, marks: Sequence[TraceEvent]) -> list[tuple[float, float]]:
        """Start and end of each step where it is computed: with an accelerator, from its first kernel to the next's.

        Where copies of batches run far ahead on a stream of their own, it begins when the one before is done on the one
        that computes most.
        """
        if not self.computing:
            return [(mark.ts, mark.end) for mark in marks]
        starts, launched = [], [self.handed_over(event) for event in self.main]
        for mark in marks:
            first, before = bisect_left(self.launched, mark.ts), bisect_left(launched, mark.ts)
            own = first < len(self.launched) and self.launched[first] < mark.end
            begun = self.computing[first].ts if own else self.finished(mark.ts)
            done = self.main[before - 1].end if before else begun
            starts.append(max(mark.ts, done if done - begun > LEAST_WAIT * mark.dur else begun))
        last = max(starts[-1], self.finished(marks[-1].end))
        return list(pairwise([*starts, last]))


class Collective:
    """What ranks did together: what ran, and the program's records around its launch, from the innermost."""

    def __init__(self, ran: TraceEvent, records: Sequence[TraceEvent]) -> None:
        self.ran, self.records, self.sources = ran, records, [ran, *records]
        self.handed = min(event.ts for event in records or [ran])
        names = [*(one.args.collective for one in self.sources), *(one.name for one in [*records, ran])]
        kinds = [found[0].lower().replace("_", "") for name in names if (found := KIND.search(str(name or "")))]
        self.kind = "barrier" if any("barrier" in str(name) for name in names) else next(iter(kinds), "collective")
        self.group = next((event.args.group for event in self.sources if event.args.group), None)
        self.group_name = str(next((event.args.group_name for event in self.sources if event.args.group_name), ""))
        self.members = next((ranks for event in self.sources if (ranks := event.members)), ())
        self.name = next((one.name for one in reversed(records) if one.name != RECORDS[-1]), ran.name)
        self.elements = next((n for event in self.sources if (n := event.elements)), 0)

    @property
    def bytes(self) -> int:
        """0 if unknown."""
        return next((size for event in self.sources if (size := event.bytes)), 0)


def collectives(events: Sequence[TraceEvent], work: AcceleratorWork) -> Iterator[Collective]:
    """Each that ran, and what the program recorded of others, of events in the order in which the program came to them.

    Gloo's threads may begin the later of two all-reduces first.
    """
    around, launched, inside = list[TraceEvent](), set[int](), defaultdict[int, list[TraceEvent]](list)
    for event in events:
        if event.is_nccl:
            launch = work.handed_over(event)
            records = [record for record in reversed(around) if launch <= record.end]
            launched.update(map(id, records))
            yield Collective(event, records)
        elif event.name.startswith(RECORDS):
            around = [*(record for record in around if event.ts <= record.end), event]
            for record in around:
                inside[id(record)].insert(0, event)
    scattered = [event for event in events if event.name == REDUCED_BY_GLOO]
    for event in events:
        if event.name.startswith(RECORDS[0]) and id(event) not in launched:
            left = scattered if event.name == ALL_REDUCE else []
            ran = next((one for one in left if one.elements == event.elements), left[0] if left else event)
            scattered = [one for one in scattered if one is not ran]
            yield Collective(ran, inside[id(event)])
