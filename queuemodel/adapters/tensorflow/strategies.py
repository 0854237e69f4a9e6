"""Processes that train by a `tf.distribute` strategy: a coordinator of servers, or one of the mirrored ranks."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from ...base.errors import ProfilingError
from ..processes import Say, cannot_write, stopping
from ..recordings import constant
from .mirrored import gradients_file
from .models import TrainingTask, load_task

AHEAD = 10  # steps scheduled at a time
SHORTEST_TRACE, LONGEST_TRACE = 0.5, 3.0  # seconds of one recording: what an interruption may lose
PROBE = 2**20  # bytes that must fit on a disk that is not full
EDGES = constant("recording_edges")  # steps that are cut off
FILE = "rank{}.xplane.pb"
IDLE = constant("idle_before_stop")  # TensorFlow 2.21 crashes when recording ends amid events


def train_on_servers(settings: dict[str, Any], say: Say) -> object:
    """Coordinate a parameter server and a worker that trace themselves."""
    say(doing="connecting")
    cluster = tf.train.ClusterSpec({"ps": [settings["ps"]], "worker": [settings["worker"]]})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    say(doing="building the model")
    with strategy.scope():
        task = load_task(settings["model"], batch_size=settings["batch_size"])
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
    """Run steps, a few at a time; return the last ones' seconds per step."""
    seconds = 0.0
    for done in range(0, count, AHEAD):
        if not stopping.is_set():
            seconds = run(min(AHEAD, count - done), kind)
    return seconds


def _trace(run: Callable[[int, str], float], settings: dict[str, Any], seconds: float) -> int:
    """Train while both servers record; return the number of steps."""
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
        (partial / "probe").write_bytes(bytes(PROBE))  # TensorFlow does not report a full disk
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


def train_mirrored(settings: dict[str, Any], say: Say) -> object:
    """One rank of `MultiWorkerMirroredStrategy`."""
    rank, traces = settings["rank"], Path(settings["traces"])
    own = {"type": "worker", "index": rank}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": settings["addresses"]}, "task": own})
    say(doing="connecting the ranks")
    communication = tf.distribute.experimental
    ring = communication.CommunicationOptions(implementation=communication.CommunicationImplementation.RING)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=ring)
    say(doing="building the model")
    ranks = len(settings["addresses"])
    if rank == 0 and ranks == 2:  # the other one waits meanwhile, so that it takes no time from this one
        task = load_task(settings["model"], batch_size=settings["batch_size"])
        say(job=task.job(settings["model"]))
        _record(task, tf.distribute.get_strategy(), 1, traces / "trace_n1" / FILE.format(0), settings, say)
    _all_reduce_once(strategy)
    with strategy.scope():
        task = load_task(settings["model"], batch_size=settings["batch_size"])
        task.model.optimizer.build(task.model.trainable_variables)
    _record(task, strategy, ranks, traces / f"trace_n{ranks}" / FILE.format(rank), settings, say)
    say(done=True)
    stopping.wait()  # an end now cuts off what other ranks have still to receive; the parent ends all
    return strategy, task


def _all_reduce_once(strategy: Any) -> None:
    """Wait for the other ranks."""

    def one() -> Any:
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(1.0))

    tf.function(lambda: strategy.run(one))()


def _record(task: TrainingTask, strategy: Any, ranks: int, path: Path, settings: dict[str, Any], say: Say) -> None:
    """Warm up, record steps, time untraced ones and measure gradient noise."""
    model, batches = task.model, iter(task.dataset)
    noted: Counter[str] = Counter()  # bytes of the gradients, by the operations that make them

    def train(batch: Any) -> None:
        _, gradients = task.gradients(batch)
        noted.clear()  # a function may be traced again
        for gradient in gradients:
            if isinstance(gradient, tf.Tensor):
                noted[_maker(gradient.op)] += gradient.dtype.size * gradient.shape.num_elements()
        model.optimizer.apply(gradients, model.trainable_variables)

    step = tf.function(lambda batch: strategy.run(train, args=(batch,)), autograph=False, jit_compile=False)

    def run(kind: str) -> None:
        step(next(batches))
        say(step=kind)

    for _ in range(settings["warmup"]):
        run("warmup")
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".partial")
    tf.profiler.experimental.start(str(scratch))
    for number in range(settings["steps"]):
        with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
            run("traced")
    time.sleep(IDLE)
    tf.profiler.experimental.stop()
    try:
        (recorded,) = scratch.rglob("*.xplane.pb")
        os.replace(recorded, path)
        gradients_file(path).write_text(json.dumps(noted))
        shutil.rmtree(scratch)
    except ValueError:
        raise ProfilingError(f"{path}: TensorFlow recorded nothing; is the disk full?") from None
    except OSError as error:
        raise cannot_write(path.parent, error) from None
    start = time.perf_counter()
    for _ in range(settings["untraced_steps"]):
        run("untraced")
    if untraced := settings["untraced_steps"]:
        say(seconds=(time.perf_counter() - start) / untraced, ranks=ranks)
    if ranks > 1 and settings["noise_steps"]:
        say(gradient_norms=_gradient_norms(strategy, task, batches, settings["noise_steps"], say))


def _maker(operation: Any) -> str:
    """The operation before those that TensorFlow optimizes away."""
    while operation.type in ("Reshape", "Identity"):
        operation = operation.inputs[0].op
    return str(operation.name)


def _gradient_norms(strategy: Any, task: TrainingTask, batches: Any, steps: int, say: Say) -> list[dict[str, Any]]:
    """Fields of `GradientNorms` of steps without updates, the same on every rank."""

    def measure(batch: Any) -> Any:
        context = tf.distribute.get_replica_context()
        own = [tf.convert_to_tensor(gradient) for gradient in task.gradients(batch)[1] if gradient is not None]
        mean = context.all_reduce(tf.distribute.ReduceOp.MEAN, own)
        return context.all_gather(tf.stack([_norm(own), _norm(mean)])[None], axis=0)

    step = tf.function(lambda batch: strategy.run(measure, args=(batch,)), autograph=False, jit_compile=False)
    found = []
    for _ in range(steps):
        # all ranks read the same data set: each takes its own of as many batches
        several = [next(batches) for _ in range(strategy.num_replicas_in_sync)]
        norms = step(several[strategy.cluster_resolver.task_id]).numpy()
        found.append({"workers": norms[:, 0].tolist(), "mean": float(norms[0, 1])})
        say(step="noise")
    return found


def _norm(gradients: list[Any]) -> Any:
    return tf.add_n([tf.reduce_sum(tf.square(tf.cast(gradient, tf.float64))) for gradient in gradients])
