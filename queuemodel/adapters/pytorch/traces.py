"""Folders of rank files to a profile: each folder one run of the job, with its own number of ranks."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import structs
from tqdm import tqdm

from ...errors import DataError
from ...training import Cluster, Job, Profile, Source
from ...training.job import CongestionControl, given
from ...training.rounds import Gradient, Round
from ..runs import RankTrace, require_different, whole_run
from .chrome import read_rank

SUFFIXES = (".pt.trace.json", ".pt.trace.json.gz")

#: How much less or more than its gradients a step may send, and yet send these as they are.
SAME = 0.01


def is_trace(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder holds such files."""
    return Path(folder).is_dir() and any(path.name.endswith(SUFFIXES) for path in Path(folder).iterdir())


def read_traces(
    folders: Sequence[str | os.PathLike[str]],
    *,
    batch_size: int,
    name: str = "",
    bandwidth: float | None = None,
    dataset_size: int | None = None,
    congestion_control: CongestionControl | None = None,
    buffer: float | None = None,
    progress: bool = False,
) -> Profile:
    """Make a profile of data-parallel training from ``*.pt.trace.json[.gz]``, one file for each rank.

    One node's run tells the computation, two nodes' the network; the numbers of ranks are read from the files.

    Parameters
    ----------
    folders : sequence of paths
        One for each run of the job.
    batch_size : int
        Examples per step and rank.
    name : str
    bandwidth : float, optional
        Nominal bytes per second of each host's link.
    dataset_size : int, optional
        Examples per epoch.
    congestion_control : {"unknown", "cubic", "reno", "bbr"}, optional
        TCP's in the hosts, when known.
    buffer : float, optional
        Seconds that a packet waits at a full link, when known.
    progress : bool
        Show progress bars on standard error.

    Raises
    ------
    DataError
        When a folder has no such file, lacks a rank or has one twice, or the runs are not of one job.
    """
    runs = [_read_run(Path(folder), progress) for folder in folders]
    ranks = require_different(folders, runs)
    reduced = _gradient_bytes(max(runs, key=lambda run: run[0].ranks))
    runs = [_only_gradients(run, reduced) if run[0].ranks == 1 else run for run in runs]
    gradients = [_gradient_bytes(run) for run in runs]
    for folder, sizes in zip(folders, gradients, strict=True):
        if sizes != gradients[0]:
            raise DataError(
                f"{folder}: another job than {folders[0]}: {sum(sizes):,} bytes of gradients in {len(sizes)} tensors, "
                f"there {sum(gradients[0]):,} in {len(gradients[0])}"
            )
    backends = {trace.backend for run in runs for trace in run if trace.backend}
    return Profile(
        source=Source(framework="pytorch", method="torch-profiler", style="/".join(sorted(backends))),
        cluster=Cluster(
            workers=max(ranks), bandwidth=bandwidth, **given(congestion_control=congestion_control, buffer=buffer)
        ),
        job=Job(
            name=name,
            batch_size=batch_size,
            parameter_bytes=_parameter_bytes(runs) or sum(gradients[0]),
            tensors=len(gradients[0]),
            dataset_size=dataset_size,
        ),
        rounds=[_as_sent(one) for run in runs for trace in run for one in trace.rounds],
    )


def _read_run(folder: Path, progress: bool) -> list[RankTrace]:
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; give a folder of *.pt.trace.json files for each run")
    paths = sorted(p for p in folder.iterdir() if p.name.endswith(SUFFIXES) and not p.name.startswith("."))
    if not paths:
        raise DataError(f"{folder}: no *.pt.trace.json or *.pt.trace.json.gz in it")
    files = tqdm(paths, f"reading {folder.name}", unit="file", disable=not progress, leave=False)
    return whole_run(folder, _joined([read_rank(path) for path in files]))


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


def _parameter_bytes(runs: Sequence[Sequence[RankTrace]]) -> int:
    """What the buckets carry: gradients of inputs are none of it; 0 without buckets."""
    rounds = [one for run in runs for trace in run for one in trace.rounds if one.buckets]
    return sum(bucket.bytes for bucket in rounds[-1].buckets) if rounds else 0


def _only_gradients(run: Sequence[RankTrace], reduced: Sequence[int]) -> list[RankTrace]:
    """The last of each size that are reduced: one rank alone marks neither passes nor what is no parameter's."""

    def last(gradients: Sequence[Gradient]) -> list[Gradient]:
        missing, found = Counter(reduced), []
        for one in reversed(gradients):
            if missing[one.bytes]:
                missing[one.bytes] -= 1
                found.append(one)
        return list(gradients) if missing.total() else found[::-1]

    return [
        replace(trace, rounds=[structs.replace(one, gradients=last(one.gradients)) for one in trace.rounds])
        for trace in run
    ]


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
