"""The worker's process in graph style: a TensorFlow 1 session trains on a parameter server."""

# Keras 3 has no sessions. A training step is therefore traced as two functions: forward and backward of the parameters'
# values (so that each is fetched once per step, also inside loops), and the optimizer's update of the gradients. Their
# bodies are imported into one TensorFlow 1 graph, on the worker's and on the server's device.

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ...base.errors import ProfilingError
from ..processes import Say, cannot_write, stopping
from .models import TrainingTask, load_task

tf1 = tf.compat.v1
WORKER = "/job:worker/task:0"
SERVER = "/job:ps/task:0/device:CPU:0"


def train_session(settings: dict[str, Any], say: Say) -> object:
    """Train as the worker, or on servers that already run."""
    server, target = None, f"grpc://{settings['worker']}"
    if settings["own_server"]:
        cluster = {"ps": [settings["ps"]], "worker": [settings["worker"]]}
        server = tf.distribute.Server(cluster, job_name="worker", task_index=0)
        target = server.target
    say(doing="building the model")
    task = load_task(settings["model"], batch_size=settings["batch_size"])
    say(job=task.job(settings["model"]))
    step = _build(task.model, tf.nest.map_structure(tf.type_spec_from_value, task.batch), container=settings["run"])
    own = ["/job:ps/task:0", "/job:worker/task:0"]  # of the cluster
    config = tf1.ConfigProto(device_filters=own, allow_soft_placement=True)
    say(doing="connecting")
    session = tf1.Session(target, graph=step.graph, config=config)
    for operation, placeholder, value in step.initializers:  # one at a time: a message holds at most 2 GB
        session.run(operation, {placeholder: value})
    try:
        _train(session, step, task, settings, say)
    finally:
        with contextlib.suppress(tf.errors.OpError):  # the server may be what failed
            session.run(step.release)
    return session, server


def _train(session: Any, step: SessionGraph, task: TrainingTask, settings: dict[str, Any], say: Say) -> None:
    """Warm up, then trace steps one after the other, then time untraced ones."""
    options = tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE)
    batches = iter(task.dataset)

    def timed(kind: str, **arguments: Any) -> None:
        start = time.perf_counter()
        feeds = zip(step.placeholders, tf.nest.flatten(next(batches)), strict=True)
        session.run([step.loss, step.step], {place: part.numpy() for place, part in feeds}, **arguments)
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


def _write(path: Path, metadata: Any, say: Say) -> None:
    """Whole or not at all."""
    content, partial = metadata.SerializeToString(), path.with_suffix(".partial")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise cannot_write(path.parent, error) from None
    say(step="traced")


@dataclass(frozen=True)
class SessionGraph:
    """One training step in a graph; ``step`` ends when the server has applied the updates."""

    graph: tf.Graph
    placeholders: list[tf.Tensor]  # one per component of a batch
    loss: tf.Tensor
    step: tf.Operation
    initializers: list[tuple[tf.Operation, tf.Tensor, np.ndarray]]  # give the variables their first values
    release: tf.Operation  # frees the variables on the server


def _build(model: keras.Model, batch_spec: Any, *, container: str) -> SessionGraph:
    """The training step of a compiled model; a batch is ``(x, y)`` or ``(x, y, sample_weight)``."""
    model.optimizer.build(model.trainable_variables)
    variables = list(model.variables)
    forward, changed = _trace_worker(model, variables, batch_spec)
    update = _trace_update(model, forward.structured_outputs["gradients"])
    stored = [*variables, *model.optimizer.variables]
    first_values = [variable.value.numpy() for variable in stored]
    graph = tf.Graph()
    with graph.as_default(), graph.container(container):
        handles, initializers = {}, []
        with tf.device(SERVER):
            for i, (variable, value) in enumerate(zip(stored, first_values, strict=True)):
                dtype, name = variable.value.dtype, _name(variable, i)
                handle = tf.raw_ops.VarHandleOp(dtype=dtype, shape=variable.shape, shared_name=name, name=name)
                first = tf1.placeholder(dtype, variable.shape)
                initializers.append((tf.raw_ops.AssignVariableOp(resource=handle, value=first), first, value))
                handles[id(variable.value.handle)] = handle
            values = [
                tf.raw_ops.ReadVariableOp(
                    resource=handles[id(v.value.handle)], dtype=v.value.dtype, name="read/" + _name(v, i)
                )
                for i, v in enumerate(variables)
            ]
        with tf.device(WORKER):
            placeholders = [tf1.placeholder(spec.dtype, spec.shape) for spec in tf.nest.flatten(batch_spec)]
            here = [tf.identity(value) for value in values]  # else a loop's parameters would circulate on the server
            outputs, _ = _imported(forward, [*here, *placeholders], {}, "worker")
        result = tf.nest.pack_sequence_as(forward.structured_outputs, outputs, expand_composites=True)
        gradients = [g for gradient in result["gradients"] for g in _components(gradient)]
        with tf.device(SERVER):
            # each use on the server would fetch its own; a plain identity would be optimized away
            there = [tf.ensure_shape(gradient, gradient.shape) for gradient in gradients]
            _, updates = _imported(update, there, handles, "update")
            assigns = [
                tf.raw_ops.AssignVariableOp(resource=handles[id(variables[i].value.handle)], value=value)
                for i, value in zip(changed, result["state"], strict=True)
            ]
            step = tf.group(*updates, *assigns, name="step")
            release = tf.group(*(tf.raw_ops.DestroyResourceOp(resource=handle) for handle in handles.values()))
    return SessionGraph(graph, placeholders, result["loss"], step, initializers, release)


