"""One rank's process of mirrored training."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from ....base.errors import ProfilingError
from ...live.child import cannot_write, stopping
from ..mirrored import beside
from .models import TrainingTask, load

FILE = "rank{}.xplane.pb"
IDLE = 1.0  # seconds until nothing is under way: TensorFlow 2.21 crashes when recording ends amid events


def main(settings: dict[str, Any], say: Callable[..., None]) -> object:
    rank, traces = settings["rank"], Path(settings["traces"])
    os.environ["TF_CONFIG"] = json.dumps(
        {"cluster": {"worker": settings["addresses"]}, "task": {"type": "worker", "index": rank}}
    )
    say(doing="connecting the ranks")
    communication = tf.distribute.experimental
    ring = communication.CommunicationOptions(implementation=communication.CommunicationImplementation.RING)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=ring)
    say(doing="building the model")
    ranks = len(settings["addresses"])
    if rank == 0 and ranks == 2:  # the other one waits meanwhile, so that it takes no time from this one
        task = load(settings["model"], batch_size=settings["batch_size"])
        say(job=task.job(settings["model"]))
        _record(task, tf.distribute.get_strategy(), 1, traces / "trace_n1" / FILE.format(0), settings, say)
    _meet(strategy)
    with strategy.scope():
        task = load(settings["model"], batch_size=settings["batch_size"])
        task.model.optimizer.build(task.model.trainable_variables)
    _record(task, strategy, ranks, traces / f"trace_n{ranks}" / FILE.format(rank), settings, say)
    say(done=True)
    stopping.wait()  # who leaves now cuts off what the other has still to receive; the parent ends all
    return strategy, task


def _meet(strategy: Any) -> None:
    def one() -> Any:
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(1.0))

    tf.function(lambda: strategy.run(one))()


def _record(
    task: TrainingTask, strategy: Any, ranks: int, path: Path, settings: dict[str, Any], say: Callable[..., None]
) -> None:
    """Train, write the recording of the steps after the warm-up, and time others."""
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
        beside(path).write_text(json.dumps(noted))
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
        say(gradient_norms=gradient_norms(strategy, task, batches, settings["noise_steps"], say))


def _maker(operation: Any) -> str:
    """The operation behind those that TensorFlow leaves out when it optimizes."""
    while operation.type in ("Reshape", "Identity"):
        operation = operation.inputs[0].op
    return str(operation.name)


def gradient_norms(
    strategy: Any, task: TrainingTask, batches: Iterator[Any], steps: int, say: Callable[..., None]
) -> list[dict[str, Any]]:
    """`GradientNorms` of so many steps as plain values, the same on every rank; parameters stay where they are.

    All ranks read the same data set, so each takes, of as many batches as there are ranks, its own.
    """

    def measure(batch: Any) -> Any:
        context = tf.distribute.get_replica_context()
        own = [tf.convert_to_tensor(gradient) for gradient in task.gradients(batch)[1] if gradient is not None]
        mean = context.all_reduce(tf.distribute.ReduceOp.MEAN, own)
        return context.all_gather(tf.stack([_norm(own), _norm(mean)])[None], axis=0)

    step = tf.function(lambda batch: strategy.run(measure, args=(batch,)), autograph=False, jit_compile=False)
    found = []
    for _ in range(steps):
        several = [next(batches) for _ in range(strategy.num_replicas_in_sync)]
        norms = step(several[strategy.cluster_resolver.task_id]).numpy()
        found.append({"workers": norms[:, 0].tolist(), "mean": float(norms[0, 1])})
        say(step="noise")
    return found


def _norm(gradients: list[Any]) -> Any:
    return tf.add_n([tf.reduce_sum(tf.square(tf.cast(gradient, tf.float64))) for gradient in gradients])
