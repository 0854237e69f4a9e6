"""The worker's process in graph style: a session trains on the server that `live` started or was given."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ...live.child import as_told, cannot_write, stopping
from .models import TrainingTask, function_of, load


def main(settings: dict[str, Any], say: Callable[..., None]) -> object:
    function_of(settings["model"])  # before TensorFlow takes its seconds
    import tensorflow as tf

    from .worker_graph import build

    tf1 = tf.compat.v1
    server, target = None, f"grpc://{settings['worker']}"
    if settings["own_server"]:
        cluster = {"ps": [settings["ps"]], "worker": [settings["worker"]]}
        server = tf.distribute.Server(cluster, job_name="worker", task_index=0)
        target = server.target
    say(doing="building the model")
    task = load(settings["model"], batch_size=settings["batch_size"])
    say(job=task.job(settings["model"]))
    step = build(task.model, tf.nest.map_structure(tf.type_spec_from_value, task.batch), container=settings["run"])
    config = tf1.ConfigProto(
        device_filters=["/job:ps/task:0", "/job:worker/task:0"],  # others of the cluster are none of our business
        allow_soft_placement=True,
    )
    say(doing="connecting")
    session = tf1.Session(target, graph=step.graph, config=config)
    step.initialize(session)
    try:
        _train(session, step, _feeds(task, step), settings, say)
    finally:
        with contextlib.suppress(tf.errors.OpError):  # the server may be what failed
            session.run(step.release)
    return session, server


def _feeds(task: TrainingTask, step: Any) -> Iterator[dict]:
    import tensorflow as tf

    for batch in task.dataset:
        yield {place: part.numpy() for place, part in zip(step.placeholders, tf.nest.flatten(batch), strict=True)}


def _train(session: Any, step: Any, feeds: Iterator[dict], settings: dict[str, Any], say: Callable[..., None]) -> None:
    """Warm up, then trace steps one after the other, then time untraced ones."""
    import tensorflow as tf

    tf1 = tf.compat.v1
    options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
    fetches = [step.loss, step.step]

    def timed(kind: str, **arguments: Any) -> None:
        start = time.perf_counter()
        session.run(fetches, next(feeds), **arguments)
        if kind == "untraced":
            say(step=kind, seconds=time.perf_counter() - start)
        elif kind == "warmup":
            say(step=kind)

    for _ in _until_stopped(settings["warmup"]):
        timed("warmup")
    writes: list[Future] = []
    with ThreadPoolExecutor(1) as background:
        for number in _until_stopped(settings["steps"]):
            metadata = tf1.RunMetadata()
            timed("traced", options=options, run_metadata=metadata)
            path = Path(settings["traces"], f"step_{number:05d}.pb")
            writes.append(background.submit(_write, path, metadata, say))
            while writes and writes[0].done():
                writes.pop(0).result()  # raises what kept it from being written
        for write in writes:
            write.result()
    for _ in _until_stopped(settings["untraced_steps"]):
        timed("untraced")


def _until_stopped(count: int) -> Iterator[int]:
    return itertools.takewhile(lambda _: not stopping.is_set(), range(count))


def _write(path: Path, metadata: Any, say: Callable[..., None]) -> None:
    """Write a trace, whole or not at all, and tell when it is there."""
    content, partial = metadata.SerializeToString(), path.with_suffix(".partial")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise cannot_write(path.parent, error) from None
    say(step="traced", traced_bytes=len(content))


if __name__ == "__main__":
    as_told(main)
