"""From a folder of recorded traces to a `Profile`."""

from __future__ import annotations

import math
import os
from pathlib import Path

from ...errors import DataError
from ...training.profile import Cluster, Job, Profile, Source
from ..phases import derive
from .run_metadata import read_run_metadata
from .xplane import read_xplane, xplane_files


def read_traces(
    folder: str | os.PathLike[str],
    *,
    batch_size: int,
    name: str = "",
    bandwidth: float | None = None,
    dataset_size: int | None = None,
    parameter_bytes: int | None = None,
) -> Profile:
    """
    Read recorded traces of one worker and its parameter servers.

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
    dataset_size : int, optional
        Examples per epoch.
    parameter_bytes : int, optional
        All parameters together; needed for ``*.xplane.pb``, which lack the sizes of small tensors.

    Raises
    ------
    DataError
        One line that names the file and what is wrong with it.
    MissingDependencyError
        Without TensorFlow.
    """
    if not Path(folder).is_dir():
        raise DataError(f"{folder}: not a folder of traces")
    if parameter_bytes is not None and not 0 < parameter_bytes < math.inf:
        raise DataError(f"parameter_bytes must be a whole number of bytes > 0, got {parameter_bytes!r}")
    if xplane_files(folder):
        method, style = "xplane", "parameter-server-strategy"
        derived = derive(read_xplane(folder, parameter_bytes=parameter_bytes))
    else:
        method, style = "run-metadata", "graph"
        derived = derive(read_run_metadata(folder))
    return Profile(
        source=Source(framework="tensorflow", method=method, style=style),
        cluster=Cluster(workers=1, parameter_servers=len(derived.servers), bandwidth=bandwidth),
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
