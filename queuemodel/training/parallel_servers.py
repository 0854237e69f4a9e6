"""Equal workers at the links of one server, or of several at once, whom they meet by chance or less often."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .pace import NOTHING, Pace


@dataclass(frozen=True, slots=True)
class ParallelServers:
    """Equal workers whose steps visit all servers at once, for demands D with one server's after the other's, Z (...).

    Mean-value analysis with three additions, all without effect for one worker. Exact for one server, ``settled`` and
    ``handover`` of 0 (the default), else approximate. The phase's time is reported as its servers' residence times, in
    proportion to their demands.

    Attributes
    ----------
    servers : int
        With several, means are those of a maximum (`in_parallel`): against simulations of the same network within 3 %
        where servers are alike, and up to 12 % too high around the knee where one has most of the load, because
        workers then bunch there.
    settled : float
        How firmly workers settle in opposite phases, 0 to 1. Computation that overlaps transfers drives them apart: who
        comes second to a link has it alone at the end, and the less of its computation is done by then. Of one of the
        others, its neighbour, a worker then meets half as much as by chance: D U / (2 (n - 1)) less waiting. Half is
        what the testbed's recorded steps come to when simulated with links that share fairly; steps of many equal
        layers avoid each other altogether.
    handover : float
        Relative loss of a link's rate while several connections share it.
    """

    servers: int = 1
    settled: float = 0.0
    handover: float = 0.0

    @property
    def method(self) -> str:
        """Name of the method, and whether it is exact."""
        return f"mva (approximate, {'servers in parallel' if self.servers > 1 else 'settled phases'})"

    def solve(self, D: np.ndarray, Z: np.ndarray, populations: np.ndarray) -> Pace:
        """See `Rule`."""
        D = D.reshape(*D.shape[:-1], self.servers, -1)
        largest_first, own = -np.sort(-D, axis=-2), D.sum(axis=-2)
        busiest = largest_first[..., 0, :]
        met = busiest - largest_first[..., 1, :] if self.servers > 1 else busiest  # what another worker delays
        X = np.empty((len(populations), *D.shape[:-2]))
        R = np.empty((len(populations), *D.shape))
        Q, U = np.zeros(own.shape), np.zeros(own.shape)
        best = np.zeros(D.shape[:-2])
        row = 0
        for n in range(1, int(populations[-1]) + 1):
            slower = 1.0 + self.handover * np.minimum(Q, 1.0)
            spared = self.settled * met * U / (2 * max(n - 1, 1))
            phase = slower * (in_parallel(largest_first, Q, others=n - 1) - spared)
            capacity = 1.0 / np.maximum((busiest * slower).max(axis=-1), NOTHING)
            x = np.minimum(n / (Z + phase.sum(axis=-1)), capacity)
            best = np.maximum(best, x)  # more workers never slow the servers down
            Q, U = best[..., None] * phase, best[..., None] * busiest
            if n == populations[row]:
                spent = phase * ((n / best - Z) / np.maximum(phase.sum(axis=-1), NOTHING))[..., None]  # Little's law
                X[row], R[row] = best, D * (spent / np.maximum(own, NOTHING))[..., None, :]
                row += 1
        return Pace(X, R.reshape(*R.shape[:-2], -1), np.broadcast_to(Z, X.shape))


def in_parallel(D: np.ndarray, Q: np.ndarray, *, others: int) -> np.ndarray:
    """Mean time (..., F) of phases that end with their slowest server, when others are met there.

    A worker that is alone needs its own link for all demands, one after the other. Where K others are in the same
    phase, the busiest server gives each a share, and hides the K next busiest servers: the worker's link has room for
    them beside it. With D_1 >= D_2 >= ... and K binomial of mean Q,
    E[T] = D_1 (1 + Q) + P(K = 0) D_2 + P(K <= 1) D_3 + ...

    Parameters
    ----------
    D : ndarray, shape (..., P, F)
        Seconds of P servers, the largest first, for each of F phases.
    Q : ndarray, shape (..., F)
        Mean number of other workers in the phase, at most ``others``.
    others : int
    """
    p = np.minimum(Q / max(others, 1), 1.0 - 1e-9)
    exactly = (1.0 - p) ** others
    at_most = exactly
    uncertain = min(others, D.shape[-2] - 1)  # no more than the others are ever there
    time = D[..., 0, :] * (1.0 + Q) + D[..., uncertain + 1 :, :].sum(axis=-2)
    for k in range(uncertain):
        time = time + at_most * D[..., k + 1, :]
        exactly = exactly * (p / (1.0 - p)) * ((others - k) / (k + 1))
        at_most = at_most + exactly
    return time
