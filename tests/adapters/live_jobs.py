"""Models that the live tests of both frameworks profile; imported in the child processes."""

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


# PyTorch: a module, and a step that trains it on one batch


def _job(module, loss, size=30):
    """Trains on one batch; importing an optimizer takes seconds."""

    def train(module):
        module.zero_grad()
        loss(module).backward()
        return size

    return module, train


def small(size=30):
    import torch

    module = torch.nn.Sequential(torch.nn.Linear(300, 400), torch.nn.Linear(400, 3))
    return _job(module, lambda module: module(torch.rand(30, 300)).square().mean(), size)


def no_count():
    return small(None)


def no_step():
    return small()[0]


def wrapped():
    import torch

    module, step = small()
    return torch.nn.parallel.DistributedDataParallel(module), step


def grouped():
    import torch

    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    return wrapped()


LENGTH, NOISE = 100, 2.0

#: Of `regression`: of one example, E |a|^2 (a e - noise)^2 - |e|^2 over |e|^2, where e is as long as 1.
NOISE_SCALE = LENGTH + 1 + LENGTH * NOISE**2


def regression():
    """Least squares at a fixed point, a distance of 1 from the truth, on fresh examples in each step."""
    import torch

    assert not torch.distributed.is_initialized()  # or what waits for other ranks would wait for ever
    module = torch.nn.Linear(LENGTH, 1, bias=False)
    torch.nn.init.constant_(module.weight, LENGTH**-0.5)

    def loss(module):
        missed = module(torch.randn(30, LENGTH))[:, 0] - NOISE * torch.randn(30)
        return missed.square().mean() / 2

    return _job(module, loss)


def same_examples():
    """Every rank has the same ones; one parameter is of no use to the loss."""
    import torch

    examples, (module, _) = torch.rand(30, 300), small()
    module.register_parameter("unused", torch.nn.Parameter(torch.rand(5)))
    return _job(module, lambda module: module(examples).square().mean())