def _trace_worker(model: keras.Model, variables: list, batch_spec: Any) -> tuple[Any, list[int]]:
    """Loss, gradients and changed state (dropout's seeds, moving averages) as a function of values."""
    place = {id(v): i for i, v in enumerate(variables)}
    trainable = [place[id(v)] for v in model.trainable_variables]
    changed: list[int] = []
    metrics = [(v, v.value.numpy()) for v in model.metrics_variables]  # keep their first values

    def forward_backward(values: list[tf.Tensor], batch: Any) -> dict[str, Any]:
        x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)
        unused = [(v, tf.constant(value, v.value.dtype)) for v, value in metrics]
        state = keras.StatelessScope(state_mapping=[*zip(variables, values, strict=True), *unused])
        parameters = [values[i] for i in trainable]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(parameters)
            with state:
                loss = model.compute_loss(x=x, y=y, y_pred=model(x, training=True), sample_weight=weight, training=True)
        now = [state.get_current_value(v) for v in variables]
        changed[:] = [i for i, value in enumerate(now) if value is not None and value is not values[i]]
        gradients = tape.gradient(loss, parameters)
        return {"loss": loss, "gradients": gradients, "state": [now[i] for i in changed]}

    specs = [tf.TensorSpec(v.shape, v.value.dtype) for v in variables]
    function = tf.function(forward_backward, autograph=False, jit_compile=False)
    return function.get_concrete_function(specs, batch_spec), changed


def _trace_update(model: keras.Model, gradients: list) -> Any:
    """The optimizer's update as a function of the gradients' components."""
    trained = [(v, g) for v, g in zip(model.trainable_variables, gradients, strict=True) if g is not None]
    if not trained:
        raise ProfilingError(
            "the model has no trainable parameter that its loss depends on, so there is nothing to train"
        )

    def apply(*components: tuple[tf.Tensor, ...]) -> None:
        whole = [
            parts[0]
            if len(parts) == 1
            else tf.IndexedSlices(*parts, dense_shape=tf.constant(tuple(v.shape), parts[1].dtype))
            for (v, _), parts in zip(trained, components, strict=True)
        ]
        model.optimizer.apply(whole, [v for v, _ in trained])

    specs = [tuple(tf.TensorSpec(c.shape, c.dtype) for c in _components(g)) for _, g in trained]
    return tf.function(apply, autograph=False, jit_compile=False).get_concrete_function(*specs)


def _components(gradient: Any) -> tuple[tf.Tensor, ...]:
    if gradient is None:
        return ()
    return (gradient.values, gradient.indices) if isinstance(gradient, tf.IndexedSlices) else (gradient,)


def _name(variable: Any, index: int) -> str:
    return f"{index}_{variable.path}".replace("/", "_")


def _imported(
    function: Any, inputs: list[tf.Tensor], handles: dict[int, tf.Tensor], name: str
) -> tuple[list[tf.Tensor], list[tf.Operation]]:
    """Import a traced function's body into the current graph; return its outputs and side effects."""
    body = function.graph
    definition = body.as_graph_def()
    returned = {tensor.op.name for tensor in body.outputs}
    for node in definition.node:
        node.device = ""
        node.attr.pop("_class", None)  # colocation with the eager variables
        if node.name in returned:  # a function's results wait for all its side effects: a step's need not
            node.input[:] = [source for source in node.input if not source.startswith("^")]
    captured = [handles[id(value)] if id(value) in handles else _constant(value) for value, _ in body.captures]
    arguments = {
        inner.name: outer for inner, outer in zip(body.inputs, [*inputs, *captured], strict=True) if inner.consumers()
    }
    elements = [*(t.name for t in body.outputs), *(operation.name for operation in body.control_outputs)]
    found = tf1.import_graph_def(definition, input_map=arguments, return_elements=elements, name=name)
    return found[: len(body.outputs)], found[len(body.outputs) :]


def _constant(value: Any) -> tf.Tensor:
    if value.dtype == tf.resource:
        raise ProfilingError(
            "the model uses a variable or a lookup table that is not among model.variables, which graph style cannot "
            "place; create variables with add_weight, look words up in the data set, or use style='strategy'"
        )
    return tf.constant(value.numpy())
