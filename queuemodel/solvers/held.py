"""Approximations held to what is possible: their throughputs within the asymptotic bounds of the network."""

from __future__ import annotations

import numpy as np

from .lowering import Chains

#: Rounding that is not worth a word.
ROUNDING = 1e-9


def hold_curve(chains: Chains, X: np.ndarray, R: np.ndarray) -> tuple[np.ndarray, np.ndarray, str]:
    """X (N,) and R (N, K) at populations 1 to N of one chain, within the bounds, and what to say of it.

    What the cycle lacks above the upper bound is waited at the busiest station; below the lower one customers wait so
    much less, everywhere in proportion.
    """
    total, n = len(X), np.arange(1, len(X) + 1)
    load, least, Z = chains.load(total)[:, 0], chains.least(total)[:, 0], float(chains.Z[0])
    lower = n / (n * chains.most(total).sum() + float(chains.think[0]))
    upper = np.minimum(n / (Z + least.sum()), 1.0 / max(float(load.max()), 1e-300))
    over, under = upper * (1 + ROUNDING) < X, lower * (1 - ROUNDING) > X
    X, R, before = X.copy(), R.copy(), X
    X[over], X[under] = upper[over], lower[under]
    R[over, int(load.argmax())] += (n / X - n / before)[over]
    R[under] = _less_waiting(R[under], least, n[under] / X[under] - Z)
    held = int(over.sum() + under.sum())
    return X, R, f"; held to the asymptotic bounds at {held:,} of {total:,} populations" if held else ""


def hold_classes(chains: Chains, X: np.ndarray, R: np.ndarray) -> tuple[np.ndarray, np.ndarray, str]:
    """The same of throughputs X (C,) and residence times R (K, C) of several chains.

    No station is busier than it can be; and what all together must get done at least,
    sum of X_c (Z_c + N D_c) >= N, is done.
    """
    N, total, someone = chains.N, int(chains.N.sum()), chains.N > 0
    load, least = chains.load(total), chains.least(total)
    X, R, before = X.copy(), R.copy(), X
    for _ in range(len(load)):
        busiest = int((load @ X).argmax())
        U = float((load @ X)[busiest])
        if U <= 1 + ROUNDING:
            break
        slowed = (load[busiest] > 0) & someone
        R[busiest, slowed] += (N / np.maximum(X, 1e-300) * (U - 1.0))[slowed]
        X[slowed] /= U
    lacking = total / float(X @ (chains.think + total * chains.most(total).sum(axis=0)))
    if lacking > 1 + ROUNDING:
        most = N / (chains.Z + least.sum(axis=0))
        X = np.minimum(X * min(lacking, 1.0 / max(float((load @ X).max()), 1e-300)), most)
        for c in np.flatnonzero(someone):
            R[:, c] = _less_waiting(R[None, :, c], least[:, c], np.array([N[c] / X[c] - chains.Z[c]]))[0]
    moved = float(np.abs(X - before).max()) > ROUNDING * float(before.max())
    return X, R, "; held to the asymptotic bounds" if moved else ""


def _less_waiting(R: np.ndarray, least: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Residence times (n, K) that sum to ``wanted`` (n,), with waiting beyond ``least`` (K,) scaled."""
    waiting = np.maximum(R - least, 0.0)
    scale = (wanted - least.sum()) / np.maximum(waiting.sum(axis=1), 1e-300)
    return least + waiting * scale[:, None]
