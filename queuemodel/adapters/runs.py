"""Runs of a data-parallel job: what its ranks recorded of each, put together and checked."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import DataError
from ..training.rounds import Round

#: Share of a step that taking a batch out of the queue may take without being called waiting.
LEAST_WAIT = 0.02


@dataclass(frozen=True)
class RankTrace:
    """What one rank's file holds."""

    where: str
    rank: int
    ranks: int
    backend: str
    rounds: list[Round]


def whole_run(folder: Path, traces: Sequence[RankTrace]) -> list[RankTrace]:
    """The traces of all ranks, in their order, and of the rounds only those that all recorded.

    Raises
    ------
    DataError
        When a rank is missing or there twice, or no round is common to all.
    """
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


def require_different(folders: Sequence[object], runs: Sequence[Sequence[RankTrace]]) -> list[int]:
    """The number of ranks of each run; every run of a job must have another (raises DataError)."""
    ranks = [run[0].ranks for run in runs]
    if len(set(ranks)) < len(ranks):
        raise DataError(f"{folders[-1]}: each folder must be a run with another number of ranks, got {ranks}")
    return ranks
