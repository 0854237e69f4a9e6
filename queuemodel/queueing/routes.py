"""Where customers go next, for the solvers that follow them one by one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .network import Network


@dataclass(frozen=True, slots=True, eq=False)
class Routes:
    """Moves between (class, place), where place K is outside all stations, for thinking.

    Places where a class spends no time, or never comes, are left out of P: rows and columns of zeros.
    """

    network: Network
    P: np.ndarray  # (C, K+1, C, K+1): probabilities
    visits: np.ndarray  # (K+1, C): per cycle, 1 of which (per chain) is to think
    service_times: np.ndarray  # (K+1, C)

    @property
    def stay(self) -> np.ndarray:
        """Where each class spends time, shape (K+1, C)."""
        return np.asarray(self.P.sum(axis=(2, 3)).T > 0)

    def cycles(self, departures: np.ndarray) -> np.ndarray:
        """Cycles of each class's chain from departures (..., C)."""
        visits = (self.visits * self.stay).sum(axis=0)
        cycles = np.zeros(departures.shape)
        for chain in map(list, self.network.chains):
            cycles[..., chain] = departures[..., chain].sum(axis=-1, keepdims=True) / visits[chain].sum()
        return cycles


def routes_of(network: Network) -> Routes:
    """The network's routing, or one that its visit ratios imply.

    Without a routing, a class that visits stations once each goes through them in order, then thinks; one with other
    visit ratios picks every next station at random in proportion to them (what product-form networks cannot tell from
    any other routing with the same visit ratios).
    """
    K, C = len(network.stations), max(1, len(network.classes))
    P = np.zeros((C, K + 1, C, K + 1))
    V = network.class_visit_ratios
    visits, times = np.zeros((K + 1, C)), np.zeros((K + 1, C))
    visits[:K] = V
    times[:K] = network.class_service_times
    times[K] = network.think_times
    if network.routing is None:
        visits[K] = 1.0
        for c in range(C):
            P[c, :, c, :] = _implied(V[:, c])
    else:
        at = network.reference_index
        P[:, :K, :, :K] = network.transitions
        for c in range(C):  # customers think on their way to the reference station
            P[:, :, c, K] += P[:, :, c, at]
            P[:, :, c, at] = 0.0
            P[c, K, c, at] = 1.0
        visits[K] = V[at]
    flat = P.reshape(C * (K + 1), C * (K + 1))
    for c in range(C):
        for k in range(K + 1):
            if times[k, c] == 0 or visits[k, c] == 0:
                _skip(flat, c * (K + 1) + k)
    return Routes(network, P, visits, times)


def _implied(V: np.ndarray) -> np.ndarray:
    K = len(V)
    P = np.zeros((K + 1, K + 1))
    stops = [*np.flatnonzero(V > 0).tolist(), K]
    if all(V[k] == 1.0 for k in stops[:-1]):
        P[stops, [*stops[1:], stops[0]]] = 1.0
    else:
        P[np.ix_(stops, stops)] = np.append(V, 1.0)[stops] / (V.sum() + 1.0)
    return P


def _skip(flat: np.ndarray, s: int) -> None:
    """Leave out a state where nobody stays: who would come goes on at once, and nobody goes on from there."""
    stay = flat[s, s]
    if stay < 1:
        flat += np.outer(flat[:, s], flat[s] / (1 - stay))
    flat[:, s] = flat[s] = 0.0
