"""From a folder of recorded traces to a `Profile`."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Unpack

from ...base.checks import require_count
from ...base.errors import DataError, QueueModelWarning
from ...profile.job import Source
from ...profile.profile import Profile
from ...profile.records import MOST_BYTES
from ..phases import derive
from ..runs import Told, described
from .run_metadata import read_run_metadata
from .xplane import read_xplane

RUN_METADATA = (".pb", ".pb.gz")
XPLANE = (".xplane.pb", ".xplane.pb.gz")

#: Share of the steps that taking batches out of a data set may take without being told: of short ones it is 7 %.
MOST_INPUT = 0.1


def read_traces(
    folder: str | os.PathLike[str],
    *,
    batch_size: int,
    parameter_bytes: int | None = None,
    workers: int | None = None,
    progress: bool = False,
    **told: Unpack[Told],
) -> Profile:
    """Read recorded traces of one worker and its parameter servers, all of one job (raises DataError).

    The folder holds `RunMetadata` protos (``*.pb`` or ``*.pb.gz``, one per step), or is the log directory of
    `tf.profiler` (``*.xplane.pb``, one per task, in it or below it). These lack the sizes of small tensors and need
    ``parameter_bytes``, of all parameters together. ``workers`` trained while this one was traced; as many as the
    traces show unless given. What else traces do not tell may be given by its name in `Job` or `Cluster`: ``name``,
    ``dataset_size``, ``bandwidth``, ``congestion_control``, ``buffer``. Warns when steps wait for their data set.
    """
    if not Path(folder).is_dir():
        raise DataError(f"{folder}: not a folder of traces")
    require_parameter_bytes(parameter_bytes)
    profiler, sessions = xplane_files(folder), run_metadata_files(folder)
    if profiler and sessions:
        raise DataError(
            f"{folder}: holds RunMetadata ({sessions[0].name}) and tf.profiler's recordings ({profiler[0].name}); "
            "give each a folder of its own"
        )
    if profiler:
        method, style = "xplane", "parameter-server-strategy"
        steps = read_xplane(Path(folder), profiler, parameter_bytes, progress=progress)
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
    cluster = {"workers": workers or derived.workers, "parameter_servers": len(derived.servers)}
    job = {
        "batch_size": batch_size,
        "parameter_bytes": sum(derived.shard_bytes) if parameter_bytes is None else parameter_bytes,
        "tensors": derived.tensors,
        "shard_bytes": derived.shard_bytes,
    }
    source = Source(framework="tensorflow", method=method, style=style)
    return Profile(source=source, steps=derived.steps, **described(cluster, job, told))


def require_parameter_bytes(size: int | None) -> None:
    """Refuse what no model has (raises DataError)."""
    if size is not None:
        require_count(size, "parameter_bytes", most=MOST_BYTES, error=DataError)


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
