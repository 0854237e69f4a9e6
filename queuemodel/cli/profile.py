"""Profiles: recorded live, imported from traces, packaged; and servers of live runs."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from statistics import mean
from typing import Any

import click

from ..adapters import Backend, Interrupted, profile_live, pytorch, tensorflow
from ..base.checks import JSON, require_writable
from ..base.drawing import save_figure
from ..base.errors import DataError
from ..base.files import read_bytes
from ..base.recognition import TRACE, mistaken
from ..base.results import counted
from ..models.predict import predict
from ..profile.examples import copy_examples, example_files
from ..profile.profile import Profile
from . import options as ask

SERVERS, RANKS = "async-ps", "all-reduce"

BACKENDS: dict[tuple[str, str], type[Backend]] = {
    ("tensorflow", SERVERS): tensorflow.ParameterServer,
    ("tensorflow", RANKS): tensorflow.Mirrored,
    ("torch", RANKS): pytorch.DataParallel,
}


@ask.command()
@click.argument("model")
@ask.one_of("--framework", ["tensorflow", "torch"], "Training framework.", default="tensorflow", show_default=True)
@ask.one_of("--strategy", [SERVERS, RANKS],
            "A parameter server and a worker, or ranks.  [default: async-ps; torch: all-reduce]")  # fmt: skip
@ask.option("--ranks", ask.WHOLE, help="All-reduce: train 1 to this many.  [default: 2]")
@ask.option("--steps", ask.WHOLE, help="Traced, one record each.  [default: 50; all-reduce: 12]")
@ask.option("--warmup", ask.WHOLE, help="Unrecorded steps before.  [default: 10; all-reduce: 5]")
@ask.option("--untraced-steps", ask.WHOLE, help="Timed without tracing.  [default: as many as --steps]")
@ask.option("--noise-steps", ask.WHOLE, help="All-reduce: for the gradient noise scale, all ranks.  [default: 10]")
@ask.option("--ps", metavar="HOST:PORT", help="A running parameter server ('queuemodel serve').")
@ask.option("--worker", metavar="HOST:PORT", help="A running worker.")
@ask.option("--time-limit", ask.DURATION, default="10min", show_default=True, help="Of the whole run.")
@ask.option("--batch-size", ask.WHOLE, help="TensorFlow: examples per step.  [default: the data set's]")
@ask.option("--traces", type=click.Path(), metavar="FOLDER", help="Keep the recorded traces there.")
@ask.option("--progress/--no-progress", None, default=None, help="[default: where standard error is a terminal]")
@ask.option("-o --output", ask.FILE, default="profile.json", show_default=True, help="The profile to write.")
@ask.format_option
def profile_command(
    model: str, framework: str, strategy: str | None, output: str, output_format: str, **settings: Any
) -> None:
    """Train MODEL for a short while, and record where its time goes; `record` records a whole PyTorch job.

    MODEL is package.module:function. For TensorFlow it returns a compiled Keras model and a tf.data.Dataset of (x, y)
    batches, or is a built-in: mlp, cnn, embedding, transformer; one parameter server and one worker are started on
    this machine, unless --ps and --worker place them. With --strategy all-reduce
    rank 0 trains alone, then two ranks with MultiWorkerMirroredStrategy, all on this machine. For PyTorch it returns a
    module and a function that trains it on one batch and returns the number of examples; rank 0 trains alone, then two
    ranks with DistributedDataParallel over gloo, all on this machine. With --ranks 3, three are recorded as well, which
    some networks need (see `queuemodel next-measurement`).

    \b
    Examples:
      queuemodel profile mlp --steps 30 -o mlp.json
      queuemodel profile train:make --ps 10.0.0.5:2222 --worker 10.0.0.6:2222
      queuemodel profile mlp --strategy all-reduce -o mirrored.json
      queuemodel profile --framework torch train:make -o ddp.json
    """
    chosen = (framework, strategy or (RANKS if framework == "torch" else SERVERS))
    if chosen not in BACKENDS:
        raise DataError(f"--strategy: {strategy} is not for --framework {framework}; leave it out")
    backend, run = BACKENDS[chosen], {name: settings.pop(name) for name in ("time_limit", "traces", "progress")}
    known = {name: value for name, value in settings.items() if value is not None}
    if wrong := sorted(known.keys() - {field.name for field in fields(backend)}):
        kind = f"--framework {framework}" + (f" --strategy {strategy}" if strategy else "")
        raise DataError(f"--{wrong[0].replace('_', '-')}: not for {kind}; leave it out")
    recorded = recorded_live(backend(model, **known), output=output, **run)
    ask.show_profile(recorded, output_format)
    for remark in [*_remarks(recorded, noise=known.get("noise_steps") != 0), f"wrote {output}"]:
        click.echo(remark, err=output_format != "table")


def recorded_live(backend: Backend, **settings: Any) -> Profile:
    """Profile; a signal ends the command with the status that a shell expects."""
    try:
        return profile_live(backend, **settings)
    except Interrupted as interrupt:
        click.echo(f"queuemodel: {interrupt}", err=True)
        raise click.exceptions.Exit(interrupt.status) from None


def _remarks(profile: Profile, *, noise: bool) -> Iterator[str]:
    """What tracing cost, and the noise of gradients."""
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


@ask.command()
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@ask.option("--steps", type=click.IntRange(1), default=12, show_default=True, help="To record.")
@ask.option("--warmup", type=click.IntRange(2), default=5, show_default=True, help="Unrecorded steps before.")
@ask.option("-o --output", type=click.Path(file_okay=False, path_type=Path), default="traces", show_default=True,
            help="Folder of this run, for a file of each rank.")  # fmt: skip
def record_command(command: tuple[str, ...], output: Path, **settings: int) -> None:
    """Run COMMAND, which trains with PyTorch, and record a few steps of each rank on this machine.

    The training script stays as it is; plain PyTorch, Lightning and Hugging Face's Trainer work alike. A step ends with
    each update by the first optimizer. The job ends once all ranks have recorded. Of several nodes, start each one's
    COMMAND in this way, and bring the files into one folder. Then import the folders of runs on 1 node and on 2.

    \b
    Examples:
      queuemodel record -o trace_n1 -- torchrun --nproc-per-node 8 train.py
      queuemodel record -o trace_n2 -- torchrun --nnodes 2 \\
        --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint node-1 train.py
    """
    if old := _recorded_files(output):
        raise DataError(f"--output: {old[0]} is there from another run; name a new folder")
    there = {pytorch.RECORD_ENV: json.dumps({"folder": str(output.resolve()), "end": True, **settings})}
    path = os.pathsep.join(filter(None, [str(pytorch.INJECTED), os.environ.get("PYTHONPATH")]))
    try:
        done = subprocess.run(command, env={**os.environ, **there, "PYTHONPATH": path}, check=False)
    except OSError as error:
        raise DataError(f"{command[0]}: cannot be started: {error.strerror}") from None
    recorded = _recorded_files(output)
    if not recorded:
        raise DataError(
            f"{shlex.join(command)}: nothing was recorded in {settings['warmup'] + 1} updates by an optimizer of "
            f"PyTorch's, and the status is {done.returncode}; train for longer, or lower --warmup"
        )
    click.echo(
        f"recorded {counted(len(recorded), 'rank')} in {output}; give this folder, and that of a run on another number "
        "of nodes, to queuemodel import-trace"
    )
    if done.returncode:
        raise click.exceptions.Exit(done.returncode)


def _recorded_files(folder: Path) -> list[Path]:
    return sorted(folder.glob(pytorch.TRACE_NAME.format("*")))


@ask.command()
@ask.option("--job", type=click.Choice(["ps", "worker"]), required=True, help="Job of this process.")
@ask.option("--ps", required=True, metavar="HOST:PORT", help="The parameter server.")
@ask.option("--worker", required=True, metavar="HOST:PORT", help="The worker.")
def serve_command(job: str, **cluster: str) -> None:
    """Run a TensorFlow server until it is stopped.

    \b
    Example, on two hosts, and the profiling then from anywhere:
      queuemodel serve --job ps --ps ps-1:2222 --worker gpu-1:2222
      queuemodel serve --job worker --ps ps-1:2222 --worker gpu-1:2222
      queuemodel profile mlp --ps ps-1:2222 --worker gpu-1:2222
    """
    try:
        said = f"{job} serves at {cluster[job]}; Ctrl-C ends it"
        tensorflow.run_server({"job": job, **cluster}, lambda **_: click.echo(said))
    except KeyboardInterrupt:
        os._exit(130)


FILES = (*pytorch.TRACE_SUFFIXES, ".pb", ".pb.gz")


@ask.command()
@click.argument("folders", type=click.Path(), nargs=-1, required=True, metavar="FOLDER...")
@ask.option("--batch-size", ask.COUNT, required=True, help="Examples per step; not in the traces.")
@ask.option("-o --output", ask.FILE, required=True, help="The profile to write.")
@ask.option("--name", default="", help="Job name.")
@ask.option("--bandwidth", ask.BANDWIDTH, help="Nominal bandwidth of each host's link, like 10Gbit/s.")
@ask.NETWORK
@ask.option("--parameter-bytes", ask.SIZE_OPTION, help="Of all parameters, like 98MB; needed for *.xplane.pb.")
@ask.option("--workers", ask.WORKER_COUNT, show_default="those in the traces", help="That trained.")
@ask.option("--dataset-size", ask.AMOUNT, help="Examples per epoch.")
@ask.format_option
def import_trace_command(
    folders: tuple[str, ...], output: str, parameter_bytes: float | None, workers: int | None, output_format: str,
    **job: Any,
) -> None:  # fmt: skip
    """Make a profile from recorded traces.

    Of TensorFlow's parameter servers: a folder of RunMetadata protos (*.pb, *.pb.gz) or *.xplane.pb files. Of
    data-parallel training: a folder for each run of the job, with a file of each rank, PyTorch's *.pt.trace.json[.gz]
    (of which one is enough) or *.xplane.pb of TensorFlow's MultiWorkerMirroredStrategy; one node's run gives the
    computation, two nodes' the network.

    \b
    Examples:
      queuemodel import-trace traces/ --batch-size 32 --bandwidth 1GB/s -o p.json
      queuemodel import-trace trace_n1/ trace_n2/ --batch-size 32 -o p.json
    """
    require_writable(output, suffixes=JSON)
    remarks: list[str] = []
    whole = None if parameter_bytes is None else round(parameter_bytes)
    job["progress"] = ask.watched()
    for folder in folders:
        _require_traces(Path(folder))
    if any(_holds(folder, pytorch.TRACE_SUFFIXES) for folder in folders):
        _refuse({"--parameter-bytes": whole, "--workers": workers}, "PyTorch's traces")
        profile = pytorch.read_pytorch(folders, say=remarks.append, **job)
    elif any(tensorflow.is_mirrored(folder) for folder in folders):
        _refuse({"--workers": workers}, "traces of data-parallel training")
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
        profile = tensorflow.read_tensorflow(folders[0], parameter_bytes=whole, workers=workers, **job)
    profile.save(output)
    ask.show_profile(profile, output_format)
    for remark in remarks:
        click.echo(remark, err=output_format != "table")


def _require_traces(folder: Path) -> None:
    """Refuse a file instead of its folder, and JSON by another name."""
    if folder.is_file():
        raise DataError(f"{folder}: a file; give the folder that holds the files of the run")
    if not folder.is_dir() or _holds(folder, pattern="**/*"):
        return
    for path in sorted(path for path in folder.glob("[!.]*") if path.is_file()):
        if (what := mistaken(read_bytes(path), TRACE)) or ".json" in path.name:
            what = what or "if torch.profiler wrote it, rename it to end in .pt.trace.json[.gz]; else not read"
            raise DataError(f"{path}: {what}; of TensorFlow 1 the RunMetadata is read")
    raise DataError(f"{folder}: no traces in it; PyTorch's *.pt.trace.json[.gz] expected, or TensorFlow's *.pb[.gz]")


def _holds(folder: str | Path, suffixes: tuple[str, ...] = FILES, *, pattern: str = "*") -> bool:
    return any(path.name.endswith(suffixes) for path in Path(folder).glob(pattern))


def _refuse(options: dict[str, object], traces: str) -> None:
    if wrong := [name for name, value in options.items() if value is not None]:
        raise DataError(f"{wrong[0]}: {traces} contain that, or do not need it; leave it out")


#: By framework: backend, default model, number of recorded steps.
DEMOS = {
    "torch": (pytorch.DataParallel, "queuemodel.adapters.pytorch.examples:mlp", 12),
    "tensorflow": (tensorflow.ParameterServer, "cnn", 40),
}

DEMO_WORKERS = (1, 2, 4, 8, 16, 32)


@ask.command()
@ask.one_of("--framework", list(DEMOS), "Data-parallel ranks, or a parameter server and a worker.",
            default=lambda: "tensorflow" if find_spec("tensorflow") and not find_spec("torch") else "torch",
            show_default="torch unless only TensorFlow is installed")  # fmt: skip
@ask.option("--model", help="Built-in (TensorFlow), or package.module:function.  [default: mlp; TensorFlow: cnn]")
@ask.option("--steps", type=click.IntRange(2), help="To record.  [default: 12; TensorFlow: 40]")
@ask.option("-o --output", type=click.Path(file_okay=False), default="demo", show_default=True, help="Folder.")
@ask.format_option
def demo_command(framework: str, model: str | None, steps: int | None, output: str, output_format: str) -> None:
    """Profile a small model on this machine, and predict 1 to 32 workers.

    PyTorch trains a module on one rank and then on two, with DistributedDataParallel over gloo; TensorFlow a Keras
    model on a loopback parameter server and worker.

    \b
    Examples:
      queuemodel demo -o demo
      queuemodel demo --framework tensorflow -o demo-ps
    """
    backend, usual, count = DEMOS[framework]
    folder = Path(output)
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be made: {error.strerror}") from None
    recorded, picture = folder / "profile.json", folder / "throughput.png"
    require_writable(recorded)
    require_writable(picture)
    try:
        profile = recorded_live(backend(model or usual, steps=steps or count), output=recorded)
    finally:
        if new:
            with contextlib.suppress(OSError):  # with files in it, it stays
                folder.rmdir()
    curve = predict(profile, workers=DEMO_WORKERS, progress=ask.watched())
    save_figure(curve.plot(), picture)
    table, wrote = output_format == "table", f"wrote {recorded} and {picture}"
    if table:
        ask.show_profile(profile, output_format)
        click.echo("")
    ask.show(curve, output_format)
    click.echo(f"\n{wrote}; go on with: queuemodel report {recorded} -o report.html" if table else wrote, err=not table)


@ask.command()
@click.argument("folder", type=click.Path(path_type=Path), required=False)
def examples_command(folder: Path | None) -> None:
    """List the packaged examples, or copy them into FOLDER, made if absent; files of these names stay.

    \b
    Example:
      queuemodel examples .
    """
    for name in example_files() if folder is None else copy_examples(folder):
        click.echo(name)
