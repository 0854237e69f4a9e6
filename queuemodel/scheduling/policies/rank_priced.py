"""heSRPT's prices on any curve: a policy of this package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...checks import require_share
from ...errors import ModelError
from ..view import ActiveJobs
from .base import Policy
from .increments import greedy, speed_increments


def rank_prices(jobs: int, exponent: float) -> np.ndarray:
    """Price of a unit of work of the largest, second largest, ... smallest job, shape (jobs,).

    In heSRPT (Berg, Vesilo and Harchol-Balter, 2020) jobs of sizes x_1 >= x_2 >= ... at time 0 with speedup k^p have
    the least total response time sum_k x_k (k^q - (k-1)^q)^(1/q) with q = 1 / (1 - p), in units of the whole cluster's
    speed: the factors are what one more unit of work of a job costs all jobs together.
    """
    k, q = np.arange(1.0, jobs + 1), 1 / (1 - exponent)
    price = k.copy()
    # k (1 - (1 - 1/k)^q)^(1/q): the powers themselves would overflow near p = 1.
    price[1:] *= (-np.expm1(q * np.log1p(-1 / k[1:]))) ** (1 / q)
    return price


@dataclass(frozen=True)
class RankPriced(Policy):
    """Node by node to the job where it is worth most: speed gained, times the price of that job's work.

    The prices are heSRPT's, which depend only on the order of the jobs by size (time left on the least nodes); the
    gains are those of each job's own predicted curve, whatever its form. With one power law for all it is heSRPT in
    whole nodes; with arrivals and other curves it is a heuristic.

    Parameters
    ----------
    exponent : float, default 0.5
        Speedup exponent p of the prices, 0 (all the same: fastest total progress) to below 1 (the smallest first).
    floor : float, default 0
        Nodes that would lower the efficiency X(n) / (n X(1)) below it stay idle.
    """

    exponent: float = 0.5
    floor: float = 0.0

    knows: ClassVar[frozenset[str]] = frozenset({"remaining", "curve"})

    def __post_init__(self) -> None:
        if require_share(self.exponent, "rank-priced: exponent") == 1:
            raise ModelError("rank-priced: exponent must be below 1, got 1")
        require_share(self.floor, "rank-priced: floor")

    def grants(self, jobs: ActiveJobs, nodes: int, now: float) -> np.ndarray:
        """See `Policy`."""
        floor = float(self.floor)
        alone = jobs.tables.derived(speed_increments, floor)[jobs.row, 0]
        order = np.argsort(-jobs.remaining / alone, kind="stable")
        price = np.empty(len(order))
        price[order] = rank_prices(len(order), self.exponent)
        return greedy(jobs, speed_increments, floor, price / alone, nodes)
