"""Queueing networks, closed and open: stations and classes, their files, and the verb `solve` with a value per method.

`bounds`, `sensitivity` and `solve_batch` answer more than one question at once; loops in kernels/ are in Cython.
"""

from .approximate import ApproximateMVA
from .bounds import (
    Bounds,
    barrier_time,
    bounds,
    knee_throughput,
    knee_width,
    plot_network_solution,
    saturation_population,
)
from .exact import ExactMVA, marginal_distribution
from .jmva import read_jmva, read_jmva_sweep, write_jmva
from .markov import MarkovChain
from .network import Network
from .response_times import response_percentile
from .sensitivity import Sensitivity, SymbolicSolution, sensitivity, solve_symbolic
from .simulation import Simulation, SimulationResult
from .solution import Solution
from .solve import BatchSolution, Solver, mva_recursion, solve, solve_batch
from .stations import LARGEST_POPULATION, JobClass, PhaseType, Station

__all__ = [
    "LARGEST_POPULATION", "ApproximateMVA", "BatchSolution", "Bounds", "ExactMVA", "JobClass", "MarkovChain",
    "Network", "PhaseType", "Sensitivity", "Simulation", "SimulationResult", "Solution", "Solver", "Station",
    "SymbolicSolution", "barrier_time", "bounds", "knee_throughput", "knee_width", "marginal_distribution",
    "mva_recursion", "plot_network_solution", "read_jmva", "read_jmva_sweep", "response_percentile",
    "saturation_population", "sensitivity",
    "solve", "solve_batch", "solve_symbolic", "write_jmva",
]  # fmt: skip
