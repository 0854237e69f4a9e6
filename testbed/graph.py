"""The graph that a worker runs: read, wait forward, wait backward, apply; as in the recorded traces."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from .synchronization import Gradients, Waiting, synchronized
from .waits import Lateness
from .workload import Workload

tf1 = tf.compat.v1


def build(workload: Workload, *, worker: int, workers: int, lateness: Lateness, rng: np.random.Generator) -> Waiting:
    """
    Build one worker's copy of the graph, among so many workers.

    Forward, a layer waits for its tensors (a slice of each is added to the activation) and for the layer
    before; backward, each tensor's gradient is made of the layer's backward result and sent to its server.
    """
    shape = 1 / workload.cv**2
    factor = (workload.slow_worker if worker == 1 else 1.0) / workload.accelerator

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

    def backward(activation: tf.Tensor) -> Gradients:
        gradients = []
        for layer, variables in reversed(layers):
            activation = computation(f"{layer.name}_bwd", layer.backward_s, activation)
            for i, variable in enumerate(variables):
                # a factor of its own for each tensor: equal ones would be merged and sent once
                gradients.append((tf.fill(variable.shape, activation * (1e-6 * (i + 1))), variable))
        return gradients

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
        gradients = backward(activation)
        again = []
        if workload.mode == "k-batch-sync":  # the parameters are there
            activation = tf.constant(0.0)
            for layer, _ in layers:
                activation = computation(f"{layer.name}_fwd", layer.forward_s, activation)
            again = backward(activation)
    return synchronized(workload, gradients, again, worker=worker, workers=workers, cut=lateness.cut)
