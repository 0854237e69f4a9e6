"""Synchronous SGD on parameter servers: all workers begin together, and the round ends with the last one's result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..checks import require_count
from .rules import NOTHING, Pace, Rule

#: Standard deviation of the logarithm of transfers' shares of a link, where they begin together: that of plain sockets'
#: fetches is 0.15 under cubic with 12 ms of buffer, 0.3 with few packets of it each, and more under BBR
#: (validation/testbed: together).
SPREAD = 0.2

#: Quantiles of a normal law: how many standard deviations they cover, and the step between them for one time; how many
#: orders are treated together.
SIGMAS, STEP, ROWS = 8.2, 0.6, 1000

#: Times that vary less than this (squared coefficient of variation) are constant.
CONSTANT = 1e-12


@dataclass(frozen=True, slots=True)
class Barrier:
    """Rounds of all workers, a rule around that of the same cluster without rounds.

    All fetch at once, and end one after the other by unequal shares of the link (`shared`). Results arrive in the order
    of means, with the spreads of fetches and of own times combined as those of independent times, at a server that
    shares its time equally. Exact where nobody waits for a server, or where nothing varies; else mostly a little too
    fast (docs/explanation/half-synchronous).
    """

    base: Rule  # Of the same cluster without rounds
    servers: int
    scv: float  # Squared coefficient of variation of a worker's own time, which follows a gamma law
    spread: float = SPREAD  # Standard deviation of the logarithms of fetches' shares of the link

    method = "order statistics (rounds, approximate)"

    def solve(self, D: np.ndarray, Z: np.ndarray, populations: np.ndarray) -> Pace:
        """See `Rule`; a worker's wait for the others counts as its own time."""
        pace = self.base.solve(D, Z, populations)
        rounds = [n / np.maximum(self.round_time(D, Z, n), NOTHING) for n in populations.tolist()]
        X = np.clip(rounds, *self.bounds(D, Z, populations))
        cycle = populations.reshape(-1, *[1] * Z.ndim) / X
        R = np.minimum(pace.R, cycle[..., None] / D.shape[-1])
        return Pace(X, R, cycle - R.sum(axis=-1))

    def round_time(self, D: np.ndarray, Z: np.ndarray, n: int) -> np.ndarray:
        """Seconds of a round of n workers, shape of Z."""
        busiest_fetch, fetch, busiest, after = self._phases(D)
        ends = np.maximum(n * busiest_fetch, fetch)[..., None] * shared(n, self.spread)
        own = Z[..., None] * ordered(n, self.scv)
        apart, later = ends - ends.mean(axis=-1, keepdims=True), own - own.mean(axis=-1, keepdims=True)
        first, second = apart.std(axis=-1, keepdims=True), later.std(axis=-1, keepdims=True)
        between = (first * apart + second * later) / np.maximum(np.hypot(first, second), NOTHING)
        arrivals = (ends + own).mean(axis=-1, keepdims=True) + between
        behind = np.arange(n)[::-1] * busiest[..., None]
        return np.asarray((arrivals + behind).max(axis=-1) + after)

    def bounds(self, D: np.ndarray, Z: np.ndarray, populations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Least and most steps per second (n, ...), for constant demands and servers that never idle with work.

        A round is over when the slowest has computed and all that came meanwhile is served; it lasts at least as long
        as the slowest with one step's demands, and as the busiest server needs for all.
        """
        busiest_fetch, fetch, busiest, after = self._phases(D)
        least, most = [], []
        for n in populations.tolist():
            own = Z * ordered(n, self.scv)[-1]
            least.append(n / (own + n * (fetch + after)))
            most.append(n / np.maximum.reduce([own + fetch + after, n * busiest_fetch, n * busiest]))
        return np.array(least), np.array(most)

    def _phases(self, D: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Seconds of a fetch at the busiest server and of all of it, and the same of what comes after computing."""
        each = D.reshape(*D.shape[:-1], self.servers, -1)
        busiest, whole = each.max(axis=-2), each.sum(axis=-2)
        first = 1 if each.shape[-1] > 1 else 0  # one station alone serves what comes after computing
        after = busiest[..., first:].max(axis=-1), whole[..., first:].sum(axis=-1)
        return busiest[..., :first].sum(axis=-1), whole[..., :first].sum(axis=-1), *after


def order_statistic(isf: Callable[[np.ndarray], np.ndarray], k: int, n: int) -> float:
    """Mean of the k-th smallest of n independent times of any law.

    Exact up to quadrature (the trapezoidal rule over normal quantiles).

    Raises
    ------
    ModelError
        When k and n are not such numbers.

    Examples
    --------
    >>> import numpy as np
    >>> round(order_statistic(lambda p: -np.log(p), 4, 8), 4)  # exponential: H_8 - H_4
    0.6345
    """
    from scipy import special

    n = require_count(n, "order_statistic: n")
    k = require_count(k, "order_statistic: k", most=n)
    exceeded = np.clip(special.ndtr(-_quantiles(n)), 1e-300, 1 - 2**-53)
    return float(_in_order(np.asarray(isf(exceeded)), n, np.array([k]))[0])


@lru_cache(maxsize=4096)
def ordered(n: int, scv: float) -> np.ndarray:
    """Means of the smallest, second, ... largest of n gamma times of mean 1, shape (n,), read-only.

    Exact up to quadrature; ``scv`` is the squared coefficient of variation, 1 that of the exponential law.
    """
    from scipy import special

    if scv <= CONSTANT:
        return _frozen(np.ones(n))
    z = _quantiles(n)
    low, high = special.ndtr(np.minimum(z, 0.0)), special.ndtr(-np.maximum(z, 0.0))
    t = scv * np.where(z < 0, special.gammaincinv(1 / scv, low), special.gammainccinv(1 / scv, high))
    return _frozen(_in_order(t, n))


@lru_cache(maxsize=4096)
def shared(n: int, spread: float) -> np.ndarray:
    """When n equal transfers that begin together end, in order, over the time of all, shape (n,), read-only.

    Each gets a share of the link in proportion to its weight, lognormal with ``spread`` the standard deviation of the
    logarithm; the k-th to end has the k-th largest. By then k are through, and each of the others as far as its weight
    over that one's: t_k = (k + sum w_i / w_k) / n (discriminatory processor sharing, Kleinrock 1967). Exact up to
    quadrature.
    """
    from scipy import special

    z = _quantiles(n)  # of the k-th weight, from the smallest one
    lighter = np.exp(spread**2 / 2 - spread * z + special.log_ndtr(z - spread) - special.log_ndtr(z))
    k = np.arange(n, 0, -1)
    return _frozen((1 - (n - k) / n * (1 - _in_order(lighter, n)))[::-1])


def _quantiles(n: int) -> np.ndarray:
    """Normal quantiles, as fine as the beta laws of n."""
    step = STEP / n**0.5
    return np.arange(-SIGMAS, SIGMAS + step, step)


def _in_order(t: np.ndarray, n: int, orders: np.ndarray | None = None) -> np.ndarray:
    """Means of a time t(z), at the normal quantiles of n, when z is the j-th smallest of n, for all j or given ones.

    It counts n binom(n - 1, j - 1) Phi^(j - 1) (1 - Phi)^(n - j) as often.
    """
    from scipy import special

    z = _quantiles(n)
    below, above = special.log_ndtr(z), special.log_ndtr(-z)
    every = np.arange(1, n + 1) if orders is None else orders
    means = []
    for j in np.array_split(every[:, None], -(-len(every) // ROWS)):
        ways = special.gammaln(n + 1) - special.gammaln(j) - special.gammaln(n - j + 1)
        often = np.exp(ways + (j - 1) * below + (n - j) * above - z**2 / 2)
        means.append(often @ t / often.sum(axis=1))
    return np.concatenate(means)


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array
