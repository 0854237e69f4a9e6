"""Who averages with whom: mixing matrices of graphs, and how fast they make all alike."""

from __future__ import annotations

import numpy as np

from ..checks import require_choice, require_count
from ..errors import ModelError

GRAPHS = ("ring", "torus", "complete")


def mixing_matrix(graph: str, workers: int) -> np.ndarray:
    """
    Weights with which each worker averages its neighbours' values and its own, shape (n, n).

    Symmetric, rows add up to 1; every neighbour, and the worker itself, counts 1 / (degree + 1), on a complete graph
    thus 1/n (Xiao and Boyd 2004, maximum-degree weights).

    Parameters
    ----------
    graph : {"ring", "torus", "complete"}
        A torus needs a square number of workers.
    workers : int

    Raises
    ------
    ModelError
        For another graph, or a torus of no square number.
    """
    require_choice(graph, "graph", GRAPHS)
    n = require_count(workers, "workers", least=1)
    neighbours = np.zeros((n, n), bool)
    i = np.arange(n)
    if graph == "complete":
        neighbours[:] = True
    elif graph == "ring":
        neighbours[i, (i + 1) % n] = True
    else:
        side = round(n**0.5)
        if side * side != n:
            raise ModelError(f"torus: workers must be a square number, got {n}")
        row, column = divmod(i, side)
        neighbours[i, row * side + (column + 1) % side] = True
        neighbours[i, (row + 1) % side * side + column] = True
    neighbours |= neighbours.T
    np.fill_diagonal(neighbours, False)
    weights = neighbours / (neighbours.sum(axis=1).max(initial=0) + 1)
    np.fill_diagonal(weights, 1 - weights.sum(axis=1))
    return weights


def spectral_gap(weights: np.ndarray) -> float:
    """1 minus the second largest absolute eigenvalue: an averaging takes at least this share off the disagreement."""
    sizes = np.sort(np.abs(np.linalg.eigvalsh(weights)))
    return float(1 - sizes[-2]) if len(sizes) > 1 else 1.0


def degree(weights: np.ndarray) -> int:
    """Largest number of neighbours."""
    return int((np.count_nonzero(weights, axis=1) - (np.diag(weights) > 0)).max())
