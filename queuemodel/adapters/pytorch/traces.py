"""Folders of rank files to a profile: each folder one run of the job, with its own number of ranks."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from msgspec import structs

from ...base.errors import DataError
from ...profile.job import Source
from ...profile.profile import Profile
from ...profile.records import Round
from ..runs import RankTrace, Told, profile_of_rounds, ranks_of, read_files, whole_run
from .chrome import read_rank

SUFFIXES = (".pt.trace.json", ".pt.trace.json.gz")

#: How much less or more than its gradients a step may send, and yet send these as they are.
SAME = 0.01


def read_traces(
    folders: Sequence[str | os.PathLike[str]], *, batch_size: int, progress: bool = False, **told: Unpack[Told]
) -> Profile:
    """Make a profile of data-parallel training from ``*.pt.trace.json[.gz]``, one file for each rank.

    Each folder is one run of the job: one node's tells the computation, two nodes' the network; the numbers of ranks
    are read from the files. ``batch_size`` counts examples per step and rank; what else traces do not tell may be given
    by its name in `Job` or `Cluster`: ``name``, ``dataset_size``, ``bandwidth``, ``congestion_control``, ``buffer``.
    Raises `DataError` when a folder has no such file, lacks a rank or has one twice, or the runs are not of one job.
    """
    runs = [_read_run(Path(folder), progress) for folder in folders]
    ranks_of(folders, runs)
    reduced = _gradient_bytes(max(runs, key=lambda run: run[0].ranks))
    runs = [_each(run, lambda one: _last(one, reduced)) if run[0].ranks == 1 else run for run in runs]
    gradients = [_gradient_bytes(run) for run in runs]
    for folder, sizes in zip(folders, gradients, strict=True):
        if sizes != gradients[0]:
            raise DataError(
                f"{folder}: another job than {folders[0]}: {sum(sizes):,} bytes of gradients in {len(sizes)} tensors, "
                f"there {sum(gradients[0]):,} in {len(gradients[0])}"
            )
    # what the buckets carry: gradients of inputs are none of it
    carried = [one.buckets for run in runs for trace in run for one in trace.rounds if one.buckets]
    size = sum(bucket.bytes for bucket in carried[-1]) if carried else sum(gradients[0])
    backends = {trace.backend for run in runs for trace in run if trace.backend}
    source = Source(framework="pytorch", method="torch-profiler", style="/".join(sorted(backends)))
    job = {"batch_size": batch_size, "parameter_bytes": size, "tensors": len(gradients[0])}
    return profile_of_rounds(source, [_each(run, _as_sent) for run in runs], job, told)


def _read_run(folder: Path, progress: bool) -> list[RankTrace]:
    paths = sorted(p for p in folder.glob("*") if p.name.endswith(SUFFIXES) and not p.name.startswith("."))
    return whole_run(folder, _joined(read_files(folder, paths, read_rank, names="*.pt.trace.json", progress=progress)))


def _joined(traces: Sequence[RankTrace]) -> list[RankTrace]:
    """One trace of each rank: a schedule that repeats writes a file each time, with other steps."""
    joined: dict[tuple[int, int], RankTrace] = {}
    for trace in traces:
        if before := joined.get((trace.rank, trace.ranks)):
            if {one.number for one in before.rounds} & {one.number for one in trace.rounds}:
                return list(traces)
            trace = replace(before, rounds=[*before.rounds, *trace.rounds])
        joined[trace.rank, trace.ranks] = trace
    return list(joined.values())


def _each(run: Sequence[RankTrace], change: Callable[[Round], Round]) -> list[RankTrace]:
    return [replace(trace, rounds=list(map(change, trace.rounds))) for trace in run]


def _last(one: Round, reduced: Sequence[int]) -> Round:
    """The last gradients of each size that are reduced: one rank alone marks neither passes nor what is none."""
    missing, found = Counter(reduced), []
    for gradient in reversed(one.gradients):
        if missing[gradient.bytes]:
            missing[gradient.bytes] -= 1
            found.append(gradient)
    return one if missing.total() else structs.replace(one, gradients=found[::-1])


def _as_sent(one: Round) -> Round:
    """Gradients with the bytes that are sent of them, where a hook casts or compresses them."""
    sent, made = (sum(part.bytes for part in parts) for parts in (one.buckets, one.gradients))
    if not sent or math.isclose(sent, made, rel_tol=SAME):
        return one
    return structs.replace(
        one, gradients=[structs.replace(g, bytes=max(1, round(g.bytes * sent / made))) for g in one.gradients]
    )


def _gradient_bytes(run: Sequence[RankTrace]) -> tuple[int, ...]:
    """Sizes of a step's gradients; the same in every step of every rank."""
    sizes = {tuple(sorted(g.bytes for g in one.gradients)) for trace in run for one in trace.rounds}
    if len(sizes) > 1:
        raise DataError(
            f"{run[0].where}: the steps have different gradients; only steps that all train the same parameters can be "
            "predicted"
        )
    (own,) = sizes
    if not own:
        raise DataError(f"{run[0].where}: no AccumulateGrad with sizes in it; record with record_shapes=True")
    return own
