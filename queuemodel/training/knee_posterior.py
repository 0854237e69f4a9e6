"""What measured throughputs leave open of an asynchronous job: a posterior on a grid, without randomness.

Jobs are of two families. Most have servers that stay as they are: a worker's undisturbed cycle R needs the busiest
server for D, and X(N) has a knee (`knee_throughput`). In others the servers grow with the workers: no knee, but every
doubling may cost something, X(N) = N / (R (1 + c g_q(N / n_1))) by the laws of `round_law` that do not grow with N.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..solvers import knee_throughput
from .bandwidth import LINK_EFFICIENCY
from .prior import KneePrior
from .round_law import COST_PRIOR, COSTS, round_time

#: Knee widths s: service times of coefficient of variation about 0.1, 0.3 and 0.5; rarely rounder knees, as exponential
#: times and several stations of nearly the same demand have them (assumed).
WIDTHS = np.array([0.15, 0.25, 0.40, 0.65, 1.0, 1.5])
WIDTH_WEIGHTS = np.array([1.0, 1.0, 1.0, 0.05, 0.03, 0.02])
#: Laws of what more workers cost where servers grow with them, equally likely; steeper ones are queueing, at a knee.
LAWS = np.array([0.0, 0.5, 1.0, 2.0, 6.0])
#: A doubling costs so much of a cycle at most (assumed); what costs more is queueing, or a mistake.
MOST = COSTS <= 0.5
#: How likely a measurement is wrong altogether, and by how much of a logarithm it then errs.
WRONG, WRONG_SPREAD = 0.02, 1.0
#: Degrees of freedom of servers' rates on links that nobody tells, and on links that are told (assumed).
FREEDOM, FREEDOM_ON_LINKS = 2.0, 4.0
#: Standard deviation of the logarithm of what a busy link carries over what it should (assumed).
LINK_SPREAD = 0.2
#: Draws of the posterior that a model keeps.
DRAWS = 2000


@dataclass(frozen=True, eq=False)
class Costs:
    """What more workers cost each draw where its servers grow with them; nothing for draws with a knee.

    Attributes
    ----------
    cost, law : ndarray, shape (B,)
    smallest : float
        The smallest measured group.
    """

    cost: np.ndarray
    law: np.ndarray
    smallest: float

    def slowdown(self, populations: np.ndarray) -> np.ndarray:
        """How much longer a cycle takes than in the smallest group, shape (n, B)."""
        return round_time(populations[:, None] / self.smallest, self.cost, self.law)


class KneePosterior:
    """The posterior of a job's curve given measured throughputs.

    Parameters
    ----------
    N, y : ndarray, shape (n,)
        Workers, and logarithms of steps per second.
    share : ndarray, shape (n,)
        Largest share of a server, see `largest_share`.
    parameter_bytes : int
        0 where not known. Where known, servers are taken to stay as they are, and about as fast as `prior` says.
    prior : KneePrior
    link : float, optional
        Nominal bytes per second of each server's link, where known: it carries no more.
    """

    def __init__(
        self,
        N: np.ndarray,
        y: np.ndarray,
        share: np.ndarray,
        parameter_bytes: int,
        prior: KneePrior,
        link: float | None = None,
    ) -> None:
        self.N, self.y, self.share = N, y, share
        self.smallest = float(N.min())
        self.sigmas = np.array(list(prior.errors))
        log_knee = np.linspace(0.0, math.log(max(200.0, 10.0 * N.max())), 200)
        width, knee = (grid.ravel() for grid in np.meshgrid(WIDTHS, log_knee, indexing="ij"))
        cost, law = (grid.ravel() for grid in np.meshgrid(COSTS[MOST], LAWS, indexing="ij"))
        none = np.zeros_like
        self.knees = len(knee)  # so many shapes have one; the others follow
        self.width = np.concatenate([width, np.full(len(cost), WIDTHS[0])])
        self.ratio = np.concatenate([np.exp(-knee), none(cost)])  # D / R, uniform
        self.cost, self.law = np.concatenate([none(knee), cost]), np.concatenate([none(knee), law])
        of_knees = np.outer(WIDTH_WEIGHTS, np.exp(-log_knee)).ravel()
        of_costs = np.repeat(COST_PRIOR[MOST], len(LAWS))
        growing = 0.0 if parameter_bytes else prior.growing
        shape_prior = [(1.0 - growing) * of_knees / of_knees.sum(), growing * of_costs / of_costs.sum()]
        with np.errstate(divide="ignore"):
            self._log_prior = np.log(np.concatenate(shape_prior))
            log_ratio = np.log(self.ratio)
        self._server = (log_ratio, parameter_bytes, prior, link)
        self.log_rate = self._rates()
        self.log_likelihood = self._log_likelihood(self.log_rate, np.arange(len(self.width)))
        log_weight = self.log_likelihood + self._log_priors(self.log_rate, np.arange(len(self.width)))
        log_weight += np.log(list(prior.errors.values()))[:, None, None]
        weight = np.exp(log_weight - log_weight.max())
        self.weight = weight / weight.sum()  # (sigmas, shapes, rates)

    def _rates(self) -> np.ndarray:
        """Rates 1/R (logarithms) where the weight is, found step by step on every fourth knee."""
        some = np.concatenate([np.arange(0, self.knees, 4), np.arange(self.knees, len(self.width))])
        lowest = float(np.min(self.y - np.log(self.N))) - 0.35  # X(1) <= X(N) <= N X(1)
        highest = float(np.max(self.y)) + 0.35
        for _ in range(3):
            log_rate, spacing = np.linspace(lowest, highest, 60, retstep=True)
            weight = (self._log_likelihood(log_rate, some) + self._log_priors(log_rate, some)).max(axis=(0, 1))
            likely = np.flatnonzero(weight > weight.max() - 14.0)
            lowest, highest = log_rate[likely[0]] - spacing, log_rate[likely[-1]] + spacing
        return np.linspace(lowest, highest, 140)

    def _log_priors(self, log_rate: np.ndarray, shapes: np.ndarray) -> np.ndarray:
        """Log prior of shapes and rates, shape (shapes, rates)."""
        log_ratio, parameter_bytes, prior, link = self._server
        table = np.broadcast_to(self._log_prior[shapes, None], (len(shapes), len(log_rate)))
        if not parameter_bytes:
            return table
        return table + log_served(log_rate - log_ratio[shapes, None] + math.log(parameter_bytes), prior, link)

    def _log_likelihood(self, log_rate: np.ndarray, shapes: np.ndarray) -> np.ndarray:
        """Of the points under each error, shape and rate, shape (sigmas, shapes, rates)."""
        sigmas = np.maximum(self.sigmas, log_rate[1] - log_rate[0])
        table = np.zeros((len(sigmas), len(shapes), len(log_rate)))
        for error in self._errors(log_rate, shapes):
            wrong = _wrong(error)
            for part, sigma in zip(table, sigmas, strict=True):
                part += np.log(_right(error, sigma) + wrong)
        return table

    def _errors(self, log_rate: np.ndarray, shapes: np.ndarray) -> Iterator[np.ndarray]:
        """For one measurement after the other: its logarithm less that of each shape and rate."""
        ratio, width = self.ratio[shapes], self.width[shapes]
        for n, log_x, largest in zip(self.N, self.y, self.share, strict=True):
            shape = np.log(knee_throughput(n, cycle=1.0, demand=largest * ratio, width=width))
            shape -= np.log(round_time(n / self.smallest, self.cost[shapes], self.law[shapes]))
            yield log_x - shape[:, None] - log_rate

    def log_evidence(self) -> np.ndarray:
        """Log likelihood of the points under each family (knee, growing servers) and error: what learning needs."""
        log_shape = np.logaddexp.reduce(self.log_likelihood, axis=2) + math.log(self.log_rate[1] - self.log_rate[0])
        log_shape += self._log_prior
        knees = slice(0, self.knees), slice(self.knees, None)
        return np.array([
            np.logaddexp.reduce(log_shape[:, of], axis=1) - np.logaddexp.reduce(self._log_prior[of]) for of in knees
        ])  # fmt: skip

    def draws(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, Costs]:
        """Undisturbed cycle, servers' demand, knee's width, each (DRAWS,), and costs; evenly over the posterior."""
        order = np.lexsort([self.cost, self.ratio])
        weight = self.weight.sum(axis=0)[order]
        keep = (np.arange(DRAWS) + 0.5) / DRAWS
        pick = np.searchsorted(np.cumsum(weight.ravel()), keep).clip(max=weight.size - 1)
        shape, rate = order[pick // weight.shape[1]], np.exp(self.log_rate[pick % weight.shape[1]])
        costs = Costs(self.cost[shape], self.law[shape], self.smallest)
        return 1.0 / rate, self.ratio[shape] / rate, self.width[shape], costs

    def against(self) -> tuple[np.ndarray, np.ndarray]:
        """How likely each measurement is wrong, and its mean difference from the fit, each (n,)."""
        wrong, misfits = [], []
        for error in self._errors(self.log_rate, np.arange(len(self.width))):
            chances = [1.0 / (1.0 + _right(error, sigma) / _wrong(error)) for sigma in self.sigmas]
            wrong.append(sum(float((w * p).sum()) for w, p in zip(self.weight, chances, strict=True)))
            misfits.append(float((self.weight * error).sum()))
        return np.array(wrong), np.array(misfits)


def log_served(log_rate: np.ndarray, prior: KneePrior, link: float | None) -> np.ndarray:
    """Log density, up to a constant, of the logarithm of a server's bytes per second at saturation.

    One source tells what servers do, and another one's may be far from it, on slow links above all: Student's t. A
    server that could do more does what its link carries.
    """
    off = (log_rate - math.log(prior.server_rate)) / prior.server_rate_spread
    if link is None:
        return -0.5 * (FREEDOM + 1.0) * np.log1p(off**2 / FREEDOM)
    from scipy.special import ndtr, stdtr

    most, nu = math.log(LINK_EFFICIENCY * link), FREEDOM_ON_LINKS
    factor = math.gamma((nu + 1.0) / 2.0) / (math.gamma(nu / 2.0) * math.sqrt(nu * math.pi) * prior.server_rate_spread)
    own = factor * (1.0 + off**2 / nu) ** (-0.5 * (nu + 1.0))
    over = (log_rate - most) / LINK_SPREAD
    at_link = np.exp(-0.5 * over**2) / (LINK_SPREAD * math.sqrt(2.0 * math.pi))
    faster = stdtr(nu, (math.log(prior.server_rate) - most) / prior.server_rate_spread)
    return np.log(np.maximum(ndtr(-over) * own + faster * at_link, 1e-300))


def _right(error: np.ndarray, sigma: float) -> np.ndarray:
    return (1.0 - WRONG) * _student(error, sigma)


def _wrong(error: np.ndarray) -> np.ndarray:
    return WRONG * _student(error, WRONG_SPREAD)


def _student(error: np.ndarray, scale: float) -> np.ndarray:
    """Density of Student's t of 4 degrees of freedom, up to a factor."""
    t = 1.0 + (error / (2.0 * scale)) ** 2
    return 1.0 / (scale * t * t * np.sqrt(t))
