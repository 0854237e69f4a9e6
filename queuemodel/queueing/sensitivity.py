"""Exact derivatives of throughputs: which component is worth speeding up, and by how much."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..base.errors import ModelError
from ..base.results import Result
from .chains import lowered_product_form
from .exact import solved_exactly
from .network import Network

#: A demand of nothing is taken for this part of the cycle.
NOTHING = 1e-10


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sensitivity(Result):
    """Derivatives of throughput at one population of K stations; with C classes, of each class's throughput.

    Attributes
    ----------
    populations : tuple of int
        Customers of each class, or of the whole network.
    throughput : float, or ndarray of shape (C,)
        Cycles per second.
    dX_dD : ndarray, shape (K,) or (C, K, C)
        By each service demand (at a station of a class), 1/s per second.
    dX_dZ : float, or ndarray of shape (C, C)
        By the think time (of a class).
    """

    network: Network
    populations: tuple[int, ...]
    throughput: Any
    dX_dD: np.ndarray
    dX_dZ: Any

    @property
    def elasticity(self) -> np.ndarray:
        """Percent of throughput won by one percent less demand, shaped like `dX_dD`."""
        X = np.reshape(self.throughput, (-1, 1, 1) if self.network.classes else ())
        return np.asarray(-self.dX_dD * self.network.service_demand / X)

    def to_rows(self) -> list[dict[str, Any]]:
        """One row per station: the elasticity says what is worth speeding up; with classes, one for each of them."""
        D, names = self.network.service_demand, self.network.names
        if not self.network.classes:
            return [
                {"station": name, "service_demand": float(d), "dX_dD": float(x), "elasticity": float(e)}
                for name, d, x, e in zip(names, D, self.dX_dD, self.elasticity, strict=True)
            ]
        classes = self.network.class_names
        return [
            {"station": station, "class": name, "service_demand": float(D[k, d])}
            | {f"dX[{other}]_dD": float(self.dX_dD[c, k, d]) for c, other in enumerate(classes)}
            for k, station in enumerate(names)
            for d, name in enumerate(classes)
        ]

    def caption(self) -> str:
        """Throughputs and populations, and the slope by the think time of a network without classes."""
        if not self.network.classes:
            at = f"at population {self.populations[0]}"
            return f"throughput {self.throughput:.6g} /s {at}, dX/dZ {self.dX_dZ:.4g}"
        pairs = zip(self.network.class_names, self.throughput, self.populations, strict=True)
        return "throughput " + ", ".join(f"{name} {x:.6g} /s at population {n}" for name, x, n in pairs)


def sensitivity(network: Network, *, population: Any = None) -> Sensitivity:
    """Derivatives of throughput by every demand and think time at a population, as of `solve`; exact.

    By d log G / d log D_k = Q_k (de Souza e Silva and Muntz, 1988), d X_c(N) / d D_kd = X_c(N) (Q_kd(N - 1_c) -
    Q_kd(N)) / D_kd; think time is the demand of a delay.

    Raises
    ------
    ModelError
        When the network has no product form, customers switch classes, or an exact solution would not fit.

    Examples
    --------
    >>> from queuemodel import Station
    >>> network = Network([Station("server", service_time=0.05)], think_time=1.0)
    >>> sensitivity(network, population=50).dX_dD.round(3)
    array([-400.])
    """
    low = lowered_product_form(network, population, "sensitivity")
    if any(len(chain) > 1 for chain in network.chains):
        raise ModelError("sensitivity: customers switch classes; derivatives are of classes that nobody leaves")
    low = replace(low, D=np.where(low.D > 0, low.D, NOTHING * (low.Z + low.D.sum(axis=0))))
    now, C = solved_exactly(low), len(low.N)
    X, Q = now.class_throughput, now.class_queue_length
    dX_dD, dX_dZ = np.zeros((C, *Q.shape)), np.zeros((C, C))
    for c in np.flatnonzero(low.N):
        fewer, less_X, less_Q = low.N - (np.arange(C) == c), np.zeros(C), np.zeros(Q.shape)
        if fewer.any():
            before = solved_exactly(replace(low, N=fewer))
            less_X, less_Q = before.class_throughput, before.class_queue_length
        dX_dD[c], dX_dZ[c] = X[c] * (less_Q - Q) / low.D, X[c] * (less_X - X)
    if network.classes:
        return Sensitivity(network, low.populations, X, dX_dD, dX_dZ)
    return Sensitivity(network, (int(low.N[0]),), float(X[0]), dX_dD[0, :, 0], float(dX_dZ[0, 0]))
