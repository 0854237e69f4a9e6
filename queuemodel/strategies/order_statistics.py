"""How long the K-th of n takes: order statistics of independent times, by exact integrals."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache

import numpy as np

from ..checks import require_count

#: Nodes of the Gauss-Legendre rules, and how many standard deviations of a normal law the first one covers.
NODES, SIGMAS = 96, 8.2

#: A sum of all workers' ends is transformed at once if it is at most so many times longer than what is asked for.
MOST_ENDS = 16

#: Step of the trapezoidal rule for one time, and rows that are treated together.
STEP, ROWS = 0.6, 1000

#: Times that vary less than this (squared coefficient of variation) are constant.
CONSTANT = 1e-12


def order_statistic(isf: Callable[[np.ndarray], np.ndarray], k: int, n: int) -> float:
    """Mean of the k-th smallest of n independent times of any law.

    Exact up to quadrature: the k-th smallest of n uniform numbers has a beta law, integrated over normal quantiles, so
    that the ends of an unbounded law do no harm.

    Parameters
    ----------
    isf : callable
        The law's inverse survival function: the time that is exceeded with that probability, for an array of them; as
        ``isf`` of the laws in `scipy.stats`.
    k, n : int
        1 <= k <= n.

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
    n = require_count(n, "order_statistic: n")
    return float(_means(isf, np.array([require_count(k, "order_statistic: k", most=n)]), n)[0])


def _means(isf: Callable[[np.ndarray], np.ndarray], k: np.ndarray, n: int) -> np.ndarray:
    from scipy import special

    z, weight = _rule(NODES)
    z, weight = SIGMAS * z, SIGMAS * weight * np.exp(-((SIGMAS * z) ** 2) / 2) / np.sqrt(2 * np.pi)
    exceeded = special.betaincinv(n - k[:, None] + 1, k[:, None], special.ndtr(-z))
    return np.asarray(isf(np.maximum(exceeded, 1e-300))) @ weight


