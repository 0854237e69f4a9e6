"""Problems made by seed, and how their examples are split among workers."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np
from scipy.special import expit

from ..checks import require_choice, require_count, require_number, require_seed
from ..errors import ModelError
from .problem import Problem
from .problems import LeastSquares, LogisticRegression, Perceptron, SigmoidSquares

P = TypeVar("P", bound=Problem)

KINDS = ("least-squares", "logistic", "sigmoid", "perceptron")


def make_problem(kind: str, *, examples: int = 512, features: int = 20, batch_size: int = 4, seed: int = 0) -> Problem:
    """
    A problem of random examples.

    Parameters
    ----------
    kind : {"least-squares", "logistic", "sigmoid", "perceptron"}
        Least squares with noise of 0.5; two classes whose labels a linear rule decides by odds, regularized by 0.01
        (strongly convex); a sigmoid's own outputs (not convex, least loss 0); two classes that a random perceptron
        of 8 hidden units decides (not convex).
    examples, features : int
    batch_size : int
        Examples of one worker's gradient.
    seed : int

    Raises
    ------
    ModelError
        For another kind or a senseless number.

    Examples
    --------
    >>> from queuemodel.descent import make_problem
    >>> make_problem("logistic")
    LogisticRegression(512 examples of 20 features, 40 parameters)
    """
    require_choice(kind, "make_problem: kind", KINDS)
    m, p = (
        require_count(n, f"make_problem: {what}", least=1)
        for n, what in ((examples, "examples"), (features, "features"))
    )
    rng = np.random.default_rng(require_seed(seed, "make_problem: seed"))
    A, w = rng.normal(size=(m, p)), rng.normal(size=p)
    match kind:
        case "least-squares":
            return LeastSquares(A, A @ w + 0.5 * rng.normal(size=m), batch_size)
        case "logistic":
            return LogisticRegression(A, (rng.random(m) < expit(A @ w)).astype(int), batch_size, 0.01)
        case "sigmoid":
            return SigmoidSquares(A, expit(A @ w / np.sqrt(p)), batch_size)
        case _:
            score = np.tanh(A @ rng.normal(size=(p, 8))) @ rng.normal(size=8)
            return Perceptron(A, (score > np.median(score)).astype(int), batch_size)


def split(problem: P, workers: int, *, concentration: float = np.inf, seed: int = 0) -> P:
    """
    The problem with its examples split among workers, each example at one of them, as many at each as can be.

    Each worker draws the shares of its classes (of numbers: their quarters) from a symmetric Dirichlet distribution and
    fills itself accordingly from what is left (Hsu, Qi and Brown 2019): with a small ``concentration`` each sees few
    classes, with ``inf`` all alike.

    Raises
    ------
    ModelError
        When there are fewer examples than workers, or a senseless number.
    """
    require_count(workers, "split: workers", least=1)
    if concentration != np.inf:
        require_number(concentration, "split: concentration", positive=True)
    rng = np.random.default_rng(require_seed(seed, "split: seed"))
    y = problem.targets
    if len(y) < workers:
        raise ModelError(f"split: {len(y)} examples cannot be split among {workers} workers")
    labels = y if y.dtype.kind in "iu" else np.searchsorted(np.quantile(y, [0.25, 0.5, 0.75]), y)
    _, labels = np.unique(labels, return_inverse=True)
    pools = [list(rng.permutation(np.flatnonzero(labels == label))) for label in range(labels.max() + 1)]
    shares = []
    for size in (len(part) for part in np.array_split(y, workers)):
        liked = np.ones(len(pools)) if concentration == np.inf else rng.dirichlet(np.full(len(pools), concentration))
        shares.append(np.array([_take(pools, liked, rng) for _ in range(size)]))
    return replace(problem, shares=tuple(np.sort(share) for share in shares))


def _take(pools: list[list[int]], liked: np.ndarray, rng: np.random.Generator) -> int:
    """One example of a class drawn as liked; where none of these is left, and as numerous, of those that are."""
    left = np.array([len(pool) for pool in pools], float)
    weights = liked * left if (liked * left).sum() > 0 else left
    return pools[rng.choice(len(pools), p=weights / weights.sum())].pop()
