"""Throughput around the knee when service varies little: sharper than product form, rounder than its asymptotes."""

import numpy as np


def knee_throughput(
    population: np.ndarray | float, *, cycle: np.ndarray | float, demand: np.ndarray | float, width: np.ndarray | float
) -> np.ndarray:
    """Approximate throughput of a closed first-come-first-served network with low variability (arguments broadcast).

    With constant times, N customers whose undisturbed cycle takes R and who need D of the busiest station end a round
    in max(R, N D). With varying ones the round is the mean of that maximum; for a normal cycle time whose coefficient
    of variation grows with the others that one meets, s_N = s sqrt(1 - 1/N) (Clark, 1961, for the mean):

    C(N) = R (Phi(-z) + u Phi(z) + s_N phi(z)),  u = N D / R,  z = (u - 1) / s_N,  X(N) = N / C(N).

    Exact for N = 1, for N to infinity and, with width 0, for constant times; approximate between: compared with
    simulation in docs/explanation/model.

    Parameters
    ----------
    population : array
        Customers, >= 1.
    cycle, demand : array
        Seconds: the undisturbed cycle, and the share of it that the busiest station serves.
    width : array
        s, from `knee_width`.

    Returns
    -------
    ndarray
        Cycles per second of all customers.
    """
    from scipy.special import ndtr

    N = np.asarray(population, dtype=float)
    u = N * demand / cycle
    s = np.maximum(width * np.sqrt(1.0 - 1.0 / N), 1e-9)
    z = (u - 1.0) / s
    C = cycle * (ndtr(-z) + u * ndtr(z) + s * np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi))
    return np.asarray(N / C)


def knee_width(cv: np.ndarray | float) -> np.ndarray:
    """The knee's width s for service and think times of coefficient of variation ``cv``, 0 to 1.

    A line through simulations of closed first-come-first-served networks: 0.15, 0.25 and 0.40 at 0.1, 0.3 and 0.5, and
    0.65 for exponential times.
    """
    return np.asarray(np.interp(cv, [0.0, 0.1, 0.3, 0.5, 1.0], [0.05, 0.15, 0.25, 0.40, 0.65]))
