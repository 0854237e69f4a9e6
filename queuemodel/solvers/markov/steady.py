"""Balance equations: which states are never left, and how probable each of them is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.sparse import csc_matrix, csr_matrix, diags_array, tril, triu
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, gmres, spilu, splu

#: Up to so many states elimination is fast, whatever the network.
FEW = 1_500
#: Largest sum of violated balances, in units of all jumps, that iteration may leave.
BALANCED = 1e-14
#: Iteration ends when so many steps between restarts no longer leave less than this part of it.
KRYLOV, SLOW, RESTARTS = 50, 0.3, 30


def closed_classes(rates: csr_matrix) -> list[np.ndarray]:
    """The sets of states that lead to each other and nowhere else, from rates (n, n) of row to column."""
    count, label = connected_components(rates, directed=True, connection="strong")
    if count == 1:
        return [np.arange(rates.shape[0])]
    start, end = rates.nonzero()
    left = np.unique(label[start[label[start] != label[end]]])
    return [np.flatnonzero(label == c) for c in range(count) if c not in left]


def steady_state(rates: csr_matrix) -> np.ndarray:
    """Probabilities of the states of a closed class, from its rates.

    Iteration is fast where states have many neighbours, elimination where they have few and customers take long to
    mix: cheap iteration is tried first, then costlier, and each is judged by how well its probabilities are in balance.
    """
    n = rates.shape[0]
    if n == 1:
        return np.ones(1)
    out = np.asarray(rates.sum(axis=1)).ravel()
    # jumps into a state less jumps out of it; unknown is how often it is left, so that the diagonal is 1
    balance = (diags_array(np.ones(n)) - (diags_array(1 / out) @ rates).T).tocsc()
    jumps = None
    if n > FEW:
        jumps = _by_iteration(balance, _gauss_seidel)
        jumps = _by_iteration(balance, _incomplete) if jumps is None else jumps
    pi = (_by_elimination(balance) if jumps is None else jumps) / out
    return pi / pi.sum()


def _by_iteration(balance: csc_matrix, precondition: Callable[[csc_matrix], LinearOperator]) -> np.ndarray | None:
    """GMRES (Saad, 2003), as Stewart (1994) has it for Markov chains, or None when it is slow or does not get there."""
    try:
        nearly = precondition(balance)
    except RuntimeError:  # singular but for what was dropped
        return None
    n, left = balance.shape[0], 1.0
    x = np.full(n, 1.0 / n)
    for _ in range(RESTARTS):
        step, _ = gmres(balance, -(balance @ x), rtol=1e-12, M=nearly, restart=KRYLOV, maxiter=1)
        x = np.maximum(x + step, 0.0)
        if not 0 < x.sum() < np.inf:
            break
        x /= x.sum()
        left, before = np.abs(balance @ x).sum(), left
        if left <= BALANCED:
            return x
        if not left <= SLOW * before:
            break
    return None


def _gauss_seidel(balance: csc_matrix) -> LinearOperator:
    as_it_stands = {"permc_spec": "NATURAL", "diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
    below, above = splu(tril(balance).tocsc(), **as_it_stands), splu(triu(balance).tocsc(), **as_it_stands)
    return LinearOperator(balance.shape, lambda v: above.solve(below.solve(v)))  # the diagonal between them is 1


def _incomplete(balance: csc_matrix) -> LinearOperator:
    factors = spilu(balance, drop_tol=1e-2, fill_factor=5, diag_pivot_thresh=0.0)
    return LinearOperator(balance.shape, factors.solve)


def _by_elimination(balance: csc_matrix) -> np.ndarray:
    """One state is given weight 1 and its balance left out: the rest is a nonsingular M-matrix."""
    n = balance.shape[0]
    x, likely = np.zeros(n), 0
    for _ in range(4):  # an unlikely state costs digits, and the sign where the rest is singular but for rounding
        likely = int(x.argmax())
        others = np.delete(np.arange(n), likely)
        inner = splu(balance[:, others][others], permc_spec="COLAMD").solve(
            -balance[others][:, [likely]].toarray()[:, 0]
        )
        x[likely], x[others] = 1.0, np.abs(inner)
        x /= x.sum()
        if x[likely] > 0.5 * x.max():
            break
    return x
