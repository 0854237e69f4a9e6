"""Models for a first `queuemodel profile`: random examples of ten classes."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers


def mlp() -> Any:
    """Images of 28 x 28, three dense layers: 5.3 MB of parameters, little computation."""
    hidden = [layers.Dense(1024, activation="relu"), layers.Dropout(0.2), layers.Dense(512, activation="relu")]
    return _classifier((784,), hidden, optimizer="sgd", batch_size=64)


def cnn() -> Any:
    """Images of 32 x 32 in colour, three convolutions: 1.2 MB of parameters, much computation."""
    normalized = [layers.Conv2D(64, 3), layers.BatchNormalization(), layers.ReLU(), layers.MaxPooling2D()]
    dense = [layers.Conv2D(64, 3, activation="relu"), layers.Flatten(), layers.Dense(256, activation="relu")]
    hidden = [layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(), *normalized, *dense]
    return _classifier((32, 32, 3), hidden, optimizer="adam", batch_size=32)


def embedding() -> Any:
    """Bags of 32 words out of 20,000: 5 MB of parameters fetched, few of them updated."""
    hidden = [layers.Embedding(20_000, 64), layers.GlobalAveragePooling1D(), layers.Dense(64, activation="relu")]
    return _classifier((32,), hidden, optimizer="adagrad", batch_size=128, words=20_000)


def transformer() -> Any:
    """Two small transformer blocks on sequences of 32 words: 3.6 MB of parameters in many tensors."""

    def block(x: Any) -> Any:
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 32)(x, x))
        return layers.LayerNormalization()(x + layers.Dense(128)(layers.Dense(512, activation="gelu")(x)))

    hidden = [layers.Embedding(4000, 128), block, block, layers.GlobalAveragePooling1D()]
    return _classifier((32,), hidden, optimizer="adam", batch_size=32, words=4000)


def _classifier(shape: Any, hidden: list[Any], *, optimizer: str, batch_size: int, words: int = 0) -> Any:
    """A classifier of numbers, or of ``words``."""
    inputs = x = keras.Input(shape, dtype="int32" if words else "float32")
    for layer in [*hidden, layers.Dense(10)]:
        x = layer(x)
    model = keras.Model(inputs, x)
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), optimizer=optimizer)
    rng, size = np.random.default_rng(1), (2048, *shape)
    examples = rng.integers(words, size=size) if words else rng.random(size, np.float32)
    return model, tf.data.Dataset.from_tensor_slices((examples, rng.integers(10, size=2048))).batch(batch_size)
