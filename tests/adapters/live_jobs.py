"""Models that the live tests profile; imported in the child processes."""

import numpy as np


def dropout_and_normalization():
    """Nested inputs from a Python generator, state that is not trained, a loop, an optimizer with slots."""
    import keras
    import tensorflow as tf
    from keras import layers

    a, b = keras.Input((64,), name="a"), keras.Input((8,), name="b")
    x = layers.Dropout(0.5)(layers.BatchNormalization()(layers.Dense(256, activation="relu")(a)))
    y = layers.LSTM(32, dropout=0.1)(layers.Reshape((8, 1))(b))
    model = keras.Model([a, b], layers.Dense(1)(layers.Concatenate()([x, y])))
    model.compile(loss="mse", optimizer=keras.optimizers.AdamW(1e-3, global_clipnorm=1.0))
    rng = np.random.default_rng(1)

    def batches():
        for _ in range(6):
            yield (rng.random((16, 64), np.float32), rng.random((16, 8), np.float32)), rng.random((16, 1), np.float32)

    spec = ((tf.TensorSpec((None, 64)), tf.TensorSpec((None, 8))), tf.TensorSpec((None, 1)))
    return model, tf.data.Dataset.from_generator(batches, output_signature=spec)


def subclassed():
    """Built on first use; 100 examples in batches of 30, so that the last one is smaller."""
    import keras
    import tensorflow as tf

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.hidden, self.out = keras.layers.Dense(512, activation="relu"), keras.layers.Dense(3)

        def call(self, x):
            return self.out(self.hidden(x))

    model = Model()
    model.compile(loss="mse", optimizer="sgd")
    rng = np.random.default_rng(1)
    batches = (rng.random((100, 300), np.float32), rng.random((100, 3), np.float32))
    return model, tf.data.Dataset.from_tensor_slices(batches).batch(30)


def mixed_precision():
    """An optimizer that scales the loss, and looks at the gradients before it applies them."""
    import keras
    import tensorflow as tf

    keras.mixed_precision.set_global_policy("mixed_float16")
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(256, activation="relu"), keras.layers.Dense(10)])
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), optimizer="sgd")
    rng = np.random.default_rng(1)
    batches = (rng.random((512, 64), np.float32), rng.integers(10, size=512))
    return model, tf.data.Dataset.from_tensor_slices(batches).batch(32)


def raises():
    raise KeyError("train.csv")


def not_compiled():
    import keras

    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]), subclassed()[1]


LENGTH = 100


def regression():
    """Least squares at a fixed point, each example seen once; the loss is not halved."""
    import keras
    import tensorflow as tf

    start = keras.initializers.Constant(LENGTH**-0.5)
    model = keras.Sequential([keras.Input((LENGTH,)), keras.layers.Dense(1, use_bias=False, kernel_initializer=start)])
    model.compile(loss="mse", optimizer=keras.optimizers.SGD(0.0))
    return model, tf.data.Dataset.from_tensor_slices(regression_examples()).batch(30)


def regression_examples():
    """Rows, and what is to be predicted: nothing but noise, so that the start is at a distance of 1 from the truth."""

    rng = np.random.default_rng(3)
    rows, missed = rng.normal(size=(30_000, LENGTH)), 2 * rng.normal(size=(30_000, 1))
    return rows.astype(np.float32), missed.astype(np.float32)
