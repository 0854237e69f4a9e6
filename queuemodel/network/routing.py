"""Routing matrices and the visit ratios and chains that follow from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ModelError
from .phasetype import numbers_in

Matrix = tuple[tuple[float, ...], ...]


def require_routing(routing: Any, stations: Sequence[str], classes: Sequence[str]) -> Any:
    """Check the form of a routing; give it back with immutable matrices."""
    if routing is None:
        return None
    if not isinstance(routing, Mapping):
        return _matrix(routing, "routing", len(stations))
    if not classes:
        raise ModelError("routing: a mapping names classes, but the network has none; give one matrix")
    if not routing:
        raise ModelError("routing: the mapping is empty; give a matrix for each class")
    checked = {}
    for key, value in routing.items():
        pair = key if isinstance(key, tuple) else (key, key)
        if len(pair) != 2 or not all(isinstance(name, str) and name in classes for name in pair):
            raise ModelError(f"routing: keys must be classes or pairs of classes of the network, got {key!r}")
        if pair in checked:
            raise ModelError(f"routing: class pair {pair!r} is given twice")
        checked[pair] = _matrix(value, f"routing[{key!r}]", len(stations))
    return checked


def _matrix(value: Any, where: str, K: int) -> Matrix:
    P = numbers_in(value)
    if P is None or P.ndim != 2:
        raise ModelError(f"{where}: must be a matrix of probabilities, {K} rows of {K} numbers")
    if P.shape != (K, K):
        raise ModelError(f"{where}: must have {K} rows and columns, one per station, got shape {P.shape}")
    if not np.isfinite(P).all() or (P < 0).any() or (P > 1 + 1e-9).any():
        raise ModelError(f"{where}: must be probabilities, 0 to 1")
    return tuple(map(tuple, P.tolist()))


def transitions(routing: Any, stations: Sequence[str], classes: Sequence[str]) -> np.ndarray:
    """Probabilities of going from (class, station) to (class, station), shape (C, K, C, K), from a checked routing."""
    K, C = len(stations), max(1, len(classes))
    full = np.zeros((C, K, C, K))
    for c, start in enumerate(classes or [""]):
        for d, end in enumerate(classes or [""]):
            if isinstance(routing, Mapping):
                full[c, :, d, :] = routing.get((start, end), 0.0)
            elif c == d:
                full[c, :, d, :] = routing
        if classes and not full[c].any():
            raise ModelError(f"routing: class {start!r} has no matrix")
        for name, total in zip(stations, full[c].sum(axis=(1, 2)), strict=True):
            if abs(total - 1) > 1e-9 and total != 0:
                who = f" of class {start!r}" if classes else ""
                raise ModelError(
                    f"routing{who}: the row of station {name!r} must sum to 1 (or to 0 where nobody comes), "
                    f"got {total:.10g}"
                )
    return full


def visits_and_chains(
    full: np.ndarray, stations: Sequence[str], classes: Sequence[str], reference: int
) -> tuple[np.ndarray, tuple[tuple[int, ...], ...]]:
    """Visit ratios, shape (K, C), and the chains (classes that customers switch between), from `transitions`.

    In each chain the visits to the reference station sum to 1 per cycle.
    """
    C, K = full.shape[:2]
    chains = _components(np.asarray(full.any(axis=(1, 3))))
    V = np.zeros((K, C))
    for chain in chains:
        V[:, chain] = _chain_visits(full[np.ix_(chain, range(K), chain, range(K))], chain, stations, classes, reference)
    return V, chains


def _components(linked: np.ndarray) -> tuple[tuple[int, ...], ...]:
    both = linked | linked.T
    return tuple(dict.fromkeys(tuple(_reached(both, start)) for start in range(len(both))))


def _reached(linked: np.ndarray, start: int) -> list[int]:
    """What can be reached from there, itself included."""
    reached = wave = np.arange(len(linked)) == start
    while wave.any():
        wave = linked[wave].any(axis=0) & ~reached
        reached = reached | wave
    return np.flatnonzero(reached).tolist()


def _chain_visits(
    P: np.ndarray, chain: Sequence[int], stations: Sequence[str], classes: Sequence[str], reference: int
) -> np.ndarray:
    """Solve v = v P on the states (class, station) of one chain that can be reached from the reference station."""
    C, K = P.shape[:2]
    flat = P.reshape(C * K, C * K)
    start = [c * K + reference for c in range(C)]
    named = f"routing of class {classes[chain[0]]!r}" if classes else "routing"
    at = [s for s in start if flat[s].any() or flat[:, s].any()]
    if not at:
        raise ModelError(f"{named}: nobody visits the reference station {stations[reference]!r}; name another one")
    states = _reached(flat > 0, at[0])
    part = flat[np.ix_(states, states)]
    for s, total in zip(states, part.sum(axis=1), strict=True):
        if abs(total - 1) > 1e-9:
            raise ModelError(f"{named}: customers come to station {stations[s % K]!r} and never leave (its row is 0)")
    A = np.vstack([part.T - np.eye(len(states)), [[1.0 if s in start else 0.0 for s in states]]])
    b = np.zeros(len(states) + 1)
    b[-1] = 1.0
    v, _, rank, _ = np.linalg.lstsq(A, b, rcond=None)
    if rank < len(states) or np.abs(A @ v - b).max() > 1e-8 or v.min() < -1e-9:
        raise ModelError(f"{named}: has no unique visit ratios; every station visited must lead back to the reference")
    V = np.zeros(C * K)
    V[states] = np.where(v < 1e-13, 0.0, v)
    return V.reshape(C, K).T
