"""How a closed network is solved: one verb, `solve`, and a value per method."""

from .approximate import AQL, ApproximateMVA, BardSchweitzer, Linearizer
from .barrier import barrier_time
from .batch import BatchSolution, solve_batch
from .bottlenecks import BottleneckSwitch, bottleneck_switches, saturation_population
from .bounds import Bounds, asymptotic_bounds, balanced_job_bounds, geometric_bounds, proportional_bounds
from .convolution import Convolution, log_normalizing_constants, marginal_distribution, queue_length_variance
from .knee import knee_throughput, knee_width
from .markov import MarkovChain
from .mva import ExactMVA
from .sensitivity import Sensitivity, sensitivity
from .sensitivity_classes import ClassSensitivity
from .simulation import Simulation, SimulationResult
from .solve import Solver, solve
from .symbolic import SymbolicSolution, solve_symbolic

__all__ = [
    "AQL",
    "ApproximateMVA",
    "BardSchweitzer",
    "BatchSolution",
    "BottleneckSwitch",
    "Bounds",
    "ClassSensitivity",
    "Convolution",
    "ExactMVA",
    "Linearizer",
    "MarkovChain",
    "Sensitivity",
    "Simulation",
    "SimulationResult",
    "Solver",
    "SymbolicSolution",
    "asymptotic_bounds",
    "balanced_job_bounds",
    "barrier_time",
    "bottleneck_switches",
    "geometric_bounds",
    "knee_throughput",
    "knee_width",
    "log_normalizing_constants",
    "marginal_distribution",
    "proportional_bounds",
    "queue_length_variance",
    "saturation_population",
    "sensitivity",
    "solve",
    "solve_batch",
    "solve_symbolic",
]
