"""Processes that train: the coordinator of a parameter server and a worker, or one of the mirrored ranks."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from ...base.errors import ProfilingError
from ..processes import Say, blaming, built, record_rank
from ..recordings import constant
from .mirrored import gradients_file

AHEAD = 10  # steps scheduled at a time
SHORTEST_TRACE, LONGEST_TRACE = 0.5, 3.0  # seconds of one recording: what an interruption may lose
EDGES = constant("recording_edges")  # steps that are cut off
IDLE = constant("idle_before_stop")  # TensorFlow 2.21 crashes when recording ends amid events


def train_on_servers(settings: dict[str, Any], say: Say) -> object:
    """Coordinate a parameter server and a worker that trace themselves."""
    say(doing="connecting")
    cluster = tf.train.ClusterSpec({job: [settings[job]] for job in ("ps", "worker")})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    model, dataset = _load(settings, strategy, say)
    with blaming(settings["model"]):
        batches = iter(coordinator.create_per_worker_dataset(dataset))
    step, _ = _training_step(strategy, model)

    def train(count: int, kind: str = "") -> float:
        """Seconds of each of the last steps."""
        seconds = 0.0
        for left in range(count, 0, -AHEAD):
            start, some = time.perf_counter(), min(AHEAD, left)
            for _ in range(some):
                coordinator.schedule(step, args=(batches,))
            coordinator.join()
            seconds = (time.perf_counter() - start) / some
            for _ in range(some if kind else 0):
                say(step=kind, **({"seconds": seconds} if kind == "untraced" else {}))
        return seconds

    train(1, "warmup")  # takes seconds
    seconds, missing = train(settings["warmup"] - 1, "warmup"), settings["steps"]
    while missing:
        length = min(LONGEST_TRACE, max(SHORTEST_TRACE, (missing + EDGES) * seconds))
        traced = _trace(train, settings, length, f"{missing}_left")
        seconds = length / traced
        for _ in range(min(max(traced - EDGES, 1), missing)):
            say(step="traced")
            missing -= 1
    train(settings["untraced_steps"], "untraced")
    return coordinator, batches, model


def _trace(train: Callable[[int], float], settings: dict[str, Any], seconds: float, name: str) -> int:
    """Train while both servers record; return the number of steps."""
    partial = Path(settings["traces"], ".partial")  # no reader sees it before it is whole
    servers = ",".join(f"grpc://{settings[job]}" for job in ("worker", "ps"))
    start, steps, trace = time.perf_counter(), 0, tf.profiler.experimental.client.trace
    with ThreadPoolExecutor(1) as background:
        tracing = background.submit(trace, servers, str(partial), round(1000 * seconds))
        while not tracing.done():
            train(1)
            steps += time.perf_counter() < start + seconds
    tracing.result()  # raises what failed
    partial.rename(partial.with_name(name))
    return max(steps, 1)


def train_mirrored(settings: dict[str, Any], say: Say) -> None:
    """One rank of `MultiWorkerMirroredStrategy`, or a single one."""
    rank, addresses = settings["rank"], settings["addresses"]
    strategy = tf.distribute.get_strategy()
    if len(addresses) > 1:
        say(doing="connecting the ranks")
        task = {"type": "worker", "index": rank}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
        ring = tf.distribute.experimental.CommunicationImplementation.RING
        options = tf.distribute.experimental.CommunicationOptions(implementation=ring)
        strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    model, dataset = _load(settings, strategy, say)
    batches, (train, sizes) = iter(dataset), _training_step(strategy, model)

    def step(number: int) -> None:
        with tf.profiler.experimental.Trace("train", step_num=number, _r=1):  # nothing while none is recorded
            train(batches)

    @contextlib.contextmanager
    def recording(folder: Path) -> Iterator[Callable[[], object]]:
        path, scratch = folder / f"rank{rank}.xplane.pb", folder / f"rank{rank}.partial"
        tf.profiler.experimental.start(str(scratch))
        yield bool  # nothing after each step
        time.sleep(IDLE)
        tf.profiler.experimental.stop()
        if not (recorded := [*scratch.rglob("*.xplane.pb")]):
            raise ProfilingError(f"{path}: TensorFlow recorded nothing; is the disk full?")
        recorded[0].rename(path)
        gradients_file(path).write_text(json.dumps(sizes))
        shutil.rmtree(scratch)

    def norms(steps: int) -> list[dict[str, Any]]:
        own = iter(dataset.shard(len(addresses), rank))  # others than those of other ranks
        return _gradient_norms(strategy, model, own, steps, say)

    record_rank(settings, say, step, recording, norms)


def _training_step(strategy: Any, model: Any) -> tuple[Any, Counter[str]]:
    """A function of an iterator, and then the bytes of its gradients by the operations that make them."""
    sizes: Counter[str] = Counter()

    def update(batch: Any) -> None:
        gradients = _gradients(model, batch)
        sizes.clear()  # a function may be traced again
        for gradient in gradients:
            if isinstance(gradient, tf.Tensor):
                made_by = gradient.op
                while made_by.type in ("Reshape", "Identity"):  # TensorFlow optimizes them away
                    made_by = made_by.inputs[0].op
                sizes[made_by.name] += gradient.dtype.size * gradient.shape.num_elements()
        model.optimizer.apply(gradients, model.trainable_variables)

    step = tf.function(lambda batches: strategy.run(update, args=(next(batches),)), autograph=False, jit_compile=False)
    return step, sizes


def _gradient_norms(strategy: Any, model: Any, batches: Any, steps: int, say: Say) -> list[dict[str, Any]]:
    """Fields of `GradientNorms` of steps without updates, the same on every rank."""

    def measure(batch: Any) -> Any:
        context = tf.distribute.get_replica_context()
        own = [tf.convert_to_tensor(gradient) for gradient in _gradients(model, batch) if gradient is not None]
        mean = context.all_reduce(tf.distribute.ReduceOp.MEAN, own)
        norms = tf.stack([tf.linalg.global_norm(gradients) ** 2 for gradients in (own, mean)])
        return context.all_gather(norms[None], axis=0)

    step = tf.function(lambda batch: strategy.run(measure, args=(batch,)), autograph=False, jit_compile=False)
    found = []
    for norms in (step(next(batches)).numpy() for _ in range(steps)):
        found.append({"workers": norms[:, 0].tolist(), "mean": float(norms[0, 1])})
        say(step="noise")
    return found


def _load(settings: dict[str, Any], strategy: Any, say: Say) -> tuple[Any, Any]:
    """The built model, and its batches: of one size, repeated and prefetched (raises `ProfilingError`)."""
    name, expected = settings["model"], "a compiled Keras model and a tf.data.Dataset of (x, y) batches"
    say(doing="building the model")
    keras.utils.set_random_seed(1)
    with blaming(name), strategy.scope():
        model, dataset = built(name, expected, (keras.Model, tf.data.Dataset), module=f"{__package__}.examples")
        first = next((int(tf.shape(tf.nest.flatten(batch)[0])[0]) for batch in dataset), 0)
        size = settings["batch_size"] or first
        whole = dataset.rebatch(size or 1, drop_remainder=True)
        batch = next(iter(whole), None)
        if batch is None:
            raise ProfilingError(f"model {name!r}: its data set has no batch of {size} examples; specify fewer")
        _loss(model, batch)  # builds the model, and a wrong shape fails where its message is clearest
        model.optimizer.build(model.trainable_variables)
    sizes = [weight.value.dtype.size * weight.shape.num_elements() for weight in model.weights]
    epoch = first * batches if (batches := int(dataset.cardinality())) > 0 else None
    known = {"name": name, "parameter_bytes": sum(sizes), "batch_size": size, "dataset_size": epoch}
    fields = {"tensors": len(sizes)} | ({"shard_bytes": [sum(sizes)]} if "ps" in settings else {})
    say(job={"framework_version": tf.__version__, "known": known, "fields": fields})
    return model, whole.repeat().prefetch(4)


def _loss(model: Any, batch: Any) -> Any:
    x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)
    return model.compute_loss(x=x, y=y, y_pred=model(x, training=True), sample_weight=weight, training=True)


def _gradients(model: Any, batch: Any) -> list[Any]:
    """Of the loss, by the trainable variables."""
    with tf.GradientTape() as tape:
        loss = _loss(model, batch)
    return list(tape.gradient(loss, model.trainable_variables))
