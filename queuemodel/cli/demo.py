"""``queuemodel demo``: everything once, on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from ..checks import require_writable
from ..errors import DataError
from ..prediction import predict


@click.command()
@click.option("--model", default="cnn", show_default=True, help="A built-in model, or package.module:function.")
@click.option("--steps", type=click.IntRange(2), default=40, show_default=True)
@click.option("-o", "--output", type=click.Path(file_okay=False), default="demo", show_default=True, help="Folder.")
@click.pass_context
def demo(ctx: click.Context, model: str, steps: int, output: str) -> None:
    """Profile a small Keras model on a loopback parameter server and worker, and predict 1 to 32 workers.

    \b
    Example:
      queuemodel demo -o demo
    """
    from ..adapters.tensorflow.live import Interrupted, profile_live
    from ..drawing import save_figure

    folder = Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be made: {error.strerror}") from None
    recorded, picture = folder / "profile.json", folder / "throughput.png"
    for path in (recorded, picture):
        require_writable(path)
    try:
        profile = profile_live(model, steps=steps, output=recorded)
    except Interrupted as interrupt:
        click.echo(f"queuemodel: {interrupt}", err=True)
        ctx.exit(interrupt.status)
    curve = predict(profile, workers=range(1, 33))
    save_figure(curve.plot(), picture)
    click.echo(repr(profile))
    click.echo("")
    click.echo(repr(curve))
    click.echo(f"\nwrote {recorded} and {picture}")
