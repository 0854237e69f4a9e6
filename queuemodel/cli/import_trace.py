"""``queuemodel import-trace``: recorded TensorFlow traces to a profile."""

from __future__ import annotations

from typing import Any

import click

from ..checks import require_writable
from ..units import parse_size
from .options import BANDWIDTH, COUNT, DATASET_SIZE, Quantity

SIZE = Quantity("size", parse_size)


@click.command()
@click.argument("folder", type=click.Path())
@click.option("--batch-size", type=COUNT, required=True, help="Examples per step; traces do not tell.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), required=True, help="The profile to write.")
@click.option("--name", default="", help="Of the job.")
@click.option("--bandwidth", type=BANDWIDTH, help="Nominal bandwidth of each host's link, like 10Gbit/s.")
@click.option("--parameter-bytes", type=SIZE, help="Of all parameters, like 98MB; needed for *.xplane.pb.")
@click.option("--workers", type=COUNT, help="That trained meanwhile.  [default: those in the traces]")
@click.option("--dataset-size", type=DATASET_SIZE, help="Examples per epoch.")
def import_trace(folder: str, output: str, parameter_bytes: float | None, **job: Any) -> None:
    """Make a profile from recorded traces: RunMetadata protos (*.pb, *.pb.gz) or *.xplane.pb files.

    \b
    Example:
      queuemodel import-trace traces/ --batch-size 32 --bandwidth 10Gbit/s -o profile.json
    """
    from ..adapters.tensorflow import read_traces

    require_writable(output)
    whole = None if parameter_bytes is None else round(parameter_bytes)
    profile = read_traces(folder, parameter_bytes=whole, **job)
    profile.save(output)
    click.echo(repr(profile))
