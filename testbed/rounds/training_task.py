"""What ranks learn for real, and by which strategies; the same for the ranks and for who predicts them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from queuemodel.sgd import (
    AdaComm,
    BlockSign,
    DoubleCompression,
    LocalSGD,
    Perceptron,
    Strategy,
    SynchronousSGD,
    TopK,
    split,
)

from ..workload import Workload

#: Of batches and of the start, as `queuemodel.sgd.descend` draws them.
SEED = 0

#: Looks at the loss, the first and the last included.
LOOKS = 41

#: How unlike the ranks' examples are (`queuemodel.sgd.split`), and how wide the classes.
CONCENTRATION, NOISE = 0.3, 2.0

STRATEGIES: dict[str, Strategy] = {
    "sync": SynchronousSGD(),
    "local-sgd": LocalSGD(8),
    "top-k": DoubleCompression(TopK(0.05, index_bits=32)),
    "block-sign": DoubleCompression(BlockSign(8)),
    "adacomm": AdaComm(16, interval=8.0),
}


@dataclass(frozen=True)
class TrainingTask:
    """A problem, split among the ranks, and how long it is learnt.

    Attributes
    ----------
    problem : Perceptron
    learning_rate : float
    steps : int
    """

    problem: Perceptron
    learning_rate: float
    steps: int

    @property
    def looks(self) -> np.ndarray:
        """After which steps the loss is looked at, as by `descend`."""
        return np.unique(np.linspace(0, self.steps, min(LOOKS, self.steps + 1)).round().astype(int))


def task_of(workload: Workload, ranks: int) -> TrainingTask:
    """
    Tell clusters apart by a perceptron whose two layers have the workload's tensors: weights and biases.

    Examples are normal around as many centres as there are classes.
    """
    (_, hidden), (_, classes) = ([size // 4 for size in layer.tensor_bytes] for layer in workload.layers)
    features = workload.layers[0].tensor_bytes[0] // 4 // hidden
    told = workload.learn
    rng = np.random.default_rng(SEED)
    targets = np.arange(int(told["examples"])) % classes
    noise = NOISE * rng.normal(size=(len(targets), features))
    A = (rng.normal(size=(classes, features))[targets] + noise) / np.hypot(1, NOISE)
    problem = Perceptron(A.astype(np.float32), targets, int(told["batch_size"]), hidden=hidden, classes=classes)
    return TrainingTask(split(problem, ranks, concentration=CONCENTRATION), told["learning_rate"], int(told["steps"]))
