"""``queuemodel profile`` and ``queuemodel serve``: a training run, and servers for it elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from statistics import mean
from typing import Any

import click

from ..adapters import pytorch, tensorflow
from ..adapters.live import Backend, Interrupted, profile_live
from ..adapters.tensorflow.children.serve import serve
from ..errors import DataError
from ..training import Profile
from .options import DURATION, FILE, OneOf, format_option
from .output import show_profile

__all__ = ["profile", "serve"]

SERVERS, RANKS = "async-ps", "all-reduce"

BACKENDS: dict[tuple[str, str], type[Backend]] = {
    ("tensorflow", SERVERS): tensorflow.ParameterServer,
    ("tensorflow", RANKS): tensorflow.Mirrored,
    ("torch", RANKS): pytorch.DataParallel,
}


@click.command()
@click.argument("model")
@click.option("--framework", type=OneOf(["tensorflow", "torch"]), default="tensorflow", show_default=True,
              help="Which one trains.")  # fmt: skip
@click.option("--strategy", type=OneOf([SERVERS, RANKS]),
              help="A parameter server and a worker, or ranks.  [default: async-ps; torch: all-reduce]")  # fmt: skip
@click.option("--ranks", type=int, help="All-reduce: train 1, 2 and so on up to these.  [default: 2]")
@click.option("--steps", type=int, help="To trace: one record each.  [default: 50; all-reduce: 12]")
@click.option("--warmup", type=int, help="Steps before, not recorded.  [default: 10; all-reduce: 5]")
@click.option("--untraced-steps", type=int, help="To time without tracing.  [default: as many as --steps]")
@click.option("--noise-steps", type=int, help="All-reduce: for the gradient noise scale, all ranks.  [default: 10]")
@click.option("--style", type=OneOf(["graph", "strategy"]),
              help="A TensorFlow 1 session, or TensorFlow 2's ParameterServerStrategy.  [default: graph]")  # fmt: skip
@click.option("--ps", metavar="HOST:PORT", help="A parameter server that runs already ('queuemodel serve').")
@click.option("--worker", metavar="HOST:PORT", help="A worker that runs already.")
@click.option("--master", metavar="HOST:PORT", help="PyTorch: where rank 0 waits for those on other machines.")
@click.option("--rank", type=int, help="PyTorch: this machine's, from 0; rank 0 writes the profile.")
@click.option("--time-limit", type=DURATION, default="10min", show_default=True, help="For everything.")
@click.option("--batch-size", type=int, help="TensorFlow: examples per step.  [default: the data set's]")
@click.option("--traces", type=click.Path(), metavar="FOLDER", help="Keep the recorded traces there.")
@click.option("--progress/--no-progress", default=None, help="[default: where standard error is a terminal]")
@click.option("-o", "--output", type=FILE, default="profile.json", show_default=True)
@format_option
def profile(
    model: str,
    framework: str,
    strategy: str | None,
    output: str,
    output_format: str,
    time_limit: float,
    traces: str | None,
    progress: bool | None,
    **settings: Any,
) -> None:
    """Train MODEL for a short while on this machine, or on several, and record where its time goes.

    MODEL is package.module:function. For TensorFlow it returns a compiled Keras model and a tf.data.Dataset of (x, y)
    batches, or is a built-in: mlp, cnn, embedding, transformer; one parameter server and one worker are started on
    this machine, unless --ps and --worker or the environment's TF_CONFIG say where they run. With --strategy all-reduce
    rank 0 trains alone, then two ranks with MultiWorkerMirroredStrategy, all on this machine. For PyTorch it returns a
    module and a function that trains it on one batch and returns the number of examples; rank 0 trains alone, then two
    ranks with DistributedDataParallel over gloo, all on this machine unless --master and --rank are given. With --ranks
    3 three are recorded besides, which some networks need (see `queuemodel next-measurement`).

    \b
    Examples:
      queuemodel profile mlp --steps 30 -o mlp.json
      queuemodel profile train:make --ps 10.0.0.5:2222 --worker 10.0.0.6:2222
      queuemodel profile mlp --strategy all-reduce -o mirrored.json
      queuemodel profile --framework torch train:make -o ddp.json
      queuemodel profile --framework torch train:make --ranks 3 \\
        --master 10.0.0.5:29500 --rank 0
    """
    chosen = (framework, strategy or (RANKS if framework == "torch" else SERVERS))
    if chosen not in BACKENDS:
        raise DataError(f"--strategy: {strategy} is not for --framework {framework}; leave it out")
    backend = BACKENDS[chosen]
    given = {name: value for name, value in settings.items() if value is not None}
    if wrong := sorted(given.keys() - {field.name for field in fields(backend)}):
        kind = f"--framework {framework}" + (f" --strategy {strategy}" if strategy else "")
        raise DataError(f"--{wrong[0].replace('_', '-')}: not for {kind}; leave it out")
    recorded = recorded_live(
        backend(model, **given), time_limit=time_limit, output=output, traces=traces, progress=progress
    )
    if recorded is None:
        click.echo("rank 0 has what this rank recorded, and writes the profile")
        return
    show_profile(recorded, output_format)
    for remark in [*_remarks(recorded, noise=given.get("noise_steps") != 0), f"wrote {output}"]:
        click.echo(remark, err=output_format != "table")


def recorded_live(backend: Backend, **settings: Any) -> Profile | None:
    """What a run records; a signal ends the command with the status that tells it."""
    try:
        return profile_live(backend, **settings)
    except Interrupted as interrupt:
        click.echo(f"queuemodel: {interrupt}", err=True)
        raise click.exceptions.Exit(interrupt.status) from None


def _remarks(profile: Profile, *, noise: bool) -> Iterator[str]:
    """What to know of the run besides its profile: what tracing cost, and the noise of gradients."""
    for untraced in profile.throughputs:
        ranks, plain = untraced.workers, untraced.workers / untraced.steps_per_second
        times = [one.round_time for one in profile.rounds if one.ranks == ranks] or profile.values("step_time")
        step = "a step" if ranks == 1 else f"a step of {ranks} ranks"
        yield f"\nwithout tracing {step} takes {plain:.4g} s; with tracing {mean(times) / plain:.2f} times as long"
    if scale := profile.noise_scale():
        yield f"\ngradient noise scale {scale}"
    elif profile.rounds and noise:
        yield (
            "\nno gradient noise recorded: all ranks trained on the same examples, or gradients are no numbers; let "
            "each draw its own"
        )
