"""Problems: losses over recorded examples, whose gradients workers take on mini-batches of their own share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, ClassVar, TypeVar

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logsumexp

from ..base.checks import require_choice, require_count, require_number, require_seed, require_share
from ..base.errors import ModelError


def require_positive(values: Sequence[float], what: str, *, least: int = 0) -> None:
    """Refuse fewer numbers than ``least``, and one that is not above 0 (raises `ModelError`)."""
    require_count(len(values), f"{what}: number of values", least=least)
    for value in values:
        require_number(value, what, positive=True)


#: Checks of the fields of problems, compressors, strategies, clocks and trainings, by name.
FIELD_CHECKS: dict[str, Callable[[Any, str], object]] = {
    **dict.fromkeys(("batch_size", "hidden", "blocks", "local_steps", "initial_steps"), require_count),
    **dict.fromkeys(("initial_levels", "k", "carriers"), require_count),
    **dict.fromkeys(("steps", "seeds"), partial(require_count, least=2)),
    **dict.fromkeys(("regularization", "trigger", "threshold", "relative", "cv", "noise"), require_number),
    **dict.fromkeys(("momentum", "pull", "straggler_probability"), require_share),
    **dict.fromkeys(("share", "mixing"), partial(require_number, positive=True, largest=1.0)),
    **dict.fromkeys(("step", "compression"), partial(require_number, unit="seconds")),
    "levels": lambda levels, what: isinstance(levels, np.ndarray) or require_count(levels, what),
    "slowness": require_positive,
    "learning_rates": partial(require_positive, least=1),
    "seed": require_seed,
    "staleness_bound": partial(require_count, least=0),
    "interval": partial(require_number, unit="seconds", positive=True),
    **dict.fromkeys(("straggler_slowdown", "power", "fading"), partial(require_number, positive=True)),
    "index_bits": lambda bits, what: bits is None or require_count(bits, what),
    "graph": partial(require_choice, choices=("ring", "torus", "complete")),
    "activation": partial(require_choice, choices=("linear", "tanh")),
}


class Checked:
    """A dataclass whose fields pass `FIELD_CHECKS`."""

    caller: ClassVar[str] = ""  #: who is named in a refusal; by default the type

    def __post_init__(self: Any) -> None:
        for field in fields(self):
            if check := FIELD_CHECKS.get(field.name):
                check(getattr(self, field.name), f"{self.caller or type(self).__name__}: {field.name}")


@dataclass(frozen=True, eq=False, repr=False)
class Problem(Checked, ABC):
    """Mean loss over examples, plus ``regularization / 2 * |x|^2``."""

    features: np.ndarray  #: shape (m, p); their dtype is that of everything computed
    targets: np.ndarray  #: shape (m,); of a `FixedPoint` (m, p)
    batch_size: int = 1  #: examples of one worker's gradient, drawn with replacement
    regularization: float = 0.0
    shares: tuple[np.ndarray, ...] = ()  #: the examples of each worker; empty: every worker draws from all (`split`)
    target_axes = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        name, A, y = type(self).__name__, self.features, self.targets
        if A.ndim != 2 or y.shape != A.shape[: self.target_axes] or not len(y):
            wanted = f"(m, p) and targets {'(m,)' if self.target_axes == 1 else '(m, p)'}, m > 0"
            raise ModelError(f"{name}: features must have shape {wanted}, got {A.shape} and {y.shape}")
        if not (np.isfinite(A).all() and np.isfinite(y).all()):
            raise ModelError(f"{name}: features and targets must be finite numbers")
        for i, share in enumerate(self.shares):
            if not len(share) or share.min() < 0 or share.max() >= len(y):
                raise ModelError(f"{name}: the share of worker {i} must name examples 0 to {len(y) - 1}")

    @abstractmethod
    def start(self, rng: np.random.Generator) -> np.ndarray:
        """Where training starts, shape (d,)."""

    @abstractmethod
    def example_gradient(self, x: np.ndarray, features: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Mean gradient over the examples, regularization apart; shapes (..., d), (..., B, p), (..., B) to (..., d)."""

    @abstractmethod
    def example_loss(self, x: np.ndarray) -> np.ndarray:
        """Mean loss over all examples, regularization apart; shape (..., d) to (...)."""

    @cached_property
    def dimension(self) -> int:
        """Number of parameters, d."""
        return self.start(np.random.default_rng(0)).size

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
        """Gradients on mini-batches of shares, (S, n, d); ``x`` (S, n or 1, d), ``workers`` (n,) or (S, n), S rngs."""
        u = np.stack([rng.random((workers.shape[-1], self.batch_size)) for rng in rngs])
        if self.shares:
            chosen = self._padded[workers[..., None], (u * self.sizes[workers][..., None]).astype(np.intp)]
        else:
            chosen = (u * len(self.targets)).astype(np.intp)
        gradients = self.example_gradient(x, self.features[chosen], self.targets[chosen])
        if self.regularization:
            gradients += self.features.dtype.type(self.regularization) * x
        return gradients

    def inverse_response(self, x: np.ndarray) -> np.ndarray:
        """The inverse of the response of a fixed point to its input, which only a `FixedPoint` has."""
        raise ModelError(f"{type(self).__name__}: has no fixed point; Reparameterized trains a FixedPoint")

    @cached_property
    def sizes(self) -> np.ndarray:
        """Examples of each worker's share, shape (n,), or of all, shape (1,)."""
        return np.array([len(share) for share in self.shares] or [len(self.targets)])

    @cached_property
    def _padded(self) -> np.ndarray:
        return np.stack([np.resize(share, self.sizes.max()) for share in self.shares])

    @cached_property
    def optimum(self) -> np.ndarray:
        """Parameters of (locally) least loss, shape (d,), by L-BFGS from the start (Liu and Nocedal 1989)."""
        exact = {"maxiter": 10_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-10}
        start = self.start(np.random.default_rng(0)).astype(float)
        return minimize(self.loss, start, jac=self.gradient, method="L-BFGS-B", options=exact).x

    @cached_property
    def minimum(self) -> float:
        """The least loss."""
        return float(self.loss(self.optimum))

    def __repr__(self) -> str:
        m, p = self.features.shape
        split = f", split among {len(self.shares)} workers" if self.shares else ""
        return f"{type(self).__name__}({m} examples of {p} features, {self.dimension} parameters{split})"


