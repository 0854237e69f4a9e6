"""How long a step takes on n workers: computation, reduction in a node and between nodes, or servers.

    T = f c + ((1 - f) c ⊕ m),    x ⊕ y = (x^γ + y^γ)^(1/γ)

c is computation, f its share before the first gradient, and m hides behind the rest for as long as that lasts (a smooth
maximum, as in A. Qiao et al., "Pollux", OSDI 2021, who take f = 0). Synchronized workers, n of them on k nodes and g on
the fullest, wait for the slowest, c = C (1 + s E_n), E_n being the mean of the largest of n standard normal numbers and
C the computation of one. Their m is an all-reduce,

    m = L 2 (g - 1)/g                                       on one node (a ring: Patarasuk and Yuan, 2009),
    m = W g^a G_p(g k)/G_p(2 g) + A G_q(k/2)/G_q(2)         on more,

with the growth law G_p(n) = (n^p - 1)/p (Box and Cox, 1964): linear for p = 1, log n for 0, a ring's bandwidth 1 - 1/n
for -1, flat far below. W is in proportion to bytes, A is latencies and stragglers, and neither tells of the other: what
costs much on two nodes is limited by bandwidth, and grows little. Asynchronous workers share servers: f = 0, and
m = D n^p is the busiest server's demand times the workers, or less where servers grow with the workers (p < 1); T then
lies between the asymptotes of a closed network. All times are relative to a step of the smallest measured group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from ...profile.measurements import Measurement
from ..closed_network.demands import largest_share
from ..closed_network.rules import order_statistic

Values = Mapping[str, np.ndarray]  # of each parameter, shape (B, 1)


@dataclass(frozen=True, eq=False)
class Sizes:
    """Groups of workers: what a step's time depends on, each array of shape (n,).

    Attributes
    ----------
    workers, nodes, fullest_node : ndarray
        Workers of all nodes, nodes, and workers on the node that has most of them.
    batch_size : ndarray
        Examples of one worker and step; 1 where it is not known.
    server_share : ndarray
        Share of the parameters that the busiest server holds.
    """

    workers: np.ndarray
    nodes: np.ndarray
    fullest_node: np.ndarray
    batch_size: np.ndarray
    server_share: np.ndarray
    placements: np.ndarray = field(init=False)  # (m, 3): workers, nodes and fullest node, each combination once
    placement: np.ndarray = field(init=False)  # (n,): which of them

    def __post_init__(self) -> None:
        placed = np.column_stack([self.workers, self.nodes, self.fullest_node])
        placements, placement = np.unique(placed, axis=0, return_inverse=True)
        object.__setattr__(self, "placements", placements)
        object.__setattr__(self, "placement", placement.ravel())

    @classmethod
    def of(cls, measured: Iterable[Measurement]) -> Sizes:
        """Those of measurements."""
        rows = [
            (m.workers, m.nodes or m.workers, m.fullest_node, m.batch_size or 1, largest_share(m.parameter_servers))
            for m in measured
        ]
        return cls(*np.array(rows, dtype=float).T)

    def on(self, group: Measurement) -> Sizes:
        """The same batches on one group."""
        alike = Sizes.of([group] * len(self.workers))
        return Sizes(alike.workers, alike.nodes, alike.fullest_node, self.batch_size, alike.server_share)


def growth(n: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """G_p(n) = (n^p - 1)/p."""
    p = np.where(np.abs(exponent) < 1e-6, 1e-6, exponent)
    return np.asarray(np.expm1(p * np.log(n)) / p)


def synchronous(v: Values, x: Sizes, compute: np.ndarray) -> np.ndarray:
    """Relative step time (B, n) of synchronized workers, from the relative computation (1 or B, n) of one."""
    n, k, g = x.placements.T
    one, k = k < 2, np.maximum(k, 2.0)
    W = v["between nodes"] * g ** v["link sharing"] * growth(g * k, v["growth"]) / growth(2.0 * g, v["growth"])
    A = v["latency"] * growth(k / 2.0, v["latency growth"]) / growth(np.array(2.0), v["latency growth"])
    m = np.where(one, v["inside a node"] * 2.0 * (g - 1.0) / g, W + A)[:, x.placement]
    c = compute * (1.0 + v["straggling"] * _largest(n))[:, x.placement]
    hidden = (1.0 - v["forward share"]) * c
    return np.asarray(v["forward share"] * c + np.sqrt(np.sqrt((hidden * hidden) ** 2 + (m * m) ** 2)))  # γ = 4


def asynchronous(v: Values, x: Sizes, compute: np.ndarray) -> np.ndarray:
    """Relative step time (B, n) of asynchronous workers."""
    load = np.log(server_load(v, x)) - np.log(compute)
    sharpness = np.maximum(v["sharpness"], 1.0)  # below, T would exceed its asymptote c + m
    return np.asarray(compute * np.exp(np.logaddexp(0.0, sharpness * load) / sharpness))


def server_load(v: Values, x: Sizes) -> np.ndarray:
    """Relative time (B, n) that the busiest server works for one step of every worker."""
    return np.asarray(v["demand"] * x.server_share * x.workers ** v["growth"])


def _largest(n: np.ndarray) -> np.ndarray:
    return np.array([_largest_of(int(size)) for size in n])


@cache
def _largest_of(n: int) -> float:
    from scipy.special import ndtri

    return order_statistic(lambda p: -ndtri(p), n, n)
