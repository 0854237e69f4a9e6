"""What readers of traces hand over: steps of one worker and its servers, or ranks' rounds; and a `Profile` of these.

No file format, no framework; and the arithmetic of intervals that all readers share.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from tqdm import tqdm

from ..base.errors import DataError
from ..base.files import constants
from ..base.results import counted
from ..profile.job import Cluster, Job, Source, specified_network
from ..profile.profile import Profile
from ..profile.records import Round

Item = TypeVar("Item")
Interval = tuple[float, float]

#: A received tensor's name, as an operation's input.
RECEIVED = re.compile(r"(?P<tensor>.+?)(_S\d+|/_\d+)$")


#: A number of ``constants.toml``, by its name.
constant: Callable[[str], Any] = constants(__package__).__getitem__
LEAST_WAIT = constant("least_wait")


@dataclass(frozen=True, slots=True)
class TracedOperation:
    """One operation of the graph, executed on ``task`` (``"worker:0"``) from ``start`` to ``end``."""

    task: str
    name: str
    op: str
    inputs: tuple[str, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """A tensor sent from one task to another; ``start`` is by the sender's clock, all else by the receiver's."""

    tensor: str
    source: str
    destination: str
    start: int
    end: int
    bytes: int
    requested: int | None = None  # without it, start is max(request, sending), at most 1 us before the end (RecvTensor)


@dataclass(frozen=True)
class TracedStep:
    """The recorded events of one step; ``where`` names the file in messages."""

    where: str
    operations: list[TracedOperation]
    transfers: list[Transfer]
    collection: float = 0  # how long the recorder may have held up the next step (us)
    workers: frozenset[str] = frozenset()  # that trained meanwhile, whether or not their steps were recorded

    @property
    def ends(self) -> set[str]:
        """Tasks that send or receive."""
        return {task for t in self.transfers for task in (t.source, t.destination)}

    @property
    def span(self) -> tuple[int, int]:
        events: list[TracedOperation | Transfer] = [*self.operations, *self.transfers]
        return min(e.start for e in events), max(e.end for e in events)


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The points covered by any of ``intervals``: sorted and disjoint."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def clipped(intervals: Iterable[Interval], start: float, end: float) -> list[Interval]:
    """The points of a union between two moments."""
    parts = ((max(begins, start), min(ends, end)) for begins, ends in intervals)
    return [(begins, ends) for begins, ends in parts if begins < ends]


def length(intervals: Iterable[Interval]) -> float:
    """Total length of a union."""
    return sum(end - start for start, end in intervals)


def by_step(events: Iterable[Item], steps: Sequence[Interval], moment: Callable[[Item], float]) -> list[list[Item]]:
    """The events whose moment lies within each of the steps, which are in order."""
    starts, inside = [start for start, _ in steps], [list[Item]() for _ in steps]
    for event in events:
        index = bisect_right(starts, moment(event)) - 1
        if index >= 0 and moment(event) < steps[index][1]:
            inside[index].append(event)
    return inside


class StepClock:
    """Seconds since a step began, without those in which it waited for input; ``unit``: of its arguments, in s."""

    def __init__(self, start: float, end: float, waits: list[Interval], unit: float) -> None:
        self.start, self.end, self.unit = start, end, unit
        self.waits = waits if length(waits) >= LEAST_WAIT * (end - start) else []
        self.round_time, self.waited = (round(time * unit, 7) for time in (end - start, length(self.waits)))

    def since(self, moment: float) -> float:
        """Seconds from the start until then, or until the end."""
        waited = length(clipped(self.waits, self.start, moment))
        return round(max(0.0, min(moment, self.end) - self.start - waited) * self.unit, 7)

    def round(self, **known: Any) -> Round:
        return Round(round_time=self.round_time, waited=self.waited, **known)


class Unrecorded(TypedDict, total=False):
    """Fields of `Job` and `Cluster` that no trace records; each may be left out."""

    name: str
    bandwidth: float | None
    congestion_control: str | None
    buffer: float | None
    dataset_size: int | None


def job_and_cluster(job: dict[str, Any], cluster: dict[str, Any], unrecorded: Unrecorded) -> dict[str, Any]:
    """A profile's job and cluster, of what was recorded of them and what was not."""
    rest: dict[str, Any] = dict(unrecorded)
    link = {name: rest.pop(name, None) for name in ("congestion_control", "buffer")}
    cluster = {"bandwidth": rest.pop("bandwidth", None), **cluster, **specified_network(**link)}
    return {"job": Job(**job, **rest), "cluster": Cluster(**cluster)}


