"""The coordinator's process in TensorFlow 2 style: a `ParameterServerStrategy` trains on servers that `live` names."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from ....base.errors import ProfilingError
from ...live.child import cannot_write, stopping
from .models import load

AHEAD = 10  # steps scheduled at a time
SHORTEST_TRACE, LONGEST_TRACE = 0.5, 3.0  # seconds of one recording: what an interruption may lose
PROBE = 2**20  # bytes that must fit on a disk that is not full
EDGES = 3  # steps of a recording that are cut off


def main(settings: dict[str, Any], say: Callable[..., None]) -> object:
    say(doing="connecting")
    cluster = tf.train.ClusterSpec({"ps": [settings["ps"]], "worker": [settings["worker"]]})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    say(doing="building the model")
    with strategy.scope():
        task = load(settings["model"], batch_size=settings["batch_size"])
        task.model.optimizer.build(task.model.trainable_variables)
    say(job=task.job(settings["model"]))
    try:
        batches = iter(coordinator.create_per_worker_dataset(task.dataset))
    except tf.errors.OpError as error:
        raise ProfilingError(
            "the data set cannot be sent to the worker, as TensorFlow 2 does "
            f"({str(error).splitlines()[0][:200]}); make it of tensors or files instead of Python functions"
        ) from None

    def train(batch: Any) -> tf.Tensor:
        loss, gradients = task.gradients(batch)
        task.model.optimizer.apply(gradients, task.model.trainable_variables)
        return loss

    step = tf.function(lambda batches: strategy.run(train, args=(next(batches),)), autograph=False, jit_compile=False)

    def run(count: int, kind: str) -> float:
        start = time.perf_counter()
        for _ in range(count):
            coordinator.schedule(step, args=(batches,))
        coordinator.join()
        seconds = (time.perf_counter() - start) / count
        for _ in range(count if kind else 0):
            say(step=kind, **({"seconds": seconds} if kind == "untraced" else {}))
        return seconds

    run(1, "warmup" if settings["warmup"] else "")  # takes seconds
    seconds = _run_all(run, settings["warmup"] - 1, "warmup") or run(1, "")
    missing = settings["steps"]
    while missing > 0 and not stopping.is_set():
        length = min(LONGEST_TRACE, max(SHORTEST_TRACE, (missing + EDGES) * seconds))
        traced = _trace(run, settings, length)
        seconds = length / traced
        whole = min(max(traced - EDGES, 1), missing)
        missing -= whole
        for _ in range(whole):
            say(step="traced")
    _run_all(run, settings["untraced_steps"], "untraced")
    return coordinator, batches, task


def _run_all(run: Callable[[int, str], float], count: int, kind: str) -> float:
    """Run that many steps, a few at a time; return the seconds per step of the last ones."""
    seconds = 0.0
    for done in range(0, count, AHEAD):
        if not stopping.is_set():
            seconds = run(min(AHEAD, count - done), kind)
    return seconds


def _trace(run: Callable[[int, str], float], settings: dict[str, Any], seconds: float) -> int:
    """Train while both servers record themselves; return the steps done meanwhile."""
    servers = ",".join(f"grpc://{settings[job]}" for job in ("worker", "ps"))
    folder = Path(settings["traces"])
    partial = folder / ".partial"  # moved when whole
    failed: list[Exception] = []

    def trace() -> None:
        try:
            tf.profiler.experimental.client.trace(servers, str(partial), round(1000 * seconds))
        except Exception as error:
            failed.append(error)

    tracer = threading.Thread(target=trace)
    tracer.start()
    steps = 0
    start = time.perf_counter()
    while tracer.is_alive():
        run(1, "")
        steps += time.perf_counter() < start + seconds
    try:
        partial.mkdir(exist_ok=True)
        (partial / "probe").write_bytes(bytes(PROBE))  # of a full disk TensorFlow says nothing
        if failed:
            raise ProfilingError(f"the servers could not be traced: {str(failed[0]).splitlines()[0][:300]}")
        for path in partial.rglob("*.pb"):
            target = folder / path.relative_to(partial)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
    except OSError as error:
        raise cannot_write(folder, error) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return max(steps, 1)