@dataclass(frozen=True, eq=False, repr=False)
class LeastSquares(Problem):
    """Half of the mean squared error of a linear prediction; the minimum is exact."""

    def start(self, rng: np.random.Generator) -> np.ndarray:
        return np.zeros(self.features.shape[1], self.features.dtype)

    def example_gradient(self, x: np.ndarray, features: np.ndarray, targets: np.ndarray) -> np.ndarray:
        misses = (features @ x[..., None])[..., 0] - targets
        return (misses[..., None, :] @ features)[..., 0, :] / features.shape[-2]

    def example_loss(self, x: np.ndarray) -> np.ndarray:
        return np.square(x @ self.features.T - self.targets).mean(axis=-1) / 2

    @cached_property
    def optimum(self) -> np.ndarray:
        """Parameters of least loss, shape (d,): the normal equations."""
        A = self.features.astype(float)
        hessian = A.T @ A / len(A) + self.regularization * np.eye(self.dimension)
        return np.linalg.lstsq(hessian, A.T @ self.targets / len(A), rcond=None)[0]


@dataclass(frozen=True, eq=False, repr=False)
class Classifier(Problem):
    """Multinomial logistic loss of scores; targets are classes 0, 1, ..."""

    classes: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count(self.classes, f"{type(self).__name__}: classes", least=int(self.targets.max()) + 1)

    @abstractmethod
    def scores(self, x: np.ndarray, features: np.ndarray) -> np.ndarray:
        """Of each class, shape (..., B, c), by parameters (..., d) of features (..., B, p)."""

    def example_loss(self, x: np.ndarray) -> np.ndarray:
        scores, targets = self.scores(x, self.features), self.targets.astype(int)
        right = np.take_along_axis(scores, np.broadcast_to(targets[:, None], (*scores.shape[:-1], 1)), axis=-1)
        return (logsumexp(scores, axis=-1) - right[..., 0]).mean(axis=-1)


