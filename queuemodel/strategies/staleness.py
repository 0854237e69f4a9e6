"""How many updates of others pass between a worker's reading and its writing."""

from __future__ import annotations

import numpy as np

from ..network import Network
from ..solvers import solve


def staleness(network: Network, *, population: int | None = None) -> np.ndarray:
    """Mean staleness of an asynchronous worker of each class: X_total / X_i - 1.

    Others make X_total - X_i steps per second, and a step of worker i takes 1 / X_i. Exact where the solution is:
    for the closed networks of `TrainingModel.network`, workers of any speeds included.

    Parameters
    ----------
    network : Network
        Each customer a worker; without classes, or with one for each kind of worker.
    population : int, optional
        Number of workers, for a network without classes.

    Returns
    -------
    ndarray, shape (C,)
        Steps of others, for a worker of each class; one class where there are none.

    Examples
    --------
    >>> import math
    >>> from queuemodel import Station
    >>> network = Network([Station("ps", service_time=0.1), Station("worker", service_time=1.0, servers=math.inf)])
    >>> staleness(network, population=4).tolist()
    [3.0]
    """
    solution = solve(network, population=population)
    workers = np.array([c.population for c in network.classes] or [solution.population])
    every = np.atleast_1d(solution.class_throughput) if network.classes else np.array([solution.throughput])
    with np.errstate(invalid="ignore", divide="ignore"):  # NaN for a class without workers
        return every.sum() * workers / every - 1
