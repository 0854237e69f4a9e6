"""Models of live runs: built-in ones, and a user's own ``package.module:function``, checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ...base.errors import ProfilingError
from ..processes import blaming, imported

Built = tuple[keras.Model, tf.data.Dataset]
EXAMPLES = 2048


def _mlp() -> Built:
    """Images of 28 x 28, three dense layers: 5.3 MB of parameters, little computation."""
    dense = [layers.Dense(1024, activation="relu"), layers.Dropout(0.2), layers.Dense(512, activation="relu")]
    return _classifier((784,), dense, optimizer="sgd", batch_size=64)


def _cnn() -> Built:
    """Images of 32 x 32 in colour, three convolutions: 1.2 MB of parameters, much computation."""
    normalized = [layers.Conv2D(64, 3), layers.BatchNormalization(), layers.ReLU(), layers.MaxPooling2D()]
    dense = [layers.Conv2D(64, 3, activation="relu"), layers.Flatten(), layers.Dense(256, activation="relu")]
    parts = [layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(), *normalized, *dense]
    return _classifier((32, 32, 3), parts, optimizer="adam", batch_size=32)


def _embedding() -> Built:
    """Bags of 32 words out of 20,000: 5 MB of parameters fetched, few of them updated."""
    bag = [layers.Embedding(20_000, 64), layers.GlobalAveragePooling1D(), layers.Dense(64, activation="relu")]
    return _classifier((32,), bag, optimizer="adagrad", batch_size=128, words=20_000)


def _transformer() -> Built:
    """Two small transformer blocks on sequences of 32 words: 3.6 MB of parameters in many tensors."""

    def blocks(words: Any) -> Any:
        x = layers.Embedding(4000, 128)(words)
        for _ in range(2):
            x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 32)(x, x))
            x = layers.LayerNormalization()(x + layers.Dense(128)(layers.Dense(512, activation="gelu")(x)))
        return layers.GlobalAveragePooling1D()(x)

    return _classifier((32,), [blocks], optimizer="adam", batch_size=32, words=4000)


def _classifier(
    shape: tuple[int, ...], parts: Sequence[Any], *, optimizer: str, batch_size: int, words: int | None = None
) -> Built:
    """A classifier of these layers with ten classes, and random examples: numbers, or ``words``."""
    inputs = x = keras.Input(shape, dtype="float32" if words is None else "int32")
    for part in [*parts, layers.Dense(10)]:
        x = part(x)
    model = keras.Model(inputs, x)
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), optimizer=optimizer)
    rng = np.random.default_rng(1)
    x = rng.random((EXAMPLES, *shape), np.float32) if words is None else rng.integers(words, size=(EXAMPLES, *shape))
    return model, tf.data.Dataset.from_tensor_slices((x, rng.integers(10, size=EXAMPLES))).batch(batch_size)


BUILT_IN: dict[str, Callable[[], Built]] = {f.__name__[1:]: f for f in (_mlp, _cnn, _embedding, _transformer)}


@dataclass(frozen=True)
class TrainingTask:
    """A built, compiled model and its batches."""

    model: Any
    dataset: Any  # repeated, prefetched, all batches of one size
    batch: Any  # the first
    batch_size: int
    dataset_size: int | None  # examples (in whole batches) of one epoch

    def job(self, name: str) -> dict[str, Any]:
        sizes = [int(w.value.dtype.size) * int(w.shape.num_elements()) for w in self.model.weights]
        batches = {"batch_size": self.batch_size, "dataset_size": self.dataset_size}
        known = {"name": name, "parameter_bytes": sum(sizes), **batches}
        return {"framework_version": tf.__version__, "tensors": len(sizes), "known": known}

    def loss(self, batch: Any) -> Any:
        x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)
        y_pred = self.model(x, training=True)
        return self.model.compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=weight, training=True)

    def gradients(self, batch: Any) -> tuple[Any, list[Any]]:
        """Loss, and its gradients by the trainable variables."""
        for part, first in zip(tf.nest.flatten(batch), tf.nest.flatten(self.batch), strict=True):
            part.set_shape(first.shape)  # all batches are of one size
        with tf.GradientTape() as tape:
            loss = self.loss(batch)
        return loss, list(tape.gradient(loss, self.model.trainable_variables))


def load_task(name: str, *, batch_size: int | None) -> TrainingTask:
    """Call the function and check what it returns (raises ProfilingError)."""
    keras.utils.set_random_seed(1)
    with blaming(name):
        result = (imported(name) if ":" in name else BUILT_IN[name])()
    parts = result if isinstance(result, tuple) else (result,)
    if not (len(parts) == 2 and isinstance(parts[0], keras.Model) and isinstance(parts[1], tf.data.Dataset)):
        got = ", ".join(type(part).__name__ for part in parts)
        raise _wrong(name, f"a pair, of a Keras model and a tf.data.Dataset, got {got}")
    model, dataset = parts
    if not model.compiled or model.optimizer is None:
        raise _wrong(name, "a compiled model, got one without optimizer and loss; call model.compile(...)")
    dataset, batch, dataset_size = _batches(name, dataset, batch_size)
    task = TrainingTask(model, dataset, batch, int(tf.nest.flatten(batch)[0].shape[0]), dataset_size)
    # creates what is created on first use, and lets a wrong shape fail where its message is clearest
    with blaming(name):
        task.loss(batch)
    return task


def _batches(name: str, dataset: Any, batch_size: int | None) -> tuple[Any, Any, int | None]:
    spec = dataset.element_spec
    dense = all(isinstance(part, tf.TensorSpec) and part.shape.rank != 0 for part in tf.nest.flatten(spec))
    if not (isinstance(spec, tuple) and len(spec) in (2, 3) and dense):
        how = "put single examples together with .batch(...), make ragged and sparse tensors dense with .map(...)"
        raise _wrong(name, f"a data set of (x, y) or (x, y, sample_weight) batches; {how}, got {spec}")
    batches = int(dataset.cardinality())
    first = next((int(tf.shape(tf.nest.flatten(batch)[0])[0]) for batch in dataset.take(1)), 0)
    if not first:
        raise _wrong(name, "a data set with at least one batch of examples, got an empty one")
    if batch_size is not None:
        dataset = dataset.rebatch(batch_size, drop_remainder=False)
    size = batch_size or first
    whole = dataset.filter(lambda *batch: tf.equal(tf.shape(tf.nest.flatten(batch)[0])[0], size))
    batch = next(iter(whole.take(1)), None)
    if batch is None:
        raise ProfilingError(f"model {name!r}: batch size {size} exceeds its data set; specify a smaller one")
    return whole.repeat().prefetch(4), batch, batches * first if batches > 0 else None


def _wrong(name: str, expected: str) -> ProfilingError:
    return ProfilingError(f"model {name!r}: its function must return {expected}")
