"""From a folder of recorded traces to a `Profile`."""

from __future__ import annotations

import os
from pathlib import Path

from ...errors import DataError
from ...training.profile import Cluster, Job, Profile, Source
from ..phases import derive
from .run_metadata import read_run_metadata


def read_traces(
    folder: str | os.PathLike[str],
    *,
    batch_size: int,
    name: str = "",
    bandwidth: float | None = None,
    dataset_size: int | None = None,
) -> Profile:
    """
    Read recorded traces of one worker and its parameter servers.

    Parameters
    ----------
    folder : path
        Holds `RunMetadata` protos (``*.pb`` or ``*.pb.gz``, one per step).
    batch_size : int
        Examples per step; traces do not tell.
    name : str
        Of the job.
    bandwidth : float, optional
        Nominal bytes per second of each host's link.
    dataset_size : int, optional
        Examples per epoch.

    Raises
    ------
    DataError
        One line that names the file and what is wrong with it.
    MissingDependencyError
        Without TensorFlow.
    """
    if not Path(folder).is_dir():
        raise DataError(f"{folder}: not a folder of traces")
    derived = derive(read_run_metadata(folder))
    return Profile(
        source=Source(framework="tensorflow", method="run-metadata", style="graph"),
        cluster=Cluster(workers=1, parameter_servers=len(derived.servers), bandwidth=bandwidth),
        job=Job(
            name=name,
            batch_size=batch_size,
            parameter_bytes=sum(derived.shard_bytes),
            tensors=derived.tensors,
            dataset_size=dataset_size,
            shard_bytes=derived.shard_bytes,
        ),
        steps=derived.steps,
    )
