"""How a closed network is solved: one verb, `solve`, and a value per method."""

from .approximate import AQL, ApproximateMVA, BardSchweitzer, Linearizer
from .bounds import Bounds, asymptotic_bounds, balanced_job_bounds, saturation_population
from .convolution import Convolution, log_normalizing_constants, marginal_distribution, queue_length_variance
from .knee import knee_throughput, knee_width
from .mva import ExactMVA
from .solve import Solver, solve

__all__ = [
    "AQL",
    "ApproximateMVA",
    "BardSchweitzer",
    "Bounds",
    "Convolution",
    "ExactMVA",
    "Linearizer",
    "Solver",
    "asymptotic_bounds",
    "balanced_job_bounds",
    "knee_throughput",
    "knee_width",
    "log_normalizing_constants",
    "marginal_distribution",
    "queue_length_variance",
    "saturation_population",
    "solve",
]
