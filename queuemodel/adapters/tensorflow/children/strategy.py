"""The coordinator's process in TensorFlow 2 style: a `ParameterServerStrategy` trains on servers that `live` names."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ....errors import ProfilingError
from ...live.child import as_told, cannot_write, stopping
from ...live.runner import READING_SPEED
from ..reading.tensor_sizes import FILE
from .models import TrainingTask, function_of, load

AHEAD = 10  # steps scheduled at a time
SHORTEST_TRACE, LONGEST_TRACE = 0.5, 3.0  # seconds of one recording: what an interruption may lose
PACE = 3.0  # seconds that a second of recording is expected to take with writing and reading it
PROBE = 2**20  # bytes that must fit on a disk that is not full
EDGES = 3  # steps of a recording that are cut off
BODIES = ("then_branch", "else_branch", "body", "cond", "f")  # attributes that name a function


def main(settings: dict[str, Any], say: Callable[..., None]) -> object:
    function_of(settings["model"])  # before TensorFlow takes its seconds
    import tensorflow as tf

    say(doing="connecting")
    cluster = tf.train.ClusterSpec({"ps": [settings["ps"]], "worker": [settings["worker"]]})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, rpc_layer="grpc")
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    say(doing="building the model")
    with strategy.scope():
        task = load(settings["model"], batch_size=settings["batch_size"])
        task.model.optimizer.build(task.model.trainable_variables)
    job = task.job(settings["model"])
    say(job=job)
    graphs: list[Any] = []
    step = _step(strategy, task, graphs)
    try:
        batches = iter(coordinator.create_per_worker_dataset(task.dataset))
    except tf.errors.OpError as error:
        raise ProfilingError(
            "the data set cannot be sent to the worker, as TensorFlow 2 does "
            f"({str(error).splitlines()[0][:200]}); make it of tensors or files instead of Python functions"
        ) from None

    def run(count: int, kind: str) -> float:
        start = time.perf_counter()
        for _ in range(count):
            coordinator.schedule(step, args=(batches,))
        coordinator.join()
        seconds = time.perf_counter() - start
        for _ in range(count if kind else 0):
            say(step=kind, **({"seconds": seconds / count} if kind == "untraced" else {}))
        return seconds / count

    run(1, "warmup" if settings["warmup"] else "")  # takes seconds
    facts = {"parameter_bytes": job["parameter_bytes"], **graph_sizes(graphs)}
    folder = Path(settings["traces"])
    try:
        Path(folder, FILE).write_text(json.dumps(facts))
    except OSError as error:
        raise cannot_write(folder, error) from None
    _train(run, settings, say)
    return coordinator, batches, task


def _step(strategy: Any, task: TrainingTask, graphs: list[Any]) -> Callable[[Any], Any]:
    """The training step; each graph that TensorFlow makes of it is added to ``graphs``."""
    import tensorflow as tf

    def train(batch: Any) -> tf.Tensor:
        graphs.append(tf.compat.v1.get_default_graph())
        loss, gradients = task.gradients(batch)
        task.model.optimizer.apply(gradients, task.model.trainable_variables)
        return loss

    return tf.function(lambda batches: strategy.run(train, args=(next(batches),)), autograph=False, jit_compile=False)


def _train(run: Callable[[int, str], float], settings: dict[str, Any], say: Callable[..., None]) -> None:
    """Warm up, then trace, then time untraced steps."""
    seconds = _run_all(run, settings["warmup"] - 1, "warmup") or run(1, "")
    missing, recorded, pace = settings["steps"], 0, PACE
    while missing > 0 and not stopping.is_set():
        began = time.monotonic()
        left = settings["until"] - began - recorded / READING_SPEED
        length = min(LONGEST_TRACE, max(SHORTEST_TRACE, (missing + EDGES) * seconds), left / pace)
        if length < SHORTEST_TRACE:
            stopping.wait(SHORTEST_TRACE)  # the parent will ask for an end
            continue
        traced, size = _trace(run, settings, length)
        recorded += size
        pace = (time.monotonic() - began + size / READING_SPEED) / length
        seconds = length / traced
        whole = min(max(traced - EDGES, 1), missing)
        missing -= whole
        say(traced_bytes=size)
        for _ in range(whole):
            say(step="traced")
    _run_all(run, settings["untraced_steps"], "untraced")


def _run_all(run: Callable[[int, str], float], count: int, kind: str) -> float:
    """Run that many steps, a few at a time; return the seconds per step of the last ones."""
    seconds = 0.0
    for done in range(0, count, AHEAD):
        if not stopping.is_set():
            seconds = run(min(AHEAD, count - done), kind)
    return seconds


def _trace(run: Callable[[int, str], float], settings: dict[str, Any], seconds: float) -> tuple[int, int]:
    """Train while both servers record themselves; return the steps done meanwhile and the bytes of the recording."""
    import tensorflow as tf

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
    files = [path for path in partial.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    try:
        partial.mkdir(exist_ok=True)
        (partial / "probe").write_bytes(bytes(PROBE))  # of a full disk TensorFlow says nothing
        if failed:
            raise ProfilingError(f"the servers could not be traced: {str(failed[0]).splitlines()[0][:300]}")
        for path in files:
            target = folder / path.relative_to(partial)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
    except OSError as error:
        raise cannot_write(folder, error) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return max(steps, 1), size


def graph_sizes(graphs: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """
    What `reading.tensor_sizes` wants to know of the training step's graphs and of the functions in them.

    Returns
    -------
    dict
        ``outputs``: by operation, the bytes of each output that is used; ``arguments``: by operation, the bytes of
        what it gets from outside its function. None where they are not known, or where two operations of one name
        differ.
    """
    outputs: dict[str, Any] = {}
    arguments: dict[str, Any] = {}
    for graph in _with_bodies(graphs):
        for operation in graph.get_operations():
            used = [t for t in operation.outputs if t.consumers()] or operation.outputs
            _note(outputs, operation.name, [_bytes(t) for t in used])
            given = {_bytes(t) for t in operation.inputs if t.op.type == "Placeholder" and t.dtype.name != "resource"}
            if given:
                _note(arguments, operation.name, given.pop() if len(given) == 1 else None)
    return {"outputs": outputs, "arguments": arguments}


def _with_bodies(graphs: Sequence[Any]) -> Iterator[Any]:
    rest, seen = list(graphs), set()
    while rest:
        graph = rest.pop()
        yield graph
        find = getattr(graph, "_get_function", lambda name: None)  # TensorFlow has no public way
        for operation in graph.get_operations():
            for attribute in BODIES:
                try:
                    name = operation.get_attr(attribute).name
                except (ValueError, AttributeError):
                    continue
                body = getattr(find(name), "graph", None)
                if body is not None and name not in seen:
                    seen.add(name)
                    rest.append(body)


def _note(table: dict[str, Any], name: str, value: Any) -> None:
    table[name] = value if table.get(name, value) == value else None


def _bytes(tensor: Any) -> int | None:
    known = tensor.shape.is_fully_defined() and tensor.dtype.name not in ("resource", "variant", "string")
    return tensor.dtype.size * tensor.shape.num_elements() if known else None


if __name__ == "__main__":
    as_told(main)
