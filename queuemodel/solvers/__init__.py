"""How a closed network is solved: one verb, `solve`, and a value per method."""

from .bounds import Bounds, asymptotic_bounds, balanced_job_bounds, saturation_population
from .knee import knee_throughput, knee_width
from .mva import ExactMVA
from .solve import Solver, solve

__all__ = [
    "Bounds",
    "ExactMVA",
    "Solver",
    "asymptotic_bounds",
    "balanced_job_bounds",
    "knee_throughput",
    "knee_width",
    "saturation_population",
    "solve",
]
