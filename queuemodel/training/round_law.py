"""Synchronous rounds from a few measured throughputs: what the first doubling costs, and by which law that goes on.

A round of n nodes takes T(n), so that the group's throughput is X(n) = n / T(n). From the smallest measured group n_1,

    T(n) = T(n_1) (1 + c g_q(n / n_1)),    g_q(r) = (1 - r**-q) / (1 - 2**-q),

c being the relative cost of the first doubling. One exponent covers the laws that collectives and servers have: q = -1
grows with n (one server for all, gathered sparse gradients, Amdahl's law), q = 0 with log n (trees, latency), q = 1
with 1 - 1/n (bandwidth of a ring), a large q not at all after the first doubling (the network comes in at the second
node). Where each of n nodes has m ranks and all of them are in the ring, what ends grows by g_q(m n), which is nothing
on one node:

    g(r) = (1 - (m r)**-q) / (1 - (2 m)**-q)    for r > 1 and q >= `ENDING`, r being counted from one node.

What a law misses is a random walk in log n, so that the last measurements count most. Beyond the
first doubling servers may change, at most once among the measured groups and once beyond, which moves all larger ones
by a normal amount. All of it is known only up to
distributions over jobs (`prior`), which measurements narrow: the posterior is summed over a grid, without randomness.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .prior import ENDING, RoundPrior

#: Costs of the first doubling; from a tenth to five they change a round's time by 6 % from one to the next.
COSTS = np.concatenate(
    [[0.0], np.geomspace(0.01, 0.09, 6), np.expm1(np.arange(np.log(1.11), np.log(6.0), 0.06)), np.geomspace(6, 1e3, 24)]
)
#: Their prior: a tenth of jobs pay nothing, else small ones are likelier, of density c**-1.5 (assumed).
_DENSITY = COSTS[1:] ** -1.5 * np.gradient(COSTS[1:])
COST_PRIOR = np.concatenate([[0.1], 0.9 * _DENSITY / _DENSITY.sum()])
#: And where every job pays: density 1/c, as nothing says of which order (assumed).
_ORDERS = np.gradient(np.log(COSTS[1:]))
PAID_PRIOR = np.concatenate([[0.0], _ORDERS / _ORDERS.sum()])
#: Relative error of a measured throughput; that of a mistaken one, and how often a point is one (all assumed).
ERROR = 0.03
MISTAKE = 0.25
MISTAKES = 0.02
#: By how much of a logarithm a change of the servers moves throughput (assumed).
CHANGE = 0.5
#: With more points than this none is suspected: there is no need for a prior then.
MOST_SUSPECTED = 40
#: Normal deviates of equal weight that stand for a Gaussian in quantiles.
LEVELS = 31
#: Shapes less likely than this against the likeliest are left out of forecasts.
NEGLIGIBLE = 1e-3


def growth(ratio: np.ndarray | float, law: np.ndarray | float, ranks: int = 1) -> np.ndarray:
    """g(r) of the module's text, from one node of so many ranks: 0 at 1, 1 at 2; broadcasts."""
    q = np.where(np.abs(law) < 1e-6, 1e-6, law)
    m = np.where(q >= ENDING, ranks, 1)
    g = -np.expm1(-q * np.log(m * ratio)) / -np.expm1(-q * np.log(2.0 * m))
    return np.where((m > 1) & (np.asarray(ratio) <= 1), 0.0, g)


def round_time(
    ratio: np.ndarray | float, cost: np.ndarray | float, law: np.ndarray | float, ranks: int = 1
) -> np.ndarray:
    """T(r n_1) / T(n_1); a smaller group saves at most what the power law through a doubling saves."""
    r = np.asarray(ratio, dtype=float)
    floor = np.where(r < 1, r ** np.log2(1.0 + cost), 0.0)
    return np.maximum(1.0 + cost * growth(r, law, ranks), floor)


