"""A `Solution` from what was counted class by class, for the solvers that follow every customer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..network import Network, Solution
from .lowering import chains_of


def solution_of(
    network: Network,
    population: int | tuple[int, ...],
    X: np.ndarray,
    Q: np.ndarray,
    *,
    busy: np.ndarray,
    **about: Any,
) -> Solution:
    """
    The solution with class throughputs X (C,), queue lengths Q (K, C) and the probability that somebody is there (K,).

    Classes that customers switch between share the throughput of their chain; ``about`` is the rest of a `Solution`.
    """
    members = [list(chain) for chain in network.chains]
    dependent = np.array([s.rates is not None for s in network.stations])
    solution = chains_of(network, population).solution(
        np.array([X[m[0]] for m in members]),
        np.array([Q[:, m].sum(axis=1) for m in members]).T,
        busy=np.where(dependent, busy, np.nan) if dependent.any() else None,
        **about,
    )
    if not network.classes:
        return solution
    with np.errstate(invalid="ignore", divide="ignore"):
        return replace(solution, class_residence_times=np.where(X > 0, Q / X, 0.0))
