"""Equal workers at the links of one server, or of several at once, whom they meet by chance or less often."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .flights import MOST_LEVELS, Flights
from .pace import NOTHING, Pace


@dataclass(frozen=True, slots=True)
class ParallelServers:
    """Equal workers whose steps visit all servers at once, for demands D with one server's after the other's, Z (...).

    Mean-value analysis of stations whose rate depends on how many are there (Reiser and Lavenberg, 1980), with three
    additions, all without effect for one worker. A phase (fetch, push, update) is such a station. Exact for one
    server, ``settled`` of 0 and no ``flights`` (the default), else approximate. The phase's time is reported as its
    servers' residence times, in proportion to their demands.

    Attributes
    ----------
    servers : int
        With several, a phase ends with the slowest. A worker that is alone in it needs its own link for all demands,
        one after the other; of j workers each has a j-th of the busiest server, and its own link has room for the j - 1
        next busiest servers beside that. With D_1 >= D_2 >= ... the phase takes j D_1 + D_(j+1) + D_(j+2) + ...
        Against simulations of the same network within 4 % where servers are alike, and up to 12 % too high around the
        knee where one has most of the load, because workers then bunch there.
    settled : float
        How firmly workers settle in opposite phases, 0 to 1. Computation that overlaps transfers drives them apart: who
        comes second to a link has it alone at the end, and the less of its computation is done by then. Driven off a
        busy link, a worker comes to it at another time, when it is as often busy: it meets others with U^2 where chance
        has U, D U (1 - U) less waiting. Under BBR (``flights``), whose accidents mix phases, it only meets one of the
        others, its neighbour, half as much, D U / (2 (n - 1)) less: what the testbed's recorded steps come to.
    flights : Flights, optional
        How much of a link few workers use, of the first two phases: those that fetch and those that push.
    """

    servers: int = 1
    settled: float = 0.0
    flights: Flights | None = None

    @property
    def method(self) -> str:
        """Name of the method, and whether it is exact."""
        if self.servers > 1:
            return "mva (approximate, servers in parallel)"
        return f"mva (approximate, {'settled phases' if self.settled else 'links that few do not fill'})"

    def solve(self, D: np.ndarray, Z: np.ndarray, populations: np.ndarray) -> Pace:
        """See `Rule`."""
        D = D.reshape(*D.shape[:-1], self.servers, -1)
        largest_first, own = -np.sort(-D, axis=-2), D.sum(axis=-2)
        busiest = largest_first[..., 0, :]
        met = busiest - largest_first[..., 1, :] if self.servers > 1 else busiest  # what another worker delays
        least = self.flights.least_share(own[..., :2]) if self.flights else np.ones(1)
        levels = min(max(self.servers, math.ceil(1.0 / least.min())) - 1, MOST_LEVELS, int(populations[-1]))
        here = np.arange(1, levels + 1).reshape(-1, *[1] * busiest.ndim)
        beside = np.array([largest_first[..., j + 1 :, :].sum(axis=-2) for j in range(levels)]).reshape(
            levels, *busiest.shape
        ) / np.maximum(busiest, NOTHING)
        X = np.empty((len(populations), *D.shape[:-2]))
        R = np.empty((len(populations), *D.shape))
        Q, U = np.zeros(own.shape), np.zeros(own.shape)
        p = np.zeros((levels + 1, *own.shape))  # that 0, 1, ... are in a phase
        p[0] = 1.0
        best = np.zeros(D.shape[:-2])
        row = 0
        for n in range(1, int(populations[-1]) + 1):
            slowness = here + beside
            if self.flights:
                used = self.flights.rates(least, Q[..., :2], workers=n, levels=levels)
                slowness[..., :2] += here / used - here
            avoided = 1.0 / (2 * max(n - 1, 1)) if self.flights else 1.0 - U
            spared = self.settled * met * U * avoided
            found = _fewer(p, spared / np.maximum(busiest * Q, NOTHING))
            phase = busiest * (1.0 + Q + (found * (slowness - here)).sum(axis=0)) - spared  # arrival theorem
            x = np.minimum(n / (Z + phase.sum(axis=-1)), 1.0 / np.maximum(busiest.max(axis=-1), NOTHING))
            best = np.maximum(best, x)  # more workers never slow the servers down
            Q, U = best[..., None] * phase, best[..., None] * busiest
            p[1:] = U * slowness / here * found
            p[0] = np.maximum(1.0 - U - ((1.0 - here / slowness) * p[1:]).sum(axis=0), 0.0)  # utilization law
            p /= np.maximum(p.sum(axis=0), 1.0)
            if n == populations[row]:
                spent = phase * ((n / best - Z) / np.maximum(phase.sum(axis=-1), NOTHING))[..., None]  # Little's law
                X[row], R[row] = best, D * (spent / np.maximum(own, NOTHING))[..., None, :]
                row += 1
        return Pace(X, R.reshape(*R.shape[:-2], -1), np.broadcast_to(Z, X.shape))


def _fewer(p: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Probabilities (levels, ...) of 0, 1, ... others, each of whom is missed with a small probability."""
    number = np.arange(len(p)).reshape(-1, *[1] * share.ndim)
    missed = number * p * share
    return p[:-1] + missed[1:] - missed[:-1]
