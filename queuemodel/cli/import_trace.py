"""``queuemodel import-trace``: recorded TensorFlow traces to a profile."""

from __future__ import annotations

from typing import Any

import click

from ..checks import require_writable
from .options import BANDWIDTH


@click.command()
@click.argument("folder", type=click.Path())
@click.option("--batch-size", type=click.IntRange(1), required=True, help="Examples per step; traces do not tell.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), required=True, help="The profile to write.")
@click.option("--name", default="", help="Of the job.")
@click.option("--bandwidth", type=BANDWIDTH, help="Nominal bandwidth of each host's link, like 10Gbit/s.")
@click.option("--dataset-size", type=click.IntRange(1), help="Examples per epoch.")
def import_trace(folder: str, output: str, **job: Any) -> None:
    """Make a profile from recorded traces: RunMetadata protos (*.pb, *.pb.gz) or *.xplane.pb files.

    \b
    Example:
      queuemodel import-trace traces/ --batch-size 32 --bandwidth 10Gbit/s -o profile.json
    """
    from ..adapters.tensorflow import read_traces

    require_writable(output)
    profile = read_traces(folder, **job)
    profile.save(output)
    click.echo(repr(profile))
