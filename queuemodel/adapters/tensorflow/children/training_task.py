"""What a model's function returns, called and checked: a compiled model and its batches."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ....errors import ProfilingError
from ...live.parent import cause
from .models import function_of


@dataclass(frozen=True)
class TrainingTask:
    """A built, compiled model and its batches.

    Attributes
    ----------
    model : keras.Model
    dataset : tf.data.Dataset
        Repeated, prefetched, all batches of one size.
    batch : nested tf.Tensor
        The first.
    batch_size : int
    dataset_size : int or None
        Examples (in whole batches) of one epoch.
    """

    model: Any
    dataset: Any
    batch: Any
    batch_size: int
    dataset_size: int | None

    def facts(self, name: str) -> dict[str, Any]:
        """What the profile's job records."""
        sizes = [int(w.value.dtype.size) * int(w.shape.num_elements()) for w in self.model.weights]
        return {
            "name": name,
            "batch_size": self.batch_size,
            "parameter_bytes": sum(sizes),
            "tensors": len(sizes),
            "dataset_size": self.dataset_size,
        }

    def loss(self, batch: Any) -> Any:
        """A batch's loss, in training."""
        import keras

        x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)
        y_pred = self.model(x, training=True)
        return self.model.compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=weight, training=True)

    def gradients(self, batch: Any) -> tuple[Any, list[Any]]:
        """A batch's loss, and its gradients by the trainable variables."""
        import tensorflow as tf

        for part, first in zip(tf.nest.flatten(batch), tf.nest.flatten(self.batch), strict=True):
            part.set_shape(first.shape)  # all batches are of one size
        with tf.GradientTape() as tape:
            loss = self.loss(batch)
        return loss, list(tape.gradient(loss, self.model.trainable_variables))


def load(name: str, *, batch_size: int | None) -> TrainingTask:
    """
    Call the function and check what it returns.

    Raises
    ------
    ProfilingError
        One line that says what is wrong with it.
    """
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(1)
    with _blaming(name):
        result = function_of(name)()
    if not isinstance(result, tuple) or len(result) != 2:
        raise _wrong(name, f"a pair (model, data set), got {type(result).__name__}")
    model, dataset = result
    if not isinstance(model, keras.Model):
        raise _wrong(name, f"a Keras model first, got {type(model).__name__}")
    if not isinstance(dataset, tf.data.Dataset):
        raise _wrong(name, f"a tf.data.Dataset second, got {type(dataset).__name__}")
    if not model.compiled or model.optimizer is None:
        raise _wrong(name, "a compiled model, got one without optimizer and loss; call model.compile(...)")
    dataset, batch, dataset_size = _batches(name, dataset, batch_size)
    task = TrainingTask(model, dataset, batch, int(tf.nest.flatten(batch)[0].shape[0]), dataset_size)
    # creates what is created on first use, and lets a wrong shape fail where its message is clearest
    with _blaming(name):
        task.loss(batch)
    return task


def _batches(name: str, dataset: Any, batch_size: int | None) -> tuple[Any, Any, int | None]:
    import tensorflow as tf

    specs = tf.nest.flatten(dataset.element_spec)
    if not isinstance(dataset.element_spec, tuple) or len(dataset.element_spec) not in (2, 3):
        raise _wrong(name, f"a data set of (x, y) or (x, y, sample_weight) batches, got {dataset.element_spec}")
    if not all(isinstance(spec, tf.TensorSpec) for spec in specs):
        raise _wrong(name, "a data set of dense tensors; make ragged and sparse ones dense with .map(...)")
    if any(spec.shape.rank == 0 for spec in specs):
        raise _wrong(name, "a data set of batches, got single examples; call .batch(...)")
    batches = int(dataset.cardinality())
    try:
        first = int(next(tf.shape(tf.nest.flatten(batch)[0])[0] for batch in dataset.take(1)))
    except StopIteration:
        raise _wrong(name, "a data set with at least one batch, got an empty one") from None
    if batch_size is not None:
        dataset = dataset.rebatch(batch_size, drop_remainder=False)
    size = batch_size or first
    if size == 0:
        raise _wrong(name, "batches of at least one example, got an empty batch")
    whole = dataset.filter(lambda *batch: tf.equal(tf.shape(tf.nest.flatten(batch)[0])[0], size))
    try:
        batch = next(iter(whole.take(1)))
    except StopIteration:
        raise ProfilingError(
            f"model {name!r}: batch size {size} is more than its data set holds; ask for less"
        ) from None
    return whole.repeat().prefetch(4), batch, batches * first if batches > 0 else None


@contextlib.contextmanager
def _blaming(name: str) -> Iterator[None]:
    """What fails in a user's own code fails in the model's name."""
    try:
        yield
    except ProfilingError:
        raise
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        raise ProfilingError(f"model {name!r}: {cause(error)}") from None


def _wrong(name: str, expected: str) -> ProfilingError:
    return ProfilingError(f"model {name!r}: its function must return {expected}")
