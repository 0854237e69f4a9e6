"""Mean-value analysis differentiated, of networks of single-server queues and delays."""

from __future__ import annotations

import numpy as np

from .lowering import Chains
from .recursions import lattice_recursion


def slopes_by_recursion(chains: Chains) -> tuple[np.ndarray, ...]:
    """X (C,), R (K, C), dX_dD (C, K, C), dX_dZ (C, C), dR_dD (K, C, K, C) and dR_dZ (K, C, C); exact.

    The recursion is of the queues alone: a delay's demand is think time by another name, and its residence time.
    """
    K, C = chains.D.shape
    queues = np.flatnonzero(~chains.delay)  # also those that nobody visits: their slopes are not 0
    k = len(queues)
    X, R, dX, dR = lattice_recursion(chains.D[queues].T, chains.think, chains.N, slopes=True)
    dX_dZ, dR_dZ = dX[:, k * C :], np.zeros((K, C, C))
    dR_dZ[queues] = dR[:, :, k * C :].swapaxes(0, 1)
    dX_dD = np.repeat(dX_dZ[:, None], K, axis=1)
    dX_dD[:, queues] = dX[:, : k * C].reshape(C, k, C)
    dR_dD = np.repeat(dR_dZ[:, :, None], K, axis=2)
    dR_dD[np.ix_(queues, np.arange(C), queues)] = dR[:, :, : k * C].swapaxes(0, 1).reshape(k, C, k, C)
    for at in np.flatnonzero(chains.delay):
        dR_dD[at, :, at] = np.eye(C)
    full = chains.D * (chains.N > 0)
    full[queues] = R.T
    return X, full, dX_dD, dX_dZ, dR_dD, dR_dZ