def read_files(
    folder: Path, paths: Sequence[Path], read: Callable[[Path], Item], *, names: str = "", progress: bool
) -> list[Item]:
    """What ``read`` makes of each file; with ``names`` refuses a run without files (raises DataError)."""
    if names and not folder.is_dir():
        raise DataError(f"{folder}: no such folder; give a folder of {names} files for each run")
    if names and not paths:
        raise DataError(f"{folder}: no {names} or {names}.gz in it")
    label = f"reading {folder.name}" if names else "reading"
    return [read(path) for path in tqdm(paths, label, unit="file", disable=not progress, leave=False)]


@dataclass(frozen=True)
class RankTrace:
    """What one rank's file holds."""

    where: str
    rank: int
    ranks: int
    backend: str
    rounds: list[Round]
    tensors: int = 0  # How many gradients a round has, also where their sizes are not known
    sent: int = 0  # Bytes of gradients that it hands over, where not recorded otherwise
    ignored: Mapping[str, int] = field(default_factory=dict)  # How much of what was passed over
    members: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # Ranks of its process groups
    divided: bool = False  # Whether there are groups of fewer ranks


def whole_run(folder: Path, traces: Sequence[RankTrace]) -> list[RankTrace]:
    """The traces of a run's ranks, in their order, and of the rounds those that all recorded (raises DataError)."""
    traces = sorted(traces, key=lambda trace: trace.rank)
    for a, b in itertools.pairwise(traces):
        if a.rank == b.rank:
            raise DataError(f"{b.where}: rank {b.rank} again, as in {a.where}; give each run a folder, without copies")
        if a.ranks != b.ranks:
            raise DataError(f"{b.where}: one of {b.ranks} ranks, and {a.where} of {a.ranks}; give each run a folder")
    numbers = set.intersection(*({one.number for one in trace.rounds} for trace in traces))
    if not numbers:
        raise DataError(f"{folder}: the ranks recorded no step in common")
    return [replace(trace, rounds=[one for one in trace.rounds if one.number in numbers]) for trace in traces]


def recorded(run: Sequence[RankTrace]) -> str:
    """What is used of a run, in words."""
    ranks = ", ".join(str(trace.rank) for trace in run)
    some = f"{'rank' if len(run) == 1 else 'ranks'} {ranks} of {run[0].ranks}"
    whose = f"all {counted(run[0].ranks, 'rank')}" if len(run) == run[0].ranks else some
    return f"{counted(len(run[0].rounds), 'step')} of {whose}"


def ranks_of(folders: Sequence[object], runs: Sequence[Sequence[RankTrace]]) -> int:
    """The most ranks of a run; every run of a job must have another number (raises DataError)."""
    ranks = [run[0].ranks for run in runs]
    if len(set(ranks)) < len(ranks):
        raise DataError(f"{folders[-1]}: each folder must be a run with another number of ranks, got {ranks}")
    return max(ranks)


def profile_of_rounds(
    source: Source, runs: Sequence[Sequence[RankTrace]], job: dict[str, Any], unrecorded: Unrecorded
) -> Profile:
    """A data-parallel job's profile."""
    rounds = [one for run in runs for trace in run for one in trace.rounds]
    cluster = {"workers": max(one.ranks for one in rounds)}
    return Profile(source=source, rounds=rounds, **job_and_cluster(job, cluster, unrecorded))
