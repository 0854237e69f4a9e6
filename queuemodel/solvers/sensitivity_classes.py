"""Exact derivatives with several job classes: mean-value analysis over the lattice of populations, differentiated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ModelError
from ..network import Network
from ..results import Result
from .lowering import MEMORY, chains_of, refuse_without_product_form, require_populations
from .slopes import slopes_by_recursion

#: Numbers that the recursion may update (about 2 ns each).
MOST_UPDATES = 1e10


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ClassSensitivity(Result):
    """Derivatives at one population of K stations and C classes, in the order of the network's classes.

    Attributes
    ----------
    throughput : ndarray, shape (C,)
    residence_time : ndarray, shape (K, C)
    dX_dD : ndarray, shape (C, K, C)
        Of a class's throughput by the demand at a station of a class.
    dX_dZ : ndarray, shape (C, C)
        Of a class's throughput by the think time of a class.
    dR_dD : ndarray, shape (K, C, K, C)
    dR_dZ : ndarray, shape (K, C, C)
    """

    network: Network
    populations: tuple[int, ...]
    throughput: np.ndarray
    residence_time: np.ndarray
    dX_dD: np.ndarray
    dX_dZ: np.ndarray
    dR_dD: np.ndarray
    dR_dZ: np.ndarray

    @property
    def dQ_dD(self) -> np.ndarray:
        """Of the queue lengths, shape (K, C, K, C): Q = X R."""
        R, X = self.residence_time, self.throughput
        return self.dX_dD[None] * R[:, :, None, None] + X[None, :, None, None] * self.dR_dD

    @property
    def dQ_dZ(self) -> np.ndarray:
        """Of the queue lengths by the think times, shape (K, C, C)."""
        return self.dX_dZ[None] * self.residence_time[:, :, None] + self.throughput[None, :, None] * self.dR_dZ

    @property
    def dU_dD(self) -> np.ndarray:
        """Of a class's part in the utilization, shape (K, C, K, C): U = X D."""
        D = self.network.service_demand
        K, C = D.shape
        own = np.eye(K * C).reshape(K, C, K, C) * self.throughput[None, :, None, None]
        return self.dX_dD[None] * D[:, :, None, None] + own

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per station and class whose demand changes, with every class's dX."""
        names, D = self.network.class_names, self.network.service_demand
        return [
            {"station": station, "class": name, "service_demand": float(D[k, d])}
            | {f"dX[{other}]_dD": float(self.dX_dD[c, k, d]) for c, other in enumerate(names)}
            for k, station in enumerate(self.network.names)
            for d, name in enumerate(names)
        ]

    def caption(self) -> str:
        """Throughputs and populations."""
        pairs = zip(self.network.class_names, self.throughput, self.populations, strict=True)
        return "throughput " + ", ".join(f"{name} {x:.6g} /s at population {n}" for name, x, n in pairs)


def class_sensitivity(network: Network, population: object) -> ClassSensitivity:
    """The derivatives, or a `ModelError` that says with numbers what does not fit."""
    counts = require_populations(network, population)
    assert isinstance(counts, tuple)  # the network has classes
    chains = chains_of(network, counts)
    refuse_without_product_form(chains, "sensitivity")
    if why := chains.why_not_plain():
        raise ModelError(f"sensitivity: {why}; with classes only single-server queues and delays are differentiated")
    if any(len(chain) > 1 for chain in network.chains):
        raise ModelError("sensitivity: customers switch classes; derivatives are of classes that nobody leaves")
    K, C = chains.D.shape
    points, P = math.prod(n + 1 for n in counts), C * (K + 1)
    size, updates = 8.0 * points / (counts[0] + 1) * K * (P + 1), 1.0 * points * C * K * P
    if size > MEMORY or updates > MOST_UPDATES:
        raise ModelError(
            f"sensitivity: {points:,} lattice points times {P} parameters need {size:.3g} bytes (limit {MEMORY:.3g}) "
            f"and {updates:.3g} updates (limit {MOST_UPDATES:.3g}); take fewer customers"
        )
    return ClassSensitivity(network, counts, *slopes_by_recursion(chains))
