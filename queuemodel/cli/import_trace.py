"""``queuemodel import-trace``: recorded traces to a profile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..adapters import pytorch, tensorflow
from ..checks import JSON, require_writable
from ..errors import DataError
from .options import BANDWIDTH, COUNT, DATASET_SIZE, FILE, SIZE, format_option
from .output import show_profile, watched
from .questions import NETWORK

FILES = (*pytorch.SUFFIXES, ".pb", ".pb.gz")


@click.command()
@click.argument("folders", type=click.Path(), nargs=-1, required=True, metavar="FOLDER...")
@click.option("--batch-size", type=COUNT, required=True, help="Examples per step; traces do not tell.")
@click.option("-o", "--output", type=FILE, required=True, help="The profile to write.")
@click.option("--name", default="", help="Of the job.")
@click.option("--bandwidth", type=BANDWIDTH, help="Nominal bandwidth of each host's link, like 10Gbit/s.")
@NETWORK
@click.option("--parameter-bytes", type=SIZE, help="Of all parameters, like 98MB; needed for *.xplane.pb.")
@click.option("--workers", type=COUNT, show_default="those in the traces", help="That trained meanwhile.")
@click.option("--dataset-size", type=DATASET_SIZE, help="Examples per epoch.")
@format_option
def import_trace(
    folders: tuple[str, ...],
    output: str,
    parameter_bytes: float | None,
    workers: int | None,
    output_format: str,
    **job: Any,
) -> None:
    """Make a profile from recorded traces.

    Of TensorFlow's parameter servers: a folder of RunMetadata protos (*.pb, *.pb.gz) or *.xplane.pb files. Of
    data-parallel training: a folder for each run of the job, with a file of each rank, PyTorch's *.pt.trace.json[.gz]
    or *.xplane.pb of TensorFlow's MultiWorkerMirroredStrategy; one node's run tells the computation, two nodes' the
    network.

    \b
    Examples:
      queuemodel import-trace traces/ --batch-size 32 --bandwidth 1GB/s -o p.json
      queuemodel import-trace trace_n1/ trace_n2/ --batch-size 32 -o p.json
    """
    require_writable(output, suffixes=JSON)
    whole = None if parameter_bytes is None else round(parameter_bytes)
    servers: dict[str, object] = {"--workers": workers}
    job["progress"] = watched()
    for folder in folders:
        _require_traces(Path(folder))
    if any(_holds(folder, pytorch.SUFFIXES) for folder in folders):
        _refuse({"--parameter-bytes": whole, **servers}, "PyTorch's traces")
        profile = pytorch.read_traces(folders, **job)
    elif any(tensorflow.is_mirrored(folder) for folder in folders):
        _refuse(servers, "traces of data-parallel training")
        profile = tensorflow.read_mirrored(folders, parameter_bytes=whole, **job)
    else:
        if len(folders) > 1:
            raise DataError(
                f"{folders[1]}: no all-reduce among ranks in this folder or the others; what a worker recorded with "
                "parameter servers becomes a profile folder by folder, with --workers 2 where two trained, and predict "
                "takes one of several workers by --throughputs"
            )
        below = [path for path in sorted(Path(folders[0]).glob("*/")) if _holds(path)]
        if below and not _holds(folders[0]):
            raise DataError(f"{folders[0]}: traces stand below it; give each run's folder: {' '.join(map(str, below))}")
        profile = tensorflow.read_traces(folders[0], parameter_bytes=whole, workers=workers, **job)
    profile.save(output)
    show_profile(profile, output_format)


def _require_traces(folder: Path) -> None:
    """Say what to do with a file instead of its folder, and with names that do not tell whose they are."""
    if folder.is_file():
        raise DataError(f"{folder}: a file; give the folder that holds the files of the run")
    if not _holds(folder, pattern="**/*") and (others := sorted(folder.glob("*.json*"))):
        raise DataError(
            f"{others[0]}: if torch.profiler wrote it, rename it to end in .pt.trace.json or .pt.trace.json.gz; "
            "other JSON is not read here, nor is a timeline of TensorFlow 1: keep the RunMetadata that it is made of"
        )


def _holds(folder: str | Path, suffixes: tuple[str, ...] = FILES, *, pattern: str = "*") -> bool:
    return any(path.name.endswith(suffixes) for path in Path(folder).glob(pattern))


def _refuse(given: dict[str, object], traces: str) -> None:
    if wrong := [name for name, value in given.items() if value is not None]:
        raise DataError(f"{wrong[0]}: {traces} tell that themselves, or need it not; leave it out")
