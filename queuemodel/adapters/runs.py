"""From what readers found to a `Profile`; the runs of a data-parallel job, of what its ranks recorded."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from tqdm import tqdm

from ..base.errors import DataError
from ..profile.job import Cluster, Job, Source, specified_network
from ..profile.profile import Profile
from ..profile.records import Round
from .events import Interval, intersection, length

T = TypeVar("T")

#: Share of a step that taking a batch out of the queue may take without being called waiting.
LEAST_WAIT = 0.02


class Told(TypedDict, total=False):
    """What traces do not tell of a job and its cluster, as in `Job` and `Cluster`; each may be left out."""

    name: str
    bandwidth: float | None
    congestion_control: str | None
    buffer: float | None
    dataset_size: int | None


def described(cluster: dict[str, Any], job: dict[str, Any], told: Told) -> dict[str, Any]:
    """A profile's job and cluster: what was read of them, and what is told."""
    rest: dict[str, Any] = dict(told)
    network = specified_network(
        congestion_control=rest.pop("congestion_control", None), buffer=rest.pop("buffer", None)
    )
    return {
        "cluster": Cluster(bandwidth=rest.pop("bandwidth", None), **cluster, **network),
        "job": Job(**job, **rest),
    }


def by_step(events: Iterable[T], steps: Sequence[Interval], moment: Callable[[T], float]) -> list[list[T]]:
    """The events whose moment lies within each of the steps, which are in order."""
    starts, inside = [start for start, _ in steps], [list[T]() for _ in steps]
    for event in events:
        index = bisect_right(starts, moment(event)) - 1
        if index >= 0 and moment(event) < steps[index][1]:
            inside[index].append(event)
    return inside


class StepClock:
    """Seconds since a step began, without those in which it waited for input; ``unit``: of what is given, in s."""

    def __init__(self, start: float, end: float, waits: list[Interval], unit: float) -> None:
        self.start, self.end, self.unit = start, end, unit
        self.waits = waits if length(waits) >= LEAST_WAIT * (end - start) else []
        self.times = {
            "round_time": round((end - start) * unit, 7),
            "waited": round(length(self.waits) * unit, 7),
        }

    def since(self, moment: float) -> float:
        """Seconds from the start until then, or until the end."""
        waited = length(intersection(self.waits, [(self.start, moment)]))
        return round(max(0.0, min(moment, self.end) - self.start - waited) * self.unit, 7)


@dataclass(frozen=True)
class RankTrace:
    """What one rank's file holds."""

    where: str
    rank: int
    ranks: int
    backend: str
    rounds: list[Round]


def read_files(
    folder: Path, paths: Sequence[Path], read: Callable[[Path], T], *, names: str, progress: bool
) -> list[T]:
    """What is in each file of a run (raises DataError)."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; give a folder of {names} files for each run")
    if not paths:
        raise DataError(f"{folder}: no {names} or {names}.gz in it")
    return [
        read(path) for path in tqdm(paths, f"reading {folder.name}", unit="file", disable=not progress, leave=False)
    ]


def whole_run(folder: Path, traces: Sequence[RankTrace]) -> list[RankTrace]:
    """The traces of all ranks, in their order, and of the rounds only those that all recorded (raises DataError)."""
    traces = sorted(traces, key=lambda trace: trace.rank)
    for one, other in itertools.pairwise(traces):
        if one.rank == other.rank:
            raise DataError(
                f"{other.where}: rank {other.rank} again, as in {one.where}; give each run a folder, without copies"
            )
    if [trace.rank for trace in traces] != list(range(traces[0].ranks)) or len({t.ranks for t in traces}) > 1:
        present = ", ".join(str(trace.rank) for trace in traces)
        raise DataError(f"{folder}: the files of all {traces[0].ranks} ranks are needed, got those of {present}")
    numbers = set.intersection(*({one.number for one in trace.rounds} for trace in traces))
    if not numbers:
        raise DataError(f"{folder}: the ranks recorded no step in common")
    return [replace(trace, rounds=[one for one in trace.rounds if one.number in numbers]) for trace in traces]


def ranks_of(folders: Sequence[object], runs: Sequence[Sequence[RankTrace]]) -> int:
    """The most ranks of a run; every run of a job must have another number (raises DataError)."""
    ranks = [run[0].ranks for run in runs]
    if len(set(ranks)) < len(ranks):
        raise DataError(f"{folders[-1]}: each folder must be a run with another number of ranks, got {ranks}")
    return max(ranks)


def profile_of_rounds(source: Source, runs: Sequence[Sequence[RankTrace]], job: dict[str, Any], told: Told) -> Profile:
    """A data-parallel job's profile."""
    rounds = [one for run in runs for trace in run for one in trace.rounds]
    cluster = {"workers": max(one.ranks for one in rounds)}
    return Profile(source=source, rounds=rounds, **described(cluster, job, told))
