"""Exact mean-value analysis."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

from ..errors import ModelError
from ..network import Network, Solution
from .convolution import Convolution
from .lowering import MEMORY, chains_of, refuse_without_product_form
from .multiclass import solve_classes

#: Recursions up to this many station steps run in plain Python while numba is not loaded (it takes half a second),
#: until together they come to `ENOUGH`.
SMALL, ENOUGH = 2000, 20_000


@dataclass(frozen=True, slots=True)
class ExactMVA:
    """Exact mean-value analysis of closed product-form networks (Reiser and Lavenberg, 1980).

    Exact (up to rounding) when the network has product form: processor sharing or last-come-first-served-preemptive
    queues with any service distribution, first-come-first-served queues with exponential service that is the same for
    all classes, and delays with any. Anything else is refused. Stations with several servers or load-dependent rates
    go through normalizing constants, whose digits do not get lost as those of the textbook's recursion do.

    Without classes, time is proportional to the population times the number of stations and all populations up to the
    one asked for are kept. With classes, the cheapest of several exact recursions is taken; its memory is at most the
    product of the populations (each plus one) of all classes but the largest, and classes that are alike count as one.

    Parameters
    ----------
    memory : int, default 4 GiB
        Bytes that a solution may need; more is refused before starting, with the numbers.
    """

    memory: int = MEMORY

    def solve(self, network: Network, population: int | tuple[int, ...]) -> Solution:
        """Measures for populations 1 to ``population``, or at the classes' populations."""
        refuse_without_product_form(network, "exact MVA")
        if not network.classes:
            if not isinstance(population, int):
                raise ModelError(f"exact MVA: population must be a whole number, got {population!r}")
            return self._single(network, population)
        if isinstance(population, int):
            raise ModelError(f"exact MVA: population must be one number per class, got {population!r}")
        return solve_classes(chains_of(network, population), self.memory)

    def _single(self, network: Network, population: int) -> Solution:
        if any(s.rates is not None or (s.servers != 1 and not s.is_delay) for s in network.stations):
            return Convolution().solve(network, population)
        K = len(network.stations)
        if 8 * population * (K + 1) > self.memory:
            raise ModelError(
                f"exact MVA: populations 1 to {population:,} of {K} stations take {8 * population * (K + 1):,} bytes, "
                f"more than {self.memory:,}; take a smaller population, or bounds"
            )
        D = network.service_demand
        if network.is_delay.any():
            queues = np.flatnonzero(~network.is_delay)
            X, Rq = recursion(D[queues], network.think_time + float(D[network.is_delay].sum()), population)
            R = np.empty((population, K))
            R[:] = D
            R[:, queues] = Rq
        else:
            X, R = recursion(D, network.think_time, population)
        return Solution(
            network,
            population,
            X,
            R,
            solver="exact MVA",
            exact=True,
            reason="single class with product form: the recursion is exact and cheap",
        )


def recursion(D: np.ndarray, Z: float, population: int) -> tuple[np.ndarray, np.ndarray]:
    """X (N,) and R (N, K) of single-server queues D and think time Z, for every population."""
    K = len(D)
    if population * K <= SMALL and "numba" not in sys.modules and _in_plain_python(population * K):
        return _plain_recursion(D.tolist(), Z, population)
    from .kernels import single

    X, R = np.empty(population), np.empty((population, K))
    single.mva(D, Z, population, X, R)
    return X, R


def _in_plain_python(steps: int, done: list[int] = [0]) -> bool:  # noqa: B006  # counts over calls on purpose
    done[0] += steps
    return done[0] <= ENOUGH


def _plain_recursion(D: list[float], Z: float, population: int) -> tuple[np.ndarray, np.ndarray]:
    Q, xs, rs, x = [0.0] * len(D), [], [], 0.0
    most = 1.0 / max(D) if max(D, default=0.0) > 0 else np.inf
    for n in range(1, population + 1):
        r = [d * (1.0 + q) for d, q in zip(D, Q, strict=True)]  # arrival theorem
        total = Z
        for value in r:
            total += value
        x = max(x, min(n / total, most))
        Q = [x * value for value in r]  # Little's law
        xs.append(x)
        rs.append(r)
    return np.array(xs), np.array(rs).reshape(population, len(D))


def mva_recursion(
    D: np.ndarray, Z: float | np.ndarray, is_delay: np.ndarray, populations: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """X (n, ...) and R (n, ..., K) at increasing populations (n,), for demands D (..., K) and think times Z (...)."""
    queues = np.where(is_delay, 0.0, 1.0)
    X = np.empty((len(populations), *D.shape[:-1]))
    R = np.empty((len(populations), *D.shape))
    Q = np.zeros(D.shape)
    row = 0
    for n in range(1, int(populations[-1]) + 1):
        r = D * (1.0 + queues * Q)  # arrival theorem
        x = n / (Z + r.sum(axis=-1))
        Q = x[..., None] * r  # Little's law
        if n == populations[row]:
            X[row], R[row], row = x, r, row + 1
    return X, R
