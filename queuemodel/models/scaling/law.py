"""The law of step times of n workers: computation, transfers in a node and between nodes, or parameter servers.

    T = (f c ⊕ G) + ((1 - f) c ⊕ R),    x ⊕ y = (x^γ + y^γ)^(1/γ)

c is computation and f its share before the first gradient. G is sent meanwhile, and R during the rest; each hides
behind its part of the computation for as long as that lasts (a smooth maximum, as in A. Qiao et al., "Pollux", OSDI
2021). Synchronized workers, n of them on k nodes and g on the fullest, wait for the slowest, c = C (1 + s E_n), E_n
being the mean of the largest of n standard normal numbers and C the computation of one. With all-reduce, G = 0 and

    R = L 2 (g - 1)/g                                       on one node (a ring: Patarasuk and Yuan, 2009),
    R = W g^a G_p(g k)/G_p(2 g) + A G_q(k/2)/G_q(2)         on more, and at least that of one node,

with the growth law G_p(n) = (n^p - 1)/p (Box and Cox, 1964): linear for p = 1, log n for 0, a ring's bandwidth 1 - 1/n
for -1, flat far below. W is in proportion to bytes, A is latencies and stragglers, and neither tells of the other: what
costs much on two nodes is limited by bandwidth, and grows little. Where workers hold shards of the parameters (S.
Rajbhandari et al., "ZeRO", SC 2020; Y. Zhao et al., "PyTorch FSDP", VLDB 2023), an all-gather of them takes

    S(n, k) = V (1 - 1/k) + l (n - 1)    on k nodes,    L (g - 1)/g + l r (g - 1)    on one, and at least that on more,

V being their bytes over the bandwidth of a node, l the latency of a message times the layers, and r that in a node over
that between nodes. A reduce-scatter takes as long. Fully sharded: G = S and R = 2 S; with gathers once (zero-1): G = S
and R = S; shards in each node (hsdp): those of one node, and an all-reduce between nodes, R + 2 S(k, k). Asynchronous
workers share servers: m = D n^p, the busiest server's demand times the workers, or less where servers grow with the
workers (p < 1), hides behind all of c; T then lies between the asymptotes of a closed network. All times are relative
to a step of the smallest measured group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np

from ...base.files import constants
from ...profile.measurements import Measurement
from ..closed_network.demands import largest_share
from ..closed_network.rules import order_statistic

Values = Mapping[str, np.ndarray]  # Of each parameter, shape (B, 1)
Sent = np.ndarray | float  # Relative time (B, m) of transfers, at placements
INSIDE: float = constants(__package__, "prior.toml")["numbers"]["inside"]  #: r: latency in a node over that between.


@dataclass(frozen=True, eq=False)
class Sizes:
    """Groups of workers, as far as a step's time depends on them, each array of shape (n,)."""

    workers: np.ndarray  # Of all nodes
    nodes: np.ndarray
    fullest_node: np.ndarray  # Workers on the node that has most of them
    batch_size: np.ndarray  # Examples of one worker and step; 1 where it is not known
    server_share: np.ndarray  # Share of the parameters that the busiest server holds
    placements: np.ndarray = field(init=False)  # (m, 3): workers, nodes and fullest node, each combination once
    placement: np.ndarray = field(init=False)  # (n,): index of a group's placement

    def __post_init__(self) -> None:
        placed = np.column_stack([self.workers, self.nodes, self.fullest_node])
        placements, placement = np.unique(placed, axis=0, return_inverse=True)
        object.__setattr__(self, "placements", placements)
        object.__setattr__(self, "placement", placement.ravel())

    @classmethod
    def of(cls, measured: Iterable[Measurement]) -> Sizes:
        """The groups of measurements."""
        rows = [(*size_of(m)[:4], largest_share(m.parameter_servers)) for m in measured]
        return cls(*np.array(rows, dtype=float).T)

    def on(self, group: Measurement) -> Sizes:
        """The same batches on one group."""
        groups = Sizes.of([group] * len(self.workers))
        return Sizes(groups.workers, groups.nodes, groups.fullest_node, self.batch_size, groups.server_share)


def size_of(m: Measurement) -> tuple[int, ...]:
    """Workers, nodes, workers of the fullest node, batch size and servers."""
    return m.workers, m.nodes or m.workers, m.fullest_node, m.batch_size or 1, m.parameter_servers


