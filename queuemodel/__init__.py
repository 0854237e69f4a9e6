"""Throughput of distributed training against node count, from a short profile and a closed queueing network."""

from ._version import __version__
from .errors import (
    DataError,
    ExtrapolationWarning,
    FitError,
    MissingDependencyError,
    ModelError,
    ProfilingError,
    QueueModelError,
    QueueModelWarning,
)
from .network import Network, Solution, Station
from .solvers import (
    Bounds,
    ExactMVA,
    asymptotic_bounds,
    balanced_job_bounds,
    saturation_population,
    solve,
)

__all__ = [
    "Bounds",
    "DataError",
    "ExactMVA",
    "ExtrapolationWarning",
    "FitError",
    "MissingDependencyError",
    "ModelError",
    "Network",
    "ProfilingError",
    "QueueModelError",
    "QueueModelWarning",
    "Solution",
    "Station",
    "__version__",
    "asymptotic_bounds",
    "balanced_job_bounds",
    "saturation_population",
    "solve",
]
