"""A problem: a loss over recorded examples, whose gradients workers take on mini-batches of their own share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import minimize

from ..checks import require_count, require_number
from ..errors import ModelError


@dataclass(frozen=True, eq=False, repr=False)
class Problem(ABC):
    """Mean loss over examples, plus ``regularization / 2 * |x|^2``.

    Attributes
    ----------
    features : ndarray, shape (m, p)
        Their dtype is that of everything computed.
    targets : ndarray, shape (m,)
    batch_size : int
        Examples of one worker's gradient, drawn with replacement.
    regularization : float
    shares : tuple of ndarray of int
        The examples of each worker; empty: every worker draws from all (see `queuemodel.descent.split`).

    Raises
    ------
    ModelError
        When shapes do not agree, numbers are not finite, or a share is empty.
    """

    features: np.ndarray
    targets: np.ndarray
    batch_size: int = 1
    regularization: float = 0.0
    shares: tuple[np.ndarray, ...] = field(default=())

    def __post_init__(self) -> None:
        name = type(self).__name__
        require_count(self.batch_size, f"{name}: batch_size", least=1)
        require_number(self.regularization, f"{name}: regularization")
        if self.features.ndim != 2 or self.targets.shape != self.features.shape[:1] or not len(self.targets):
            raise ModelError(
                f"{name}: features must have shape (m, p) and targets (m,), m > 0, got {self.features.shape} and "
                f"{self.targets.shape}"
            )
        if not (np.isfinite(self.features).all() and np.isfinite(self.targets).all()):
            raise ModelError(f"{name}: features and targets must be finite numbers")
        for i, share in enumerate(self.shares):
            if not len(share) or share.min() < 0 or share.max() >= len(self.targets):
                raise ModelError(
                    f"{name}: the share of worker {i} must name examples from 0 to {len(self.targets) - 1}"
                )

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Number of parameters, d."""

    @abstractmethod
    def example_gradient(self, x: np.ndarray, features: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Mean gradient over the examples, regularization apart; shapes (..., d), (..., B, p), (..., B) to (..., d)."""

    @abstractmethod
    def example_loss(self, x: np.ndarray) -> np.ndarray:
        """Mean loss over all examples, regularization apart; shape (..., d) to (...)."""

    def start(self, rng: np.random.Generator) -> np.ndarray:
        """Where training starts, shape (d,)."""
        return np.zeros(self.dimension, self.features.dtype)

    def loss(self, x: np.ndarray) -> np.ndarray:
        """The loss of parameters of shape (..., d)."""
        return self.example_loss(x) + self.regularization / 2 * np.square(x).sum(axis=-1)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """Gradient of `loss`, shape (..., d)."""
        return self.example_gradient(x, self.features, self.targets) + self.features.dtype.type(self.regularization) * x

    def worker_gradients(self, x: np.ndarray) -> np.ndarray:
        """Exact gradient of each worker's own loss at ``x`` of shape (..., d): shape (..., n, d); not split: n = 1."""
        shares = self.shares or (slice(None),)
        own = [self.example_gradient(x, self.features[s], self.targets[s]) for s in shares]
        return np.stack(own, axis=-2) + self.features.dtype.type(self.regularization) * x[..., None, :]

    def sampled_gradients(self, x: np.ndarray, workers: np.ndarray, rngs: list[np.random.Generator]) -> np.ndarray:
        """
        Gradients on mini-batches of the workers' shares.

        Parameters
        ----------
        x : ndarray, shape (S, n, d) or (S, 1, d)
            Parameters of each run's workers, or those that all share.
        workers : ndarray of int, shape (n,) or (S, n)
        rngs : list of S Generator
            One for each run: a run is the same whatever runs beside it.

        Returns
        -------
        ndarray, shape (S, n, d)
        """
        u = np.stack([rng.random((workers.shape[-1], self.batch_size)) for rng in rngs])
        if self.shares:
            chosen = self._padded[workers[..., None], (u * self.sizes[workers][..., None]).astype(np.intp)]
        else:
            chosen = (u * len(self.targets)).astype(np.intp)
        gradients = self.example_gradient(x, self.features[chosen], self.targets[chosen])
        if self.regularization:
            gradients += self.features.dtype.type(self.regularization) * x
        return gradients

    @cached_property
    def sizes(self) -> np.ndarray:
        """Examples of each worker's share, shape (n,), or of all, shape (1,)."""
        return np.array([len(share) for share in self.shares] or [len(self.targets)])

    @cached_property
    def _padded(self) -> np.ndarray:
        table = np.zeros((len(self.shares), self.sizes.max()), np.intp)
        for row, share in zip(table, self.shares, strict=True):
            row[: len(share)] = share
        return table

    @cached_property
    def optimum(self) -> np.ndarray:
        """Parameters of (locally) least loss, shape (d,), by L-BFGS from the start (Liu and Nocedal 1989)."""

        def both(x: np.ndarray) -> tuple[float, np.ndarray]:
            return float(self.loss(x)), np.asarray(self.gradient(x), float)

        exact = {"maxiter": 10_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-10}
        found = minimize(
            both, self.start(np.random.default_rng(0)).astype(float), jac=True, method="L-BFGS-B", options=exact
        )
        return found.x

    @cached_property
    def minimum(self) -> float:
        """The least loss."""
        return float(self.loss(self.optimum))

    def gradient_variance(self, x: np.ndarray) -> float:
        """Trace of the covariance of one example's gradient at ``x``, shape (d,); a batch's is this over B."""
        every = self.example_gradient(x, self.features[:, None], self.targets[:, None])
        return float(every.var(axis=0).sum())

    def __repr__(self) -> str:
        m, p = self.features.shape
        split = f", split among {len(self.shares)} workers" if self.shares else ""
        return f"{type(self).__name__}({m} examples of {p} features, {self.dimension} parameters{split})"


def require_problem(problem: Any) -> Problem:
    """The problem, or a `ModelError`."""
    if not isinstance(problem, Problem):
        raise ModelError(f"problem must be a Problem such as LeastSquares, got {type(problem).__name__}")
    return problem