def growth(n: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """G_p(n) = (n^p - 1)/p."""
    p = np.where(np.abs(exponent) < 1e-6, 1e-6, exponent)  # log n at p = 0, within 1e-6
    return np.asarray(np.expm1(p * np.log(n)) / p)


def all_reduce(v: Values, n: np.ndarray, k: np.ndarray, g: np.ndarray) -> tuple[Sent, Sent]:
    """Relative time (B, m) of transfers before the first gradient and after, of gradients reduced."""
    one_node, k = k < 2, np.maximum(k, 2.0)
    # W g^a G_p(g k) / G_p(2 g)
    W = v["between nodes"] * g ** v["link sharing"] * growth(g * k, v["growth"]) / growth(2.0 * g, v["growth"])
    # A G_q(k / 2) / G_q(2)
    A = v["latency"] * growth(k / 2.0, v["latency growth"]) / growth(np.array(2.0), v["latency growth"])
    inside = v["inside a node"] * 2.0 * (g - 1.0) / g  # a ring's 2 (g - 1) / g
    return 0.0, np.where(one_node, inside, np.maximum(inside, W + A))  # G = 0; a ring over nodes crosses them, too


def sharded(v: Values, n: np.ndarray, k: np.ndarray, g: np.ndarray, *, reductions: float = 2.0) -> tuple[Sent, Sent]:
    """The same of parameters gathered, with ``reductions`` gathers and reduce-scatters after the first gradient."""
    one_node = v["inside a node"] * (g - 1.0) / g + v["latency"] * INSIDE * (g - 1.0)  # L (g - 1)/g + l r (g - 1)
    S = np.where(k < 2, one_node, np.maximum(one_node, _between(v, n, k)))  # on more nodes no faster than on one
    return S, reductions * S


def hybrid(v: Values, n: np.ndarray, k: np.ndarray, g: np.ndarray) -> tuple[Sent, Sent]:
    """The same of shards in each node, whose gradients are reduced between nodes."""
    G, R = sharded(v, g, np.ones_like(k), g)
    return G, R + 2.0 * _between(v, k, k)  # an all-reduce: reduce-scatter and all-gather


def _between(v: Values, n: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Gather of all parameters by n ranks on k nodes."""
    return np.asarray(v["gather"] * (1.0 - 1.0 / k) + v["latency"] * (n - 1.0))  # V (1 - 1/k) + l (n - 1)


#: Transfers of sharded workers by strategy; others reduce gradients.
TRANSFERS: dict[str, Callable[..., tuple[Sent, Sent]]] = {
    "fsdp": sharded, "hsdp": hybrid, "zero-1": partial(sharded, reductions=1.0),
}  # fmt: skip


def synchronous(v: Values, x: Sizes, compute: np.ndarray, strategy: str = "all-reduce") -> np.ndarray:
    """Relative step time (B, n) of synchronized workers, from the relative computation (1 or B, n) of one."""
    return np.asarray(sum(hiding(c, m) for c, m in passes(v, x, compute, strategy)))


def passes(v: Values, x: Sizes, compute: np.ndarray, strategy: str) -> list[tuple[np.ndarray, Sent]]:
    """Computation and transfers (B, n), before the first gradient and after."""
    n, k, g = x.placements.T
    E = np.array([_max_normal(int(size)) for size in n])
    c = compute * (1.0 + v["straggling"] * E)[:, x.placement]  # C (1 + s E_n): the slowest of n
    sent = TRANSFERS.get(strategy, all_reduce)(v, n, k, g)
    shares = v["forward share"], 1.0 - v["forward share"]
    return [(f * c, m[:, x.placement] if isinstance(m, np.ndarray) else m) for f, m in zip(shares, sent, strict=True)]


def hiding(x: np.ndarray, y: Sent) -> np.ndarray:
    """x ⊕ y with γ = 4: 19 % more than each where they are equal."""
    return np.asarray(np.sqrt(np.sqrt((x * x) ** 2 + (y * y) ** 2)))  # two roots are faster than a power


def asynchronous(v: Values, x: Sizes, compute: np.ndarray) -> np.ndarray:
    """Relative step time (B, n) of asynchronous workers."""
    load = np.log(server_load(v, x)) - np.log(compute)
    sharpness = np.maximum(v["sharpness"], 1.0)  # below, T would exceed its asymptote c + m
    # c (1 + (m / c)^γ)^(1/γ) = c ⊕ m, by logarithms: (m / c)^γ overflows
    return np.asarray(compute * np.exp(np.logaddexp(0.0, sharpness * load) / sharpness))


def server_load(v: Values, x: Sizes) -> np.ndarray:
    """Relative time (B, n) that the busiest server works for one step of every worker."""
    return np.asarray(v["demand"] * x.server_share * x.workers ** v["growth"])  # D n^p


@cache
def _max_normal(n: int) -> float:
    """E_n, the mean of the largest of n standard normal numbers."""
    from scipy.special import ndtri

    return order_statistic(lambda p: -ndtri(p), n, n)
