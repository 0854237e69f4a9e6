"""Recordings of `MultiWorkerMirroredStrategy` to a profile: folders of ranks' files, each folder one run of the job."""

from __future__ import annotations

import os
from collections import ChainMap, Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from ....checks import require_count
from ....errors import DataError
from ....files import read_bytes
from ....training.job import Cluster, CongestionControl, Job, Source, given
from ....training.operations import MOST_BYTES
from ....training.profile import Profile
from ....training.rounds import Bucket, Gradient, Round
from ...bars import bar
from ...events import intersection, length
from ...runs import RankTrace, require_different, whole_run
from .folder import run_metadata_files, xplane_files
from .tensor_sizes import Noted
from .xplane_rounds import RankRecording, RankStep, read_rank

NANOSECOND = 1e-9


def is_mirrored(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder, or one below it, holds ``*.xplane.pb`` files with an all-reduce in them."""
    return Path(folder).is_dir() and any(b"CollectiveReduce" in read_bytes(path) for path in xplane_files(folder))


def read_mirrored(
    folders: Sequence[str | os.PathLike[str]],
    *,
    batch_size: int,
    name: str = "",
    bandwidth: float | None = None,
    dataset_size: int | None = None,
    congestion_control: CongestionControl | None = None,
    buffer: float | None = None,
    parameter_bytes: int | None = None,
    progress: bool = False,
) -> Profile:
    """Make a profile of data-parallel training from ``*.xplane.pb`` files, one for each rank, in or below a folder.

    One node's run tells the computation, two nodes' the network; the numbers of ranks are read from the files. Ranks
    are numbered in the order of the files' names.

    Parameters
    ----------
    folders : sequence of paths
        One for each run of the job.
    batch_size, name, bandwidth, dataset_size, congestion_control, buffer, progress
        As of `pytorch.read_traces`.
    parameter_bytes : int, optional
        All parameters together; needed where packs of gradients are too small for their sizes to be recorded in any run
        of as many packs. Such packs share what the others leave, in proportion to how long their reduction took.

    Raises
    ------
    DataError
        When a folder has no such file, lacks a rank, or does not tell the packs' sizes.
    MissingDependencyError
        Without protobuf.
    """
    if parameter_bytes is not None:
        require_count(parameter_bytes, "parameter_bytes", most=MOST_BYTES, error=DataError)
    recordings = [_recordings(Path(folder), progress) for folder in folders]
    reduced = [_reductions(one) for one in recordings]
    runs = []
    for folder, recorded, (times, _) in zip(folders, recordings, reduced, strict=True):
        same = ChainMap(*(sizes for others, sizes in reduced if others.keys() == times.keys()))  # packs of the same job
        runs.append(_run(Path(folder), recorded, _sizes(times, same, parameter_bytes, Path(folder))))
    ranks = require_different(folders, runs)
    if max(ranks) < 2:
        raise DataError(
            f"{folders[-1]}: no all-reduce among two ranks or more; record MultiWorkerMirroredStrategy on two nodes"
        )
    packs = [one.buckets for run in runs for trace in run for one in trace.rounds if one.buckets]
    return Profile(
        source=Source(framework="tensorflow", method="xplane", style="multi-worker-mirrored-strategy"),
        cluster=Cluster(
            workers=max(ranks), bandwidth=bandwidth, **given(congestion_control=congestion_control, buffer=buffer)
        ),
        job=Job(
            name=name,
            batch_size=batch_size,
            parameter_bytes=parameter_bytes or sum(pack.bytes for pack in packs[-1]),
            tensors=len(packs[-1]),  # what is not recorded: more
            dataset_size=dataset_size,
        ),
        rounds=[one for run in runs for trace in run for one in trace.rounds],
    )


def _recordings(folder: Path, progress: bool) -> list[RankRecording]:
    """A file of each rank."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; give a folder of *.xplane.pb files for each run")
    paths = xplane_files(folder)
    if not paths:
        servers = "; TensorFlow's RunMetadata are one folder: give only that" if run_metadata_files(folder) else ""
        raise DataError(f"{folder}: no *.xplane.pb or *.xplane.pb.gz in it{servers}")
    recordings = [read_rank(path) for path in bar(paths, f"reading {folder.name}", unit="file", show=progress)]
    ranks = _ranks(recordings)
    alone = ranks == 1 and any(step.reductions for one in recordings for step in one.steps)
    if len(recordings) != ranks or alone:
        known = "more" if alone else str(ranks)
        several = "; give each run a folder of its own" if len(recordings) > ranks else ""
        raise DataError(f"{folder}: a file of each rank is needed, got {len(recordings)} of {known}{several}")
    return recordings


