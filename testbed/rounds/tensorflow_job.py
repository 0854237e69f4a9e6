"""What a rank trains with TensorFlow: layers that wait, under `MultiWorkerMirroredStrategy` with the ring over gRPC."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from ..workload import Layer, Workload

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

communication = tf.distribute.experimental
PORT = 2222
IDLE = 0.5  # seconds until nothing is under way: the profiler crashes when it stops among events


class Job:
    """One rank; alone there is nothing to reduce."""

    def __init__(self, workload: Workload, rank: int, addresses: list[str], wait: Callable[[float], None]) -> None:
        cluster = {"worker": [f"{address}:{PORT}" for address in addresses]}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}})
        self.rank = rank
        options = communication.CommunicationOptions(
            bytes_per_pack=round(workload.bucket_mb * 2**20),
            implementation=communication.CommunicationImplementation.RING,
        )
        strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
        layers = [_TimedLayer(layer, wait) for layer in workload.layers]
        variables = [variable for layer in layers for variable in layer.variables]

        def step() -> None:
            with tf.GradientTape() as tape:
                x = tf.constant(0.0)
                for layer in layers:
                    x = layer(x)
            gradients = tape.gradient(x, variables)
            reduced = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, gradients, options)
            for variable, gradient in zip(variables, reduced, strict=True):
                variable.assign_sub(gradient)

        self.step = tf.function(lambda: strategy.run(step), autograph=False, jit_compile=False)

    def round(self) -> None:
        self.step()

    def traced(self, train: Callable[[], None], rounds: int, folder: Path) -> None:
        """Train so many rounds, and write what the profiler recorded of them."""
        scratch = folder / f"rank{self.rank}"
        tf.profiler.experimental.start(str(scratch))
        for number in range(rounds):
            with tf.profiler.experimental.Trace("train", step_num=number, _r=1):
                train()
        time.sleep(IDLE)
        tf.profiler.experimental.stop()
        (recorded,) = scratch.rglob("*.xplane.pb")
        recorded.rename(folder / f"rank{self.rank}.xplane.pb")
        shutil.rmtree(scratch)


class _TimedLayer:
    """The parameters of a layer, and its computation: a wait forward; backward a wait, and then all its gradients."""

    def __init__(self, layer: Layer, wait: Callable[[float], None]) -> None:
        self.layer, self.wait = layer, wait
        self.variables = [
            tf.Variable(tf.zeros([size // 4]), name=f"{layer.name}_{i}") for i, size in enumerate(layer.tensor_bytes)
        ]

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        @tf.custom_gradient
        def layer(x: tf.Tensor, *tensors: tf.Tensor) -> tuple:
            def gradient(upstream: tf.Tensor) -> tuple:
                with tf.name_scope(f"gradient_tape/{self.layer.name}"):  # TensorFlow's own name for it
                    x = self._computed(upstream, self.layer.backward_s)
                    # a factor of its own for each tensor: equal ones would be merged
                    return x, *(tf.fill(tf.shape(t), x * (1e-6 * (i + 1))) for i, t in enumerate(tensors))

            with tf.name_scope(self.layer.name):
                return self._computed(x, self.layer.forward_s), gradient

        return layer(x, *(variable.read_value() for variable in self.variables))

    def _computed(self, x: tf.Tensor, seconds: float) -> tf.Tensor:
        def run(x: np.ndarray) -> np.ndarray:
            self.wait(seconds)
            return x

        result = tf.numpy_function(run, [x], tf.float32, name="computed")
        result.set_shape([])
        return result
