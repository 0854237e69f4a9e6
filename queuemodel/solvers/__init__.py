"""How a closed network is solved: one verb, `solve`, and a value per method.

A request becomes numbers first (`chains`: those of a network at a population, and the way back to a solution). Exact
methods take product form: `exact` chooses between recursions and `convolution`, which takes any speeds. `approximate`
looks for fixed points and holds them to the bounds. `markov` and `simulation` follow customers along `routes`.

Around them: `bounds` need no solution, `sensitivity` differentiates, `symbolic` gives formulas, `batch` solves
thousands at once, `rounds` is of synchronous rounds and low variability. Inner loops are in `kernels`, compiled when
first used.
"""

from .approximate import ApproximateMVA
from .batch import BatchSolution, mva_recursion, solve_batch
from .bounds import Bounds, bounds, saturation_population
from .convolution import marginal_distribution
from .exact import ExactMVA
from .markov import MarkovChain
from .rounds import barrier_time, knee_throughput, knee_width
from .sensitivity import Sensitivity, sensitivity
from .simulation import Simulation, SimulationResult
from .solve import Solver, solve
from .symbolic import SymbolicSolution, solve_symbolic

__all__ = [
    "ApproximateMVA",
    "BatchSolution",
    "Bounds",
    "ExactMVA",
    "MarkovChain",
    "Sensitivity",
    "Simulation",
    "SimulationResult",
    "Solver",
    "SymbolicSolution",
    "barrier_time",
    "bounds",
    "knee_throughput",
    "knee_width",
    "marginal_distribution",
    "mva_recursion",
    "saturation_population",
    "sensitivity",
    "solve",
    "solve_batch",
    "solve_symbolic",
]
