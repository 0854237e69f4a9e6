"""Simulation of a network, customer by customer: an estimate with an interval, for any size and service.

`arrays` puts a network into the arrays that the compiled loop (`solvers.kernels.simulate`) works on, `replication`
runs it batch by batch, `series` judges from the batches whether the run was long enough, and `solver` repeats that in
replications until it was, or says that it was not; `result` is what comes out.
"""

from .result import SimulationResult
from .solver import Simulation

__all__ = ["Simulation", "SimulationResult"]
