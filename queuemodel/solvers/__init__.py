"""How a closed network is solved: one verb, `solve`, and a value per method.

A request is lowered first (`lowering`: the network's numbers at a population). Exact methods take product form:
`mva` chooses between `recursions` (mean values), `constants` and `convolution` (one class, any speeds), `multiclass`
(`merging`, then the cheapest of several) and `lattice` (classes, any speeds). `approximate` looks for `fixed_points` of
what `amva` says of residence times and is `held` to the bounds. `markov` and `simulation` follow customers along
`routes`.

Around them: `bounds` and `bottlenecks` need no solution, `sensitivity` differentiates, `symbolic` gives formulas,
`batch` solves thousands at once, `barrier` and `knee` are for synchronous rounds and low variability. Inner loops are
in `kernels`, compiled when first used.
"""

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
