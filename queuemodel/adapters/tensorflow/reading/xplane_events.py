"""The events in an ``*.xplane.pb`` file that say something about a step, on one clock."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ....files import read_bytes
from .messages import decode

PROCESS = "ExecutorState::Process"
START, DONE = "ExecutorState::ProcessAsync::Start", "ExecutorState::ProcessAsync::Done"
ALLOCATION = "MemoryAllocation"
KERNEL = re.compile(r"(?P<name>[\w.\-/]+):(?P<op>_?[A-Z]\w*)")


class Event(NamedTuple):
    """What a thread did from ``start`` to ``end`` (ns since 1970)."""

    start: int
    end: int
    thread: int
    name: str
    stats: dict[str, Any]

    def text(self, key: str) -> str:
        """A stat that is a text; "" where it is absent or something else."""
        value = self.stats.get(key)
        return value if isinstance(value, str) else ""

    def number(self, key: str) -> int:
        """A stat that is a whole number; 0 where it is absent or something else."""
        value = self.stats.get(key)
        return value if isinstance(value, int) else 0


def read_events(
    path: Path,
    *,
    named: Callable[[str], object] = {PROCESS, START, DONE, ALLOCATION}.__contains__,
    marks: str = "",
) -> Iterator[Event]:
    """The host's kernels, events that are ``named`` so, and those with the stat ``marks``.

    Raises `DataError` for what is no such file.
    """
    space = decode("XSpace", read_bytes(path), where=str(path))
    began = 0
    for plane in space.planes:
        stat_names = {stat.key: stat.value.name for stat in plane.stat_metadata}
        for stat in plane.stats:
            if stat_names.get(stat.metadata_id) == "profile_start_time":
                began = stat.uint64_value or stat.int64_value
    for plane in space.planes:
        if plane.name.startswith("/host:CPU"):
            yield from _of_plane(plane, began, named, marks)


def _of_plane(plane: Any, began: int, named: Callable[[str], object], marks: str) -> Iterator[Event]:
    stat_names = {stat.key: stat.value.name for stat in plane.stat_metadata}
    names = {event.key: event.value.name for event in plane.event_metadata}
    wanted = {key for key, name in names.items() if named(name) or KERNEL.fullmatch(name)}
    marking = {key for key, name in stat_names.items() if name == marks}

    def value(stat: Any) -> Any:
        kind = stat.WhichOneof("value")
        return stat_names.get(stat.ref_value, "") if kind == "ref_value" else kind and getattr(stat, kind)

    for line in plane.lines:
        for event in line.events:
            if event.metadata_id in wanted or any(stat.metadata_id in marking for stat in event.stats):
                start = line.timestamp_ns * 1000 + event.offset_ps  # since the recording began, or since 1970
                absolute = start // 1000 + (began if line.timestamp_ns < began else 0)
                yield Event(
                    absolute,
                    absolute + max(event.duration_ps, 0) // 1000,
                    line.id,
                    names[event.metadata_id],
                    {stat_names.get(stat.metadata_id, ""): value(stat) for stat in event.stats},
                )
