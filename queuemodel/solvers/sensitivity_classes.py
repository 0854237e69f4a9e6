"""Exact derivatives with several job classes: mean-value analysis over the lattice of populations, differentiated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ModelError
from ..network import Network
from ..tables import html_table, text_table
from .lowering import MEMORY, refuse_without_product_form, require_populations

#: Lattice points beyond which the recursion is refused (tens of microseconds each), and numbers it may update.
MOST_POINTS, MOST_UPDATES = 2_000_000, 1e11


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ClassSensitivity:
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
        product: np.ndarray = self.dX_dD[None] * R[:, :, None, None] + X[None, :, None, None] * self.dR_dD
        return product

    @property
    def dQ_dZ(self) -> np.ndarray:
        """Of the queue lengths by the think times, shape (K, C, C)."""
        product: np.ndarray = (
            self.dX_dZ[None] * self.residence_time[:, :, None] + self.throughput[None, :, None] * self.dR_dZ
        )
        return product

    @property
    def dU_dD(self) -> np.ndarray:
        """Of a class's part in the utilization, shape (K, C, K, C): U = X D."""
        D = self.network.service_demand
        K, C = D.shape
        own = np.eye(K * C).reshape(K, C, K, C) * self.throughput[None, :, None, None]
        product: np.ndarray = self.dX_dD[None] * D[:, :, None, None] + own
        return product

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per station and class whose demand changes, with every class's dX."""
        names, D = self.network.class_names, self.network.service_demand
        return [
            {"station": station, "class": name, "service_demand": float(D[k, d])}
            | {f"dX[{other}]_dD": float(self.dX_dD[c, k, d]) for c, other in enumerate(names)}
            for k, station in enumerate(self.network.names)
            for d, name in enumerate(names)
        ]

    def _caption(self) -> str:
        pairs = zip(self.network.class_names, self.throughput, self.populations, strict=True)
        return "throughput " + ", ".join(f"{name} {x:.6g} /s at population {n}" for name, x, n in pairs)

    def __repr__(self) -> str:
        return f"{self._caption()}\n{text_table(self.to_rows())}"

    def _repr_html_(self) -> str:
        return html_table(self.to_rows(), caption=self._caption())


def class_sensitivity(network: Network, population: object) -> ClassSensitivity:
    """The derivatives, or a `ModelError` that says with numbers what does not fit."""
    counts = require_populations(network, population)
    assert isinstance(counts, tuple)  # the network has classes
    refuse_without_product_form(network, "sensitivity")
    for s in network.stations:
        if s.rates is not None or (s.servers != 1 and not s.is_delay):
            raise ModelError(
                f"sensitivity: station {s.name!r} has {s.servers} servers or rates; with classes only single-server "
                "queues and delays are differentiated"
            )
    if any(len(chain) > 1 for chain in network.chains):
        raise ModelError("sensitivity: customers switch classes; derivatives are of classes that nobody leaves")
    K, C = network.service_demand.shape
    points, P = math.prod(n + 1 for n in counts), C * (K + 1)
    size, updates = 8.0 * points * K * (P + 1), 1.0 * points * C * K * P
    if size > MEMORY or points > MOST_POINTS or updates > MOST_UPDATES:
        raise ModelError(
            f"sensitivity: {points:,} lattice points times {P} parameters need {size:.3g} bytes (limit {MEMORY:.3g}), "
            f"{updates:.3g} updates (limit {MOST_UPDATES:.3g}) and at most {MOST_POINTS:,} points; take fewer customers"
        )
    X, R, dX, dR = _recursion(network, counts, points, P)
    by_D, by_Z = slice(0, K * C), slice(K * C, P)
    return ClassSensitivity(
        network, counts, X, R.T, dX[:, by_D].reshape(C, K, C), dX[:, by_Z],
        dR[:, :, by_D].swapaxes(0, 1).reshape(K, C, K, C), dR[:, :, by_Z].swapaxes(0, 1),
    )  # fmt: skip


def _recursion(network: Network, counts: tuple[int, ...], points: int, P: int) -> tuple[np.ndarray, ...]:
    """X (C,), R (C, K) and their derivatives by the P parameters: demands (K, C), then think times."""
    D, Z, queues = network.service_demand.T, network.think_times, ~network.is_delay
    C, K = D.shape
    shape = tuple(n + 1 for n in counts)
    strides = np.array([math.prod(shape[c + 1 :]) for c in range(C)])
    own, think = np.zeros((C, K, P)), np.zeros((C, P))
    for c in range(C):
        own[c, np.arange(K), np.arange(K) * C + c] = 1.0
        think[c, K * C + c] = 1.0
    Q, dQ = np.zeros((points, K)), np.zeros((points, K, P))
    X, R, dX, dR = np.zeros(C), np.zeros((C, K)), np.zeros((C, P)), np.zeros((C, K, P))
    for at, n in enumerate(np.ndindex(shape)):
        if at == 0:
            continue
        here = np.array(n)
        busy = np.flatnonzero(here)
        before = at - strides[busy]
        met = 1.0 + Q[before] * queues  # arrival theorem
        r = D[busy] * met
        dr = D[busy][:, :, None] * dQ[before] * queues[:, None] + own[busy] * met[:, :, None]
        total = Z[busy] + r.sum(axis=1)
        x = here[busy] / total
        dx = -(x / total)[:, None] * (think[busy] + dr.sum(axis=1))
        Q[at] = x @ r  # Little's law
        dQ[at] = np.einsum("cp,ck->kp", dx, r) + np.einsum("c,ckp->kp", x, dr)
        if at == points - 1:
            X[busy], R[busy], dX[busy], dR[busy] = x, r, dx, dr
    return X, R, dX, dR
