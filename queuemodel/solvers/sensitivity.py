"""Exact derivatives of throughputs: which component is worth speeding up, and by how much."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import ModelError
from ..network import Network
from ..results import Result
from .chains import chains_of, refuse_without_product_form
from .convolution import Constants
from .exact import ExactMVA
from .solve import require_populations

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
    dX_drate : dict from station name to ndarray
        Without classes, by each rate, ``rates[n-1]`` with n customers, of load-dependent and multi-server stations (up
        to the last that changes; the last entry is of all from there on).
    """

    network: Network
    populations: tuple[int, ...]
    throughput: Any
    dX_dD: np.ndarray
    dX_dZ: Any
    dX_drate: dict[str, np.ndarray]

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
    """Derivatives of throughput by every demand, think time and rate at a population, as of `solve`; exact.

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
    counts = require_populations(network, population)
    chains = chains_of(network, counts)
    refuse_without_product_form(chains, "sensitivity")
    if any(len(chain) > 1 for chain in network.chains):
        raise ModelError("sensitivity: customers switch classes; derivatives are of classes that nobody leaves")
    cycle = chains.Z + chains.D.sum(axis=0)
    chains = replace(chains, D=np.where(chains.D > 0, chains.D, NOTHING * cycle))
    if isinstance(counts, int):
        work = Constants(chains.D[:, 0], chains.speeds(counts), chains.delay, float(chains.Z[0]), counts)
        two = np.append(0.0, work.X)[-2:]  # with one customer fewer, and with all
        Q = two[:, None] * np.vstack([np.zeros(len(work.D)), work.residence_times()])[-2:]
        rates = {network.names[k]: _rate_slopes(work, k, mu) for k, mu in work.dependent.items()}
        less, x = two.tolist()
        return Sensitivity(network, (counts,), x, x * (Q[0] - Q[1]) / work.D, x * (less - x), rates)
    now, C = ExactMVA().solved(chains), len(counts)
    X, dX_dD, dX_dZ = now.class_throughput, np.zeros((C, *chains.D.shape)), np.zeros((C, C))
    for c in np.flatnonzero(chains.N):
        fewer = chains.N - (np.arange(C) == c)
        lengths, throughputs = np.zeros(chains.D.shape), np.zeros(C)
        if fewer.any():
            before = ExactMVA().solved(replace(chains, N=fewer, populations=tuple(fewer.tolist())))
            lengths, throughputs = before.class_queue_length, before.class_throughput
        dX_dD[c] = X[c] * (lengths - now.class_queue_length) / chains.D
        dX_dZ[c] = X[c] * (throughputs - X)
    return Sensitivity(network, counts, X, dX_dD, dX_dZ, {})


def _rate_slopes(work: Constants, k: int, mu: np.ndarray) -> np.ndarray:
    """dX/dmu(n): d log G / d log mu(n) = -P(n_k >= n), so d log X is the difference of two such tails."""
    now = work.marginal(k)[::-1].cumsum()[::-1]
    before = np.zeros(work.population + 1)
    if work.population > 1:
        fewer = Constants(work.D, work.speeds, work.delay, work.Z, work.population - 1)
        before[:-1] = fewer.marginal(k)[::-1].cumsum()[::-1]
    change = now[1:] - before[1:]
    last = len(mu) - 1
    return float(work.X[-1]) * np.append(change[:last], change[last:].sum()) / mu
