"""Chains merged as far as exactness allows, and measures given back to each of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..network import Solution
from .lowering import Chains


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """Chains with their delays folded into think times, idle ones left out and identical ones made one.

    Attributes
    ----------
    D : ndarray, shape (C, K)
        Demands at the stations that queue.
    stations : list of int
        Which stations those are.
    speeds : list
        Of those stations, as `lowered.speeds_of` gives them.
    member : list of list of int
        The chains that each merged one stands for.
    """

    D: np.ndarray
    Z: np.ndarray
    N: np.ndarray
    stations: list[int]
    speeds: list[np.ndarray | None]
    member: list[list[int]]


def merge(chains: Chains) -> Merged:
    """Fold delays, leave out chains without customers, and make identical chains one (which changes nothing)."""
    queues, Z = chains.queues.tolist(), chains.think
    alike: dict[tuple[float, ...], list[int]] = {}
    for c in np.flatnonzero(chains.N > 0):
        alike.setdefault((float(Z[c]), *chains.D[queues, c].tolist()), []).append(int(c))
    member = sorted(alike.values(), key=lambda group: -int(chains.N[group].sum()))  # the largest first
    first = [group[0] for group in member]
    N = np.array([chains.N[group].sum() for group in member], dtype=np.int64)
    speeds = chains.speeds(int(N.sum()))
    D = np.ascontiguousarray(chains.D[np.ix_(queues, first)].T)
    return Merged(D, Z[first], N, queues, [speeds[k] for k in queues], member)


def expand(
    chains: Chains, merged: Merged, X: np.ndarray, Q: np.ndarray, empty: np.ndarray | None, name: str, reason: str
) -> Solution:
    """Measures of merged chains (X (C,), Q (C, K)) given back to each chain and each station.

    ``empty`` (K,) has the probabilities that nobody is at a station, NaN where its speed is constant.
    """
    K, C = chains.D.shape
    all_X, all_Q, busy = np.zeros(C), np.zeros((K, C)), np.full(K, np.nan)
    for m, group in enumerate(merged.member):
        for c in group:
            part = chains.N[c] / merged.N[m]
            all_X[c] = X[m] * part
            all_Q[merged.stations, c] = Q[m] * part
    all_Q[chains.delay] = chains.D[chains.delay] * all_X
    if empty is not None:
        dependent = [at for at, k in enumerate(merged.stations) if chains.network.stations[k].rates is not None]
        busy[[merged.stations[at] for at in dependent]] = 1.0 - empty[dependent]
    seen = busy if np.isfinite(busy).any() else None
    return chains.solution(all_X, all_Q, busy=seen, solver=name, exact=True, reason=reason)