def cost_prior(prior: RoundPrior) -> np.ndarray:
    """Prior of the costs under each law, shape (costs, laws): what costs much at once is bandwidth, which ends."""
    laws = np.array(list(prior.laws))
    rate = np.where(laws < ENDING, 1.0 / prior.growing_cost, 0.0) if prior.growing_cost else np.zeros(len(laws))
    shares = PAID_PRIOR if prior.paid else COST_PRIOR
    table = shares[:, None] * np.exp(-np.minimum(COSTS[:, None] * rate, 500.0))
    return table / table.sum(axis=0)


@dataclass(frozen=True, eq=False)
class Component:
    """All shapes of the grid under one drift, with at most one point taken for mistaken, or one change of the servers.

    Attributes
    ----------
    log_weight : ndarray, shape (costs, laws)
        Log likelihood of the points and log prior of everything but the law and the drift.
    drift : float
    mistaken : int or None
    changed : float or None
        The measured group after which the servers changed.
    """

    log_weight: np.ndarray
    drift: float
    mistaken: int | None
    changed: float | None


class Rounds:
    """The posterior of a job's curve given measured throughputs.

    Parameters
    ----------
    nodes : ndarray, shape (n,)
        Sizes of the group.
    log_throughput : ndarray, shape (n,)
    prior : RoundPrior
    ranks : int
        Those of a ring on the smallest group, where that is one node; else 1.
    """

    def __init__(self, nodes: np.ndarray, log_throughput: np.ndarray, prior: RoundPrior, ranks: int = 1) -> None:
        self.prior, self.ranks = prior, ranks
        self.nodes, self.y = np.asarray(nodes, dtype=float), np.asarray(log_throughput, dtype=float)
        self.laws = np.array(list(prior.laws))
        self.error = self.y - self._shape(self.nodes)
        known = [(None, None), *((i, None) for i in self._suspects()), *((None, size) for size in self._changes())]
        self.components = [self._component(drift, *what) for drift in prior.drifts for what in known]

    def _suspects(self) -> range:
        n = len(self.nodes)
        return range(n if 2 < n <= MOST_SUSPECTED else 0)

    def _changes(self) -> list[float]:
        """Measured groups after which the servers may have changed; after the smallest, that is a cost like others."""
        return np.unique(self.nodes)[1:-1].tolist() if self.prior.changes and len(self.nodes) <= MOST_SUSPECTED else []

    def _shape(self, nodes: np.ndarray) -> np.ndarray:
        """Log throughput (costs, laws, n) of every shape but for its level."""
        ratio = nodes / self.nodes.min()
        return np.log(nodes) - np.log(round_time(ratio, COSTS[:, None, None], self.laws[:, None], self.ranks))

    def _walk(self, a: np.ndarray, b: np.ndarray, drift: float) -> np.ndarray:
        """Covariance of the walk in log2 of the group's size, which starts at the smallest measured group."""
        u, v = (np.log2(nodes / self.nodes.min()) for nodes in (a, b))
        same_side = np.equal.outer(u > 0, v > 0)
        return np.where(same_side, drift**2 * np.minimum.outer(abs(u), abs(v)), 0.0)

    def _moved(self, a: np.ndarray, b: np.ndarray, changed: float | None) -> np.ndarray:
        """Covariance of what the servers' change does."""
        return CHANGE**2 * np.outer(a > changed, b > changed) if changed is not None else np.zeros((len(a), len(b)))

    def _log_change(self, changed: float | None) -> float:
        """Log probability of that change among the measured groups, or of none."""
        log_stay = np.log1p(-self.prior.changes)
        none = float(log_stay * np.log2(self.nodes.max() / self.nodes.min()))
        if changed is None:
            return none
        stay = log_stay * np.log2(self.nodes[self.nodes > changed].min() / changed)
        return none - float(stay) + float(np.log(-np.expm1(stay)))

    def _covariance(self, drift: float, mistaken: int | None, changed: float | None) -> np.ndarray:
        noise = np.full(len(self.nodes), ERROR**2)
        if mistaken is not None:
            noise[mistaken] += MISTAKE**2
        return self._walk(self.nodes, self.nodes, drift) + self._moved(self.nodes, self.nodes, changed) + np.diag(noise)

    def _component(self, drift: float, mistaken: int | None, changed: float | None) -> Component:
        precision = np.linalg.inv(self._covariance(drift, mistaken, changed))
        total = precision.sum(axis=0)
        centred = precision - np.outer(total, total) / total.sum()  # the level, of flat prior, integrated out
        log_weight = -0.5 * ((self.error @ centred) * self.error).sum(axis=-1)
        log_weight += 0.5 * (np.linalg.slogdet(precision)[1] - np.log(total.sum()))
        log_weight += np.log(MISTAKES if mistaken is not None else 1.0 - MISTAKES * len(self._suspects()))
        log_weight += self._log_change(changed) + np.log(np.maximum(cost_prior(self.prior), 1e-300))
        return Component(log_weight, drift, mistaken, changed)

    def log_evidence(self) -> np.ndarray:
        """Log likelihood of the points under each law and drift, shape (laws, drifts): what learning a prior needs."""
        drifts = list(self.prior.drifts)
        table = np.full((len(self.laws), len(drifts)), -np.inf)
        for one in self.components:
            k = drifts.index(one.drift)
            table[:, k] = np.logaddexp(table[:, k], np.logaddexp.reduce(one.log_weight, axis=0))
        return table

    def weights(self) -> np.ndarray:
        """Posterior probabilities, shape (components, costs, laws)."""
        log_law = np.log(list(self.prior.laws.values()))
        log_weight = np.array(
            [one.log_weight + log_law + np.log(self.prior.drifts[one.drift]) for one in self.components]
        )
        weight = np.exp(log_weight - log_weight.max())
        return weight / weight.sum()

    def mistaken(self) -> int | None:
        """The point that is more likely mistaken than not."""
        chance = np.zeros(len(self.nodes))
        for one, weight in zip(self.components, self.weights(), strict=True):
            if one.mistaken is not None:
                chance[one.mistaken] += weight.sum()
        return int(chance.argmax()) if chance.max() > 0.5 else None

    def forecast(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log throughput (n, B) that would be measured at ``nodes`` (n,), and the probability (n, B) of each."""
        from scipy.special import ndtri

        weights = self.weights()
        shape = self._shape(nodes)
        levels = ndtri((np.arange(LEVELS) + 0.5) / LEVELS)
        beyond = np.log2(np.maximum(nodes / self.nodes.max(), 1.0))
        stays = (1.0 - self.prior.changes) ** beyond
        ahead = [(stays, 0.0), (1.0 - stays, CHANGE**2)] if self.prior.changes else [(stays, 0.0)]
        columns, chances = [], []
        for one, weight in zip(self.components, weights, strict=True):
            kept = weight > NEGLIGIBLE * weights.max()
            if not kept.any():
                continue
            precision = np.linalg.inv(self._covariance(one.drift, one.mistaken, one.changed))
            total = precision.sum(axis=0)
            error = self.error[kept]
            level = error @ total / total.sum()
            across = self._walk(nodes, self.nodes, one.drift) + self._moved(nodes, self.nodes, one.changed)
            gain = across @ precision
            mean = shape[kept] + level[:, None] + (error - level[:, None]) @ gain.T
            left = 1.0 - gain.sum(axis=1)
            own = np.diag(self._walk(nodes, nodes, one.drift) + self._moved(nodes, nodes, one.changed))
            variance = (own - (gain * across).sum(axis=1)).clip(min=0.0) + left**2 / total.sum() + ERROR**2
            for likely, more in ahead:
                spread = np.sqrt(variance + more)
                columns.append((mean.T[..., None] + spread[:, None, None] * levels).reshape(len(nodes), -1))
                chances.append(np.outer(likely, np.repeat(weight[kept], LEVELS) / LEVELS))
        chance = np.concatenate(chances, axis=1)
        return np.concatenate(columns, axis=1), chance / chance.sum(axis=1, keepdims=True)