@cache
def _rule(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of Gauss and Legendre on -1 to 1."""
    z, weight = np.polynomial.legendre.leggauss(nodes)
    return _frozen(z), _frozen(weight)


@lru_cache(maxsize=4096)
def ordered(k: int, n: int, scv: float) -> np.ndarray:
    """Means of the smallest, second, ... k-th smallest of n gamma times of mean 1, shape (k,), read-only.

    The trapezoidal rule over normal quantiles z, as fine as the beta laws of n: a time t(z) counts as often as it is
    the j-th of n, n binom(n - 1, j - 1) Phi^(j - 1) (1 - Phi)^(n - j).

    Parameters
    ----------
    k, n : int
    scv : float
        Squared coefficient of variation; 1 is the exponential law.
    """
    from scipy import special

    if scv <= CONSTANT:
        return _frozen(np.ones(k))
    z = _quantiles(n)
    low, high = special.ndtr(np.minimum(z, 0.0)), special.ndtr(-np.maximum(z, 0.0))
    t = scv * np.where(z < 0, special.gammaincinv(1 / scv, low), special.gammainccinv(1 / scv, high))
    return _frozen(_in_order(t, k, n))


@lru_cache(maxsize=64)
def rejoined(k: int, late: int) -> np.ndarray:
    """Mean times of rounds of 1, ..., k results with so many late workers, shape (k,), read-only.

    Times are exponential, of mean 1. As many as count begin together; the late ones first end older times, which do not
    count, and then join them. Exact: with j results to come and s older times each of j + late is as likely to end
    next, E(j, s) = (1 + (j + late - s) E(j - 1, s) + s E(j, s - 1)) / (j + late). That of one result is what the
    birthday problem asks, people until two have the same of late + 1 days, less one and over the days.
    """
    E, mean = np.zeros(late + 1), np.empty(k)
    for both in range(1, k + late + 1):  # j + s
        s = np.arange(max(0, both - k), min(late, both - 1) + 1)
        E[s] = (1 + (both + late - 2 * s) * E[s] + s * E[s - 1]) / (both + late - s)
        if both > late:
            mean[both - late - 1] = E[late]
    return _frozen(mean)


@lru_cache(maxsize=4096)
def shared(n: int, spread: float) -> np.ndarray:
    """When n equal transfers that begin together end, in order, over the time of all, shape (n,), read-only.

    Each gets a share of the link in proportion to its weight, lognormal; the k-th to end has the k-th largest. By then
    k are through, and each of the others as far as its weight over that one's: t_k = (k + sum w_i / w_k) / n
    (discriminatory processor sharing, Kleinrock 1967). Exact up to quadrature.

    Parameters
    ----------
    n : int
    spread : float
        Standard deviation of the weights' logarithms.
    """
    from scipy import special

    z = _quantiles(n)  # of the k-th weight, from the smallest one
    lighter = np.exp(spread**2 / 2 - spread * z + special.log_ndtr(z - spread) - special.log_ndtr(z))
    k = np.arange(n, 0, -1)
    return _frozen((1 - (n - k) / n * (1 - _in_order(lighter, n, n)))[::-1])


def _quantiles(n: int) -> np.ndarray:
    """Normal quantiles, as fine as the beta laws of n."""
    step = STEP / n**0.5
    return np.arange(-SIGMAS, SIGMAS + step, step)


def _in_order(t: np.ndarray, k: int, n: int) -> np.ndarray:
    """Means of a time t(z), at the normal quantiles of n, when z is the smallest, second, ... k-th smallest of n."""
    from scipy import special

    z = _quantiles(n)
    below, above = special.log_ndtr(z), special.log_ndtr(-z)
    means = []
    for j in np.array_split(np.arange(1, k + 1)[:, None], -(-k // ROWS)):
        ways = special.gammaln(n + 1) - special.gammaln(j) - special.gammaln(n - j + 1)
        often = np.exp(ways + (j - 1) * below + (n - j) * above - z**2 / 2)
        means.append(often @ t / often.sum(axis=1))
    return np.concatenate(means)


@lru_cache(maxsize=4096)
def superposed(k: int, n: int, scv: float) -> np.ndarray:
    """Mean times of the first k ends of n workers' gamma times of mean 1, one after another, shape (k,), read-only.

    All workers begin together, and each begins its next time when one ends. Exact up to quadrature: the j-th end of a
    worker has a gamma law too, and how many have ended by t is a sum of n independent numbers.
    """
    from scipy import fft, special

    if scv <= CONSTANT:
        return _frozen(np.arange(n, n + k) // n * 1.0)
    shape = 1.0 / scv
    end = special.gammainccinv(shape * -(-k // n), 1e-14) / shape
    x, weight = _rule(4 * NODES)
    u = (x[:, None] + 1) / 2
    t = end * u**3  # more nodes where the first of many ends
    most = int(np.count_nonzero(special.gammainc(shape * np.arange(1, k + 1), shape * end) > 1e-18))
    j = np.arange(most + 2)  # ends of one worker; what is more than k of all does not matter
    reached = np.where(j == 0, 1.0, special.gammainc(shape * np.maximum(j, 1), shape * t))
    one, total = (reached[:, :-1] - reached[:, 1:])[:, :k], np.eye(1, k)
    if n * most < MOST_ENDS * k:
        size = fft.next_fast_len(n * most + 1, real=True)
        total = fft.irfft(fft.rfft(one, size) ** n, size)[:, :k]
        n = 0
    size = fft.next_fast_len(2 * k, real=True)
    while n:
        spectrum = fft.rfft(one, size)
        if n % 2:
            total = fft.irfft(fft.rfft(total, size) * spectrum, size)[:, :k]
        one, n = fft.irfft(spectrum**2, size)[:, :k], n // 2
    fewer = np.clip(np.cumsum(total, axis=-1), 0.0, 1.0)  # than the i-th, so far
    return _frozen((1.5 * end * weight * u[:, 0] ** 2) @ fewer)


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array
