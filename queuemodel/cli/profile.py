"""``queuemodel profile`` and ``queuemodel serve``: a real training run, and servers for it elsewhere."""

from __future__ import annotations

import click

from ..adapters.tensorflow.children.serve import serve
from .options import DURATION

__all__ = ["profile", "serve"]


@click.command()
@click.argument("model")
@click.option("--steps", default=50, show_default=True, help="To trace: one record each.")
@click.option("--warmup", default=10, show_default=True, help="Steps before, not recorded.")
@click.option("--untraced-steps", type=int, help="To time without tracing.  [default: as many as --steps]")
@click.option("--style", type=click.Choice(["graph", "strategy"]), default="graph", show_default=True,
              help="A TensorFlow 1 session, or TensorFlow 2's ParameterServerStrategy.")  # fmt: skip
@click.option("--ps", metavar="HOST:PORT", help="A parameter server that runs already ('queuemodel serve').")
@click.option("--worker", metavar="HOST:PORT", help="A worker that runs already.")
@click.option("--time-limit", type=DURATION, default="10min", show_default=True, help="For everything.")
@click.option("--batch-size", type=int, help="Examples per step.  [default: the data set's]")
@click.option("--traces", type=click.Path(), metavar="FOLDER", help="Keep the recorded traces there.")
@click.option("--progress/--no-progress", default=None, help="[default: where standard error is a terminal]")
@click.option("-o", "--output", type=click.Path(dir_okay=False), default="profile.json", show_default=True)
@click.pass_context
def profile(ctx: click.Context, model: str, output: str, **settings: object) -> None:
    """Train MODEL for a short while on one parameter server and one worker, and record where its time goes.

    MODEL is package.module:function, which returns a compiled Keras model and a tf.data.Dataset of (x, y) batches, or
    a built-in: mlp, cnn, embedding, transformer. Both servers are started on this machine, unless --ps and --worker or
    the environment's TF_CONFIG say where they run.

    \b
    Examples:
      queuemodel profile mlp --steps 30 -o mlp.json
      queuemodel profile train:make_model --style strategy --ps 10.0.0.5:2222 --worker 10.0.0.6:2222
    """
    from ..adapters.tensorflow.live import Interrupted, profile_live

    try:
        recorded = profile_live(model, output=output, **settings)  # type: ignore[arg-type]
    except Interrupted as interrupt:
        click.echo(f"queuemodel: {interrupt}", err=True)
        ctx.exit(interrupt.status)
    click.echo(repr(recorded))
    for untraced in recorded.throughputs:
        traced = float(recorded.values("step_time").mean())
        plain = 1 / untraced.steps_per_second
        click.echo(f"\nwithout tracing a step takes {plain:.4g} s; tracing makes it {traced / plain - 1:+.0%} longer")
    click.echo(f"wrote {output}")
