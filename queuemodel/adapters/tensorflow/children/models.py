"""What can be profiled: the built-in models for a first try, and a user's own ``package.module:function``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...live.functions import imported

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

Built = tuple["keras.Model", "tf.data.Dataset"]
EXAMPLES = 2048


def mlp() -> Built:
    """Images of 28 x 28, three dense layers: 5.3 MB of parameters, little computation."""
    import keras
    from keras import layers

    model = keras.Sequential(
        [
            keras.Input((784,)),
            layers.Dense(1024, activation="relu"),
            layers.Dropout(0.2),
            layers.Dense(512, activation="relu"),
            layers.Dense(10),
        ]
    )
    return _classifier(model, "sgd"), _synthetic((784,), batch_size=64)


def cnn() -> Built:
    """Images of 32 x 32 in colour, three convolutions: 1.2 MB of parameters, much computation."""
    import keras
    from keras import layers

    model = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(256, activation="relu"),
            layers.Dense(10),
        ]
    )
    return _classifier(model, "adam"), _synthetic((32, 32, 3), batch_size=32)


def embedding() -> Built:
    """Bags of 32 words out of 20,000: 5 MB of parameters fetched, few of them updated."""
    import keras
    from keras import layers

    model = keras.Sequential(
        [
            keras.Input((32,), dtype="int32"),
            layers.Embedding(20_000, 64),
            layers.GlobalAveragePooling1D(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )
    return _classifier(model, "adagrad"), _synthetic((32,), batch_size=128, words=20_000)


def transformer() -> Built:
    """Two small transformer blocks on sequences of 32 words: 3.6 MB of parameters in many tensors."""
    import keras
    from keras import layers

    words = keras.Input((32,), dtype="int32")
    x = layers.Embedding(4000, 128)(words)
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 32)(x, x))
        x = layers.LayerNormalization()(x + layers.Dense(128)(layers.Dense(512, activation="gelu")(x)))
    model = keras.Model(words, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))
    return _classifier(model, "adam"), _synthetic((32,), batch_size=32, words=4000)


BUILT_IN: dict[str, Callable[[], Built]] = {f.__name__: f for f in (mlp, cnn, embedding, transformer)}


def _classifier(model: keras.Model, optimizer: str) -> keras.Model:
    import keras

    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), optimizer=optimizer)
    return model


def _synthetic(shape: Sequence[int], *, batch_size: int, words: int | None = None) -> tf.data.Dataset:
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(1)
    x = rng.random((EXAMPLES, *shape), np.float32) if words is None else rng.integers(words, size=(EXAMPLES, *shape))
    return tf.data.Dataset.from_tensor_slices((x, rng.integers(10, size=EXAMPLES))).batch(batch_size)


def function_of(name: str) -> Callable[[], Any]:
    """The built-in or the user's own function of that name (raises ProfilingError)."""
    return BUILT_IN[name] if name in BUILT_IN else imported(name)
