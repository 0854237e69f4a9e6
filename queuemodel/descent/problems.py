"""Problems with known constants: least squares, logistic regression, a sigmoid's squares, a perceptron."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit, logsumexp

from ..checks import require_count
from .problem import Problem


@dataclass(frozen=True, eq=False, repr=False)
class LeastSquares(Problem):
    """Half of the mean squared error of a linear prediction; minimum, smoothness and convexity are exact."""

    @property
    def dimension(self) -> int:
        return self.features.shape[1]

    def example_gradient(self, x: np.ndarray, features: np.ndarray, targets: np.ndarray) -> np.ndarray:
        misses = (features @ x[..., None])[..., 0] - targets
        return (misses[..., None, :] @ features)[..., 0, :] / features.shape[-2]

    def example_loss(self, x: np.ndarray) -> np.ndarray:
        return np.square(x @ self.features.T - self.targets).mean(axis=-1) / 2

    @cached_property
    def optimum(self) -> np.ndarray:
        """Parameters of least loss, shape (d,): the normal equations."""
        A, m = self.features.astype(float), len(self.targets)
        return np.linalg.lstsq(self.hessian, A.T @ self.targets / m, rcond=None)[0]

    @cached_property
    def hessian(self) -> np.ndarray:
        """Second derivatives, shape (d, d): its eigenvalues bound smoothness and strong convexity."""
        A = self.features.astype(float)
        return A.T @ A / len(A) + self.regularization * np.eye(self.dimension)


@dataclass(frozen=True, eq=False, repr=False)
class LogisticRegression(Problem):
    """Multinomial logistic loss; targets are classes 0, 1, ...; strongly convex with ``regularization > 0``.

    Parameters are those of one class after the other: features are then read and written as they lie in memory.
    """

    classes: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count(self.classes, "LogisticRegression: classes", least=int(self.targets.max()) + 1)

    @property
    def dimension(self) -> int:
        return self.features.shape[1] * self.classes

    def _scores(self, x: np.ndarray, features: np.ndarray) -> np.ndarray:
        weights = x.reshape(*x.shape[:-1], self.classes, features.shape[-1])
        return features @ np.swapaxes(weights, -1, -2)

    def example_gradient(self, x: np.ndarray, features: np.ndarray, targets: np.ndarray) -> np.ndarray:
        miss = softmax_miss(self._scores(x, features), targets)
        gradient = np.swapaxes(miss, -1, -2) @ features
        return gradient.reshape(*gradient.shape[:-2], -1)

    def example_loss(self, x: np.ndarray) -> np.ndarray:
        return cross_entropy(self._scores(x, self.features), self.targets)


@dataclass(frozen=True, eq=False, repr=False)
class SigmoidSquares(Problem):
    """Half of the mean squared error of a sigmoid's prediction of targets in [0, 1]: smooth and not convex.

    With targets that a sigmoid makes itself, the least loss is 0, at its weights.
    """

    @property
    def dimension(self) -> int:
        return self.features.shape[1]

    def example_gradient(self, x: np.ndarray, features: np.ndarray, targets: np.ndarray) -> np.ndarray:
        p = expit((features @ x[..., None])[..., 0])
        slope = (p - targets) * p * (1 - p)
        return (slope[..., None, :] @ features)[..., 0, :] / features.shape[-2]

    def example_loss(self, x: np.ndarray) -> np.ndarray:
        return np.square(expit(x @ self.features.T) - self.targets).mean(axis=-1) / 2


@dataclass(frozen=True, eq=False, repr=False)
class Perceptron(Problem):
    """One hidden layer of ``tanh`` units, logistic loss of its outputs; targets are classes; not convex."""

    hidden: int = 16
    classes: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count(self.hidden, "Perceptron: hidden", least=1)
        require_count(self.classes, "Perceptron: classes", least=int(self.targets.max()) + 1)

    @property
    def dimension(self) -> int:
        return (self.features.shape[1] + 1) * self.hidden + (self.hidden + 1) * self.classes

    def start(self, rng: np.random.Generator) -> np.ndarray:
        """Weights drawn with the variance of Glorot and Bengio (2010), biases 0."""
        p = self.features.shape[1]
        first = rng.normal(0, np.sqrt(2 / (p + self.hidden)), (self.hidden, p))
        second = rng.normal(0, np.sqrt(2 / (self.hidden + self.classes)), (self.classes, self.hidden))
        parts = first.ravel(), np.zeros(self.hidden), second.ravel(), np.zeros(self.classes)
        return np.concatenate(parts).astype(self.features.dtype)

    def _layers(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        p, h, c = self.features.shape[1], self.hidden, self.classes
        first, bias, second, last = np.split(x, np.cumsum([p * h, h, h * c]), axis=-1)
        shape = x.shape[:-1]
        return first.reshape(*shape, h, p), bias[..., None, :], second.reshape(*shape, c, h), last[..., None, :]

    def _active(self, features: np.ndarray, first: np.ndarray, bias: np.ndarray) -> np.ndarray:
        return np.tanh(features @ np.swapaxes(first, -1, -2) + bias)

    def example_gradient(self, x: np.ndarray, features: np.ndarray, targets: np.ndarray) -> np.ndarray:
        first, bias, second, last = self._layers(x)
        active = self._active(features, first, bias)
        miss = softmax_miss(active @ np.swapaxes(second, -1, -2) + last, targets)
        back = (miss @ second) * (1 - np.square(active))
        parts = (
            np.swapaxes(back, -1, -2) @ features,
            back.sum(axis=-2),
            np.swapaxes(miss, -1, -2) @ active,
            miss.sum(axis=-2),
        )
        shape = miss.shape[:-2]
        return np.concatenate([part.reshape(*shape, -1) for part in parts], axis=-1)

    def example_loss(self, x: np.ndarray) -> np.ndarray:
        first, bias, second, last = self._layers(x)
        scores = self._active(self.features, first, bias) @ np.swapaxes(second, -1, -2) + last
        return cross_entropy(scores, self.targets)


def softmax_miss(scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Derivative of the mean cross-entropy over B examples; scores (..., B, c), targets (..., B) or broadcast."""
    odds = np.exp(scores - scores.max(axis=-1, keepdims=True))
    odds /= odds.sum(axis=-1, keepdims=True)
    odds -= targets[..., None] == np.arange(scores.shape[-1])
    odds /= scores.shape[-2]
    return odds


def cross_entropy(scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Mean over the examples of the logarithm of what the right class is not given; shape (..., B, c) to (...)."""
    right = np.take_along_axis(scores, np.broadcast_to(targets.astype(int)[:, None], (*scores.shape[:-1], 1)), axis=-1)
    return (logsumexp(scores, axis=-1) - right[..., 0]).mean(axis=-1)
