"""``queuemodel demo``: everything once, on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from ..adapters import pytorch, tensorflow
from ..checks import require_writable
from ..drawing import save_figure
from ..errors import DataError
from ..prediction import predict
from .options import format_option, one_of
from .output import Table, show, show_profile, watched
from .profile import recorded_live

#: By framework, what trains, what it trains unless told, and how many steps it records.
DEMOS = {
    "tensorflow": (tensorflow.ParameterServer, "cnn", 40),
    "torch": (pytorch.DataParallel, "queuemodel.adapters.pytorch.examples:mlp", 12),
}

#: Numbers of workers that the table shows; the picture has all.
SHOWN = (1, 2, 4, 8, 16, 32)


@click.command()
@one_of(
    "--framework",
    list(DEMOS),
    "A parameter server and a worker, or data-parallel ranks.",
    default="tensorflow",
    show_default=True,
)
@click.option("--model", help="A built-in model (TensorFlow), or package.module:function.  [default: cnn; torch: mlp]")
@click.option("--steps", type=click.IntRange(2), help="To record.  [default: 40; torch: 12]")
@click.option("-o", "--output", type=click.Path(file_okay=False), default="demo", show_default=True, help="Folder.")
@format_option
def demo(framework: str, model: str | None, steps: int | None, output: str, output_format: str) -> None:
    """Profile a small model on this machine, and predict 1 to 32 workers.

    TensorFlow trains a Keras model on a loopback parameter server and worker; PyTorch a module on one rank and then on
    two, with DistributedDataParallel over gloo.

    \b
    Examples:
      queuemodel demo -o demo
      queuemodel demo --framework torch -o demo-ddp
    """
    backend, usual, count = DEMOS[framework]
    folder = Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be made: {error.strerror}") from None
    recorded, picture = folder / "profile.json", folder / "throughput.png"
    require_writable(recorded)
    require_writable(picture)
    profile = recorded_live(backend(model or usual, steps=steps or count), output=recorded)
    assert profile is not None  # all ranks are here
    curve = predict(profile, workers=range(1, 33), progress=watched())
    save_figure(curve.plot(), picture)
    wrote = f"wrote {recorded} and {picture}"
    if output_format == "table":
        show_profile(profile, output_format)
        click.echo("")
        rows = [row for row in curve.shown_rows() if row["workers"] in SHOWN]
        show(Table(rows, digits=curve.digits, says=curve.caption()), output_format)
        click.echo(f"\n{wrote}; go on with: queuemodel report {recorded} -o report.html")
    else:
        show(curve, output_format)
        click.echo(wrote, err=True)
