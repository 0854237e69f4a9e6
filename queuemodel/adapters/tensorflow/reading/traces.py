"""From a folder of recorded traces to a `Profile`."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace
from pathlib import Path

from ....checks import require_count
from ....errors import DataError, QueueModelWarning
from ....training.job import Cluster, CongestionControl, Job, Source, given
from ....training.operations import MOST_BYTES
from ....training.profile import Profile
from ...phases import derive
from .run_metadata import read_run_metadata
from .tensor_sizes import Noted
from .xplane import read_xplane

RUN_METADATA = (".pb", ".pb.gz")
XPLANE = (".xplane.pb", ".xplane.pb.gz")

#: Share of the steps that taking batches out of a data set may take without being told: of short ones it is 7 %.
MOST_INPUT = 0.1


def read_traces(
    folder: str | os.PathLike[str],
    *,
    batch_size: int,
    name: str = "",
    bandwidth: float | None = None,
    congestion_control: CongestionControl | None = None,
    buffer: float | None = None,
    dataset_size: int | None = None,
    parameter_bytes: int | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> Profile:
    """
    Read recorded traces of one worker and its parameter servers, all of one job.

    Parameters
    ----------
    folder : path
        Holds `RunMetadata` protos (``*.pb`` or ``*.pb.gz``, one per step), or is the log directory of `tf.profiler`
        (``*.xplane.pb``, one per task, in it or below it).
    batch_size : int
        Examples per step; traces do not tell.
    name : str
        Of the job.
    bandwidth : float, optional
        Nominal bytes per second of each host's link.
    congestion_control : {"unknown", "cubic", "reno", "bbr"}, optional
        TCP's in the hosts.
    buffer : float, optional
        Seconds that a packet waits at a full link.
    dataset_size : int, optional
        Examples per epoch.
    parameter_bytes : int, optional
        All parameters together; needed for ``*.xplane.pb``, which lack the sizes of small tensors.
    workers : int, optional
        How many trained while this one was traced; as many as the traces show unless given.
    progress : bool
        Show progress bars on standard error.

    Raises
    ------
    DataError
        One line that names the file and what is wrong with it.
    MissingDependencyError
        Without protobuf.

    Warns
    -----
    QueueModelWarning
        When steps wait for their data set.
    """
    if not Path(folder).is_dir():
        raise DataError(f"{folder}: not a folder of traces")
    if parameter_bytes is not None:
        require_count(parameter_bytes, "parameter_bytes", most=MOST_BYTES, error=DataError)
    profiler, sessions = xplane_files(folder), run_metadata_files(folder)
    if profiler and sessions:
        raise DataError(
            f"{folder}: holds RunMetadata ({sessions[0].name}) and tf.profiler's recordings ({profiler[0].name}); "
            "give each a folder of its own"
        )
    if profiler:
        method, style, noted = "xplane", "parameter-server-strategy", Noted.beside(folder)
        if parameter_bytes is not None:
            noted = replace(noted, parameter_bytes=parameter_bytes)
        parameter_bytes = noted.parameter_bytes
        steps = read_xplane(Path(folder), profiler, noted, progress=progress)
    else:
        method, style = "run-metadata", "graph"
        steps = read_run_metadata(Path(folder), sessions, progress=progress)
    derived = derive(steps, progress=progress)
    if derived.input > MOST_INPUT:
        warnings.warn(
            f"{folder}: {derived.input:.0%} of the steps is waiting for the data set, taken for computation: a faster "
            "accelerator would only wait longer, and workers that wait for servers meanwhile less; load more ahead, or "
            "with more threads, and trace again",
            QueueModelWarning,
            stacklevel=2,
        )
    if workers is not None:
        require_count(workers, "workers (the traces show so many)", least=derived.workers, error=DataError)
    return Profile(
        source=Source(framework="tensorflow", method=method, style=style),
        cluster=Cluster(
            workers=workers or derived.workers,
            parameter_servers=len(derived.servers),
            bandwidth=bandwidth,
            **given(congestion_control=congestion_control, buffer=buffer),
        ),
        job=Job(
            name=name,
            batch_size=batch_size,
            parameter_bytes=sum(derived.shard_bytes) if parameter_bytes is None else parameter_bytes,
            tensors=derived.tensors,
            dataset_size=dataset_size,
            shard_bytes=derived.shard_bytes,
        ),
        steps=derived.steps,
    )


def run_metadata_files(folder: str | os.PathLike[str]) -> list[Path]:
    """The `RunMetadata` files in a folder, in the order of their names; those of `tf.profiler` and hidden ones not."""
    paths = [p for p in Path(folder).glob("*") if p.name.endswith(RUN_METADATA) and not p.name.endswith(XPLANE)]
    return _each_once(folder, paths)


def xplane_files(folder: str | os.PathLike[str]) -> list[Path]:
    """The files of `tf.profiler` in a folder and below it; hidden ones not."""
    return _each_once(folder, [p for p in Path(folder).rglob("*") if p.name.endswith(XPLANE)])


def _each_once(folder: str | os.PathLike[str], paths: list[Path]) -> list[Path]:
    visible = sorted(p for p in paths if not any(part.startswith(".") for part in p.relative_to(folder).parts))
    for path in visible:
        if (packed := Path(f"{path}.gz")) in visible:
            raise DataError(f"{path}: the same recording as {packed.name} beside it; remove one of them")
    return visible
