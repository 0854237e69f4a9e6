"""A TensorFlow server for live profiling: ``queuemodel serve``."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import click

from ....base.checks import extra
from ....base.errors import ProfilingError, QueueModelError
from ...live.machine import split_address


@click.command()
@click.option("--job", type=click.Choice(["ps", "worker"]), required=True, help="What this process is.")
@click.option("--task", type=click.IntRange(min=0), default=0, show_default=True, help="Which of its job it is.")
@click.option("--ps", required=True, metavar="HOST:PORT[,HOST:PORT]", help="The parameter servers.")
@click.option("--worker", required=True, metavar="HOST:PORT[,HOST:PORT]", help="The workers.")
def serve_command(job: str, task: int, ps: str, worker: str) -> None:
    """Run a TensorFlow server until it is stopped.

    \b
    Example, on two hosts, and the profiling then from anywhere:
      queuemodel serve --job ps --ps ps-1:2222 --worker gpu-1:2222
      queuemodel serve --job worker --ps ps-1:2222 --worker gpu-1:2222
      queuemodel profile mlp --ps ps-1:2222 --worker gpu-1:2222
    """
    cluster = {"ps": ps.split(","), "worker": worker.split(",")}
    try:
        _serve(
            job, task, cluster, lambda **_: click.echo(f"{job}:{task} serves at {cluster[job][task]}; Ctrl-C ends it")
        )
    except QueueModelError as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        os._exit(130)


def main(settings: dict[str, Any], say: Callable[..., None]) -> None:
    """Serve as a child of a live run."""
    _serve(settings["job"], 0, {job: [settings[job]] for job in ("ps", "worker")}, say)


def _serve(job, task, cluster, ready) -> None:
    for name, addresses in cluster.items():
        for address in addresses:
            split_address(address, where=f"--{name}")
    if task >= len(cluster[job]):
        raise ProfilingError(f"--task: {job} has {len(cluster[job])} address(es), got task {task}; count from 0")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    tensorflow = extra("tensorflow", "tensorflow", what="queuemodel serve")
    threads = max(2, len(os.sched_getaffinity(0)))  # a step waits in one for the data set, which needs another
    config = tensorflow.compat.v1.ConfigProto(inter_op_parallelism_threads=threads)
    try:
        server = tensorflow.distribute.Server(cluster, job_name=job, task_index=task, config=config)
    except tensorflow.errors.OpError as error:
        raise ProfilingError(
            f"{job} {cluster[job][task]}: cannot listen there: {str(error).splitlines()[0]}; "
            "use a free port of an address of this host"
        ) from None
    ready(ready=True)
    del server
    while True:
        signal.pause()