def _ranks(recordings: Sequence[RankRecording]) -> int:
    return max(one.ranks for one in recordings)  # the group's size stands in the file of one rank


def _run(folder: Path, recordings: Sequence[RankRecording], sizes: Mapping[int, int]) -> list[RankTrace]:
    ranks = _ranks(recordings)
    traces = [
        RankTrace(str(one.path), rank, ranks, "ring", [_round(step, rank, ranks, sizes) for step in one.steps])
        for rank, one in enumerate(recordings)
    ]
    return whole_run(folder, traces)


def _reductions(recordings: Sequence[RankRecording]) -> tuple[dict[int, int], dict[int, int]]:
    """The least time of each reduction, by its key, and the bytes of those whose buffers were recorded."""
    seen: dict[int, Counter[int]] = defaultdict(Counter)
    times: dict[int, list[int]] = defaultdict(list)
    for together in zip(*(one.steps for one in recordings), strict=False):
        buffers: dict[int, list[int]] = defaultdict(list)
        for step in together:
            for one in step.reductions:
                buffers[one.key].append(one.buffers)
                times[one.key].append(one.end - one.begin)
        for key, found in buffers.items():
            if len(found) == len(recordings) and all(found):
                seen[key][sum(found) // (len(recordings) - 1)] += 1
    sizes = {key: counts.most_common(1)[0][0] for key, counts in seen.items()}
    return {key: min(took) for key, took in times.items()}, sizes


def _sizes(
    times: Mapping[int, int], recorded: Mapping[int, int], parameter_bytes: int | None, folder: Path
) -> dict[int, int]:
    """Bytes of each reduction, by its key: as recorded, of the others in proportion to their times."""
    sizes = {key: recorded[key] for key in times if key in recorded}
    unknown = {key: took for key, took in times.items() if key not in sizes}
    if not unknown:
        return sizes
    if parameter_bytes is None:
        parameter_bytes = Noted.beside(folder).parameter_bytes
    if parameter_bytes is None:
        raise DataError(
            f"{folder}: {len(unknown)} of {len(times)} packs are too small for their sizes to be recorded; "
            "give the parameters' bytes (--parameter-bytes)"
        )
    left = parameter_bytes - sum(sizes.values())
    if left < 0:  # none may be left for packs that hold a metric
        raise DataError(
            f"{folder}: parameter_bytes is {parameter_bytes:,}, but {len(sizes)} of {len(times)} packs have "
            f"{sum(sizes.values()):,} together; give the bytes of all trainable parameters"
        )
    whole = sum(unknown.values())
    return sizes | {key: max(1, round(left * time / whole)) for key, time in unknown.items()}


def _round(step: RankStep, rank: int, ranks: int, sizes: Mapping[int, int]) -> Round:
    def since(moment: int) -> float:
        waited = length(intersection(step.waits, [(step.start, moment)]))
        return round(max(0, min(moment, step.end) - step.start - waited) * NANOSECOND, 7)

    return Round(
        rank=rank,
        ranks=ranks,
        number=step.number,
        round_time=round((step.end - step.start) * NANOSECOND, 7),
        waited=round(length(step.waits) * NANOSECOND, 7),
        computed=since(step.computed),
        gradients=[Gradient(size, since(made)) for size, made in step.gradients],
        buckets=[Bucket(sizes[r.key], since(r.ready), since(r.begin), since(r.end)) for r in step.reductions]
        if ranks > 1
        else [],
    )
