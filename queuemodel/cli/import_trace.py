"""``queuemodel import-trace``: recorded TensorFlow traces to a profile."""

from __future__ import annotations

from typing import Any

import click

from ..adapters import pytorch
from ..checks import require_writable
from ..errors import DataError
from ..training.job import TOLD
from .options import BANDWIDTH, BUFFER, CONGESTION_CONTROL, COUNT, DATASET_SIZE, SIZE


@click.command()
@click.argument("folders", type=click.Path(), nargs=-1, required=True, metavar="FOLDER...")
@click.option("--batch-size", type=COUNT, required=True, help="Examples per step; traces do not tell.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), required=True, help="The profile to write.")
@click.option("--name", default="", help="Of the job.")
@click.option("--bandwidth", type=BANDWIDTH, help="Nominal bandwidth of each host's link, like 10Gbit/s.")
@CONGESTION_CONTROL
@BUFFER
@click.option("--parameter-bytes", type=SIZE, help="Of all parameters, like 98MB; needed for *.xplane.pb.")
@click.option("--workers", type=COUNT, help="That trained meanwhile.  [default: those in the traces]")
@click.option("--dataset-size", type=DATASET_SIZE, help="Examples per epoch.")
def import_trace(
    folders: tuple[str, ...], output: str, parameter_bytes: float | None, workers: int | None, **job: Any
) -> None:
    """Make a profile from recorded traces.

    Of TensorFlow: a folder of RunMetadata protos (*.pb, *.pb.gz) or *.xplane.pb files. Of PyTorch: a folder for each
    run of the job, with a *.pt.trace.json[.gz] of each rank; one node's run tells the computation, two nodes' the
    network.

    \b
    Examples:
      queuemodel import-trace traces/ --batch-size 32 --bandwidth 10Gbit/s -o profile.json
      queuemodel import-trace trace_n1/ trace_n2/ --batch-size 32 -o profile.json
    """
    require_writable(output)
    if any(pytorch.is_trace(folder) for folder in folders):
        network = {f"--{name.replace('_', '-')}": job.pop(name) for name in TOLD}
        given = {"--parameter-bytes": parameter_bytes, "--workers": workers, **network}
        if wrong := [name for name, value in given.items() if value is not None]:
            raise DataError(f"{wrong[0]}: PyTorch's traces tell that themselves, or need it not; leave it out")
        profile = pytorch.read_traces(folders, **job)
    else:
        if len(folders) > 1:
            raise DataError(f"{folders[1]}: TensorFlow's traces of a job are one folder; give only that")
        from ..adapters.tensorflow import read_traces

        whole = None if parameter_bytes is None else round(parameter_bytes)
        profile = read_traces(folders[0], parameter_bytes=whole, workers=workers, **job)
    profile.save(output)
    click.echo(repr(profile))
