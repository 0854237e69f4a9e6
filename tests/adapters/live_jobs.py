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


def raises():
    raise KeyError("train.csv")
