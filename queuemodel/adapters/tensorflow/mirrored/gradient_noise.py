"""Squared norms of the ranks' gradients, before they are reduced and after; TensorFlow is loaded here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

#: Loss of a replica's batch, and its gradients in the order of the variables; None where a variable has none.
Gradients = Callable[[Any], tuple[Any, list[Any]]]


def gradient_norms(
    strategy: Any, gradients: Gradients, batches: Iterator[Any], steps: int, said: Callable[[], None]
) -> list[dict[str, Any]]:
    """`GradientNorms` of so many steps as plain values, the same on every rank; parameters stay where they are.

    All ranks read the same data set, so each takes, of as many batches as there are ranks, its own.

    Parameters
    ----------
    strategy : tf.distribute.Strategy
    gradients : function
    batches : iterator of nested tf.Tensor
    steps : int
    said : function
        Called after each.
    """
    import tensorflow as tf

    def measure(batch: Any) -> Any:
        context = tf.distribute.get_replica_context()
        own = [tf.convert_to_tensor(gradient) for gradient in gradients(batch)[1] if gradient is not None]
        mean = context.all_reduce(tf.distribute.ReduceOp.MEAN, own)
        return context.all_gather(tf.stack([_norm(own), _norm(mean)])[None], axis=0)

    step = tf.function(lambda batch: strategy.run(measure, args=(batch,)), autograph=False, jit_compile=False)
    ranks = strategy.num_replicas_in_sync
    rank = strategy.cluster_resolver.task_id
    found = []
    for _ in range(steps):
        norms = step([next(batches) for _ in range(ranks)][rank]).numpy()
        found.append({"workers": norms[:, 0].tolist(), "mean": float(norms[0, 1])})
        said()
    return found


def _norm(gradients: list[Any]) -> Any:
    import tensorflow as tf

    return tf.add_n([tf.reduce_sum(tf.square(tf.cast(gradient, tf.float64))) for gradient in gradients])
