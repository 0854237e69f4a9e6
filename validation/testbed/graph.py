"""The graph that a worker runs: read, wait forward, wait backward, apply; as in the recorded traces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from .waits import Lateness
from .workload import Workload

tf1 = tf.compat.v1
ANY_AGE = 2**62  # an accumulator drops gradients older than its own step: these never are


@dataclass(frozen=True)
class Graph:
    """What a worker runs: `step` until told to stop; `coordinate`, beside it, on worker 0 of a synchronous job."""

    initialize: tf.Operation
    step: tf.Operation | tf.Tensor
    coordinate: Callable[[tf1.Session, int, bool], None] | None = None


def build(workload: Workload, *, worker: int, lateness: Lateness, rng: np.random.Generator) -> Graph:
    """
    Build one worker's copy of the graph.

    Forward, a layer waits for its tensors (a slice of each is added to the activation) and for the layer
    before; backward, each tensor's gradient is made of the layer's backward result and sent to its server.
    """
    shape = 1 / workload.cv**2
    factor = workload.slow_worker if worker == 1 else 1.0

    def computation(name: str, seconds: float, value: tf.Tensor) -> tf.Tensor:
        def run(x: np.ndarray) -> np.ndarray:
            lateness.wait(rng.gamma(shape, factor * seconds / shape))
            return x

        result = tf1.py_func(run, [value], tf.float32, name=name)
        result.set_shape([])
        return result

    layers = []
    for layer, servers in zip(workload.layers, workload.servers(), strict=True):
        variables = []
        for i, (size, server) in enumerate(zip(layer.tensor_bytes, servers, strict=True)):
            with tf.device(f"/job:ps/task:{server}"):
                variables.append(tf1.Variable(tf.zeros([size // 4]), use_resource=False, name=f"{layer.name}_{i}"))
        layers.append((layer, variables))

    with tf.device(f"/job:worker/task:{worker}"):
        activation = tf.constant(0.0)
        arrived: list[tf.Tensor] = []
        for layer, variables in layers:
            before, arrived = arrived if workload.order == "layer" else [], []
            for variable in variables:
                with tf.control_dependencies(before), tf.device(variable.device):
                    value = tf.identity(variable, name=f"{variable.op.name}/ordered") if before else variable
                arrived.append(value[0])
                activation = activation + arrived[-1]
            activation = computation(f"{layer.name}_fwd", layer.forward_s, activation)
        gradients = []
        for layer, variables in reversed(layers):
            activation = computation(f"{layer.name}_bwd", layer.backward_s, activation)
            for i, variable in enumerate(variables):
                # a factor of its own for each tensor: equal ones would be merged and sent once
                gradients.append((tf.fill(variable.shape, activation * (1e-6 * (i + 1))), variable))
    initialize = tf1.global_variables_initializer()
    if workload.mode == "sync":
        return _synchronous(initialize, gradients)
    updates = []
    for gradient, variable in gradients:
        with tf.device(variable.device):
            updates.append(tf1.assign_sub(variable, gradient))
    with tf.device(updates[-1].device):
        return Graph(initialize, tf.group(*updates))


def _synchronous(initialize: tf.Operation, gradients: list) -> Graph:
    """
    Average every step's gradients on the servers behind a barrier, as TensorFlow's SyncReplicasOptimizer does.

    A step hands its gradients to an accumulator per tensor and waits for a token; the coordinator (worker 0)
    takes the averages of `workers` gradients, applies them, and puts one token per worker in the queue: 1 for
    another step, 0 to stop.
    """
    workers = tf1.placeholder(tf.int32, [])
    given, taken = [], []
    for i, (gradient, variable) in enumerate(gradients):
        with tf.device(variable.device):
            accumulator = tf1.ConditionalAccumulator(tf.float32, shape=variable.shape, shared_name=f"accumulator_{i}")
            given.append(accumulator.apply_grad(gradient, local_step=ANY_AGE))
            taken.append(tf1.assign_sub(variable, accumulator.take_grad(workers)))
    with tf.device("/job:ps/task:0"):
        tokens = tf1.FIFOQueue(64, tf.int32, shapes=[[]], shared_name="tokens")
        token = tf1.placeholder(tf.int32, [])
        with tf.control_dependencies(taken):
            advance = tokens.enqueue_many(tf.fill([workers], token))
        with tf.control_dependencies(given):
            step = tokens.dequeue()
    return Graph(initialize, step, lambda session, n, more: session.run(advance, {workers: n, token: int(more)}))