def softmax_miss(scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Derivative of the mean cross-entropy over B examples; scores (..., B, c), targets (..., B) or broadcast."""
    odds = np.exp(scores - scores.max(axis=-1, keepdims=True))
    odds /= odds.sum(axis=-1, keepdims=True)
    odds -= targets[..., None] == np.arange(scores.shape[-1])
    odds /= scores.shape[-2]
    return odds


@dataclass(frozen=True, eq=False, repr=False)
class LogisticRegression(Classifier):
    """Scores linear in the features, parameters class by class; strongly convex with ``regularization > 0``."""

    def start(self, rng: np.random.Generator) -> np.ndarray:
        return np.zeros(self.features.shape[1] * self.classes, self.features.dtype)

    def scores(self, x: np.ndarray, features: np.ndarray) -> np.ndarray:
        weights = x.reshape(*x.shape[:-1], self.classes, features.shape[-1])
        return features @ np.swapaxes(weights, -1, -2)

    def example_gradient(self, x: np.ndarray, features: np.ndarray, targets: np.ndarray) -> np.ndarray:
        miss = softmax_miss(self.scores(x, features), targets)
        gradient = np.swapaxes(miss, -1, -2) @ features
        return gradient.reshape(*gradient.shape[:-2], -1)


@dataclass(frozen=True, eq=False, repr=False)
class Perceptron(Classifier):
    """One hidden layer of ``tanh`` units; not convex."""

    hidden: int = 16

    def start(self, rng: np.random.Generator) -> np.ndarray:
        """Weights drawn with the variance of Glorot and Bengio (2010), biases 0."""
        layers = (self.features.shape[1], self.hidden), (self.hidden, self.classes)
        parts = [(rng.normal(0, np.sqrt(2 / (p + h)), h * p), np.zeros(h)) for p, h in layers]
        return np.concatenate([*parts[0], *parts[1]]).astype(self.features.dtype)

    def _forward(self, x: np.ndarray, features: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Activations of the hidden layer, (..., B, h), weights of the second, (..., c, h), and scores."""
        p, h, c, shape = self.features.shape[1], self.hidden, self.classes, x.shape[:-1]
        first, bias, second, last = np.split(x, np.cumsum([p * h, h, h * c]), axis=-1)
        first, second = first.reshape(*shape, h, p), second.reshape(*shape, c, h)
        active = np.tanh(features @ np.swapaxes(first, -1, -2) + bias[..., None, :])
        return active, second, active @ np.swapaxes(second, -1, -2) + last[..., None, :]

    def scores(self, x: np.ndarray, features: np.ndarray) -> np.ndarray:
        return self._forward(x, features)[2]

    def example_gradient(self, x: np.ndarray, features: np.ndarray, targets: np.ndarray) -> np.ndarray:
        active, second, scores = self._forward(x, features)
        miss = softmax_miss(scores, targets)
        back = (miss @ second) * (1 - np.square(active))
        layers = (back, features), (miss, active)
        parts = [part for b, a in layers for part in (np.swapaxes(b, -1, -2) @ a, b.sum(axis=-2))]
        return np.concatenate([part.reshape(*miss.shape[:-2], -1) for part in parts], axis=-1)


NEWTON_STEPS = 20  # to a fixed point; the error is squared in each


def regular_solve(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Solutions of A r = b, shape (..., p, q); NaN where A is singular, as of runs that have diverged."""
    regular = np.abs(np.linalg.slogdet(A)[0]) == 1
    return np.linalg.solve(np.where(regular[..., None, None], A, np.nan), b)


@dataclass(frozen=True, eq=False, repr=False)
class FixedPoint(Problem):
    """Half of the squared error of r = f(W r + x): fixed points of a recurrent network (Zhu and Rosenbaum 2024).

    Features are inputs x and targets wanted fixed points, both (m, p); parameters are W, row by row, at first
    ``initial``, by default 0. With slopes G = f' at the fixed point the gradient is G (I - W^T G)^-1 (dL/dr) r^T,
    singular where I - G W is.
    """

    activation: str = "linear"  #: f: "linear" or "tanh"
    initial: np.ndarray | None = None  #: shape (p, p)
    target_axes = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.initial is not None and self.initial.shape != self.features.shape[1:] * 2:
            raise ModelError(f"FixedPoint: initial must have shape (p, p), p = {self.features.shape[1]}")

    def start(self, rng: np.random.Generator) -> np.ndarray:
        initial = np.zeros(self.features.shape[1] ** 2) if self.initial is None else self.initial.ravel()
        return initial.astype(self.features.dtype)

    def fixed_points(self, x: np.ndarray, features: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """r and G, both (..., B, p), and I - G W, (..., B, p, p), by Newton's method; the identity takes a step."""
        p = features.shape[-1]
        W = x.reshape(*x.shape[:-1], 1, p, p)
        r = np.zeros(np.broadcast_shapes((*x.shape[:-1], 1, 1), features.shape), features.dtype)
        for _ in range(NEWTON_STEPS if self.activation == "tanh" else 1):
            f = (W @ r[..., None])[..., 0] + features
            f, G = (np.tanh(f), 1 - np.tanh(f) ** 2) if self.activation == "tanh" else (f, np.ones_like(f))
            J = np.eye(p, dtype=f.dtype) - G[..., None] * W
            r = r - regular_solve(J, (r - f)[..., None])[..., 0]
        return r, G, J

    def example_loss(self, x: np.ndarray) -> np.ndarray:
        return np.square(self.fixed_points(x, self.features)[0] - self.targets).sum(axis=-1).mean(axis=-1) / 2

    def example_gradient(self, x: np.ndarray, features: np.ndarray, targets: np.ndarray) -> np.ndarray:
        r, G, J = self.fixed_points(x, features)
        back = G * regular_solve(np.swapaxes(J, -1, -2), (r - targets)[..., None])[..., 0]
        gradient = np.swapaxes(back, -1, -2) @ r / features.shape[-2]
        return gradient.reshape(*gradient.shape[:-2], -1)

    def inverse_response(self, x: np.ndarray) -> np.ndarray:
        """G^-1 - W, shape (..., p, p), with the mean of G^-1 over all inputs."""
        G = self.fixed_points(x, self.features)[1]
        return (1 / G).mean(axis=-2)[..., None] * np.eye(G.shape[-1]) - x.reshape(*x.shape[:-1], *[G.shape[-1]] * 2)


P = TypeVar("P", bound=Problem)

PROBLEM_KINDS = ("least-squares", "logistic", "perceptron")


def make_problem(kind: str, *, examples: int = 512, features: int = 20, batch_size: int = 4, seed: int = 0) -> Problem:
    """A problem of random examples, one of `PROBLEM_KINDS`.

    Least squares with noise of 0.5; two classes whose labels a linear rule decides by odds, regularized by 0.01
    (strongly convex); two classes that a random perceptron of 8 hidden units decides (not convex).

    Examples
    --------
    >>> from queuemodel.sgd import make_problem
    >>> make_problem("logistic")
    LogisticRegression(512 examples of 20 features, 40 parameters)
    """
    require_choice(kind, "make_problem: kind", PROBLEM_KINDS)
    m, p = require_count(examples, "make_problem: examples"), require_count(features, "make_problem: features")
    rng = np.random.default_rng(require_seed(seed, "make_problem: seed"))
    A, w = rng.normal(size=(m, p)), rng.normal(size=p)
    match kind:
        case "least-squares":
            return LeastSquares(A, A @ w + 0.5 * rng.normal(size=m), batch_size)
        case "logistic":
            return LogisticRegression(A, (rng.random(m) < expit(A @ w)).astype(int), batch_size, 0.01)
        case _:
            score = np.tanh(A @ rng.normal(size=(p, 8))) @ rng.normal(size=8)
            return Perceptron(A, (score > np.median(score)).astype(int), batch_size)


def split(problem: P, workers: int, *, concentration: float = np.inf, seed: int = 0) -> P:
    """The problem with its examples divided into disjoint shares of equal size (or one less), one per worker.

    Each worker draws its mix of classes (of numbers: their quarters) from a symmetric Dirichlet distribution and takes
    examples accordingly from what is left (Hsu, Qi and Brown 2019): with a small ``concentration`` each sees few
    classes, with ``inf`` all alike.
    """
    require_count(workers, "split: workers")
    if concentration != np.inf:
        require_number(concentration, "split: concentration", positive=True)
    rng = np.random.default_rng(require_seed(seed, "split: seed"))
    y = problem.targets if problem.target_axes == 1 else problem.targets[:, 0]
    if len(y) < workers:
        raise ModelError(f"split: {len(y)} examples cannot be split among {workers} workers")
    labels = y if y.dtype.kind in "iu" else np.searchsorted(np.quantile(y, [0.25, 0.5, 0.75]), y)
    _, labels = np.unique(labels, return_inverse=True)
    pools = [list(rng.permutation(np.flatnonzero(labels == label))) for label in range(labels.max() + 1)]
    shares = []
    for size in (len(part) for part in np.array_split(y, workers)):
        mix = np.ones(len(pools)) if concentration == np.inf else rng.dirichlet(np.full(len(pools), concentration))
        share = []
        for _ in range(size):
            left = np.array([len(pool) for pool in pools], float)
            weights = mix * left if (mix * left).sum() > 0 else left  # none left of the classes in the mix: any other
            share.append(pools[rng.choice(len(pools), p=weights / weights.sum())].pop())
        shares.append(np.sort(share))
    return replace(problem, shares=tuple(shares))
